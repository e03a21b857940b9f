"""Syslog's framings, and the way of a line to the source that knows its program."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import Unreadable, lookup
from ingest.parsing.syslog import restamp
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import NOW, good, reason, row, rows

WHEN = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
TEN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
FIELDS = ("time", "host", "program", "pid")


@pytest.mark.parametrize(
    ("raw", "time", "host", "program", "text", "moved"),
    [
        ("<34>Nov 21 03:00:00 h x[1]: t", TEN, "h", "x", "t", "<34>Jul  9 05:04:03 h x[1]: t"),
        ("Nov 1 03:00:00 h x[1]: t", TEN.replace(day=1), "h", "x", "t", "Jul 9 05:04:03 h x[1]: t"),
        ("<34> Nov 21 03:00:00 h x: t", TEN, "h", "x", "t", "<34> Jul  9 05:04:03 h x: t"),
        (
            "Nov 21 03:00:00.125 h x: t",
            TEN.replace(microsecond=125000),
            "h",
            "x",
            "t",
            "Jul  9 05:04:03.210 h x: t",
        ),
        ("Nov 21 2026 03:00:00 fw x: t", TEN, "fw", "x", "t", "Jul  9 2031 05:04:03 fw x: t"),
        ("Nov 21 03:00:00 2026 h x: t", TEN, "h", "x", "t", "Jul  9 05:04:03 2031 h x: t"),
        ("Sat Nov 21 03:00:00 2026 h x: t", TEN, "h", "x", "t", "Wed Jul  9 05:04:03 2031 h x: t"),
        (
            "Nov 21 03:00:00 -0600 h x: t",
            TEN.replace(hour=9),
            "h",
            "x",
            "t",
            "Jul  8 23:04:03 -0600 h x: t",
        ),
        ("Nov 21 04:00:00 CET h x: t", TEN, "h", "x", "t", "Jul  9 06:04:03 CET h x: t"),
        (
            "Nov 21 03:00:00 x[1]: no host",
            TEN,
            None,
            "x",
            "no host",
            "Jul  9 05:04:03 x[1]: no host",
        ),
        (
            "<34>2026-11-21T04:00:00.5+01:00 h x-y[1]: t",
            TEN.replace(microsecond=500000),
            "h",
            "x-y",
            "t",
            "<34>2031-07-09T06:04:03.2+01:00 h x-y[1]: t",
        ),
        (
            "2026-11-21 03:00:00,125 h x: t",
            TEN.replace(microsecond=125000),
            "h",
            "x",
            "t",
            "2031-07-09 05:04:03,210 h x: t",
        ),
        ("2026-11-21 03:00:00 UTC h x: t", TEN, "h", "x", "t", "2031-07-09 05:04:03 UTC h x: t"),
        (
            "37 <34>1 2026-11-21T03:00:00Z h app - - - t",
            TEN,
            "h",
            "app",
            "t",
            "37 <34>1 2031-07-09T05:04:03Z h app - - - t",
        ),
        (
            "\ufeff<34>Nov 21 03:00:00 h x: t",
            TEN,
            "h",
            "x",
            "t",
            "\ufeff<34>Jul  9 05:04:03 h x: t",
        ),
        (
            "<34>Nov 21 03:00:00 fe80::1 x[12]: t",
            TEN,
            "fe80::1",
            "x",
            "t",
            "<34>Jul  9 05:04:03 fe80::1 x[12]: t",
        ),
        (
            "Nov 21 03:00:00 h postfix/smtpd[1]: t",
            TEN,
            "h",
            "postfix/smtpd",
            "t",
            "Jul  9 05:04:03 h postfix/smtpd[1]: t",
        ),
        (
            "Nov 21 03:00:00 h com.apple.xpc.launchd[1] (com.apple.x[2]): t",
            TEN,
            "h",
            "com.apple.xpc.launchd",
            "t",
            "Jul  9 05:04:03 h com.apple.xpc.launchd[1] (com.apple.x[2]): t",
        ),
        (
            '<34>1 2026-11-21T03:00:00.000000009Z h app p-1 ID [a@1 x="]\\]"] t',
            TEN,
            "h",
            "app",
            "t",
            '<34>1 2031-07-09T05:04:03.210987000Z h app p-1 ID [a@1 x="]\\]"] t',
        ),
        (
            "<34>1 2026-11-21T03:00:00Z h app 12 ID no data",
            TEN,
            "h",
            "app",
            "no data",
            "<34>1 2031-07-09T05:04:03Z h app 12 ID no data",
        ),
        (
            "<134>1 1795230000.5 MX84 flows src=1.2.3.4",
            TEN.replace(microsecond=500000),
            "MX84",
            None,
            "flows src=1.2.3.4",
            "<134>1 1941339843.2 MX84 flows src=1.2.3.4",
        ),
        (
            "<189>123: *Nov 21 03:00:00.123: %SYS-5-CONFIG_I: t",
            TEN.replace(microsecond=123000),
            None,
            "%SYS-5-CONFIG_I",
            "t",
            "<189>123: *Jul  9 05:04:03.210: %SYS-5-CONFIG_I: t",
        ),
        (
            "<189>55: r1: Nov 21 04:00:00.5 CET: %SEC-6-IPACCESSLOGP: t",
            TEN.replace(microsecond=500000),
            "r1",
            "%SEC-6-IPACCESSLOGP",
            "t",
            "<189>55: r1: Jul  9 06:04:03.2 CET: %SEC-6-IPACCESSLOGP: t",
        ),
        (
            "<34>: 2026 Nov 21 04:00:00 CET: %ETH-5-IF_DOWN: t",
            TEN,
            None,
            "%ETH-5-IF_DOWN",
            "t",
            "<34>: 2031 Jul  9 06:04:03 CET: %ETH-5-IF_DOWN: t",
        ),
        ("<13>Nov 21 03:00:00", TEN, None, None, "", "<13>Jul  9 05:04:03"),
    ],
)
def test_framings(
    raw: str, time: datetime, host: str | None, program: str | None, text: str, moved: str
) -> None:
    found = good("syslog", raw)
    assert found["time"] == time
    assert (found["host_name"], found["metadata"].get("log_provider")) == (host, program)
    assert found["message"] == text
    assert faults(found) == []
    assert misfits(found) == []
    assert restamp(raw.encode(), WHEN, ZoneInfo("UTC")) == moved.encode()


def test_what_a_header_says_besides_is_kept() -> None:
    raw = '37 <34>1 2026-11-21T03:00:00Z h /usr/sbin/x p-1 ID [a@1 x="\\]"] t'
    assert json.loads(good("syslog", raw)["unmapped"]) == {
        "facility": 4,
        "level": 2,
        "msgid": "ID",
        "structured_data": '[a@1 x="\\]"]',
        "pid": "p-1",
        "octets": 37,
        "program_path": "/usr/sbin/x",
    }
    relayed = good("syslog", "Nov 21 03:00:00 10.0.0.1 123: *Mar  1 00:00:00.123: %SYS-5-X: t")
    assert json.loads(relayed["unmapped"]) == {
        "relay_tag": "123",
        "device_time": "Mar  1 00:00:00.123",
    }


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<13>hello world", "hello world"),
        ("<6>[ 12.3] kernel text", "[ 12.3] kernel text"),
        ("<13>thing[12]: t", "t"),
        ("<13>@#! what", "@#! what"),
    ],
)
def test_a_priority_alone_makes_an_event_of_its_arrival(raw: str, text: str) -> None:
    found = good("syslog", raw)
    assert (found["class_uid"], found["message"]) == (0, text)
    assert (found["time"], found["time_quality"]) == (NOW, "received")
    with pytest.raises(Unreadable, match="no time in the syslog header"):
        restamp(raw.encode(), WHEN, ZoneInfo("UTC"))


@pytest.mark.parametrize(
    "raw",
    [b"hello world", b"<13>", b"<13> ", b'{"a":1}', b"<34>1 2026-11-21T03:00:00Z h a 1 - [x t"],
)
def test_what_has_neither_priority_nor_time_is_refused(raw: bytes) -> None:
    assert "no syslog header" in reason("syslog", raw)


@pytest.mark.parametrize(("level", "severity"), [(0, 6), (2, 5), (3, 4), (4, 3), (5, 2), (6, 1)])
def test_the_level_is_the_severity(level: int, severity: int) -> None:
    assert good("syslog", f"<{8 + level}>Nov 21 03:00:00 h x: t")["severity_id"] == severity


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            "Nov 21 03:00:00 h sshd[1]: Failed password for root from 10.0.0.5 port 5 ssh2",
            (3002, "OpenSSH"),
        ),
        (
            "Nov 21 03:00:00 h sudo: ann : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/ls",
            (1007, "sudo"),
        ),
        (
            "Nov 21 03:00:00 h kernel: [UFW BLOCK] IN=eth0 OUT= MAC= SRC=10.0.0.5 DST=10.0.0.6 "
            "LEN=40 PROTO=TCP SPT=1 DPT=22",
            (4001, "netfilter"),
        ),
        ("Nov 21 03:00:00 h kernel: usb 1-1: new device", (0, "syslog")),
        (
            'Nov 21 03:00:00 h kernel: audit: type=1400 audit(1600000000.1:2): apparmor="DENIED" '
            'operation="open" name="/etc/x" pid=1 comm="c"',
            (1001, "Linux Audit"),
        ),
        ("Nov 21 03:00:00 h su: (to root) ann on pts/0", (3002, "su")),
        (
            "Nov 21 03:00:00 h anything: pam_unix(anything:session): session closed for user ann",
            (3002, "Linux-PAM"),
        ),
        ('Nov 21 03:00:00 h app: {"user":"ann","src_ip":"10.0.0.5"}', (0, "JSON")),
        ("Nov 21 03:00:00 h nobody-knows[1]: t", (0, "syslog")),
    ],
)
def test_lines_go_to_the_source_that_knows_them(raw: str, expected: tuple[int, str]) -> None:
    found = good("syslog", raw)
    assert faults(found) == []
    assert (found["class_uid"], found["metadata"]["product"]["name"]) == expected
    assert found["host_name"] == "h"


def test_json_in_syslog_keeps_what_its_framing_says() -> None:
    found = good("syslog", '<134>Nov 21 03:00:00 h app[7]: {"user":"ann","src_ip":"10.0.0.5"}')
    assert (found["src_ip"], found["user_name"], found["time"]) == ("10.0.0.5", "ann", TEN)
    assert found["actor"]["process"]["pid"] == 7
    assert json.loads(found["unmapped"]) == {"facility": 16, "level": 6}


@pytest.mark.parametrize(
    "raw",
    [
        "Nov 21 03:00:00 fw CEF:0|Vendor|Product|1.0|100|name|5|src=10.0.0.5 dst=10.0.0.6",
        "<166>Nov 21 2026 03:00:00: %ASA-6-302013: Built inbound TCP connection 1 for "
        "outside:10.0.0.5/1 (10.0.0.5/1) to inside:10.0.0.6/22 (10.0.0.6/22)",
        "<189>date=2026-11-21 time=03:00:00 devname=fw type=traffic subtype=forward "
        "srcip=10.0.0.5 dstip=10.0.0.6",
    ],
)
def test_formats_known_by_their_text_are_read_by_their_sources(raw: str) -> None:
    assert good("syslog", raw)["src_ip"] == "10.0.0.5"


def test_nobody_writes_a_second_line() -> None:
    raw = b"Nov 21 03:00:00 h sshd[1]: Failed\nNov 21 03:00:00 h sshd[1]: Accepted"
    assert "a second line starts" in reason("syslog", raw)


def test_a_whole_event_of_sysmon_that_was_cut_is_read_as_far_as_it_goes() -> None:
    event = (
        "<Event><System><Provider Name='Linux-Sysmon'/><EventID>1</EventID>"
        "<TimeCreated SystemTime='2026-11-21T03:00:00.5Z'/><Computer>h</Computer></System>"
        "<EventData><Data Name='UtcTime'>2026-11-21 03:00:00.500</Data>"
        "<Data Name='ProcessId'>7</Data><Data Name='Image'>/bin/sh</Data>"
        "<Data Name='CommandLine'>sh -c id"
    )
    found = good("syslog", f"Nov 21 03:00:00 h sysmon[1]: {event}")
    assert found["process"]["cmd_line"] == "sh -c id"
    assert json.loads(found["more"])["metadata"]["is_truncated"] is True
    found = good("syslog", f"Nov 21 03:00:00 h sysmon[1]: {event[:-20]}")
    assert found["process"]["path"] == "/bin/sh"


def test_the_same_bytes_give_the_same_events() -> None:
    raws = [b"<13>Nov 21 03:00:00 h x: t", b"Nov 21 03:00:00 h sshd[1]: Invalid user a from ::1"]
    assert rows("syslog", *raws) == rows("syslog", *raws)
    assert lookup("syslog").name == "syslog"


def test_long_hostile_headers_are_read_in_time() -> None:
    for text in ("Nov 21 ", "a:", "[a", "1 ", "<1", "12: ", "2026 "):
        raw = f"<13>{text * 300_000}".encode()
        assert row("syslog", raw)["source"] == "syslog"
        raw = f"Nov 21 03:00:00 {text * 300_000}".encode()
        assert row("syslog", raw)["source"] == "syslog"
