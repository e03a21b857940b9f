"""Events of Falcon's sensors by their `event_simpleName`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    DNS,
    FAILURE,
    FILE,
    KERNEL_EXTENSION,
    NETWORK,
    OTHER,
    PROCESS,
    REG_VALUE,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.cloud.common import (
    PORTS,
    Fields,
    look,
    take_ip,
    take_name,
    take_number,
    take_text,
)
from ingest.sources.cloud.record import CloudRecord, person
from ingest.sources.shared.firewall import INBOUND, OUTBOUND, connection, endpoint, file_hash
from ingest.sources.shared.registry_form import key_path, number_text
from ingest.sources.windows.codes import DNS_TYPES, INTEGRITY

PID = 2**32 - 1
_LOGON_TYPES = frozenset((2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13))
_SYSTEM_ACCOUNTS: Mapping[str, str] = MappingProxyType(
    {"S-1-5-18": "SYSTEM", "S-1-5-19": "LOCAL SERVICE", "S-1-5-20": "NETWORK SERVICE"}
)
"""Names of Windows' own accounts, which are the same on each machine."""


@dataclass(slots=True)
class Sensor:
    """An event of a sensor; `columns` are what all have."""

    record: CloudRecord
    name: str
    columns: dict[str, Any]

    @property
    def fields(self) -> Fields:
        """What has not been used."""
        return self.record.fields

    def event(self, class_uid: int, activity: int, **more: Any) -> Event:
        """The event, with the process that did it where the sensor names one."""
        # Falcon's own ids of processes, which other events of the sensor name; the system's number
        # is `RawProcessId` alone.
        acting = take_name(self.fields, "ContextProcessId")
        path = take_text(self.fields, "ContextImageFileName")
        file = take_text(self.fields, "ContextBaseFileName") or file_at(path)
        row = self.record.event(class_uid, activity, **(self.columns | more))
        if acting or file:
            process = kept(uid=acting or "unknown", name=file, path=path)
            row["actor"] = (row.get("actor") or {}) | {"process": process}
        return row


def hashes(fields: Fields, *names: str) -> list[Fields]:
    """The hashes under `names`, taken out."""
    return [each for name in names for each in file_hash(take_text(fields, name)) or ()]


def file_at(path: str | None) -> str | None:
    """The name of the file at a path of any system; None where there is none."""
    return re.split(r"[\\/]", path)[-1] or None if path else None


def _account(fields: Fields) -> Fields | None:
    name = take_text(fields, "UserName") or take_text(fields, "UserPrincipal")
    uid = take_text(fields, "UserSid") or take_text(fields, "FileOperatorSid")
    uid = uid or take_name(fields, "UID")
    if name is None and uid is None:
        return None
    domain = take_text(fields, "LogonDomain")
    # Sensors of Windows mostly leave names out.
    if name is None and (own := _SYSTEM_ACCOUNTS.get(uid or "")):
        name, domain = own, domain or "NT AUTHORITY"
    return person(name, uid, domain=domain)


def _process(sensor: Sensor) -> Event:
    fields = sensor.fields
    path = take_text(fields, "ImageFileName")
    user = _account(fields)
    ended = sensor.name.startswith(("EndOfProcess", "TerminateProcess"))
    pid = take_number(fields, "RawProcessId", most=PID)
    parent_name = take_text(fields, "ParentBaseFileName")
    parent_uid = take_name(fields, "ParentProcessId")
    # OCSF wants an id of a process that has no number.
    parent = kept(uid=parent_uid or "unknown", name=parent_name)
    return sensor.event(
        PROCESS,
        2 if ended else 1,
        status=SUCCESS,
        by=user,
        process=kept(
            pid=pid,
            uid=take_name(fields, "TargetProcessId") or (None if pid is not None else "unknown"),
            name=file_at(path),
            path=path,
            cmd_line=take_text(fields, "CommandLine"),
            hashes=hashes(fields, "SHA256HashData", "SHA1HashData", "MD5HashData") or None,
            user=user,
            # The number stays as it was written, too.
            integrity=INTEGRITY.get(f"S-1-16-{look(fields, 'IntegrityLevel')}"),
            internal_name=take_text(fields, "OriginalFilename"),
            parent=parent if parent_name or parent_uid else None,
        ),
    )


def _network(sensor: Sensor) -> Event:
    fields = sensor.fields
    here = endpoint(
        ip=take_ip(fields, "LocalAddressIP4") or take_ip(fields, "LocalAddressIP6"),
        port=take_number(fields, "LocalPort", most=PORTS),
    )
    there = endpoint(
        ip=take_ip(fields, "RemoteAddressIP4") or take_ip(fields, "RemoteAddressIP6"),
        port=take_number(fields, "RemotePort", most=PORTS),
    )
    way = take_number(fields, "ConnectionDirection", most=3)
    # 0 is outgoing, 1 incoming; 2 says neither, as of a port that is listened on.
    inward = way == 1 or "Accept" in sensor.name
    outward = way == 0 or "Connect" in sensor.name
    source, target = (there, here) if inward else (here, there)
    protocol = take_number(fields, "Protocol", most=255)
    closed = sensor.name.startswith("NetworkClose")
    return sensor.event(
        NETWORK,
        2 if closed else 7 if "Listen" in sensor.name else 1,
        status=SUCCESS,
        source=source,
        target=target,
        by=_account(fields),
        connection_info=connection(
            protocol,
            ((source or target) or {}).get("ip"),
            **(INBOUND if inward else OUTBOUND if outward else {}),
        ),
    )


