"""The page of a rule in shadow: what it would have alerted, by role, and how its time ends."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.rollout.shadow_detail import shadow_detail
from alerts.rulepack.locations import store_folder
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from api.app import create_app
from api.credentials import Credentials
from infra.config.settings import Settings, load
from tests.alerts.rollout.test_shadow import ROOT, RULE
from tests.alerts.tuning.history import Asked, finding
from tests.api.desk import TOKEN, audited
from tests.console.conftest import Watched, serve
from tests.console.test_accessibility import AXE, RUN
from tests.console.test_rule_tuning import csrf_of
from tests.reporting.memory_lake import MemoryLake

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NOW = TODAY + timedelta(hours=12)
SINCE = TODAY - timedelta(days=2)
MARK = ShadowMark("ann", "is it loud?", SINCE, TODAY + timedelta(days=5))
HOURS = {"e1": 1, "e2": 2, "e3": 30, "e4": 31}
"""When each event was, after the mark: two on the first day, two on the second."""


def findings() -> list[dict[str, Any]]:
    """Of two hosts, an hour between those of a day: one folds each day's, the other does not."""
    return [
        finding(
            uid, ROOT, time=SINCE + timedelta(hours=hours), level="high",
            received_at=SINCE + timedelta(hours=hours), alerting=False, feeds=[], mode="live",
            pack="p", rule_version="1", rule_title="Root logs in", source="sshd",
            host_name="gate" if hours < 30 else uid, role="device", snippet=f"root by {uid}",
            fields={},
        )
        for uid, hours in HOURS.items()
    ]  # fmt: skip


def app_at(home: Path, *, marked: bool = True) -> tuple[Any, Settings]:
    """The console over tables in memory, with one rule, in shadow or not."""
    folder = home / "team"
    folder.mkdir()
    (folder / "root.yml").write_text(RULE.format(id=ROOT, user="root"), "utf-8")
    settings = load(
        home=home, api={"token": TOKEN}, alerts={"bundled": False, "rules": [str(folder)]}
    )
    if marked:
        ShadowMarks(store_folder(settings)).put({ROOT: MARK})
    app = create_app(settings)
    reader = Asked(MemoryLake().add("gold.finding", findings()))
    app.state.services = replace(app.state.services, reader=reader)
    return app, settings


def browser(app: Any, settings: Settings, role: str) -> TestClient:
    _, key = Credentials(settings).add_key(role, role)
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    return client


def test_alerts_are_told_by_day_by_whom_and_by_example(tmp_path: Path) -> None:
    app, settings = app_at(tmp_path)
    ask = app.state.services.reader.rows
    detail = shadow_detail(settings, ask, ROOT, MARK, NOW)
    assert detail.days == (SINCE, SINCE + timedelta(days=1), TODAY)
    assert detail.findings_by_day == (2, 2, 0)
    assert detail.outcome is not None
    assert sum(detail.alerts_by_day) == detail.outcome.alerts == 3
    assert detail.alerts_by_day == (1, 2, 0), "what repeats begins no alert"
    named = {each.value: (each.alerts, each.findings) for each in detail.entities}
    assert named == {"gate": (1, 2), "e3": (1, 1), "e4": (1, 1)}
    newest = detail.examples[0]
    assert (newest.event_uid, newest.snippet, newest.host) == ("e4", "root by e4", "e4")
    assert newest.event_time == SINCE + timedelta(hours=HOURS["e4"])
    gone = shadow_detail(settings, ask, "no-rule", MARK, NOW)
    assert (gone.outcome, gone.examples) == (None, ())


