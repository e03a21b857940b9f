"""Lines of dnsmasq, ISC dhcpd and sudo read many at once equal those read one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import ParseSettings, lookup
from ingest.sources.shared import alike_lines
from tests.full import rest_full
from tests.ingest import columnar
from tests.ingest.columnar import SETTINGS, agree, records, texts_in
from tests.ingest.logs import lines
from tests.ingest.sources.dhcp import test_dhcp, test_dhcp_more
from tests.ingest.sources.linux import test_sudo

FILES = ("syslog_rfc3164.log", "syslog_rfc5424.log")
FOLDERS = {
    "dnsmasq": ("lab/dnsmasq", "syslog"),
    "isc_dhcpd": ("lab/dhcpd", "syslog"),
    "sudo": ("syslog",),
}
PROGRAMS = {
    "dnsmasq": ("dnsmasq", "dnsmasq-dhcp"),
    "isc_dhcpd": ("dhcpd", "dhcpd6"),
    "sudo": ("sudo",),
}
MODULES = {
    "dnsmasq": (test_dhcp, test_dhcp_more),
    "isc_dhcpd": (test_dhcp, test_dhcp_more),
    "sudo": (test_sudo,),
}
HEADERS = (
    "Nov 21 03:45:{:02d} {host} {program}[{pid}]: ",
    "<30>Nov  2 03:45:{:02d} {host} {program}: ",
    "<30>1 2026-11-21T03:45:{:02d}.013937+01:00 {host} {program} {pid} - -  ",
    "<30>1 2026-11-21T03:45:{:02d}Z {host} {program} - - - ",
    "2026-11-21T03:45:{:02d}Z {host} {program}[{pid}]: ",
)
TEXTS = {
    "dnsmasq": (
        "query[A] {name} from {ip}",
        "query[type=65] {name} from {ip}",
        "forwarded {name} to {ip2}",
        "forwarded {name} to {ip2}#53",
        "reply {name} is {ip}",
        "cached {name} is <CNAME>",
        "reply {name} is NODATA-IPv6",
        "config {name} is NXDOMAIN",
        "gravity blocked {name} is {ip}",
        "/etc/hosts {name} is {ip}",
        "{number} {ip}/{port} query[AAAA] {name} from {ip}",
        "{number} {ip}/{port} forwarded {name} to {ip2}",
        "{number} {ip}/{port} reply {name} is {ip2}",
        "{number} {ip}/{port} cached {name} is NXDOMAIN",
        "DHCPACK(eth0) {ip} {mac} {name}",
        "DHCPACK(eth0) {ip} {mac}",
        "DHCPACK(eth0) {ip} {mac} ",
        "DHCPDECLINE(eth0) {ip} {mac} {name}",
        "DHCPDISCOVER(eth0) {mac} ",
        "DHCPNAK(eth0) {ip} {mac} wrong network",
        "{number} DHCPACK(eth0) {ip} {mac} {name}",
        "{number} DHCPOFFER(eth0) {ip} {mac}",
        "{number} DHCPDISCOVER(eth0) {mac} no address available",
        "{number} client provides name: {name}",
        "{number} available DHCP subnet: {ip}/255.255.255.0",
        "{number} tags: known, eth0",
        "DHCPSOLICIT(eth0) 00:01:00:01:{mac}:{mac} {name}",
        "DHCPREPLY(eth0) fd00::5 00:01:00:01:00:00:{mac}:{mac} {name}",
        "exiting on receipt of SIGTERM",
    ),
    "isc_dhcpd": (
        "DHCPDISCOVER from {mac} via eth0",
        "DHCPDISCOVER from {mac} ({name}) via {ip2}: unknown network segment",
        "DHCPOFFER on {ip} to {mac} ({name}) via eth0",
        "DHCPREQUEST for {ip} ({ip2}) from {mac} ({name}) via eth0",
        "DHCPREQUEST for {ip} from {mac} ({name}) via eth0: wrong network.",
        "DHCPREQUEST for {ip} from {mac} via eth0 TransID 1a2b3c4d (RENEW)",
        "DHCPACK on {ip} to {mac} ({name}) via eth0",
        "DHCPACK on {ip} to {mac} via sensor-1",
        "DHCPACK on {ip} to {mac} ({name}) via eth0 relay {ip2} lease-duration {number} (RENEW)",
        "DHCPACK on {ip} to {mac} ({name}) via eth0 relay eth0 lease-duration {number} "
        "offered-duration {number} (RENEW) uid 01:02",
        "DHCPACK on {ip} to {mac} via eth0 relay eth0 lease-duration {number}",
        "DHCPACK to {ip} ({mac}) via eth0",
        "DHCPNAK on {ip} to {mac} via eth0",
        "DHCPRELEASE of {ip} from {mac} ({name}) via eth0 (found)",
        "DHCPRELEASE of {ip} from {mac} via eth0 (not found)",
        "DHCPDECLINE of {ip} from {mac} via eth0: abandoned",
        "DHCPINFORM from {ip} via eth0",
        "DHCPEXPIRE on {ip} to {mac}",
        "BOOTREPLY for {ip} to {name} ({mac}) via eth0",
        "Wrote {number} leases to leases file.",
    ),
    "sudo": (
        "{user} : TTY=pts/0 ; PWD=/home/{user} ; USER=root ; COMMAND=/usr/bin/id",
        "{user} : TTY=pts/0 ; PWD=/root ; USER={user} ; COMMAND=/bin/ls -l /",
        "{user} : 3 incorrect password attempts ; TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/sh",
        "{user} : user NOT in sudoers ; TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/sh",
        "{user} : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=a ; USER=b ; COMMAND=c",
        "pam_unix(sudo:session): session opened for user {user}(uid=0) by {user}(uid=1000)",
        "pam_unix(sudo:session): session closed for user {user}",
        "pam_unix(sudo:auth): authentication failure; logname={user} uid=1000 ruser={user}",
        '@cee:{{"sudo":{{"accept":{{"submituser":"{user}","command":"/bin/id"}}}}}}',
        "message repeated 3 times: [ {user} : TTY=x ; PWD=/ ; USER=root ; COMMAND=/bin/id]",
    ),
}
NAMES = st.sampled_from(
    ["laptop", "a.example.org", "is", "from", "via", "no", "unknown", "www", "a", "x--1", "_tcp.a",
     "namea0x", "NXDOMAIN", "success", "a) via b", "a b", "", "caf\u00e9", "1", "10.0.0.1", "a..b",
     "a.", "query[A]", "DHCPACK", "X" * 300]
)  # fmt: skip
IPS = st.sampled_from(
    ["10.77.0.100", "8.8.8.8", "0.0.0.0", "10.0.0.01", "256.1.1.1", "fe80::1", "::ffff:10.0.0.5",
     "198.51.100.201", "203.0.113.144", "10.77.0.1", "1.2.3", "<CNAME>"]
)  # fmt: skip
MACS = st.sampled_from(
    ["02:42:ac:77:00:01", "02:42:AC:77:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00",
     "02:a0:a1:a2:a3:a4", "1:2:3:4:5:6", "02:42:ac:77:00", "02:42:ac:77:00:01:02",
     "06-02:42:ac:77:00:01"]
)  # fmt: skip
HOSTS = st.sampled_from(["vm", "sensor-1", "host.example.org", "UTC", "CET", "Nov", "10.0.0.1"])
NUMBERS = st.sampled_from(["1", "600", "0", "007", "4294967295", "999999999", "99999999999", "x"])
USERS = st.sampled_from(
    ["root", "ROOT", "bob", "a b", "CORP\\anna", "usera0x", "x@y", "user", "for", "", "TTY=1", "_a"]
)
PORTS = st.sampled_from(["53", "0", "65535", "65536", "007", "40000"])


@pytest.fixture(autouse=True, scope="module")
def _however_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike_lines, "FEWEST_LINES", 1)
        patch.setattr(alike_lines, "FEWEST_ALIKE", 1)
        patch.setattr(columnar, "SETTINGS", SITES)
        yield


SITES = ParseSettings(
    scopes=(("north", ("sensor-1", "10.77.0.1")), ("default", ())), leases={"dnsmasq": 1234}
)
"""One site is known by a relay agent too."""


def line(header: str, text: str, second: int = 0, **values: object) -> bytes:
    """A line of a program, with values of its own or the usual ones."""
    given = {"host": "vm", "pid": 4711, "program": "sudo", "user": "bob", "name": "laptop"} | {
        "ip": "10.77.0.100", "ip2": "10.77.0.1", "mac": "02:42:ac:77:00:01", "port": 40000,
        "number": 600,
    } | values  # fmt: skip
    return (header.format(second, **given) + text.format(**given)).encode()


def _program(source: str, text: str) -> str:
    dhcp = source == "dnsmasq" and ("DHCP" in text or text.startswith("{number} "))
    return PROGRAMS[source][dhcp and "/{port}" not in text]


# Of dnsmasq there are the most lines.
@pytest.mark.parametrize("source", rest_full(lambda source: source != "dnsmasq", FOLDERS))
def test_real_logs_are_read_alike(source: str) -> None:
    programs = tuple(f" {name}".encode() for name in PROGRAMS[source])
    for folder in FOLDERS[source]:
        for file in FILES:
            raws = [raw for raw in lines(f"{folder}/{file}") if any(p in raw for p in programs)]
            assert agree(source, raws) >= 0.9 * len(raws), (folder, file)


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("header", HEADERS)
def test_every_usual_wording_is_read_at_once(source: str, header: str) -> None:
    raws = [
        line(header, text, number, program=_program(source, text), **values)
        for number, text in enumerate(TEXTS[source])
        for values in ({}, {"user": "anna", "name": "b.example", "ip": "8.8.8.8", "number": 77})
    ]
    assert agree(source, raws) == len(raws)


@pytest.mark.full
@pytest.mark.parametrize("source", TEXTS)
def test_every_line_of_the_row_readers_tests_is_read_alike(source: str) -> None:
    texts = texts_in(*MODULES[source])
    assert len(texts) > 10
    for program in PROGRAMS[source]:
        agree(
            source,
            [
                line(header, "{user}", user=text, program=program)
                for text in texts
                for header in HEADERS[:3]
            ],
        )


def _drawn(data: st.DataObject, source: str) -> bytes:
    text = data.draw(st.sampled_from(TEXTS[source]))
    return line(
        data.draw(st.sampled_from(HEADERS)),
        text,
        data.draw(st.integers(0, 61)),
        program=data.draw(st.sampled_from([_program(source, text), *PROGRAMS[source]])),
        host=data.draw(HOSTS),
        pid=data.draw(st.sampled_from([1, 4711, 0, 7654321, 99999999999])),
        user=data.draw(USERS),
        name=data.draw(NAMES),
        ip=data.draw(IPS),
        ip2=data.draw(IPS),
        mac=data.draw(MACS),
        number=data.draw(NUMBERS),
        port=data.draw(PORTS),
    )


@pytest.mark.parametrize("source", TEXTS)
@given(data=st.data())
def test_lines_of_any_names_are_read_alike(source: str, data: st.DataObject) -> None:
    agree(source, [_drawn(data, source) for _ in range(data.draw(st.integers(1, 4)))])


@pytest.mark.full
@pytest.mark.parametrize("source", TEXTS)
@given(data=st.data())
def test_lines_with_any_bytes_changed_are_read_alike(source: str, data: st.DataObject) -> None:
    raws = []
    for _ in range(data.draw(st.integers(1, 4))):
        raw = bytearray(_drawn(data, source))
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(raw) - 1))
            raw[place : place + data.draw(st.integers(0, 3))] = data.draw(
                st.one_of(
                    st.binary(max_size=3),
                    st.sampled_from([b" from ", b"\n", b" ", b"]: ", b") via ", b" ; USER=x"]),
                )
            )
        raws.append(bytes(raw))
    agree(source, raws)


def test_a_relay_agent_tells_the_site() -> None:
    text = "DHCPDISCOVER from {mac} via {ip2}"
    batch = records("isc_dhcpd", [line(HEADERS[0], text, program="dhcpd", ip2=ip)
                                  for ip in ("10.77.0.1", "10.9.9.9")])  # fmt: skip
    read = lookup("isc_dhcpd").columns(batch, SITES)
    assert read is not None
    assert read.events is not None
    assert sorted(read.events.column("scope").to_pylist()) == ["default", "north"]


def test_other_settings_make_other_events() -> None:
    batch = records("dnsmasq", [line(HEADERS[0], "DHCPACK(eth0) {ip} {mac} {name}",
                                     program="dnsmasq-dhcp")])  # fmt: skip
    spans = []
    for settings in (SITES, SETTINGS, SITES):
        read = lookup("dnsmasq").columns(batch, settings)
        assert read is not None
        assert read.events is not None
        spans += read.events.column("lease_dur").to_pylist()
    assert spans == [1234, 86400, 1234]
