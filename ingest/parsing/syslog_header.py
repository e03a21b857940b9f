"""How a syslog header may look, and how its time is read and rewritten.

RFC 3164 only described what senders did, and they did much: a year before or behind the
clock, a zone, a fraction, no host, Cisco's sequence number and asterisk
(https://www.rfc-editor.org/rfc/rfc3164, https://www.rfc-editor.org/rfc/rfc5424,
https://www.cisco.com/c/en/us/td/docs/ios-xml/ios/esm/configuration/15-mt/esm-15-mt-book.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from types import MappingProxyType
from typing import NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.source import Unreadable
from ingest.parsing.timestamps import (
    EPOCH,
    MONTHS,
    Stamp,
    like_iso,
    month_number,
    stamp_epoch,
    stamp_iso,
    stamp_parts,
    stamp_rfc3164,
)

_ZONES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("Z", "UTC", "GMT", "WET"), "+0000"),
        **dict.fromkeys(("CET", "MET", "BST", "WEST"), "+0100"),
        **dict.fromkeys(("CEST", "MEST", "EET"), "+0200"),
        **dict.fromkeys(("EEST", "MSK"), "+0300"),
        **dict.fromkeys(("JST", "KST"), "+0900"),
        **dict.fromkeys(("AST", "EDT"), "-0400"),
        **dict.fromkeys(("EST", "CDT"), "-0500"),
        **dict.fromkeys(("CST", "MDT"), "-0600"),
        **dict.fromkeys(("MST", "PDT"), "-0700"),
        **dict.fromkeys(("PST", "AKDT"), "-0800"),
        "AEST": "+1000",
        "AEDT": "+1100",
    }
)
"""Zones that senders abbreviate, as most of them mean the letters."""

_ABBREVIATED = "|".join(_ZONES)
# A zone must end at a space or a colon: `EST-HOST-1` is a host, no zone.
_ZONE = rf"(?: ?(?:[+-]\d\d:?\d\d|(?:{_ABBREVIATED})(?![^\s:])))?"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
# Two centuries only, or any number of four digits could be taken for a year.
_YEAR = r"(?:19|20)\d\d"
_BSD = (
    rf"(?P<time>(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:{_YEAR} )?[A-Z][a-z]{{2}} {{1,2}}"
    rf"\d{{1,2}}(?: {_YEAR})? {_CLOCK}{_ZONE}(?: {_YEAR}(?= ))?)"
)
# The host may be missing; a tag ends in a colon, a host does not.
_TAG = (
    r"(?:(?P<program>[^\s:\[\]{}\"'=,;<>|]{1,256}\]?)"
    r"(?:\[(?P<pid>[^\]\s]{0,64})\](?P<unit> \([^()]{1,200}\))?(?::|(?= ))|:) ?)?(?P<text>.*)"
)
_TAGGED = rf"(?:(?P<host>\S*[^\s:]) )?{_TAG}"
RFC3164 = re.compile(rf"{_BSD}(?: |\Z){_TAGGED}", re.ASCII)
ISO_DATED = re.compile(rf"(?P<time>\d{{4}}-\d\d-\d\d(?:T\S+| {_CLOCK}{_ZONE})) {_TAGGED}", re.ASCII)
RFC5424 = re.compile(
    r"1 (?P<time>\S+) (?P<host>\S+) (?P<program>\S+) (?P<pid>\S+) (?P<msgid>\S+) "
    # The possessive `*+` keeps a broken quote from being tried in every possible way.
    r"(?P<data>-|(?:\[(?:[^\]\"]|\"(?:[^\"\\]|\\.)*\")*+\])+)(?: \ufeff?(?P<text>.*))?",
    re.ASCII,
)
# Senders that forget the structured data; what opens with a bracket is not that.
RFC5424_BARE = re.compile(
    r"1 (?P<time>\d{4}-\d\d-\d\dT\S+) (?P<host>\S+) (?P<program>\S+) (?P<pid>\S+) "
    r"(?P<msgid>\S+) (?!\[)(?P<text>.*)",
    re.ASCII,
)
_SECONDS = re.compile(rf"(?:1 )?(?P<time>\d{{10}}(?:\.\d{{1,9}})?) {_TAGGED}", re.ASCII)
# `??` on the host: without it a host would swallow the start of the time.
CISCO = re.compile(
    rf"(?:: )?(?:(?P<sequence>\d{{1,10}}): )?(?:(?P<host>\S{{1,256}}): )??(?P<mark>[*.])?{_BSD}: "
    r"(?:(?P<program>%[A-Z0-9_]+-(?:[A-Z0-9_]+-)*[0-7]-[A-Z0-9_]+): ?)?(?P<text>.*)",
    re.ASCII,
)
BARE = re.compile(rf"(?!1 \d{{4}}-\d\d-\d\dT){_TAG}", re.ASCII)
"""What follows a priority where nothing else is a header: perhaps the program, then text."""


class _Header(NamedTuple):
    """A form of header: how it is recognised, its time read, and its time written."""

    pattern: re.Pattern[str]
    stamp: Callable[[str, ZoneInfo, datetime], Stamp]
    write: Callable[[str, datetime, ZoneInfo], str | None]


_PARTS = re.compile(
    rf"(?:\w{{3}},? )??(?:(?P<y1>{_YEAR}) )?(?P<month>[A-Z][a-z]{{2}})(?P<gap> {{1,2}})"
    rf"(?P<day>\d{{1,2}})(?: (?P<y2>{_YEAR}))? (?P<clock>\d\d:\d\d:\d\d)"
    rf"(?:(?P<point>[.,])(?P<fraction>\d{{1,9}}))?"
    rf"(?: ?(?P<zone>[+-]\d\d:?\d\d|{_ABBREVIATED}))?(?: (?P<y3>{_YEAR}))?",
    re.ASCII,
)


_PLAIN = re.compile(r"[A-Z][a-z]{2} (?: \d|[1-9]\d) \d\d:\d\d:\d\d", re.ASCII)
"""RFC 3164's own form."""


