"""Reports and inventories over REST: commands that run apart, and what they came to."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.credentials import Credentials
from api.services import act_store
from api.services.act_store import StateFolder, new_id
from api.services.runs.command_runs import RUNS_KEPT, CommandRuns
from infra.config.settings import Settings, load
from infra.process import subprocesses
from tests.api.desk import audited, ended
from tests.full import rest_full

TOKEN = "t" * 32
MINUTE = 60.0
RUNS = "/api/v1/reports/runs"


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN, "console": False})


@pytest.fixture
def client(home: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(home), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client


@pytest.mark.full
def test_a_run_that_fails_says_what_the_command_said(client: TestClient, home: Settings) -> None:
    wrong = client.post("/api/v1/reports", json={"report": "none", "interval": "yesterday"})
    assert wrong.status_code == 422
    assert "daily" in wrong.json()["detail"]
    asked = client.post("/api/v1/reports", json={"report": "daily", "interval": "2026-11-20"})
    assert asked.status_code == 202
    run = ended(client, asked.headers["location"])
    assert (run["state"], run["files"]) == ("failed", [])
    assert "there is no lake here" in run["problem"]
    listed = client.get("/api/v1/reports/runs").json()["items"]
    assert [item["id"] for item in listed] == [run["id"]]
    acts = [(row["act"], row["target"], row["outcome"]) for row in audited(home)]
    assert acts == [("report.run", run["id"], outcome) for outcome in ("ok", "failed")]


@pytest.mark.parametrize(
    ("given", "words"),
    rest_full(
        1,
        [
            ({"report": "device"}, "report device: give the subject, a MAC address"),
            ({"report": "daily", "subject": "laptop-7"}, "leave the subject out"),
            ({"report": "daily", "interval": "2026-11-20/2026-11-19"}, "ends before it begins"),
            ({"report": "daily", "zone": "Mars/Base"}, "zone Mars/Base: no such zone"),
            ({"report": "device", "subject": "  "}, "report device: give the subject"),
            (
                {"report": "device", "subject": "a\0b"},
                "subject a\\x00b: has a NUL or half a character",
            ),
            (
                {"report": "daily", "interval": "a\0b"},
                "interval a\\x00b: has a NUL or half a character",
            ),
        ],
    ),
)
def test_a_report_that_cannot_be_is_refused_when_it_is_asked_for(
    client: TestClient, home: Settings, given: dict[str, str], words: str
) -> None:
    refused = client.post("/api/v1/reports", json={"interval": "2026-11-20"} | given)
    assert refused.status_code == 422
    assert words in refused.json()["detail"]
    assert "--" not in refused.json()["detail"]
    assert client.get("/api/v1/reports/runs").json()["items"] == []
    assert [row for row in audited(home) if row["act"] == "report.run"] == []


def test_a_load_of_which_nothing_can_be_read_changes_nothing(
    client: TestClient, home: Settings
) -> None:
    given = {"entries": [{"mac": "no address"}]}
    asked = client.post("/api/v1/inventories/assets/loads", json=given)
    run = ended(client, asked.headers["location"])
    assert run["state"] == "failed"
    assert "none of 1 lines can be read" in run["problem"]
    assert not list((home.home / "api" / "loads").glob("*"))
    assert client.get("/api/v1/inventories/assets").json()["items"] == []
    assert client.get("/api/v1/inventories/loads/none").status_code == 404


@pytest.mark.full
def test_a_report_is_made_apart_and_its_files_are_fetched(
    empty_tables: Path, tmp_path: Path
) -> None:
    shutil.copytree(empty_tables, tmp_path / "lake")
    home = load(home=tmp_path, api={"token": TOKEN, "console": False})
    wanted = {"report": "daily", "interval": "2026-11-20", "formats": ["csv"]}
    with TestClient(create_app(home), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        run = ended(client, client.post("/api/v1/reports", json=wanted).headers["location"])
        assert run["state"] == "done", run["problem"]
        assert run["files"] == [
            "daily-2026-11-20_2026-11-21.csv.zip",
            "daily-2026-11-20_2026-11-21.json",
        ]
        for name in run["files"]:
            assert client.get(f"/api/v1/reports/{name}").status_code == 200


@pytest.mark.full
def test_an_inventory_is_loaded_and_one_entry_of_it_changed(client: TestClient) -> None:
    def loaded(**given: Any) -> dict[str, Any]:
        asked = client.post("/api/v1/inventories/assets/loads", json=given)
        return ended(client, asked.headers["location"])

    both = [
        {"asset_id": "a", "mac": "02:42:ac:77:0b:19", "owner": "anna"},
        {"asset_id": "b", "hostname": "b.example"},
        {"asset_id": "c", "ip": "300.1.1.1"},
    ]
    run = loaded(entries=both)
    assert run["state"] == "done", run["problem"]
    assert (run["counts"]["new"], [each["entry"] for each in run["refused"]]) == (2, [3])
    run = loaded(entries=[both[0] | {"owner": "bea"}], partial=True)
    assert (run["counts"]["changed"], run["counts"]["gone"]) == (1, 0)
    items = client.get("/api/v1/inventories/assets").json()["items"]
    assert [(item["id"], item["values"]["owner"]) for item in items] == [("a", "bea"), ("b", None)]


@pytest.mark.parametrize(
    ("pid", "since", "state"),
    [(0, 0.0, "running"), (0, -3600.0, "failed"), (0, None, "running"), (2**22 + 1, 0.0, "failed")],
)
def test_a_run_of_a_process_before_this_one_has_failed_also_where_the_number_is_the_same(
    home: Settings, pid: int, since: float | None, state: str
) -> None:
    began = psutil.Process().create_time()
    name = new_id()
    run = {"id": name, "state": "running", "made_at": "2026-11-20T00:00:00", "problem": None}
    run["pid"] = pid or os.getpid()
    run |= {} if since is None else {"pid_since": began + since}
    StateFolder(home, "runs-report", RUNS_KEPT).put(name, run)
    runs = CommandRuns(home)
    assert [each["state"] for each in (runs.get("report", name), *runs.listed("report"))] == [
        state,
        state,
    ]
    runs.close()


def test_a_run_whose_result_nobody_can_read_has_failed_and_says_so(
    home: Settings,
) -> None:
    runs = CommandRuns(home)
    run = runs.submit("report", "ann", {}, ("jobs", "--help"), lambda result: {"a": {}["a"]})
    end = time.monotonic() + MINUTE
    while (now := runs.get("report", run["id"]))["ended_at"] is None:
        assert time.monotonic() < end, now
        time.sleep(0.05)
    runs.close()
    assert (now["state"], now["problem"]) == ("failed", "KeyError: 'a'")


MAKING = """
import json, sys, time
words = sys.argv[1:]
if "list" in words:
    print(json.dumps([{"what": "report", "name": "daily", "about": "", "tenant": ""}]))
