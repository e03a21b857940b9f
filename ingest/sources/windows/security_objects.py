"""Security log: processes, files, registry, directory, tasks, services, devices.

https://learn.microsoft.com/windows/security/threat-protection/auditing/audit-file-system and
the pages beside it. Access rights: %%-codes as the event log stores them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    FAILURE,
    FILE,
    JOB,
    OTHER,
    PERIPHERAL,
    PROCESS,
    REG_KEY,
    REG_VALUE,
    SUCCESS,
    WIN_RESOURCE,
    WIN_SERVICE,
)
from ingest.sources.windows.codes import INTEGRITY, SERVICE_TYPES, START_TYPES
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    EventRule,
    Mapper,
    WindowsColumns,
    account,
    actor,
    entity,
    managed,
    managing,
    other,
    process,
    subject,
)
from ingest.sources.windows.security_network import ALLOW, DENY

# Parameters of msobjs.dll: 1537 delete, 1538 read control, 1539 and 1540 write DAC and owner, 4416
# read, 4417 write, 4418 append, 4419 and 4420 read and write EA, 4421 execute, 4423 and 4424 read
# and write attributes.
FILE_RIGHTS: tuple[tuple[str, int], ...] = (
    ("%%1537", 4),
    ("%%4417", 3),
    ("%%4418", 3),
    ("%%1539", 7),
    ("%%1540", 7),
    ("%%4424", 6),
    ("%%4420", 6),
    ("%%4416", 2),
    ("%%4421", 2),
    ("%%4423", 8),
    ("%%4419", 8),
    ("%%1538", 9),
)
"""Access rights of a file, the gravest first, and OCSF's activity for each."""
# 4432 query value, 4433 set value, 4434 create sub-key, 4435 enumerate, 4436 notify, 4437 create
# link.
KEY_RIGHTS: tuple[tuple[str, int], ...] = (
    ("%%1537", 4),
    ("%%4433", 3),
    ("%%4434", 1),
    ("%%1539", 6),
    ("%%1540", 6),
    ("%%4437", 1),
    ("%%4432", 2),
    ("%%4435", 2),
    ("%%4436", 2),
    ("%%1538", 2),
)
# The same rights as bits, for shippers that leave out the list of names.
FILE_MASKS: tuple[tuple[int, int], ...] = (
    (0x10000, 4),
    (0x6, 3),
    (0xC0000, 7),
    (0x110, 6),
    (0x1, 2),
    (0x20, 2),
    (0x88, 8),
    (0x20000, 9),
)
# The task's XML is text of its author: it is searched with bounds and never parsed.
_COMMAND = re.compile(r"<Command>([^<]{0,8000})</Command>")
ARGUMENTS = re.compile(r"<Arguments>([^<]{0,32000})</Arguments>")
DESCRIPTION = re.compile(r"<Description>([^<]{0,4000})</Description>")


def started(fields: Fields, log: Logged) -> WindowsColumns:
    """4688: `ProcessId` is the creator's here, the new one has its own fields.

    The account of the new process is the target where there is one, else the creator's.
    """
    parent = process(fields, "ParentProcessName", "ProcessId") or {}
    by = subject(fields) or {}
    who = fields.user("TargetUserName", "TargetDomainName", "TargetUserSid")
    label = fields.text("MandatoryLabel")
    integrity = each(INTEGRITY.get, label) if label else None
    # A label of another kind than these is kept as it was written.
    if label and integrity is None:
        fields.left["MandatoryLabel"] = label
    return {
        "process": filled(
            path=fields.text("NewProcessName"),
            pid=fields.pid("NewProcessId"),
            cmd_line=fields.text("CommandLine", "ProcessCommandLine"),
            integrity=integrity,
            user=who or by.get("user"),
            session_uid=(by.get("session") or {}).get("uid"),
            parent=parent or None,
        )
        or {"name": "unknown"},
        "actor": filled(**by, process=parent or None),
        "status_id": SUCCESS,
    }


def _ended(fields: Fields, log: Logged) -> WindowsColumns:
    """4689."""
    by = subject(fields) or {}
    code = whole(fields.peek("Status"))
    run = process(fields) or {"name": "unknown"}
    # OCSF's exit code has 32 bits with a sign; an NTSTATUS of failure has its top bit set.
    more = {"exit_code": code} if code is not None and code < 2**31 else {}
    return {
        "process": run | ({"user": by["user"]} if by.get("user") else {}),
        "actor": by,
        "status_code": None if code is None or code < 2**31 else str(code),
        "more": more,
    }


