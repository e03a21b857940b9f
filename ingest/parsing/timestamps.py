"""Reading and rewriting times as logs write them.

A time from 1900 to 9999 is kept as it is, however absurd; all else counts as
unreadable, and the event then carries its arrival time (`Stamp.missing`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_AHEAD = timedelta(days=1)
"""How far a sender's clock or zone may run ahead before its year must be the one before."""

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)(?:([.,])(\d{1,9}))?(Z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)


class Stamp(NamedTuple):
    """When something happened, how sure that is, and how the log wrote it.

    `quality` is exact, assumed_zone, assumed_year or received (no readable
    time). `original` is None for exact times, which need no explanation.
    """

    time: datetime
    quality: str
    original: str | None

    @classmethod
    def missing(cls, received_at: datetime, original: object) -> Stamp:
        """The arrival time stands in for one that cannot be read."""
        text = None if original is None else str(original)[:64]
        return cls(received_at, "received", text)

    @classmethod
    def exact(cls, time: datetime) -> Stamp:
        """A time that says all there is to say."""
        return cls(time, "exact", None)


def of_epoch(seconds: float) -> datetime | None:
    """Seconds since 1970 as a time, to the microsecond; None outside the years kept."""
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return time if time >= EARLIEST else None


NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?", re.ASCII)


def stamp_epoch(value: object, received_at: datetime) -> Stamp:
    """A number since 1970, as int, float or text, as a stamp.

    Whether it counts seconds, milliseconds, microseconds or nanoseconds is told by
    its size: seconds reach the year 5138 before they could be taken for more. A number that
    may be a year up to 9999 in one unit as well as one from 1973 to 1978 in the next is
    neither: the arrival stands in, and the number is kept as `original`.
    """
    if type(value) is str and NUMBER.fullmatch(value):
        number: int | float = float(value) if "." in value else int(value)
    elif type(value) is int or type(value) is float:
        number = value
    else:
        return Stamp.missing(received_at, value)
    time = _scaled(number)
    return Stamp.exact(time) if time else Stamp.missing(received_at, value)


_LAST_SECOND = 253402300800
"""Seconds from 1970 to the end of the year 9999."""


def _scaled(number: int | float) -> datetime | None:
    size = abs(number)
    for least, per_second in ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3)):
        # No size is below 0, so the loop's last unit is seconds.
        if size >= least:
            if size < least * _LAST_SECOND / 1e11:
                return None
            if type(number) is int:
                # In whole numbers: a float would lose the last microseconds.
                seconds, rest = divmod(number, per_second)
                time = of_epoch(seconds)
                return time and time + timedelta(microseconds=rest * 10**6 // per_second)
            return of_epoch(number / per_second)
    return of_epoch(number)


def month_number(name: str) -> int:
    """1 to 12 for `Jan` to `Dec` in any case, also of a whole name; 0 for what is no month."""
    short = name[:3].title()
    return MONTHS.index(short) + 1 if short in MONTHS else 0


def stamp_parts(
    year: int,
    month: int,
    day: int,
    clock: str,
    zone: ZoneInfo,
    received_at: datetime,
    *,
    original: str,
    offset: str | None = None,
) -> Stamp:
    """A time from its parts, `clock` being `13:55:36` with or without a fraction.

    `offset` is `+0200`, `+02:00`, `Z`, `UTC` or `GMT`; without one the time is in `zone`.
    """
    if offset in ("UTC", "GMT"):
        offset = "Z"
    text = f"{year:04d}-{month:02d}-{day:02d}T{clock}{offset or ''}"
    stamp = stamp_iso(text, zone, received_at)
    return stamp if stamp.original is None else stamp._replace(original=original[:64])


_CLF = re.compile(
    r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?: ([+-]\d{4}))?", re.ASCII
)


