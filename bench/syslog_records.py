"""What sshd, sudo, dnsmasq and ISC dhcpd wrote to syslog, in both framings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from bench.records import Family, Spoil, client, logged_at, swap
from infra.spark.session import project_root
from ingest.parsing.timestamps import MONTHS

SAMPLES = project_root() / "samples"
FOLDERS = (SAMPLES / "syslog", SAMPLES / "lab" / "dnsmasq", SAMPLES / "lab" / "dhcpd")
SOURCES: Mapping[bytes, str] = {
    b"sshd": "sshd",
    b"sudo": "sudo",
    b"dnsmasq": "dnsmasq",
    b"dnsmasq-dhcp": "dnsmasq",
    b"dhcpd": "isc_dhcpd",
}
TURNS = (b"sshd", b"dnsmasq", b"dhcpd", b"sshd", b"dnsmasq-dhcp", b"dnsmasq", b"sudo", b"dhcpd")
"""Whose line each record is, over and over."""
RFC3164 = re.compile(rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<rest>\S+ (?P<program>[^\s:[]+).*)")
RFC5424 = re.compile(rb"(?P<pri><\d+>1 )\S+ (?P<rest>\S+ (?P<program>\S+) .*)")
ADDRESS = re.compile(rb"\b10\.77\.0\.1\d\d\b")
HARDWARE = re.compile(rb"\b02:42:ac:77:[0-9a-f]{2}:[0-9a-f]{2}\b")
SPOILED: Mapping[str, Spoil] = {
    "no header": lambda line: b"no header: " + line[40:],
    "a NUL": swap(rb" vm ", b" v\x00m "),
    "bad UTF-8": swap(rb" vm ", b" v\xffm "),
    "nothing": lambda line: b"",
    "two lines": lambda line: line + b"\n" + line,
    "a priority beyond 191": lambda line: b"<999>" + re.sub(rb"^<\d+>", b"", line),
}


def syslog() -> Family:
    """Lines of the four programs, the two framings in turns."""
    framings = {name: _lines(name) for name in ("syslog_rfc3164.log", "syslog_rfc5424.log")}
    new, old = framings["syslog_rfc5424.log"], framings["syslog_rfc3164.log"]

    def make(number: int) -> tuple[str, bytes]:
        turn, at = number % len(TURNS), number // len(TURNS)
        program = TURNS[turn]
        of = (old if at % 2 else new)[program]
        return SOURCES[program], _varied(of[at // 2 % len(of)], number)

    return Family("syslog", make, SPOILED)


def _lines(file: str) -> dict[bytes, list[tuple[bytes | None, bytes]]]:
    """By program: what stands before the time (None: RFC 3164) and behind it."""
    found: dict[bytes, list[tuple[bytes | None, bytes]]] = {name: [] for name in SOURCES}
    for folder in FOLDERS:
        for line in (folder / file).read_bytes().splitlines():
            match = RFC5424.fullmatch(line) or RFC3164.fullmatch(line)
            if match and match["program"] in found:
                found[match["program"]].append((match.groupdict().get("pri"), match["rest"]))
    return found


def _varied(line: tuple[bytes | None, bytes], number: int) -> bytes:
    """The line at another time, of another machine."""
    before, rest = line
    ip, mac = (text.encode() for text in client(number))
    rest = HARDWARE.sub(partial(_as, mac), ADDRESS.sub(partial(_as, ip), rest))
    when = logged_at(number)
    if before is None:
        return f"{MONTHS[when.month - 1]} {when.day:2d} {when:%H:%M:%S} ".encode() + rest
    local = when + timedelta(hours=1)
    return before + f"{local:%Y-%m-%dT%H:%M:%S.%f}+01:00 ".encode() + rest


def _as(new: bytes, _: re.Match[bytes]) -> bytes:
    return new
