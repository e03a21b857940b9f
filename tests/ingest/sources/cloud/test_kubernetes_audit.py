"""The audit log of Kubernetes, from the API server and from the clouds."""

from __future__ import annotations

import base64
import gzip
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost, samples, spoilt
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, reason, rows

EVENT: dict[str, Any] = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "level": "RequestResponse",
    "auditID": "a-1",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/namespaces/prod/pods/web/exec?command=sh",
    "verb": "create",
    "user": {
        "username": "ann@example.com",
        "uid": "u-1",
        "groups": ["system:authenticated"],
        "extra": {"accessKeyId": ["ASIAEXAMPLE"], "arn": ["arn:aws:sts::1:assumed-role/x"]},
    },
    "impersonatedUser": {"username": "system:admin"},
    "sourceIPs": ["203.0.113.9"],
    "userAgent": "kubectl/v1.31.0",
    "objectRef": {
        "resource": "pods",
        "namespace": "prod",
        "name": "web",
        "apiVersion": "v1",
        "subresource": "exec",
    },
    "responseStatus": {"metadata": {}, "code": 101},
    "requestReceivedTimestamp": "2026-03-02T09:00:00.123456Z",
    "stageTimestamp": "2026-03-02T09:00:02.123456Z",
    "annotations": {"authorization.k8s.io/decision": "allow"},
}


def row(**more: Any) -> dict[str, Any]:
    value = EVENT | more
    found = good("k8s_audit", json.dumps(value))
    check([found])
    assert lost(json.dumps(value).encode(), [found]) == set()
    return found


def test_a_call() -> None:
    found = row()
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (6003, 1, 1)
    assert found["time"] == datetime(2026, 3, 2, 9, 0, 0, 123456, UTC)
    assert found["duration"] == 2000
    assert found["user_name"] == "ann@example.com"
    assert found["actor"]["user"]["groups"] == ["system:authenticated"]
    assert found["actor"]["user"]["credential_uid"] == "ASIAEXAMPLE"
    assert found["src_ip"] == "203.0.113.9"
    assert found["api"]["operation"] == "create"
    assert found["api"]["response"] == {"code": 101}
    assert found["resources"] == [{"uid": "web", "name": "web", "type": "pods/exec"}]
    assert found["http_request"]["user_agent"] == "kubectl/v1.31.0"
    assert found["metadata"]["uid"] == "a-1"
    assert json.loads(found["unmapped"])["impersonatedUser"]["username"] == "system:admin"


@pytest.mark.parametrize(
    ("verb", "activity"),
    [
        *(("get", 2), ("list", 2), ("watch", 2), ("update", 3), ("patch", 3)),
        *(("delete", 4), ("deletecollection", 4), ("bind", 99)),
    ],
)
def test_verbs(verb: str, activity: int) -> None:
    found = row(verb=verb)
    assert found["activity_id"] == activity
    assert found["api"]["operation"] == verb


def test_a_refusal() -> None:
    found = row(
        responseStatus={"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"},
        annotations={"authorization.k8s.io/decision": "forbid"},
    )
    assert (found["status_id"], found["status_code"], found["severity_id"]) == (2, "403", 2)
    assert found["api"]["response"] == {"code": 403, "error": "Forbidden", "error_message": "no"}


def test_a_request_that_is_not_answered_yet_has_no_outcome() -> None:
    found = row(stage="RequestReceived", responseStatus=None)
    assert found["status_id"] == 0
    assert found["metadata"]["event_code"] == "RequestReceived"


def test_the_beta_had_other_times() -> None:
    old = {k: v for k, v in EVENT.items() if "Timestamp" not in k}
    old |= {"apiVersion": "audit.k8s.io/v1beta1", "timestamp": "2018-03-02T09:00:00Z"}
    assert good("k8s_audit", json.dumps(old))["time"] == datetime(2018, 3, 2, 9, tzinfo=UTC)


def test_a_forwarded_address_is_no_more_trusted_than_its_place() -> None:
    found = row(sourceIPs=["198.51.100.7", "10.0.0.1"])
    assert found["src_ip"] == "198.51.100.7"
    assert found["http_request"]["x_forwarded_for"] == ["198.51.100.7", "10.0.0.1"]
    assert row(sourceIPs=["@"]).get("src_ip") is None


def test_envelopes() -> None:
    text = json.dumps(EVENT)
    lines = [{"id": "1", "timestamp": 1, "message": text}] * 2
    watch = {"messageType": "DATA_MESSAGE", "logGroup": "/aws/eks/c/cluster", "logEvents": lines}
    for raw in (
        json.dumps({"kind": "EventList", "items": [EVENT, EVENT]}).encode(),
        gzip.compress(json.dumps(watch).encode()),
        f"{text}\n{text}\n".encode(),
        json.dumps({"message": {"data": base64.b64encode(text.encode()).decode()}}).encode()
        + b"\n"
        + json.dumps({"log": text + "\n", "stream": "stdout"}).encode(),
    ):
        found = rows("k8s_audit", raw)
        check(found)
        assert [one["src_ip"] for one in found] == ["203.0.113.9"] * 2
    azure: dict[str, Any] = {
        "category": "kube-audit",
        "time": "2026-03-02T09:00:00Z",
        "properties": {"log": text},
    }
    wrapped = good("k8s_audit", json.dumps({"records": [azure]}))
    assert wrapped["user_name"] == "ann@example.com"
    assert "kube-audit" in wrapped["unmapped"]


def test_an_entry_of_googles_log_is_read_as_such() -> None:
    entry = {
        "protoPayload": {
            "serviceName": "k8s.io",
            "methodName": "io.k8s.core.v1.pods.exec.create",
            "authenticationInfo": {"principalEmail": "ann@example.com"},
            "requestMetadata": {"callerIp": "203.0.113.9"},
        },
        "timestamp": "2026-03-02T09:00:00Z",
    }
    found = good("k8s_audit", json.dumps(entry))
    assert found["api"]["operation"] == "io.k8s.core.v1.pods.exec.create"
    assert (found["activity_id"], found["src_ip"]) == (1, "203.0.113.9")


def test_real_events() -> None:
    raws = samples("k8s_audit")
    for raw in raws:
        check(rows("k8s_audit", raw))
    assert len(raws) == 29


def test_what_is_no_audit_event_is_refused() -> None:
    assert reason("k8s_audit", "{}") == "neither a record of k8s_audit nor an envelope of such"
    both = json.dumps({"items": [EVENT, {"x": 1}, 5]}).encode()
    reasons = [one.get("dead_letter_reason") for one in rows("k8s_audit", both)]
    assert [why is None for why in reasons] == [True, False, False]


def test_odd_values_cost_no_event() -> None:
    chance = random.Random(4)
    for _ in range(400):
        for found in rows("k8s_audit", json.dumps(spoilt(EVENT, chance)).encode()):
            why = found.get("dead_letter_reason")
            assert why is None or "failed" not in why
            assert why is not None or (faults(found), misfits(found)) == ([], [])
