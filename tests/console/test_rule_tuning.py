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
from tests.alerts.tuning.history import Asked, alert
from tests.alerts.tuning.test_thresholds import START, guesses
from tests.alerts.tuning.test_tune import BEGAN, a_lake, named
from tests.api.desk import audited
from tests.api.test_app import problem
from tests.reporting.memory_lake import MemoryLake

TOKEN = "t" * 32
END = "2999-01-01"


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


def browser(app: Any, settings: Settings, role: str = "engineer", name: str = "ann") -> TestClient:
    _, key = Credentials(settings).add_key(name, role)
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


@pytest.mark.full
def test_a_filter_of_a_host_alone_says_how_wide_it_is(app, rest, settings):
    lake = MemoryLake()
    lake.add("gold.alert", [alert("bare", LOGIN, "false_positive", **named("e1"))])
    seen = {"event_uid": "e1", "time": BEGAN, "device": {"hostname": "sensor-1"}}
    lake.add("silver.event", [seen])
    app.state.services = replace(app.state.services, reader=Asked(lake))
    proposed = rest.get(f"/api/v1/rules/{LOGIN}/proposals", params={"days": 3650}).json()
    (only,) = proposed["items"]
    assert only["wide"].startswith("hides whatever the rule finds on this host: 1 of 1 alerts")
    page = browser(app, settings).get(f"/rules/{LOGIN}/tuning?days=365").text
    assert f"<b>Wide.</b> It {only['wide']}." in page


@pytest.mark.full
def test_a_filter_shows_what_it_hides_stands_on_its_rule_and_is_ended_there(app, settings):
    ann = browser(app, settings)
    tuning = html.unescape(ann.get(f"/rules/{LOGIN}/tuning?days=365").text)
    assert "The alerts it would have hidden" in tuning
    hidden = re.findall(r'<td class="tight"><a class="link" href="/alerts/([^"]+)"', tuning)
    assert "open" in hidden
    assert len(hidden) == 5, "four that it removes, and one that nobody judged"
    assert "true" not in hidden
    conditions = re.search(r"name=\"conditions\" value=\"(\[.*?\])\"", tuning)
    assert conditions is not None
    form = {"csrf": csrf_of(tuning)}
    wish = {"conditions": conditions[1], "owner": "bob", "reason": "the backup", "expires": END}
    ann.post(f"/rules/{LOGIN}/tuning/filter", data=form | wish)
    page = html.unescape(ann.get(f"/rules/{LOGIN}?saved=filter").text)
    assert "It stands under Filters below" in page
    assert "user.name: svc" in page
    assert f"bob: the backup; until {END}" in page
    stands = html.unescape(ann.get(f"/rules/{LOGIN}/tuning?days=365").text)
    assert "It is kept already" in stands
    assert "Keep this filter" not in stands
    filter_id = re.search(r'name="filter" value="([^"]+)"', page)
    assert filter_id is not None
    ending = form | {"filter": filter_id[1]}
    path = f"/rules/{LOGIN}/tuning/filter/end"
    assert "say why" in ann.post(path, data=ending).text
    assert len(list((settings.home / "rules").glob("filter_*.yml"))) == 1
    ended = ann.post(path, data=ending | {"reason": "the backup has a user of its own now"})
    assert ended.headers["location"] == f"/rules/{LOGIN}?rollout=filter_ended"
    after = ann.get(ended.headers["location"]).text
    assert "The filter is ended" in after
    assert "user.name: svc" not in after
    assert list((settings.home / "rules").glob("filter_*.yml")) == []
    (row,) = [row for row in audited(settings) if row["act"] == "rule.filter.end"]
    assert "user.name: svc" in row["detail"]
    again = ann.post(path, data=ending | {"reason": "twice"})
    assert again.status_code == 404
    assert "Keep this filter" in ann.get(f"/rules/{LOGIN}/tuning?days=365").text
    assert "somebody took it away meanwhile" in again.text


@pytest.mark.full
def test_a_filter_by_hand_is_told_with_why_it_is_not_in_force_or_is_not_ended_here(app, settings):
    folder = settings.home / "rules"
    text = f"title: F\nid: f-1\nlogsource: {{product: linux}}\nfilter: {{rules: [{LOGIN}], "
    text += "noise: {user.name: svc}, condition: not noise}\n"
    (folder / "filter_over.yml").write_text(text + "headgate: {expires: 2020-01-01}\n")
    other = text.replace("f-1", "f-2").replace(f"[{LOGIN}]", "any")
    (folder / "filter_two.yml").write_text(f"{other}---\n{other.replace('f-2', 'f-3')}")
    ann = browser(app, settings)
    page = ann.get(f"/rules/{LOGIN}").text
    assert "Not in force: " in page
    assert "of all rules of its log source" in page
    assert re.findall(r'name="filter" value="([^"]+)"', page) == ["f-1"]
    form = {"csrf": csrf_of(page), "reason": "why not"}
    shared = ann.post(f"/rules/{LOGIN}/tuning/filter/end", data=form | {"filter": "f-2"})
    assert "holds more than this filter" in html.unescape(shared.text)
    eve = browser(app, settings, "analyst", "eve")
    assert 'name="filter"' not in eve.get(f"/rules/{LOGIN}").text
    form["csrf"] = csrf_of(eve.get("/rules").text)
    refused = eve.post(f"/rules/{LOGIN}/tuning/filter/end", data=form | {"filter": "f-1"})
    assert refused.status_code == 403


