"""BIND: queries, refusals, policies, transfers, updates, in each way of printing them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row
from tests.ingest.weblogs import at, check, only

T = 1795255200123  # 2026-11-21 10:00:00.123 UTC
WHEN = "21-Nov-2026 10:00:00.123 "
CLIENT = "client @0x7f3c 10.0.0.5#53124 (x.com): "
ASKED = CLIENT + "query: x.com IN A +E(0)K (10.0.0.1)"
ENDS = {
    "class_uid": 4003,
    "src_endpoint": {"ip": "10.0.0.5", "port": 53124},
    "dst_endpoint.ip": "10.0.0.1",
    "query": {"hostname": "x.com", "type": "A", "class": "IN"},
    "activity_id": 1,
}


@pytest.mark.parametrize(
    ("before", "time"),
    [
        ("", None),
        (WHEN, T),
        (WHEN + "queries: info: ", T),
        (WHEN + "info: ", T),
        ("queries: info: ", None),
        ("2026-11-21T10:00:00.123Z queries: info: ", T),
        ("2026-11-21T10:00:00.123 ", T),
        ("2026-11-21T11:00:00.123+01:00 queries: info: ", T),
        ("Nov 21 10:00:00.123 queries: info: ", T),
        ("<30>Nov 21 10:00:00 ns1 named[99]: ", T - 123),
        ("<30>Nov 21 10:00:00 ns1 named[99]: queries: info: ", T - 123),
        ("<30>1 2026-11-21T10:00:00.123Z ns1 named 99 - - ", T),
        ("2026-11-21T10:00:00.123+00:00 ns1 named[99]: " + WHEN + "queries: info: ", T),
    ],
)
def test_a_query_however_it_is_printed(before: str, time: int | None) -> None:
    check("bind", before + ASKED, ENDS | ({"time": time} if time else {}))


LINES: list[tuple[str, dict[str, Any]]] = [
    (
        "client 10.0.0.5#53124: query: x.com IN AAAA +",
        {"query.type": "AAAA", "src_endpoint.port": 53124, "unmapped.flags": "+"},
    ),
    ("client 10.0.0.3#1035: query: x.com.nl IN A", {"src_endpoint.ip": "10.0.0.3"}),
    (
        "client @0x7f 2001:db8::5#4/key k1 (x.com): view internal: query: x.com IN A -TSDC "
        "(2001:db8::1) [ECS 1.2.3.0/24/0]",
        {
            "src_endpoint.ip": "2001:db8::5",
            "connection_info.protocol_name": "tcp",
            "unmapped.view": "internal",
            "unmapped.key": "k1",
            "unmapped.ecs": "1.2.3.0/24/0",
        },
    ),
    (
        CLIENT + "query (cache) 'x.com/A/IN' denied (allow-query-cache did not match)",
        {
            "status_id": 2,
            "rcode": "REFUSED",
            "rcode_id": 5,
            "action_id": 2,
            "disposition_id": 2,
            "status_detail": "allow-query-cache did not match",
        },
    ),
    (
        CLIENT + "query failed (SERVFAIL) for x.com/IN/A at ../../../lib/ns/query.c:6883",
        {"activity_id": 2, "rcode_id": 2, "query.type": "A", "status_id": 2},
    ),
    (
        CLIENT + "query failed (timed out) for x.com/IN/A at query.c:7",
        {"rcode": None, "status_detail": "timed out"},
    ),
    (
        CLIENT + "rpz QNAME NXDOMAIN rewrite x.com/A/IN via x.com.rpz.local",
        {
            "action_id": 2,
            "rcode_id": 3,
            "firewall_rule": {"name": "x.com.rpz.local", "type": "QNAME"},
            "query.type": "A",
        },
    ),
    (
        CLIENT + "rpz QNAME PASSTHRU rewrite x.com via x.com.rpz.local",
        {"action_id": 1, "disposition_id": 1},
    ),
    (
        CLIENT + "rpz IP Local-Data rewrite x.com/A/IN via 32.1.0.0.10.rpz-ip.rpz",
        {"action_id": 4, "disposition_id": 2},
    ),
    (
        CLIENT + "response: x.com IN A NXDOMAIN +E(0)K 0 1 1 (10.0.0.1)",
        {"activity_id": 2, "rcode_id": 3, "dst_endpoint.ip": "10.0.0.1", "status_id": 2},
    ),
    (
        CLIENT + "rate limit drop response to 10.0.0.0/24 for x.com IN A  (0001)",
        {"action_id": 2, "disposition_id": 6},
    ),
    (
        CLIENT + "transfer of 'x.com/IN': AXFR ended: 1 messages, 22 records, 500 bytes, 0.001 "
        "secs (500000 bytes/sec) (serial 1)",
        {"activity_id": 6, "query.type": "AXFR", "traffic.bytes_in": 500, "duration": 1},
    ),
    (
        CLIENT + "zone transfer 'x.com/AXFR/IN' denied",
        {"severity_id": 3, "action_id": 2, "query.type": "AXFR", "status_id": 2},
    ),
    (
        CLIENT + "updating zone 'x.com/IN': adding an RR at 'h.x.com' A 10.0.0.9",
        {"query.hostname": "h.x.com", "answers": [{"rdata": "10.0.0.9", "type": "A"}]},
    ),
    (
        CLIENT + "updating zone 'x.com/IN': update unsuccessful: h.x.com: 'name not in use' "
        "prerequisite not satisfied (YXDOMAIN)",
        {"status_id": 2, "rcode_id": 6},
    ),
    ("client 10.0.0.5#4: update 'x.com/IN' denied", {"action_id": 2, "query.hostname": "x.com"}),
    (
        "client @0x1 10.0.0.1#53: received notify for zone 'x.com'",
        {"activity_id": 6, "query.hostname": "x.com"},
    ),
    (CLIENT + "no such message known", {"class_uid": 4003, "query.hostname": "x.com"}),
    (
        WHEN + "lame-servers: info: lame server resolving 'x.com' (in 'com'?): 192.0.2.1#53",
        {
            "class_uid": 4003,
            "dst_endpoint": {"ip": "192.0.2.1", "port": 53},
            "status_id": 2,
            "metadata.log_name": "lame-servers",
        },
    ),
    (
        WHEN + "lame-servers: info: REFUSED unexpected RCODE resolving 'x.com/A/IN': 192.0.2.1#53",
        {"rcode_id": 5, "query": {"hostname": "x.com", "type": "A", "class": "IN"}},
    ),
    (
        WHEN + "resolver: info: DNS format error from 192.0.2.1#53 resolving x.com/A for client "
        "10.0.0.5#123: server sent FORMERR",
        {"src_endpoint.ip": "10.0.0.5", "dst_endpoint.ip": "192.0.2.1"},
    ),
    (
        WHEN + "xfer-in: error: transfer of 'x.com/IN' from 10.0.0.1#53: failed while receiving "
        "responses: REFUSED",
        {"dst_endpoint.ip": "10.0.0.1", "status_id": 2, "severity_id": 4},
    ),
    (
        WHEN + "notify: info: zone x.com/IN: refused notify from non-master: 10.0.0.9#333",
        {"src_endpoint.ip": "10.0.0.9", "action_id": 2},
    ),
    (
        WHEN + "general: info: zone x.com/IN: loaded serial 5",
        {"class_uid": 0, "message": "zone x.com/IN: loaded serial 5", "time": T},
    ),
    ("<30>Nov 21 10:00:00 ns1 named[99]: running", {"class_uid": 0, "device.hostname": "ns1"}),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines(line: str, expected: dict[str, Any]) -> None:
    check("bind", line, expected)


@pytest.mark.parametrize(
    "name",
    [
        r"a\032client\03210.6.6.6#1.x.com",
        r"\(10.6.6.6\):.x.com",
        r"\@0x1.\"10.6.6.6#53\".x.com",
        "=cmd.x.com",
    ],
)
def test_a_name_moves_no_field(name: str) -> None:
    line = f"client @0x1 10.0.0.5#53 ({name}): query: {name} IN TXT + (10.0.0.1)"
    event = only("bind", WHEN + "queries: info: " + line)
    assert event["src_endpoint"] == {"ip": "10.0.0.5", "port": 53}
    assert event["query"]["hostname"] == name
    assert event["query"]["type"] == "TXT"


def test_values_that_do_not_fit_keep_their_name() -> None:
    event = only("bind", "client 10.0.0.5#99999 (x.com): query: x.com IN A + (10.0.0.1)")
    assert at(event, "src_endpoint") == {"ip": "10.0.0.5"}
    assert at(event, "unmapped.port") == "99999"


def test_what_is_no_line_of_named() -> None:
    assert "no line of BIND" in reason("bind", "query: x.com IN A +")
    assert "no line of BIND" in reason("bind", "mine: hello")


@pytest.mark.parametrize(
    "before", [WHEN, "2026-11-21T10:00:00.123Z ", "<30>Nov 21 10:00:00 h named: "]
)
def test_restamp(before: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup("bind").restamp((before + ASKED).encode(), when, ZoneInfo("UTC"))
    assert row("bind", new, now=datetime(2030, 2, 1, tzinfo=UTC))["time"] == when
