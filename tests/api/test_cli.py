"""The commands `sql`, `lease` and `api`."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from api import cli
from api.auth import token_of
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, Usage


def run(argv: Sequence[str], settings: Settings) -> int:
    parser = argparse.ArgumentParser()
    cli.build(parser.add_subparsers(required=True))
    args = parser.parse_args(argv)
    code: int = args.run(args, settings)
    return code


SQL = "SELECT event_uid, time, record_ids FROM silver.event WHERE source = :s ORDER BY time"


@pytest.mark.full
def test_sql_writes_each_format(day_settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sql", SQL, "--param", "s=sshd", "--max-rows", "1", "--output"]
    assert run([*asked, "json"], day_settings) == 0
    printed = capsys.readouterr()
    wanted = {"event_uid": "e1:0", "time": "2026-11-20T12:05:00Z", "record_ids": ["e1"]}
    assert json.loads(printed.out) == [wanted]
    assert "cut after 1 rows" in printed.err
    assert run([*asked, "ndjson"], day_settings) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    assert run([*asked, "csv"], day_settings) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [list(wanted), ["e1:0", "2026-11-20T12:05:00Z", '["e1"]']]
    assert run([*asked, "table"], day_settings) == 0
    assert "e1:0" in capsys.readouterr().out


def test_sql_reads_the_statement_from_standard_input(
    day_settings: Settings,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS one"))
    assert run(["sql", "-", "--output", "json"], day_settings) == 0
    assert json.loads(capsys.readouterr().out) == [{"one": 1}]


def test_sql_refuses_in_a_sentence_and_notes_it(day_settings: Settings) -> None:
    spool = day_settings.home / "spool" / "audit"
    before = set(spool.glob("*.json"))
    with pytest.raises(Usage, match="function getenv is not known"):
        run(["sql", "SELECT getenv('HOME')"], day_settings)
    (noted,) = set(spool.glob("*.json")) - before
    row = json.loads(noted.read_text("utf-8"))
    assert (row["who"], row["act"], row["outcome"]) == ("cli", "statement", "refused")
    with pytest.raises(Usage, match="--param x: write NAME=VALUE"):
        run(["sql", "SELECT 1", "--param", "x"], day_settings)


def test_lease_says_who_held_the_address(
    day_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["lease", "10.0.0.1", "--at"]
    assert run([*asked, "2026-11-20T13:45:00+01:00", "--output", "json"], day_settings) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["lease"]["mac"]) == ("leased", "02:00:00:00:00:0b")
    assert run([*asked, "2026-11-20T12:35:00Z"], day_settings) == 0
    printed = capsys.readouterr().out
    assert "none" in printed
    assert "2026-11-20T14:00:00Z" in printed


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["lease", "10.0.0", "--at", "2026-11-20T12:00:00Z"], "'10.0.0' is not an IP address"),
        (["lease", "10.0.0.1", "--at", "noon"], "--at noon: write an instant"),
        (["lease", "10.0.0.1", "--at", "2026-11-20T12:00:00"], "name the zone"),
    ],
)
def test_lease_names_what_is_wrong(argv: list[str], said: str, day_settings: Settings) -> None:
    with pytest.raises(Usage, match=said):
        run(argv, day_settings)


def test_a_missing_lake_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match="there is no lake here"):
        run(["lease", "10.0.0.1", "--at", "2026-11-20T12:00:00Z"], load(home=tmp_path / "x"))


def test_a_taken_port_is_one_sentence(day_settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Usage, match=f"cannot listen on 127.0.0.1:{port} .*--port"):
            run(["api", "--port", str(port)], day_settings)
    with pytest.raises(SystemExit) as refused:
        run(["api", "--port", "70000"], day_settings)
    assert refused.value.code == 2


@pytest.mark.full
def test_api_serves_until_interrupted_and_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = "import sys; from headgate.cli import main; sys.exit(main(sys.argv[1:]))"
    serving = subprocess.Popen(
        [sys.executable, "-c", code, "--home", str(home), "api", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        address = serving.stdout.readline().split()[2]
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answered:
                    assert json.load(answered) == {"status": "ok"}
                break
            except OSError:
                time.sleep(0.1)
        asked = urllib.request.Request(
            f"{address}/api/v1/statements",
            json.dumps({"sql": "SELECT 1 AS x"}).encode(),
            {"Authorization": f"Bearer {token_of(load(home=home))}",
             "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(asked, timeout=20) as answered:
            assert json.load(answered)["rows"] == [[1]]
        children = _children(serving.pid)
        assert children
        serving.send_signal(signal.SIGINT)
        assert serving.wait(15) in (0, 130)
    finally:
        serving.kill()
        serving.wait()
    end = time.monotonic() + 5
    while any(_alive(pid) for pid in children) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in children)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    threads = Path(f"/proc/{pid}/task").iterdir()
    found = [int(word) for t in threads for word in (t / "children").read_text().split()]
    return found or [int(word) for word in text.split()]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv"])
def test_two_columns_of_one_name_are_both_there(
    form: str, day_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sql", "SELECT 11 AS a, 22 AS a, 33 AS a_2", "--output", form]
    assert run(asked, day_settings) == 0
    printed = capsys.readouterr().out
    assert all(value in printed for value in ("11", "22", "33"))
