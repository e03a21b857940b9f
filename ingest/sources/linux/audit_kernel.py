"""Records of the Linux audit system of a kind of their own: commands, terminals, crashes, what a
security module decided, and parts of an event that came apart from their system call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from posixpath import basename
from types import MappingProxyType
from typing import Any

from ingest.parsing import ocsf
from ingest.parsing.ocsf import (
    ALLOWED,
    BASE,
    DENIED,
    FAILURE,
    FILE,
    FINDING,
    INFORMATIONAL,
    KERNEL,
    KERNEL_EXTENSION,
    MEDIUM,
    NETWORK,
    OTHER,
    PROCESS,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.linux import audit_names
from ingest.sources.linux.audit_event import (
    Audit,
    acted,
    acting,
    event,
    number,
    peer,
    process_of,
    subject,
    user,
)
from ingest.sources.linux.audit_record import Part

_Fields = dict[str, Any]
_BLOCKED, _LOGGED = 2, 17


def _command(audit: Audit, main: Part) -> Event:
    """USER_CMD: sudo ran a command."""
    columns, process = acted(main, audit)
    more: _Fields = {}
    line = main.inner.pop("cmd", None) or main.fields.pop("cmd", None)
    # A path with a blank in it is cut here; the whole line stays in `cmd_line`.
    path = (line or "").partition(" ")[0]
    started = kept(
        # The record has sudo's pid, not that of the command.
        uid=audit.uid or "unknown",
        name=basename(path) or None,
        path=path if path.startswith("/") else None,
        cmd_line=line,
        cwd=main.inner.pop("cwd", None) or main.fields.pop("cwd", None),
    )
    target = user(main.inner.pop("runas_uid", None)) or None
    if target:
        started["user"] = target
    return event(
        audit,
        PROCESS,
        1,
        main,
        more=more,
        process=started,
        message=f"{process.get('name') or 'sudo'} ran: {line}",
        **columns,
    )


def _terminal(audit: Audit, main: Part) -> Event:
    """TTY and USER_TTY: what was typed."""
    columns, process = acted(main, audit)
    more: _Fields = {}
    # Written only where pam_tty_audit is on.
    typed = main.take("data")
    # A terminal sends a carriage return where the user pressed Enter.
    line = (typed or "").replace("\r", "\n").strip("\n")
    shell = process if "pid" in process else process | {"uid": audit.uid or "unknown"}
    if not columns.get("actor"):
        columns["actor"] = {"process": shell}
    return event(
        audit,
        PROCESS,
        OTHER,
        main,
        activity_name="Terminal Input",
        more=more,
        process=shell,
        rest={"data": typed} if typed is not None else {},
        message=f"typed: {line}",
        **columns,
    )


def _execve(audit: Audit, main: Part) -> Event:
    """An EXECVE whose SYSCALL came apart from it."""
    line = " ".join(audit.arguments)
    process = {"uid": audit.uid or "unknown", "cmd_line": line or None, "cwd": audit.cwd}
    first = audit.arguments[0] if audit.arguments else ""
    process["name"] = basename(first) or None
    process["path"] = first if first.startswith("/") else None
    main.fields = {}
    # Joined by blanks, such arguments could not be told apart again.
    spaced = [argument for argument in audit.arguments if not argument or " " in argument]
    return event(
        audit,
        PROCESS,
        1,
        main,
        process=process,
        message=f"Process started: {line}",
        rest={"arguments": audit.arguments} if spaced else {},
        more={"actor": {"invoked_by": "unknown"}},
    )


def _path(audit: Audit, main: Part) -> Event:
    """A PATH whose SYSCALL came apart from it."""
    if "name" not in main.fields:
        return base(audit, main)
    kind = main.fields.get("nametype") or main.fields.get("objtype", "")
    activity = {"CREATE": 1, "DELETE": 4}.get(kind, 0)
    more = audit.owner(main)
    return event(
        audit,
        FILE,
        activity,
        main,
        file=audit.file(main),
        more=more | {"actor": {"invoked_by": "unknown"}},
        message=f"{kind or 'PATH'} {audit.file(main)['path']}",
    )


def _sockaddr(audit: Audit, main: Part) -> Event:
    """A SOCKADDR whose SYSCALL came apart from it."""
    address = audit.address
    # A netlink or packet socket has no address that anybody could look for.
    if address is None or not (address.ip or address.path):
        return base(audit, main)
    there = kept(ip=address.ip, port=address.port, name=address.path)
    return event(
        audit,
        NETWORK,
        0,
        main,
        dst_endpoint=there or None,
        rest={"family": address.family},
        message=f"socket address {address.ip or address.path or address.family}",
    )


def _module(audit: Audit, main: Part) -> Event:
    name = main.fields.get("name") or "unknown"
    return event(
        audit,
        KERNEL_EXTENSION,
        1,
        main,
        severity_id=MEDIUM,
        more={"driver": {"file": {"name": name, "type_id": 1}}, "actor": {"invoked_by": "unknown"}},
        message=f"kernel module {name} loaded",
    )


def _bpf(audit: Audit, main: Part) -> Event:
    op = main.fields.get("op") or "LOAD"
    return event(
        audit,
        KERNEL,
        3 if op == "UNLOAD" else 1,
        main,
        more={
            "kernel": {
                "name": f"bpf program {main.fields.get('prog-id', '')}".strip(),
                "type_id": OTHER,
                "type": "BPF program",
            },
            "actor": {"invoked_by": "unknown"},
        },
        message=f"BPF program {op.lower()}",
    )


def _abend(audit: Audit, main: Part) -> Event:
    """ANOM_ABEND: a program crashed."""
    columns, process = acted(main, audit)
    more: _Fields = {}
    signal = main.fields.get("sig")
    process = process if "pid" in process else process | {"uid": audit.uid or "unknown"}
    columns.pop("status_id")
    return event(
        audit,
        PROCESS,
        2,
        main,
        severity_id=MEDIUM,
        more=more,
        process=process,
        message=f"{process.get('path') or process.get('name') or 'a process'} "
        f"ended by signal {signal}",
        **({"actor": {"process": process}} | columns),
    )


def _seccomp(audit: Audit, main: Part) -> Event:
    """SECCOMP: a program's own filter refused a system call."""
    columns, process = acted(main, audit)
    more: _Fields = {}
    arch, code = main.take("arch"), main.take("syscall")
    called = main.names.get("SYSCALL") or audit_names.syscall(arch, code)
    process = process if "pid" in process else process | {"uid": audit.uid or "unknown"}
    # SECCOMP_RET_LOG and SECCOMP_RET_ALLOW let the call through.
    allowed = main.fields.get("code") in ("0x7ffc0000", "0x7fff0000")
    columns.pop("status_id")
    return event(
        audit,
        PROCESS,
        OTHER,
        main,
        activity_name="Seccomp",
        severity_id=MEDIUM,
        more=more,
        process=process,
        action_id=ALLOWED if allowed else DENIED,
        disposition_id=_LOGGED if allowed else _BLOCKED,
        rest=kept(arch=audit_names.architecture(arch), syscall=called, syscall_number=code),
        message=f"seccomp: {called} by {process.get('path') or process.get('name')}",
        **({"actor": {"process": process}} | columns),
    )


