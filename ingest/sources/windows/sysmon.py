"""Sysmon, on Windows and on Linux: events 1 to 29 and 255.

https://learn.microsoft.com/sysinternals/downloads/sysmon
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    APPLICATION_ERROR,
    BASE,
    DNS,
    ENTITY,
    FAILURE,
    FILE,
    HIGH,
    KERNEL_EXTENSION,
    LIFECYCLE,
    MODULE,
    NETWORK,
    OTHER,
    PROCESS,
    REG_KEY,
    REG_VALUE,
    SUCCESS,
    address,
)
from ingest.sources.windows.codes import DNS_STATUS, DNS_TYPES
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.record import Fields, Logged, filled, split_account, whole
from ingest.sources.windows.rule import EventRule, Mapper, WindowsColumns, entity, other

# Imphash is an MD5 over the functions that an image imports, not over the file: builds of one tool
# share it.
_HASHES: Mapping[str, str] = MappingProxyType(
    {"MD5": "MD5", "SHA1": "SHA-1", "SHA256": "SHA-256", "IMPHASH": "Imphash"}
)
_HASH = re.compile(r"([A-Za-z0-9]{2,10})=([0-9A-Fa-f]{8,128})")
NO_HASH = re.compile("0+")
# A QWORD is written as two halves, `0x00000001-0x00000000`; other types as bare text.
_TYPED = re.compile(r"(DWORD|QWORD) \((0x[0-9a-fA-F]{1,8}(?:-0x[0-9a-fA-F]{1,8})?)\)")
_RESULT = re.compile(r"type:\s{0,4}(\d{1,5})\s?(.*)")


def hashes(fields: Fields, *names: str) -> list[WindowsColumns] | None:
    """`SHA1=..,MD5=..,SHA256=..,IMPHASH=..` as hashes; one of all zeros says there is none."""
    text = fields.peek(*(names or ("Hashes", "Hash")))
    if text is None:
        return None
    hash_list: list[WindowsColumns] | None = each(_hashes_in, text)
    if hash_list:
        fields.text(*(names or ("Hashes", "Hash")))
    return hash_list or None


def _hashes_in(text: str) -> list[WindowsColumns]:
    parts = [_HASH.fullmatch(part.strip()) for part in text.split(",")]
    # One part that is no hash: then the whole text stays in `unmapped` as it was written.
    if not all(parts):
        return []
    return [
        {"algorithm": _HASHES.get(piece[1].upper(), piece[1].upper()), "value": piece[2].lower()}
        for piece in parts
        if piece and not NO_HASH.fullmatch(piece[2])
    ]


def _account(fields: Fields, *names: str) -> WindowsColumns | None:
    """`DOMAIN\\name` as a user; on Linux the bare name."""
    text = fields.text(*names)
    if text is None:
        return None
    name, domain = each(split_account, text)
    return filled(name=name, domain=domain)


def _who(fields: Fields, image: str = "Image", prefix: str = "") -> WindowsColumns | None:
    """The process that did it, and its user."""
    user = _account(fields, "User" if not prefix else f"{prefix}User")
    run = filled(
        path=fields.text(image),
        pid=fields.pid(f"{prefix}ProcessId"),
        uid=fields.guid(f"{prefix}ProcessGuid", f"{prefix}ProcessGUID"),
        tid=fields.pid(f"{prefix}ThreadId") if prefix else None,
        user=user,
    )
    return filled(process=run, user=user)


def created(fields: Fields, log: Logged) -> WindowsColumns:
    """1: the process with all Sysmon knows of its image; its parent is who launched it."""
    user, parent_user = _account(fields, "User"), _account(fields, "ParentUser")
    parent = filled(
        path=fields.text("ParentImage"),
        pid=fields.pid("ParentProcessId"),
        uid=fields.guid("ParentProcessGuid"),
        cmd_line=fields.text("ParentCommandLine"),
        user=parent_user,
    )
    run = filled(
        path=fields.text("Image"),
        pid=fields.pid("ProcessId"),
        uid=fields.guid("ProcessGuid"),
        cmd_line=fields.text("CommandLine"),
        cwd=fields.text("CurrentDirectory"),
        integrity=fields.text("IntegrityLevel"),
        session_uid=fields.logon("LogonId"),
        hashes=hashes(fields),
        company_name=fields.text("Company"),
        product=fields.text("Product"),
        desc=fields.text("Description"),
        internal_name=fields.text("OriginalFileName"),
        version=fields.text("FileVersion"),
        user=user,
        parent=parent,
    )
    return {
        "process": run or {"name": "unknown"},
        # Where there is no `ParentUser`, the child's user is the best guess.
        "actor": filled(process=parent, user=parent_user or user),
        "status_id": SUCCESS,
    }


def _ended(fields: Fields, log: Logged) -> WindowsColumns:
    """5: a process that ended; Sysmon does not say who ended it."""
    by = _who(fields) or {}
    user = by.get("user")
    return {"process": by.get("process") or {"name": "unknown"}, "actor": filled(user=user)}


def _file_event(kind: int = 1, path: str = "TargetFilename") -> Mapper:
    """A file that a process made, changed or deleted."""

    def columns(fields: Fields, log: Logged) -> WindowsColumns:
        return {
            "actor": _who(fields),
            "file": filled(path=fields.text(path), hashes=hashes(fields), type_id=kind),
        }

    return columns


_PROTOCOLS: Mapping[str, int] = MappingProxyType({"tcp": 6, "udp": 17, "icmp": 1})
_DIRECTIONS: Mapping[bool | None, tuple[str | None, int]] = MappingProxyType(
    {None: (None, 0), False: ("Inbound", 1), True: ("Outbound", 2)}
)
"""By whether this machine opened the connection."""


def _connected(fields: Fields, log: Logged) -> WindowsColumns:
    """3: a connection; `Initiated` says whether this machine opened it."""
    initiated = fields.flag("Initiated")
    six = fields.flag("SourceIsIpv6")
    if six is not None:
        fields.flag("DestinationIsIpv6")
    name = fields.text("Protocol")
    number = None if name is None else each(_PROTOCOLS.get, name.lower())
    ends = {
        end: filled(
            ip=fields.ip(f"{of}Ip"),
            port=fields.port(f"{of}Port"),
            hostname=fields.text(f"{of}Hostname"),
            svc_name=fields.text(f"{of}PortName"),
        )
        for end, of in (("src_endpoint", "Source"), ("dst_endpoint", "Destination"))
    }
    direction, direction_id = each(_DIRECTIONS.__getitem__, initiated)
    return ends | {
        "actor": _who(fields),
        "connection_info": filled(
            protocol_name=name.lower() if name else None,
            protocol_num=number,
            protocol_ver_id=None if six is None else each({True: 6, False: 4}.get, six),
            direction=direction,
            direction_id=direction_id,
        ),
        "status_id": SUCCESS,
    }


def _image(fields: Fields, path: str) -> WindowsColumns:
    """The file of a library or driver, with its signature."""
    return filled(
        path=fields.text(path),
        hashes=hashes(fields),
        company_name=fields.text("Company"),
        product=fields.text("Product"),
        desc=fields.text("Description"),
        internal_name=fields.text("OriginalFileName"),
        version=fields.text("FileVersion"),
        signature=fields.text("Signature"),
        type_id=1,
    ) or {"name": "unknown"}


def image_loaded(fields: Fields, log: Logged) -> WindowsColumns:
    """7; whether it was signed, and how that is, stays in unmapped."""
    return {"module": {"file": _image(fields, "ImageLoaded")}, "actor": _who(fields)}


def driver_loaded(fields: Fields, log: Logged) -> WindowsColumns:
    """6: as `driver` for OCSF, and as `module` to be searched like all that is loaded."""
    file = _image(fields, "ImageLoaded")
    plain = {"name": file.get("path", "unknown").rpartition("\\")[2], "type_id": 1}
    return {
        "module": {"file": file},
        "more": {"driver": {"file": plain | ({"path": file["path"]} if "path" in file else {})}},
    }


def injected(fields: Fields, log: Logged) -> WindowsColumns:
    """8: a thread started in another process."""
    return _between(fields) | {"more": {"injection_type_id": 1, "injection_type": "Remote Thread"}}


def _opened(fields: Fields, log: Logged) -> WindowsColumns:
    """10: a process opened another. `GrantedAccess` also stays as it was written."""
    mask = whole(fields.peek("GrantedAccess"))
    between = _between(fields)
    # OCSF has a signed integer of 32 bits there.
    if mask is not None and mask < 2**31:
        between["more"] = {"actual_permissions": mask}
    return between


def _between(fields: Fields) -> WindowsColumns:
    of = filled(
        path=fields.text("TargetImage"),
        pid=fields.pid("TargetProcessId"),
        uid=fields.guid("TargetProcessGuid", "TargetProcessGUID"),
        user=_account(fields, "TargetUser"),
    )
    return {
        "process": of or {"name": "unknown"},
        "actor": _who(fields, "SourceImage", "Source"),
    }


def raw_read(fields: Fields, log: Logged) -> WindowsColumns:
    """9: a disk read past its file system."""
    return {"actor": _who(fields), "file": filled(path=fields.text("Device"), type_id=4)}


REGISTRY: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "createkey": (REG_KEY, 1),
        "deletekey": (REG_KEY, 4),
        "renamekey": (REG_KEY, 5),
        "setvalue": (REG_VALUE, 2),
        "createvalue": (REG_VALUE, 2),
        "deletevalue": (REG_VALUE, 4),
        "renamevalue": (REG_VALUE, OTHER),
    }
)
BY_ID: Mapping[int, tuple[int, int]] = MappingProxyType(
    {12: (REG_KEY, OTHER), 13: (REG_VALUE, 2), 14: (REG_KEY, 5)}
)


def registry(fields: Fields, log: Logged) -> WindowsColumns:
    """12 to 14: a key, or a value of one; `EventType` says which and what was done."""
    what = (fields.peek("EventType") or "").lower()
    # Without `EventType`, as some shippers drop it, the id still tells key from value.
    class_uid, activity = REGISTRY.get(what, BY_ID[log.event_id])
    columns: WindowsColumns = {
        "class_uid": class_uid,
        "activity_id": activity,
        "actor": _who(fields),
    }
    if what == "renamevalue":
        columns["activity_name"] = "Rename"
    target = fields.text("TargetObject") or "unknown"
    if class_uid == REG_KEY:
        renamed = fields.peek("NewName") if what == "renamekey" else None
        if renamed:
            columns["more"] = {"prev_reg_key": {"path": target}}
        return columns | {"reg_key": {"path": renamed or target}}
    key, _, name = target.rpartition("\\")
    # With its white space, since it is the value itself.
    data = fields.raw("Details")
    columns["reg_value"] = filled(
        path=key or target,
        # The export writes `(Default)` where a value has no name, as the registry itself shows it.
        name=name if name != "(Default)" and key else None,
        data=data,
        type=each(_registry_type, data) if data else None,
    )
    return columns


def _registry_type(data: str) -> str | None:
    typed = _TYPED.fullmatch(data)
    return f"REG_{typed[1]}" if typed else None


def pipe(fields: Fields, log: Logged) -> WindowsColumns:
    """17, 18: a named pipe made or connected to."""
    return {
        "actor": _who(fields),
        "file": filled(path=fields.text("PipeName"), type_id=6) or {"name": "unknown"},
    }


def wmi(kind: str, *names: str) -> Mapper:
    """19 to 21: a part of a WMI subscription."""

    def columns(fields: Fields, log: Logged) -> WindowsColumns:
        done = (fields.peek("Operation") or "").lower()
        activity = {"created": 1, "modified": 3, "deleted": 4}.get(done, OTHER)
        return {
            **entity(kind, fields.text(*names)),
            "class_uid": ENTITY,
            "activity_id": activity,
            "actor": filled(user=_account(fields, "User")),
        }

    return columns


def results(text: str) -> list[WindowsColumns]:
    """`type:  5 name;::ffff:1.2.3.4;` as answers; Sysmon gives neither owner nor TTL."""
    answers: list[WindowsColumns] = []
    for part in text.split(";"):
        part = part.strip()
        if not part or part == "-":
            continue
        # Sysmon writes IPv4 answers as mapped IPv6, `::ffff:1.2.3.4`.
        ip = address(part)
        if ip is not None:
            answers.append({"rdata": ip, "type": "AAAA" if ":" in ip else "A"})
            continue
        match = _RESULT.fullmatch(part)
        if match is None:
            answers.append({"rdata": part})
        else:
            number = int(match[1])
            answers.append({"rdata": match[2], "type": DNS_TYPES.get(number, str(number))})
    return answers


def dns_query(fields: Fields, log: Logged) -> WindowsColumns:
    """22: a DNS question with its answers."""
    name, answer = fields.text("QueryName"), fields.text("QueryResults")
    # Windows' own error codes (9003 is a name that does not exist), not those of DNS.
    status = fields.number("QueryStatus", most=2**32 - 1)
    code = DNS_STATUS.get(status) if status is not None else None
    return {
        "actor": _who(fields),
        "query": filled(hostname=name.rstrip(".") or name if name else None),
        "answers": each(results, answer) or None if answer else None,
        "rcode_id": code[0] if code else None,
        "rcode": code[1] if code else None,
        "status_id": None if status is None else FAILURE if status else SUCCESS,
        "status_code": each(str, status) if status is not None else None,
        "src_endpoint": filled(hostname=log.computer),
    }


def clipboard(fields: Fields, log: Logged) -> WindowsColumns:
    """24: something new in the clipboard."""
    return {"actor": _who(fields)}


def tampered(fields: Fields, log: Logged) -> WindowsColumns:
    """25: the image of a process is not the file it was started from."""
    by = _who(fields) or {}
    return {
        "process": by.get("process") or {"name": "unknown"},
        "actor": filled(user=by.get("user")),
        "severity_id": HIGH,
        "status_detail": fields.text("Type"),
    }


def itself(fields: Fields, log: Logged) -> WindowsColumns:
    """4 and 16: Sysmon started, stopped, configured anew."""
    state = (fields.peek("State") or "").lower()
    app = filled(name="Sysmon", version=fields.text("Version"))
    # Event 16 has no state: it is a new configuration, so an update.
    activity = {"started": 3, "stopped": 4}.get(state, 8)
    return {"activity_id": activity, "more": {"app": {"vendor_name": "Microsoft"} | (app or {})}}


def _failed(fields: Fields, log: Logged) -> WindowsColumns:
    """255: an error of Sysmon."""
    return {"status_code": fields.text("ID"), "status_detail": fields.text("Description")}


def _file(activity: int, title: str, columns: Mapper | None = None, **always: Any) -> EventRule:
    return EventRule(FILE, activity, title, columns or _file_event(), always)


_BLOCKED = {"action_id": 2, "disposition_id": 2, "status_id": FAILURE}

SYSMON: Mapping[int, EventRule] = MappingProxyType(
    {
        # Activities of OCSF's Process Activity (1007): 1 launch, 2 terminate, 3 open, 4 inject.
        1: EventRule(PROCESS, 1, "Process Create", created),
        2: _file(6, "File creation time changed"),
        3: EventRule(NETWORK, 1, "Network connection detected", _connected),
        4: EventRule(LIFECYCLE, 8, "Sysmon service state changed", itself),
        5: EventRule(PROCESS, 2, "Process terminated", _ended),
        6: EventRule(KERNEL_EXTENSION, 1, "Driver loaded", driver_loaded),
        7: EventRule(MODULE, 1, "Image loaded", image_loaded),
        8: EventRule(PROCESS, 4, "CreateRemoteThread detected", injected),
        9: _file(2, "RawAccessRead detected", raw_read),
        10: EventRule(PROCESS, 3, "Process accessed", _opened),
        11: _file(1, "File created"),
        12: EventRule(REG_KEY, OTHER, "Registry object added or deleted", registry),
        13: EventRule(REG_VALUE, 2, "Registry value set", registry),
        14: EventRule(REG_KEY, 5, "Registry object renamed", registry),
        15: _file(1, "File stream created"),
        16: EventRule(LIFECYCLE, 8, "Sysmon config state changed", itself),
        17: _file(1, "Pipe Created", pipe),
        18: _file(14, "Pipe Connected", pipe),
        19: EventRule(
            ENTITY, OTHER, "WmiEventFilter activity detected", wmi("WMI event filter", "Name")
        ),
        20: EventRule(
            ENTITY, OTHER, "WmiEventConsumer activity detected", wmi("WMI event consumer", "Name")
        ),
        21: EventRule(
            ENTITY,
            OTHER,
            "WmiEventConsumerToFilter activity detected",
            wmi("WMI event consumer to filter", "Consumer"),
        ),
        22: EventRule(DNS, 1, "Dns query", dns_query),
        23: _file(4, "File Delete archived"),
        24: EventRule(BASE, OTHER, "Clipboard changed", clipboard, other("Clipboard Change")),
        25: EventRule(PROCESS, 4, "Process Tampering", tampered),
        26: _file(4, "File Delete logged"),
        27: _file(1, "File Block Executable", None, **_BLOCKED),
        28: _file(4, "File Block Shredding", None, **_BLOCKED),
        29: _file(1, "File Executable Detected"),
        255: EventRule(APPLICATION_ERROR, 1, "Sysmon error", _failed, {"severity_id": HIGH}),
    }
)
