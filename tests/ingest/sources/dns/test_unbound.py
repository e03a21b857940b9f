"""Unbound: questions, replies, policies, in its own file and in syslog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row
from tests.ingest.weblogs import check, only

T = 1795255200000  # 2026-11-21 10:00:00 UTC
OWN = "[1795255200] unbound[123:0] "
ASKED = "10.0.0.5 example.com. A IN"
QUERY = {"hostname": "example.com", "type": "A", "class": "IN"}


@pytest.mark.parametrize(
    "before",
    [
        OWN + "info: ",
        OWN + "query: ",
        "2026-11-21T10:00:00.000+00:00 unbound[123:0] query: ",
        "2026-11-21T10:00:00+0000 unbound[123:1f] info: ",
        "Nov 21 10:00:00 unbound[123:0] info: ",
        "<30>Nov 21 10:00:00 gw unbound: [123:0] info: ",
        "<30>Nov 21 10:00:00 gw unbound[123]: [123:0] info: ",
        "<30>1 2026-11-21T10:00:00Z gw unbound 123 - - [123:0] query: ",
    ],
)
def test_a_question_however_it_is_printed(before: str) -> None:
    expected = {
        "class_uid": 4003,
        "activity_id": 1,
        "time": T,
        "src_endpoint": {"ip": "10.0.0.5"},
        "query": QUERY,
        "unmapped.pid": 123,
    }
    check("unbound", before + ASKED, expected)


LINES: list[tuple[str, dict[str, Any]]] = [
    (
        OWN + f"reply: {ASKED} NXDOMAIN 0.012345 0 45",
        {
            "activity_id": 2,
            "status_id": 2,
            "rcode": "NXDOMAIN",
            "rcode_id": 3,
            "duration": 12,
            "traffic.bytes_in": 45,
            "unmapped.cached": False,
        },
    ),
    (
        OWN + "info: 2001:db8::5 example.com. HTTPS IN NOERROR 0.000000 1 45 on udp 10.0.0.1 53",
        {
            "src_endpoint.ip": "2001:db8::5",
            "dst_endpoint": {"ip": "10.0.0.1", "port": 53},
            "connection_info.protocol_name": "udp",
            "unmapped.cached": True,
            "status_id": 1,
        },
    ),
    (
        OWN + "info: rpz: applied [list] *.ads.example. rpz-nxdomain 10.0.0.5@1234 a.ads.example. "
        "A IN",
        {
            "src_endpoint": {"ip": "10.0.0.5", "port": 1234},
            "query.hostname": "a.ads.example",
            "firewall_rule": {"name": "list", "uid": "*.ads.example.", "type": "rpz"},
            "action_id": 2,
            "disposition_id": 2,
        },
    ),
    (
        OWN + "info: rpz: applied bad.com. rpz-local-data 10.0.0.5@1234 bad.com. A IN",
        {"action_id": 4, "firewall_rule.name": "bad.com."},
    ),
    (
        OWN + f"info: example.com. always_nxdomain 10.0.0.5@53124 {ASKED.partition(' ')[2]}",
        {"action_id": 2, "firewall_rule.type": "local-zone", "src_endpoint.port": 53124},
    ),
    (
        OWN + "error: SERVFAIL <example.com. A IN>: all servers for this domain failed",
        {"class_uid": 4003, "rcode_id": 2, "query": QUERY, "severity_id": 3},
    ),
    (
        OWN + "info: validation failure <example.com. A IN>: no signatures from 1.2.3.4",
        {"class_uid": 4003, "status_id": 2, "status_detail": "no signatures from 1.2.3.4"},
    ),
    (
        OWN + "notice: init module 0: subnet",
        {"class_uid": 0, "severity_id": 2, "message": "init module 0: subnet"},
    ),
    (
        "<30>Nov 21 10:00:00 gw unbound: something new",
        {"class_uid": 0, "message": "something new"},
    ),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines(line: str, expected: dict[str, Any]) -> None:
    check("unbound", line, expected)


@pytest.mark.parametrize("name", [r"6.6.6.6\032x.", "[1]info:.", "6.6.6.6.", "=cmd."])
def test_a_name_moves_no_field(name: str) -> None:
    event = only("unbound", OWN + f"info: 10.0.0.5 {name} TXT IN")
    assert event["src_endpoint"] == {"ip": "10.0.0.5"}
    assert event["query"] == {"hostname": name[:-1], "type": "TXT", "class": "IN"}


def test_what_is_no_line_of_unbound() -> None:
    assert "no line of Unbound" in reason("unbound", ASKED)
    assert "no line of Unbound" in reason("unbound", "info: " + ASKED)


@pytest.mark.parametrize(
    "before",
    [
        OWN + "info: ",
        "2026-11-21T10:00:00.000+00:00 unbound[123:0] query: ",
        "<30>Nov 21 10:00:00 gw unbound: [123:0] info: ",
    ],
)
def test_restamp(before: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup("unbound").restamp((before + ASKED).encode(), when, ZoneInfo("UTC"))
    assert row("unbound", new, now=datetime(2030, 2, 1, tzinfo=UTC))["time"] == when
