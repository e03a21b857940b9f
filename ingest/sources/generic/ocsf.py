"""OCSF objects that another pipeline made: checked, and passed through.

What must hold is what makes an event of a class: `class_uid`, `activity_id`, a `type_uid` and a
`category_uid` that follow from them, and a time (https://schema.ocsf.io/1.8.0). All that no column
gives back as it came goes to `more`, so that what comes out equals what came in. Where the object
says when and by whom it was collected (`metadata.logged_time`, `metadata.source`), we say so of
ourselves, and its own words stand in `unmapped`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import ocsf
from ingest.parsing.field_lookup import read_moment
from ingest.parsing.json_source import JsonSource
from ingest.parsing.json_time import replace_value, written_like
from ingest.parsing.ocsf import KINDS, OTHER, SEVERITY, STATUS
from ingest.parsing.ocsf_export import milliseconds, ocsf_object
from ingest.parsing.ocsf_import import columns_of
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import decode_object, encode, kind
from ingest.parsing.timestamps import Stamp

_FINDINGS = 2
_SKEW = timedelta(seconds=1)
_IDS = ("class_uid", "activity_id", "category_uid", "type_uid", "severity_id", "time")
_OWN = frozenset({*_IDS, "time_dt", "unmapped"})


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    # Some pipelines write all numbers as texts.
    if type(value) is str and value.isdecimal() and len(value) < 16:
        value = int(value)
    if type(value) is not int:
        result = "none" if value is None else kind(value)
        raise Unreadable(f"{name}: expected a whole number, found {result}")
    return value


def _checked(fields: Mapping[str, Any]) -> tuple[int, int, int]:
    """Class, activity and severity of an object. Raises `Unreadable` where they contradict."""
    class_uid, type_uid = _number(fields, "class_uid"), _number(fields, "type_uid")
    ocsf_class = KINDS.get(class_uid)
    if ocsf_class is None:
        raise Unreadable(f"class_uid: no class {class_uid} in OCSF {ocsf.VERSION}")
    activity = (
        _number(fields, "activity_id") if "activity_id" in fields else type_uid - class_uid * 100
    )
    if "activity_id" not in fields and not 0 <= activity < 100:
        raise Unreadable(f"type_uid: {type_uid} is none of class {class_uid}")
    # OCSF defines it so; objects that contradict themselves are read differently by each reader.
    if type_uid != class_uid * 100 + activity:
        raise Unreadable(
            f"type_uid: expected {class_uid * 100 + activity} of class {class_uid} and "
            f"activity {activity}, found {type_uid}"
        )
    if activity != OTHER and activity not in ocsf_class.activities:
        raise Unreadable(f"activity_id: {ocsf_class.name} has no activity {activity}")
    if "category_uid" in fields and _number(fields, "category_uid") != ocsf_class.category_uid:
        raise Unreadable(
            f"category_uid: expected {ocsf_class.category_uid} of class {class_uid}, "
            f"found {fields['category_uid']}"
        )
    severity = _number(fields, "severity_id") if fields.get("severity_id") is not None else 0
    if severity not in SEVERITY:
        raise Unreadable(f"severity_id: {severity} is none of OCSF's")
    return class_uid, activity, severity


def _stamp(fields: Mapping[str, Any], context: Context) -> Stamp:
    zone, received_at = context.zone(context.host), context.record.received_at
    value, spelled = fields.get("time"), fields.get("time_dt")
    stamp_read = read_moment(value, zone, received_at)
    other = read_moment(spelled, zone, received_at)
    if stamp_read is None and value is not None:
        raise Unreadable(f"time: not a time: {str(value)[:40]!r}")
    if stamp_read is None and other is None:
        raise Unreadable("no 'time' in the object")
    # `time` has milliseconds and `time_dt` may have less, so they may differ within a second.
    if stamp_read and other and abs(stamp_read.time - other.time) > _SKEW:
        raise Unreadable(f"time_dt: {str(spelled)[:40]} is another time than {value}")
    return stamp_read or other or Stamp.missing(received_at, value)


def _read(fields: dict[str, Any], context: Context) -> Event:
    """The event that an OCSF object is. Raises `Unreadable`."""
    class_uid, activity, severity = _checked(fields)
    stamp = _stamp(fields, context)
    odd = _odd(fields)
    columns = columns_of(fields)
    about = {"version": ocsf.VERSION, "product": {"name": "unknown"}} | columns.pop("metadata", {})
    name = columns.pop("activity_name", None)
    row = ocsf.event(
        class_uid,
        activity,
        stamp,
        activity_name=name if type(name) is str else None,
        severity_id=severity,
        metadata=about,
        **columns,
    )
    _outcome(row, fields, class_uid)
    theirs = fields.get("metadata")
    left = _unmapped(fields, theirs if type(theirs) is dict else {})
    if left or odd:
        row["unmapped"] = encode(odd | left)
    more = _missing(fields, _shown(row, context))
    if more:
        row["more"] = encode(more)
    return row


def _odd(fields: dict[str, Any]) -> dict[str, Any]:
    """What is no object where OCSF has one that we must look into; taken out."""
    odd: dict[str, Any] = {
        name: fields.pop(name)
        for name in ("metadata", "http_request")
        if name in fields and type(fields[name]) is not dict
    }
    request = fields.get("http_request")
    if request and type(request.get("http_method", "")) is not str:
        odd["http_method"] = request.pop("http_method")
    return odd


def _outcome(row: Event, fields: Mapping[str, Any], class_uid: int) -> None:
    """Status, action and disposition: by class their numbers have names of their own."""
    finding = class_uid // 1000 == _FINDINGS
    for key, names in (
        ("status", {} if finding else STATUS),
        ("action", ocsf.ACTION),
        ("disposition", ocsf.DISPOSITION),
    ):
        number, name = fields.get(f"{key}_id"), fields.get(key)
        # The column has 32 bits: what is wider goes to `more`.
        if type(number) is int and -(2**31) <= number < 2**31:
            row[f"{key}_id"] = number
            row[key] = name if type(name) is str else names.get(number)
        elif type(name) is str:
            row[key] = name


def _unmapped(fields: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    left = fields.get("unmapped")
    rest = dict(left) if type(left) is dict else {} if left is None else {"unmapped": left}
    lines = {key: theirs[key] for key in ("source", "logged_time", "labels") if key in theirs}
    if lines:
        rest["metadata"] = rest.get("metadata", lines)
    return rest


def _shown(row: Event, context: Context) -> dict[str, Any]:
    """What people would get of the row as it is."""
    record = context.record
    return ocsf_object(row | {"source": record.source, "received_at": record.received_at})


def _missing(fields: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object is not shown as it came."""
    results: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _OWN or value is None:
            continue
        old = columns.get(name)
        if type(value) is dict and type(old) is dict:
            inner = _missing(value, old) if name != "metadata" else _about(value, old)
            if inner:
                results[name] = inner
        # `1` and `1.0` and `true` are equal to Python, and not the same in JSON.
        elif value != old or type(value) is not type(old):
            results[name] = value
    if type(fields.get("time_dt")) is str:
        results["time_dt"] = fields["time_dt"]
    return results


def _about(value: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    ours = ("source", "logged_time", "labels")
    return _missing({key: element for key, element in value.items() if key not in ours}, old)


class Ocsf(JsonSource):
    """Objects that are OCSF already."""

    name = "ocsf"

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        return [_read(fields, context)]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        before = decode_object(raw)
        if "time" not in before:
            raise Unreadable("no 'time' in the object")
        old = before["time"]
        large = type(old) is int and abs(old) >= 10**11
        # A number as large as this counts milliseconds; one of seconds reaches it in the year 5138.
        new = str(milliseconds(when)) if large else written_like(old, "time", when, zone)
        return replace_value(raw, before, "time", new)


SOURCES = (Ocsf(),)
