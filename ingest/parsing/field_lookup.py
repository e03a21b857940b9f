"""Fields of JSON found by name, however a product spells them.

`src_ip`, `srcIp`, `source.ip`, `"source": {"ip": ...}` and `source_ip` are one name each with its
case and separators taken away; a list of such names, the likeliest first, finds a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import address, mac_address
from ingest.parsing.strict_json import integral
from ingest.parsing.timestamps import (
    Stamp,
    month_number,
    stamp_clf,
    stamp_epoch,
    stamp_iso,
    stamp_parts,
)

# Bounds on what a sender can make the index of names cost.
_DEPTH = 5
_MOST = 4096
"""Fields looked at; whatever lies behind them stays where it is."""
_SEPARATORS = re.compile(r"[._\-@ $:/]+")
# Times that `stamp_iso` does not take: no seconds, slashes, Go's default form, a zone as a word.
_MINUTES = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_SLASHED = re.compile(r"(\d{4})/(\d\d)/(\d\d)([T ]\d\d:\d\d:\d\d.*)", re.ASCII)
_GO = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) ([+-]\d{4})(?: [A-Z]{1,5})?", re.ASCII
)
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?(?:UTC|GMT|Z)", re.ASCII)
_WORDS = re.compile(
    r"(?:\w{3,9},? )?([A-Z][a-z]{2,8})\.? {1,2}(\d{1,2}),? (?:(\d{4}),? )?"
    r"(\d{1,2}:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?: ?([AaPp][Mm]))?(?: (\d{4}))?(?: (UTC|GMT|Z|[+-]\d{4}))?(?: (\d{4}))?",
    re.ASCII,
)
# `re.ASCII` throughout: digits of other alphabets would pass `\d` and then fail, or mislead.
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_HOST_PORT = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|(\d{1,3}(?:\.\d{1,3}){3})):(\d{1,5})", re.ASCII
)


class Named:
    """The fields of an object, which are taken out by name."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self._paths: dict[str, list[tuple[str, ...]]] = {}
        self._left = _MOST
        self._index(fields, (), 1)

    def _index(self, node: Mapping[str, Any], path: tuple[str, ...], depth: int) -> None:
        for key, value in node.items():
            # Counted over the whole object, not by level: width is as cheap to send as depth.
            self._left -= 1
            if self._left < 0:
                return
            here = (*path, key)
            if type(value) is dict:
                if depth < _DEPTH:
                    self._index(value, here, depth + 1)
            else:
                # All paths of a name stay: the first may hold a value that `reads` makes nothing
                # of.
                self._paths.setdefault(spelled(here), []).append(here)

    def find(
        self, names: Iterable[str], reads: Callable[[Any], Any]
    ) -> tuple[Any, tuple[str, ...] | None]:
        """The first value under one of the names that `reads` makes something of, and its path."""
        for name in names:
            for path in self._paths.get(name, ()):
                value_read = reads(self._at(path))
                if value_read is not None:
                    return value_read, path
        return None, None

    def take(self, names: Iterable[str], reads: Callable[[Any], Any] | None = None) -> Any:
        """What `find` finds, taken out of the fields."""
        result, path = self.find(names, reads or text)
        if path is not None:
            self.drop(path)
        return result

    def has(self, name: str) -> bool:
        """Whether a field of that name is there."""
        return name in self._paths

    def _at(self, path: tuple[str, ...]) -> Any:
        node: Any = self.fields
        for key in path:
            if type(node) is not dict or key not in node:
                return None
            node = node[key]
        return node

    def drop(self, path: tuple[str, ...]) -> None:
        """Take a field out, and the objects that are empty without it."""
        nodes: list[dict[str, Any]] = [self.fields]
        for key in path[:-1]:
            inner = nodes[-1].get(key)
            if type(inner) is not dict:
                return
            nodes.append(inner)
        for node, key in zip(reversed(nodes), reversed(path), strict=True):
            # An object that still has other fields stays, and so do those around it.
            if key != path[-1] and node.get(key):
                break
            node.pop(key, None)


def spelled(path: Iterable[str]) -> str:
    """A name without case and separators: `("source", "ip")` and `src.Ip` as they compare."""
    return _SEPARATORS.sub("", ".".join(path)).lower()


def text(value: Any) -> str | None:
    """Text that says something."""
    return value if type(value) is str and value not in ("", "-", "null", "N/A") else None


def word(value: Any) -> str | None:
    """Text or a whole number, as text."""
    value = integral(value)
    return str(value) if type(value) is int else text(value)


