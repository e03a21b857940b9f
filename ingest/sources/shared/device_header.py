"""The header before a device's own words, in the many forms that devices and relays write.

A priority, a sequence number, one or two times (with or without year, fraction and
zone), a host, a tag: any of it may be missing. `ingest.parsing.syslog` reads the two
standards strictly; firewalls keep to neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import FILE_BYTES
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import (
    MONTHS,
    Stamp,
    like_iso,
    month_number,
    stamp_iso,
    stamp_parts,
    stamp_rfc3164,
)

_PRI = re.compile(r"<(\d{1,3})>", re.ASCII)
_LONGEST = 400
"""Characters that a header may have; what is longer is none."""
_MONTH = "|".join(MONTHS)
_TIME = re.compile(
    rf"(?<![\w.-])(?:(?P<month>{_MONTH})[ ]{{1,2}}(?P<day>\d{{1,2}})(?:[ ](?P<year>\d{{4}}))?"
    r"[ ](?P<clock>\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?(?:[ ](?P<late>(?:19|20)\d\d))?"
    r"(?:[ ](?P<zone>[A-Z]{3,4}|[+-]\d\d:?\d\d)(?=[ :]|$))?"
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?))(?!\w)",
    re.ASCII,
)
# Abbreviations that mean one offset only; IST, BST or CST mean several.
OFFSETS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("UTC", "GMT", "WET", "UCT"), "+0000"),
        **dict.fromkeys(("CET", "WEST"), "+0100"),
        **dict.fromkeys(("CEST", "EET"), "+0200"),
        **dict.fromkeys(("EEST", "MSK"), "+0300"),
        **dict.fromkeys(("SGT", "HKT", "AWST"), "+0800"),
        **dict.fromkeys(("JST", "KST"), "+0900"),
        "AEST": "+1000",
        "AEDT": "+1100",
        "NZST": "+1200",
        "NZDT": "+1300",
        "BRT": "-0300",
        "EDT": "-0400",
        "EST": "-0500",
        "CDT": "-0500",
        "MDT": "-0600",
        "MST": "-0700",
        "PDT": "-0700",
        "PST": "-0800",
        "AKDT": "-0800",
        "AKST": "-0900",
        "HST": "-1000",
    }
)
_HOST = re.compile(r"[\w.:-]{1,255}")


class Header(NamedTuple):
    """What stands before a device's words. `rest` is what else it says, for `unmapped`."""

    stamp: Stamp | None
    host: str | None
    rest: dict[str, Any]


def read_header(text: str, context: Context) -> Header:
    """The header that `text` is; never fails, for words that tell nothing go to `rest`.

    The last time that stands there is the device's own, the first the relay's.
    """
    pri = _PRI.match(text)
    level = int(pri[1]) if pri else None
    if level is not None and level > 191:
        raise Unreadable(f"syslog priority {level} at byte 0; the highest is 191")
    words = text[pri.end() :] if pri else text
    # Behind the header come words that a sender chooses; no header is so long.
    if len(words) > _LONGEST:
        raise Unreadable(f"{len(words)} characters before the device's own words")
    times = list(_TIME.finditer(words))
    between = _TIME.sub("\n", words)
    host, left = _host(between)
    host = host or context.host
    # A relay puts its header in front, so the device's own time stands last.
    stamp = _stamp(times[-1], context, host) if times else None
    rest = kept(
        facility=None if level is None else level >> 3,
        level=None if level is None else level & 7,
        syslog_time=times[0][0] if len(times) > 1 else None,
        header=" ".join(left) or None,
    )
    return Header(stamp, host, rest)


