"""More of the DHCP dialects: IPv6, other versions, and what dnsmasq says of DNS."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.parsing.source import lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import SAMPLES, good, reason, rows

MAC = "02:42:ac:77:0b:10"
DUID = f"00:03:00:01:{MAC}"
LLT = f"00:01:00:01:2c:11:22:33:{MAC}"


def one(source: str, text: str, **more: Any) -> dict[str, Any]:
    row = good(source, text, **more)
    assert (faults(row), misfits(row)) == ([], [])
    return row


def about(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["class_uid"], row["activity_id"], row.get("status_id"), row.get("src_ip")


# -- ISC dhcpd ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"DHCPDISCOVER from {MAC} (lt-1) via eth1 TransID a76ecf84 uid 01:{MAC}",
            (1, 1, None, "a76ecf84"),
        ),
        (
            f"DHCPDISCOVER from {MAC} via eth1 TransID 6214ab45: network 10.0.0.0/20: "
            "no free leases",
            (1, 2, None, "6214ab45"),
        ),
        (
            f"DHCPREQUEST for 10.0.0.5 (10.0.0.1) from {MAC} (lt-1) via eth1 TransID 54737448 "
            f"uid 01:{MAC} (RENEW)",
            (3, 1, "10.0.0.5", "54737448"),
        ),
        (
            f"DHCPRELEASE of 10.0.0.5 from {MAC} via eth1 (found) TransID 0286f3d0 uid 01:{MAC}",
            (7, 1, "10.0.0.5", "0286f3d0"),
        ),
        (f"DHCPEXPIRE on 10.0.0.5 to {MAC}", (9, 1, "10.0.0.5", None)),
        (
            f"DHCPDECLINE of 10.0.0.5 from {MAC} via 10.9.0.1 TransID 00000000: not found",
            (4, 2, "10.0.0.5", "00000000"),
        ),
        ("DHCPINFORM from 10.0.0.5 via 10.9.0.1 TransID 5713b740", (8, 1, "10.0.0.5", "5713b740")),
    ],
)
def test_dhcpd_with_transactions(text: str, expected: tuple[Any, ...]) -> None:
    row = one("isc_dhcpd", f"Mar  2 09:00:00 h dhcpd[1]: {text}")
    assert (
        row["activity_id"],
        row["status_id"],
        row.get("src_ip"),
        row["transaction_uid"],
    ) == expected


@pytest.mark.parametrize(
    ("text", "activity", "ip", "lease"),
    [
        (
            f"Reply NA: address 2001:db8::5 to client with duid {DUID} iaid = 7 "
            "valid for 600 seconds",
            5,
            "2001:db8::5",
            600,
        ),
        (
            f"Advertise NA: address 2001:db8::5 to client with duid {LLT} iaid = -7 static",
            2,
            "",
            None,
        ),
        (f"Client {DUID} releases address 2001:db8::5", 7, "2001:db8::5", None),
        (f"Client {DUID} declines address 2001:db8::5", 4, "2001:db8::5", None),
    ],
)
def test_dhcpd_of_ipv6(text: str, activity: int, ip: str, lease: int | None) -> None:
    row = one("isc_dhcpd", f"Mar  2 09:00:00 h dhcpd[1]: {text}")
    assert (row["activity_id"], row["mac"], row["lease_dur"]) == (activity, MAC, lease)
    assert row["src_ip"] == (ip or "2001:db8::5")
    solicit = "Solicit message from fe80::1 port 546, transaction ID 0x12AB"
    row = one("isc_dhcpd", f"Mar  2 09:00:00 h dhcpd[1]: {solicit}")
    assert (row["activity_id"], row["transaction_uid"]) == (1, "0x12AB")


def test_bootp_names_the_host_before_its_hardware_address() -> None:
    row = one(
        "isc_dhcpd", f"Mar  2 09:00:00 b1 dhcpd[7]: BOOTREPLY for 10.0.0.5 to lp-1 ({MAC}) via eth0"
    )
    assert about(row) == (4004, 5, 1, "10.0.0.5")
    assert (row["mac"], row["src_endpoint"]["hostname"]) == (MAC, "lp-1")


# -- DHCPv4 over DHCPv6 (RFC 7341), whose lease is told as any other -------------------------------


@pytest.mark.parametrize(
    ("code", "text", "word", "carried"),
    [
        (
            "DHCP4_DHCP4O6_PACKET_RECEIVED",
            "received DHCPv4o6 packet from DHCPv6 server (type 20) for 2001:db8::5 port 546 on "
            "interface eth0",
            "DHCPv4-query",
            None,
        ),
        (
            "DHCP6_DHCP4O6_PACKET_RECEIVED",
            "received DHCPv4o6 packet from DHCPv4 server (type 21) for 2001:db8::5 on interface "
            "eth0",
            "DHCPv4-response",
            None,
        ),
        (
            "DHCP4_DHCP4O6_PACKET_SEND",
            f"[hwtype=1 {MAC}], cid=[no info], tid=0x1: trying to send packet DHCPV4_RESPONSE "
            f"(type 21) to 2001:db8::5 port 546 on interface eth0 encapsulating [hwtype=1 {MAC}], "
            "cid=[no info], tid=0x1: DHCPACK (type 5)",
            "DHCPv4-response",
            "DHCPACK",
        ),
    ],
)
def test_kea_carries_dhcpv4_over_ipv6(code: str, text: str, word: str, carried: str | None) -> None:
    row = kea(code, text)
    assert (row["class_uid"], row["activity_id"], row["activity_name"]) == (4004, 99, word)
    # A packet on its way gives nobody an address.
    assert (row["src_ip"], row["mac"]) == ("2001:db8::5", None)
    assert json.loads(row["unmapped"]).get("carried") == carried


# -- Kea ---------------------------------------------------------------------------------------


def kea(code: str, text: str) -> dict[str, Any]:
    return one("kea_dhcp4", f"2026-03-02 09:00:00.123 INFO  [kea.leases/1.2] {code} {text}")


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (
            "DHCP6_LEASE_ALLOC",
            f"duid=[{LLT}], [no hwaddr info], tid=0xa1: lease for address 2001:db8::5 and iaid=0 "
            "has been allocated for 1800 seconds",
            (5, "2001:db8::5", MAC, 1800),
        ),
        (
            "DHCP6_LEASE_ADVERT",
            f"duid=[{DUID}], tid=0xa1: lease for address 2001:db8::5 and iaid=7 will be advertised",
            (2, "2001:db8::5", MAC, None),
        ),
        (
            "DHCP6_RELEASE_NA",
            f"duid=[00:02:00], [hwtype=1 {MAC}], tid=0xa1: binding for address 2001:db8::5 and "
            "iaid=7 was released properly",
            (7, "2001:db8::5", MAC, None),
        ),
        (
            "DHCP6_DECLINE_LEASE",
            f"Client duid=[{DUID}], tid=0x1 sent DECLINE for address 2001:db8::5 marking it as "
            "declined. The lease will be recovered in 3600 seconds.",
            (4, "2001:db8::5", MAC, None),
        ),
        (
            "DHCP4_LEASE_ALLOC",
            f"[hwtype=1 {MAC}], cid=[no info], tid=0x1: lease 10.0.0.5 has been allocated",
            (5, "10.0.0.5", MAC, 86400),
        ),
        (
            "DHCP4_PACKET_NAK_0003",
            f"[hwtype=1 {MAC}], cid=[no info], tid=0x1: failed to advertise a lease, client sent "
            "ciaddr 0.0.0.0, requested-ip-address 10.0.0.7",
            (6, "10.0.0.7", MAC, None),
        ),
        (
            "ALLOC_ENGINE_V4_DECLINED_RECOVERED",
            "Address 10.0.0.7 was recovered after 86400 seconds of probation-period",
            (9, "10.0.0.7", None, None),
        ),
    ],
)
def test_kea(code: str, text: str, expected: tuple[Any, ...]) -> None:
    row = kea(code, text)
    client = row["activity_id"], row["src_ip"], row["mac"], row["lease_dur"]
    assert client == expected
    assert ("DHCPv6" in row["metadata"]["product"]["name"]) == ("6_" in code)


def test_kea_printed_to_the_journal() -> None:
    text = f"DHCP4_RELEASE [hwtype=1 {MAC}], cid=[01], tid=0x1: address 10.0.0.5 was released"
    row = one(
        "kea_dhcp4",
        f"Mar  2 09:00:00 h kea-dhcp4[7]: 2026-03-02 09:00:00.123 INFO  [kea/1.2] {text}",
    )
    assert (row["activity_id"], row["src_ip"]) == (7, "10.0.0.5")


def test_kea_and_hardware_that_is_no_ethernet() -> None:
    long = "80:00:02:08:fe:80:00:00:00:00:00:00:f4:52"
    row = kea("DHCP4_LEASE_ALLOC", f"[hwtype=32 {long}], cid=[ff], tid=0x1: lease 10.0.0.9 x")
    assert row["mac"] is None
    assert json.loads(row["unmapped"])["hwaddr"] == long


# -- dnsmasq -----------------------------------------------------------------------------------


def dnsmasq(text: str, program: str = "dnsmasq") -> dict[str, Any]:
    return one("dnsmasq", f"Mar  2 09:00:00 gw {program}[1]: {text}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"658188 DHCPSOLICIT(br0) {DUID} ", (1, 1, None, None)),
        (f"DHCPADVERTISE(br0) fd00::54 {DUID} ", (2, 1, "fd00::54", None)),
        (f"DHCPADVERTISE(br0) {DUID} no addresses available", (2, 2, None, None)),
        (f"658189 DHCPREPLY(br0) fd00::54 {LLT} lt-1", (5, 1, "fd00::54", "lt-1")),
        (f"DHCPREPLY(br0) {LLT} ", (99, 1, None, None)),
        (f"DHCPRENEW(br0) fd00::54 {LLT}", (3, 1, "fd00::54", None)),
        (f"DHCPRELEASE(br0) fd00::54 {LLT}", (7, 1, "fd00::54", None)),
    ],
)
def test_dnsmasq_of_ipv6(text: str, expected: tuple[Any, ...]) -> None:
    row = dnsmasq(text, "dnsmasq-dhcp")
    client = row["src_endpoint"]["hostname"]
    assert (row["activity_id"], row["status_id"], row.get("src_ip"), client) == expected
    assert row["mac"] == MAC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("query[A] a.example from 10.0.0.5", (4003, 1, None, "10.0.0.5")),
        ("12 10.0.0.5/4242 query[type=65] a.example from 10.0.0.5", (4003, 1, None, "10.0.0.5")),
        ("12 10.0.0.5/4242 forwarded a.example to 9.9.9.9", (4003, 99, None, "10.0.0.5")),
        ("12 10.0.0.5/4242 reply a.example is 192.0.2.1", (4003, 2, 1, "10.0.0.5")),
        ("reply a.example is <CNAME>", (4003, 2, 1, None)),
        ("cached a.example is NXDOMAIN", (4003, 2, 2, None)),
        ("reply a.example is NODATA-IPv6", (4003, 2, 1, None)),
        ("config a.example is 0.0.0.0", (4003, 2, 1, None)),
        ("/etc/hosts h.lan is 10.0.0.1", (4003, 2, 1, None)),
        ("gravity blocked a.example is 0.0.0.0", (4003, 2, 1, None)),
        ("possible DNS-rebind attack detected: a.example", (0, 0, None, None)),
    ],
)
def test_dnsmasq_of_dns(text: str, expected: tuple[Any, ...]) -> None:
    assert about(dnsmasq(text)) == expected


def test_dnsmasqs_answers() -> None:
    row = dnsmasq("12 10.0.0.5/4242 reply a.example is 2001:db8::5")
    assert row["answers"] == [{"rdata": "2001:db8::5", "type": "AAAA"}]
    assert row["query"] == {"hostname": "a.example", "type": "AAAA"}
    assert (row["rcode"], row["rcode_id"]) == ("NOERROR", 0)
    assert row["metadata"]["correlation_uid"] == "12"
    row = dnsmasq("cached a.example is NXDOMAIN")
    assert (row["rcode"], row["rcode_id"]) == ("NXDOMAIN", 3)
    row = dnsmasq("12 10.0.0.5/4242 forwarded a.example to 9.9.9.9#53")
    assert row["dst_ip"] == "9.9.9.9"
    row = dnsmasq("query[type=65] a.example from 10.0.0.5")
    assert row["query"]["type"] == "HTTPS"


# -- Windows -----------------------------------------------------------------------------------

WINDOWS6 = "%s,12/06/21,12:43:57,%s,2001:db8::5,lt-1,,%d,%s,,,,,"


@pytest.mark.parametrize(
    ("code", "activity", "status"),
    [
        *(("11000", 1, 1), ("11001", 2, 1), ("11002", 3, 1), ("11004", 3, 1), ("11006", 4, 2)),
        *(("11007", 7, 1), ("11008", 8, 1), ("11009", 99, 2), ("11018", 9, 1)),
    ],
)
def test_windows_of_ipv6(code: str, activity: int, status: int) -> None:
    octets = LLT.replace(":", "").upper()
    row = one("windows_dhcp", WINDOWS6 % (code, "words", 14, octets))
    assert (row["activity_id"], row["status_id"], row["src_ip"]) == (
        activity,
        status,
        "2001:db8::5",
    )
    assert row["mac"] == MAC
    assert row["time"] == datetime(2021, 12, 6, 12, 43, 57, tzinfo=UTC)


def test_a_comma_in_a_name_of_ipv6_cannot_shift_the_identifier() -> None:
    octets = LLT.replace(":", "")
    raw = (WINDOWS6 % ("11002", "w", 14, octets)).replace("lt-1", "x,,14,6666")
    assert "fields" in reason("windows_dhcp", raw)
    short = (WINDOWS6 % ("11002", "w", 14, octets)).replace("lt-1,", "lt-1,,4,6666").rstrip(",")
    assert "bytes; the entry says" in reason("windows_dhcp", short)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        *(("11/21/26", (11, 21)), ("11/21/2026", (11, 21)), ("21.11.26", (11, 21))),
        *(("2026-11-21", (11, 21)), ("25/11/26", (11, 25))),
    ],
)
def test_dates_of_other_locales(date: str, expected: tuple[int, int]) -> None:
    row = one("windows_dhcp", f"10,{date},9:00:00,Assign,10.7.0.1,lt,0242AC770B10,")
    assert (row["time"].month, row["time"].day, row["time"].hour) == (*expected, 9)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("31,09/20/21,09:18:00,DNS Update Failed,10.7.0.1,lt.example,,,0,6,,,,,,,,,10054", 2),
        ("32,09/20/21,09:18:00,DNS Update Successful,10.7.0.1,lt.example,,,0,6,,,,,,,,,0", 1),
        ("36,09/20/21,09:18:01,Packet dropped,10.7.0.1,,0242AC770B10,,0,6,,,,,,,,,0", 2),
        ("00,04/19/20,12:43:06,Started,,,", None),
        ("63,04/19/20,12:43:28,Restarting rogue detection,,,", None),
        ("11010,11/04/21,18:24:36,DHCPV6 Started,,,,,,,,,,", None),
        ("1103,11/04/21,18:24:36,Authorized(servicing),,a.local,,,,,,,,", 1),
    ],
)
def test_what_is_no_lease(line: str, status: int | None) -> None:
    row = one("windows_dhcp", line)
    assert (row["class_uid"], row.get("status_id")) == (0, status)
    if "10.7.0.1" in line:
        assert row["src_ip"] == "10.7.0.1"


def test_a_whole_windows_file() -> None:
    raw = (SAMPLES / "lab" / "windows" / "DhcpSrvLog-Fri.log").read_bytes()
    whole = rows("windows_dhcp", raw, tz="America/Los_Angeles")
    assert [row.get("dead_letter_reason") for row in whole] == [None] * len(whole)
    apart = rows("windows_dhcp", *raw.splitlines(keepends=True), tz="America/Los_Angeles")
    times = [(row["time"], row.get("src_ip")) for row in whole]
    assert times == [(row["time"], row.get("src_ip")) for row in apart]
    header = next(line for line in raw.splitlines() if line.startswith(b"ID,"))
    assert lookup("windows_dhcp").is_header(header)
    assert one("windows_dhcp", header.decode())["class_uid"] == 0
