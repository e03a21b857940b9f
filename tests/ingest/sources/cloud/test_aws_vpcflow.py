"""AWS flow logs: the default line, custom fields, JSON, CloudWatch's envelope."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest import conforms
from tests.ingest.logs import good, lines, reason, rows

LINE = (
    "2 123456789010 eni-1235b8ca123456789 172.31.16.139 172.31.16.21 20641 22 6 20 4249 "
    "1418530010 1418530070 ACCEPT OK"
)
HEADER = (
    "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start "
    "end action log-status vpc-id subnet-id instance-id tcp-flags type pkt-srcaddr pkt-dstaddr "
    "region az-id flow-direction traffic-path"
)
V5 = (
    "5 123456789010 eni-1 10.0.0.5 52.95.128.179 43416 443 6 9 1000 1616729292 1616729349 REJECT "
    "OK vpc-1 subnet-1 i-1 3 IPv4 10.0.0.5 52.95.128.179 ap-southeast-2 apse2-az3 egress 8"
)


def checked(raw: bytes | str, header: str | None = None) -> dict[str, Any]:
    row = good("aws_vpcflow", raw, headers={"header": header.encode()} if header else None)
    assert conforms.misfits(row) == []
    assert conforms.faults(row) == []
    return row


def test_no_line_of_the_samples_is_a_dead_letter() -> None:
    raws = lines("aws_vpcflow/panther_tests.jsonl")
    for raw in raws:
        checked(raw)
    assert good("aws_vpcflow", raws[5])["dst_endpoint"] == {"ip": "100.100.100.100", "port": 53}
    assert good("aws_vpcflow", raws[8])["dst_ip"] == "100.100.100.100"
    assert good("aws_vpcflow", raws[3])["status_code"] == "SKIPDATA"


def test_the_default_line() -> None:
    row = checked(LINE)
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == (4001, 6, 1)
    assert row["src_endpoint"] == {"ip": "172.31.16.139", "port": 20641}
    assert row["dst_endpoint"] == {"ip": "172.31.16.21", "port": 22}
    assert row["time"] == datetime(2014, 12, 14, 4, 6, 50, tzinfo=UTC)
    assert row["time_quality"] == "exact"
    assert row["duration"] == 60000
    assert (row["traffic"]["bytes_out"], row["traffic"]["packets_out"]) == (4249, 20)
    assert row["cloud"]["account"] == {"uid": "123456789010"}
    assert (row["action_id"], row["disposition_id"]) == (1, 1)
    assert row["connection_info"]["protocol_name"] == "tcp"
    assert json.loads(row["unmapped"])["interface-id"] == "eni-1235b8ca123456789"


def test_fields_by_header() -> None:
    row = checked(V5, HEADER)
    assert (row["activity_id"], row["action_id"], row["status_id"]) == (5, 2, 2)
    assert row["cloud"]["region"] == "ap-southeast-2"
    assert row["connection_info"]["direction_id"] == 2
    assert row["connection_info"]["flag_history"] == "FIN SYN"
    assert json.loads(row["more"])["src_endpoint"]["vpc_uid"] == "vpc-1"
    later = checked(V5 + " hello", HEADER + " new-in-version-99")
    assert json.loads(later["unmapped"])["new-in-version-99"] == "hello"
    short = "version dstaddr srcaddr action"
    row = checked("3 10.0.0.1 10.0.0.2 ACCEPT", short)
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.0.2", "10.0.0.1")
    assert "values for the 4 fields" in reason(
        "aws_vpcflow", "3 10.0.0.1", headers={"header": short.encode()}
    )


def test_a_header_is_told_from_a_record() -> None:
    source = lookup("aws_vpcflow")
    assert source.is_header(HEADER.encode())
    assert source.is_header(b"${version} ${account-id} ${srcaddr}")
    assert not source.is_header(LINE.encode())
    row = checked(HEADER)
    assert row["class_uid"] == 0
    found = rows("aws_vpcflow", f"{HEADER}\n{V5}\n{V5}\n".encode())
    assert [row["src_ip"] for row in found] == ["10.0.0.5"] * 2


@pytest.mark.parametrize(("state", "status"), [("NODATA", 0), ("SKIPDATA", 2)])
def test_intervals_without_records(state: str, status: int) -> None:
    row = checked(f"2 123456789010 eni-1 - - - - - - - 1431280876 1431280934 - {state}")
    assert (row["class_uid"], row["activity_id"]) == (4001, 0)
    assert (row["status_id"], row["status_code"]) == (status, state)
    assert row["dst_endpoint"] == {"uid": "eni-1"}


def test_cloudwatch_in_its_packings() -> None:
    envelope = {
        "messageType": "DATA_MESSAGE",
        "owner": "123456789010",
        "logGroup": "flows",
        "logStream": "eni-1-all",
        "logEvents": [
            {"id": "1", "timestamp": 1418530010000, "message": LINE},
            {"id": "2", "timestamp": 1418530010000, "message": "nonsense"},
        ],
    }
    for raw in (json.dumps(envelope).encode(), gzip.compress(json.dumps(envelope).encode())):
        found = rows("aws_vpcflow", raw)
        assert found[0]["src_ip"] == "172.31.16.139"
        assert json.loads(found[0]["unmapped"])["logGroup"] == "flows"
        assert "no header" in found[1]["dead_letter_reason"]
    control = envelope | {"messageType": "CONTROL_MESSAGE"}
    assert checked(json.dumps(control))["class_uid"] == 0
    assert checked(json.dumps({"message": LINE, "tags": ["x"]}))["dst_endpoint"]["port"] == 22
    assert checked("2014-12-14T04:06:50.000Z " + LINE)["dst_endpoint"]["port"] == 22
    assert checked(gzip.compress(LINE.encode()))["src_ip"] == "172.31.16.139"


@pytest.mark.parametrize(
    "spelled",
    [
        {"srcAddr": "10.0.0.1", "dstAddr": "1.1.1.1", "dstPort": 53, "action": "REJECT"},
        {"srcaddr": "10.0.0.1", "dstaddr": "1.1.1.1", "dstport": "53", "action": "REJECT"},
        {"src_addr": "10.0.0.1", "dst_addr": "1.1.1.1", "dst_port": 53, "action": "REJECT"},
        {
            "src_endpoint": {"ip": "10.0.0.1"},
            "dst_endpoint": {"ip": "1.1.1.1", "port": 53},
            "action": "REJECT",
        },
    ],
)
def test_json_in_every_spelling(spelled: dict[str, Any]) -> None:
    row = checked(json.dumps(spelled))
    assert (row["src_ip"], row["dst_endpoint"]) == ("10.0.0.1", {"ip": "1.1.1.1", "port": 53})
    assert row["activity_id"] == 5


def test_hostile_lines() -> None:
    row = checked(LINE.replace("20641", "99999").replace("172.31.16.21", "6.6.6"))
    rest = json.loads(row["unmapped"])
    assert (rest["srcport"], rest["dstaddr"]) == ("99999", "6.6.6")
    assert "no header" in reason("aws_vpcflow", "x y z")
    assert "expected a number" in reason("aws_vpcflow", LINE.replace("2 ", "x ", 1))
    assert "no field" in reason("aws_vpcflow", b'{"a":1}')
    assert "UTF-8" in reason("aws_vpcflow", b"\xff")


def test_a_line_with_another_time() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    raw = lookup("aws_vpcflow").restamp(LINE.encode(), when, ZoneInfo("UTC"))
    row = good("aws_vpcflow", raw)
    assert (row["time"], row["duration"]) == (when, 60000)
