"""CloudTrail as it is shipped, and its records that are no mere calls."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost, samples
from tests.ingest.logs import good, reason, rows

RECORD: dict[str, Any] = {
    "eventVersion": "1.11",
    "userIdentity": {
        "type": "IAMUser",
        "principalId": "AIDAEXAMPLE",
        "arn": "arn:aws:iam::111122223333:user/ann",
        "accountId": "111122223333",
        "accessKeyId": "AKIAEXAMPLE",
        "userName": "ann",
    },
    "eventTime": "2026-03-02T09:00:00Z",
    "eventSource": "ec2.amazonaws.com",
    "eventName": "RunInstances",
    "awsRegion": "us-east-1",
    "sourceIPAddress": "203.0.113.9",
    "userAgent": "aws-cli/2",
    "requestParameters": {"x": 1},
    "responseElements": None,
    "requestID": "r-1",
    "eventID": "e-1",
    "readOnly": False,
    "eventType": "AwsApiCall",
    "managementEvent": True,
    "recipientAccountId": "111122223333",
    "sharedEventID": "s-1",
    "vpcEndpointId": "vpce-1",
    "eventCategory": "Management",
    "tlsDetails": {"tlsVersion": "TLSv1.3", "cipherSuite": "TLS_AES_128_GCM_SHA256"},
}


def record(**more: Any) -> dict[str, Any]:
    value = RECORD | more
    found = good("aws_cloudtrail", json.dumps(value))
    check([found])
    assert lost(json.dumps(value).encode(), [found]) == set()
    return found


def test_a_call_and_its_key() -> None:
    row = record()
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (6003, 1, 1)
    assert row["actor"]["user"]["credential_uid"] == "AKIAEXAMPLE"
    assert row["metadata"]["uid"] == "e-1"
    assert row["metadata"]["correlation_uid"] == "s-1"
    rest = json.loads(row["unmapped"])
    assert rest["tlsDetails"]["tlsVersion"] == "TLSv1.3"
    assert rest["vpcEndpointId"] == "vpce-1"
    refused = record(errorCode="AccessDenied", errorMessage="no")
    assert (refused["status_id"], refused["status_code"]) == (2, "AccessDenied")


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps([RECORD, RECORD]),
        json.dumps(RECORD) + "\n" + json.dumps(RECORD) + "\n",
        json.dumps({"Records": [RECORD, RECORD]}),
        json.dumps({"logGroup": "g", "logEvents": [{"message": json.dumps(RECORD)}] * 2}),
        json.dumps([{"detail-type": "AWS API Call via CloudTrail", "detail": RECORD}] * 2),
    ],
)
def test_packings(raw: str) -> None:
    for packed in (raw.encode(), gzip.compress(raw.encode())):
        found = rows("aws_cloudtrail", packed)
        check(found)
        assert [row["metadata"]["uid"] for row in found] == ["e-1", "e-1"]


def test_several_records_on_one_line_are_refused() -> None:
    both = (json.dumps(RECORD) + json.dumps(RECORD)).encode()
    assert "a second value after the end" in reason("aws_cloudtrail", both)


SIGN_IN = {"eventSource": "signin.amazonaws.com", "eventType": "AwsConsoleSignIn"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"eventName": "ConsoleLogin", "responseElements": {"ConsoleLogin": "Success"}},
            (3002, 1, 1),
        ),
        (
            {"eventName": "ConsoleLogin", "responseElements": {"ConsoleLogin": "Failure"}},
            (3002, 1, 2),
        ),
        ({"eventName": "SwitchRole", "responseElements": {"SwitchRole": "Success"}}, (3002, 7, 1)),
        (
            {
                "eventName": "CredentialVerification",
                "serviceEventDetails": {"CredentialVerification": "Failure"},
            },
            (3002, 6, 2),
        ),
        ({"eventName": "UserAuthentication"}, (3002, 1, 1)),
        ({"eventName": "GetSigninToken"}, (6003, 2, 1)),
    ],
)
def test_signing_in(more: dict[str, Any], expected: tuple[int, int, int]) -> None:
    row = record(**SIGN_IN | more)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == expected


@pytest.mark.parametrize(
    ("identity", "name", "uid"),
    [
        ({"type": "Root", "principalId": "1", "accountId": "1"}, "root", "1"),
        (
            {
                "type": "AssumedRole",
                "principalId": "AROA:s",
                "sessionContext": {"sessionIssuer": {"userName": "admin"}},
            },
            "admin",
            "AROA:s",
        ),
        ({"type": "WebIdentityUser", "principalId": "g:1", "userName": "bob"}, "bob", "g:1"),
        ({"type": "SAMLUser", "principalId": "s:1", "userName": "bob"}, "bob", "s:1"),
        (
            {
                "type": "IdentityCenterUser",
                "accountId": "1",
                "onBehalfOf": {"userId": "u-7", "identityStoreArn": "arn:x"},
                "credentialId": "c-1",
            },
            None,
            "u-7",
        ),
    ],
)
def test_identities(identity: dict[str, Any], name: str | None, uid: str) -> None:
    user = record(userIdentity=identity)["actor"]["user"]
    assert (user["name"], user["uid"], user["type"]) == (name, uid, identity["type"])


def test_a_service_acts_for_itself() -> None:
    row = record(
        userIdentity={"type": "AWSService", "invokedBy": "ec2.amazonaws.com"},
        sourceIPAddress="ec2.amazonaws.com",
    )
    assert row["actor"]["user"] is None
    assert row["actor"]["invoked_by"] == "ec2.amazonaws.com"
    assert row["src_endpoint"] == {"svc_name": "ec2.amazonaws.com"}


def test_an_insight_is_a_finding() -> None:
    insight = {
        "eventVersion": "1.11",
        "eventTime": "2026-03-02T09:00:00Z",
        "awsRegion": "us-east-1",
        "eventID": "e-2",
        "eventType": "AwsCloudTrailInsight",
        "recipientAccountId": "111122223333",
        "sharedEventID": "s-2",
        "insightDetails": {
            "state": "Start",
            "eventSource": "iam.amazonaws.com",
            "eventName": "CreateUser",
            "insightType": "ApiCallRateInsight",
        },
        "eventCategory": "Insight",
    }
    row = good("aws_cloudtrail", json.dumps(insight))
    check([row])
    assert (row["class_uid"], row["activity_id"]) == (2004, 1)
    assert row["finding_info"]["title"] == "ApiCallRateInsight: CreateUser"
    assert row["finding_info"]["uid"] == "s-2"
    assert lost(json.dumps(insight).encode(), [row]) == set()


def test_a_digest_and_a_network_event() -> None:
    digest = {"awsAccountId": "1", "digestStartTime": "x", "digestEndTime": "2026-03-02T10:00:00Z"}
    row = good("aws_cloudtrail", json.dumps(digest))
    assert (row["class_uid"], row["time"].hour) == (0, 10)
    network = record(
        eventCategory="NetworkActivity",
        eventType="AwsVpceEvent",
        userIdentity={"type": "AWSAccount", "principalId": "AIDA", "accountId": "1"},
        errorCode="VpceAccessDenied",
    )
    assert (network["class_uid"], network["status_id"]) == (6003, 2)


def test_resources_without_an_arn_are_kept() -> None:
    row = record(resources=[{"type": "AWS::S3::Object"}, {"ARN": "arn:x", "type": "AWS::S3::B"}])
    assert row["resources"] == [{"uid": "arn:x", "type": "AWS::S3::B"}]
    assert json.loads(row["unmapped"])["resources"] == [{"type": "AWS::S3::Object"}]


def test_real_records() -> None:
    raws = samples("aws_cloudtrail")
    for raw in raws:
        found = rows("aws_cloudtrail", raw)
        assert [row.get("dead_letter_reason") for row in found] == [None]
        assert lost(raw, found) == set()
    assert len(raws) == 23
