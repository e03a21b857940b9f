"""Which lines reach the rules, and under which names: DHCPv6, clocks, talk, and networks."""

from __future__ import annotations

from datetime import UTC
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from pyspark.sql import SparkSession

from enrich.attribution.scopes import in_networks, ipv6_digits
from enrich.dhcp.lease_rules import INFORM, NAK, OFFER, RELEASE, REQUEST
from enrich.dhcp.sessions_job import sessions_of
from infra.config.settings import JobSettings, ScopeSettings
from ingest.parsing.source import ParseSettings
from ingest.tables import EVENT
from tests.enrich.rows import IP, SCOPE, START, A, B, dhcp, rows
from tests.ingest.logs import rows as parsed

MAC = "02:42:ac:77:0b:10"
LL = f"00:03:00:01:{MAC}"
UUID = "00:04:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10"
TERSE = "0:4:1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10"
KEA = "2026-11-21 02:40:{} INFO  [kea-dhcp6.leases/1.2] {}"
V6 = {
    "isc_dhcpd": [
        f"Nov 21 02:40:00 gw dhcpd[1]: Reply NA: address 2001:DB8::0005 to client with duid {LL} "
        "iaid = 7 valid for 300 seconds",
        f"Nov 21 02:41:00 gw dhcpd[1]: Renew NA: address 2001:db8::5 to client with duid {LL} "
        "iaid = 7 valid for 300 seconds",
        "Nov 21 02:41:01 gw dhcpd[1]: Release message from 2001:db8::5 port 546, "
        "transaction ID 0xA1",
        f"Nov 21 02:41:01 gw dhcpd[1]: Client {LL} releases address 2001:db8::5",
        f"Nov 21 02:40:00 gw dhcpd[1]: Reply NA: address 2001:db8::6 to client with duid {TERSE} "
        "iaid = 7 valid for 300 seconds",
    ],
    "kea_dhcp4": [
        KEA.format(
            "10.5",
            f"DHCP6_LEASE_ALLOC duid=[{UUID}], [no hwaddr info], tid=0xa1: lease for address "
            "2001:db8::7 and iaid=0 has been allocated for 60 seconds",
        ),
        KEA.format(
            "40.5",
            f"DHCP6_LEASE_RENEW duid=[{UUID}], [no hwaddr info], tid=0xa2: lease for address "
            "2001:db8::7 and iaid=0 has been renewed for 60 seconds",
        ),
    ],
    "dnsmasq": [
        f"Nov 21 02:40:00 gw dnsmasq-dhcp[1]: 6581 DHCPREPLY(br0) fd00::54 {LL} laptop",
        f"Nov 21 02:40:09 gw dnsmasq-dhcp[1]: 6582 DHCPRELEASE(br0) fd00::54 {LL} ",
    ],
}


def leases(spark: SparkSession, found: list[dict[str, Any]], **jobs: Any) -> list[tuple[Any, ...]]:
    """Address, holder, first and last second since START, and why it ended."""
    frame = sessions_of(rows(spark, EVENT, found), JobSettings(session_buckets=2, **jobs))
    return sorted(
        (
            row.ip,
            row.mac,
            (row.lease_start.replace(tzinfo=UTC) - START).total_seconds(),
            (row.lease_end.replace(tzinfo=UTC) - START).total_seconds(),
            row.evidence.ended,
        )
        for row in frame.collect()
    )


def test_dhcpv6_leases_of_three_servers(spark: SparkSession) -> None:
    known = ParseSettings(scopes=((SCOPE, ()),))
    found = [
        row | {"event_uid": f"{source}{row['event_uid']}"}
        for source, lines in V6.items()
        for row in parsed(source, *[line.encode() for line in lines], settings=known)
    ]
    assert leases(spark, found) == [
        ("2001:db8::5", MAC, 0.0, 61.0, "released"),
        ("2001:db8::6", f"duid:{UUID}", 0.0, 300.0, "expired"),
        ("2001:db8::7", f"duid:{UUID}", 10.5, 100.5, "expired"),
        ("fd00::54", MAC, 0.0, 9.0, "released"),
    ]


ISC = {"metadata": {"product": {"name": "ISC DHCP"}}}
SENSOR = {"metadata": {"product": {"name": "Zeek"}}}
SLOW = {"host_name": "slow"}


