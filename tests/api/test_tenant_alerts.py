"""Who is limited to a tenant works on its alerts, and meets nothing of anybody else's anywhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.delivery.feed import START
from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from api.console.request import FOR_TENANTS as PAGES
from api.routes.access import FOR_TENANTS
from api.services.alerts import feed
from api.services.event_stream import Streams, event_stream
from api.services.reader import Reader
from api.tenant_views import NotForTenants
from tests.api.tenant_desk import NAMES, OTHERS_CASES, TenantDesk, assert_own
from tests.api.test_tenants import NOBODY, OTHER, OWN, operations
from tests.console.test_incident_alerts import row as incident
from tests.event_loop import run_apart
from tests.headgate.as_code.delta_by_hand import append_rows


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-alerts"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def ann(desk: TenantDesk) -> TestClient:
    return desk.limited("ann")


@pytest.fixture(scope="module")
def page(desk: TenantDesk) -> TestClient:
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-page", "analyst", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    return browser


@pytest.mark.full
def test_no_route_tells_anything_of_anothers_alerts(desk: TenantDesk, ann: TestClient) -> None:
    root = desk.client("root", "admin")
    whole = root.get("/api/v1/alerts").json()["items"]
    assert len(whole) == 6
    changed = root.patch(
        f"/api/v1/alerts/{desk.ids['globex']}", json={"note": OTHER}, headers={"If-Match": "*"}
    )
    act = changed.json()["act_id"]
    answered = set()
    for method, path in operations(desk):
        for alert_id in (desk.ids["globex"], desk.ids[None][:8], desk.ids["acme"]):
            filled = path.replace("{alert_id}", alert_id).replace("{act_id}", act)
            filled = filled.replace("{case_id}", OTHERS_CASES[0])
            filled = re.sub(r"{[a-z_]+}", "0" * 26, filled)
            body = {"ids": [alert_id], "change": {"status": "closed"}, "text": "x"}
            for given in ({}, {"note": "x"}, body, {k: body[k] for k in ("ids", "change")}):
                answer = ann.request(
                    method,
                    # A stream has no end; what it sends is looked at below.
                    filled.replace("alerts/stream", "alerts/stream?after=none"),
                    json=None if method in ("GET", "DELETE") else given,
                    headers={"If-Match": "*"},
                )
                assert_own(desk, answer.text, alert_id, filled, OTHERS_CASES[0])
                if path in FOR_TENANTS:
                    assert answer.status_code != 500, answer.text
                    answered |= {path} if answer.status_code < 300 else set()
                elif path not in ("/healthz", "/readyz"):
                    assert answer.status_code == 403, (method, path)
                    assert "limited to some tenants" in answer.text
                if method in ("GET", "DELETE") or path not in FOR_TENANTS:
                    break
            # It is refused whatever is asked.
            if path not in FOR_TENANTS:
                break
    assert {"/api/v1/alerts", "/api/v1/alerts/{alert_id}", "/api/v1/acts"} <= answered
    assert {"/api/v1/alerts/bulk/preview", "/api/v1/alerts/{alert_id}/notes"} <= answered


def test_the_list_the_feed_and_the_alert_are_the_tenants(desk: TenantDesk, ann: TestClient) -> None:
    own = {desk.ids["acme"], desk.more["acme"]}
    listed = ann.get("/api/v1/alerts", params={"limit": 1})
    rest = ann.get("/api/v1/alerts", params={"limit": 1, "cursor": listed.json()["next"]})
    assert rest.json()["next"] is None
    items = [*listed.json()["items"], *rest.json()["items"]]
    assert {item["alert_id"] for item in items} == own
    for filtered in ({"user": OTHER}, {"q": "globex"}, {"host": NOBODY}):
        assert ann.get("/api/v1/alerts", params=filtered).json()["items"] == []
    revisions = ann.get("/api/v1/alerts", params={"after": "start"})
    assert {item["alert_id"] for item in revisions.json()["items"]} == own
    assert_own(desk, listed.text + rest.text + revisions.text)
    one = ann.get(f"/api/v1/alerts/{desk.ids['acme']}").json()
    assert one["body"]["tenant_uid"] == "acme"
    assert one["body"]["fields"] == {"user.name": OWN}
    for alert_id in desk.others:
        answer = ann.get(f"/api/v1/alerts/{alert_id}")
        assert answer.status_code == 404
        assert answer.json()["detail"].startswith(f"no alert '{alert_id}'")


def test_the_stream_sends_the_tenants_revisions_alone(desk: TenantDesk) -> None:
    reader = desk.app.state.services.limited.services(desk.app.state.services, ("acme",)).reader

    async def heard() -> str:
        async def gone() -> bool:
            return False

        streams, texts = Streams(), []
        async for text in event_stream(
            lambda cursor: feed(reader, "lake", cursor, 1), START, "lake", gone, streams
        ):
            texts.append(text)
            if sum(part.startswith("event: alert") for part in texts) >= 2:
                streams.close()
        return "".join(texts)

    sent = run_apart(asyncio.wait_for(heard(), 30))
    assert desk.ids["acme"] in sent
    assert desk.more["acme"] in sent
    assert_own(desk, sent)


def test_a_tenants_analyst_judges_its_alerts_and_no_others(
    desk: TenantDesk, ann: TestClient
) -> None:
    mine, theirs = desk.more["acme"], desk.more["globex"]
    closed = {"status": "closed", "verdict": "benign"}
    star = {"If-Match": "*"}
    assert ann.patch(f"/api/v1/alerts/{theirs}", json=closed, headers=star).status_code == 404
    assert ann.post(f"/api/v1/alerts/{theirs}/notes", json={"text": "x"}).status_code == 404
    refused = ann.post("/api/v1/alerts/bulk/preview", json={"ids": [theirs], "change": closed})
    assert refused.status_code == 404
    wide = {"filter": {"rule": "r"}, "change": {"assignee": "me"}}
    counted = ann.post("/api/v1/alerts/bulk/preview", json=wide).json()
    assert counted["alerts"] == 2
    assert set(counted["sample"]) == {desk.ids["acme"], mine}
    done = ann.post("/api/v1/alerts/bulk", json={"token": counted["token"], "alerts": 2}).json()
    assert (done["alerts"], done["skipped"]) == (2, [])
    assert ann.post(f"/api/v1/alerts/{mine}/notes", json={"text": "mine"}).status_code == 201
    notes = ann.get(f"/api/v1/alerts/{desk.ids['acme']}/notes").json()["items"]
    assert f"note of {OWN}" in [note["text"] for note in notes]
    undone = ann.post(f"/api/v1/acts/{done['act_id']}/undo").json()
    assert undone["alerts"] == 2


def test_acts_that_reach_beyond_the_tenant_are_neither_shown_nor_undone(
    desk: TenantDesk, ann: TestClient
) -> None:
    root = desk.client("root-acts", "analyst")
    ids = [desk.ids["acme"], desk.ids["globex"]]
    plan = {"ids": ids, "change": {"verdict": "benign"}}
    counted = root.post("/api/v1/alerts/bulk/preview", json=plan).json()
    act = {"token": counted["token"], "alerts": counted["alerts"]}
    both = root.post("/api/v1/alerts/bulk", json=act).json()["act_id"]
    assert both in root.get("/api/v1/acts").text
    assert both not in ann.get("/api/v1/acts").text
    assert ann.get(f"/api/v1/acts/{both}").status_code == 404
    assert ann.post(f"/api/v1/acts/{both}/undo").status_code == 404
    assert root.post(f"/api/v1/acts/{both}/undo").json()["alerts"] == 2
    # A plan of before the limit names alerts that are out of reach now.
    desk.access.credentials.add_key("once", "analyst", None)
    whole = desk.app.state.services
    counted = whole.triage.preview("ann", _plan(ids))
    stolen = {"token": counted.token, "alerts": counted.alerts}
    answer = ann.post("/api/v1/alerts/bulk", json=stolen)
    assert answer.status_code == 404
    assert_own(desk, answer.text)


def _plan(ids: list[str]) -> Any:
    from api.wire.triage import AlertChange, BulkPlan

    return BulkPlan(ids=ids, change=AlertChange(assignee="me"))


def test_a_list_that_is_there_takes_in_what_is_new_of_the_tenant_alone(desk: TenantDesk) -> None:
    ann = desk.limited("ann-live")
    assert len(ann.get("/api/v1/alerts", params={"rule": "live"}).json()["items"]) == 0
    made = {t: desk.made(t, 5, rule_id="live", target="live", uid=f"live{t}") for t in NAMES}
    listed = ann.get("/api/v1/alerts", params={"rule": "live"}).json()["items"]
    assert [item["alert_id"] for item in listed] == [made["acme"]]


def test_roles_hold_within_a_tenant(desk: TenantDesk) -> None:
    viewer = desk.limited("vic", "viewer")
    assert viewer.get("/api/v1/alerts").status_code == 200
    change = {"json": {"verdict": "benign"}, "headers": {"If-Match": "*"}}
    denied = viewer.patch(f"/api/v1/alerts/{desk.ids['acme']}", **change)
    assert denied.status_code == 403
    assert "needs 'analyst'" in denied.text


def test_a_key_that_is_limited_to_sources_too_has_no_alerts(desk: TenantDesk) -> None:
    both = TestClient(desk.app, raise_server_exceptions=False)
    token = desk.key("both", "analyst", tenants=("acme",), sources=("sshd",))
    both.headers["Authorization"] = f"Bearer {token}"
    answer = both.get("/api/v1/alerts")
    assert answer.status_code == 403
    assert "limited to some sources and tenants" in answer.text


@pytest.mark.full
def test_pages_show_the_tenants_alerts_or_refuse_with_a_sentence(
    desk: TenantDesk, page: TestClient
) -> None:
    paths = {
        route.path: sorted(route.methods or ())
        for each in desk.app.state.console.pages
        for route in each.router.routes
    }
    assert set(PAGES) <= set(paths)
    for path, methods in paths.items():
        for alert_id in (desk.ids["globex"], desk.ids["acme"]):
            filled = path.replace("{alert_id}", alert_id).replace("{uid:path}", OTHER)
            filled = filled.replace("{case_id}", OTHERS_CASES[0])
            filled = re.sub(r"{[a-z_:]+}", "csv", filled)
            if path == "/alerts/live" or path.startswith(("/login", "/assets", "/oidc", "/logout")):
                continue
            query = f"?id={alert_id}" if path.startswith("/alerts/act/close") else ""
            answer = page.request(methods[0], filled + query)
            again = OTHER if OTHER in filled else filled
            assert_own(desk, answer.text, alert_id, again, OTHERS_CASES[0])
            if path not in PAGES and answer.status_code != 405:
                assert answer.status_code == 403, (path, answer.status_code, answer.text[:300])
                assert "is limited to some tenants" in answer.text, path
            else:
                assert answer.status_code < 500, (path, answer.text[:500])


def test_the_navigation_leads_to_pages_that_open_alone(desk: TenantDesk, page: TestClient) -> None:
    shown = re.search(r"<nav .*?</nav>", page.get("/").text, re.DOTALL)
    assert shown is not None
    assert set(re.findall(r'href="([^"]+)"', shown[0])) == {
        "/",
        "/alerts",
        "/cases",
        "/reports",
        "/rules",
        "/search",
    }
    whole = desk.browser("root-nav", "admin").get("/").text
    assert {'href="/sources"', 'href="/rules"', 'href="/admin"'} <= set(
        re.findall(r'href="[^"]+"', whole)
    )


@pytest.mark.full
def test_the_overview_the_list_and_the_alert_show_what_is_the_tenants(
    desk: TenantDesk, page: TestClient
) -> None:
    desk.made("acme", 7, uid="seven")
    listed = page.get("/alerts")
    assert desk.ids["acme"] in listed.text
    for path in (
        "/", "/?since=-30d", "/alerts?group=entity", "/alerts?group=rule", "/alerts.csv",
        "/alerts?group=incident", f"/alerts?open={desk.ids['acme']}", f"/alerts?q={OTHER}",
        f"/alerts/{desk.ids['acme']}", f"/alerts/{desk.ids['acme']}?beside=true",
        f"/alerts/act/close?id={desk.ids['acme']}",
        "/search?since=2026-11-19T00:00:00Z&until=2026-11-21T00:00:00Z",
        "/search?since=2026-11-19T00:00:00Z&until=2026-11-21T00:00:00Z&f=user_name=" + OTHER,
        "/search/export.csv?since=2026-11-19T00:00:00Z&until=2026-11-21T00:00:00Z",
        "/search?sql=SELECT user_name FROM silver.event",
        f"/events/{OWN}",
    ):  # fmt: skip
        answer = page.get(path)
        assert answer.status_code == 200, (path, answer.text[:400])
        assert_own(desk, answer.text, OTHER if OTHER in path else "-")
    assert page.get(f"/alerts/{desk.ids['globex']}").status_code == 404
    assert page.get(f"/events/{OTHER}").status_code == 404
    assert (
        "Silence what is like it" not in page.get(f"/alerts/act/close?id={desk.ids['acme']}").text
    )
    shown = page.get("/search?sql=SELECT user_name FROM silver.event").text
    assert OWN in shown
    counted = page.get("/alerts?lifecycle=new&lifecycle=triaged&lifecycle=closed").text
    root = desk.browser("root-page", "admin").get(
        "/alerts?lifecycle=new&lifecycle=triaged&lifecycle=closed"
    )
    assert len(re.findall(r'data-row="[0-9a-f]{32}"', counted)) < len(
        re.findall(r'data-row="[0-9a-f]{32}"', root.text)
    )


def test_a_silence_is_refused_before_anything_is_closed(desk: TenantDesk, page: TestClient) -> None:
    alert_id = desk.made("acme", 200_000, uid="loud")
    csrf = page.get("/alerts").text.split('data-csrf="')[1].split('"')[0]
    form = {"id": alert_id, "silence": "1", "verdict": "benign", "csrf": csrf}
    answer = page.post("/alerts/act/close", data=form)
    assert answer.status_code == 403
    assert "a suppression may show what is of other tenants" in answer.text
    assert (
        desk.client("root-s", "analyst").get(f"/api/v1/alerts/{alert_id}").headers["etag"] == '"1"'
    )


def test_what_cannot_be_limited_is_not_there_to_be_asked(desk: TenantDesk) -> None:
    reader = Reader(desk.settings, ("acme",))
    try:
        with pytest.raises(NotForTenants, match=r"^gold\.rollup may show"):
            reader.rows("SELECT 1", needs=("gold.rollup",))
        with pytest.raises(NotForTenants):
            reader.rows("SELECT 1", needs=("gold.suppression",))
        # A question that names a table which it does not own up to finds none.
        with pytest.raises(Exception, match="does not exist"):
            reader.rows("SELECT * FROM ops.case_act", needs=("gold.alert",))
        for name in ("silver.event", "gold.finding", "bronze.record", "silver.events"):
            known = reader.rows(f"SELECT DISTINCT tenant_uid FROM {name}", needs=(name,))
            assert known == [{"tenant_uid": "acme"}], name
        kinds = reader.rows("SELECT count(*) AS n FROM desk.alert_kind", needs=("desk.alert",))
        assert kinds[0]["n"] >= 1
    finally:
        reader.close()
    nobody = Reader(desk.settings, ())
    assert nobody.rows("SELECT * FROM gold.alert", needs=("gold.alert",)) == []
    nobody.close()


def test_incidents_and_names_over_rest_are_the_tenants(tmp_path: Path) -> None:
    desk = TenantDesk(tmp_path)
    ann, lake = desk.limited("ann"), desk.settings.lake_root
    made = [
        incident(f"made-{tenant or 'nobodys'}", 0, 45, rule_id=INCIDENT, tenant_uid=tenant,
                 title=NAMES[tenant])
        for tenant in NAMES
    ]  # fmt: skip
    append_rows(lake, ALERT, made)
    listed = ann.get("/api/v1/incidents")
    assert [each["incident_id"] for each in listed.json()["items"]] == ["made-acme"]
    assert ann.get("/api/v1/incidents/made-acme").status_code == 200
    for name in ("made-globex", "made-nobodys"):
        assert ann.get(f"/api/v1/incidents/{name}").status_code == 404
    assert_own(desk, listed.text)
    names = {name: ann.get("/api/v1/entities", params={"name": name}) for name in NAMES.values()}
    for name, answer in names.items():
        assert answer.status_code == 200, answer.text
        assert {each["value"] for each in answer.json()["items"]} == ({OWN} & {name})
    desk.close()


def test_an_operators_silence_from_an_alert_is_its_tenants(desk: TenantDesk) -> None:
    running = desk.browser("root-silence", "admin")
    alert_id = desk.made("acme", 300_000, uid="noise")
    dialog = running.get(f"/alerts/act/close?id={alert_id}").text
    assert 'name="silence_tenant" value="acme"' in dialog
    both = running.get(f"/alerts/act/close?id={alert_id}&id={desk.ids['globex']}").text
    assert "silence_tenant" not in both
    csrf = running.get("/alerts").text.split('data-csrf="')[1].split('"')[0]
    form = {"id": alert_id, "silence": "1", "verdict": "benign", "csrf": csrf, "etag": "*",
            "silence_tenant": "acme", "silence_rule": "r*", "note": "a backup"}  # fmt: skip
    assert running.post("/alerts/act/close", data=form).status_code == 200
    (made,) = desk.client("root-silence-api", "admin").get("/api/v1/suppressions").json()["items"]
    assert (made["rule"], made["fields"]) == ("r*", {"tenant_uid": "acme"})