def _host(between: str) -> tuple[str | None, list[str]]:
    """The host, and the other words but for a version, dashes and colons."""
    host: str | None = None
    left = []
    # Behind a time; without any, as in `<134>fw01 CEF:0|`, at once.
    parts = between.split("\n")
    words = [word for part in parts[1:] or parts for word in part.split()]
    if len(parts) > 1:
        left = [word for word in parts[0].split() if word.strip(":-*.") not in ("", "1")]
    for word in words:
        bare = word.strip(":") if word != "::" else ""
        if not bare.strip("-"):
            continue
        if host is None and _HOST.fullmatch(bare) and not _is_number(bare):
            host = bare
        elif host is None and bare[:1] == "<" and _HOST.fullmatch(bare.strip("<>")):
            host = bare.strip("<>")
        else:
            left.append(bare)
    return host, left


def _is_number(word: str) -> bool:
    """Whether a word is a version or sequence number rather than a host."""
    return word.isdecimal() and len(word) <= 10


def _stamp(match: re.Match[str], context: Context, host: str | None) -> Stamp:
    zone, received_at = context.zone(host), context.record.received_at
    if match["iso"]:
        return stamp_iso(match["iso"], zone, received_at)
    day, clock, fraction = int(match["day"]), match["clock"], match["fraction"] or ""
    named = match["zone"]
    offset = named if named and not named.isalpha() else OFFSETS.get(named or "")
    # Some devices write the year behind the clock.
    year = match["year"] or match["late"]
    if year is None:
        return _of_this_year(match, offset, zone, received_at)
    return stamp_parts(
        int(year),
        month_number(match["month"]),
        day,
        clock + fraction,
        zone,
        received_at,
        original=match[0],
        offset=offset,
    )


def _of_this_year(
    match: re.Match[str], offset: str | None, zone: ZoneInfo, received_at: datetime
) -> Stamp:
    text = f"{match['month']} {int(match['day']):2d} {match['clock']}"
    # With an offset the text is read as UTC first and moved by the offset afterwards.
    stamp = stamp_rfc3164(text, ZoneInfo("UTC") if offset else zone, received_at)
    if stamp.quality == "received":
        return stamp
    time = stamp.time
    if offset:
        sign = -1 if offset[0] == "-" else 1
        time -= sign * timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:]))
    if match["fraction"]:
        time += timedelta(microseconds=int(match["fraction"][1:7].ljust(6, "0")))
    return Stamp(time, stamp.quality, match[0])


def each_line(raw: bytes, read: Callable[[str], list[Event]]) -> list[Event]:
    """The events of every line; one that cannot be read becomes a dead letter among them.

    Raises `Unreadable` where none can be.
    """
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
    lines = [line for line in raw.split(b"\n") if line.strip()]
    if len(lines) < 2:
        return read(one_line(raw))
    events: list[Event] = []
    for line in lines:
        try:
            events += read(one_line(line))
        except Unreadable as why:
            events.append({"dead_letter_reason": str(why)})
    if all("dead_letter_reason" in event for event in events):
        raise Unreadable(events[0]["dead_letter_reason"])
    return events


def restamp_header(text: str, when: datetime, zone: ZoneInfo) -> str:
    """`text` with each time in it replaced by `when`, in its own form. Raises `Unreadable`."""
    result = 0

    def new(match: re.Match[str]) -> str:
        nonlocal result
        result += 1
        if match["iso"]:
            return like_iso(match["iso"], when, zone) or match["iso"]
        named = match["zone"]
        offset = named if named and not named.isalpha() else OFFSETS.get(named or "")
        local = when.astimezone(zone)
        if offset:
            local = when.astimezone(datetime.strptime(offset.replace(":", ""), "%z").tzinfo)
        digits = len(match["fraction"] or "") - 1
        return "".join(
            (
                f"{MONTHS[local.month - 1]} ",
                f"{local.day:02d}" if match["day"][0] == "0" else f"{local.day:2d}",
                f" {local.year}" if match["year"] else "",
                f" {local:%H:%M:%S}",
                f".{f'{local.microsecond:06d}000'[:digits]}" if digits > 0 else "",
                f" {local.year}" if match["late"] else "",
                f" {named}" if named else "",
            )
        )

    changed = _TIME.sub(new, text[:_LONGEST]) + text[_LONGEST:]
    if not result:
        raise Unreadable("no time in the header")
    return changed
