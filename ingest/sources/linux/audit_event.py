"""The records of one event of the Linux audit system, and what all its events say alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import basename, join, normpath
from typing import Any

from ingest.parsing import ocsf
from ingest.parsing.ocsf import (
    A_COMMAND,
    A_HOST,
    A_PATH,
    A_USER,
    AN_IP,
    FAILURE,
    LOW,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.linux import audit_names
from ingest.sources.linux.audit_names import Address
from ingest.sources.linux.audit_record import Part

PRODUCT: Mapping[str, str] = {"name": "Linux Audit", "vendor_name": "Linux"}
# -1 as an unsigned number of 32 bits: the kernel's word for no login.
UNSET = frozenset({"4294967295", "-1", "unset"})
_ARGUMENT = re.compile(r"a(\d{1,6})(?:\[(\d{1,6})\])?", re.ASCII)
_MODES = {0o10: 1, 0o04: 2, 0o02: 3, 0o06: 4, 0o14: 5, 0o01: 6, 0o12: 7}
"""OCSF's type of a file by the upper bits of its mode."""


@dataclass
class Audit:
    """One event: its records, and what the framing around them said."""

    parts: list[Part]
    stamp: Stamp
    host: str | None
    uid: str | None
    framing: dict[str, Any] = field(default_factory=dict)

    def of(self, *types: str) -> Part | None:
        """The first record of one of the types."""
        return next((part for part in self.parts if part.type in types), None)

    @cached_property
    def cwd(self) -> str | None:
        """The directory of the process."""
        result = self.of("CWD")
        return result.fields.get("cwd") if result else None

    @cached_property
    def title(self) -> str | None:
        """The command line by which the process was started, as far as the kernel kept it."""
        result = self.of("PROCTITLE")
        text = result.fields.get("proctitle") if result else None
        # The kernel keeps a command line as it lies in memory: arguments parted by NULs.
        return " ".join(text.strip("\0").split("\0")) if text else None

    @cached_property
    def arguments(self) -> list[str]:
        """What an EXECVE says was started, each argument in one piece."""
        pieces: dict[int, dict[int, str]] = {}
        for part in self.parts:
            if part.type == "EXECVE":
                for name, value in part.fields.items():
                    match = _ARGUMENT.fullmatch(name)
                    if match:
                        # The kernel cuts a long argument into `a1[0]`, `a1[1]`, ..., over several
                        # records.
                        pieces.setdefault(int(match[1]), {})[int(match[2] or 0)] = value
        return [
            "".join(text for _, text in sorted(pieces[piece].items())) for piece in sorted(pieces)
        ]

    @cached_property
    def address(self) -> Address | None:
        """The address of the socket it is about."""
        part = self.of("SOCKADDR")
        if part is None:
            return None
        socket_address = audit_names.socket_address(part.fields.get("saddr"))
        return socket_address or _interpreted(
            part.names.get("SADDR") or part.fields.get("saddr") or ""
        )

    def absolute(self, path: str | None) -> str | None:
        """A file's path from the root, where the directory is known."""
        if path is None or path.startswith("/") or not self.cwd or not self.cwd.startswith("/"):
            return path
        return normpath(join(self.cwd, path)) if path not in ("", ".") else self.cwd

    def paths(self, *kinds: str) -> list[Part]:
        """The PATH records of these kinds, all but the directories above where none is named."""
        parts = [part for part in self.parts if part.type == "PATH" and "name" in part.fields]
        if kinds:
            return [part for part in parts if _kind(part) in kinds]
        # A PARENT is only the folder in which something was made or deleted.
        return [part for part in parts if _kind(part) != "PARENT"] or parts

    def file(self, part: Part) -> dict[str, Any]:
        """The file of a PATH record."""
        path = self.absolute(part.fields["name"]) or ""
        mode = part.fields.get("mode", "").partition(",")[0]
        kind = int(mode, 8) >> 12 if re.fullmatch("[0-7]{5,7}", mode) else 0
        return {"path": path, "name": basename(path) or path, "type_id": _MODES.get(kind, 0)}

    def owner(self, part: Part) -> dict[str, Any]:
        """What OCSF says besides of the file of a PATH record."""
        owner = user(part.fields.get("ouid"), part.names.get("OUID"))
        return {"file": {"owner": owner}} if owner else {}

    def unmapped(self, main: Part | None, more: Mapping[str, Any]) -> dict[str, Any]:
        """What found no column: of the main record as it is, of others under their type."""
        rest: dict[str, Any] = dict(self.framing)
        others: dict[str, list[dict[str, str]]] = {}
        for part in self.parts:
            left_over = part.rest()
            if part is main:
                rest |= left_over
            elif left_over and part.type not in ("PROCTITLE", "CWD", "EXECVE"):
                others.setdefault(part.type, []).append(left_over)
        for kind, records in others.items():
            rest[kind] = records if len(records) > 1 or kind == "PATH" else records[0]
        if self.arguments:
            # One by one, as a command line no longer shows where an argument ends.
            rest["EXECVE"] = {f"a{n}": argument for n, argument in enumerate(self.arguments)}
        types = list(dict.fromkeys(part.type for part in self.parts))
        if len(types) > 1:
            rest["types"] = types
        return rest | dict(more)


