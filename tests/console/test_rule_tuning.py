"""What verdicts propose for a rule and what other counts would raise, as a page and over REST."""

from __future__ import annotations

import html
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.cli.rulebook import thresholds as command
from api.app import create_app
from api.credentials import Credentials
from infra.config.settings import Settings, load
from infra.process import subprocesses
from tests.alerts.cli.test_rules import run
from tests.alerts.history import LOGIN, MANY, rules_in
from tests.alerts.tuning.history import Asked
from tests.alerts.tuning.test_thresholds import START, guesses
from tests.alerts.tuning.test_tune import a_lake
from tests.api.desk import audited
from tests.api.test_app import problem
from tests.reporting.memory_lake import MemoryLake

TOKEN = "t" * 32


@pytest.fixture(scope="module")
def judged() -> MemoryLake:
    return a_lake()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = rules_in(tmp_path / "rules")
    return load(home=tmp_path, api={"token": TOKEN}, alerts={"bundled": False, "rules": (folder,)})


@pytest.fixture
def app(settings: Settings, judged: MemoryLake) -> Any:
    """The API over tables in memory: what is asked of them is the same."""
    made = create_app(settings)
    made.state.services = replace(made.state.services, reader=Asked(judged))
    yield made
    made.state.services.rule_jobs.close()


