"""Who is limited to tenants works on cases of these tenants' alerts; all others are not there."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from alerts.cases.evidence_check import check_bundle
from tests.api.tenant_desk import OTHERS_CASES, TenantDesk, assert_own
from tests.api.test_tenants import OWN

OWN_CASE, MERGED = "case-aa00000001", "case-aa00000007"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-cases"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def ann(desk: TenantDesk) -> TestClient:
    return desk.limited("ann")


def test_the_list_has_the_cases_of_the_tenants_alerts_alone(
    desk: TenantDesk, ann: TestClient
) -> None:
    root = desk.client("root", "admin")
    listed = {item["case_id"] for item in root.get("/api/v1/cases").json()["items"]}
    assert set(OTHERS_CASES) < listed
    answer = ann.get("/api/v1/cases")
    assert {item["case_id"] for item in answer.json()["items"]} == {OWN_CASE, MERGED}
    assert_own(desk, answer.text)
    of_alert = ann.get("/api/v1/cases", params={"alert_id": desk.ids["acme"]})
    assert {item["case_id"] for item in of_alert.json()["items"]} == {OWN_CASE, MERGED}
    theirs = ann.get("/api/v1/cases", params={"alert_id": desk.ids["globex"]})
    assert theirs.status_code == 404
    # It was merged into one that holds others' alerts, too: that one is not named.
    merged = ann.get(f"/api/v1/cases/{MERGED}").json()
    assert (merged["status"], merged["merged_into"]) == ("merged", None)
    noted = ann.post(f"/api/v1/cases/{MERGED}/notes", json={"text": "x"})
    assert noted.status_code == 409
    assert (
        noted.json()["detail"]
        == f"{MERGED} was merged into another case; nothing is added to it any more"
    )
    assert root.get(f"/api/v1/cases/{MERGED}").json()["merged_into"] == "case-bb00000002"


@pytest.mark.full
def test_a_case_of_others_is_as_if_it_were_not_there(desk: TenantDesk, ann: TestClient) -> None:
    for case_id in (*OTHERS_CASES, "case-bb"):
        path = f"/api/v1/cases/{case_id}"
        asked = [
            ann.get(path),
            ann.patch(path, json={"title": "x"}, headers={"If-Match": "*"}),
            ann.post(f"{path}/notes", json={"text": "x"}),
            ann.post(f"{path}/alerts", json={"alerts": [desk.ids["acme"]]}),
            ann.delete(f"{path}/alerts/{desk.ids['acme']}"),
            ann.post(f"{path}/merge", json={"into": OWN_CASE}),
            ann.get(f"{path}/evidence"),
            ann.get(f"{path}/stix"),
        ]
        unknown = ann.get("/api/v1/cases/case-0123456789").json()
        for answer in asked:
            assert answer.status_code == 404, answer.text
            assert answer.json()["detail"] == f"no case '{case_id}'; GET /api/v1/cases lists them"
            assert answer.json().keys() == unknown.keys()
    into = ann.post(f"/api/v1/cases/{OWN_CASE}/merge", json={"into": OTHERS_CASES[0]})
    assert into.status_code == 404
    # Not even that several begin so.
    assert ann.get("/api/v1/cases/bb0").status_code == 404
    root = desk.client("root-after", "admin")
    whole = root.get(f"/api/v1/cases/{OTHERS_CASES[0]}").json()
    assert whole["status"] == "open"
    assert [note["text"] for note in whole["notes"]] != []
    assert "x" not in [note["text"] for note in whole["notes"]]


def test_a_tenants_analyst_opens_works_on_and_closes_a_case(
    desk: TenantDesk, ann: TestClient
) -> None:
    mine, more, theirs = desk.ids["acme"], desk.more["acme"], desk.ids["globex"]
    for alerts in ([theirs], [mine, theirs], [desk.ids[None][:8]]):
        refused = ann.post("/api/v1/cases", json={"title": "x", "alerts": alerts})
        assert refused.status_code == 404, refused.text
    bare = ann.post("/api/v1/cases", json={"title": "x"})
    assert bare.status_code == 422
    assert "name at least one" in bare.text
    made = ann.post("/api/v1/cases", json={"title": "Mine", "alerts": [mine], "assignee": "me"})
    assert made.status_code == 201, made.text
    path = f"/api/v1/cases/{made.json()['case_id']}"
    assert ann.post(f"{path}/alerts", json={"alerts": [theirs]}).status_code == 404
    assert ann.post(f"{path}/alerts", json={"alerts": [more, theirs]}).status_code == 404
    assert ann.post(f"{path}/alerts", json={"alerts": [more]}).json()["alerts"] == [mine, more]
    assert ann.delete(f"{path}/alerts/{more}").json()["alerts"] == [mine]
    assert ann.post(f"{path}/notes", json={"text": "seen"}).status_code in (200, 201)
    closed = {"status": "closed", "outcome": "benign"}
    done = ann.patch(path, json=closed, headers={"If-Match": "*"}).json()
    assert (done["status"], done["assignee"]) == ("closed", "ann")
    viewer = desk.limited("vic", "viewer")
    assert viewer.get(path).status_code == 200
    assert viewer.post(f"{path}/notes", json={"text": "x"}).status_code == 403
    # Once somebody who sees all links what is of others, it is gone for the tenant.
    root = desk.client("root-links", "analyst")
    assert root.post(f"{path}/alerts", json={"alerts": [theirs]}).status_code == 200
    assert ann.get(path).status_code == 404
    assert root.delete(f"{path}/alerts/{theirs}").status_code == 200
    assert ann.get(path).status_code == 404


def test_evidence_and_explanations_are_of_the_tenants_alone(
    desk: TenantDesk, ann: TestClient, tmp_path: Path
) -> None:
    sent = ann.get(f"/api/v1/cases/{OWN_CASE}/evidence")
    assert sent.status_code == 200, sent.text
    file = tmp_path / "case.zip"
    file.write_bytes(sent.content)
    checked = check_bundle(file, sent.headers["headgate-digest"])
    assert checked.problems == []
    assert "batches and versions of tables" in checked.manifest["left_out"]
    assert checked.manifest["tables"] == {}
    rows = checked.manifest["rows"]
    assert (rows["events.ndjson"], rows["records.ndjson"], rows["leases.ndjson"]) == (1, 1, 1)
    assert (rows["actions.ndjson"], rows["findings.ndjson"]) == (1, 1)
    assert rows["attributions.ndjson"] == 1
    with zipfile.ZipFile(file) as bundle:
        for name in bundle.namelist():
            assert_own(desk, bundle.read(name).decode())
        assert OWN in bundle.read("events.ndjson").decode()
    explained = ann.get(f"/api/v1/alerts/{desk.ids['acme']}/explain", params={"again": True})
    assert explained.status_code == 200, explained.text
    assert explained.json()["lineage"]["batches"] == []
    assert_own(desk, explained.text)
    shown = ann.post("/api/v1/statements", json={"sql": explained.json()["evidence_sql"]})
    assert len(shown.json()["rows"]) == 1, shown.text
    for path in (f"/api/v1/cases/{OWN_CASE}/stix", f"/api/v1/alerts/{desk.ids['acme']}/stix"):
        shared = ann.get(path)
        assert shared.status_code == 200, shared.text
        assert_own(desk, shared.text)
    for name in ("explain", "stix"):
        assert ann.get(f"/api/v1/alerts/{desk.ids['globex']}/{name}").status_code == 404


@pytest.mark.full
def test_a_tenants_bundles_are_of_their_rows_and_no_other_bundle_is_there(
    desk: TenantDesk, ann: TestClient
) -> None:
    jobs, soon = "/api/v1/evidence/jobs", {"wait_seconds": 20}
    root = desk.client("root-bundles", "admin")
    theirs = root.post(jobs, json={"case": OTHERS_CASES[0]}, params=soon).json()
    for asked in ({"case": OTHERS_CASES[0]}, {"alerts": [desk.ids["acme"], desk.ids["globex"]]},
                  {"incident": desk.ids["globex"]}):  # fmt: skip
        refused = ann.post(jobs, json=asked)
        assert refused.status_code == 404, refused.text
    made = ann.post(jobs, json={"case": OWN_CASE}, params=soon)
    job = made.json()
    assert job["state"] == "done", made.text
    assert_own(desk, made.text)
    sent = ann.get(f"{jobs}/{job['id']}/results")
    with zipfile.ZipFile(BytesIO(sent.content)) as bundle:
        for name in bundle.namelist():
            assert_own(desk, bundle.read(name).decode())
    assert [each["id"] for each in ann.get(jobs).json()["items"]] == [job["id"]]
    for path in (f"{jobs}/{theirs['id']}{part}" for part in ("", "/results", "/stream")):
        assert ann.get(path).status_code == 404, path
    assert ann.delete(f"{jobs}/{theirs['id']}").status_code == 404
    assert ann.delete(f"{jobs}/{job['id']}").status_code == 200


@pytest.mark.full
def test_the_console_shows_and_changes_the_tenants_cases(desk: TenantDesk) -> None:
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-page", "analyst", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    mine = desk.ids["acme"]
    for path in ("/cases", "/cases?tab=merged", "/cases?tab=closed", "/cases?tab=incidents",
                 f"/cases/{OWN_CASE}", f"/cases/{MERGED}", f"/cases/add?id={mine}"):  # fmt: skip
        answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text[:400])
        assert_own(desk, answer.text)
    assert OWN_CASE in browser.get("/cases").text
    assert "Merged into another case" in browser.get(f"/cases/{MERGED}").text
    for path in (f"/cases/{OTHERS_CASES[0]}", f"/cases/{OTHERS_CASES[0]}/evidence",
                 f"/cases/add?id={desk.ids['globex']}"):  # fmt: skip
        answer = browser.get(path)
        assert answer.status_code == 404, path
        assert_own(desk, answer.text, OTHERS_CASES[0], desk.ids["globex"])
    csrf = browser.get("/alerts").text.split('data-csrf="')[1].split('"')[0]
    form = {"csrf": csrf, "id": mine}
    opened = browser.post("/cases", data=form | {"title": "From the page"})
    assert opened.status_code == 303, opened.text
    case = opened.headers["location"]
    assert browser.post("/cases", data=form | {"case": OTHERS_CASES[0]}).status_code == 404
    theirs = {"csrf": csrf, "id": desk.ids["globex"], "case": case.removeprefix("/cases/")}
    assert browser.post("/cases", data=theirs).status_code == 404
    noted = browser.post(f"{case}/change", data={"csrf": csrf, "note": "from the page"})
    assert noted.status_code == 303
    assert "from the page" in browser.get(case).text