def _kind(part: Part) -> str | None:
    # RHEL 7 called it so.
    return part.fields.get("nametype") or part.fields.get("objtype")


_SPELLED = re.compile(r"(?:saddr_)?fam=(\S+)(?: (.*?))? ?\}?", re.ASCII)


def _interpreted(text: str) -> Address | None:
    """`{ saddr_fam=inet laddr=10.0.0.1 lport=22 }`, as enrichment writes an address."""
    match = _SPELLED.fullmatch(text.strip("{} "))
    if match is None:
        return None
    named = dict(each.split("=", 1) for each in (match[2] or "").split() if "=" in each)
    ip = ocsf.address(named.get("laddr", ""))
    number = named.get("lport", "")
    port = int(number) if number.isdecimal() and len(number) < 6 else None
    return Address(match[1], ip, port if port is None or port < 65536 else None, named.get("path"))


def user(uid: str | None, name: str | None = None) -> dict[str, Any] | None:
    """A user by number and, where enrichment or `ausearch -i` wrote it, name."""
    if uid in UNSET:
        return None
    if uid is not None and not uid.lstrip("-").isdecimal():
        uid, name = None, name or uid
    if name in ("unset", "unknown", "") or (name or "").startswith("unknown("):
        name = None
    # The one number that has the same name everywhere.
    if uid == "0" and name is None:
        name = "root"
    return {"uid": uid, "name": name} if uid or name else None


def number(text: str | None) -> int | None:
    """A whole number that a column can hold."""
    return int(text) if text and text.isdecimal() and len(text) < 16 else None


def process_of(audit: Audit, part: Part) -> dict[str, Any]:
    """The process that a record is of. Takes the fields; of a record of none, no field."""
    take, names = part.take, part.names
    for name in ("GID", "EUID", "SUID", "FSUID", "EGID", "SGID", "FSGID"):
        if name in names:
            part.fields.setdefault(name, names[name])
    pid = number(part.fields.get("pid"))
    if pid is None and not any(name in part.fields | part.inner for name in ("exe", "comm")):
        return {}
    exe, comm = take("exe"), take("comm")
    parent = number(part.fields.get("ppid"))
    if parent is not None:
        take("ppid")
    if pid is not None:
        take("pid")
    session = take("ses")
    return kept(
        pid=pid,
        # Of a record without one, the record is what identifies the process.
        uid=audit.uid if pid is None else None,
        name=comm or (basename(exe) if exe else None),
        path=exe,
        cmd_line=audit.title,
        cwd=audit.cwd,
        session_uid=None if session in UNSET else session,
        user=user(take("uid"), names.get("UID")),
        parent={"pid": parent} if parent is not None else None,
    )


def acting(part: Part) -> dict[str, Any] | None:
    """Who logged in and acts under whatever name; else who the process runs as."""
    # The login's user stays the same through su and sudo.
    login = user(part.fields.get("auid"), part.names.get("AUID"))
    return login or user(part.fields.get("uid"), part.names.get("UID"))


def status(value: str | None) -> int | None:
    """`success=`, `res=` and `result=` as OCSF's status."""
    if value is None:
        return None
    word = value.lower()
    if word in ("yes", "success", "1"):
        return SUCCESS
    return FAILURE if word in ("no", "failed", "failure", "fail", "0") else None


