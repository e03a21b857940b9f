"""Cases over REST, and their evidence: a file that is checked anywhere and that no hand bends."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import stix2
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from alerts.cases.evidence_check import check_bundle
from api.credentials import Credentials
from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.desk import TOKEN, Desk, audited
from tests.console.places import alert_ids
from tests.console.story import prepare

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def desk(spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    home = tmp_path_factory.mktemp("cases")
    shutil.copytree(empty_tables, home / "lake")
    return prepare(Lake(spark, load(home=home, api={"token": TOKEN})))


def listed(client: TestClient, asked: dict[str, str]) -> list[dict[str, Any]]:
    return client.get("/api/v1/cases", params=asked).json()["items"]


def test_a_case_is_opened_worked_on_merged_and_taken_away_as_evidence(desk, tmp_path):
    client = desk.client()
    alerts = alert_ids(desk)
    login, tunnel = alerts["SSH login succeeded after guessing"], alerts["DNS tunnel"]
    open_ones = {"alert_id": tunnel, "status": "open"}
    # Other tests open some at this desk.
    before = [case["case_id"] for case in listed(client, open_ones)]
    opened = client.post(
        "/api/v1/cases", json={"title": "laptop-b", "alerts": [login[:8]], "assignee": "me"}
    )
    assert opened.status_code == 201, opened.text
    case = opened.json()
    assert (case["alerts"], case["assignee"], case["status"]) == ([login], "api", "open")
    path = f"/api/v1/cases/{case['case_id'][:9]}"
    etag = client.get(path).headers["etag"]
    changed = client.patch(path, json={"note": "wiped"}, headers={"If-Match": etag})
    assert [note["text"] for note in changed.json()["notes"]] == ["wiped"]
    stale = client.patch(path, json={"title": "x"}, headers={"If-Match": etag})
    assert stale.status_code == 412
    assert "api changed it" in stale.json()["detail"]
    other = client.post("/api/v1/cases", json={"title": "tunnel", "alerts": [tunnel]}).json()
    assert client.get(f"{path}?status=open").status_code == 422
    path_of_other = f"/api/v1/cases/{other['case_id']}"
    seen = {"If-Match": client.get(path_of_other).headers["etag"]}
    client.post(f"{path_of_other}/notes", json={"text": "is this the same one?"})
    into = {"json": {"into": case["case_id"]}}
    refused = client.post(f"{path_of_other}/merge", **into, headers=seen)
    assert refused.status_code == 412
    assert "api changed it" in refused.json()["detail"]
    assert client.get(path_of_other).json()["status"] == "open"
    merged = client.post(
        f"{path_of_other}/merge", **into, headers={"If-Match": refused.headers["etag"]}
    )
    assert merged.json()["alerts"] == [login, tunnel]
    assert merged.headers["etag"] == client.get(path).headers["etag"]
    refused = client.post(f"/api/v1/cases/{other['case_id']}/notes", json={"text": "late"})
    assert refused.status_code == 409
    assert [item["case_id"] for item in listed(client, open_ones)] == [case["case_id"], *before]

    sent = client.get(f"{path}/evidence")
    assert sent.status_code == 200, sent.text
    file = tmp_path / "case.zip"
    file.write_bytes(sent.content)
    checked = check_bundle(file, sent.headers["headgate-digest"])
    assert checked.problems == []
    rows = checked.manifest["rows"]
    # The first alert was about laptop-a before it was about laptop-b.
    assert rows["alerts.ndjson"] >= 3
    assert rows["events.ndjson"] == rows["records.ndjson"] == 2
    assert checked.manifest["missing"]["records"] == []
    assert "gold.alert" in checked.manifest["tables"]
    acts = [row for row in audited(desk.lake.settings) if row["target"] == case["case_id"]]
    (noted,) = [row for row in acts if row["act"] == "evidence.export"]
    assert json.loads(noted["detail"])["digest"] == checked.digest

    shared = client.get(f"{path}/stix")
    assert shared.headers["content-type"] == "application/stix+json;version=2.1"
    bundle = stix2.parse(shared.content, allow_custom=False)
    (whole,) = [
        each for each in bundle.objects if each.type == "grouping" and each.name == "laptop-b"
    ]
    assert len(whole.object_refs) == 3
    sighted = client.get(f"/api/v1/alerts/{login[:8]}/stix").json()
    assert {each["id"] for each in sighted["objects"]} < {each.id for each in bundle.objects}
    noted = [row for row in audited(desk.lake.settings) if row["act"] == "evidence.stix"]
    assert json.loads(noted[0]["detail"]) == {"bundle": bundle.id, "alerts": 2}


def test_who_may_only_look_opens_no_case(desk):
    _, token = Credentials(desk.lake.settings).add_key("eve", "viewer")
    client = desk.client(token)
    assert client.post("/api/v1/cases", json={"title": "x"}).status_code == 403
    assert client.get("/api/v1/cases").status_code == 200


def test_a_bundle_that_was_changed_says_where(desk, tmp_path: Path):
    client = desk.client()
    alerts = list(alert_ids(desk).values())
    case = client.post("/api/v1/cases", json={"title": "all", "alerts": alerts}).json()
    whole = tmp_path / "whole.zip"
    whole.write_bytes(client.get(f"/api/v1/cases/{case['case_id']}/evidence").content)
    with zipfile.ZipFile(whole) as bundle:
        content = {name: bundle.read(name) for name in bundle.namelist()}

    def problems(**changed: bytes | None) -> list[str]:
        bent = tmp_path / "bent.zip"
        with zipfile.ZipFile(bent, "w") as out:
            for name, text in (content | changed).items():
                if text is not None:
                    out.writestr(name, text)
        return check_bundle(bent).problems

    assert problems() == []
    events = content["events.ndjson"]
    assert problems(**{"events.ndjson": events.replace(b"root", b"user")}) == [
        "events.ndjson: was changed, its SHA-256 is another",
        f"events.ndjson: 0 rows, not {len(events.splitlines())}",
        *[line for line in problems(**{"events.ndjson": None}) if line.startswith("event ")],
    ]
    assert "records.ndjson: is missing" in problems(**{"records.ndjson": None})
    assert "extra.txt: was added later, no hash is written down" in problems(**{"extra.txt": b"x"})
    assert "SHA256SUMS is missing: nothing can be checked" in problems(SHA256SUMS=None)
    assert check_bundle(whole, "0" * 64).problems != []
