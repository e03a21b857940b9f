"""Rewriting one time inside JSON text without touching another byte."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.timestamps import EPOCH, like_iso

# A string is taken with its escapes, so that `\"` in it does not end it early.
_VALUE = r'"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|-?\d[0-9.eE+-]*)'


def restamp_json(raw: bytes, key: str, when: datetime, zone: ZoneInfo) -> bytes:
    """`raw` with its top-level time `key` replaced by `when`, number or ISO text as it was.

    A number keeps its digits after the point, text its form. Each change is
    checked by reading it back: the same word may also stand in a nested object.
    """
    before = decode_object(raw)
    if key not in before:
        raise Unreadable(f"no '{key}' in the object")
    return replace_value(raw, before, key, written_like(before[key], key, when, zone))


def written_like(old: object, key: str, when: datetime, zone: ZoneInfo) -> str:
    """JSON text of `when`, written as `old` is."""
    if type(old) is str:
        new = like_iso(old, when, zone)
        if new is None:
            raise Unreadable(f"{key}: not an ISO time: '{old[:40]}'")
        return f'"{new}"'
    if type(old) is int:
        whole = when - EPOCH
        micros = (whole.days * 86400 + whole.seconds) * 1_000_000 + whole.microseconds
        # In the unit the old one had, which its size tells (see
        # `ingest.parsing.timestamps.stamp_epoch`).
        units = ((1e17, 1000, 1), (1e14, 1, 1), (1e11, 1, 1000))
        times, by = next(((t, b) for least, t, b in units if abs(old) >= least), (1, 1_000_000))
        return str(micros * times // by)
    # Through whole numbers: a float of today's epoch does not hold all microseconds of a sum.
    if type(old) is float:
        whole = when - EPOCH
        micros = (whole.days * 86400 + whole.seconds) * 1_000_000 + whole.microseconds
        sign = "-" if micros < 0 else ""
        return f"{sign}{abs(micros) // 1_000_000}.{abs(micros) % 1_000_000:06d}"
    raise Unreadable(f"{key}: neither a number nor text")


def replace_value(raw: bytes, before: dict[str, Any], key: str, new: str) -> bytes:
    """`raw` with the top-level value of `key` replaced by the JSON text `new`."""
    for match in re.finditer(rb'"' + re.escape(key.encode()) + _VALUE.encode(), raw):
        changed = raw[: match.start("value")] + new.encode() + raw[match.end("value") :]
        try:
            after = decode_object(changed)
        except Unreadable:
            continue
        value = decode_object(b'{"v":' + new.encode() + b"}")["v"]
        # The order of keys too: the same word inside a string could otherwise be changed unnoticed.
        if after == before | {key: value} and list(after) == list(before):
            return changed
    raise Unreadable(f"'{key}' is written in a way that cannot be replaced")