@pytest.fixture
def rest(app: Any) -> TestClient:
    client = TestClient(app, raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    return client


def browser(app: Any, settings: Settings, role: str = "engineer") -> TestClient:
    _, key = Credentials(settings).add_key("ann", role)
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    return client


def csrf_of(page: str) -> str:
    token = re.search(r'data-csrf="([^"]+)"', page)
    assert token is not None
    return token[1]


def test_a_filter_is_proposed_kept_and_in_force_over_rest(rest, settings):
    path = f"/api/v1/rules/{LOGIN}"
    proposed = rest.get(f"{path}/proposals", params={"days": 3650}).json()
    first = proposed["items"][0]
    assert first["conditions"] == [{"field": "user.name", "op": "eq", "value": "svc"}]
    assert (first["removes"], first["true_positive"], first["unjudged_examples"]) == (
        4, 0, ["open"],
    )  # fmt: skip
    assert any("lack evidence events" in each for each in proposed["limits"])
    wish = {"conditions": first["conditions"], "owner": "ann", "reason": "backup"}
    past = problem(rest.post(f"{path}/filters", json=wish | {"expires": "2020-01-01"}), 422)
    assert "must be after today" in past["detail"]
    true = [{"field": "user.name", "op": "eq", "value": "root"}]
    struck = rest.post(f"{path}/filters", json=wish | {"conditions": true, "expires": "2999-01-01"})
    assert "judged true: true" in problem(struck, 422)["detail"]
    odd = [{"field": "event_uid", "op": "eq", "value": "x"}]
    asked = rest.post(f"{path}/filters", json=wish | {"conditions": odd, "expires": "2999-01-01"})
    assert "a filter asks one of" in problem(asked, 422)["detail"]
    assert list((settings.home / "rules").glob("filter_*")) == []
    kept = rest.post(f"{path}/filters", json=wish | {"expires": "2999-01-01"})
    assert kept.status_code == 201, kept.text
    assert "author: ann" in Path(kept.json()["path"]).read_text()
    (row,) = [row for row in audited(settings) if row["act"] == "rule.filter"]
    assert row["target"] == LOGIN
    refused = rest.get(f"/api/v1/rules/{MANY}/proposals")
    assert "no Sigma rule over events" in problem(refused, 422)["detail"]


def test_the_page_shows_a_filter_and_keeps_it_with_owner_reason_and_end(app, settings):
    ann = browser(app, settings)
    page = ann.get(f"/rules/{LOGIN}/tuning?days=365").text
    assert "user.name = svc" in html.unescape(page)
    conditions = re.search(r'name="conditions" value="([^"]+)"', page)
    assert conditions is not None
    form = {"csrf": csrf_of(page), "conditions": html.unescape(conditions[1]), "owner": "bob"}
    silent = ann.post(f"/rules/{LOGIN}/tuning/filter", data=form | {"expires": "2999-01-01"})
    assert silent.status_code == 422
    assert "reason" in silent.text
    assert 'value="bob"' in silent.text
    form |= {"reason": "backup", "expires": "2999-01-01"}
    kept = ann.post(f"/rules/{LOGIN}/tuning/filter", data=form)
    assert kept.headers["location"] == f"/rules/{LOGIN}?saved=filter"
    (file,) = (settings.home / "rules").glob("filter_*.yml")
    assert "author: bob" in file.read_text()
    assert ann.get("/rules/nothing/tuning").status_code == 404


def test_what_was_refused_comes_back_into_its_own_filter_and_time_alone(app, settings):
    ann = browser(app, settings)
    page = ann.get(f"/rules/{LOGIN}/tuning?days=365").text
    (shown,) = re.findall(r'name="conditions" value="([^"]+)"', page)
    form = {"csrf": csrf_of(page), "days": "365", "owner": "bob", "expires": "2999-01-01"}
    # One that is proposed no more: in the form of another it would keep that one.
    other = json.dumps([{"field": "user.name", "op": "eq", "value": "somebody"}])
    for conditions, comes_back in ((html.unescape(shown), True), (other, False)):
        wish = form | {"conditions": conditions, "reason": ""}
        refused = ann.post(f"/rules/{LOGIN}/tuning/filter", data=wish).text
        assert "reason: is empty" in refused
        assert f'data-address="/rules/{LOGIN}/tuning?days=365"' in refused
        assert 'tuning?days=365" aria-current="true"' in refused
        (fold,) = re.findall(r"<details.*?</details>", refused, re.DOTALL)
        assert fold.startswith("<details open>") == comes_back
        assert ('value="bob"' in fold) == comes_back
    lost = ann.post(
        f"/rules/{LOGIN}/tuning/filter",
        data=form | {"conditions": other, "reason": "a scanner of ours", "expires": "soon"},
    ).text
    assert "is no date such as" in lost
    assert "“a scanner of ours”" in lost, "its form is gone, and it was typed there"


def test_who_is_no_engineer_sees_proposals_and_keeps_none(app, settings):
    eve = browser(app, settings, "analyst")
    page = eve.get(f"/rules/{LOGIN}/tuning?days=365").text
    assert "svc" in page
    assert "Keep this filter" not in page
    form = {"csrf": csrf_of(page), "conditions": "[]"}
    assert eve.post(f"/rules/{LOGIN}/tuning/filter", data=form).status_code == 403


def test_another_count_is_kept_in_place_of_the_rule_over_rest(rest, settings):
    path = f"/api/v1/rules/{MANY}/threshold"
    same = rest.post(path, json={"owner": "ann", "reason": "a scanner"})
    assert "that is the rule as it is" in problem(same, 422)["detail"]
    kept = rest.post(path, json={"count": 7, "owner": "ann", "reason": "a scanner"})
    assert kept.status_code == 201, kept.text
    saved = kept.json()
    assert "gte: 7\n" in Path(saved["path"]).read_text()
    states = {row["id"]: row["state"] for row in rest.get("/api/v1/rules").json()["items"]}
    assert states[saved["rule_id"]] == "on"
    assert "a scanner" in states[MANY]
    refused = rest.post(f"/api/v1/rules/{LOGIN}/threshold", json={"owner": "a", "reason": "b"})
    assert "counts nothing" in problem(refused, 422)["detail"]


@pytest.fixture
def curve(settings, monkeypatch, capsys) -> dict[str, Any]:
    """What the command prints for the guessing of one device."""
    lake = MemoryLake().add("gold.finding", guesses("10.0.0.1", 12, START))

    @contextmanager
    def asking(_: Settings) -> Any:
        yield Asked(lake).rows

    monkeypatch.setattr(command, "asking", asking)
    assert run(settings, "thresholds", "guessing", "--summary") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_curve_is_counted_as_a_job_and_a_row_of_it_kept(app, settings, curve, monkeypatch):
    assert curve["findings"] == 12
    assert [row["now"] for row in curve["choices"]].count(True) == 1
    assert "findings counted" in curve["notes"][0]
    printed = f"print({json.dumps(json.dumps(curve))})"
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", printed])
    ann = browser(app, settings)
    page = ann.get(f"/rules/{MANY}/tuning").text
    form = {"csrf": csrf_of(page), "kind": "thresholds", "rule": MANY, "since": "-30d"}
    text = ann.post("/rule-tries", data=form).text
    job = re.search(r'id="try-([^"]+)"', text)
    assert job is not None
    while 'data-state="done"' not in text:
        text = ann.get(f"/rule-tries/{job[1]}").text
    choices = re.findall(r'name="choice" value="([^"]+)"', text)
    assert len(choices) == len(curve["choices"]) - 1
    path = f"/rules/{MANY}/tuning/threshold"
    wish = {"csrf": form["csrf"], "owner": "ann", "reason": "a scanner"}
    assert "choose one of the rows" in ann.post(path, data=wish).text
    refused = ann.post(path, data=wish | {"choice": choices[-1], "reason": " ", "since": "-90d"})
    assert f'data-choice="{choices[-1]}"' in refused.text
    assert '<option value="-90d" selected>' in refused.text
    # The page is loaded anew, and the try is there; one that is gone changes nothing then, and
    # ends the bar of who watches it.
    assert 'data-state="done"' in ann.get(f"/rule-tries/{job[1]}?again=1").text
    assert ann.get("/rule-tries/gone?again=1").status_code == 204
    assert "is not there any more" in ann.get("/rule-tries/gone").text
    kept = ann.post(path, data=wish | {"choice": choices[-1]})
    assert kept.status_code == 303, kept.text
    (file,) = (settings.home / "rules").glob("threshold_*.yml")
    assert "Threshold by ann: a scanner" in file.read_text()


def test_thresholds_are_of_rules_in_force_that_count(rest):
    def refused(sentence: str, **asked: Any) -> None:
        body = {"kind": "thresholds", "since": "-7d"} | asked
        answered = rest.post("/api/v1/rule-jobs", json=body)
        assert sentence in problem(answered, 422)["detail"]

    refused("counts nothing", rule=LOGIN)
    refused("go with a backtest", rule=MANY, until="now")
