"""Logs in OpenTelemetry's protocol, as JSON (https://opentelemetry.io/docs/specs/otlp/).

`resourceLogs[].scopeLogs[].logRecords[]`: each record becomes an object of plain names, with
what its resource and scope say of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DEPTH = 8
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


def _value(node: Any, depth: int = 0) -> Any:
    """The plain value of an `AnyValue`; what is none stays as it is."""
    if type(node) is not dict or depth > _DEPTH:
        return node
    for key in _VALUES:
        if key in node:
            value = node[key]
            # Numbers of 64 bits are written as text.
            digits = type(value) is str and len(value) < 19 and value.lstrip("-").isdecimal()
            return int(value) if key == "intValue" and digits else value
    inner = node.get("arrayValue")
    if type(inner) is dict and type(inner.get("values")) is list:
        return [_value(each, depth + 1) for each in inner["values"]]
    inner = node.get("kvlistValue")
    if type(inner) is dict:
        return _attributes(inner.get("values"), depth + 1)
    return node


def _attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    """Attributes by name; of a name that stands twice the first."""
    attributes: dict[str, Any] = {}
    for pair in pairs if type(pairs) is list else ():
        if type(pair) is dict and type(pair.get("key")) is str:
            attributes.setdefault(pair["key"], _value(pair.get("value"), depth))
    return attributes


def _objects(node: Any, *names: str) -> list[dict[str, Any]]:
    """The objects of a list, which older versions called otherwise."""
    for name in names:
        value = node.get(name) if type(node) is dict else None
        if type(value) is list:
            return [each for each in value if type(each) is dict]
    return []


def _records(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _objects(fields, "resourceLogs"):
        about = resource.get("resource")
        common = _attributes(about.get("attributes") if type(about) is dict else None)
        for scope in _objects(resource, "scopeLogs", "instrumentationLibraryLogs"):
            for record in _objects(scope, "logRecords", "logs"):
                rest = dict(record)
                attributes = _attributes(rest.pop("attributes", None))
                body = _value(rest.pop("body", None))
                observed = rest.pop("observedTimeUnixNano", None)
                time = rest.pop("timeUnixNano", None)
                # 0 is the protocol's word for a time that is not known.
                time = observed if time in (None, 0, "0") else time
                plain: dict[str, Any] = {"timestamp": time} if time else {}
                if type(body) is dict:
                    plain |= {key: value for key, value in body.items() if key not in plain}
                elif body is not None:
                    plain["message"] = body
                # A record's own attributes win over those of what it comes from.
                yield plain | {
                    k: v for k, v in (common | attributes | rest).items() if k not in plain
                }


def records_of(fields: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The records in a request of the protocol; None where it is none."""
    if type(fields.get("resourceLogs")) is not list:
        return None
    return [record for record in _records(fields) if record] or None
