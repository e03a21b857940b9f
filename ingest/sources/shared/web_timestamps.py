"""Writing times the way web servers, proxies and name servers write them, for replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import Restamper
from ingest.parsing.timestamps import EPOCH, MONTHS, like_iso

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
Writer = Callable[[str, datetime, ZoneInfo], "str | None"]


def replacing(pattern: re.Pattern[str], write: Writer) -> Restamper:
    """What replaces the group `time` of `pattern`, which must match where a line begins."""

    def replaced(text: str, when: datetime, zone: ZoneInfo) -> str | None:
        match = pattern.match(text)
        new = write(match["time"], when, zone) if match else None
        if match is None or new is None:
            return None
        return text[: match.start("time")] + new + text[match.end("time") :]

    return replaced


def first_of(*restampers: Restamper) -> Restamper:
    """The first of `restampers` that finds a time."""

    def replaced(text: str, when: datetime, zone: ZoneInfo) -> str | None:
        for restamper in restampers:
            new = restamper(text, when, zone)
            if new is not None:
                return new
        return None

    return replaced


def _fraction(old: str, when: datetime) -> str:
    """As many digits as stand behind the point of `old`."""
    match = re.search(r":\d\d\.(\d{1,9})", old, re.ASCII)
    return f".{when.microsecond:06d}000"[: len(match[1]) + 1] if match else ""


def write_clf(old: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when` like `10/Oct/2000:13:55:36 -0700`, with the offset of `old`; or as ISO."""
    if old[2:3] != "/":
        return like_iso(old, when, zone)
    _, named, offset = old.partition(" ")
    where: tzinfo = zone
    if re.fullmatch(r"[+-]\d{4}", offset, re.ASCII):
        span = timedelta(hours=int(offset[1:3]), minutes=int(offset[3:]))
        # An offset of a day or more is none, and Python refuses it.
        where = UTC if span >= timedelta(days=1) else timezone(span if offset[0] == "+" else -span)
    local = when.astimezone(where)
    return (
        f"{local.day:02d}/{MONTHS[local.month - 1]}/{local.year:04d}:{local:%H:%M:%S}"
        f"{_fraction(old, local)}{named}{offset}"
    )


def write_slashed(old: str, when: datetime, zone: ZoneInfo) -> str:
    """`when` like nginx's `2026/11/21 10:00:00`."""
    local = when.astimezone(zone)
    return f"{local.year:04d}/{local:%m/%d %H:%M:%S}{_fraction(old, local)}"


def write_ctime(old: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when` like `Sat Nov 21 10:00:00.123456 2026`, or as ISO."""
    if old[:1].isdigit():
        return like_iso(old, when, zone)
    local = when.astimezone(zone)
    day = f"{local.day:02d}" if re.match(r"\w{3} \w{3} \d\d", old) else f"{local.day:2d}"
    return (
        f"{_DAYS[local.weekday()]} {MONTHS[local.month - 1]} {day} "
        f"{local:%H:%M:%S}{_fraction(old, local)} {local.year:04d}"
    )


def write_dashed(old: str, when: datetime, zone: ZoneInfo) -> str | None:
    """`when` like BIND's `21-Nov-2026 10:00:00.123`, without a year, or as ISO."""
    local = when.astimezone(zone)
    month, end = MONTHS[local.month - 1], f"{local:%H:%M:%S}{_fraction(old, local)}"
    if old[:1].isalpha():
        return f"{month} {local.day:02d} {end}"
    if old[2:3] == "-":
        return f"{local.day:02d}-{month}-{local.year:04d} {end}"
    return like_iso(old, when, zone)


def write_epoch(old: str, when: datetime, zone: ZoneInfo) -> str:
    """`when` as seconds since 1970, with the digits of `old`."""
    whole = when - EPOCH
    digits = len(old.partition(".")[2])
    rest = f".{whole.microseconds:06d}000"[: digits + 1] if digits else ""
    return f"{whole.days * 86400 + whole.seconds}{rest}"
