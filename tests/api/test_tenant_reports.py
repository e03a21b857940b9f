"""Who is limited to a tenant has reports made of it, and sees and fetches no other's."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.services.act_store import StateFolder
from api.services.runs import command_runs
from api.services.runs.command_runs import MOST_OF_ONE, CommandRuns
from api.services.runs.report_runs import ReportDesk
from api.sql.worker_line import Busy
from api.wire.runs import ReportWanted
from infra.config.settings import Settings, load
from infra.errors import Usage
from infra.process.subprocesses import CommandResult
from infra.runtime.report_failures import ReportFailure, leave_failures
from tests.api.desk import audited, ended
from tests.api.tenant_desk import TenantDesk, assert_own
from tests.api.test_tenants import OTHER, OWN
from tests.console.test_rule_tuning import csrf_of

MINUTE = 60.0
DAY = "2026-11-20"
FILES = {
    None: "daily-2026-11-18_2026-11-19.html",
    "acme": "tenant-acme.daily-2026-11-18_2026-11-19.html",
    "globex": "tenant-globex.daily-2026-11-18_2026-11-19.html",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    scheduled = [
        {"report": "weekly", "every": "week", "tenant": tenant, "subject": tenant or "whole"}
        for tenant in ("acme", "globex", None)
    ]
    running = TenantDesk(tmp_path_factory.mktemp("reports"), reports={"scheduled": scheduled})
    folder = running.settings.home / "reports"
    folder.mkdir()
    for tenant, name in FILES.items():
        (folder / name).write_text(f"<p>page of {tenant}</p>")
    # No tenant's: a name that looks like one, and files of a person.
    (folder / "tenant-acme.daily.txt").write_text(OTHER)
    (folder / "xtenant-acme.daily-2026-11-18_2026-11-19.html").write_text(OTHER)
    with pytest.MonkeyPatch.context() as patch:
        # Reports are made by processes of their own, which read the settings anew.
        patch.setenv("HEADGATE_TENANTS", '["acme", "globex"]')
        yield running
    running.close()


@pytest.fixture(scope="module")
def ann(desk: TenantDesk) -> TestClient:
    return desk.limited("ann")


@pytest.mark.full
def test_a_tenants_report_is_made_listed_and_fetched(desk: TenantDesk, ann: TestClient) -> None:
    gus = desk.limited("gus", tenant="globex")
    kinds = ann.get("/api/v1/reports/kinds").json()["items"]
    names = [kind["name"] for kind in kinds]
    assert names == ["daily", "device", "incident", "monthly", "weekly"]
    runs = {}
    root = desk.client("root", "admin")
    for client in (ann, gus, root):
        wanted = {"report": "daily", "interval": DAY, "formats": ["html", "csv"]}
        asked = client.post("/api/v1/reports", json=wanted)
        assert asked.status_code == 202, asked.text
        runs[client] = ended(client, asked.headers["location"])
        assert runs[client]["state"] == "done", runs[client]["problem"]
    mine = runs.pop(ann)
    stem = "tenant-acme.daily-2026-11-20_2026-11-21"
    assert mine["tenant"] == "acme"
    assert sorted(mine["files"]) == [f"{stem}.csv.zip", f"{stem}.html", f"{stem}.json"]
    listed = ann.get("/api/v1/reports")
    items = listed.json()["items"]
    assert {item["name"] for item in items} == {FILES["acme"], *mine["files"]}
    assert {item["tenant"] for item in items} == {"acme"}
    pages = [ann.get(f"/api/v1/reports/{name}") for name in mine["files"]]
    assert [page.status_code for page in pages] == [200, 200, 200]
    document = next(page for page in pages if page.headers["content-type"] == "application/json")
    assert OWN in document.text
    assert_own(desk, document.text + listed.text + ann.get("/api/v1/reports/runs").text)
    assert [run["id"] for run in ann.get("/api/v1/reports/runs").json()["items"]] == [mine["id"]]
    for run in runs.values():
        for path in (f"runs/{run['id']}", f"runs/{run['id']}/stream", *run["files"]):
            theirs = ann.get(f"/api/v1/reports/{path}")
            never = ann.get(f"/api/v1/reports/{path.replace('2', '3')}")
            assert theirs.status_code == never.status_code == 404, path
            # As of one that was never there.
            asked_for = path.removeprefix("runs/").removesuffix("/stream")
            assert theirs.json()["detail"].replace(asked_for, "") == never.json()["detail"].replace(
                asked_for.replace("2", "3"), ""
            )
    everything = root.get("/api/v1/reports").json()["items"]
    assert {item["tenant"] for item in everything} == {None, "acme", "globex"}
    # Of a tenant that is none any more, what was made for it before is still its own.
    left = desk.settings.model_copy(update={"tenants": ("globex",)})
    with closing(CommandRuns(left)) as former:
        kept = ReportDesk(left, former, ("acme",)).listed().items
    assert [run.id for run in kept] == [mine["id"]]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"tenant": "globex"}, "tenant: no tenant 'globex'; there are acme"),
        ({"tenant": "none"}, "tenant: no tenant 'none'; there are acme"),
        ({"tenant": "acme,globex"}, "no tenant 'acme,globex'"),
        ({"report": "compliance"}, "no report 'compliance' for a tenant; there are daily, device"),
        ({"report": "query", "subject": "x"}, "no report 'query' for a tenant"),
        ({"report": "device"}, "give the subject"),
    ],
)
def test_what_may_show_others_is_refused_when_it_is_asked_for(
    ann: TestClient, wanted: dict[str, str], words: str
) -> None:
    before = ann.get("/api/v1/reports/runs").json()["items"]
    refused = ann.post("/api/v1/reports", json={"report": "daily", "interval": DAY} | wanted)
    assert refused.status_code == 422
    assert words in refused.json()["detail"]
    assert ann.get("/api/v1/reports/runs").json()["items"] == before


@pytest.mark.full
def test_the_incident_of_another_makes_no_report(desk: TenantDesk, ann: TestClient) -> None:
    wanted = {"report": "incident", "interval": DAY, "subject": desk.ids["globex"]}
    run = ended(ann, ann.post("/api/v1/reports", json=wanted).headers["location"])
    assert run["state"] == "failed"
    assert "there is no such alert" in run["problem"]
    assert_own(desk, str(run), desk.ids["globex"])


def test_who_reads_makes_none_and_a_key_of_two_tenants_says_whose(desk: TenantDesk) -> None:
    reader = desk.limited("reader", "read")
    wanted = {"report": "daily", "interval": DAY}
    assert reader.post("/api/v1/reports", json=wanted).status_code == 403
    assert reader.get("/api/v1/reports").status_code == 200
    both = TestClient(desk.app, raise_server_exceptions=False)
    token = desk.key("both", "analyst", tenants=("acme", "globex"))
    both.headers["Authorization"] = f"Bearer {token}"
    refused = both.post("/api/v1/reports", json=wanted)
    assert refused.status_code == 422
    assert "tenant: say whose report it is to be: acme or globex" in refused.json()["detail"]
    assert {FILES["acme"], FILES["globex"]} <= {
        item["name"] for item in both.get("/api/v1/reports").json()["items"]
    }
    nobody = both.post("/api/v1/reports", json=wanted | {"tenant": ""})
    assert nobody.status_code == 422
    assert "tenant: no tenant ''; there are acme, globex" in nobody.json()["detail"]


def test_a_key_that_outlived_its_tenant_learns_of_no_other(desk: TenantDesk) -> None:
    left = desk.settings.model_copy(update={"tenants": ("globex",)})
    runs = CommandRuns(left)
    try:
        reports = ReportDesk(left, runs, ("acme",))
        for tenant in ("acme", None):
            wanted = ReportWanted(report="daily", interval=DAY, tenant=tenant)
            with pytest.raises(Usage, match="tenant: no tenant 'acme'; there are none"):
                reports.make("ann", wanted)
        both = ReportDesk(left, runs, ("acme", "globex"))
        with pytest.raises(Usage, match="no tenant 'acme'; there are globex"):
            both.make("gus", ReportWanted(report="daily", interval=DAY, tenant="acme"))
    finally:
        runs.close()


@pytest.mark.full
def test_an_administrator_has_one_made_for_a_tenant_and_slips_are_refused(desk: TenantDesk) -> None:
    root = desk.client("root-2", "admin")
    wanted = {"report": "weekly", "interval": DAY}
    asked = root.post("/api/v1/reports", json=wanted | {"tenant": "globex"})
    assert asked.json()["tenant"] == "globex"
    run = ended(root, asked.headers["location"])
    assert run["state"] == "done", run["problem"]
    assert all(name.startswith("tenant-globex.weekly-") for name in run["files"])
    acts = [row for row in audited(desk.settings) if row["target"] == run["id"]]
    assert "globex" in str(acts[0]["detail"])
    slip = root.post("/api/v1/reports", json=wanted | {"tenant": "acmee"})
    assert "tenant: no tenant 'acmee'; there are acme, globex" in slip.json()["detail"]


def test_the_page_shows_and_makes_a_tenants_reports_alone(desk: TenantDesk) -> None:
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-page", "analyst", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    assert 'href="/reports"' in browser.get("/").text
    page = browser.get("/reports?make=1").text
    assert FILES["acme"] in page
    assert "daily-2026-11-18_2026-11-19" in page
    assert "weekly</b> of acme for tenant acme" in page
    assert 'value="compliance"' not in page
    assert '<option value="acme">acme</option>' in page
    assert "of whole" not in page
    # An id that they asked for themselves is told again.
    assert_own(desk, page, desk.ids["globex"])
    assert browser.get(f"/reports/file/{FILES['acme']}").text == "<p>page of acme</p>"
    for tenant in ("globex", None):
        for path in (f"/reports/file/{FILES[tenant]}", f"/reports?show={FILES[tenant]}"):
            answer = browser.get(path)
            assert answer.status_code == 404
            assert "page of" not in answer.text
    form = {"csrf": csrf_of(page), "report": "daily", "interval": DAY, "tenant": "globex"}
    refused = browser.post("/reports", data=form)
    assert refused.status_code == 422
    assert "no tenant 'globex'; there are acme" in html.unescape(refused.text)
    whole = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    whole.post("/login", data={"key": desk.key("root-page", "admin"), "next": "/"})
    offered = whole.get("/reports?make=1&tenant=globex").text
    assert '<option value="">all</option>' in offered
    assert '<option value="globex" selected>' in offered


def test_the_runs_of_one_leave_places_to_others(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(home=tmp_path, tenants=["acme", "globex"])

    def waits(
        command: Any, settings: Settings, stop: Any, seconds: float, each_second: Any
    ) -> CommandResult:
        stop.wait(MINUTE)
        return CommandResult(0, "", "")

    monkeypatch.setattr(command_runs, "run_command", waits)
    runs = CommandRuns(settings)
    try:
        for number in range(MOST_OF_ONE):
            runs.submit("report", f"key-{number}", {"tenant": "acme"}, ("report",), lambda _: {})
        with pytest.raises(Busy, match="10 runs of tenant acme wait already"):
            runs.submit("report", "another", {"tenant": "acme"}, ("report",), lambda _: {})
        runs.submit("report", "gus", {"tenant": "globex"}, ("report",), lambda _: {})
        runs.submit("report", "root", {"tenant": None}, ("report",), lambda _: {})
    finally:
        runs.close()


def test_a_tenant_looks_after_its_own_reports_over_rest_and_on_the_page(
    desk: TenantDesk, ann: TestClient
) -> None:
    missing = {
        tenant: ReportFailure(
            report="weekly", subject=tenant, tenant=tenant, every="week", interval="2026-W47",
            stem=f"tenant-{tenant}.weekly-2026-W47", made=False,
            tried_at=datetime.now(UTC).isoformat(), problem="no room", span="2026-11-16/2026-11-23",
        )
        for tenant in ("acme", "globex")
    }  # fmt: skip
    leave_failures(desk.settings, list(missing.values()))
    listed = ann.get("/api/v1/reports/scheduled")
    assert [each["name"] for item in listed.json()["items"] for each in item["failures"]] == [
        missing["acme"].stem
    ]
    assert_own(desk, listed.text)
    failures = "/api/v1/reports/scheduled/failures"
    assert ann.delete(f"{failures}/{missing['globex'].stem}").status_code == 404
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-looks", "analyst", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    run = {
        "id": "y" * 22, "state": "running", "who": "ann-looks", "ended_at": None,
        "made_at": datetime.now(UTC).isoformat(), "problem": None, "report": "daily",
        "interval": DAY, "subject": "", "tenant": "acme", "files": [], "progress": None,
        "step": None, "pid": os.getpid(), "pid_since": None,
    }  # fmt: skip
    runs = StateFolder(desk.settings, "runs-report", timedelta(days=7))
    runs.put(run["id"], run)
    page = browser.get("/reports").text
    csrf = {"csrf": csrf_of(page)}
    for address, more in (
        (f"/reports/runs/{run['id']}/end", {}),
        ("/reports/dismiss", {"name": missing["acme"].stem}),
    ):
        assert f'action="{address}"' in page
        assert browser.post(address, data=csrf | more).headers.get("location") == "/reports"
        assert f'action="{address}"' not in browser.get("/reports").text
    theirs = {"name": missing["globex"].stem}
    assert browser.post("/reports/dismiss", data=csrf | theirs).status_code == 404
    assert ann.delete(f"{failures}/{missing['acme'].stem}").status_code == 404, "it is dismissed"
    leave_failures(desk.settings, [])
    runs.take(run["id"])
