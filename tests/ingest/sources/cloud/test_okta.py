"""Okta's System Log."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost, samples, spoilt
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, reason, rows

ENTRY: dict[str, Any] = {
    "uuid": "u-1",
    "published": "2026-03-02T09:00:00.123Z",
    "eventType": "user.session.start",
    "version": "0",
    "severity": "INFO",
    "displayMessage": "User login to Okta",
    "actor": {
        "id": "00u1",
        "type": "User",
        "alternateId": "ann@example.com",
        "displayName": "Ann Smith",
    },
    "client": {
        "userAgent": {"rawUserAgent": "Mozilla/5.0", "os": "Mac OS X", "browser": "CHROME"},
        "zone": "null",
        "device": "Computer",
        "ipAddress": "203.0.113.9",
        "geographicalContext": {
            "city": "Berlin",
            "country": "Germany",
            "geolocation": {"lat": 52.5, "lon": 13.4},
        },
    },
    "outcome": {"result": "SUCCESS", "reason": None},
    "transaction": {"type": "WEB", "id": "t-1"},
    "authenticationContext": {"externalSessionId": "s-1", "authenticationStep": 0},
    "securityContext": {"asNumber": 64500, "asOrg": "as", "isp": "isp", "domain": "."},
    "debugContext": {"debugData": {"requestUri": "/api/v1/authn", "threatSuspected": "false"}},
    "target": None,
}
BOB = {"id": "00u2", "type": "User", "alternateId": "bob@example.com", "displayName": "Bob"}
STAFF = {"id": "00g1", "type": "UserGroup", "alternateId": "unknown", "displayName": "Staff"}
MAIL = {"id": "0oa1", "type": "AppInstance", "alternateId": "Mail", "displayName": "Mail"}


def entry(kind: str, result: str = "SUCCESS", **more: Any) -> dict[str, Any]:
    value = ENTRY | {"eventType": kind, "outcome": {"result": result}} | more
    found = good("okta", json.dumps(value))
    check([found])
    assert lost(json.dumps(value).encode(), [found]) <= {"null", ".", "unknown"}
    return found


def test_a_login() -> None:
    row = entry("user.session.start")
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (3002, 1, 1)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 123000, UTC)
    assert row["time_quality"] == "exact"
    assert row["user"]["name"] == row["actor"]["user"]["name"] == "ann@example.com"
    assert row["user"]["uid"] == "00u1"
    assert row["src_ip"] == "203.0.113.9"
    assert row["src_endpoint"]["country"] == "Germany"
    assert row["http_request"]["user_agent"] == "Mozilla/5.0"
    assert row["metadata"]["uid"] == "u-1"
    assert row["metadata"]["event_code"] == "user.session.start"
    assert row["session"]["uid"] == "s-1"
    more = json.loads(row["more"])["src_endpoint"]
    assert more["autonomous_system"] == {"number": 64500, "name": "as"}


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("user.session.end", None, (3002, 2)),
        ("user.authentication.auth_via_mfa", None, (3002, 1)),
        ("user.authentication.sso", [MAIL], (3002, 1)),
        ("user.session.impersonation.initiate", [BOB], (3002, 7)),
        ("user.lifecycle.create", [BOB], (3001, 1)),
        ("user.lifecycle.activate", [BOB], (3001, 2)),
        ("user.lifecycle.suspend", [BOB], (3001, 5)),
        ("user.lifecycle.deactivate", [BOB], (3001, 5)),
        ("user.lifecycle.delete.initiated", [BOB], (3001, 6)),
        ("user.account.lock", [BOB], (3001, 9)),
        ("user.account.unlock_by_admin", [BOB], (3001, 12)),
        ("user.account.reset_password", [BOB], (3001, 4)),
        ("user.account.update_password", [BOB], (3001, 3)),
        ("user.mfa.factor.activate", [BOB], (3001, 10)),
        ("user.mfa.factor.deactivate", [BOB], (3001, 11)),
        ("user.account.privilege.grant", [BOB, STAFF], (3005, 1)),
        ("application.user_membership.add", [BOB, MAIL], (3005, 1)),
        ("group.user_membership.add", [BOB, STAFF], (3006, 3)),
        ("group.user_membership.remove", [BOB, STAFF], (3006, 4)),
        ("group.lifecycle.create", [STAFF], (3006, 6)),
        ("policy.rule.update", [{"id": "p", "type": "Policy", "displayName": "P"}], (3004, 3)),
        ("zone.deactivate", [{"id": "z", "type": "NetworkZone", "displayName": "Z"}], (3004, 11)),
        ("system.api_token.create", [{"id": "k", "type": "Token", "displayName": "K"}], (3004, 1)),
        ("security.threat.detected", None, (2004, 1)),
        ("user.account.report_suspicious_activity_by_enduser", [BOB], (2004, 1)),
        ("app.generic.unauth_app_access_attempt", [MAIL], (6003, 2)),
        ("system.org.rate_limit.warning", None, (6003, 99)),
        ("something.new.delete", None, (6003, 4)),
    ],
)
def test_types(kind: str, target: Any, expected: tuple[int, int]) -> None:
    row = entry(kind, target=target)
    assert (row["class_uid"], row["activity_id"]) == expected
    assert row["metadata"]["event_code"] == kind


def test_whom_an_administrator_acted_upon() -> None:
    row = entry("group.user_membership.add", target=[BOB, STAFF])
    assert row["actor"]["user"]["name"] == "ann@example.com"
    assert row["user"]["name"] == row["user_name"] == "bob@example.com"
    assert row["group"] == {"name": "Staff", "uid": "00g1"}
    row = entry("user.authentication.sso", target=[MAIL])
    assert row["service"] == {"name": "Mail", "uid": "0oa1"}


@pytest.mark.parametrize(
    ("result", "status"),
    [
        *(("SUCCESS", 1), ("ALLOW", 1), ("FAILURE", 2), ("DENY", 2)),
        *(("CHALLENGE", 0), ("SKIPPED", 0), ("UNKNOWN", 0)),
    ],
)
def test_outcomes(result: str, status: int) -> None:
    row = entry("user.authentication.auth_via_mfa", result)
    assert (row["status_id"], row["status_code"]) == (status, result)
    assert row["is_mfa"] is True


def test_real_entries() -> None:
    raws = samples("okta")
    for raw in raws:
        found = rows("okta", raw)
        check(found)
        assert lost(raw, found) == set()
    assert len(raws) == 25


def test_envelopes() -> None:
    hook = {"eventType": "com.okta.event_hook", "data": {"events": [ENTRY, ENTRY]}}
    found = rows("okta", json.dumps(hook).encode())
    check(found)
    assert [row["metadata"]["event_code"] for row in found] == ["user.session.start"] * 2
    assert json.loads(found[0]["unmapped"])["envelope"]["eventType"] == "com.okta.event_hook"
    bridge = {"detail-type": "x", "source": "aws.partner/okta.com/x", "detail": ENTRY}
    assert good("okta", json.dumps(bridge))["src_ip"] == "203.0.113.9"
    assert len(rows("okta", json.dumps([ENTRY] * 4).encode())) == 4


def test_an_attackers_name_stays_a_name() -> None:
    name = 'x","client":{"ipAddress":"6.6.6.6"},"y":"\u202e\x1b[31m'
    actor = {"id": "1", "type": "User", "alternateId": name, "displayName": "=cmd|' /C calc'!A0"}
    row = entry("user.session.start", "FAILURE", actor=actor)
    assert (row["user_name"], row["src_ip"]) == (name, "203.0.113.9")
    assert row["user"].get("email_addr") is None
    twice = json.dumps(ENTRY)[:-1] + ',"client":{"ipAddress":"6.6.6.6"}}'
    assert reason("okta", twice) == "the key 'client' stands twice in one object"


def test_odd_values_cost_no_event() -> None:
    chance = random.Random(4)
    for _ in range(400):
        raw = json.dumps(spoilt(ENTRY, chance)).encode()
        for row in rows("okta", raw):
            why = row.get("dead_letter_reason")
            assert why is None or "failed" not in why
            assert why is not None or (faults(row), misfits(row)) == ([], [])