def _stamp_bsd(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    if _PLAIN.fullmatch(text):
        return stamp_rfc3164(text, zone, received_at)
    part = _PARTS.fullmatch(text)
    if part is None:
        return Stamp.missing(received_at, text)
    year = part["y1"] or part["y2"] or part["y3"]
    fraction = part["fraction"]
    offset = None if part["zone"] is None else _ZONES.get(part["zone"], part["zone"])
    if year:
        clock = part["clock"] + (f".{fraction}" if fraction else "")
        month, day = month_number(part["month"]), int(part["day"])
        return stamp_parts(
            int(year), month, day, clock, zone, received_at, original=text, offset=offset
        )
    plain = f"{part['month']} {int(part['day']):2d} {part['clock']}"
    stamp = stamp_rfc3164(plain, ZoneInfo("UTC") if offset else zone, received_at)
    if stamp.quality == "received":
        return Stamp.missing(received_at, text)
    moved = stamp.time - (_fixed(offset).utcoffset(None) or timedelta()) if offset else stamp.time
    # The reader of RFC 3164 takes whole seconds only.
    moved += timedelta(microseconds=int(f"{(fraction or '0')[:6]:0<6}"))
    return Stamp(moved, stamp.quality, text[:64])


def _fixed(offset: str) -> timezone:
    digits = offset[1:].replace(":", "")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    # Python refuses offsets of a day and more; a line with such a zone must still be read.
    if span >= timedelta(days=1):
        return UTC
    return timezone(-span if offset[0] == "-" else span)


def _write_bsd(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when`, written as `text` is: its year, fraction and zone where it has them."""
    part = _PARTS.fullmatch(text)
    if part is None or part["month"] not in MONTHS:
        return None
    named = part["zone"]
    where: tzinfo = _fixed(_ZONES.get(named, named)) if named else zone
    local = when.astimezone(where)
    # RFC 3164 pads the day with a blank; some senders write one blank and no more.
    padded = len(part["gap"]) + len(part["day"]) == 3
    new = {
        **dict.fromkeys(("y1", "y2", "y3"), f"{local.year:04d}"),
        "month": MONTHS[local.month - 1],
        "gap": " ",
        "day": f"{local.day:2d}" if padded else str(local.day),
        "clock": f"{local:%H:%M:%S}",
        "fraction": f"{local.microsecond:06d}000"[: len(part["fraction"] or "")],
    }
    changed = text
    # From the back, so that a part that changes its length moves no part yet to be replaced.
    for name, position in sorted(_spans(part), key=lambda span: -span[1]):
        changed = changed[:position] + new[name] + changed[part.end(name) :]
    return f"{local:%a}{changed[3:]}" if text[3:4] in (",", " ") and text[:3] in _DAYS else changed


_DAYS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))


def _spans(part: re.Match[str]) -> Iterator[tuple[str, int]]:
    for name in ("y1", "month", "gap", "day", "y2", "clock", "fraction", "y3"):
        if part[name] is not None:
            yield name, part.start(name)


_SPACED = re.compile(
    rf"(\d{{4}}-\d\d-\d\d) ({_CLOCK})( ?(?P<zone>[+-]\d\d:?\d\d|{_ABBREVIATED}))?", re.ASCII
)


def _as_iso(text: str) -> tuple[str, str]:
    """`text` with its zone, if it has one, as ISO writes it; and that zone as it stood there."""
    part = _SPACED.fullmatch(text)
    if part is None or part["zone"] is None:
        return text, ""
    return f"{part[1]} {part[2]}{_ZONES.get(part['zone'], part['zone'])}", part[3]


def _stamp_iso(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    if text[10:11] == "T":
        return stamp_iso(text, zone, received_at)
    stamp = stamp_iso(_as_iso(text)[0], zone, received_at)
    return stamp if stamp.original is None else stamp._replace(original=text[:64])


def _write_iso(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    joined, named = _as_iso(text)
    new = like_iso(joined, when, zone)
    return new if new is None or not named else new[: len(text) - len(named)] + named


def _stamp_seconds(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    return stamp_epoch(text, received_at)


def _write_seconds(text: str, when: datetime, zone: ZoneInfo) -> str:
    whole = when - EPOCH
    digits = len(text.partition(".")[2])
    rest = f".{whole.microseconds:06d}000"[: digits + 1] if digits else ""
    return f"{whole.days * 86400 + whole.seconds}{rest}"


# The first that matches wins, so the lenient forms stand last.
HEADERS = (
    _Header(RFC3164, _stamp_bsd, _write_bsd),
    _Header(RFC5424, _stamp_iso, _write_iso),
    _Header(ISO_DATED, _stamp_iso, _write_iso),
    _Header(CISCO, _stamp_bsd, _write_bsd),
    _Header(_SECONDS, _stamp_seconds, _write_seconds),
    _Header(RFC5424_BARE, _stamp_iso, _write_iso),
)
_PRI = re.compile(r"<(\d{1,3})>", re.ASCII)
_FRAMED = re.compile(r"\ufeff?(?:(?P<octets>\d{1,8}) (?=<))?\ufeff?", re.ASCII)
"""What transports put before the priority: a byte order mark, a count of octets (RFC 6587)."""


class _Found(NamedTuple):
    """A header that was recognised."""

    match: re.Match[str]
    header: _Header | None
    level: int | None
    octets: int | None


def find(text: str) -> _Found:
    """The header of a syslog message; without `Header` where only its priority can be read.

    Raises `Unreadable` where there is neither priority nor time.
    """
    framed = _FRAMED.match(text)
    begin = framed.end() if framed else 0
    octets = int(framed["octets"]) if framed and framed["octets"] else None
    pri = _PRI.match(text, begin)
    start = pri.end() if pri else begin
    level = int(pri[1]) if pri else None
    # 23 facilities times 8 plus 7: the highest that RFC 3164 and RFC 5424 allow.
    if level is not None and level > 191:
        raise Unreadable(f"syslog priority {level} at byte {begin}; the highest is 191")
    # Some senders put a space behind the priority.
    spaced = start + 1 if pri and text[start : start + 1] == " " else start
    for header in HEADERS:
        match = header.pattern.fullmatch(text, spaced)
        if match:
            if match["host"] is None and match["program"] in _ZONES:
                # `Nov 21 10:00:00 UTC: %SYS-...`: that is no program, but the clock's zone.
                match = CISCO.fullmatch(text, spaced) or match
            return _Found(match, header, level, octets)
    # Without a time the priority alone shows that this is syslog at all.
    bare = BARE.fullmatch(text, spaced) if pri and text[spaced:].strip() else None
    if bare:
        return _Found(bare, None, level, octets)
    raise Unreadable(
        f"no syslog header at byte {start}: expected RFC 3164 or RFC 5424, "
        f"found '{text[start : start + 40]}'"
    )
