"""Microsoft Defender: the tables of advanced hunting that devices fill, and alerts.

https://learn.microsoft.com/en-us/defender-xdr/advanced-hunting-schema-tables : rows as the
streaming API writes them (`{"time", "category": "AdvancedHunting-DeviceProcessEvents",
"properties": {..}}`), as Log Analytics exports them (`Type`), or alone. Tables of identities,
mail and cloud apps are read by `hunting_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    FAILURE,
    FILE,
    FINDING,
    MODULE,
    NETWORK,
    OTHER,
    PROCESS,
    REG_KEY,
    REG_VALUE,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    look,
    take,
    take_ip,
    take_name,
    take_number,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord
from ingest.sources.microsoft import hunting_tables
from ingest.sources.microsoft.device_events import DEVICE_EVENTS
from ingest.sources.microsoft.device_row import NAMELESS, PID, Row, file_of, uid_of, user_of
from ingest.sources.shared.firewall import (
    INBOUND,
    OUTBOUND,
    connection,
    endpoint,
    severity,
)
from ingest.sources.shared.registry_form import key_path, number_text

_PRODUCT: Mapping[str, str] = {"name": "Defender for Endpoint", "vendor_name": "Microsoft"}


def _process(row: Row) -> Event:
    fields = row.fields
    file = file_of(fields)
    user = user_of(fields, "Account")
    activity = {"ProcessCreated": 1, "OpenProcess": 3, "ProcessTerminated": 2}.get(row.action, 1)
    process = kept(
        pid=(pid := take_number(fields, "ProcessId", most=PID)),
        uid=uid_of(fields, "ProcessUniqueId", pid),
        name=(file or {}).get("name"),
        path=(file or {}).get("path"),
        cmd_line=take_text(fields, "ProcessCommandLine"),
        user=user,
        hashes=(file or {}).get("hashes"),
        integrity=take_text(fields, "ProcessIntegrityLevel"),
        **{leaf: take_text(fields, column) for leaf, column in _VERSION_INFO.items()},
    )
    event = row.event(PROCESS, activity, status=SUCCESS, process=process)
    if activity == 1:
        # Who starts a process is its parent.
        acting = (event.get("actor") or {}).get("process") or {}
        parent = {leaf: acting[leaf] for leaf in _OF_PARENT if leaf in acting}
        event["process"] = process | kept(parent=parent or None)
    return event


_OF_PARENT = ("pid", "uid", "name", "path", "cmd_line", "user")
_VERSION_INFO: Mapping[str, str] = MappingProxyType(
    {
        "company_name": "ProcessVersionInfoCompanyName",
        "product": "ProcessVersionInfoProductName",
        "desc": "ProcessVersionInfoFileDescription",
        "internal_name": "ProcessVersionInfoOriginalFileName",
        "version": "ProcessVersionInfoProductVersion",
    }
)
"""What the file of a process says of itself."""


def _network(row: Row) -> Event:
    fields = row.fields
    inward = row.action.startswith("Inbound")
    here = kept(ip=take_ip(fields, "LocalIP"), port=take_number(fields, "LocalPort", most=65535))
    url = take_text(fields, "RemoteUrl")
    host = url.partition("://")[2].partition("/")[0] if url and "://" in url else url
    there = kept(
        ip=take_ip(fields, "RemoteIP"),
        port=take_number(fields, "RemotePort", most=65535),
        hostname=host if host and len(host) < 254 and "/" not in host else None,
    )
    # Of a whole URL only the host has a column, so the rest is put back.
    if url and url != there.get("hostname"):
        fields["RemoteUrl"] = url
    failed = "Failed" in row.action or "Blocked" in row.action
    # A port that is listened on is nobody's connection yet.
    outward = row.action.startswith("Connection")
    activity = 4 if "Failed" in row.action else 5 if failed else 1 if "Success" in row.action else 6
    source, target = (there, here) if inward else (here, there)
    return row.event(
        NETWORK,
        {"ListeningConnectionCreated": 7}.get(row.action, activity),
        status=FAILURE if failed else SUCCESS,
        source=endpoint(**source),
        target=endpoint(**target),
        connection_info=connection(
            take_text(fields, "Protocol"),
            source.get("ip"),
            **(INBOUND if inward else OUTBOUND if outward else {}),
        ),
    )


def _on_file(row: Row) -> Event:
    fields = row.fields
    doing = {"FileCreated": 1, "FileModified": 3, "FileDeleted": 4, "FileRenamed": 5}
    return row.event(
        FILE, doing.get(row.action, OTHER), status=SUCCESS, file=file_of(fields) or NAMELESS
    )


_BITS = {"dword": 32, "qword": 64}


def _key(fields: Fields) -> str | None:
    """The path of a key as Sysmon writes it; `RegistryKey` stays as it was written, too."""
    written = take_text(fields, "RegistryKey")
    path = key_path(written)
    if written and path != written:
        fields["RegistryKey"] = written
    return path


def _data(fields: Fields) -> str | None:
    """The data of a value; a number as Sysmon writes it, and then also as it was written."""
    written = take_text(fields, "RegistryValueData")
    bits = _BITS.get(str(look(fields, "RegistryValueType")).lower())
    number = None if written is None or bits is None else number_text(written, bits)
    if number is None:
        return written
    fields["RegistryValueData"] = written
    return number


def _registry(row: Row) -> Event:
    fields = row.fields
    path, name = _key(fields), take_text(fields, "RegistryValueName")
    if "Value" in row.action or name:
        value = kept(
            path=path or "unknown",
            # The value of a key that has no name, as regedit shows it.
            name=name or "(Default)",
            data=_data(fields),
            type=take_text(fields, "RegistryValueType"),
        )
        values = {"RegistryValueSet": 2, "RegistryValueDeleted": 4}
        return row.event(REG_VALUE, values.get(row.action, OTHER), status=SUCCESS, reg_value=value)
    keys = {"RegistryKeyCreated": 1, "RegistryKeyDeleted": 4, "RegistryKeyRenamed": 5}
    return row.event(
        REG_KEY,
        keys.get(row.action, OTHER),
        status=SUCCESS,
        reg_key={"path": path or "unknown"},
    )


def _logon(row: Row) -> Event:
    fields = row.fields
    written = look(fields, "LogonType")
    failed = row.action == "LogonFailed"
    source = kept(
        ip=take_ip(fields, "RemoteIP"),
        port=take_number(fields, "RemotePort", most=65535),
        hostname=take_text(fields, "RemoteDeviceName"),
    )
    host = row.columns["device"]
    uid = take_name(fields, "LogonId")
    return row.event(
        AUTHENTICATION,
        {"LogonAttempted": 6}.get(row.action, 1),
        status=FAILURE if failed else SUCCESS if row.action == "LogonSuccess" else UNKNOWN,
        status_detail=take_text(fields, "FailureReason"),
        user=user_of(fields, "Account"),
        source=endpoint(**source),
        target={"hostname": host["hostname"]} if host and host.get("hostname") else None,
        logon_type_id=hunting_tables.logon_type(written),
        is_remote=bool(source) or None,
        auth_protocol=take_text(fields, "Protocol"),
        session={"uid": uid} if uid else None,
        service=host.get("hostname") if host else None,
    )


def _image(row: Row) -> Event:
    file = file_of(row.fields) or NAMELESS
    more = {"module": {"load_type_id": 0}}
    return row.event(MODULE, 1, status=SUCCESS, module={"file": file}, more=more)


def _alert(row: Row) -> Event:
    fields = row.fields
    uid = take_text(fields, "AlertId") or "unknown"
    title = take_text(fields, "Title") or row.table
    return row.event(
        FINDING,
        1,
        severity=severity(take_text(fields, "Severity")),
        message=title,
        finding_info=kept(
            uid=uid,
            title=title,
            types=[kind] if (kind := take_text(fields, "Category")) else None,
            created_time=row.record.stamp.time,
        ),
    )


def _other(row: Row) -> Event:
    return row.event(BASE, 0)


def _device_event(row: Row) -> Event:
    """A row of the table of all that has no other, read by what happened."""
    return DEVICE_EVENTS.get(row.action, _other)(row)


_READERS: Mapping[str, Callable[[Row], Event]] = MappingProxyType(
    {
        "deviceprocessevents": _process,
        "devicenetworkevents": _network,
        "devicefileevents": _on_file,
        "deviceregistryevents": _registry,
        "devicelogonevents": _logon,
        "deviceimageloadevents": _image,
        "deviceevents": _device_event,
        "alertinfo": _alert,
        "alertevidence": _alert,
    }
)
_BY_ACTION = (
    ("Process", "deviceprocessevents"),
    ("Connection", "devicenetworkevents"),
    ("Network", "devicenetworkevents"),
    ("Registry", "deviceregistryevents"),
    ("Logon", "devicelogonevents"),
    ("ImageLoaded", "deviceimageloadevents"),
    ("File", "devicefileevents"),
)


def _read(fields: Fields, context: Context) -> Event:
    written = take_text(fields, "category") or take_text(fields, "Type") or ""
    properties = look(fields, "properties")
    if type(properties) is dict:
        take(fields, "properties")
        # What the stream says besides is about the stream, not the event.
        fields = properties | ({"envelope": fields} if fields else {})
    table = written.rpartition("-")[2]
    action = take_text(fields, "ActionType") or ""
    if not table:
        # Rows alone, as a query exports them, do not name their table: the action tells it.
        table = hunting_tables.hunting_table_of(fields, action) or ""
        table = table or ("DeviceEvents" if action in DEVICE_EVENTS else "")
        table = table or next((name for word, name in _BY_ACTION if action.startswith(word)), "")
        # Some have the word further in, such as `InboundConnectionAccepted`.
        table = table or next((name for word, name in _BY_ACTION if word in action), "")
        table = table or ("alertinfo" if look(fields, "AlertId") is not None else "")
    if not table and not action:
        raise Unreadable("neither a table nor an 'ActionType' in the row")
    # The row's own time first: that of the envelope is when it was passed on.
    stamp = take_time(fields, context, ("Timestamp",), ("TimeGenerated",), ("envelope", "time"))
    record = CloudRecord(_PRODUCT, fields, stamp)
    reader = hunting_tables.HUNTING_READERS.get(table.lower())
    if reader is not None:
        record.product = hunting_tables.XDR_PRODUCT
        return reader(record, table, action)
    host = take_text(fields, "DeviceName")
    uid = take_text(fields, "DeviceId")
    columns: dict[str, Any] = {
        "about": kept(
            event_code=action or None, log_name=table or None, uid=take_name(fields, "ReportId")
        ),
        "message": f"{host or 'unknown'}: {action or table}",
        "device": kept(hostname=host, uid=uid, type_id=0) if host or uid else None,
    }
    row = Row(record, table, action, columns)
    return _READERS.get(table.lower(), _other)(row)


@dataclass(frozen=True)
class DefenderEndpoint(EnvelopedSource):
    """Rows of Defender's tables."""

    name: str = "defender_endpoint"
    time_keys: ClassVar[tuple[str, ...]] = ("Timestamp", "TimeGenerated", "time")

    def is_own(self, fields: Fields) -> bool:
        if type(look(fields, "properties")) is dict:
            return look(fields, "category") is not None
        names = ("ActionType", "AlertId", "DeviceId", "NetworkMessageId")
        return any(name in fields for name in names)

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (DefenderEndpoint(),)