def test_clocks_that_are_known_to_be_wrong_and_requests_that_count(spark: SparkSession) -> None:
    found = [
        # The clock of `slow` shows 180 s less; it logs by its own time and arrives at the true one.
        dhcp(20 - 180, A, lease=60, late=180, **SLOW),
        dhcp(50 - 180, A, RELEASE, late=180, **SLOW),
        dhcp(20, B, lease=60, ip="10.0.0.2", host_name="right"),
        # Only a server that logs all it answers makes a claim of a request without an answer.
        dhcp(0, A, REQUEST, ip="10.0.0.3", **ISC),
        dhcp(0, A, REQUEST, ip="10.0.0.4", **SENSOR),
        dhcp(0, A, REQUEST, ip="10.0.0.5", **ISC),
        dhcp(30, B, OFFER, ip="10.0.0.5", **ISC),
        dhcp(0, A, REQUEST, ip="10.0.0.6", **ISC),
        dhcp(90, A, NAK, ip="10.0.0.6", status_id=2, **ISC),
        dhcp(0, A, REQUEST, ip="10.0.0.7", status_id=2, **ISC),
        dhcp(0, A, INFORM, ip="10.0.0.8", **ISC),
        dhcp(1, A, ip="10.0.0.8", **ISC),
        dhcp(0, A, REQUEST, ip="fe80::1", **ISC),
        # A client without a hardware address.
        dhcp(0, None, ip="10.0.0.9", src_endpoint={"ip": "10.0.0.9", "uid": "01:AA:BB"}),
    ]
    assert leases(spark, found, clock_ahead_seconds={"slow": -180}) == [
        (IP, A, 20.0, 50.0, "released"),
        ("10.0.0.2", B, 20.0, 80.0, "expired"),
        ("10.0.0.3", A, 60.0, 3600.0, "unanswered"),
        ("10.0.0.9", "id:01:aa:bb", 0.0, 30.0, "expired"),
    ]


SITES = (
    ScopeSettings(name=SCOPE, networks=("2001:db8:0:1::/64", "fd00::/127", "10.0.0.0/24")),
    ScopeSettings(name="branch", networks=("2001:db8:0:2::/63",)),
)
SPELLED = {
    "2001:db8:0:1::": True,
    "2001:db8:0:1:ffff:ffff:ffff:ffff": True,
    "2001:DB8:0000:0001::5": True,
    "2001:db8:0:2::": False,
    "2001:db8::1": False,
    "fd00::": True,
    "fd00::1": True,
    "fd00::2": False,
    "10.0.0.9": True,
    "::": False,
    ":::": False,
    "2001:db8:0:1": False,
    "2001:db8:0:1::5::1": False,
    "2001:db8:0:1:0:0:0:0:0": False,
    "2001:db8:0:1::00005": False,
    "2001:db8:0:1::g": False,
    "2001:db8:0:1::5%eth0": False,
    "a" * 5000: False,
    "a:" * 5000: False,
    "": False,
}


def test_networks_of_both_kinds_are_looked_up_by_number(spark: SparkSession) -> None:
    some = [str(ip_address(n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)) for n in range(1, 60)]
    edges = [str(ip) for net in ("::/128", "2001:db8::/126") for ip in ip_network(net)]
    frame = spark.createDataFrame(
        [(SCOPE, ip) for ip in (*SPELLED, *some, *edges)], "scope string, ip string"
    )
    answers = frame.select(
        "ip",
        in_networks(frame.scope, frame.ip, SITES).alias("inside"),
        ipv6_digits(frame.ip).alias("digits"),
    ).collect()
    assert {r.ip: bool(r.inside) for r in answers if r.ip in SPELLED} == SPELLED
    told = {r.ip: r.digits for r in answers if r.ip in {*some, *edges}}
    assert told == {ip: f"{int(ip_address(ip)):032x}" for ip in (*some, *edges)}


SPELLINGS = {
    "json": '{"src_ip": "2001:DB8::0005", "message": "x"}',
    "zeek:conn": '{"ts": 1795228800.0, "uid": "C1", "id.orig_h": "2001:0db8:0:0::5", '
    '"id.orig_p": 1, "id.resp_h": "10.0.0.1", "id.resp_p": 2, "proto": "tcp"}',
    "sshd": "Nov 21 02:40:27 gw sshd[1]: Failed password for root from 2001:DB8:0::5 port 22 ssh2",
    "nginx": '2001:db8:0000::5 - - [21/Nov/2026:02:40:00 +0000] "GET / HTTP/1.1" 200 1 "-" "x"',
    "isc_dhcpd": V6["isc_dhcpd"][0],
}


@pytest.mark.parametrize("source", SPELLINGS)
def test_an_address_is_spelled_alike_in_events_and_in_leases(source: str) -> None:
    (row,) = parsed(source, SPELLINGS[source].encode())
    assert row["src_ip"] == "2001:db8::5"
