"""Previews and backtests as jobs: in a process of their own that ends when it is to end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from infra.config.settings import load
from infra.process import subprocesses
from tests.api.routes.test_rule_changes import COUNTING
from tests.api.routes.test_rules import RULE, TOKEN
from tests.api.test_app import problem
from tests.full import rest_full

JOBS = "/api/v1/rule-jobs"
OTHER = RULE.replace("odd_tool", "odd_two").replace("-2a6a1c0f4a10", "-2a6a1c0f4a11")
ECHO = "import json, sys; print(json.dumps({'words': sys.argv[1:]}))"
SLEEP = "import time; time.sleep(600)"
REFUSE = "import sys; print('headgate: there is no lake here', file=sys.stderr); sys.exit(1)"


@pytest.fixture
def client(tmp_path: Path) -> Any:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "odd.yml").write_text(RULE)
    alerts = {"bundled": False, "rules": [str(tmp_path / "rules")]}
    app = create_app(load(home=tmp_path, api={"token": TOKEN}, alerts=alerts))
    running = TestClient(app, raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {TOKEN}"
    yield running
    app.state.services.rule_jobs.close()


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """What is run in the place of `headgate`, which takes seconds to start."""
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", program])


def ask(client: TestClient, wait: float = 20, **asked: Any) -> Any:
    body = {"kind": "preview", "rule": "odd_tool", "since": "-7d"} | asked
    answered = client.post(JOBS, json=body, params={"wait_seconds": wait})
    assert answered.status_code in (200, 202), answered.text
    assert answered.headers["location"] == f"{JOBS}/{answered.json()['id']}"
    return answered.json()


def test_a_job_is_the_command_itself_and_its_result_is_kept(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, ECHO)
    job = ask(client, kind="backtest", since="2026-11-01", until="2026-11-02", against="odd_tool")
    assert (job["state"], job["progress"], job["title"]) == ("done", 100.0, "Odd tool")
    words = client.get(f"{JOBS}/{job['id']}/results").json()["words"]
    assert words[2:] == [
        "rules", "backtest", job["rule_id"], "--from", "2026-11-01T00:00:00+00:00",
        "--to", "2026-11-02T00:00:00+00:00", "--output", "json", "--against", job["rule_id"],
    ]  # fmt: skip
    (listed,) = client.get(JOBS).json()["items"]
    assert listed["id"] == job["id"]
    draft = ask(client, rule=None, text=RULE.replace("{service.name: sshd, activity_id: 1, "
                "status_detail: odd too}", "{service.name: sshd}"))  # fmt: skip
    words = client.get(f"{JOBS}/{draft['id']}/results").json()["words"]
    assert Path(words[4]).read_text().startswith("title: Odd tool")
    assert client.delete(f"{JOBS}/{draft['id']}").json()["state"] == "done"
    assert not Path(words[4]).parent.exists()
    assert client.get(f"{JOBS}/{draft['id']}").status_code == 404


@pytest.mark.parametrize("kind", rest_full(1, ["preview", "backtest"]))
def test_a_correlation_is_tried_alone_or_beside_what_it_counts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    stand_in(monkeypatch, ECHO)
    assert ask(client, kind=kind, rule=None, text=COUNTING)["title"] == "Many odd ones"
    both = ask(client, kind=kind, rule=None, text=f"{RULE}---\n{COUNTING}")
    assert (both["state"], both["title"]) == ("done", "Many odd ones")
    body = {"kind": kind, "text": f"{RULE}---\n{OTHER}", "since": "-7d"}
    assert "holds 2 rules" in problem(client.post(JOBS, json=body), 422)["detail"]


def test_what_the_command_refuses_is_why_the_job_failed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, REFUSE)
    job = ask(client)
    assert (job["state"], job["problem"]) == ("failed", "there is no lake here")
    assert (
        "there is no lake here" in problem(client.get(f"{JOBS}/{job['id']}/results"), 409)["detail"]
    )


def test_a_job_that_runs_is_cancelled_with_its_process(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, SLEEP)
    # Other tests of this process may have left a broker or a session of theirs running.
    others = set(psutil.Process().children())
    job = ask(client, wait=0)
    assert job["state"] in ("queued", "running")
    until = time.monotonic() + 60
    while not (children := set(psutil.Process().children()) - others) and time.monotonic() < until:
        time.sleep(0.05)
    assert children
    second = ask(client, wait=0)
    assert second["state"] == "queued", "one runs at a time"
    assert client.delete(f"{JOBS}/{second['id']}").json()["state"] == "cancelled"
    assert client.delete(f"{JOBS}/{job['id']}").json()["state"] == "cancelled"
    psutil.wait_procs(list(children), 20)
    assert not any(child.is_running() for child in children)
    assert client.get(JOBS).json()["items"] == []


@pytest.mark.full
def test_a_job_ends_with_its_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, SLEEP)
    jobs = client.app.state.services.rule_jobs
    short = jobs._settings.api.model_copy(update={"job_seconds": 0.5})
    monkeypatch.setattr(jobs, "_settings", jobs._settings.model_copy(update={"api": short}))
    job = ask(client)
    assert job["state"] == "failed"
    assert "stopped after 0.5 s" in job["problem"]


def test_what_cannot_be_tried_is_refused_before_a_process_starts(client: TestClient) -> None:
    def refused(sentence: str, **asked: Any) -> None:
        body = {"kind": "preview", "rule": "odd_tool", "since": "-7d"} | asked
        assert sentence in problem(client.post(JOBS, json=body), 422)["detail"]

    refused("no rule 'nothing'", rule="nothing")
    refused("either rule", text=RULE)
    refused("either rule", rule=None)
    refused("go with a backtest", until="now")
    refused("not before until", kind="backtest", until="-9d")
    refused("no rule '/etc/passwd'", kind="backtest", against="/etc/passwd")
    refused("is refused", rule=None, text="title: x\n")
    key = client.app.state.services.access.credentials.add_key("looks", "viewer")[1]
    asked = {"kind": "preview", "text": RULE, "since": "-7d"}
    answered = client.post(JOBS, json=asked, headers={"Authorization": f"Bearer {key}"})
    assert "need 'engineer'" in problem(answered, 403)["detail"]
