"""Google Cloud's audit log, Workspace's part of it, and other entries."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost, samples, spoilt
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, rows

ENTRY: dict[str, Any] = {
    "protoPayload": {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "status": {},
        "authenticationInfo": {
            "principalEmail": "ci@p.iam.gserviceaccount.com",
            "principalSubject": "serviceAccount:ci@p.iam.gserviceaccount.com",
            "serviceAccountKeyName": "//iam.googleapis.com/projects/p/keys/k1",
        },
        "requestMetadata": {
            "callerIp": "203.0.113.9",
            "callerSuppliedUserAgent": "google-cloud-sdk",
            "requestAttributes": {"time": "2026-03-02T09:00:00.1Z"},
        },
        "serviceName": "iam.googleapis.com",
        "methodName": "google.iam.admin.v1.CreateServiceAccountKey",
        "resourceName": "projects/-/serviceAccounts/1",
        "authorizationInfo": [{"granted": True, "permission": "iam.serviceAccountKeys.create"}],
        "request": {"name": "x"},
    },
    "insertId": "i-1",
    "resource": {"type": "service_account", "labels": {"project_id": "p", "location": "us"}},
    "timestamp": "2026-03-02T09:00:00.123456789Z",
    "severity": "NOTICE",
    "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
    "receiveTimestamp": "2026-03-02T09:00:01Z",
}


def audit(payload: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    value = ENTRY | {"protoPayload": ENTRY["protoPayload"] | (payload or {})} | more
    found = good("gcp_audit", json.dumps(value))
    check([found])
    assert lost(json.dumps(value).encode(), [found]) == set()
    return found


def test_a_call() -> None:
    row = audit()
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (6003, 1, 1)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 123456, UTC)
    assert row["api"]["operation"] == "google.iam.admin.v1.CreateServiceAccountKey"
    assert row["api"]["service"]["name"] == "iam.googleapis.com"
    assert row["user_name"] == "ci@p.iam.gserviceaccount.com"
    assert row["actor"]["user"]["type"] == "ServiceAccount"
    assert row["actor"]["user"]["credential_uid"].endswith("/k1")
    assert row["src_ip"] == "203.0.113.9"
    assert row["cloud"] == {"provider": "GCP", "region": "us", "account": {"uid": "p"}}
    assert row["metadata"]["uid"] == "i-1"
    assert row["resources"][0]["type"] == "service_account"


@pytest.mark.parametrize(
    ("method", "activity"),
    [
        *(("v1.compute.firewalls.insert", 1), ("storage.objects.get", 2), ("SetIamPolicy", 3)),
        *(("storage.buckets.delete", 4), ("google.logging.v2.ConfigServiceV2.UpdateSink", 3)),
        *(("io.k8s.core.v1.pods.exec.create", 1), ("Decrypt", 99)),
    ],
)
def test_methods(method: str, activity: int) -> None:
    assert audit({"methodName": method})["activity_id"] == activity


def test_a_refusal() -> None:
    row = audit({"status": {"code": 7, "message": "PERMISSION_DENIED"}}, severity="ERROR")
    assert (row["status_id"], row["status_code"], row["severity_id"]) == (2, "7", 4)
    assert row["api"]["response"] == {"code": 7, "error_message": "PERMISSION_DENIED"}
    denied = [{"granted": False, "permission": "x"}]
    assert audit({"authorizationInfo": denied})["status_id"] == 2


def test_an_address_google_does_not_tell_is_none() -> None:
    meta = {"callerIp": "private"}
    row = audit({"requestMetadata": meta})
    assert row["src_endpoint"]["name"] == "private"
    assert row.get("src_ip") is None


def workspace(service: str, method: str, **parameters: str) -> dict[str, Any]:
    listed = [{"name": name.upper(), "value": value} for name, value in parameters.items()]
    payload = {
        "serviceName": service,
        "methodName": method,
        "metadata": {"event": [{"eventName": "x", "parameter": listed}]},
        "authenticationInfo": {"principalEmail": "ann@example.com"},
    }
    return audit(payload)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("google.login.LoginService.loginSuccess", (3002, 1, 1)),
        ("google.login.LoginService.loginFailure", (3002, 1, 2)),
        ("google.login.LoginService.logout", (3002, 2, 1)),
        ("google.login.LoginService.accountDisabledHijacked", (3001, 5, 1)),
    ],
)
def test_logins_to_workspace(method: str, expected: tuple[int, int, int]) -> None:
    row = workspace("login.googleapis.com", method)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == expected
    assert row["user"]["name"] == "ann@example.com"


def test_changes_in_workspace_name_whom() -> None:
    admin = "admin.googleapis.com"
    row = workspace(admin, "google.admin.AdminService.createUser", user_email="bob@example.com")
    assert (row["class_uid"], row["activity_id"]) == (3001, 1)
    assert (row["user"]["name"], row["actor"]["user"]["name"]) == (
        "bob@example.com",
        "ann@example.com",
    )
    row = workspace(
        admin,
        "google.admin.AdminService.addGroupMember",
        user_email="bob@example.com",
        group_email="staff@example.com",
    )
    assert (row["class_uid"], row["activity_id"]) == (3006, 3)
    assert row["group"] == {"name": "staff@example.com"}
    row = workspace(admin, "google.admin.AdminService.addGroupMember")
    assert row["class_uid"] == 6003


def entry(**more: Any) -> dict[str, Any]:
    value = {
        "insertId": "i",
        "timestamp": "2026-03-02T09:00:00Z",
        "resource": {"type": "x", "labels": {"project_id": "p"}},
        **more,
    }
    found = good("gcp_audit", json.dumps(value))
    check([found])
    return found


def test_entries_that_are_no_audit() -> None:
    row = entry(textPayload="hello", severity="WARNING")
    assert (row["class_uid"], row["message"], row["severity_id"]) == (0, "hello", 3)
    row = entry(
        jsonPayload={
            "connection": {
                "src_ip": "10.0.0.5",
                "src_port": 4,
                "dest_ip": "10.0.0.6",
                "dest_port": 22,
                "protocol": 6,
            },
            "disposition": "DENIED",
            "rule_details": {"reference": "network:default/firewall:x"},
        }
    )
    assert (row["class_uid"], row["action_id"], row["src_ip"]) == (4001, 2, "10.0.0.5")
    assert row["firewall_rule"]["name"] == "network:default/firewall:x"
    row = entry(
        httpRequest={
            "requestMethod": "GET",
            "requestUrl": "https://a.example/x?y=1",
            "status": 404,
            "remoteIp": "203.0.113.9",
            "responseSize": "120",
        }
    )
    assert (row["class_uid"], row["http_response"]["code"], row["status_id"]) == (4002, 404, 2)
    assert row["http_request"]["url"]["hostname"] == "a.example"
    row = entry(
        jsonPayload={
            "queryName": "a.example.",
            "queryType": "A",
            "responseCode": "NOERROR",
            "sourceIP": "10.0.0.5",
            "rdata": "a.example.\t300\tIN\ta\t192.0.2.1",
        }
    )
    assert (row["class_uid"], row["rcode_id"]) == (4003, 0)
    assert row["answers"] == [{"rdata": "192.0.2.1", "type": "A", "ttl": 300}]


def test_envelopes() -> None:
    data = base64.b64encode(json.dumps(ENTRY).encode()).decode()
    pubsub = {"message": {"data": data, "messageId": "1"}, "subscription": "s"}
    row = good("gcp_audit", json.dumps(pubsub))
    check([row])
    assert row["src_ip"] == "203.0.113.9"
    assert json.loads(row["unmapped"])["envelope"]["subscription"] == "s"
    assert len(rows("gcp_audit", json.dumps({"entries": [ENTRY] * 3}).encode())) == 3


def test_real_entries() -> None:
    raws = samples("gcp_audit")
    for raw in raws:
        found = rows("gcp_audit", raw)
        check(found)
        assert {one for one in lost(raw, found) if ":" not in one} == set()
    assert len(raws) == 24


def test_odd_values_cost_no_event() -> None:
    chance = random.Random(4)
    for _ in range(400):
        for found in rows("gcp_audit", json.dumps(spoilt(ENTRY, chance)).encode()):
            why = found.get("dead_letter_reason")
            assert why is None or "failed" not in why
            assert why is not None or (faults(found), misfits(found)) == ([], [])