def duplicated(fields: Fields, log: Logged) -> WindowsColumns:
    """4690: a handle of one process given to another."""
    by = process(fields, "", "SourceProcessId")
    return {
        "process": process(fields, "", "TargetProcessId") or {"name": "unknown"},
        "actor": filled(**(subject(fields) or {}), process=by),
    }


def token_assigned(fields: Fields, log: Logged) -> WindowsColumns:
    """4696: a process got its primary token."""
    run = process(fields, "TargetProcessName", "TargetProcessId") or {"name": "unknown"}
    who = fields.user("TargetUserName", "TargetDomainName", "TargetUserSid")
    return {"process": run | ({"user": who} if who else {}), "actor": actor(fields)}


# -- objects -----------------------------------------------------------------------------------


def _rights_in(words: str) -> frozenset[str]:
    return frozenset(re.findall(r"%%\d{4}", words))


def _by_rights(fields: Fields, rights: tuple[tuple[str, int], ...], default: int) -> int:
    """The gravest thing a list of access rights allows."""
    requested = each(_rights_in, fields.peek("AccessList", "Accesses") or "")
    if not requested and rights is FILE_RIGHTS:
        mask = whole(fields.peek("AccessMask")) or 0
        return next((activity for bits, activity in FILE_MASKS if mask & bits), default)
    return next((activity for right, activity in rights if right in requested), default)


def _touched(fields: Fields, log: Logged) -> WindowsColumns:
    """An object opened, used, deleted or protected anew; its class goes by its type.

    `ObjectName`, `ObjectType`, `AccessMask`, `AccessList` and the like stay for rules that ask.
    """
    by = actor(fields)
    kind = fields.peek("ObjectType")
    name = fields.peek("ObjectName")
    setting = log.event_id in (4670, 4907, 4911, 4913, 4715)
    # A handle that was asked for: what it allows has not been done yet.
    only_requested = log.event_id in (4656, 4659)
    results: WindowsColumns = {"actor": by}
    if name is not None and kind in ("File", "Directory", "SymbolicLink"):
        activity = 7 if setting else _by_rights(fields, FILE_RIGHTS, 14)
        if only_requested:
            activity = 14
        results |= {"class_uid": FILE, "activity_id": activity}
        results["file"] = {"path": name, "type_id": _file_type(kind)}
        return results
    if name is not None and kind == "Key":
        activity = 6 if setting else _by_rights(fields, KEY_RIGHTS, 2)
        key = {"path": name}
        return results | {"class_uid": REG_KEY, "activity_id": activity, "reg_key": key}
    if name is not None and kind == "Process":
        return results | {"class_uid": PROCESS, "activity_id": 3, "process": {"path": name}}
    resource = {"type": kind, "name": name} if name else {"type": kind}
    if name is None:
        resource["uid"] = fields.peek("HandleId") or "unknown"
    return results | {"more": {"win_resource": _typed(resource)}}


def _file_type(kind: str) -> int:
    return {"File": 1, "Directory": 2}.get(kind, 7)


def _typed(resource: WindowsColumns) -> WindowsColumns:
    return {
        "type_id": 99,
        **{key: element for key, element in resource.items() if element is not None},
    }


def linked(fields: Fields, log: Logged) -> WindowsColumns:
    """4664: a hard link to a file."""
    return {
        "actor": actor(fields),
        "file": {"path": fields.text("LinkName") or "unknown", "type_id": 7},
    }


def value_set(fields: Fields, log: Logged) -> WindowsColumns:
    """4657: a registry value changed; what it was stays in unmapped."""
    operation = fields.peek("OperationType")
    # A value was created, changed, deleted.
    activity = {"%%1904": 2, "%%1905": 3, "%%1906": 4}.get(operation or "", 3)
    kind = fields.text("NewValueType")
    return {
        "actor": actor(fields),
        "activity_id": activity,
        "reg_value": {
            "path": fields.text("ObjectName") or "unknown",
            "name": fields.text("ObjectValueName"),
            "data": fields.raw("NewValue"),
            "type": kind,
        },
    }


# -- tasks, services, devices ------------------------------------------------------------------


