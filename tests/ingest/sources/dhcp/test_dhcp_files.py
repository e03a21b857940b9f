"""Lease files: dhcpd.leases and Kea's CSV, against what the lab's clients noted."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from enrich.dhcp.lease_rules import LEASE_ACTIVITIES, SECOND_US, LeaseEvent, replay
from ingest.parsing.ocsf_export import ocsf_object
from ingest.parsing.source import lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import NOW, SAMPLES, good, reason, rows

LEASES = (SAMPLES / "lab" / "dhcpd" / "dhcpd.leases").read_bytes()
CSV = (SAMPLES / "lab" / "kea" / "kea-leases4.csv").read_bytes()
LEASE_SECONDS = 45


def check(found: list[dict[str, Any]]) -> None:
    for row in found:
        assert row.get("dead_letter_reason") is None, row["dead_letter_reason"]
        assert (faults(row), misfits(row)) == ([], [])


def sessions(found: list[dict[str, Any]]) -> list[tuple[str, str, float, float]]:
    """Who held what from when to when, by the rules of the sessions job."""
    events = []
    for number, row in enumerate(found):
        shown = ocsf_object(row)
        if shown["class_uid"] == 4004 and shown["activity_id"] in LEASE_ACTIVITIES:
            client = shown["src_endpoint"]
            events.append(
                LeaseEvent(
                    event_uid=f"{number:06}",
                    scope="lab",
                    ip=client["ip"],
                    mac=client.get("mac"),
                    hostname=client.get("hostname"),
                    activity=shown["activity_id"],
                    time_us=shown["time"] * 1000,
                    received_us=0,
                    lease_seconds=shown.get("lease_dur", 0),
                )
            )
    return [
        (ip, session.mac, session.start_us / SECOND_US, session.end_us / SECOND_US)
        for ip in sorted({event.ip for event in events})
        for session in replay([event for event in events if event.ip == ip]).sessions
    ]


def noted(folder: str) -> list[dict[str, Any]]:
    """What the clients noted, as a server can know it: see tests/enrich/dhcp/test_lab.py."""
    text = (SAMPLES / "lab" / folder / "truth_sessions.jsonl").read_text()
    found: list[dict[str, Any]] = []
    every = [json.loads(line) for line in text.splitlines()]
    for session in sorted(every, key=lambda one: (one["ip"], one["start"])):
        last = found[-1] if found else None
        if (
            last is not None
            and (last["ip"], last["mac"]) == (session["ip"], session["mac"])
            and last["ended"] != "released"
            and session["start"] <= last["last_ack"] + LEASE_SECONDS + 1
        ):
            last.update({name: session[name] for name in ("end", "last_ack", "ended")})
        else:
            found.append(session)
    for session, after in zip(found, [*found[1:], None], strict=True):
        if session["ended"] != "released":
            session["end"] = session["last_ack"] + LEASE_SECONDS
            if after and after["ip"] == session["ip"]:
                session["end"] = min(session["end"], after["start"])
    return found


def test_the_sessions_of_dhcpd_leases_are_those_the_clients_noted() -> None:
    found = rows("isc_dhcpd_leases", LEASES)
    check(found)
    got, expected = sessions(found), noted("dhcpd")
    assert len(got) == len(expected) == 17
    for mine, theirs in zip(got, expected, strict=True):
        assert mine[:2] == (theirs["ip"], theirs["mac"])
        assert mine[2] == pytest.approx(theirs["start"], abs=2)
        assert mine[3] == pytest.approx(theirs["end"], abs=2)


def test_the_sessions_of_kea_leases_begin_as_the_clients_noted() -> None:
    found = rows("kea_leases4", CSV)
    check(found)
    got, expected = sessions(found), noted("kea")
    assert len(got) == len(expected) == 33
    for mine, theirs in zip(got, expected, strict=True):
        assert mine[:2] == (theirs["ip"], theirs["mac"])
        assert mine[2] == pytest.approx(theirs["start"], abs=2)
    # A release does not say when it was: most are bound closely by the row behind them.
    close = [abs(a[3] - b["end"]) <= 2 for a, b in zip(got, expected, strict=True)]
    assert sum(close) >= 27
    late = [a[3] - b["end"] for a, b in zip(got, expected, strict=True)]
    assert min(late) > -2
    assert max(late) < LEASE_SECONDS


def test_what_happened_in_the_lab() -> None:
    names = Counter(row["activity_name"] for row in rows("isc_dhcpd_leases", LEASES))
    assert names == {"Ack": 63, "Release": 14, "Unknown": 1}
    found = rows("kea_leases4", CSV)
    assert Counter(row["activity_name"] for row in found) == {"Ack": 77, "Release": 32}
    first = found[0]
    assert first["time"] == datetime(2026, 11, 21, 2, 45, 22, tzinfo=UTC)
    assert first["lease_dur"] == 45
    assert first["src_endpoint"]["hostname"] == "phone-1202"
    assert first["mac"] == "02:42:ac:77:0c:12"
    assert [row["is_renewal"] for row in found[:6]] == [None] * 5 + [True]


# -- dhcpd.leases ------------------------------------------------------------------------------


def lease(*statements: str, ip: str = "10.0.0.5") -> str:
    body = "\n".join(f"  {one};" for one in statements)
    return f"lease {ip} {{\n{body}\n}}\n"


GRANTED = (
    "starts 5 2026/11/20 10:00:00",
    "ends 5 2026/11/20 10:10:00",
    "cltt 5 2026/11/20 10:00:00",
    "binding state active",
    "next binding state free",
    "hardware ethernet 02:42:AC:77:0b:10",
    r'uid "\001\002B\254w\013\020"',
    'client-hostname "lt-1"',
    'set vendor-class-identifier = "MSFT 5.0"',
)


def test_a_lease_alone() -> None:
    row = good("isc_dhcpd_leases", lease(*GRANTED))
    check([row])
    assert (row["activity_id"], row["src_ip"], row["mac"]) == (5, "10.0.0.5", "02:42:ac:77:0b:10")
    assert row["time"] == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert row["lease_dur"] == 600
    assert row["src_endpoint"]["hostname"] == "lt-1"
    assert row["src_endpoint"]["uid"] == "01:02:42:ac:77:0b:10"
    assert json.loads(row["unmapped"])["set vendor-class-identifier"] == "MSFT 5.0"


@pytest.mark.parametrize(
    ("state", "ends", "activity"),
    [
        ("free", "5 2026/11/20 10:10:00", 9),
        ("free", "5 2026/11/20 10:04:00", 7),
        ("released", "5 2026/11/20 10:04:00", 7),
        ("expired", "5 2026/11/20 10:10:00", 9),
        ("abandoned", "5 2026/11/20 10:10:00", 4),
        ("backup", "5 2026/11/20 10:10:00", 99),
    ],
)
def test_how_a_lease_ends(state: str, ends: str, activity: int) -> None:
    after = [*GRANTED[:1], f"ends {ends}", *GRANTED[2:3], f"binding state {state}", GRANTED[5]]
    _, row = rows("isc_dhcpd_leases", (lease(*GRANTED) + lease(*after)).encode())
    check([row])
    assert row["activity_id"] == activity
    if activity in (7, 9):
        assert row["time"].minute == int(ends[-5:-3])


def test_times_in_local_form_and_leases_without_end() -> None:
    statements = ["starts epoch 1795228827; # Fri", "ends never", "binding state active"]
    row = good("isc_dhcpd_leases", lease(*statements, "hardware ethernet 02:42:ac:77:0b:10"))
    assert row["time"] == datetime.fromtimestamp(1795228827, UTC)
    assert row["lease_dur"] == 2**32 - 1


V6 = r"""
default-duid "\000\001";
ia-na "\001\002\003\004\000\003\000\001\002B\254w\013\031" {
  cltt 5 2026/11/20 10:00:00;
  iaaddr 2001:db8::1 {
    binding state active;
    preferred-life 100;
    max-life 200;
    ends 5 2026/11/20 10:03:20;
  }
}
host x { dynamic; hardware ethernet 02:42:ac:77:0b:19; fixed-address 10.0.0.9; }
failover peer "p" state { my state normal at 5 2026/11/20 10:00:00; }
"""


def test_the_rest_of_the_file() -> None:
    found = rows("isc_dhcpd_leases", V6.encode())
    check(found)
    row, host, peer, rest = found
    assert (row["activity_id"], row["src_ip"], row["lease_dur"]) == (5, "2001:db8::1", 200)
    assert row["mac"] == "02:42:ac:77:0b:19"
    assert [one["class_uid"] for one in (host, peer, rest)] == [0, 0, 0]
    assert "10.0.0.9" in host["unmapped"]
    assert "default-duid" in rest["message"]


def test_a_name_cannot_forge_a_lease() -> None:
    name = r"a; } lease 10.6.6.6 { hardware ethernet 66:66:66:66:66:66; # \" {"
    row = good("isc_dhcpd_leases", lease(*GRANTED[:7], f'client-hostname "{name}"'))
    assert (row["src_ip"], row["mac"]) == ("10.0.0.5", "02:42:ac:77:0b:10")
    assert row["src_endpoint"]["hostname"] == name.replace('\\"', '"')


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("lease 10.0.0.300 { binding state active; }", "where an IP address should stand"),
        ("lease 10.0.0.5 { binding state active;", "has no end"),
        ('lease 10.0.0.5 { client-hostname "x; }', "without its end"),
        ("hello world", "is no declaration"),
        ("{" * 99, "nested deeper than 16"),
        ("}", "that ends no block"),
        ("\x00", "a NUL at byte 0"),
    ],
)
def test_what_is_no_lease_file(raw: str, why: str) -> None:
    assert why in reason("isc_dhcpd_leases", raw)


def test_a_bad_block_costs_only_itself() -> None:
    raw = lease(*GRANTED) + lease(*GRANTED, ip="10.0.0.999") + lease(*GRANTED, ip="10.0.0.6")
    found = rows("isc_dhcpd_leases", raw.encode())
    assert [row.get("src_ip") for row in found] == ["10.0.0.5", None, "10.0.0.6"]


def test_leases_moved_in_time() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, tzinfo=UTC)
    moved = lookup("isc_dhcpd_leases").restamp(LEASES, when, ZoneInfo("UTC"))
    old, new = rows("isc_dhcpd_leases", LEASES)[:-1], rows("isc_dhcpd_leases", moved)[:-1]
    by = when - old[0]["time"]
    assert [row["time"] for row in new] == [row["time"] + by for row in old]
    assert len(moved) == len(LEASES)


# -- Kea ---------------------------------------------------------------------------------------

HEADER = (
    b"address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,"
    b"user_context,pool_id"
)
ROW = b"10.0.0.5,02:42:ac:77:0b:10,01:02:42:ac:77:0b:10,600,1795228827,1,0,0,%s,%d,,0"


def row_of(raw: bytes, **more: Any) -> dict[str, Any]:
    found = good("kea_leases4", raw.decode(), headers={"header": HEADER}, **more)
    check([found])
    return found


@pytest.mark.parametrize(("state", "activity"), [(0, 5), (1, 4), (2, 9), (3, 7), (4, 99)])
def test_states(state: int, activity: int) -> None:
    row = row_of(ROW % (b"lt-1", state))
    assert row["activity_id"] == activity
    began = datetime.fromtimestamp(1795228827 - 600, UTC)
    known = {5: began, 4: began, 9: began + timedelta(seconds=600), 7: NOW, 99: began}
    assert row["time"] == known[activity]


def test_a_release_alone_counts_from_when_it_came() -> None:
    row = row_of((ROW % (b"lt-1", 0)).replace(b",600,", b",0,"))
    assert (row["activity_id"], row["time"], row["time_quality"]) == (7, NOW, "received")
    assert row["metadata"]["original_time"] == "1795228827"


def test_escapes_and_old_columns() -> None:
    assert row_of(ROW % (b"a&#x2cb", 0))["src_endpoint"]["hostname"] == "a,b"
    old = b"10.0.0.5,02:42:ac:77:0b:10,,600,1795228827,1,0,0,lt-1"
    assert good("kea_leases4", old.decode())["src_endpoint"]["hostname"] == "lt-1"


def test_the_lease_file_of_ipv6() -> None:
    header = (
        b"address,duid,valid_lifetime,expire,subnet_id,pref_lifetime,lease_type,iaid,prefix_len,"
        b"fqdn_fwd,fqdn_rev,hostname,hwaddr,state,user_context,hwtype,hwaddr_source,pool_id"
    )
    duid = b"00:01:00:01:2c:11:22:33:02:42:ac:77:0b:10"
    line = b"%s," + duid + b",4000,1795233600,1,3000,%d,99,%d,0,0,h.example.,,0,,,,0"
    raw = b"\n".join([header, line % (b"2001:db8::10", 0, 128), line % (b"2001:db8:1::", 2, 56)])
    found = rows("kea_leases4", raw)
    check(found)
    assert [row["activity_id"] for row in found] == [5, 99]
    assert (found[0]["src_ip"], found[0]["mac"]) == ("2001:db8::10", "02:42:ac:77:0b:10")
    assert found[0]["metadata"]["product"]["name"] == "Kea DHCPv6"


def test_a_header_is_told_from_a_row() -> None:
    source = lookup("kea_leases4")
    assert source.is_header(HEADER)
    assert not source.is_header(ROW % (b"lt-1", 0))
    assert source.is_whole(HEADER + b"\n")
    assert good("kea_leases4", HEADER.decode())["class_uid"] == 0


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("10.0.0.5,a,b", "3 fields; the header names 12"),
        ((ROW % (b"a,b,c,d,e", 0)).decode(), "16 fields; the header names 12"),
        ("10.0.0.5,,,x,1795228827,1,0,0,h,0,,0", "valid_lifetime: expected a whole number"),
        ("10.0.0.500,,,5,1795228827,1,0,0,h,0,,0", "where an IP address should stand"),
        ("", "the record is empty"),
    ],
)
def test_what_is_no_row(raw: str, why: str) -> None:
    assert why in reason("kea_leases4", raw, headers={"header": HEADER})


def test_a_row_moved_in_time() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, tzinfo=UTC)
    raw = ROW % (b"lt-1", 0)
    moved = lookup("kea_leases4").restamp(raw, when, ZoneInfo("UTC"))
    assert row_of(moved)["time"] == when
    assert moved.count(b",") == raw.count(b",")