def test_a_viewer_sees_examples_and_may_not_decide(tmp_path: Path) -> None:
    app, settings = app_at(tmp_path)
    eve = browser(app, settings, "viewer")
    page = html.unescape(eve.get("/rules/root_login/shadow").text)
    assert "<b>3</b><span>alerts it would have raised" in page
    assert "root by e4" in page
    assert 'href="/events/e4?time=' in page
    assert "host_name%3De4" in page, "Search opens around it"
    assert "Let it alert" not in page
    form = {"csrf": csrf_of(page), "act": "promote", "reason": "quiet"}
    assert eve.post(f"/rules/{ROOT}/rollout", data=form).status_code == 403
    assert f'href="/rules/{ROOT}/shadow"' in eve.get("/rules?state=shadow").text
    assert f'href="/rules/{ROOT}/shadow"' in eve.get(f"/rules/{ROOT}").text
    reader = browser(app, settings, "read")
    assert reader.get(f"/rules/{ROOT}/shadow").status_code == 403
    assert f'href="/rules/{ROOT}/shadow"' not in reader.get(f"/rules/{ROOT}").text
    assert eve.get("/rules/nothing/shadow").status_code == 404


def test_a_rule_that_is_not_in_shadow_says_how_it_gets_there(tmp_path: Path) -> None:
    app, settings = app_at(tmp_path, marked=False)
    page = browser(app, settings, "viewer").get(f"/rules/{ROOT}/shadow").text
    assert "It is not in shadow" in page
    assert "An engineer puts it there" in page
    assert ShadowMarks(store_folder(settings)).all() == {}, "looking puts nothing there"
    eva = browser(app, settings, "engineer")
    page = eva.get(f"/rules/{ROOT}/shadow").text
    assert "Put in shadow" in page
    form = {"csrf": csrf_of(page), "act": "shadow", "days": "3", "reason": "is it loud?"}
    begun = eva.post(f"/rules/{ROOT}/rollout", data=form)
    assert begun.headers["location"] == f"/rules/{ROOT}/shadow"
    page = eva.get(begun.headers["location"]).text
    assert "It has found nothing yet" in page
    assert "left, of 3 d" in page
    stranger = eva.post(f"/rules/{ROOT}/rollout", data=form | {"csrf": "guess", "act": "drop"})
    assert stranger.status_code == 403
    switched = eva.post(f"/rules/{ROOT}/rollout", data=form | {"act": "drop"})
    assert switched.headers["location"] == f"/rules/{ROOT}?rollout=drop"
    page = eva.get(f"/rules/{ROOT}/shadow").text
    assert "switch it on" in page
    acts = [(row["act"], row["target"]) for row in audited(settings)]
    assert acts[-2:] == [("rule.shadow", ROOT), ("rule.drop", ROOT)]


def test_a_trial_that_is_over_and_one_without_a_lake_can_still_be_ended(tmp_path: Path) -> None:
    app, settings = app_at(tmp_path)
    over = ShadowMark("ann", "", SINCE, TODAY - timedelta(days=1))
    ShadowMarks(store_folder(settings)).put({ROOT: over})
    app.state.services = replace(
        app.state.services, reader=create_app(settings).state.services.reader
    )
    page = browser(app, settings, "engineer").get(f"/rules/{ROOT}/shadow").text
    assert "Its time is over" in page
    assert "What it found is not known" in page
    assert 'value="drop"' in page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with the rule in shadow."""
    yield from serve(app_at(tmp_path_factory.mktemp("shadow"))[0])


@pytest.mark.full
def test_an_engineer_looks_and_lets_it_alert(browse):
    watched: Watched = browse()
    page = watched.go(f"/rules/{ROOT}")
    page.click("text=What it would have alerted")
    page.wait_for_selector("canvas")
    assert page.locator("section[aria-label=Examples] tbody tr").count() == 3
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
    # The button is behind a sentence of what it does, and needs a word.
    button = page.locator("button[value=promote]")
    assert not button.is_visible()
    page.click("summary:has-text('Let it alert')")
    button.click()
    assert page.url.endswith("/shadow"), "no reason was given"
    page.fill("details[open] input[name=reason]", "quiet enough")
    button.click()
    page.wait_for_selector("text=It alerts from the next batch on.")
    assert "Put in shadow" in page.inner_text("main")
    assert watched.errors == watched.violations() == []