def command_of(task: str | None) -> tuple[str | None, str | None]:
    """The command line and the description in the XML of a task."""
    if not task:
        return None, None
    commands = [part.strip() for part in _COMMAND.findall(task)]
    arguments = [part.strip() for part in ARGUMENTS.findall(task)]
    words = DESCRIPTION.search(task)
    line = None
    if commands:
        # With several actions it cannot be told which arguments belong to which.
        line = " ".join([commands[0], *(arguments[:1] if len(commands) == 1 else [])])
    return _unescaped(line), _unescaped(words[1].strip()) if words else None


def _unescaped(text: str | None) -> str | None:
    if not text:
        return None
    for mark, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'")):
        text = text.replace(mark, plain)
    # Last, or `&amp;lt;` would become `<` in two steps.
    return text.replace("&amp;", "&")


def _task(fields: Fields, log: Logged) -> WindowsColumns:
    """4698 to 4702: a scheduled task; its XML stays in unmapped."""
    line, words = command_of(fields.peek("TaskContent", "TaskContentNew"))
    by = process(fields, "", "ClientProcessId")
    return {
        "job": {
            "name": fields.text("TaskName") or "unknown",
            "cmd_line": line,
            "desc": words,
        },
        "actor": filled(**(subject(fields) or {}), process=by),
    }


def _service(fields: Fields, log: Logged) -> WindowsColumns:
    """4697: a service installed. Numbers of types become the words of event 7045, and stay."""
    start, kind = fields.peek("ServiceStartType"), fields.peek("ServiceType")
    by = process(fields, "", "ClientProcessId")
    return {
        "win_service": {
            "name": fields.text("ServiceName") or "unknown",
            "cmd_line": fields.text("ServiceFileName"),
            "start_type": START_TYPES.get(start, start) if start else None,
            "type": SERVICE_TYPES.get(kind, kind) if kind else None,
            "start_name": fields.text("ServiceAccount"),
        },
        "actor": filled(**(subject(fields) or {}), process=by),
    }


def _device(fields: Fields, log: Logged) -> WindowsColumns:
    """6416 and 6419 to 6424: an external device."""
    name = fields.text("DeviceDescription")
    uid = fields.text("DeviceId")
    about = filled(**{"name": name or "unknown", "uid": uid, "class": fields.text("ClassName")})
    return {"actor": actor(fields), "more": {"peripheral_device": about}}


# -- the directory -----------------------------------------------------------------------------


def directory(fields: Fields, log: Logged) -> WindowsColumns:
    """5136 to 5141: an object of Active Directory; its attribute stays in unmapped."""
    return {
        "actor": actor(fields),
        **entity(
            fields.peek("ObjectClass") or "directory object",
            fields.text("ObjectDN", "NewObjectDN", "OldObjectDN"),
            fields.text("ObjectGUID"),
        ),
    }


def operated(fields: Fields, log: Logged) -> WindowsColumns:
    """4661, 4662: an object of the directory or the account database."""
    kind, name = fields.peek("ObjectType"), fields.peek("ObjectName")
    resource = {"type": kind, "name": name or "unknown"}
    return {"actor": actor(fields), "more": {"win_resource": _typed(resource)}}


def credential(fields: Fields, log: Logged) -> WindowsColumns:
    """5376 to 5382: stored credentials read, saved or brought back."""
    by = process(fields, "", "ClientProcessId")
    about = entity("credential", fields.text("TargetName", "Resource"))
    return {**about, "actor": filled(**(subject(fields) or {}), process=by)}


def certificate(fields: Fields, log: Logged) -> WindowsColumns:
    """4886 to 4888: a certificate asked for, issued, denied."""
    return {
        **entity("certificate request", fields.peek("Subject"), fields.text("RequestId")),
        "actor": filled(user=account(fields, "Requester")) or actor(fields),
    }


def _object(activity: int, title: str, columns: Mapper = _touched, **always: Any) -> EventRule:
    return EventRule(WIN_RESOURCE, activity, title, columns, always)


def _directory() -> Iterator[tuple[int, EventRule]]:
    for uid, activity, what in (
        (5136, 3, "modified"),
        (5137, 1, "created"),
        (5138, OTHER, "undeleted"),
        (5139, 5, "moved"),
        (5141, 4, "deleted"),
    ):
        always = other("Undelete") if activity == OTHER else {}
        yield (
            uid,
            managing(activity, f"A directory service object was {what}.", directory, **always),
        )


