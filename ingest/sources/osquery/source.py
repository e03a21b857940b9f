"""osquery's logs: results of scheduled queries, as events, batches and snapshots, and its status.

Formats: https://osquery.readthedocs.io/en/stable/deployment/logging/ ; the TLS logger's requests
(`"log_type": "result", "data": [...]`) are unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.field_lookup import read_moment
from ingest.parsing.json_source import JsonSource
from ingest.parsing.json_time import restamp_json
from ingest.parsing.ocsf import (
    A_COMMAND,
    A_HASH,
    A_HOST,
    A_PATH,
    A_USER,
    AN_IP,
    AUTHENTICATION,
    BASE,
    DNS,
    FILE,
    GROUP,
    HIGH,
    INFORMATIONAL,
    MEDIUM,
    NETWORK,
    PROCESS,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import require_repeatable
from ingest.parsing.timestamps import Stamp
from ingest.sources.osquery.state import history, login, reader_of
from ingest.sources.osquery.tables import ADDED, REMOVED, SNAPSHOT, OsqueryRow, TableRow

_PRODUCT: Mapping[str, str] = {"name": "osquery", "vendor_name": "osquery"}
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)
_LEVELS = {"0": INFORMATIONAL, "1": MEDIUM, "2": HIGH, "3": HIGH}
_EVENT_TIMES = ("time", "datetime")


class Osquery(JsonSource):
    """Results and status lines of osquery."""

    name = "osquery"
    time_key = "unixTime"

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        data = fields.get("data")
        # The request of the TLS logger; a result has a `name` of its own.
        if type(data) is list and data and "name" not in fields:
            around = {key: value for key, value in fields.items() if key != "data"}
            require_repeatable(around, len(data))
            inner = [around | element for element in data if type(element) is dict]
            return [each for element in inner for each in self.events(element, context)]
        if "columns" in fields or "snapshot" in fields or "diffResults" in fields:
            return [_row(*each, context) for each in _rows(fields)]
        if "message" in fields and ("filename" in fields or "severity" in fields):
            return [_status(fields, context)]
        if fields.keys() & {"name", "hostIdentifier"}:
            return [_status(fields, context)]
        raise Unreadable("no 'columns', 'snapshot', 'diffResults' or 'message' in the object")

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return restamp_json(raw, self.time_key, when, zone)


def _rows(fields: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """What stands around each row of a result, the row, and what happened to it."""
    if type(fields.get("columns")) is dict:
        around = {key: value for key, value in fields.items() if key not in ("columns", "action")}
        action = fields.get("action")
        yield around, fields["columns"], action if type(action) is str else ADDED
        return
    batches: list[tuple[str, Any]] = [(SNAPSHOT, fields.get("snapshot"))]
    results = fields.get("diffResults")
    if type(results) is dict:
        batches += [(REMOVED, results.get("removed")), (ADDED, results.get("added"))]
    around = {
        key: value
        for key, value in fields.items()
        if key not in ("snapshot", "diffResults", "action")
    }
    lists = [(action, batch) for action, batch in batches if type(batch) is list]
    require_repeatable(around, sum(len(batch) for _, batch in lists))
    none = True
    for action, batch in lists:
        for element in batch:
            none = False
            yield dict(around), element if type(element) is dict else {"value": element}, action
    # A query without rows is an answer too, and its record must have a row in silver.
    if none:
        yield around, {}, SNAPSHOT if "snapshot" in fields else ADDED


def _row(around: dict[str, Any], columns: dict[str, Any], action: str, context: Context) -> Event:
    # In SQL's answer a column that is not known is an empty text.
    row_columns = {key: value for key, value in columns.items() if value not in ("", None)}
    query = around.pop("name", None)
    query = query if type(query) is str else "unknown"
    # The first answer to a query tells what is there, not what came.
    first = str(around.get("counter")) == "0"
    row = OsqueryRow(row_columns, action, query, first)
    host = _device(around)
    reader = reader_of(row)
    table_row: TableRow = reader(row)
    # Only there is a row's `time` when something happened; elsewhere it may be anything.
    timed = reader in (login, history) or query.rstrip("0123456789").endswith("events")
    stamp = _stamp(around, row.columns if timed else {}, context, host.get("hostname"))
    values = {name: value for name, value in table_row.columns.items() if value is not None}
    hardware = values.pop("mac", None)
    more = dict(table_row.more)
    device = host | kept(mac=hardware)
    if not device.keys() - {"type_id"}:
        more["device"] = {"name": "unknown", "type_id": 0}
    _sound(table_row.class_uid, values, more)
    _ends(table_row.class_uid, values, row, host.get("hostname"))
    return event(
        table_row.class_uid,
        table_row.activity,
        stamp,
        metadata=metadata(_PRODUCT, stamp, log_name=query, event_code=action),
        device=device if device.keys() - {"type_id"} else None,
        observables=observables(*_worth(values)),
        unmapped=unmapped(around | kept(columns=row.columns or None)),
        more=more or None,
        **values,
    )


def _sound(class_uid: int, values: dict[str, Any], more: dict[str, Any]) -> None:
    """What OCSF requires and the row does not say."""
    for process in (values.get("process"), (values.get("actor") or {}).get("process")):
        if process is not None and not process.keys() & {"pid", "uid"}:
            # Whatever names it best identifies it.
            names = (process.get(name) for name in ("path", "name", "cmd_line"))
            process["uid"] = next((name for name in names if name), "unknown")[:256]
    if class_uid in (FILE, PROCESS) and not values.get("actor"):
        more.setdefault("actor", {"invoked_by": "unknown"})
    if class_uid == GROUP and not values.get("group"):
        more["group"] = {"name": "unknown"}
    if class_uid == AUTHENTICATION and not values.get("service"):
        values["service"] = {"name": "login"}


def _ends(class_uid: int, values: dict[str, Any], row: OsqueryRow, host: str | None) -> None:
    """The endpoints, those without an address being of the machine itself."""
    for name in ("src_endpoint", "dst_endpoint"):
        end = values.get(name)
        if end and not end.keys() & {"ip", "hostname"}:
            if host:
                values[name] = {key: value for key, value in end.items() if value} | {
                    "hostname": host
                }
            else:
                row.columns[name] = values.pop(name)
    if class_uid == AUTHENTICATION and host:
        values["dst_endpoint"] = {"hostname": host}
    elif class_uid in (NETWORK, DNS) and not values.get("src_endpoint"):
        values["src_endpoint"] = {"hostname": host or "unknown"}


def _device(around: dict[str, Any]) -> dict[str, Any]:
    decorations = around.get("decorations")
    decorations = decorations if type(decorations) is dict else around
    named = around.get("hostIdentifier")
    uid = decorations.get("host_uuid")
    name = decorations.get("hostname") or decorations.get("computer_name")
    if type(named) is str and named:
        # `hostIdentifier` is a UUID or a name, as the operator chose.
        if _UUID.fullmatch(named):
            uid = uid or named
        else:
            name = name or named
        del around["hostIdentifier"]
        if named not in (uid, name):
            around["hostIdentifier"] = named
    return kept(
        hostname=name if type(name) is str and name else None,
        uid=uid if type(uid) is str and uid else None,
        type_id=0,
    )


def _stamp(
    around: dict[str, Any], columns: dict[str, Any], context: Context, host: str | None
) -> Stamp:
    """When it happened; else when the query was answered."""
    zone, received_at = context.zone(host), context.record.received_at
    for name in _EVENT_TIMES:
        value = columns.get(name)
        # osquery writes 0 for a time that it does not know.
        if type(value) in (str, int) and value not in ("0", 0):
            stamp_read = read_moment(value, zone, received_at)
            if stamp_read:
                del columns[name]
                return stamp_read
    for name in ("unixTime", "calendarTime", "timestamp", "time"):
        stamp_read = read_moment(around.get(name), zone, received_at)
        if stamp_read:
            del around[name]
            return stamp_read
    return Stamp.missing(received_at, around.get("calendarTime"))


def _status(fields: dict[str, Any], context: Context) -> Event:
    """A line of osquery's own log."""
    host = _device(fields)
    stamp = _stamp(fields, {}, context, host.get("hostname"))
    message, level = fields.get("message"), str(fields.get("severity"))
    if type(message) is str:
        del fields["message"]
    return event(
        BASE,
        0,
        stamp,
        severity_id=_LEVELS.get(level, INFORMATIONAL),
        message=message if type(message) is str else None,
        metadata=metadata(_PRODUCT, stamp, log_name="status"),
        device=host if host.keys() - {"type_id"} else None,
        unmapped=unmapped(fields),
    )


def _worth(values: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    for name in ("src_endpoint", "dst_endpoint"):
        yield f"{name}.ip", AN_IP, (values.get(name) or {}).get("ip")
    yield "src_endpoint.hostname", A_HOST, (values.get("src_endpoint") or {}).get("hostname")
    yield "user.name", A_USER, (values.get("user") or {}).get("name")
    process = values.get("process") or {}
    yield "process.cmd_line", A_COMMAND, process.get("cmd_line")
    yield "process.file.path", A_PATH, process.get("path")
    for hash_value in process.get("hashes") or ():
        yield "process.file.hashes", A_HASH, hash_value["value"]
    file = values.get("file") or {}
    yield "file.path", A_PATH, file.get("path")
    for hash_value in file.get("hashes") or ():
        yield "file.hashes", A_HASH, hash_value["value"]
    yield "query.hostname", A_HOST, (values.get("query") or {}).get("hostname")
    yield "job.cmd_line", A_COMMAND, (values.get("job") or {}).get("cmd_line")


SOURCES = (Osquery(),)
