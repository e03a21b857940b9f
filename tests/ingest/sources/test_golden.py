"""Real lines of each source, and what they must become."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.logs import FILES, good, lines, rows, trails


def about(row: dict[str, Any]) -> tuple[int, int, int | None]:
    return row["class_uid"], row["activity_id"], row.get("status_id")


@pytest.mark.parametrize(("source", "path", "zone"), FILES)
def test_no_line_of_a_real_log_is_a_dead_letter(source: str, path: str, zone: str) -> None:
    found = rows(source, *lines(path), tz=zone)
    assert [row["dead_letter_reason"] for row in found if row.get("dead_letter_reason")] == []
    assert len(found) == len(lines(path))


def test_every_record_of_a_cloudtrail_file_is_an_event() -> None:
    found = rows("aws_cloudtrail", *trails())
    assert len(found) == 29 + 2 + 55 + 196 + 246
    assert len({row["event_uid"] for row in found}) == len(found)
    assert [row for row in found if row.get("dead_letter_reason")] == []


def test_zeek_conn() -> None:
    row = good("zeek:conn", lines("zeek/json_corelight/SCRANTON_conn.log")[1])
    assert about(row) == (4001, 3, 1)
    assert row["type_uid"] == 400103
    assert row["time"] == datetime(2020, 4, 30, 0, 6, 38, 903350, UTC)
    assert row["time_quality"] == "exact"
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.1.4", "10.0.0.4")
    assert row["src_endpoint"] == {"ip": "10.0.1.4", "port": 60595, "mac": "00:0d:3a:4d:42:f2"}
    assert row["app_name"] == "krb,smb,gssapi"
    assert row["duration"] == 10707
    assert row["status_code"] == "RSTO"
    assert row["traffic"] == {
        "bytes_out": 4060,
        "bytes_in": 1681,
        "bytes": 5741,
        "packets_out": 12,
        "packets_in": 11,
        "packets": 23,
    }
    assert row["connection_info"]["protocol_num"] == 6
    assert row["host_name"] == "simplerockbuild.simplerock.lan"
    assert json.loads(row["unmapped"]) == {
        "@proc": "zeek",
        "missed_bytes": 0,
        "orig_ip_bytes": 1307,
        "resp_ip_bytes": 2133,
    }


def test_zeek_dns_in_three_spellings_is_the_same_event() -> None:
    dotted = json.loads(lines("zeek/wrccdc_json/dns.json.gz")[0])
    ends = {key[3:]: dotted.pop(key) for key in list(dotted) if key.startswith("id.")}
    spellings = [
        dotted | {f"id.{key}": value for key, value in ends.items()},
        dotted | {f"id_{key}": value for key, value in ends.items()},
        dotted | {"id": ends},
    ]
    found = [good("zeek:dns", json.dumps(one)) for one in spellings]
    assert found[0] == found[1] == found[2]
    row = found[0]
    assert about(row) == (4003, 6, 1)
    assert row["time"] == datetime(2018, 3, 24, 17, 15, 20, 865716, UTC)
    assert row["query"] == {"hostname": "ise.wrccdc.org", "type": "A", "class": "C_INTERNET"}
    assert row["answers"] == [
        {"rdata": "ise.wrccdc.cpp.edu", "ttl": 2230},
        {"rdata": "134.71.3.16", "ttl": 41830},
    ]
    assert (row["rcode_id"], row["rcode"]) == (0, "NOERROR")


def test_zeek_dns_without_an_answer_is_a_query() -> None:
    found = rows("zeek:dns", *lines("zeek/json_corelight/NASHUA_dns.log"))
    assert Counter(map(about, found)) == {(4003, 6, 1): 8, (4003, 1, 0): 7, (4003, 6, 2): 6}


def test_zeek_http() -> None:
    row = good("zeek:http", lines("zeek/json_corelight/SCRANTON_http.log")[0])
    assert about(row) == (4002, 5, 2)
    assert row["http_request"]["http_method"] == "OPTIONS"
    assert row["http_request"]["user_agent"] == "DavClnt"
    assert row["http_request"]["url"]["url_string"] == "http://192.168.0.4/"
    assert row["http_response"] == {
        "code": 403,
        "message": "Forbidden",
        "length": 209,
        "content_type": "text/html",
    }


def test_cloudtrail_call() -> None:
    found = rows("aws_cloudtrail", trails()[0])
    assert about(found[0])[0] == 6003
    row = next(one for one in found if one["status_id"] == 2)
    assert row["api"]["response"]["error"]
    assert row["status_code"] == row["api"]["response"]["error"]
    assert row["actor"]["user"]["name"] == row["user_name"] == "benjamin"
    assert row["cloud"]["provider"] == "AWS"
    assert row["metadata"]["uid"]
    assert row["time_quality"] == "exact"


def test_cloudtrail_calls_of_services_have_no_address() -> None:
    found = [row for raw in trails() for row in rows("aws_cloudtrail", raw)]
    services = {row["src_endpoint"].get("svc_name") for row in found} - {None}
    assert "AWS Internal" in services
    assert all(row.get("src_ip") is None or row["src_ip"][0].isdigit() for row in found)
    nameless = [row for row in found if row["actor"]["user"] is None]
    assert all(row["actor"]["invoked_by"] for row in nameless)


def test_fields_that_logstash_added_are_unmapped() -> None:
    raw = lines("cloudtrail/otrf_ec2_proxy_s3_exfiltration.jsonl")[0]
    row = good("aws_cloudtrail", raw)
    assert row["time"] == datetime(2020, 9, 14, 0, 44, 23, tzinfo=UTC)
    rest = json.loads(row["unmapped"])
    assert rest["@timestamp"] == "2020-09-14T00:44:23.000Z"
    assert rest["@version"] == "1"
    assert "requestParameters" in rest


CONSOLE_LOGIN = {
    "eventVersion": "1.08",
    "eventTime": "2026-03-02T09:00:00Z",
    "eventSource": "signin.amazonaws.com",
    "eventName": "ConsoleLogin",
    "awsRegion": "us-east-1",
    "sourceIPAddress": "203.0.113.9",
    "userAgent": "Mozilla/5.0",
    "eventID": "e-1",
    "eventType": "AwsConsoleSignIn",
    "recipientAccountId": "111122223333",
}


@pytest.mark.parametrize(("outcome", "status"), [("Success", 1), ("Failure", 2)])
def test_console_login_is_an_authentication(outcome: str, status: int) -> None:
    identity = {"type": "IAMUser", "userName": "ann", "accountId": "111122223333"}
    record = CONSOLE_LOGIN | {
        "userIdentity": identity,
        "responseElements": {"ConsoleLogin": outcome},
        "additionalEventData": {"MFAUsed": "Yes"},
    }
    row = good("aws_cloudtrail", json.dumps(record))
    assert about(row) == (3002, 1, status)
    assert (row["user"]["name"], row["src_ip"], row["is_mfa"]) == ("ann", "203.0.113.9", True)


def test_a_hidden_user_name_is_no_name() -> None:
    hidden = "HIDDEN_DUE_TO_SECURITY_REASONS"
    identity = {"type": "IAMUser", "userName": hidden, "accountId": "111122223333"}
    record = CONSOLE_LOGIN | {
        "userIdentity": identity,
        "responseElements": {"ConsoleLogin": "Failure"},
    }
    row = good("aws_cloudtrail", json.dumps(record))
    assert row["user_name"] is None
    assert json.loads(row["unmapped"])["userIdentity"]["userName"] == hidden


def test_sshd() -> None:
    found = rows("sshd", *lines("syslog/syslog_rfc5424.log"), tz="Europe/Berlin")
    by = [row for row in found if row["class_uid"] == 3002]
    assert {about(row) for row in by} == {(3002, 1, 1), (3002, 1, 2), (3002, 2, 1), (3002, 6, 2)}
    failed = next(row for row in by if about(row) == (3002, 1, 2))
    assert failed["message"].startswith("Failed keyboard-interactive/pam for")
    assert failed["auth_method"] == "keyboard-interactive/pam"
    assert failed["src_ip"].startswith("10.77.0.")
    assert failed["user_name"] == failed["user"]["name"]
    assert failed["device"]["hostname"] == "vm"


def test_both_framings_of_one_log_give_the_same_events() -> None:
    names = ("class_uid", "activity_id", "status_id", "src_ip", "user_name", "mac", "message")
    one, other = (
        [
            [*(row.get(name) for name in names), row["time"].replace(microsecond=0)]
            for row in rows("syslog", *lines(f"syslog/syslog_rfc{framing}.log"), tz="Europe/Berlin")
        ]
        for framing in ("3164", "5424")
    )
    assert one == other


def test_a_bom_and_structured_data_are_read() -> None:
    raw = (
        '<86>1 2026-03-02T09:00:00.5+01:00 b1 sshd 7 ID47 [x@1 a="] \\" b"][y@1] '
        "\ufeffAccepted publickey for ann from 10.0.0.5 port 4 ssh2: ED25519 SHA256:abc"
    )
    row = good("sshd", raw)
    assert about(row) == (3002, 1, 1)
    assert row["time"] == datetime(2026, 3, 2, 8, 0, 0, 500000, UTC)
    rest = json.loads(row["unmapped"])
    assert rest["structured_data"] == '[x@1 a="] \\" b"][y@1]'
    assert rest["key"] == "ED25519 SHA256:abc"


def test_sudo() -> None:
    found = rows("sudo", *lines("syslog/syslog_rfc3164.log"), tz="Europe/Berlin")
    ran, opened, closed, wrong, refused = [row for row in found if row["class_uid"]]
    assert about(ran) == (1007, 1, 1)
    assert ran["process"]["cmd_line"] == "/usr/bin/id"
    assert ran["process"]["name"] == "id"
    assert ran["process"]["cwd"] == "/home/alice"
    assert ran["process"]["user"]["name"] == "root"
    assert ran["actor"]["user"]["name"] == ran["user_name"] == "alice"
    assert (about(opened), opened["user_name"]) == ((3002, 7, 1), "root")
    assert about(closed) == (3002, 2, 1)
    assert (about(wrong), wrong["user_name"]) == ((3002, 7, 2), "alice")
    assert about(refused) == (1007, 1, 2)
    assert refused["status_detail"] == "user NOT in sudoers"
    assert refused["process"]["cmd_line"] == "/usr/bin/cat /etc/shadow"


def test_observables_name_what_is_worth_searching() -> None:
    raw = "Nov 21 02:40:31 vm sshd[1]: Invalid user eve from 10.77.0.5 port 1000"
    assert good("sshd", raw)["observables"] == [
        {"name": "src_endpoint.ip", "type": "IP Address", "type_id": 2, "value": "10.77.0.5"},
        {"name": "user.name", "type": "User Name", "type_id": 4, "value": "eve"},
    ]
