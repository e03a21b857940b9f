"""GuardDuty findings in the API's form, the export's and EventBridge's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.cloud_samples import check, lost
from tests.ingest.logs import good, reason, rows

REMOTE = {
    "City": {"CityName": "Berlin"},
    "Country": {"CountryCode": "DE", "CountryName": "Germany"},
    "GeoLocation": {"Lat": 52.5, "Lon": 13},
    "IpAddressV4": "198.51.100.9",
    "Organization": {"Asn": "64500", "AsnOrg": "Example AS", "Isp": "ISP", "Org": "Org"},
}
INSTANCE = {
    "ResourceType": "Instance",
    "InstanceDetails": {
        "InstanceId": "i-99",
        "InstanceType": "m3.xlarge",
        "NetworkInterfaces": [
            {"PrivateIpAddress": "10.0.0.1", "PrivateDnsName": "ip-10-0-0-1.internal"}
        ],
        "Tags": [{"Key": "a", "Value": "b"}],
    },
}
KEY = {
    "ResourceType": "AccessKey",
    "AccessKeyDetails": {
        "AccessKeyId": "AKIAEXAMPLE",
        "PrincipalId": "AIDAEXAMPLE",
        "UserName": "ann",
        "UserType": "IAMUser",
    },
    "S3BucketDetails": [{"Arn": "arn:aws:s3:::b", "Name": "b", "Type": "Destination"}],
}
CLUSTER = {
    "ResourceType": "EKSCluster",
    "EksClusterDetails": {"Name": "c", "Arn": "arn:aws:eks:us-east-1:1:cluster/c"},
    "KubernetesDetails": {
        "KubernetesUserDetails": {"Username": "system:anonymous", "Groups": ["nobody"]}
    },
}
NETWORK = {
    "Blocked": False,
    "ConnectionDirection": "OUTBOUND",
    "LocalPortDetails": {"Port": 39677, "PortName": "Unknown"},
    "LocalIpDetails": {"IpAddressV4": "10.0.0.23"},
    "Protocol": "TCP",
    "RemoteIpDetails": REMOTE,
    "RemotePortDetails": {"Port": 80, "PortName": "HTTP"},
}


def finding(action: dict[str, Any], resource: dict[str, Any] = INSTANCE, **more: Any) -> Any:
    found = {
        "AccountId": "111122223333",
        "Arn": "arn:aws:guardduty:us-east-1:111122223333:detector/d/finding/f1",
        "CreatedAt": "2026-02-01T10:00:00.123Z",
        "UpdatedAt": "2026-02-01T11:00:00.456Z",
        "Description": "An instance talks to a known server.",
        "Id": "f1",
        "Partition": "aws",
        "Region": "us-east-1",
        "SchemaVersion": "2.0",
        "Severity": 8,
        "Title": "It calls home",
        "Type": "Backdoor:EC2/C&CActivity.B",
        "Resource": resource,
        "Service": {
            "Action": action,
            "Archived": False,
            "Count": 3,
            "DetectorId": "d",
            "EventFirstSeen": "2026-02-01T09:00:00Z",
            "EventLastSeen": "2026-02-01T10:59:00Z",
            "ResourceRole": "TARGET",
            "Evidence": {"ThreatIntelligenceDetails": [{"ThreatNames": ["x"]}]},
        },
    }
    return found | more


def camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: camel(one) for key, one in value.items()}
    return [camel(one) for one in value] if isinstance(value, list) else value


def row(value: Any) -> dict[str, Any]:
    raw = json.dumps(value)
    found = good("aws_guardduty", raw)
    check([found])
    assert lost(raw.encode(), [found]) <= {"TCP", "UDP", "INBOUND", "OUTBOUND", "False"}
    return found


ACTIONS = {
    "network": finding({"ActionType": "NETWORK_CONNECTION", "NetworkConnectionAction": NETWORK}),
    "call": finding(
        {
            "ActionType": "AWS_API_CALL",
            "AwsApiCallAction": {
                "Api": "ListBuckets",
                "ErrorCode": "AccessDenied",
                "RemoteIpDetails": REMOTE,
                "ServiceName": "s3.amazonaws.com",
                "UserAgent": "aws-cli/2",
            },
        },
        KEY,
    ),
    "probe": finding(
        {
            "ActionType": "PORT_PROBE",
            "PortProbeAction": {
                "Blocked": True,
                "PortProbeDetails": [
                    {
                        "LocalPortDetails": {"Port": 22},
                        "LocalIpDetails": {"IpAddressV4": "10.0.0.23"},
                        "RemoteIpDetails": REMOTE,
                    },
                    {"LocalPortDetails": {"Port": 80}, "RemoteIpDetails": REMOTE},
                ],
            },
        }
    ),
    "dns": finding(
        {
            "ActionType": "DNS_REQUEST",
            "DnsRequestAction": {"Domain": "evil.example", "Protocol": "UDP", "Blocked": False},
        }
    ),
    "cluster": finding(
        {
            "ActionType": "KUBERNETES_API_CALL",
            "KubernetesApiCallAction": {
                "RequestUri": "/api/v1/pods",
                "Verb": "list",
                "SourceIps": ["198.51.100.9"],
                "UserAgent": "kubectl",
                "RemoteIpDetails": REMOTE,
                "StatusCode": 200,
            },
        },
        CLUSTER,
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_both_spellings_of_a_finding_are_the_same_event(action: str) -> None:
    one, other = row(ACTIONS[action]), row(camel(ACTIONS[action]))
    assert {k: v for k, v in one.items() if k != "unmapped"} == {
        k: v for k, v in other.items() if k != "unmapped"
    }


def test_a_connection_that_goes_out() -> None:
    found = row(ACTIONS["network"])
    assert (found["class_uid"], found["activity_name"], found["severity_id"]) == (2004, "Update", 4)
    assert found["time"] == datetime(2026, 2, 1, 11, 0, 0, 456000, UTC)
    assert (found["src_ip"], found["dst_ip"]) == ("10.0.0.23", "198.51.100.9")
    assert found["src_endpoint"]["port"] == 39677
    assert found["dst_endpoint"] == {"ip": "198.51.100.9", "port": 80, "country": "Germany"}
    assert found["connection_info"]["protocol_num"] == 6
    assert found["connection_info"]["direction_id"] == 2
    assert found["finding_info"]["uid"] == found["metadata"]["uid"] == "f1"
    assert found["finding_info"]["types"] == ["Backdoor:EC2/C&CActivity.B"]
    assert found["cloud"]["account"]["uid"] == "111122223333"
    assert found["resources"][0]["uid"] == "i-99"
    assert found["start_time"] == datetime(2026, 2, 1, 9, tzinfo=UTC)
    more = json.loads(found["more"])
    assert more["dst_endpoint"]["autonomous_system"] == {"number": 64500, "name": "Example AS"}


def test_a_connection_that_comes_in_has_the_remote_side_as_its_source() -> None:
    coming = NETWORK | {"ConnectionDirection": "INBOUND", "Blocked": True}
    found = row(finding({"NetworkConnectionAction": coming}))
    assert (found["src_ip"], found["dst_ip"]) == ("198.51.100.9", "10.0.0.23")
    assert (found["action_id"], found["disposition_id"]) == (2, 2)


def test_a_call_names_who_made_it_and_the_bucket() -> None:
    found = row(ACTIONS["call"])
    assert found["actor"]["user"]["name"] == found["user_name"] == "ann"
    assert found["actor"]["user"]["credential_uid"] == "AKIAEXAMPLE"
    assert found["api"]["operation"] == "ListBuckets"
    assert found["api"]["response"] == {"error": "AccessDenied"}
    assert found["src_ip"] == "198.51.100.9"
    assert found["resources"][0] == {
        "uid": "arn:aws:s3:::b",
        "name": "b",
        "type": "Destination",
    }


def test_the_other_actions() -> None:
    probe = row(ACTIONS["probe"])
    assert (probe["src_ip"], probe["dst_ip"], probe["action_id"]) == (
        "198.51.100.9",
        "10.0.0.23",
        2,
    )
    dns = row(ACTIONS["dns"])
    assert (dns["src_ip"], dns["query"]) == ("10.0.0.1", {"hostname": "evil.example"})
    cluster = row(ACTIONS["cluster"])
    assert cluster["actor"]["user"]["name"] == "system:anonymous"
    assert cluster["http_request"]["url"]["path"] == "/api/v1/pods"


@pytest.mark.parametrize(
    ("score", "level"),
    [(0.1, 1), (1, 2), (3.9, 2), (4.0, 3), (6.9, 3), (7, 4), (8.9, 4), (9.0, 5), (10, 5)],
)
def test_severity_is_in_bands(score: float, level: int) -> None:
    assert row(finding({}, Severity=score))["severity_id"] == level


def test_what_ran() -> None:
    found = finding({})
    found["Service"]["RuntimeDetails"] = {
        "Process": {
            "Name": "xmrig",
            "ExecutablePath": "/tmp/xmrig",
            "ExecutableSha256": "ab" * 32,
            "Pid": 99,
            "Pwd": "/tmp",
            "User": "root",
            "UserId": 0,
        }
    }
    process = row(found)["process"]
    assert (process["pid"], process["path"], process["user"]["name"]) == (99, "/tmp/xmrig", "root")
    assert process["hashes"] == [{"algorithm": "SHA-256", "value": "ab" * 32}]


def test_a_new_finding_is_created_an_archived_one_closed() -> None:
    new = finding({}, UpdatedAt="2026-02-01T10:00:00.123Z")
    new["Service"] = new["Service"] | {"Count": 1}
    assert row(new)["activity_id"] == 1
    shut = finding({})
    shut["Service"] = shut["Service"] | {"Archived": True}
    assert row(shut)["activity_id"] == 3


def test_envelopes() -> None:
    one = ACTIONS["network"]
    event = {"detail-type": "GuardDuty Finding", "source": "aws.guardduty", "detail": camel(one)}
    assert row(event)["finding_info"]["uid"] == "f1"
    assert len(rows("aws_guardduty", json.dumps({"Findings": [one, one]}).encode())) == 2
    assert len(rows("aws_guardduty", "\n".join([json.dumps(one)] * 3).encode())) == 3


def test_what_is_no_finding_is_refused() -> None:
    assert reason("aws_guardduty", '{"detail":{"x":1}}').startswith("an element of the envelope")
    assert reason("aws_guardduty", '{"a":1}') == (
        "neither a record of aws_guardduty nor an envelope of such"
    )
