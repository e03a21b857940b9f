"""Rows of `DeviceEvents` that tell what Sysmon tells, too: by what happened (`ActionType`).

https://learn.microsoft.com/en-us/defender-xdr/advanced-hunting-deviceevents-table ; what an action
has beside the columns of all is in `AdditionalFields`, an object or one packed as text, which stays
where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import DNS, FILE, KERNEL_EXTENSION, PROCESS, SUCCESS, kept
from ingest.parsing.source import Event, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.sources.cloud.common import Fields, look, take_number, take_text
from ingest.sources.microsoft.device_row import NAMELESS, PID, Row, file_of, uid_of

_PIPES = "\\Device\\NamedPipe"
_NUMBER = re.compile(r"0[xX](?P<hex>[0-9a-fA-F]{1,9})|(?P<decimal>[0-9]{1,11})")


def _details(fields: Fields) -> Fields:
    more = look(fields, "AdditionalFields")
    if type(more) is str and more.lstrip()[:1] == "{":
        try:
            return decode_object(more.encode("utf-8", "surrogatepass").strip())
        except Unreadable:
            return {}
    return more if type(more) is dict else {}


def _target(row: Row) -> Fields:
    """The process that was acted upon; whose it is the row does not say."""
    fields = row.fields
    file = file_of(fields) or {}
    pid = take_number(fields, "ProcessId", most=PID)
    return kept(
        pid=pid,
        uid=uid_of(fields, "ProcessUniqueId", pid),
        name=file.get("name"),
        path=file.get("path"),
        cmd_line=take_text(fields, "ProcessCommandLine"),
        hashes=file.get("hashes"),
    )


def _opened(row: Row) -> Event:
    """A process was opened; the rights asked for are also put as Sysmon writes them."""
    asked = _details(row.fields).get("DesiredAccess")
    mask = _mask(asked)
    more: dict[str, Any] = {}
    if mask is not None:
        row.fields.setdefault("GrantedAccess", f"0x{mask:x}")
        # OCSF has a signed integer of 32 bits there.
        more = {"requested_permissions": mask} if mask < 2**31 else {}
    return row.event(PROCESS, 3, status=SUCCESS, process=_target(row), more=more or None)


def _mask(written: object) -> int | None:
    """Rights as a number: of 32 bits, as such or in digits, decimal or hexadecimal."""
    if type(written) is str:
        digits = _NUMBER.fullmatch(written)
        written = digits and int(digits["hex"] or digits["decimal"], 16 if digits["hex"] else 10)
    return written if type(written) is int and 0 <= written < 2**32 else None


def _injected(row: Row) -> Event:
    more = {"injection_type_id": 1, "injection_type": "Remote Thread"}
    return row.event(PROCESS, 4, status=SUCCESS, process=_target(row), more=more)


def _pipe(row: Row) -> Event:
    """A pipe by its name alone, as Sysmon writes it; the row has its device before it."""
    details = _details(row.fields)
    name = details.get("PipeName")
    if type(name) is not str or not name:
        file: Fields = NAMELESS
    else:
        path = name
        if name[: len(_PIPES) + 1].lower() == f"{_PIPES}\\".lower():
            path = name[len(_PIPES) :]
        file = {"name": path.rpartition("\\")[2] or path, "path": path, "type_id": 6}
    opened = details.get("FileOperation") == "File opened"
    return row.event(FILE, 14 if opened else 1, status=SUCCESS, file=file)


def _driver(row: Row) -> Event:
    """As `driver` for OCSF, and as `module` to be searched like all that is loaded."""
    file = file_of(row.fields) or NAMELESS
    plain = {leaf: file[leaf] for leaf in ("name", "path", "type_id") if file.get(leaf) is not None}
    more = {"driver": {"file": plain}}
    return row.event(KERNEL_EXTENSION, 1, status=SUCCESS, module={"file": file}, more=more)


def _dns(row: Row) -> Event:
    """A name that was asked; what came back stays in `AdditionalFields`, whose form is not told."""
    name = _details(row.fields).get("DnsQueryString")
    host = (row.columns["device"] or {}).get("hostname")
    return row.event(
        DNS,
        2,
        source={"name": host or "unknown"},
        query={"hostname": name if type(name) is str and name else "unknown"},
    )


DEVICE_EVENTS: Mapping[str, Callable[[Row], Event]] = MappingProxyType(
    {
        "OpenProcessApiCall": _opened,
        "CreateRemoteThreadApiCall": _injected,
        "NamedPipeEvent": _pipe,
        "DriverLoad": _driver,
        "DnsQueryResponse": _dns,
    }
)
"""How a row is read, by what happened."""
