"""Four DHCP dialects, one kind of event."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from ingest.parsing.source import ParseSettings
from tests.ingest.logs import good, lines, reason, rows

MAC = "02:42:ac:77:0b:10"


def dhcpd(text: str, **more: Any) -> dict[str, Any]:
    return good("isc_dhcpd", f"<30>1 2026-03-02T09:00:00Z vm dhcpd 1 - - {text}", **more)


def client(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["activity_id"], row.get("src_ip"), row.get("mac"), row["src_endpoint"]["hostname"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"DHCPACK on 10.7.0.1 to {MAC} (lt-1) via br0", (5, "10.7.0.1", MAC, "lt-1")),
        (f"DHCPACK on 10.7.0.1 to {MAC} via br0", (5, "10.7.0.1", MAC, None)),
        (f"DHCPOFFER on 10.7.0.1 to {MAC} (lt-1) via br0", (2, "10.7.0.1", MAC, "lt-1")),
        (f"DHCPREQUEST for 10.7.0.1 from {MAC} via br0", (3, "10.7.0.1", MAC, None)),
        (
            f"DHCPREQUEST for 10.7.0.1 (10.7.0.9) from {MAC} (a b) via br0",
            (3, "10.7.0.1", MAC, "a b"),
        ),
        (f"DHCPDISCOVER from {MAC} (lt-1) via br0", (1, None, MAC, "lt-1")),
        (f"DHCPRELEASE of 10.7.0.1 from {MAC} (l) via br0 (found)", (7, "10.7.0.1", MAC, "l")),
        (f"DHCPDECLINE of 10.7.0.1 from {MAC} via br0: abandoned", (4, "10.7.0.1", MAC, None)),
        (f"DHCPNAK on 10.7.0.1 to {MAC} via br0", (6, "10.7.0.1", MAC, None)),
        (f"DHCPEXPIRE on 10.7.0.1 to {MAC} via br0", (9, "10.7.0.1", MAC, None)),
        ("DHCPINFORM from 10.7.0.1 via br0", (8, "10.7.0.1", None, None)),
    ],
)
def test_dhcpd(text: str, expected: tuple[Any, ...]) -> None:
    row = dhcpd(text)
    assert row["class_uid"] == 4004
    assert client(row) == expected
    assert row["message"] == text


def test_the_answer_to_an_inform_leases_nothing() -> None:
    row = dhcpd(f"DHCPACK to 10.7.0.1 ({MAC}) via br0")
    assert (row["activity_id"], row["activity_name"]) == (99, "Inform Ack")
    assert row["lease_dur"] is None


def test_a_refusal_is_a_failure() -> None:
    free = dhcpd(f"DHCPDISCOVER from {MAC} via br0: network 10.7.0.0/24: no free leases")
    assert (free["status_id"], free["status_detail"]) == (2, "network 10.7.0.0/24: no free leases")
    lost = dhcpd(f"DHCPRELEASE of 10.7.0.1 from {MAC} via br0 (not found)")
    assert (lost["activity_id"], lost["status_id"], lost["status_detail"]) == (7, 2, "not found")


def test_a_relay_is_an_address_an_interface_is_none() -> None:
    assert dhcpd(f"DHCPACK on 10.7.0.1 to {MAC} via 10.9.0.1")["relay_ip"] == "10.9.0.1"
    row = dhcpd(f"DHCPACK on 10.7.0.1 to {MAC} via eth0")
    assert row["relay_ip"] is None
    assert json.loads(row["unmapped"])["interface"] == "eth0"


def test_a_host_name_cannot_forge_the_rest_of_the_line() -> None:
    name = "x) via eth9 DHCPACK on 10.6.6.6 to 66:66:66:66:66:66 (y"
    row = dhcpd(f"DHCPACK on 10.7.0.1 to {MAC} ({name}) via 10.9.0.1")
    assert client(row) == (5, "10.7.0.1", MAC, name)
    assert row["relay_ip"] == "10.9.0.1"


def test_an_infoblox_grant_says_how_long_it_lasts() -> None:
    row = dhcpd(
        f"DHCPACK on 10.7.0.1 to {MAC} (lt-1) via eth1 relay 10.9.0.1 lease-duration 600 "
        f"(RENEW) uid 01:{MAC}"
    )
    assert client(row) == (5, "10.7.0.1", MAC, "lt-1")
    assert (row["lease_dur"], row["is_renewal"], row["relay_ip"]) == (600, True, "10.9.0.1")


def test_the_length_of_a_lease_comes_from_the_settings_where_the_log_has_none() -> None:
    ack = f"DHCPACK on 10.7.0.1 to {MAC} via br0"
    known = ParseSettings(leases={"isc_dhcpd": 45})
    assert dhcpd(ack, settings=known)["lease_dur"] == 45
    assert dhcpd(ack)["lease_dur"] == 86400
    assert dhcpd(f"DHCPOFFER on 10.7.0.1 to {MAC} via br0", settings=known)["lease_dur"] is None


def test_dhcpd_lab() -> None:
    found = rows("isc_dhcpd", *lines("lab/dhcpd/syslog_rfc3164.log"))
    assert Counter(row["activity_name"] for row in found if row["class_uid"] == 4004) == {
        "Discover": 327,
        "Request": 64,
        "Ack": 64,
        "Offer": 31,
        "Release": 14,
    }


def test_kea_lab() -> None:
    found = rows("kea_dhcp4", *lines("lab/kea/kea-dhcp4.log"), tz="Europe/Berlin")
    dhcp = [row for row in found if row["class_uid"] == 4004]
    assert Counter(row["activity_name"] for row in dhcp) == {
        "Allocation failed": 260,
        "Ack": 77,
        "Offer": 56,
        "Release": 32,
    }
    row = next(row for row in dhcp if row["activity_id"] == 5)
    assert client(row) == (5, "10.77.0.100", "02:42:ac:77:0c:12", None)
    assert row["lease_dur"] == 45
    assert row["transaction_uid"] == "0x6031c412"
    assert row["metadata"]["event_code"] == "DHCP4_LEASE_ALLOC"
    assert row["time"].isoformat() == "2026-11-21T02:45:22.587000+00:00"
    assert row["time_quality"] == "assumed_zone"


def test_kea_through_syslog_says_the_same_as_its_own_log() -> None:
    names = ("activity_id", "src_ip", "mac", "lease_dur", "transaction_uid", "message")
    own, syslog = (
        [
            tuple(row[name] for name in names)
            for row in rows("kea_dhcp4", *lines(path), tz="Europe/Berlin")
            if row["class_uid"] == 4004
        ]
        for path in ("lab/kea/kea-dhcp4.log", "syslog/syslog_rfc5424.log")
    )
    assert len(syslog) > 100
    assert own[: len(syslog)] == syslog


@pytest.mark.parametrize(
    ("text", "activity", "ip", "status", "lease"),
    [
        ("DHCP4_LEASE_REUSE [{c}: lease 10.7.0.1 has been reused for 30 seconds", 5, 1, 1, 30),
        (
            "DHCP4_LEASE_ALLOC [{c}: lease 10.7.0.1 has been allocated for infinity seconds",
            5,
            1,
            1,
            2**32 - 1,
        ),
        ("DHCP4_LEASE_OFFER [{c}: lease 10.7.0.1 will be offered", 2, 1, 1, None),
        ("DHCP4_RELEASE_EXPIRED [{c}: address 10.7.0.1 expired on release", 7, 1, 1, None),
        (
            "DHCP4_RELEASE_FAIL_WRONG_CLIENT [{c}: client is trying to release the lease "
            "10.7.0.1 which belongs to a different client",
            7,
            1,
            2,
            None,
        ),
        (
            "DHCP4_DECLINE_LEASE Received DHCPDECLINE for addr 10.7.0.1 from client [{c}. "
            "The lease will be unavailable for 86400 seconds.",
            4,
            1,
            2,
            None,
        ),
        (
            "ALLOC_ENGINE_V4_LEASE_RECLAIM [{c}: expired lease for address 10.7.0.1",
            9,
            1,
            1,
            None,
        ),
    ],
)
def test_kea_messages(text: str, activity: int, ip: int, status: int, lease: int | None) -> None:
    who = f"hwtype=1 {MAC}], cid=[01:{MAC}], tid=0xabc"
    line = f"2026-03-02 09:00:00.123 INFO  [kea-dhcp4.leases/1.2] {text.format(c=who)}"
    row = good("kea_dhcp4", line)
    assert (row["activity_id"], row["src_ip"], row["mac"]) == (activity, f"10.7.0.{ip}", MAC)
    assert (row["status_id"], row["lease_dur"], row["transaction_uid"]) == (status, lease, "0xabc")


@pytest.mark.parametrize(
    ("code", "words", "name", "status"),
    [
        (
            "DHCP6_PD_LEASE_ALLOC",
            "lease for prefix 2001:db8:1::/56 and iaid=12 has been allocated for 3600 seconds",
            "Reply prefix",
            1,
        ),
        (
            "DHCP6_PD_LEASE_ADVERT",
            "lease for prefix 2001:db8:1::/56 and iaid=12 will be advertised",
            "Advertise prefix",
            1,
        ),
        (
            "DHCP6_RELEASE_PD",
            "prefix 2001:db8:1::/56 for iaid=12 was released properly",
            "Release prefix",
            1,
        ),
        (
            "DHCP6_RELEASE_PD_FAIL_WRONG_DUID",
            "client tried to release prefix 2001:db8:1::/56, but it belongs to another client",
            "Release prefix",
            2,
        ),
    ],
)
def test_prefixes_of_kea_are_no_leases(code: str, words: str, name: str, status: int) -> None:
    who = "duid=[00:03:00:01:aa:bb:cc:00:11:22], [no hwaddr info], tid=0xa1"
    row = good(
        "kea_dhcp4", f"2026-03-02 09:00:00.123 INFO  [kea-dhcp6.leases/1.2] {code} {who}: {words}"
    )
    assert (row["activity_id"], row["activity_name"], row["status_id"]) == (99, name, status)
    assert (row["src_ip"], row["mac"]) == ("2001:db8:1::", "aa:bb:cc:00:11:22")
    assert json.loads(row["unmapped"])["prefix_length"] == "56"


def test_dnsmasq_lab() -> None:
    found = rows("dnsmasq", *lines("lab/dnsmasq/syslog_rfc3164.log"), tz="America/New_York")
    dhcp = [row for row in found if row["class_uid"] == 4004]
    assert Counter(row["activity_name"] for row in dhcp) == {
        "Discover": 390,
        "Offer": 84,
        "Request": 62,
        "Ack": 42,
        "Nak": 20,
        "Release": 10,
    }
    ack = next(row for row in dhcp if row["activity_id"] == 5)
    assert ack["src_endpoint"]["hostname"]
    assert ack["transaction_uid"].isdigit()
    nak = next(row for row in dhcp if row["activity_id"] == 6)
    assert (nak["status_id"], nak["status_detail"]) == (2, "address in use")
    assert nak["src_endpoint"]["hostname"] is None
    options = [row for row in found if row["message"].startswith("lease-time")]
    assert options == []
    tied = [row for row in found if row["metadata"].get("correlation_uid")]
    assert {row["class_uid"] for row in tied} == {0}


def test_dnsmasq_without_transaction_numbers() -> None:
    row = good("dnsmasq", f"Mar  2 09:00:00 gw dnsmasq-dhcp[9]: DHCPACK(br0) 10.7.0.1 {MAC} lt-1")
    assert client(row) == (5, "10.7.0.1", MAC, "lt-1")
    assert row["transaction_uid"] is None


def test_dnsmasq_questions_are_dns_events() -> None:
    row = good("dnsmasq", "Mar  2 09:00:00 gw dnsmasq[9]: query[TXT] a.example from 10.7.0.1")
    assert (row["class_uid"], row["activity_id"], row["src_ip"]) == (4003, 1, "10.7.0.1")
    assert row["query"] == {"hostname": "a.example", "type": "TXT"}


def test_windows_lab() -> None:
    found = rows("windows_dhcp", *lines("lab/windows/DhcpSrvLog-Fri.log"), tz="America/Los_Angeles")
    assert Counter(row["activity_name"] for row in found if row["class_uid"] == 4004) == {
        "Ack": 51,
        "Expire": 17,
        "Release": 14,
    }
    ack = next(row for row in found if row["class_uid"] == 4004)
    assert client(ack) == (5, "10.77.0.100", "02:42:ac:77:0b:19", "lt-1109.corp.example")
    assert ack["time"].isoformat() == "2026-11-21T02:40:27+00:00"
    assert ack["transaction_uid"] == "7000021"
    assert ack["is_renewal"] is False
    assert json.loads(ack["unmapped"])["VendorClass(ASCII)"] == "MSFT 5.0"
    renewals = [row for row in found if row.get("is_renewal")]
    assert len(renewals) == 20


def test_the_preface_of_a_windows_log_is_no_dead_letter() -> None:
    found = rows("windows_dhcp", *lines("lab/windows/DhcpSrvLog-Fri.log")[:11])
    assert {row["class_uid"] for row in found} == {0}
    assert found[0]["message"] == "Microsoft DHCP Service Activity Log"


def test_a_comma_in_a_windows_host_name_cannot_shift_the_hardware_address() -> None:
    entry = "10,03/02/26,09:00:00,Assign,10.7.0.1,x,0242AC770B66,0242AC770B10,,7,0,,,,,,,,,0"
    assert reason("windows_dhcp", entry) == "20 fields; an entry has 7 to 19"


@pytest.mark.parametrize(
    ("code", "activity", "status"),
    [(13, 4, 2), (14, 99, 2), (15, 6, 2), (16, 9, 1), (17, 9, 1), (18, 9, 1), (20, 5, 1)],
)
def test_windows_event_ids(code: int, activity: int, status: int) -> None:
    row = good("windows_dhcp", f"{code},03/02/26,09:00:00,Words,10.7.0.1,lt,0242AC770B10,")
    assert (row["activity_id"], row["status_id"]) == (activity, status)
    assert client(row)[1:] == ("10.7.0.1", MAC, "lt")


@pytest.mark.parametrize("spelled", ["0242AC770B10", "02-42-ac-77-0b-10", "02:42:AC:77:0B:10"])
def test_a_hardware_address_has_one_spelling(spelled: str) -> None:
    line = f"10,03/02/26,09:00:00,Assign,10.7.0.1,lt,{spelled},"
    assert good("windows_dhcp", line)["mac"] == MAC
