"""Infoblox NIOS: DHCP, DNS and audit in one stream."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.infoblox.dns import records
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, rows

MAC = "02:42:ac:77:0b:10"


def nios(text: str, program: str = "named[7]", head: str = "Mar  2 09:00:00 ns1") -> dict[str, Any]:
    row = good("infoblox", f"<30>{head} {program}: {text}")
    assert (faults(row), misfits(row)) == ([], [])
    assert row["metadata"]["product"] == {"name": "NIOS", "vendor_name": "Infoblox"}
    return row


def test_a_grant_says_more_than_iscs() -> None:
    row = nios(
        f"DHCPACK on 10.7.0.1 to {MAC} (lt-1) via eth1 relay 10.9.0.1 lease-duration 1800 "
        f"(RENEW) uid 01:{MAC}",
        "dhcpd[7]",
    )
    assert (row["class_uid"], row["activity_id"], row["lease_dur"]) == (4004, 5, 1800)
    assert (row["src_ip"], row["mac"], row["relay_ip"]) == ("10.7.0.1", MAC, "10.9.0.1")
    assert row["is_renewal"] is True


@pytest.mark.parametrize(
    ("what", "activity"),
    [("Issued", 5), ("Renewed", 5), ("Fixed", 5), ("Released", 7), ("Freed", 9), ("Odd", 99)],
)
def test_the_history_of_leases(what: str, activity: int) -> None:
    row = nios(f"r-l-e:10.7.0.1,{what},lt-1,{MAC},1457708974,1458400174,,$", "dhcpd[7]")
    assert (row["activity_id"], row["src_ip"], row["mac"]) == (activity, "10.7.0.1", MAC)
    assert row["src_endpoint"]["hostname"] == "lt-1"
    assert row["start_time"] == datetime.fromtimestamp(1457708974, UTC)
    assert row["lease_dur"] == (691200 if activity == 5 else None)


@pytest.mark.parametrize(
    ("ids", "end", "relay"),
    [
        ('circuit-id of "1a:2", a remote-id of "a:4"', "undefined seconds. (NEW)", "eth2"),
        ('circuit-id of "1a:2" and remote-id of "a:4"', "7200 seconds.", "10.9.0.1"),
        ('circuit-id of "1a:2"', "7200 seconds. (RENEW)", "10.9.0.1"),
        ('remote-id of "a:4"', "7200 seconds", "10.9.0.1"),
    ],
)
def test_what_a_relay_adds_in_all_its_wordings(ids: str, end: str, relay: str) -> None:
    row = nios(
        f"Option 82: received a REQUEST DHCP packet from relay-agent {relay} with a {ids} for "
        f"10.7.0.1 (2:42:ac:77:b:10) lease time is {end}",
        "dhcpd[7]",
    )
    assert (row["class_uid"], row["activity_id"], row["src_ip"]) == (4004, 3, "10.7.0.1")
    assert row["mac"] == "02:42:ac:77:0b:10"
    assert row["relay_ip"] == (None if relay == "eth2" else relay)
    kept = json.loads(row["unmapped"])
    assert kept.get("circuit_id") == ("1a:2" if "circuit" in ids else None)
    assert kept.get("remote_id") == ("a:4" if "remote" in ids else None)


def test_a_name_in_the_history_cannot_forge_an_address() -> None:
    name = "x,66:66:66:66:66:66,1,2,,$"
    row = nios(f"r-l-e:10.7.0.1,Issued,{name},{MAC},1457708974,1458400174,,$", "dhcpd[7]")
    assert (row["src_ip"], row["mac"]) == ("10.7.0.1", MAC)


def test_a_relays_name_before_the_appliances() -> None:
    text = f"DHCPDISCOVER from {MAC} via eth3 TransID b5e92c59"
    row = nios(text, "dhcpd[7]", "Mar  2 09:00:00 relay.example 10.0.0.9")
    assert (row["class_uid"], row["host_name"], row["mac"]) == (4004, "10.0.0.9", MAC)
    assert json.loads(row["unmapped"])["relayed_by"] == "relay.example"


def test_a_question() -> None:
    row = nios(
        "queries: client @0x7f97e40eb500 10.0.0.5#64727 (a.example): view 1: "
        "query: a.example IN A +E(0)K (10.0.0.1)"
    )
    assert (row["class_uid"], row["activity_id"], row["src_ip"]) == (4003, 1, "10.0.0.5")
    assert row["dst_ip"] == "10.0.0.1"
    assert row["query"] == {"hostname": "a.example", "type": "A", "class": "IN"}
    rest = json.loads(row["unmapped"])
    assert (rest["view"], rest["category"], rest["flags"]) == ("1", "queries", "+E(0)K")


def test_an_answer_with_its_records() -> None:
    row = nios(
        "infoblox-responses: 02-Mar-2026 09:00:00.043 client 10.0.0.5#57398: view 1: UDP: "
        'query: a.example IN TXT response: NOERROR +ED a.example. 3600 IN TXT "k=rsa; p=abc" '
        '"d"; a.example. 60 IN A 192.0.2.1;'
    )
    assert (row["activity_id"], row["status_id"], row["rcode_id"]) == (2, 1, 0)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 43000, UTC)
    assert row["answers"] == [
        {"rdata": '"k=rsa; p=abc" "d"', "type": "TXT", "ttl": 3600},
        {"rdata": "192.0.2.1", "type": "A", "ttl": 60},
    ]
    assert row["connection_info"]["protocol_num"] == 17


@pytest.mark.parametrize(
    ("text", "rcode"),
    [
        ("client 10.0.0.5#4 UDP: query: a.example IN A response: REFUSED -", "REFUSED"),
        ("client 10.0.0.5#4 UDP: query: a.example IN A response: NXDOMAIN +ED", "NXDOMAIN"),
        (
            "client @0x1 10.0.0.5#4 (a.example): query failed (SERVFAIL) for a.example/IN/A at "
            "query.c:10288",
            "SERVFAIL",
        ),
        ("client 10.0.0.5#4 (a.example): query (cache) 'a.example/A/IN' denied", "REFUSED"),
    ],
)
def test_what_failed(text: str, rcode: str) -> None:
    row = nios(text)
    assert (row["class_uid"], row["status_id"], row["rcode"]) == (4003, 2, rcode)
    assert (row["src_ip"], row["query"]["hostname"]) == ("10.0.0.5", "a.example")


def test_a_policy_that_rewrites() -> None:
    row = nios(
        "CEF:0|Infoblox|NIOS|8.6.2|RPZ-QNAME|NXDOMAIN|7|app=DNS dst=10.0.0.1 src=10.0.0.5 "
        'spt=51424 view=_default qtype=A msg="rpz QNAME NXDOMAIN rewrite bad.example [A] via '
        'bad.example.rpz.local" CAT=RPZ'
    )
    assert (row["class_uid"], row["action_id"], row["disposition_id"]) == (4003, 2, 2)
    assert (row["src_ip"], row["dst_ip"]) == ("10.0.0.5", "10.0.0.1")
    assert row["query"]["hostname"] == "bad.example"
    assert row["firewall_rule"]["name"] == "bad.example.rpz.local"


@pytest.mark.parametrize(
    ("text", "expected", "user", "ip"),
    [
        (
            "2026-03-02 09:00:00.087Z [ann]: Login_Allowed - - to=AdminConnector ip=10.0.0.5 "
            "auth=LOCAL group=some-Group apparently_via=API",
            (3002, 1, 1),
            "ann",
            "10.0.0.5",
        ),
        (
            "[2026-03-02 09:00:00.087Z] [ann\\040b]: Login_Denied - - to=AdminConnector "
            "ip=10.0.0.5 info=Local apparently_via=GUI",
            (3002, 1, 2),
            "ann b",
            "10.0.0.5",
        ),
        (
            "2026-03-02 09:00:00.087Z [ann]: Logout - - ip=10.0.0.5 group=x",
            (3002, 2, 1),
            "ann",
            "10.0.0.5",
        ),
        (
            "2026-03-02 09:00:00.087Z [ann]: Modified Network 10.0.0.0/24 network_view=default: "
            "Changed dhcp_members:[]->[[x]]",
            (3004, 3, 1),
            "ann",
            None,
        ),
        (
            "2026-03-02 09:00:00.087Z [ann]: Called - RestartService: Args force=True",
            (6003, 99, 1),
            "ann",
            None,
        ),
    ],
)
def test_the_audit_log(
    text: str, expected: tuple[int, int, int], user: str, ip: str | None
) -> None:
    row = nios(text, "httpd")
    assert (row["class_uid"], row["activity_id"], row["status_id"]) == expected
    assert (row["user_name"], row.get("src_ip")) == (user, ip)
    assert row["time"] == datetime(2026, 3, 2, 9, 0, 0, 87000, UTC)
    assert row["time_quality"] == "exact"


def test_an_administrators_name_cannot_forge_an_address() -> None:
    row = nios(
        "2026-03-02 09:00:00.087Z [x ip=6.6.6.6]: Login_Denied - - to=AdminConnector "
        "ip=10.0.0.5 apparently_via=GUI",
        "httpd",
    )
    assert (row["user_name"], row["src_ip"]) == ("x ip=6.6.6.6", "10.0.0.5")


def test_a_question_cannot_forge_who_asked() -> None:
    name = r"a\032(10.6.6.6)#53:query:b"
    row = nios(f"client @0x1 10.0.0.5#4 ({name}): query: {name} IN A + (10.0.0.1)")
    assert (row["src_ip"], row["query"]["hostname"]) == ("10.0.0.5", name)


def test_all_else_is_an_event_of_no_class() -> None:
    for text, program in (("DHCPACK some text", "dhcpd[1]"), ("x", "httpd"), ("y", "syslog")):
        assert nios(text, program)["class_uid"] == 0
    assert rows("infoblox", b"\xff")[0]["dead_letter_reason"]


@given(st.text('";\\a\n ', max_size=20))
def test_records_are_parted_by_semicolons_outside_of_quotes(text: str) -> None:
    by_one_pattern = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^;"]|")+', text)
    assert records(text) == by_one_pattern


def test_a_million_quotes_without_an_end_are_read_once() -> None:
    # With a search for the end of each the test would not end today.
    assert records('\\"' * 1_000_000) == ['\\"' * 1_000_000]
    assert records('a;"b;' + '\\"' * 1_000_000) == ["a", '"b', '\\"' * 1_000_000]
