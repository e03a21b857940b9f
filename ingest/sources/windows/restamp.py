"""Rewriting the times of a Windows event in JSON, wherever its writer put them."""

from __future__ import annotations

import copy
import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.json_time import written_like
from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import decode_object

_UTC = ZoneInfo("UTC")
Paths = tuple[tuple[tuple[str, ...], bool], ...]
"""Where a time may stand, key by key, and whether it is local without a zone."""
_NAMED = ("Event", "EventData", "Data")


def restamped_json(raw: bytes, paths: Paths, when: datetime, zone: ZoneInfo) -> bytes:
    """`raw` with each of its times moved to `when`. Raises `Unreadable` where it has none."""
    changed = False
    for path, local in (*paths, *_named_path(raw)):
        before = decode_object(raw)
        old = value_at(before, path)
        if old is None:
            continue
        try:
            new = written_like(old, str(path[-1]), when, zone if local else _UTC)
        except Unreadable:
            continue
        raw = _replaced(raw, before, path, old, new)
        changed = True
    if not changed:
        raise Unreadable("no time in the object that could be replaced")
    return raw


def _named_path(raw: bytes) -> list[tuple[Any, bool]]:
    """Where `UtcTime` stands in a list of `{"@Name": ..., "#text": ...}`."""
    data = value_at(decode_object(raw), _NAMED)
    if type(data) is not list:
        return []
    return [
        ((*_NAMED, index, "#text"), False)
        for index, element in enumerate(data)
        if type(element) is dict and element.get("@Name") == "UtcTime"
    ]


def value_at(node: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path of keys and places, or None."""
    for key in path:
        if type(node) is dict:
            node = node.get(key)
        elif type(node) is list and type(key) is int and key < len(node):
            node = node[key]
        else:
            return None
    return node


def _replaced(
    raw: bytes, before: dict[str, Any], path: tuple[Any, ...], old: Any, new: str
) -> bytes:
    """`raw` with the value at `path` replaced; each change is checked by reading it back."""
    expected = copy.deepcopy(before)
    value_at(expected, path[:-1])[path[-1]] = decode_object(b'{"v":' + new.encode() + b"}")["v"]
    if expected == before:
        return raw
    old_text = f'"{old}"' if type(old) is str else str(old)
    key = re.escape(str(path[-1]).encode())
    # Python may write a float with other digits than stand in the text.
    value = re.escape(old_text.encode()) if type(old) is not float else rb"-?[\d.eE+-]+"
    for match in re.finditer(rb'"' + key + rb'"\s*:\s*(?P<value>' + value + rb")", raw):
        changed = raw[: match.start("value")] + new.encode() + raw[match.end("value") :]
        if decode_object(changed) == expected:
            return changed
    raise Unreadable(f"'{path[-1]}' is written in a way that cannot be replaced")