OBJECTS: Mapping[int, EventRule] = MappingProxyType(
    {
        **dict(_directory()),
        4656: _object(1, "A handle to an object was requested."),
        4657: EventRule(REG_VALUE, 3, "A registry value was modified.", value_set),
        4658: _object(OTHER, "The handle to an object was closed.", **other("Close Handle")),
        4659: _object(OTHER, "A handle to an object was requested with intent to delete."),
        4660: _object(OTHER, "An object was deleted.", **other("Delete")),
        4661: _object(1, "A handle to an object was requested.", operated),
        4662: _object(1, "An operation was performed on an object.", operated),
        4663: _object(1, "An attempt was made to access an object."),
        4664: EventRule(FILE, 1, "An attempt was made to create a hard link.", linked),
        4665: _object(1, "An attempt was made to create an application client context."),
        4666: _object(1, "An application attempted an operation."),
        4670: _object(OTHER, "Permissions on an object were changed.", **other("Set Security")),
        4688: EventRule(PROCESS, 1, "A new process has been created.", started),
        4689: EventRule(PROCESS, 2, "A process has exited.", _ended),
        4690: EventRule(
            PROCESS,
            OTHER,
            "An attempt was made to duplicate a handle to an object.",
            duplicated,
            other("Duplicate Handle"),
        ),
        4691: _object(1, "Indirect access to an object was requested."),
        4692: managing(
            2,
            "Backup of data protection master key was attempted.",
            managed("DPAPI master key", ("MasterKeyId",)),
        ),
        4693: managing(
            2,
            "Recovery of data protection master key was attempted.",
            managed("DPAPI master key", ("MasterKeyId",)),
        ),
        # 5 is OCSF's Set User ID.
        4696: EventRule(PROCESS, 5, "A primary token was assigned to process.", token_assigned),
        4697: EventRule(WIN_SERVICE, 1, "A service was installed in the system.", _service),
        4698: EventRule(JOB, 1, "A scheduled task was created.", _task),
        4699: EventRule(JOB, 3, "A scheduled task was deleted.", _task),
        4700: EventRule(JOB, 4, "A scheduled task was enabled.", _task),
        4701: EventRule(JOB, 5, "A scheduled task was disabled.", _task),
        4702: EventRule(JOB, 2, "A scheduled task was updated.", _task),
        4818: _object(
            1,
            "Proposed Central Access Policy does not grant the same access permissions as the "
            "current Central Access Policy.",
        ),
        4886: managing(1, "Certificate Services received a certificate request.", certificate),
        4887: managing(
            10,
            "Certificate Services approved a certificate request and issued a certificate.",
            certificate,
            status_id=SUCCESS,
        ),
        4888: managing(
            OTHER,
            "Certificate Services denied a certificate request.",
            certificate,
            status_id=FAILURE,
            **other("Deny"),
        ),
        4907: _object(OTHER, "Auditing settings on object were changed.", **other("Set Security")),
        4911: _object(
            OTHER, "Resource attributes of the object were changed.", **other("Set Security")
        ),
        4913: _object(
            OTHER,
            "Central Access Policy on the object was changed.",
            **other("Set Security"),
        ),
        4985: _object(OTHER, "The state of a transaction has changed.", **other("Transaction")),
        5039: _object(1, "A registry key was virtualized."),
        5051: _object(1, "A file was virtualized."),
        5376: managing(2, "Credential Manager credentials were backed up.", credential),
        5377: managing(
            OTHER,
            "Credential Manager credentials were restored from a backup.",
            credential,
            **other("Restore"),
        ),
        5379: managing(2, "Credential Manager credentials were read.", credential),
        5380: managing(2, "Vault Find Credential.", credential),
        5381: managing(2, "Vault credentials were read.", credential),
        5382: managing(2, "Vault credentials were read.", credential),
        6416: EventRule(
            PERIPHERAL, 1, "A new external device was recognized by the system.", _device
        ),
        6419: EventRule(PERIPHERAL, 4, "A request was made to disable a device.", _device),
        6420: EventRule(PERIPHERAL, 4, "A device was disabled.", _device),
        6421: EventRule(PERIPHERAL, 3, "A request was made to enable a device.", _device),
        6422: EventRule(PERIPHERAL, 3, "A device was enabled.", _device),
        6423: EventRule(
            PERIPHERAL,
            1,
            "The installation of this device is forbidden by system policy.",
            _device,
            DENY,
        ),
        6424: EventRule(
            PERIPHERAL,
            1,
            "The installation of this device was allowed, after having previously been "
            "forbidden by policy.",
            _device,
            ALLOW,
        ),
    }
)