def test_the_filters_of_a_rule_are_listed_and_ended_over_rest(rest, settings):
    path = f"/api/v1/rules/{LOGIN}/filters"
    assert rest.get(path).json() == {"items": []}
    conditions = [{"field": "user.name", "op": "eq", "value": "svc"}]
    wish = {"conditions": conditions, "owner": "ann", "reason": "backup", "expires": END}
    kept = rest.post(path, json=wish).json()
    text = f"title: F\nid: f-1\nlogsource: {{product: linux}}\nfilter: {{rules: [{LOGIN}], "
    text += "noise: {user.name: svc}, condition: not noise}\n"
    over, both = (settings.home / "rules" / f"filter_{name}.yml" for name in ("over", "both"))
    over.write_text(text + "headgate: {expires: '2020-01-01'}\n")
    both.write_text(text.replace("f-1", "f-2").replace(f"[{LOGIN}]", f"[{LOGIN}, other]"))
    # Files that are changed by hand are seen some seconds later.
    rest.app.state.services.rules.forget()
    shared, own, ended = rest.get(path).json()["items"]
    assert (own["path"], own["owner"], own["reason"], own["expires"], own["not_in_force"]) == (
        kept["path"], "ann", "backup", END, None,
    )  # fmt: skip
    assert own["text"] == "noise:\n  user.name: svc\ncondition: not noise"
    assert [each["can_end"] for each in (shared, own, ended)] == [False, True, True]
    assert "2020-01-01" in ended["not_in_force"]
    refused = rest.delete(f"{path}/f-2")
    assert "narrows other rules, too" in problem(refused, 422)["detail"]
    assert both.exists()
    done = rest.delete(f"{path}/{own['filter_id']}", params={"reason": "it has its own user now"})
    assert done.status_code == 200, done.text
    assert done.json()["filter_id"] == own["filter_id"]
    assert not Path(own["path"]).exists()
    (row,) = [row for row in audited(settings) if row["act"] == "rule.filter.end"]
    assert row["target"] == LOGIN
    assert "it has its own user now" in row["detail"]
    assert "user.name: svc" in row["detail"]
    again = problem(rest.delete(f"{path}/{own['filter_id']}"), 404)
    assert "somebody took it away meanwhile" in again["detail"]
    assert [each["filter_id"] for each in rest.get(path).json()["items"]] == ["f-2", "f-1"]
    counted = problem(rest.get(f"/api/v1/rules/{MANY}/filters"), 422)
    assert "no Sigma rule over events" in counted["detail"]


@pytest.mark.full
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
        folds = re.findall(r"<details.*?</details>", refused, re.DOTALL)
        (fold,) = [each for each in folds if "Keep this filter" in each]
        assert fold.startswith("<details open>") == comes_back
        assert ('value="bob"' in fold) == comes_back
    lost = ann.post(
        f"/rules/{LOGIN}/tuning/filter",
        data=form | {"conditions": other, "reason": "a scanner of ours", "expires": "soon"},
    ).text
    assert "is no date such as" in lost
    assert "“a scanner of ours”" in lost, "its form is gone, and it was typed there"


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_a_rule_that_others_count_says_before_a_choice_that_none_is_kept(tmp_path, judged):
    settings = load(home=tmp_path, api={"token": TOKEN})
    made = create_app(settings)
    made.state.services = replace(made.state.services, reader=Asked(judged))
    ann = browser(made, settings)
    path = "/rules/ssh_password_guessing/tuning"
    page = ann.get(path).text
    assert "To look at only." in page
    assert "SSH login succeeded after password guessing counts what this rule finds" in page
    assert "Keep the chosen one" not in page
    wish = {"csrf": csrf_of(page), "owner": "ann", "reason": "a scanner", "choice": "8 120"}
    refused = ann.post(f"{path}/threshold", data=wish)
    assert refused.status_code == 422
    assert "ssh_login_after_guessing counts what this rule finds" in refused.text
    made.state.services.rule_jobs.close()


def test_thresholds_are_of_rules_in_force_that_count(rest):
    def refused(sentence: str, **asked: Any) -> None:
        body = {"kind": "thresholds", "since": "-7d"} | asked
        answered = rest.post("/api/v1/rule-jobs", json=body)
        assert sentence in problem(answered, 422)["detail"]

    refused("counts nothing", rule=LOGIN)
    refused("go with a backtest", rule=MANY, until="now")