def port(value: Any) -> int | None:
    """A port, as number or text."""
    # Bounded before `int`: Python refuses, and takes long over, numbers of thousands of digits.
    value = integral(value)
    if type(value) is str and value.isdecimal() and len(value) < 6:
        value = int(value)
    # `type(...) is int`, since `isinstance` would take `true` for port 1.
    return value if type(value) is int and 0 <= value <= 65535 else None


def whole(value: Any) -> int | None:
    """A whole number that is not negative, as number or text."""
    value = integral(value)
    if type(value) is str and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def ip(value: Any) -> tuple[str, int | None] | None:
    """An address, and the port that stands behind it."""
    # A list of several addresses names no single endpoint, so it stays where it is.
    if type(value) is list and len(value) == 1:
        value = value[0]
    if type(value) is not str or len(value) > 64:
        return None
    value = value.strip()
    # The whole first: an IPv6 address has colons, so its last part would look like a port.
    ip_address = address(value)
    if ip_address:
        return ip_address, None
    match = _HOST_PORT.fullmatch(value)
    inner = address(match[1] or match[2]) if match else None
    number = port(match[3]) if match else None
    return (inner, number) if inner and number is not None else None


def mac(value: Any) -> str | None:
    """A hardware address."""
    return mac_address(value) if type(value) is str else None


def read_moment(value: Any, zone: ZoneInfo, received_at: datetime) -> Stamp | None:
    """A time in any of the forms that products write; None where it is none."""
    if type(value) is int or type(value) is float:
        stamp = stamp_epoch(value, received_at)
    # No form of a time is longer; the expressions below then never see a long text.
    elif type(value) is str and len(value) < 64:
        stamp = _stamp(value.strip(), zone, received_at)
    else:
        return None
    return None if stamp.quality == "received" else stamp


def _stamp(value: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    stamp = stamp_iso(value, zone, received_at)
    if stamp.quality != "received":
        return stamp
    for pattern, form in ((_MINUTES, "{0}:00{1}"), (_GO, "{0}{1}"), (_ZONED, "{0}Z")):
        match = pattern.fullmatch(value)
        if match:
            joined = form.format(*(part or "" for part in match.groups()))
            return _as_written(stamp_iso(joined, zone, received_at), value)
    slashed = _SLASHED.fullmatch(value)
    if slashed:
        joined = "-".join(slashed.groups()[:3]) + slashed[4]
        return _as_written(stamp_iso(joined, zone, received_at), value)
    # Only Common Log Format has a slash third; the other slashed form begins with a year.
    if value[2:3] == "/":
        return stamp_clf(value.strip("[]"), zone, received_at)
    # After all dated forms, before words: a text of digits alone can only be an epoch.
    number = stamp_epoch(value, received_at)
    return number if number.quality != "received" else _in_words(value, zone, received_at)


def _as_written(stamp: Stamp, value: str) -> Stamp:
    return stamp if stamp.original is None else stamp._replace(original=value[:64])


def _in_words(value: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """`Nov 21, 2026 10:00:00 PM`, `Sat Nov 21 10:00:00 2026 UTC`, and the form of e-mails."""
    match = _WORDS.fullmatch(value)
    year = (match[3] or match[6] or match[8]) if match else None
    if match and year and month_number(match[1]):
        clock = match[4] if len(match[4].partition(":")[0]) == 2 else f"0{match[4]}"
        half = (match[5] or "").lower()
        if half:
            # 12 AM is midnight and 12 PM is noon.
            hour = int(clock[:2]) % 12 + (12 if half == "pm" else 0)
            clock = f"{hour:02d}{clock[2:]}"
        month, day = month_number(match[1]), int(match[2])
        offset = match[7]
        return stamp_parts(
            int(year), month, day, clock, zone, received_at, original=value, offset=offset
        )
    try:
        changed = parsedate_to_datetime(value)
        if changed.tzinfo is None:
            changed = changed.replace(tzinfo=zone)
        return stamp_iso(changed.isoformat(), zone, received_at)
    except (ValueError, OverflowError, TypeError, IndexError):
        return Stamp.missing(received_at, value)


def of_two(day: Any, clock: Any, zone: ZoneInfo, received_at: datetime) -> Stamp | None:
    """A date and a time of day that stand in fields of their own."""
    if type(day) is str and type(clock) is str and _DAY.fullmatch(day) and _CLOCK.fullmatch(clock):
        return read_moment(f"{day}T{clock}", zone, received_at)
    return None
