"""Times as server programs write them at the start of their own log lines.

Besides ISO 8601: ctime (`Mon Mar  2 10:00:00 2026`), `20260302-10:00:00`, `260302 10:00:00`,
`Mar  2 10:00:00` without a year, seconds in hexadecimal (slapd) and TAI64N (multilog).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ingest.parsing.timestamps import (
    MONTHS,
    Stamp,
    month_number,
    nearest_fold,
    of_epoch,
    stamp_clf,
    stamp_epoch,
    stamp_parts,
    stamp_rfc3164,
)

CTIME = (
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})? \d{4}(?: us=\d{1,6})?"
)
ISO = (
    r"\d{4}-\d\d-\d\d(?:T| {1,2})\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:Z| ?UTC| ?[+-]\d\d:?\d\d)?(?: us=\d{1,6})?"
)
COMPACT = r"\d{8}[- ]\d\d:\d\d:\d\d"
SHORT = r"\d{6} {1,2}\d{1,2}:\d\d:\d\d"
YEARLESS = r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,6})?"
HEXADECIMAL = r"[0-9a-f]{8}(?:\.[0-9a-f]{5,8})?"
CLF = r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?"
TAI64N = r"@[0-9a-f]{24}"
DAEMON_EPOCH = r"\d{10}(?:\d{3}|\d{6})?(?:\.\d{1,9})?"

_CTIME = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) ( ?)(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? (\d{4})"
    r"(?: us=(\d{1,6}))?",
    re.ASCII,
)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(T| {1,2})(\d{1,2}):(\d\d:\d\d)(?:([.,])(\d{1,9}))?"
    r"(?: ?(Z|UTC|[+-]\d\d:?\d\d))?(?: us=(\d{1,6}))?",
    re.ASCII,
)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)([- ])(\d\d:\d\d:\d\d)", re.ASCII)
_SHORT = re.compile(r"(\d\d)(\d\d)(\d\d)( {1,2})(\d{1,2}):(\d\d:\d\d)", re.ASCII)
_YEARLESS = re.compile(
    r"(?:[A-Z][a-z]{2} )??([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?",
    re.ASCII,
)
_HEXADECIMAL = re.compile(r"([0-9a-f]{8})(?:\.([0-9a-f]{5,8}))?", re.ASCII)
_CLF = re.compile(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: ([+-]\d{4}))?", re.ASCII)
_TAI64N = re.compile(TAI64N, re.ASCII)
_EPOCH = re.compile(DAEMON_EPOCH, re.ASCII)

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# 2^62 is the epoch in the format; TAI was ten seconds ahead of UTC in 1970.
_TAI = 2**62 + 10
"""What a TAI64 label counts at the start of 1970."""


def read_clock(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """The time that `text` is, whichever of the forms it has; the arrival time for none."""
    for pattern, read in _READERS:
        match = pattern.fullmatch(text)
        if match:
            return read(match, zone, received_at)
    return Stamp.missing(received_at, text)


def _ctime(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    month, _, day, clock, fraction, year, micro = match.groups()
    # OpenVPN writes microseconds behind the year, without zeros in front.
    fraction = fraction or (micro and micro.zfill(6))
    return stamp_parts(
        int(year),
        month_number(month),
        int(day),
        f"{clock}.{fraction}" if fraction else clock,
        zone,
        received_at,
        original=match[0],
    )


def _iso(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    year, month, day, _, hour, rest, _, fraction, offset, micro = match.groups()
    fraction = fraction or (micro and micro.zfill(6))
    # MariaDB pads the hour with a blank where all others write a zero.
    clock = f"{hour:0>2}:{rest}" + (f".{fraction}" if fraction else "")
    return stamp_parts(
        int(year),
        int(month),
        int(day),
        clock,
        zone,
        received_at,
        original=match[0],
        offset=offset,
    )


def _compact(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    year, month, day, _, clock = match.groups()
    return stamp_parts(int(year), int(month), int(day), clock, zone, received_at, original=match[0])


def _short(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    year, month, day, _, hour, rest = match.groups()
    return stamp_parts(
        2000 + int(year),
        int(month),
        int(day),
        f"{hour:0>2}:{rest}",
        zone,
        received_at,
        original=match[0],
    )


def _yearless(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    month, day, clock, fraction = match.groups()
    stamp = stamp_rfc3164(f"{month} {day:>2} {clock}", zone, received_at)
    if stamp.quality == "received" or not fraction:
        return stamp._replace(original=match[0])
    time = stamp.time + timedelta(microseconds=int(f"{fraction:0<6}"))
    return stamp._replace(time=nearest_fold(time, zone, received_at), original=match[0])


def _hexadecimal(match: re.Match[str], _: ZoneInfo, received_at: datetime) -> Stamp:
    time = of_epoch(int(match[1], 16))
    if time is None:
        return Stamp.missing(received_at, match[0])
    if match[2]:
        # clock_gettime gives eight digits of nanoseconds, gettimeofday five of microseconds.
        fraction = int(match[2], 16)
        time += timedelta(microseconds=fraction // 1000 if len(match[2]) > 5 else fraction)
    return Stamp.exact(time)


def _tai64n(match: re.Match[str], _: ZoneInfo, received_at: datetime) -> Stamp:
    seconds = int(match[0][1:17], 16) - _TAI
    time = of_epoch(seconds) if abs(seconds) < 2**40 else None
    if time is None:
        return Stamp.missing(received_at, match[0])
    # Eight hexadecimal digits can say more nanoseconds than a second has.
    nanoseconds = min(int(match[0][17:], 16), 999_999_999)
    return Stamp.exact(time + timedelta(microseconds=nanoseconds // 1000))


def _epoch(match: re.Match[str], _: ZoneInfo, received_at: datetime) -> Stamp:
    return stamp_epoch(match[0], received_at)


def _clf(match: re.Match[str], zone: ZoneInfo, received_at: datetime) -> Stamp:
    return stamp_clf(match[0], zone, received_at)


_READERS = (
    (_ISO, _iso),
    (_CTIME, _ctime),
    (_YEARLESS, _yearless),
    (_COMPACT, _compact),
    (_SHORT, _short),
    (_TAI64N, _tai64n),
    (_EPOCH, _epoch),
    (_CLF, _clf),
    (_HEXADECIMAL, _hexadecimal),
)


def write_clock(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when` in the form that `text` has; None if it has none of them."""
    local = when.astimezone(zone)
    for pattern, write in _WRITERS:
        match = pattern.fullmatch(text)
        if match:
            try:
                return write(match, when, local)
            except ValueError:  # an offset that cannot be, such as +99:99
                return None
    return None


