"""sudo, as it writes to syslog (sudoers(5), "LOG FORMAT"), in words or, since 1.9.4, as JSON.

What PAM says of a wrong password stays a base event: sudo tells of it itself, with the command
it was for, so that one attempt counts once.

A working directory or an argument may hold ` ; USER=root ; COMMAND=`, and sudo
does not escape it. A line in which a field stands twice is therefore marked
`ambiguous` in `unmapped`: everything after the first `COMMAND=` is the command
line, and no target user is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ingest.parsing.ocsf import (
    A_COMMAND,
    A_USER,
    AUTHENTICATION,
    FAILURE,
    INFORMATIONAL,
    MEDIUM,
    PROCESS,
    SUCCESS,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, ParseSettings, Read, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import Line, SyslogSource

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "sudo", "vendor_name": "Sudo Project"}
_LAUNCH, _LOGOFF, _ACCOUNT_SWITCH = 1, 2, 7

COMMAND_LINE = re.compile(r"(?P<user>[^\s:;=]+) : (?P<rest>.*COMMAND=.*)")
_FIELD = re.compile(r"(HOST|CHROOT|TTY|PWD|USER|GROUP|TSID|ENV)=(.*)")
_PASSWORD = re.compile(
    r"\d+ incorrect password attempts?|a password is required|conversation failed|"
    r"(?:account validation failure|account or password is expired).{0,200}",
    re.ASCII,
)
_SESSION = re.compile(
    r"pam_unix\(sudo(?:-i)?:session\): session (?P<what>opened|closed) for user "
    r"(?P<user>[^\s(]+)(?:\(uid=(?P<uid>\d+)\))?"
    r"(?: by (?P<by>[^\s(]*)(?:\(uid=(?P<by_uid>\d+)\))?)?",
    re.ASCII,
)


def _read(line: Line, context: Context) -> Event | None:
    """A command, a refused one, a session; None for what else sudo says."""
    match = COMMAND_LINE.fullmatch(line.text)
    if match:
        return _command(match["user"], match["rest"], line, context)
    match = _SESSION.fullmatch(line.text)
    if match:
        return _session(match.groupdict(), line)
    return _json(line, context) if line.text[:1] in "@{" else None


def _fields(rest: str) -> tuple[str | None, dict[str, str], str, bool]:
    """The refusal, the named fields, the command, and whether the line is ambiguous."""
    # The first: all that follows is the command, which may hold the word again.
    head, _, command = rest.partition("COMMAND=")
    refused: str | None = None
    fields: dict[str, str] = {}
    ambiguous = " ; COMMAND=" in command
    name: str | None = None
    for piece in head.removesuffix(" ; ").split(" ; "):
        match = _FIELD.fullmatch(piece)
        if match and match[1] not in fields:
            name = match[1]
            fields[name] = match[2]
        # A field twice, or words behind one that belong to none: somebody wrote the separator.
        elif match or name:
            ambiguous = True
            fields[name or "PWD"] = f"{fields.get(name or 'PWD', '')} ; {piece}"
        elif piece:
            refused = piece if refused is None else f"{refused} ; {piece}"
    return refused, fields, command, ambiguous


def _command(user: str, rest: str, line: Line, context: Context) -> Event:
    refused, fields, command, ambiguous = _fields(rest)
    target = None if ambiguous else fields.pop("USER", "root")
    # sudo writes the resolved path first, and escapes no blank in what follows.
    path = command.split(" ", 1)[0]
    directory = fields.pop("PWD", None)
    more = line.rest | kept(ambiguous=ambiguous or None) | fields
    if refused and _PASSWORD.fullmatch(refused):
        rest_of = more | kept(COMMAND=command, PWD=directory)
        return _switch(user, target, refused, line, rest_of)
    process = {
        "name": path.rsplit("/", 1)[-1] or None,
        "path": path or None,
        "cmd_line": command,
        "cwd": directory,
        "user": {"name": target} if target else None,
        # sudo does not log the command's pid; the record is what identifies it.
        "uid": context.record.record_id,
    }
    return event(
        PROCESS,
        _LAUNCH,
        line.stamp,
        status_id=FAILURE if refused else SUCCESS,
        severity_id=MEDIUM if refused else INFORMATIONAL,
        status_detail=refused,
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        actor={"user": {"name": user}, "process": _sudo(line)},
        user_name=user,
        device=device(line.host),
        process=process,
        observables=observables(
            ("actor.user.name", A_USER, user),
            ("process.user.name", A_USER, target),
            ("process.cmd_line", A_COMMAND, command),
        ),
        unmapped=unmapped(more),
    )


def _json(line: Line, context: Context) -> Event | None:
    """`@cee:{"sudo":{"accept":{...}}}`: the fields under names of their own."""
    try:
        whole = decode_object(line.text.removeprefix("@cee:").strip().encode())
    except Unreadable:
        return None
    inner = whole.get("sudo")
    kind = next(iter(inner)) if type(inner) is dict and len(inner) == 1 else None
    entry = inner[kind] if type(inner) is dict and kind in ("accept", "reject", "alert") else None
    if type(entry) is not dict:
        return None

    def text(name: str) -> str | None:
        return entry.pop(name) if type(entry.get(name)) is str else None

    path, by, target = text("command"), text("submituser"), text("runuser")
    arguments = entry.get("runargv")
    line_of = path
    # `runargv` begins with the command itself, as argv does.
    if type(arguments) is list and all(type(argument) is str for argument in arguments):
        line_of = " ".join(arguments) or path
    reason = text("reason") or text("message")
    if reason and _PASSWORD.fullmatch(reason) and by:
        return _switch(by, target, reason, line, line.rest | entry | kept(command=path))
    process = {
        "name": path.rsplit("/", 1)[-1] if path else None,
        "path": path,
        "cmd_line": line_of,
        "cwd": text("runcwd") or text("submitcwd"),
        "user": {"name": target} if target else None,
        "uid": text("uuid") or context.record.record_id,
    }
    refused = kind != "accept"
    actor = {"user": {"name": by} if by else None, "process": _sudo(line)}
    return event(
        PROCESS,
        _LAUNCH,
        line.stamp,
        status_id=FAILURE if refused else SUCCESS,
        severity_id=MEDIUM if refused else INFORMATIONAL,
        status_detail=reason,
        message=f"{by or 'unknown'} : {'refused' if refused else 'ran'} {line_of}",
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program, event_code=kind),
        # OCSF requires an actor, with a user or a process in it.
        actor=actor if any(actor.values()) else {"process": {"name": "sudo", "pid": 0}},
        user_name=by,
        device=device(line.host or text("submithost")),
        process=process,
        observables=observables(
            ("actor.user.name", A_USER, by),
            ("process.user.name", A_USER, target),
            ("process.cmd_line", A_COMMAND, line_of),
        ),
        unmapped=unmapped(line.rest | entry),
    )


def _sudo(line: Line) -> dict[str, object] | None:
    return {"name": "sudo", "pid": line.pid} if line.pid else None


def _switch(
    user: str, target: str | None, refused: str, line: Line, rest: dict[str, object]
) -> Event:
    """A wrong password: nobody became anybody."""
    return event(
        AUTHENTICATION,
        _ACCOUNT_SWITCH,
        line.stamp,
        status_id=FAILURE,
        severity_id=MEDIUM,
        status_detail=refused,
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        user={"name": target} if target else None,
        actor={"user": {"name": user}, "process": _sudo(line)},
        user_name=user,
        device=device(line.host),
        dst_endpoint={"hostname": line.host} if line.host else None,
        service={"name": "sudo"},
        is_remote=False,
        observables=observables(("actor.user.name", A_USER, user), ("user.name", A_USER, target)),
        unmapped=unmapped(rest),
    )


def _session(part: dict[str, str | None], line: Line) -> Event:
    opened = part["what"] == "opened"
    user = {"name": part["user"], "uid": part["uid"]}
    by = {"name": part["by"] or None, "uid": part["by_uid"]}
    named = any(by.values())
    return event(
        AUTHENTICATION,
        _ACCOUNT_SWITCH if opened else _LOGOFF,
        line.stamp,
        status_id=SUCCESS,
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        user=user,
        actor={"user": by, "process": _sudo(line)} if named else None,
        device=device(line.host),
        dst_endpoint={"hostname": line.host} if line.host else None,
        service={"name": "sudo"},
        is_remote=False,
        observables=observables(
            ("user.name", A_USER, part["user"]), ("actor.user.name", A_USER, by["name"])
        ),
        unmapped=unmapped(line.rest),
    )


def _at_once(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    # Imported where Arrow is at hand anyway: the command line starts without it.
    from ingest.sources.linux.sudo_columns import read_sudo

    return read_sudo(records, settings)


SOURCES = (
    SyslogSource(
        name="sudo", programs=frozenset({"sudo"}), product=_PRODUCT, reader=_read, at_once=_at_once
    ),
)
