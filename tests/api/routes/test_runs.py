"""Reports and inventories over REST: commands that run apart, and what they came to."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.services.act_store import StateFolder, new_id
from api.services.runs.command_runs import RUNS_KEPT, CommandRuns
from infra.config.settings import Settings, load
from tests.api.desk import audited
from tests.full import rest_full

TOKEN = "t" * 32
MINUTE = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN, "console": False})


@pytest.fixture
def client(home: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(home), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client


def ended(client: TestClient, address: str) -> dict[str, Any]:
    end = time.monotonic() + MINUTE
    while (run := client.get(address).json())["state"] in ("queued", "running"):
        assert time.monotonic() < end, run
        time.sleep(0.1)
    return dict(run)


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