def anomaly(audit: Audit, main: Part) -> Event:
    """ANOM_*: what the kernel or a program found odd."""
    syscall = audit.of("SYSCALL")
    columns, process = acted(main, audit)
    more: _Fields = {}
    if syscall and not process:
        by = acting(syscall)
        columns["actor"] = kept(user=by, process=process_of(audit, syscall) or None)
    about = subject(main)
    if about:
        columns["user"] = about
    op = main.inner.get("op") or main.fields.get("op")
    device = main.fields.get("dev")
    title = " ".join(filter(None, (main.type.replace("_", " ").title(), op, device)))
    end = peer(main, audit)
    return event(
        audit,
        FINDING,
        1,
        main,
        severity_id=MEDIUM,
        more=more,
        src_endpoint=end,
        finding_info={
            "uid": audit.uid or main.type,
            "title": title,
            "types": [main.type],
            "analytic": {"name": main.type, "type_id": 1},
        },
        message=title,
        **columns,
    )


AVCS = frozenset({"AVC", "USER_AVC", "SELINUX_ERR", "USER_SELINUX_ERR", "MAC_CHECK"})
_FILE_CLASSES = frozenset(
    {"file", "dir", "lnk_file", "chr_file", "blk_file", "sock_file", "fifo_file", "filesystem"}
)
# In order of weight: an access that writes and reads counts as writing.
_PERMISSIONS: tuple[tuple[str, int], ...] = (
    ("create", 1),
    ("unlink", 4),
    ("delete", 4),
    ("rmdir", 4),
    ("rename", 5),
    ("write", 3),
    ("append", 3),
    ("setattr", 6),
    ("chmod", 7),
    ("chown", 7),
    ("mount", 12),
    ("read", 2),
    ("open", 14),
    ("getattr", 8),
)


def refused(part: Part) -> tuple[int, int, bool] | None:
    """Action, disposition and whether it was refused, of a security module's record."""
    fields = part.fields | part.inner
    verdict = (fields.get("seresult") or fields.get("apparmor") or "").lower()
    if verdict in ("denied", "granted", "allowed", "audit", "complain"):
        permissive = fields.get("permissive") == "1"
        # A permissive domain writes `denied` and lets it happen.
        deny = verdict == "denied" and not permissive
        return (DENIED, _BLOCKED, True) if deny else (ALLOWED, _LOGGED, False)
    return None


