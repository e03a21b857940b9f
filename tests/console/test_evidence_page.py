"""Evidence from the pages of a case, an incident and an alert: progress, an end, and a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from alerts.cases.evidence_check import check_bundle
from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from tests.api.plain_desk import PlainDesk
from tests.api.routes.test_evidence_jobs import held
from tests.console.conftest import Watched, serve
from tests.console.test_incident_alerts import row
from tests.console.test_rule_tuning import csrf_of
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.wait import until

pytestmark = pytest.mark.full

TOKEN = "t" * 32
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    made = PlainDesk(tmp_path_factory.mktemp("evidence-page"), devices=1, searches_at_once=1)
    made.all_tables()
    rows = [row("guessed-1", 0, 40), row("incident-1", 38, 45, rule_id=INCIDENT, title=HOSTILE)]
    append_rows(made.settings.lake_root, ALERT, rows)
    return made


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


@pytest.fixture(scope="module")
def ann(desk: PlainDesk) -> TestClient:
    return desk.browser("ann", "analyst")


def sent(client: TestClient, path: str, **fields: str) -> str:
    """Send a form; the page that it leads to."""
    csrf = csrf_of(client.get("/cases").text)
    answered = client.post(path, data={"csrf": csrf} | fields)
    assert answered.status_code == 303, answered.text
    return str(answered.headers["location"])


def alert_of(client: TestClient) -> str:
    """The alert that is no incident and has a whole body."""
    (alert_id,) = re.findall(r'data-row="([0-9a-f]{32})"', client.get("/alerts").text)
    return str(alert_id)


def over(client: TestClient, page: str) -> str:
    """The page once its bundle is made."""

    def text() -> str | None:
        now = client.get(page).text
        return None if 'data-state="queued"' in now or 'data-state="running"' in now else now

    return until(text, what="the bundle is made") or ""


@pytest.mark.parametrize("kind", ["case", "incident", "alert"])
def test_each_page_has_its_bundle_made_and_shows_what_is_in_it(
    ann: TestClient, tmp_path: Path, kind: str
) -> None:
    name = {"incident": "incident-1", "alert": alert_of(ann)}.get(kind, "")
    if kind == "case":
        name = sent(ann, "/cases", title="with evidence", id="guessed-1").removeprefix("/cases/")
    page = sent(ann, "/evidence", **{kind: name})
    assert page == f"/{kind}s/{name}#evidence"
    text = over(ann, page.removesuffix("#evidence"))
    assert 'data-state="done"' in text
    (digest,) = re.findall(r'class="digest">([0-9a-f]{64})<', text)
    (path,) = re.findall(r'href="(/evidence/[^"/]+/file)"', text)
    file = tmp_path / "bundle.zip"
    file.write_bytes(ann.get(path).content)
    assert check_bundle(file, digest).problems == []
    assert sent(ann, path.replace("/file", "/end")) == page
    assert 'id="evidence"' not in ann.get(page.removesuffix("#evidence")).text
    assert ann.get(path).status_code == 404
    gone = ann.get(path.removesuffix("/file"))
    assert "not there any more" in gone.text


def test_a_second_click_begins_no_second_one_and_its_end_is_shown(
    desk: PlainDesk, ann: TestClient
) -> None:
    jobs = desk.app.state.services.evidence
    with held(desk):
        page = sent(ann, "/evidence", incident="incident-1").removesuffix("#evidence")
        assert sent(ann, "/evidence", incident="incident-1") == f"{page}#evidence"
        assert len(jobs._under_way) == 1
        text = ann.get(page).text
        assert 'data-state="running"' in text or 'data-state="queued"' in text
        assert "goes on when you leave the page" in text
        assert "<img" not in text
        (path,) = re.findall(r'action="(/evidence/[^"]+/end)"', text)
        part = ann.get(path.removesuffix("/end"), headers={"HX-Request": "true"})
        assert 'hx-trigger="load delay:1s, every 3s"' in part.text
        assert sent(ann, path) == f"{page}#evidence"
        assert 'id="evidence"' not in ann.get(page).text
        until(lambda: not jobs._under_way, what="it goes on")


def test_another_sees_none_of_it_and_who_may_only_look_is_offered_none(
    desk: PlainDesk, ann: TestClient
) -> None:
    page = sent(ann, "/evidence", incident="incident-1").removesuffix("#evidence")
    (path,) = re.findall(r'href="(/evidence/[^"/]+/file)"', over(ann, page))
    bob, eve = desk.browser("bob", "analyst"), desk.browser("eve", "viewer")
    assert 'id="evidence"' not in bob.get(page).text
    assert bob.get(path).status_code == 404
    assert "Evidence bundle" not in eve.get(page).text
    assert eve.get(path).status_code == 403
    csrf = csrf_of(ann.get("/cases").text)
    for form in ({}, {"case": "x", "incident": "incident-1"}, {"incident": "guessed-1"}):
        assert ann.post("/evidence", data={"csrf": csrf} | form).status_code in (404, 422)
    assert ann.post("/evidence", data={"incident": "incident-1"}).status_code == 403, "no csrf"


def test_a_link_of_before_leads_to_the_page(ann: TestClient) -> None:
    page = sent(ann, "/cases", title="of before", id="guessed-1")
    assert ann.get(f"{page}/evidence").headers["location"] == f"{page}#evidence"
    assert ann.get("/cases/case-0a51c7e2d4/evidence").status_code == 404


def test_progress_survives_a_reload_and_ends_in_a_file_by_mouse(
    desk: PlainDesk, browse: Callable[..., Watched], site: str, tmp_path: Path
) -> None:
    watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/incidents/incident-1")
    with held(desk):
        page.click("text=Evidence bundle")
        page.wait_for_selector("#evidence progress")
        page.reload()
        page.wait_for_selector("#evidence progress")
    page.wait_for_selector("#evidence[data-state=done]")
    with page.expect_download() as begun:
        page.click("#evidence >> text=Download")
    file = tmp_path / "bundle.zip"
    begun.value.save_as(file)
    assert check_bundle(file, page.inner_text("#evidence .digest")).problems == []
    page.click("#evidence >> text=Remove")
    page.wait_for_selector("#evidence", state="detached")
    assert watched.errors == []
    assert watched.violations() == []