elif "--dry-run" not in words:
    (file,) = (word.split("=", 1)[1] for word in words if word.startswith("--progress="))
    with open(file, "w") as out:
        json.dump({"step": "question 3 of about 4", "progress": 50.0}, out)
    time.sleep(600)
"""


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of `headgate`: a report that is half made, and goes no further."""
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", MAKING])


def asked(client: TestClient) -> dict[str, Any]:
    answer = client.post("/api/v1/reports", json={"report": "daily", "interval": "2026-11-20"})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def until(client: TestClient, run: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """The run once it is so."""
    end = time.monotonic() + MINUTE
    while any(
        value != (now := client.get(f"{RUNS}/{run['id']}").json())[name]
        for name, value in wanted.items()
    ):
        assert time.monotonic() < end, now
        time.sleep(0.05)
    return dict(now)


@pytest.mark.usefixtures("making")
def test_a_report_being_made_says_how_far_it_is_and_is_ended_with_its_process(
    client: TestClient, home: Settings
) -> None:
    first, second = asked(client), asked(client)
    running = until(client, first, state="running", progress=50.0)
    assert running["step"] == "question 3 of about 4"
    # Workers of SQL may begin meanwhile.
    (child,) = (one for one in psutil.Process().children() if "report" in one.cmdline())
    # One that waits is never begun; its place in the line is free when its turn comes.
    assert client.delete(f"{RUNS}/{second['id']}").json()["state"] == "cancelled"
    assert client.get(f"{RUNS}/{second['id']}").json()["state"] == "cancelled"
    assert client.delete(f"{RUNS}/{first['id']}").json()["state"] == "cancelled"
    for run in (first, second):
        while (over := until(client, run, state="cancelled"))["ended_at"] is None:
            time.sleep(0.05)
        assert over["problem"] is None
    # Not waited for before: that would take its exit code from who began it, which then reads 0.
    assert not child.is_running()
    left = {file.suffix for file in (home.home / "api" / "runs-report").iterdir()}
    assert left == {".json"}
    # What is over leaves the list.
    assert client.delete(f"{RUNS}/{first['id']}").status_code == 200
    assert client.get(f"{RUNS}/{first['id']}").status_code == 404
    assert client.delete(f"{RUNS}/{first['id']}").status_code == 404
    acts = [row["act"] for row in audited(home)]
    assert sorted(acts) == ["report.cancel"] * 2 + ["report.run"] * 2


@pytest.mark.full
@pytest.mark.usefixtures("making")
def test_another_process_of_the_api_ends_it_and_another_caller_does_not(
    client: TestClient, home: Settings
) -> None:
    run = asked(client)
    until(client, run, state="running", progress=50.0)
    _, key = Credentials(home).add_key("eve", "analyst", None)
    eve = {"Authorization": f"Bearer {key}"}
    refused = client.delete(f"{RUNS}/{run['id']}", headers=eve)
    assert refused.status_code == 403
    assert "they or an administrator may end it" in refused.json()["detail"]
    _, key = Credentials(home).add_key("ben", "read", None)
    assert (
        client.delete(f"{RUNS}/{run['id']}", headers={"Authorization": f"Bearer {key}"}).status_code
        == 403
    )
    assert until(client, run, state="running")["problem"] is None
    other = TestClient(create_app(home), raise_server_exceptions=False)
    _, key = Credentials(home).add_key("ada", "admin", None)
    ada = {"Authorization": f"Bearer {key}"}
    assert other.delete(f"{RUNS}/{run['id']}", headers=ada).json()["state"] == "cancelled"
    end = time.monotonic() + MINUTE
    while until(client, run, state="cancelled")["ended_at"] is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    other.app.state.services.close()  # type: ignore[attr-defined]


@pytest.mark.full
@pytest.mark.usefixtures("making")
def test_a_run_that_a_full_disk_does_not_let_end_goes_on_and_that_is_said(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(client)
    until(client, run, state="running", progress=50.0)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "touch", full)
        refused = client.delete(f"{RUNS}/{run['id']}")
    assert (refused.status_code, refused.json()["type"]) == (
        503,
        "urn:headgate:problem:unavailable",
    )
    assert "No space left on device" in refused.json()["detail"]
    assert f"run {run['id']} goes on" in refused.json()["detail"]
    assert client.get(f"{RUNS}/{run['id']}").json()["state"] == "running"
    assert client.delete(f"{RUNS}/{run['id']}").json()["state"] == "cancelled"
    until(client, run, state="cancelled")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", full)
        refused = client.delete(f"{RUNS}/{run['id']}")
    assert (refused.status_code, "cannot be written" in refused.text) == (503, True)
    assert client.get(f"{RUNS}/{run['id']}").status_code == 200


@pytest.mark.full
@pytest.mark.usefixtures("making")
def test_a_run_whose_end_a_full_disk_does_not_keep_is_over_all_the_same(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(client)
    until(client, run, state="running", progress=50.0)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(act_store, "write_private", full)
    client.delete(f"{RUNS}/{run['id']}")
    end = time.monotonic() + MINUTE
    while (over := client.get(f"{RUNS}/{run['id']}").json())["ended_at"] is None:
        assert time.monotonic() < end, over
        time.sleep(0.05)
    assert over["state"] in ("cancelled", "failed")
    assert client.get(RUNS).json()["items"] == [over]
    assert client.delete(f"{RUNS}/{run['id']}").status_code == 200
    assert client.get(RUNS).json()["items"] == []