def stamp_clf(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """`10/Oct/2000:13:55:36 -0700`, as web servers write it."""
    match = _CLF.fullmatch(text)
    if match is None:
        return Stamp.missing(received_at, text)
    day, month, year, clock, offset = match.groups()
    return stamp_parts(
        int(year),
        month_number(month),
        int(day),
        clock,
        zone,
        received_at,
        original=text,
        offset=offset,
    )


@lru_cache(maxsize=4096)
def of_iso(text: str, zone: ZoneInfo) -> tuple[datetime, str] | None:
    """An ISO 8601 time and its quality; a naive one is in `zone`. None if it is not one."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    day, _, clock, _, fraction, offset = match.groups()
    # `+02`, as PostgreSQL and ISO's short form write it.
    if offset and len(offset) == 3:
        offset += "00"
    try:
        time = datetime.fromisoformat(
            # Nanoseconds are cut, not rounded: rounding could move a time into the next second.
            f"{day}T{clock}.{(fraction or '0')[:6]:0<6}{offset or ''}".replace("Z", "+00:00")
        )
        naive = time.tzinfo is None
        time = (time.replace(tzinfo=zone) if naive else time).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return (time, "assumed_zone" if naive else "exact") if time >= EARLIEST else None


def stamp_iso(text: str | None, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """An ISO time as a stamp; the arrival time where it cannot be read."""
    # Long texts stay out of the cache, which a sender could otherwise fill.
    read = of_iso(text, zone) if text is not None and len(text) < 64 else None
    if read is None:
        return Stamp.missing(received_at, text)
    time, quality = read
    if quality != "exact":
        time = nearest_fold(time, zone, received_at)
    return Stamp(time, quality, None if quality == "exact" else text)


def stamp_rfc3164(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """`Nov  1 02:40:21` as a stamp: its year is the latest that does not lie ahead of arrival."""
    # To the hour, or the cache below would never hit for a live stream.
    hour = received_at.year, received_at.month, received_at.day, received_at.hour
    time = _of_rfc3164(text, zone, hour, received_at.tzinfo)
    if time is None:
        return Stamp.missing(received_at, text)
    return Stamp(nearest_fold(time, zone, received_at), "assumed_year", text)


@lru_cache(maxsize=8192)
def _of_rfc3164(
    text: str, zone: ZoneInfo, hour_of_arrival: tuple[int, int, int, int], arrived_in: tzinfo | None
) -> datetime | None:
    arrival = datetime(*hour_of_arrival, tzinfo=arrived_in)
    month, day, clock = text[:3], text[4:6], text[7:]
    if month not in MONTHS:
        return None
    hour, minute, second = map(int, clock.split(":"))
    moment = MONTHS.index(month) + 1, int(day), hour, minute, second
    # Python's time ends with 9999; an hour more raises.
    newest = arrival + CLOCK_AHEAD if arrival.year < 9999 else arrival
    # Nine years back, for 29 February: 1900 was no leap year, nor will 2100 be.
    # From the next year on: on 31 December a zone ahead of UTC writes 1 January already.
    for year in range(newest.year + 1, newest.year - 9, -1):
        try:
            time = datetime(year, *moment, tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        if EARLIEST <= time <= newest:
            return time
    return None


def nearest_fold(time: datetime, zone: ZoneInfo, received_at: datetime) -> datetime:
    """In the hour that a clock going back shows twice: the one in which the line came.

    Other times, and lines that came later than that hour, are given back as they are.
    """
    # Most sources log in UTC, which has no such hour.
    if zone.key == "UTC":
        return time
    local = time.astimezone(zone)
    second = local.replace(tzinfo=zone, fold=1)
    if local.fold == 1 or second.utcoffset() == local.utcoffset():
        return time
    later = second.astimezone(UTC)
    return (
        later
        if later > time
        and abs(received_at - later) < abs(received_at - time)
        and (received_at - later < timedelta(hours=1))
        else time
    )


def like_iso(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when` written as `text` is: same separator, digits and offset. None if not ISO."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    _, between, _, point, fraction, offset = match.groups()
    local = when.astimezone(_offset(offset) if offset else zone)
    digits = f"{local.microsecond:06d}000"[: len(fraction)] if fraction else ""
    return (
        f"{local.year:04d}-{local:%m-%d}{between}{local:%H:%M:%S}"
        f"{point or ''}{digits}{offset or ''}"
    )


def _offset(offset: str) -> tzinfo:
    if offset == "Z":
        return UTC
    return datetime.fromisoformat(f"2000-01-01T00:00:00{offset}").tzinfo or UTC
