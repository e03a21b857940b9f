"""GitHub's audit log, and Azure's diagnostics."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.cloud_samples import check, lost, samples, spoilt
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, reason, rows

ENTRY: dict[str, Any] = {
    "@timestamp": 1772442000123,
    "_document_id": "d-1",
    "action": "repo.create",
    "actor": "ann",
    "actor_id": 7,
    "actor_ip": "203.0.113.9",
    "actor_location": {"country_code": "DE"},
    "business": "acme",
    "business_id": 3,
    "created_at": 1772442000123,
    "hashed_token": "0771cae4=",
    "operation_type": "create",
    "org": "acme-org",
    "org_id": 42,
    "programmatic_access_type": "OAuth access token",
    "repo": "acme-org/site",
    "repo_id": 9,
    "user_agent": "git/2.43",
    "visibility": "private",
}


def entry(action: str, **more: Any) -> dict[str, Any]:
    value = ENTRY | {"action": action} | more
    found = good("github_audit", json.dumps(value))
    check([found])
    assert lost(json.dumps(value).encode(), [found]) <= {"1772442000123"}
    return found


def test_a_call() -> None:
    row = entry("repo.create")
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (6003, 1, 1)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 123000, UTC)
    assert (row["user_name"], row["src_ip"]) == ("ann", "203.0.113.9")
    assert row["actor"]["user"]["credential_uid"] == "0771cae4="
    assert row["src_endpoint"]["country"] == "DE"
    assert row["api"]["operation"] == row["metadata"]["event_code"] == "repo.create"
    assert row["resources"][0] == {"uid": "9", "name": "acme-org/site", "type": "Repository"}
    assert row["cloud"]["account"] == {"name": "acme-org", "uid": "42"}
    rest = json.loads(row["unmapped"])
    assert rest["programmatic_access_type"] == "OAuth access token"
    assert rest["visibility"] == "private"


@pytest.mark.parametrize(
    ("action", "more", "expected"),
    [
        ("git.clone", {"operation_type": None}, (6003, 2, 1)),
        ("git.push", {}, (6003, 3, 1)),
        ("repo.destroy", {"operation_type": "remove"}, (6003, 4, 1)),
        ("protected_branch.policy_override", {"operation_type": "modify"}, (6003, 3, 1)),
        ("oauth_authorization.create", {}, (6003, 1, 1)),
        ("org.add_member", {"user": "bob"}, (3006, 3, 1)),
        ("org.remove_member", {"user": "bob"}, (3006, 4, 1)),
        ("team.add_member", {"user": "bob", "team": "acme-org/ops"}, (3006, 3, 1)),
        ("team.create", {"team": "acme-org/ops"}, (3006, 6, 1)),
        ("user.login", {"user": "ann"}, (3002, 1, 1)),
        ("user.failed_login", {"user": "ann"}, (3002, 1, 2)),
        ("two_factor_authentication.disabled", {"user": "ann"}, (3001, 11, 1)),
        ("workflows.completed_workflow_run", {"conclusion": "failure"}, (6003, 1, 2)),
    ],
)
def test_actions(action: str, more: dict[str, Any], expected: tuple[int, int, int]) -> None:
    row = entry(action, **more)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == expected


def test_whom_and_which_team() -> None:
    row = entry("team.add_member", user="bob", user_id=8, team="acme-org/ops")
    assert row["group"] == {"name": "acme-org/ops"}
    assert (row["user"]["name"], row["user"]["uid"], row["user_name"]) == ("bob", "8", "bob")


def test_times_as_lakes_write_them() -> None:
    bare = {k: v for k, v in ENTRY.items() if k not in ("@timestamp", "created_at")}
    text = bare | {"created_at": "2026-03-02 09:00:00.123"}
    assert good("github_audit", json.dumps(text))["time"].microsecond == 123000
    assert good("github_audit", json.dumps(bare))["time_quality"] == "received"


def test_an_entry_moved_in_time_keeps_its_milliseconds() -> None:
    raw = json.dumps(ENTRY).encode()
    when = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
    moved = lookup("github_audit").restamp(raw, when, ZoneInfo("UTC"))
    assert json.loads(moved)["@timestamp"] == int(when.timestamp() * 1000)


def test_real_entries() -> None:
    raws = samples("github_audit")
    for raw in raws:
        found = rows("github_audit", raw)
        check(found)
        assert {one for one in lost(raw, found) if not one.startswith("1621")} == set()
    assert len(raws) == 33


def test_a_name_in_a_repository_cannot_forge_an_address() -> None:
    row = entry("git.push", repo='x","actor_ip":"6.6.6.6', actor="ann\u202e\x1b[31m")
    assert row["src_ip"] == "203.0.113.9"
    assert row["user_name"] == "ann\u202e\x1b[31m"
    assert "stands twice" in reason("github_audit", b'{"action":"a.b","action":"c.d"}')


@pytest.mark.parametrize("source", ["github_audit", "azure_audit"])
def test_odd_values_cost_no_event(source: str) -> None:
    documents = [json.loads(raw) for raw in samples(source)]
    chance = random.Random(4)
    for _ in range(300):
        raw = json.dumps(spoilt(chance.choice(documents), chance)).encode()
        for row in rows(source, raw):
            why = row.get("dead_letter_reason")
            assert why is None or "failed" not in why
            assert why is not None or (faults(row), misfits(row)) == ([], [])


SIGN_IN: dict[str, Any] = {
    "time": "2026-03-02T09:00:05Z",
    "category": "SignInLogs",
    "operationName": "Sign-in activity",
    "resultType": "50126",
    "callerIpAddress": "203.0.113.9",
    "correlationId": "c-1",
    "Level": 4,
    "location": "DE",
    "tenantId": "t-1",
    "properties": {
        "id": "s-1",
        "createdDateTime": "2026-03-02T09:00:00.5Z",
        "userPrincipalName": "ann@example.com",
        "userId": "u-1",
        "userDisplayName": "Ann",
        "resourceDisplayName": "Microsoft Graph",
        "authenticationRequirement": "multiFactorAuthentication",
        "status": {"errorCode": 50126, "failureReason": "Invalid username or password"},
        "userAgent": "Mozilla/5.0",
    },
}


def test_a_sign_in_to_azure() -> None:
    row = good("azure_audit", json.dumps({"records": [SIGN_IN]}))
    check([row])
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, 2)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 500000, UTC)
    assert (row["user"]["name"], row["src_ip"]) == ("ann@example.com", "203.0.113.9")
    assert (row["status_code"], row["is_mfa"]) == ("50126", True)
    assert row["status_detail"] == "Invalid username or password"


def test_real_records_of_azure() -> None:
    raws = samples("azure_audit")
    for raw in raws:
        found = rows("azure_audit", raw)
        check(found)
        assert lost(raw, found) == set()
    assert len(raws) == 13
