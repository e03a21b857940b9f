r"""Access logs that an operator had written as JSON, under names of his own choice.

Apache and, without `escape=json`, nginx escape bytes as `\xhh`, which is no JSON; that one
fault is repaired. Objects of container engines and shippers that hold the line itself in
`log` or `message` are read for it.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.json_time import restamp_json
from ingest.parsing.source import Context, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import NUMBER, Stamp
from ingest.sources.shared.clf import Extras, read_clf
from ingest.sources.shared.http_exchange import Exchange, shown_bytes
from ingest.sources.shared.http_fields import TIMES, fill_all, flat, plain_name, stamp_of, take_time
from ingest.sources.shared.web_timestamps import Writer, write_clf, write_epoch

_ESCAPES = re.compile(r"((?:\\x[0-9A-Fa-f]{2})+)|\\(?:u[0-9A-Fa-f]{4}|[\"\\/bfnrt])|\\", re.DOTALL)
INNER = ("log", "message", "msg")


def _decode(text: str) -> dict[str, Any]:
    r"""The one object that `text` is, `\xhh` and other escapes unknown to JSON repaired."""
    try:
        return decode_object(text.encode())
    except Unreadable:
        repaired = _ESCAPES.sub(_repair, text)
        if repaired == text:
            raise
        return decode_object(repaired.encode())


def _repair(match: re.Match[str]) -> str:
    if match[1]:
        return json.dumps(shown_bytes(match[1]), ensure_ascii=False)[1:-1]
    return "\\\\" if match[0] == "\\" else match[0]


def read_json(line: Line, context: Context, extras: Extras) -> tuple[Exchange, Stamp]:
    """The exchange and time of an object. Raises `Unreadable` where it tells of none."""
    fields = _decode(line.text)
    zone, received_at = context.zone(line.host), context.record.received_at
    for name in INNER:
        value = fields.get(name)
        inner = type(value) is str and read_clf(value.rstrip("\r\n"), zone, received_at, extras)
        if inner:
            del fields[name]
            x, stamp = inner
            x.rest |= fields
            return x, stamp
    leaves = flat(fields)
    stamp = take_time(leaves, zone, received_at) or Stamp.missing(received_at, None)
    x = Exchange()
    fill_all(x, dict(sorted(leaves.items(), key=_order)))
    if x.client is None and x.code is None and x.target is None and "request" not in x.rest:
        raise Unreadable("a JSON object without client, request and status")
    if x.port is None and x.host:
        x.port = x.server.get("port")
    return x, stamp


def _order(item: tuple[str, object]) -> int:
    """The request line first, and a path before its query: they say the same things."""
    name = plain_name(item[0])
    ranks = ("request", "requesturi", "remoteaddr", "uri", "url", "csuristem")
    return ranks.index(name) if name in ranks else len(ranks)


def restamp_web_json(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """The object with its best time replaced; None where `text` is none or has none."""
    if text[:1] != "{":
        return None
    try:
        fields = decode_object(text.encode())
        names = {plain_name(name): name for name in fields}
        for name in (names[time] for time in TIMES if time in names):
            if stamp_of(fields[name], zone, when).quality != "received":
                return _rewritten(text, name, fields[name], when, zone)
    except Unreadable:
        return None
    return None


def _rewritten(text: str, name: str, old: object, when: datetime, zone: ZoneInfo) -> str | None:
    if type(old) is not str or old[4:5] == "-":
        return restamp_json(text.encode(), name, when, zone).decode()
    write: Writer = write_epoch if NUMBER.fullmatch(old) else write_clf
    new = write(old.strip("[]"), when, zone)
    if new is None:
        return None
    return text.replace(
        json.dumps(old, ensure_ascii=False), f'"{old.replace(old.strip("[]"), new)}"'
    )
