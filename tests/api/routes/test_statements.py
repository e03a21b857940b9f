"""A statement that is not waited for ends, and is noted."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from api import cli, serving
from api.auth import token_of
from api.observability.audit_log import audited_act, note_unended
from infra.config.settings import Settings, load
from infra.errors import Retryable

LONG = (
    "WITH d AS (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4), "
    "e AS (SELECT a.x FROM d a, d b, d c, d f, d g, d h, d i) "
    "SELECT count(*) FROM e a, e b, e c WHERE a.x + b.x * c.x = -1"
)


def noted(settings: Settings) -> list[dict[str, str]]:
    files = sorted((settings.home / "spool" / "audit").glob("*.json"))
    return [json.loads(file.read_text()) for file in files]


def begun(settings: Settings) -> list[Path]:
    return sorted((settings.home / "spool" / "audit").glob(".*.begun"))


def until(what: str, ready: object) -> None:
    assert callable(ready)
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.full
def test_who_hangs_up_ends_the_statement_and_sigterm_the_api(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    token = token_of(settings)
    before = len(noted(settings))
    api = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "--home", str(settings.home), "api", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert api.stdout is not None
        port = int(re.search(r":(\d+) ", api.stdout.readline())[1])  # type: ignore[index]
        body = json.dumps({"sql": LONG})
        head = (
            f"POST /api/v1/statements HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall((head + body).encode())
            until("the statement was not begun", lambda: begun(settings))
        until("it was not ended", lambda: len(noted(settings)) > before)
        assert "hung up" in noted(settings)[-1]["detail"]
        stream = f"GET /api/v1/alerts/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
        with ExitStack() as callers:
            # Whatever is open: nothing said, half a header, half a body, a stream without an end.
            for sent in ("", "GET / HTTP", head + body[:9], stream + "\r\n\r\n", head + body):
                caller = callers.enter_context(socket.create_connection(("127.0.0.1", port)))
                caller.sendall(sent.encode())
            until("the statement was not begun", lambda: begun(settings))
            api.send_signal(signal.SIGTERM)
            assert api.wait(30) == 0
    finally:
        api.kill()
        api.wait()
    note_unended(settings)
    assert len(noted(settings)) == before + 2
    assert begun(settings) == []


def test_no_thread_holds_up_an_end_for_longer_than_five_seconds() -> None:
    assert cli._LOOK_SECONDS + serving.LAST_ANSWERS + cli._LAST_WORDS < 5


def test_an_act_whose_process_ended_is_noted_by_the_next_one(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    if (child := os.fork()) == 0:
        with audited_act(settings, "statement", {"sql": "SELECT 1"}, who="eve"):
            os._exit(0)
    os.waitpid(child, 0)
    assert noted(settings) == []
    assert note_unended(settings) == 1
    (row,) = noted(settings)
    assert (row["who"], row["outcome"]) == ("eve", "failed")
    assert f"process {child} ended before it did" in row["detail"]


def test_a_note_that_a_power_cut_emptied_becomes_no_row(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    folder = tmp_path / "spool" / "audit"
    folder.mkdir(parents=True)
    (folder / ".20261120T120000000000-a.99999999.begun").touch()
    assert note_unended(settings) == 0
    assert list(folder.iterdir()) == []


def test_what_cannot_be_noted_is_not_done(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    (tmp_path / "spool").write_text("no folder")
    with (
        pytest.raises(Retryable, match="cannot be written"),
        audited_act(settings, "statement", {"sql": "SELECT 1"}),
    ):
        raise AssertionError
