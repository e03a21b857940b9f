"""sshd's lines read many at once equal those read one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import ParseSettings, lookup
from ingest.sources.shared import alike_lines
from tests.ingest import columnar
from tests.ingest.columnar import SETTINGS, agree, records, texts_in
from tests.ingest.logs import lines
from tests.ingest.sources.linux import test_sshd

FILES = ("syslog/syslog_rfc3164.log", "syslog/syslog_rfc5424.log")
HEADERS = (
    "Nov 21 03:45:{:02d} {host} sshd[{pid}]: ",
    "<86>Nov  2 03:45:{:02d} {host} sshd-session[{pid}]: ",
    "<86>1 2026-11-21T03:45:{:02d}.013937+01:00 {host} sshd {pid} - -  ",
    "2026-11-21T03:45:{:02d}Z {host} sshd[{pid}]: ",
)
TEXTS = (
    "Accepted password for {user} from {ip} port {port} ssh2",
    "Accepted publickey for {user} from {ip} port {port} ssh2: RSA SHA256:x7",
    "Accepted publickey for {user} from {ip} port {port} ssh2: RSA-CERT ID a (serial 1) CA RSA x",
    "Failed password for {user} from {ip} port {port} ssh2",
    "Failed keyboard-interactive/pam for invalid user {user} from {ip} port {port} ssh2",
    "Postponed keyboard-interactive for {user} from {ip} port {port} ssh2 [preauth]",
    "Invalid user {user} from {ip} port {port}",
    "Connection closed by invalid user {user} {ip} port {port} [preauth]",
    "Connection reset by authenticating user {user} {ip} port {port} [preauth]",
    "Disconnected from user {user} {ip} port {port}",
    "Disconnecting authenticating user {user} {ip} port {port}: Too many [preauth]",
    "Disconnected from {ip} port {port}",
    'Connection from {ip} port {port} on 10.77.0.1 port 22 rdomain ""',
    "Connection closed by {ip} port {port} [preauth]",
    "Received disconnect from {ip} port {port}:11: disconnected by user",
    "Close session: user {user} from {ip} port {port} id 0",
    "Starting session: command for {user} from {ip} port {port} id 0",
    "error: PAM: Authentication failure for illegal user {user} from {ip}",
    "pam_unix(sshd:session): session opened for user {user}(uid=1001) by (uid=0)",
    "pam_unix(sshd:session): session closed for user {user}",
    "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= "
    "rhost={ip}  user={user}",
    "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost={ip} ",
    "pam_unix(sshd:auth): check pass; user unknown",
    "message repeated 2 times: [ Failed password for {user} from {ip} port {port} ssh2]",
    "Server listening on {ip} port 22.",
    "something else",
)
HOSTS = st.sampled_from(["vm", "sensor-1", "host.example.org", "UTC", "CET", "Nov", "10.0.0.1"])
USERS = st.one_of(
    st.sampled_from(["root", "ROOT", "bob", "invalid", "user", "from", "port", "by", "unknown"]),
    st.sampled_from(["CORP\\anna", "a from 6.6.6.6", "a b", "", "usera0x", "sshd", "x@y", "alicé"]),
    st.text(max_size=6),
)
IPS = st.sampled_from(
    [
        *("10.77.0.100", "8.8.8.8", "0.0.0.0", "127.0.0.1", "10.0.0.01", "256.1.1.1", "::1"),
        *("fe80::1", "UNKNOWN", "a.example", "198.51.100.201", "::ffff:10.0.0.5"),
    ]
)
PORTS = st.sampled_from(["22", "0", "65535", "65536", "54321", "1", "007", "x"])


@pytest.fixture(autouse=True, scope="module")
def _however_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike_lines, "FEWEST_LINES", 1)
        patch.setattr(alike_lines, "FEWEST_ALIKE", 1)
        yield


@pytest.mark.parametrize("path", FILES)
def test_real_logs_are_read_alike(path: str) -> None:
    raws = [raw for raw in lines(path) if b" sshd" in raw]
    assert agree("sshd", raws) >= 0.95 * len(raws)


def line(header: str, text: str, number: int = 0, **values: object) -> bytes:
    """A line of sshd."""
    given = {"host": "vm", "pid": 4711, "user": "bob", "ip": "10.0.0.5", "port": 40000} | values
    return (header.format(number, **given) + text.format(**given)).encode()


@pytest.mark.parametrize("header", HEADERS)
def test_every_usual_wording_is_read_at_once(header: str) -> None:
    raws = [
        line(header, text, number, user=user, ip=ip, pid=number + 1, port=port)
        for number, text in enumerate(TEXTS[:23])
        for user, ip, port in (("bob", "10.0.0.5", 1), ("root", "8.8.8.8", 65535))
    ]
    assert agree("sshd", raws) == len(raws)


def test_every_line_of_the_row_reader_is_read_alike() -> None:
    texts = texts_in(test_sshd)
    assert len(texts) > 50
    agree("sshd", [line(header, "{user}", user=text) for text in texts for header in HEADERS[:2]])


@given(data=st.data())
def test_lines_of_any_names_are_read_alike(data: st.DataObject) -> None:
    raws = [
        line(
            data.draw(st.sampled_from(HEADERS)),
            data.draw(st.sampled_from(TEXTS)),
            data.draw(st.integers(0, 61)),
            host=data.draw(HOSTS),
            pid=data.draw(st.sampled_from([1, 4711, 0, 7654321, 99999999999])),
            user=data.draw(USERS),
            ip=data.draw(IPS),
            port=data.draw(PORTS),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    agree("sshd", raws)


@pytest.mark.full
@given(data=st.data())
def test_lines_with_any_bytes_changed_are_read_alike(data: st.DataObject) -> None:
    raws = []
    for _ in range(data.draw(st.integers(1, 4))):
        raw = bytearray(
            line(data.draw(st.sampled_from(HEADERS)), data.draw(st.sampled_from(TEXTS)))
        )
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(raw) - 1))
            raw[place : place + data.draw(st.integers(0, 3))] = data.draw(
                st.one_of(st.binary(max_size=3), st.sampled_from([b" from ", b"\n", b" ", b"user"]))
            )
        raws.append(bytes(raw))
    agree("sshd", raws)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_without_a_year_are_read_alike(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ParseSettings(zones={"sshd": zone}, host_zones={"sshd": {"vm": "Asia/Tokyo"}})
    monkeypatch.setattr(columnar, "SETTINGS", settings)
    days = (
        "Nov 21",
        "Nov 22",
        "Dec 31",
        "Jan  1",
        "Feb 29",
        "Feb 30",
        "Oct 25",
        "Mar 29",
        "Xxx 11",
    )
    clocks = ("02:30:00", "23:59:59", "24:00:00", "00:00:00")
    raws = [
        f"{day} {clock} {host} sshd[7]: something".encode()
        for day in days
        for clock in clocks
        for host in ("vm", "other")
    ]
    assert agree("sshd", raws) >= len(raws) / 2


def test_few_lines_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike_lines, "FEWEST_ALIKE", 3)
    often, seldom = line(HEADERS[0], TEXTS[0]), line(HEADERS[0], TEXTS[6])
    read = lookup("sshd").columns(records("sshd", [often, seldom, often, often]), SETTINGS)
    assert read is not None
    assert read.left == [1]
    monkeypatch.setattr(alike_lines, "FEWEST_LINES", 5)
    read = lookup("sshd").columns(records("sshd", [often] * 4), SETTINGS)
    assert read is not None
    assert (read.events, read.left) == (None, [0, 1, 2, 3])


def test_a_record_with_a_header_is_left_to_be_read_by_itself() -> None:
    batch = records("sshd", [line(HEADERS[0], TEXTS[0])], [{"key": "host", "value": b"h"}])
    read = lookup("sshd").columns(batch, SETTINGS)
    assert read is not None
    assert (read.events, read.left) == (None, [0])