def refusal(audit: Audit, main: Part) -> Event:
    """AVC: what SELinux or AppArmor decided on an access."""
    fields = main.fields | main.inner
    verdict = refused(main)
    columns, process = acted(main, audit)
    more: _Fields = {}
    columns.pop("status_id")
    action, disposition, denied = verdict or (0, 0, False)
    if verdict:
        columns |= {"action_id": action, "disposition_id": disposition}
        columns["status_id"] = FAILURE if denied else SUCCESS
    permissions = (
        fields.get("seperms") or fields.get("operation") or fields.get("requested_mask") or ""
    )
    # AppArmor names the class only since 6.x; a path is one of a file all the same.
    target = fields.get("name") or fields.get("path")
    kind = fields.get("tclass") or fields.get("class") or ""
    of_file = kind in _FILE_CLASSES or (not kind and (target or "").startswith("/"))
    rest = kept(seresult=fields.get("seresult"), seperms=fields.get("seperms"))
    # OCSF wants an id; a record on its own may name no process.
    process = process or {"uid": audit.uid or "unknown"}
    message = (
        f"{fields.get('seresult') or fields.get('apparmor') or main.type} {permissions}: "
        + " ".join(filter(None, (process.get("path") or process.get("name"), "->", target or kind)))
    )
    level = MEDIUM if denied else INFORMATIONAL
    if of_file and target:
        activity = next((position for word, position in _PERMISSIONS if word in permissions), 0)
        columns.setdefault("actor", {"process": process})
        return event(
            audit,
            FILE,
            activity,
            main,
            severity_id=level,
            more=more,
            file=_target(audit.absolute(target) or "", kind),
            message=message,
            rest=rest,
            **columns,
        )
    if kind.endswith("_socket") or "laddr" in fields or "faddr" in fields:
        return _socket_refusal(audit, main, columns, more, level, message, rest)
    if verdict and process:
        actor_process = (
            process if {"pid", "uid"} & process.keys() else process | {"uid": audit.uid or "-"}
        )
        columns.setdefault("actor", {"process": actor_process})
        return event(
            audit,
            PROCESS,
            OTHER,
            main,
            activity_name="Access Decision",
            rest=rest,
            severity_id=level,
            more=more,
            process=actor_process,
            message=message,
            **columns,
        )
    columns.pop("user", None)
    return event(
        audit, BASE, 0, main, severity_id=level, more=more, message=message, rest=rest, **columns
    )


def _target(path: str, kind: str) -> _Fields:
    return {"path" if "/" in path else "name": path, "type_id": 2 if kind == "dir" else 0}


def _socket_refusal(
    audit: Audit,
    main: Part,
    columns: _Fields,
    more: _Fields,
    level: int,
    message: str,
    rest: _Fields,
) -> Event:
    fields = main.fields

    def end(address: str, port: str) -> _Fields | None:
        leaves = kept(ip=ocsf.address(fields.get(address, "")), port=number(fields.get(port)))
        if leaves and "ip" not in leaves:
            leaves["name"] = "unknown"  # OCSF wants more than a port
        return leaves if (leaves.get("port") or 0) < 65536 and leaves else None

    ends = {
        "src_endpoint": end("laddr", "lport") or end("saddr", "src"),
        "dst_endpoint": end("faddr", "fport") or end("daddr", "dest"),
    }
    if not any(ends.values()):
        ends["src_endpoint"] = {"hostname": audit.host or "unknown"}
    return event(
        audit,
        NETWORK,
        5 if columns.get("action_id") == DENIED else 6,
        main,
        severity_id=level,
        more=more,
        message=message,
        rest=rest,
        **ends,
        **columns,
    )


def base(audit: Audit, main: Part) -> Event:
    """A record of no class of its own."""
    columns, _ = acted(main, audit)
    words = main.fields.get("text") or main.inner.get("text") or main.inner.get("op")
    title = audit.title if main.type == "PROCTITLE" else None
    named = title or audit.cwd or main.fields.get("op") or words or ""
    rest = {"cmd_line": title} if title else {}
    return event(
        audit,
        BASE,
        0,
        main,
        rest=rest,
        src_endpoint=peer(main, audit) if ocsf.address(main.inner.get("addr", "")) else None,
        message=f"{main.type} {named}".strip(),
        **columns,
    )


READERS: Mapping[str, Callable[[Audit, Part], Event]] = MappingProxyType(
    {
        "USER_CMD": _command,
        "TTY": _terminal,
        "USER_TTY": _terminal,
        "EXECVE": _execve,
        "PATH": _path,
        "SOCKADDR": _sockaddr,
        "KERN_MODULE": _module,
        "BPF": _bpf,
        "ANOM_ABEND": _abend,
        "SECCOMP": _seccomp,
    }
)