def _digits(local: datetime, fraction: str | None, before: str = ".") -> str:
    return before + f"{local.microsecond:06d}000"[: len(fraction)] if fraction else ""


def _like_ctime(match: re.Match[str], _: datetime, local: datetime) -> str:
    day = f"{local.day:02d}" if match[3].startswith("0") else f"{local.day:2d}"
    micro = f" us={local.microsecond}" if match[7] else ""
    return (
        f"{_DAYS[local.weekday()]} {MONTHS[local.month - 1]} {day} {local:%H:%M:%S}"
        f"{_digits(local, match[5])} {local.year:04d}{micro}"
    )


def _like_iso(match: re.Match[str], when: datetime, local: datetime) -> str:
    offset = match[9]
    if offset in ("Z", "UTC"):
        local = when.astimezone(UTC)
    elif offset:
        # Any day will do: only the offset is read.
        zone = datetime.fromisoformat(f"2000-01-01T00:00:00{offset}").tzinfo
        local = when.astimezone(zone)
    hour = f"{local.hour:02d}" if len(match[5]) == 2 and match[4] != "  " else str(local.hour)
    between = (" " if len(hour) == 2 else "  ") if match[4] == "  " else match[4]
    written = match[0][match.start(9) - 1 : match.end(9)] if offset else ""
    tail = written if written.startswith(" ") else offset or ""
    micro = f" us={local.microsecond}" if match[10] else ""
    return (
        f"{local.year:04d}-{local:%m-%d}{between}{hour}:{local:%M:%S}"
        f"{_digits(local, match[8], match[7] or '.')}{tail}{micro}"
    )


def _like_compact(match: re.Match[str], _: datetime, local: datetime) -> str:
    return f"{local.year:04d}{local:%m%d}{match[4]}{local:%H:%M:%S}"


def _like_short(_: re.Match[str], __: datetime, local: datetime) -> str:
    return f"{local:%y%m%d} {local.hour:2d}:{local:%M:%S}"


def _like_yearless(match: re.Match[str], _: datetime, local: datetime) -> str:
    day = f"{local.day:02d}" if match[2].startswith("0") else f"{local.day:2d}"
    weekday = f"{_DAYS[local.weekday()]} " if match.start(1) else ""
    month = MONTHS[local.month - 1]
    return f"{weekday}{month} {day} {local:%H:%M:%S}{_digits(local, match[4])}"


def _like_hexadecimal(match: re.Match[str], when: datetime, _: datetime) -> str:
    if not match[2]:
        return f"{int(when.timestamp()):08x}"
    long = len(match[2]) > 5
    fraction = when.microsecond * (1000 if long else 1)
    return f"{int(when.timestamp()):08x}.{fraction:0{len(match[2])}x}"


def _like_tai64n(_: re.Match[str], when: datetime, __: datetime) -> str:
    return f"@{int(when.timestamp()) + _TAI:016x}{when.microsecond * 1000:08x}"


def _like_epoch(match: re.Match[str], when: datetime, _: datetime) -> str:
    whole, _point, fraction = match[0].partition(".")
    written = f"{int(when.timestamp())}{when.microsecond:06d}"[: len(whole)]
    return written + _digits(when, fraction)


def _like_clf(match: re.Match[str], when: datetime, local: datetime) -> str:
    offset = match[1]
    if offset:
        local = when.astimezone(datetime.fromisoformat(f"2000-01-01T00:00:00{offset}").tzinfo)
    month = MONTHS[local.month - 1]
    tail = f" {offset}" if offset else ""
    return f"{local.day:02d}/{month}/{local.year:04d}:{local:%H:%M:%S}{tail}"


_WRITERS = (
    (_ISO, _like_iso),
    (_CTIME, _like_ctime),
    (_YEARLESS, _like_yearless),
    (_COMPACT, _like_compact),
    (_SHORT, _like_short),
    (_TAI64N, _like_tai64n),
    (_EPOCH, _like_epoch),
    (_CLF, _like_clf),
    (_HEXADECIMAL, _like_hexadecimal),
)