def _dns(sensor: Sensor) -> Event:
    fields = sensor.fields
    kind = take_number(fields, "RequestType", most=PORTS)
    name = take_text(fields, "DomainName") or "unknown"
    answers = [
        {"rdata": text.strip()}
        for key in ("IP4Records", "IP6Records", "CNAMERecords")
        for text in (take_text(fields, key) or "").split(";")
        if text.strip()
    ]
    ip = take_ip(fields, "LocalAddressIP4")
    host = (sensor.columns["device"] or {}).get("hostname")
    return sensor.event(
        DNS,
        2 if answers else 1,
        status=SUCCESS if answers else None,
        source={"ip": ip} if ip else {"name": host or "unknown"},
        query=kept(
            hostname=name, type=None if kind is None else DNS_TYPES.get(kind, f"TYPE{kind}")
        ),
        answers=answers or None,
    )


def _logon(sensor: Sensor) -> Event:
    fields = sensor.fields
    failed, off = "Failed" in sensor.name, "Logoff" in sensor.name
    source = endpoint(
        ip=take_ip(fields, "RemoteAddressIP4")
        or take_ip(fields, "RemoteAddressIP6")
        or take_ip(fields, "RemoteIP"),
        hostname=take_text(fields, "ClientComputerName"),
    )
    kind = take_number(fields, "LogonType", most=99)
    return sensor.event(
        AUTHENTICATION,
        2 if off else 1,
        status=FAILURE if failed else SUCCESS,
        source=source,
        user=_account(fields),
        service="logon",
        status_code=take_name(fields, "SubStatus"),
        logon_type_id=kind if kind in _LOGON_TYPES else None,
        # Windows' logon types: 3 is over the network, 10 a remote desktop.
        is_remote=True if source or kind in (3, 10) else None,
    )


def _file(sensor: Sensor) -> Event:
    fields = sensor.fields
    path = take_text(fields, "TargetFileName") or take_text(fields, "ImageFileName")
    # OCSF wants a file's name; without one there is no file to tell of.
    if file_at(path) is None:
        return read_other(sensor)
    gone = "Delete" in sensor.name
    renamed = "Rename" in sensor.name
    return sensor.event(
        FILE,
        4 if gone else 5 if renamed else 1,
        status=SUCCESS,
        by=_account(fields) or {"name": "unknown"},
        file=kept(
            name=file_at(path),
            path=path,
            size=take_number(fields, "Size", most=2**63 - 1),
            hashes=hashes(fields, "SHA256HashData", "MD5HashData") or None,
            type_id=1,
        ),
    )


def _driver(sensor: Sensor) -> Event:
    """As `driver` for OCSF, and as `module` to be searched like all that is loaded."""
    fields = sensor.fields
    path = take_text(fields, "ImageFileName")
    plain = kept(name=file_at(path) or "unknown", path=path, type_id=1)
    file = plain | kept(
        hashes=hashes(fields, "SHA256HashData", "SHA1HashData", "MD5HashData") or None,
        company_name=take_text(fields, "CompanyName"),
        internal_name=take_text(fields, "OriginalFilename"),
        version=take_text(fields, "FileVersion"),
    )
    more = {"driver": {"file": plain}}
    return sensor.event(KERNEL_EXTENSION, 1, status=SUCCESS, module={"file": file}, more=more)


def _registry(sensor: Sensor) -> Event:
    fields = sensor.fields
    written = take_text(fields, "RegObjectName")
    path = key_path(written)
    if written and path != written:
        fields["RegObjectName"] = written
    doing = look(fields, "RegOperationType")
    named = look(fields, "RegValueName") is not None
    return sensor.event(
        REG_VALUE,
        # Numbers of operations: 1 sets a value, 2 deletes one; others are about keys.
        2 if doing is None else {"1": 2, "2": 4}.get(str(doing), OTHER),
        status=SUCCESS,
        by=_account(fields) or {"name": "unknown"},
        reg_value=kept(
            # The value of a key that has no name, as regedit shows it.
            name=take_text(fields, "RegValueName") or ("(Default)" if named else "unknown"),
            path=path or "unknown",
            data=take_text(fields, "RegStringValue") or _number(fields),
        ),
    )


def _number(fields: Fields) -> str | None:
    """A number as data, as Sysmon writes it; it stays as it was written, too."""
    # Windows' own numbers of types: 4 has 32 bits, 11 has 64.
    bits = {"4": 32, "11": 64}.get(str(look(fields, "RegType")))
    number = look(fields, "RegNumericValue")
    return None if bits is None or number is None else number_text(str(number), bits)


def read_other(sensor: Sensor) -> Event:
    """An event of no class of its own."""
    return sensor.event(BASE, UNKNOWN, by=_account(sensor.fields))


READERS: tuple[tuple[re.Pattern[str], Callable[[Sensor], Event]], ...] = (
    (re.compile(r"(?:Synthetic)?ProcessRollup2|EndOfProcess|TerminateProcess"), _process),
    (re.compile(r"Network(?:Connect|Listen|Receive|Close)\w*IP[46]"), _network),
    (re.compile(r"(?:Suspicious)?DnsRequest"), _dns),
    (re.compile(r"User(?:Logon|Logoff)"), _logon),
    # Written files are named by their kind, such as `PeFileWritten` and `OoxmlFileWritten`.
    (
        re.compile(
            r"\w{2,40}(?:Written|FileRename\w*)$|File(?:Delete|Rename)"
            r"|ExecutableDeleted|NewExecutableRenamed"
        ),
        _file,
    ),
    (re.compile(r"DriverLoad$"), _driver),
    # Asep: auto-start extensibility points, places of the registry that start programs.
    (re.compile(r"Asep(?:Value|Key)Update|Reg\w+Update"), _registry),
)
"""How an event is read, by its name."""