def event(
    audit: Audit,
    class_uid: int,
    activity: int,
    main: Part,
    *,
    rest: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Event:
    """An event of `audit`, with what all of them have."""
    code = columns.pop("event_code", None) or main.type
    level = columns.pop("severity_id", None)
    if level is None:
        level = LOW if columns.get("status_id") == FAILURE else ocsf.INFORMATIONAL
    columns = {name: value for name, value in columns.items() if value is not None}
    beside = dict(more or {})
    if class_uid in (ocsf.FILE, ocsf.PROCESS) and not columns.get("actor"):
        beside.setdefault("actor", {"invoked_by": "unknown"})
    if not audit.host:
        beside.setdefault("device", {"name": "unknown", "type_id": 0})
    row = ocsf.event(
        class_uid,
        activity,
        audit.stamp,
        severity_id=level,
        metadata=ocsf.metadata(
            PRODUCT, audit.stamp, event_code=code, uid=audit.uid, correlation_uid=audit.uid
        ),
        device=ocsf.device(audit.host),
        observables=ocsf.observables(*_worth(columns)),
        unmapped=ocsf.unmapped(audit.unmapped(main, rest or {})),
        more=beside,
        **columns,
    )
    if audit.uid:
        # Records of one event that fall into different batches share it.
        row["correlation_uid"] = f"{audit.host or ''}:{audit.uid}"
    return row


def _worth(columns: Mapping[str, Any]) -> list[tuple[str, int, Any]]:
    actor = columns.get("actor") or {}
    process, by = columns.get("process") or {}, actor.get("process") or {}
    end, target = columns.get("src_endpoint") or {}, columns.get("dst_endpoint") or {}
    return [
        ("src_endpoint.ip", AN_IP, end.get("ip")),
        ("src_endpoint.hostname", A_HOST, end.get("hostname")),
        ("dst_endpoint.ip", AN_IP, target.get("ip")),
        ("user.name", A_USER, (columns.get("user") or {}).get("name")),
        ("actor.user.name", A_USER, (actor.get("user") or {}).get("name")),
        ("process.user.name", A_USER, (process.get("user") or {}).get("name")),
        ("process.cmd_line", A_COMMAND, process.get("cmd_line")),
        ("process.file.path", A_PATH, process.get("path")),
        ("actor.process.file.path", A_PATH, by.get("path")),
        ("file.path", A_PATH, (columns.get("file") or {}).get("path")),
    ]


def acted(main: Part, audit: Audit) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns that all records of programs fill, and the process that reports."""
    by = acting(main)
    outcome = main.fields.get("res") or main.inner.get("res")
    name = "res" if outcome is not None else "result"
    if outcome is None:
        outcome = main.inner.get("result") or main.fields.get("result")
    done = status(outcome)
    if done is not None:
        main.take(name)
    process = process_of(audit, main)
    columns: dict[str, Any] = {"status_id": done}
    actor = kept(user=by, process=process or None)
    if actor:
        columns["actor"] = actor
    return columns, process


def peer(main: Part, audit: Audit) -> dict[str, Any] | None:
    """Where a user came from."""
    name, spelled = main.inner.get("hostname"), main.inner.get("addr")
    if name is None and spelled is None:
        return None
    ip = ocsf.address(spelled or "") or ocsf.address(name or "")
    if ip and spelled:
        main.inner.pop("addr", None)
    if name and ocsf.address(name) is not None:
        main.inner.pop("hostname", None)
        name = None
    elif name:
        main.inner.pop("hostname", None)
    port = number(main.inner.get("rport"))
    local = name is not None and not ip and name == audit.host
    if port is not None and port > 65535:
        port = None
    return None if local else kept(ip=ip, hostname=name, port=port) or None


def subject(main: Part) -> dict[str, Any] | None:
    """The user a program's record is about."""
    name, uid = main.inner.pop("acct", None), main.inner.pop("id", None)
    if name is None:
        name = main.fields.pop("acct", None)
    if uid is None:
        uid = main.fields.pop("id", None) if main.type != "LOGIN" else None
    named = user(uid, main.names.get("ID") or None)
    if name and named:
        return {"name": name, "uid": named["uid"]}
    return {"name": name, "uid": None} if name else named
