"""Rows of silver.event as plain OCSF 1.8.0 objects, for people and other tools.

Columns that OCSF has under another name move there; those it does not have
go to `metadata` or `unmapped`. Copies made only for searching stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ingest.time import EPOCH

SEARCH_ONLY = frozenset({"src_ip", "dst_ip", "user_name", "host_name", "mac"})
OURS = frozenset(
    {"event_uid", "record_ids", "correlation_uid", "duplicate_of", "dead_letter_reason", "mode"}
)
RENAMED: Mapping[str, str] = {"cwd": "working_directory", "parent": "parent_process"}


def ocsf_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a row: no nulls, times in milliseconds since 1970.

    `metadata` also says the source, when the record came (`logged_time`), and in
    `labels` how good its time is and its scope. A dead letter is an object with
    `dead_letter_reason`, its source and its times.
    """
    if row.get("dead_letter_reason") is not None:
        names = ("dead_letter_reason", "source", "class_uid", "time", "received_at")
        return {name: _plain(row[name]) for name in names}
    found: dict[str, Any] = {}
    for name, value in row.items():
        if value is not None and name not in _HIDDEN:
            plain = _plain(value)
            if plain is not None:
                found[name] = plain
    if isinstance(found.get("unmapped"), str):
        found["unmapped"] = msgspec.json.decode(found["unmapped"])
    if row.get("auth_method"):
        found["unmapped"] = found.get("unmapped", {}) | {"auth_method": row["auth_method"]}
    _keep_valid(found)
    if row.get("relay_ip"):
        found["relay"] = {"ip": row["relay_ip"], "type_id": 0}
    found["metadata"] = found["metadata"] | _about(row)
    return found


METHODS = frozenset(
    {"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "PATCH"}
)


def _keep_valid(found: dict[str, Any]) -> None:
    """OCSF knows nine HTTP methods; another, such as PROPFIND, goes to `unmapped`."""
    request = found.get("http_request", {})
    if request.get("http_method", "GET") not in METHODS:
        method = request.pop("http_method")
        found["unmapped"] = found.get("unmapped", {}) | {"http_method": method}


_MOVED = frozenset({"source", "received_at", "time_quality", "scope", "auth_method", "relay_ip"})
_HIDDEN = SEARCH_ONLY | OURS | _MOVED


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    labels = [f"{name}:{row[name]}" for name in ("time_quality", "scope") if row.get(name)]
    return {"source": row["source"], "logged_time": _plain(row["received_at"]), "labels": labels}


def _plain(value: Any) -> Any:
    """`value` without nulls and empty structs, times as milliseconds."""
    of = type(value)
    if of is dict:
        return _struct(value)
    if of is list:
        return [_plain(one) for one in value] or None
    if of is datetime:
        return milliseconds(value)
    return value


def _struct(value: dict[str, Any]) -> dict[str, Any] | None:
    found = {}
    for name, one in value.items():
        if one is None:
            continue
        plain = one if type(one) is str or type(one) is int else _plain(one)
        if plain is not None:
            found[name] = plain
    for ours, theirs in RENAMED.items():
        if ours in found:
            found[theirs] = found.pop(ours)
    if "account_uid" in found:
        found["account"] = {"uid": found.pop("account_uid")}
    return found or None


def milliseconds(time: datetime) -> int:
    """Milliseconds since 1970 of an aware time, rounded down."""
    since = time - EPOCH
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000
