"""Bitbucket's audit log and OpenCanary's touches, and public rules' fields over both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.alerts.reach.fired import fired
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, reason, rows

LOGIN: dict[str, Any] = {
    "affectedObjects": [{"id": "7", "name": "ann", "type": "USER"}],
    "auditType": {
        "action": "User login failed",
        "actionI18nKey": "bitbucket.service.audit.user.login.failed",
        "area": "SECURITY",
        "category": "Authentication",
        "level": "ADVANCED",
    },
    "author": {"id": "7", "name": "ann", "type": "NORMAL", "uri": "https://git.example/users/ann"},
    "changedValues": [],
    "extraAttributes": [],
    "method": "Browser",
    "source": "203.0.113.9",
    "system": "https://git.example",
    "timestamp": {"epochSecond": 1708862400, "nano": 500000000},
    "version": "1.0",
}
SCAN: dict[str, Any] = {
    "dst_host": "10.0.0.9",
    "dst_port": 22,
    "local_time": "2026-01-01 11:00:00.000000",
    "local_time_adjusted": "2026-01-01 11:00:00.000000",
    "logdata": {"USERNAME": "root", "PASSWORD": "x"},
    "logtype": 4002,
    "node_id": "canary-1",
    "src_host": "203.0.113.9",
    "src_port": 50123,
    "utc_time": "2026-01-01 10:00:00.000000",
}


def event(source: str, fields: dict[str, Any]) -> dict[str, Any]:
    result = good(source, json.dumps(fields))
    assert faults(result) == []
    assert misfits(result) == []
    return result


def audit(action: str, category: str, **more: Any) -> dict[str, Any]:
    return (
        LOGIN
        | {"auditType": LOGIN["auditType"] | {"action": action, "category": category}}
        | (more)
    )


def test_a_failed_login_at_bitbucket() -> None:
    got = event("bitbucket_audit", LOGIN)
    assert (got["class_uid"], got["activity_id"], got["status_id"]) == (3002, 1, 2)
    assert got["user"]["name"] == "ann"
    assert got["src_endpoint"]["ip"] == "203.0.113.9"
    assert got["time"].isoformat() == "2024-02-25T12:00:00.500000+00:00"


def test_what_was_done_in_bitbucket_and_to_what() -> None:
    got = event(
        "bitbucket_audit",
        audit(
            "Global secret scanning rule deleted",
            "Global administration",
            affectedObjects=[{"id": "1", "name": "GLOBAL", "type": "GLOBAL"}],
        ),
    )
    assert (got["class_uid"], got["activity_id"]) == (6003, 4)
    assert got["actor"]["user"]["name"] == "ann"
    assert got["api"]["operation"] == "Global secret scanning rule deleted"
    assert got["resources"][0]["name"] == "GLOBAL"


def test_of_several_addresses_none_is_taken() -> None:
    got = event("bitbucket_audit", LOGIN | {"source": "6.6.6.6, 203.0.113.9"})
    assert not (got.get("src_endpoint") or {}).get("ip")
    assert json.loads(got["unmapped"])["source"] == "6.6.6.6, 203.0.113.9"


def test_a_name_that_imitates_an_action_is_a_name() -> None:
    got = event("bitbucket_audit", LOGIN | {"author": {"name": "x: User login succeeded"}})
    assert got["status_id"] == 2


@pytest.mark.parametrize("broken", [{}, {"auditType": {}}, {"auditType": {"action": 7}}])
def test_what_is_no_audit_event_is_refused(broken: dict[str, Any]) -> None:
    assert reason("bitbucket_audit", json.dumps(broken))


def test_a_login_to_a_honeypot() -> None:
    got = event("opencanary", SCAN)
    assert (got["class_uid"], got["activity_id"], got["status_id"]) == (3002, 1, 2)
    assert got["user"]["name"] == "root"
    assert got["src_endpoint"] == {"ip": "203.0.113.9", "port": 50123}
    assert got["dst_endpoint"] == {"ip": "10.0.0.9", "port": 22}
    assert got["device"]["hostname"] == "canary-1"
    assert (got["time"].hour, got["time_quality"]) == (10, "exact")


@pytest.mark.parametrize(
    ("kind", "data", "class_uid"),
    [
        (3000, {"PATH": "/index.html", "USERAGENT": "curl"}, 4002),
        (3001, {"PATH": "/login", "USERNAME": "ann"}, 3002),
        (5001, {"PROTO": "TCP"}, 4001),
        (16001, {"HOST": "x", "REPO": "y"}, 4001),
        (77777, {}, 4001),
    ],
)
def test_each_kind_of_touch(kind: int, data: dict[str, str], class_uid: int) -> None:
    got = event("opencanary", SCAN | {"logtype": kind, "logdata": data})
    assert (got["class_uid"], got["metadata"]["event_code"]) == (class_uid, str(kind))


def test_a_message_of_the_honeypot_itself_is_no_touch() -> None:
    boot = SCAN | {
        "logtype": 1001,
        "src_host": "",
        "src_port": -1,
        "dst_host": "",
        "dst_port": -1,
        "logdata": {"msg": {"logdata": "Canary running!!!"}},
    }
    got = event("opencanary", boot)
    assert (got["class_uid"], got["severity_id"]) == (0, 1)


@pytest.mark.parametrize("broken", ["{}", '{"logtype": "x"}', '{"logtype": null}', "[]"])
def test_what_is_nothing_of_opencanary_is_refused(broken: str) -> None:
    assert all(row.get("dead_letter_reason") for row in rows("opencanary", broken.encode()))


BITBUCKET = {"product": "bitbucket", "service": "audit"}
CANARY = {"product": "opencanary", "category": "application"}


@pytest.mark.parametrize(
    ("logsource", "detection", "source", "record"),
    [
        (
            BITBUCKET,
            {"auditType.category": "Authentication", "auditType.action": "User login failed"},
            "bitbucket_audit",
            LOGIN,
        ),
        (
            BITBUCKET,
            {"auditType.action": "Full data export triggered", "author.name": "ann"},
            "bitbucket_audit",
            audit("Full data export triggered", "Data pipeline"),
        ),
        (CANARY, {"logtype": 4002}, "opencanary", SCAN),
        (CANARY, {"logtype": 4002, "logdata.USERNAME": "root"}, "opencanary", SCAN),
        (CANARY, {"src_host|cidr": "203.0.113.0/24", "dst_port": 22}, "opencanary", SCAN),
    ],
)
def test_public_rules_fire(
    logsource: dict[str, str], detection: dict[str, Any], source: str, record: dict[str, Any]
) -> None:
    assert fired(logsource, detection, source, json.dumps(record).encode())
