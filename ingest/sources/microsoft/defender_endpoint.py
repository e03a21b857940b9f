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
from ingest.sources.cloud.record import CloudRecord, person
from ingest.sources.microsoft import hunting_tables
from ingest.sources.shared.firewall import (
    INBOUND,
    OUTBOUND,
    connection,
    endpoint,
    file_hash,
    severity,
)
from ingest.sources.shared.registry_form import key_path, number_text

_PRODUCT: Mapping[str, str] = {"name": "Defender for Endpoint", "vendor_name": "Microsoft"}
_PID = 2**32 - 1


def _user(fields: Fields, prefix: str) -> Fields | None:
    """The account that `prefix` names: `Account`, `InitiatingProcessAccount`, `RequestAccount`."""
    name, uid = take_text(fields, f"{prefix}Name"), take_text(fields, f"{prefix}Sid")
    if name is None and uid is None:
        return None
    return person(name, uid, domain=take_text(fields, f"{prefix}Domain"))


def _path(folder: str | None, name: str | None) -> str | None:
    """The whole path; `FolderPath` mostly holds the name already, for some tables it does not."""
    if folder and name and not folder.lower().endswith(name.lower()):
        return folder.rstrip("\\") + "\\" + name
    return folder


def _file(fields: Fields, prefix: str = "") -> Fields | None:
    name = take_text(fields, f"{prefix}FileName")
    path = _path(take_text(fields, f"{prefix}FolderPath"), name)
    hashes = [
        element
        for key in ("SHA256", "SHA1", "MD5")
        for element in file_hash(take_text(fields, f"{prefix}{key}")) or ()
    ]
    size = take_number(fields, f"{prefix}FileSize", most=2**63 - 1)
    leaves = kept(name=name or (path or "").rpartition("\\")[2] or None, path=path, size=size)
    return leaves | {"hashes": hashes or None, "type_id": 1} if "name" in leaves else None


def _uid(fields: Fields, name: str, pid: int | None) -> str | None:
    """A process' own id; OCSF wants one where it has no number."""
    return take_name(fields, name) or (None if pid is not None else "unknown")


def _acting(fields: Fields) -> Fields | None:
    """The process that did it (`InitiatingProcess...`)."""
    prefix = "InitiatingProcess"
    file = _file(fields, prefix)
    pid = take_number(fields, f"{prefix}Id", most=_PID)
    user = _user(fields, f"{prefix}Account")
    parent = kept(
        pid=take_number(fields, f"{prefix}ParentId", most=_PID),
        name=take_text(fields, f"{prefix}ParentFileName"),
    )
    line = take_text(fields, f"{prefix}CommandLine")
    if pid is None and file is None:
        return None
    return kept(
        pid=pid,
        uid=_uid(fields, f"{prefix}UniqueId", pid),
        name=(file or {}).get("name"),
        path=(file or {}).get("path"),
        cmd_line=line,
        user=user,
        # A process without a number needs an id in OCSF; a parent's bare name is no process.
        parent=parent if "pid" in parent else None,
        hashes=(file or {}).get("hashes"),
    )


@dataclass(slots=True)
class _Row:
    """A row of a table; `fields` is what has not been used."""

    record: CloudRecord
    table: str
    action: str
    columns: dict[str, Any]

    @property
    def fields(self) -> Fields:
        return self.record.fields

    def event(self, class_uid: int, activity: int, **more: Any) -> Event:
        acting = _acting(self.fields)
        by = (acting or {}).get("user")
        event = self.record.event(
            class_uid,
            activity,
            **({"operation": self.action} | self.columns | {"by": by} | more),
        )
        if acting:
            event["actor"] = (event.get("actor") or {}) | {"process": acting}
        return event


def _process(row: _Row) -> Event:
    fields = row.fields
    file = _file(fields)
    user = _user(fields, "Account")
    activity = {"ProcessCreated": 1, "OpenProcess": 3, "ProcessTerminated": 2}.get(row.action, 1)
    process = kept(
        pid=(pid := take_number(fields, "ProcessId", most=_PID)),
        uid=_uid(fields, "ProcessUniqueId", pid),
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


def _network(row: _Row) -> Event:
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


def _on_file(row: _Row) -> Event:
    fields = row.fields
    doing = {"FileCreated": 1, "FileModified": 3, "FileDeleted": 4, "FileRenamed": 5}
    return row.event(
        FILE, doing.get(row.action, OTHER), status=SUCCESS, file=_file(fields) or _NAMELESS
    )


_NAMELESS: Fields = {"name": "unknown", "type_id": 0}


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


def _registry(row: _Row) -> Event:
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


def _logon(row: _Row) -> Event:
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
        user=_user(fields, "Account"),
        source=endpoint(**source),
        target={"hostname": host["hostname"]} if host and host.get("hostname") else None,
        logon_type_id=hunting_tables.logon_type(written),
        is_remote=bool(source) or None,
        auth_protocol=take_text(fields, "Protocol"),
        session={"uid": uid} if uid else None,
        service=host.get("hostname") if host else None,
    )


def _image(row: _Row) -> Event:
    file = _file(row.fields) or _NAMELESS
    more = {"module": {"load_type_id": 0}}
    return row.event(MODULE, 1, status=SUCCESS, module={"file": file}, more=more)


def _alert(row: _Row) -> Event:
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


def _other(row: _Row) -> Event:
    return row.event(BASE, 0)


_READERS: Mapping[str, Callable[[_Row], Event]] = MappingProxyType(
    {
        "deviceprocessevents": _process,
        "devicenetworkevents": _network,
        "devicefileevents": _on_file,
        "deviceregistryevents": _registry,
        "devicelogonevents": _logon,
        "deviceimageloadevents": _image,
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
    row = _Row(record, table, action, columns)
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
