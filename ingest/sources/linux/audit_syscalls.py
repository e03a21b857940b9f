"""What system calls are as OCSF events: processes, files, sockets, kernel modules.

A call that none of these is stays a Kernel Activity, which names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    FAILURE,
    FILE,
    KERNEL,
    KERNEL_EXTENSION,
    MEDIUM,
    NETWORK,
    OTHER,
    PROCESS,
)
from ingest.parsing.source import Event
from ingest.sources.linux import audit_names
from ingest.sources.linux.audit_event import Audit, acting, event, number, process_of, status, user
from ingest.sources.linux.audit_record import Part

_LAUNCH, TERMINATE, OPEN_PROCESS, INJECT, SET_USER = 1, 2, 3, 4, 5
_CREATE, _READ, _UPDATE, _DELETE, _RENAME, ATTRIBUTES, _SECURITY = 1, 2, 3, 4, 5, 6, 7
GET_ATTRIBUTES, GET_SECURITY, MOUNT, UNMOUNT, _OPEN = 8, 9, 12, 13, 14
INVOKE, SYSTEM_CALL = 4, 2

FILES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("open", "openat", "openat2", "open_by_handle_at"), _OPEN),
        **dict.fromkeys(("creat", "mkdir", "mkdirat", "mknod", "mknodat"), _CREATE),
        **dict.fromkeys(("link", "linkat", "symlink", "symlinkat"), _CREATE),
        **dict.fromkeys(("truncate", "ftruncate", "fallocate", "write", "pwrite64"), _UPDATE),
        **dict.fromkeys(("unlink", "unlinkat", "rmdir"), _DELETE),
        **dict.fromkeys(("rename", "renameat", "renameat2"), _RENAME),
        **dict.fromkeys(("chmod", "fchmod", "fchmodat", "fchmodat2"), _SECURITY),
        **dict.fromkeys(("chown", "fchown", "lchown", "fchownat", "chown32"), _SECURITY),
        **dict.fromkeys(("fchown32", "lchown32"), _SECURITY),
        **dict.fromkeys(("setxattr", "lsetxattr", "fsetxattr", "removexattr"), ATTRIBUTES),
        **dict.fromkeys(("lremovexattr", "fremovexattr", "utime", "utimes"), ATTRIBUTES),
        **dict.fromkeys(("utimensat", "futimesat"), ATTRIBUTES),
        **dict.fromkeys(("stat", "lstat", "newfstatat", "statx", "access"), GET_ATTRIBUTES),
        **dict.fromkeys(("faccessat", "faccessat2", "getxattr", "lgetxattr"), GET_ATTRIBUTES),
        **dict.fromkeys(("read", "readlink", "readlinkat", "getdents", "getdents64"), _READ),
        **dict.fromkeys(("mount", "move_mount", "fsmount"), MOUNT),
        **dict.fromkeys(("umount", "umount2"), UNMOUNT),
    }
)
_USERS = frozenset(
    {
        *("setuid", "setreuid", "setresuid", "setfsuid", "setgid", "setregid", "setresgid"),
        *("setfsgid", "setgroups", "setuid32", "setreuid32", "setresuid32", "setgid32"),
        *("setregid32", "setresgid32"),
    }
)
STARTS = frozenset({"fork", "vfork", "clone", "clone3"})
_MODULES: Mapping[str, int] = MappingProxyType(
    {"init_module": 1, "finit_module": 1, "create_module": 1, "delete_module": 2}
)
SOCKETS: Mapping[str, int] = MappingProxyType(
    {
        "connect": 1,
        "accept": 1,
        "accept4": 1,
        "bind": 7,
        "listen": 7,
        "sendto": 6,
        "sendmsg": 6,
        "recvfrom": 6,
        "recvmsg": 6,
        "getsockname": 6,
        "getpeername": 6,
    }
)
INCOMING = frozenset({"accept", "accept4", "recvfrom", "recvmsg"})
# O_WRONLY and O_RDWR, the two low bits of the flags.
_WRITING = 0o3
_TRACES: Mapping[int, int] = MappingProxyType(
    {
        # PTRACE_POKETEXT, POKEDATA, POKEUSR, SETREGS, SETFPREGS: it writes into another process.
        **dict.fromkeys((4, 5, 6, 13, 15, 0x4205), INJECT),
        # PTRACE_ATTACH, SEIZE and those that read.
        **dict.fromkeys((1, 2, 3, 12, 16, 0x4206), OPEN_PROCESS),
    }
)
# HUP, INT, QUIT, ABRT, KILL, SEGV and TERM end a process that does not handle them.
_DEADLY = frozenset({1, 2, 3, 6, 9, 11, 15})


def of_syscall(audit: Audit, main: Part) -> Event:
    """The event whose SYSCALL record is `main`."""
    take = main.take
    arch, code = take("arch"), take("syscall")
    called = main.names.get("SYSCALL") or audit_names.syscall(arch, code) or "unknown"
    error, words = audit_names.error_of(main.fields.get("exit"))
    actor_user = acting(main)
    process = process_of(audit, main) or {"uid": audit.uid or "unknown"}
    columns: dict[str, Any] = {
        "status_id": status(take("success")),
        "status_code": error,
        "status_detail": words,
    }
    rest: dict[str, Any] = {
        "arch": main.names.get("ARCH") or audit_names.architecture(arch),
        "syscall": called,
        "syscall_number": code if code != called else None,
    }
    key = main.fields.get("key")
    # The kernel joins the keys of several rules with this byte.
    if key and "\x01" in key:
        rest["key"] = key.split("\x01")
    rest = {name: value for name, value in rest.items() if value is not None}
    call = Call(audit, main, called, process, actor_user, columns, rest)
    return call.reader()()


class Call:
    """One system call, and the events it may be."""

    def __init__(
        self,
        audit: Audit,
        main: Part,
        name: str,
        process: dict[str, Any],
        user: dict[str, Any] | None,
        columns: dict[str, Any],
        rest: dict[str, Any],
    ) -> None:
        self.audit, self.main, self.name = audit, main, name
        self.process, self.user = process, user
        self.columns, self.rest = columns, rest
        program = process.get("path") or process.get("name") or "a process"
        self.by = f"{program} (pid {process['pid']})" if "pid" in process else program

    def reader(self) -> Callable[[], Event]:
        """What reads this call."""
        name = self.name
        if name in ("execve", "execveat"):
            return self.launch
        # Without a SOCKADDR there are no ends, and OCSF has no connection without one.
        if name in SOCKETS and self.audit.address is not None:
            return self.socket
        if name in FILES and (self.audit.paths() or name in ("mount", "umount2")):
            return self.file if self.audit.paths() else self.other
        if name in _MODULES:
            return self.module
        if name == "ptrace" or name.startswith("process_vm_"):
            return self.trace
        if name in ("kill", "tkill", "tgkill", "pidfd_send_signal"):
            return self.signal
        if name in _USERS or name in STARTS or name in ("exit", "exit_group"):
            return self.own
        return self.other

    def event(self, class_uid: int, activity: int, **columns: Any) -> Event:
        """An event of this call, done by its process."""
        more = dict(columns.pop("more", {}))
        if "actor" not in columns:
            columns["actor"] = {"process": self.process}
        if self.user:
            columns["actor"] = columns["actor"] | {"user": self.user}
        return event(
            self.audit,
            class_uid,
            activity,
            self.main,
            rest=self.rest,
            more=more,
            **self.columns | columns,
        )

    def launch(self) -> Event:
        """A program was started in place of the process's own."""
        arguments = self.audit.arguments
        process = dict(self.process)
        line = " ".join(arguments) or self.audit.title
        if line:
            process["cmd_line"] = line
        # Joined with blanks such arguments could not be told apart again.
        if any(not argument or " " in argument for argument in arguments):
            self.rest["arguments"] = arguments
        elif self.audit.title and self.audit.title != line:
            self.rest["proctitle"] = self.audit.title
        failed = self.columns["status_id"] == FAILURE
        tried = self.audit.paths("NORMAL", "UNKNOWN", "CREATE")[:1]
        if failed and tried:
            # It failed before the program was there: `exe` and title are those of who tried.
            self.rest["exe"] = process.get("path")
            process["path"] = self.audit.absolute(tried[0].fields["name"])
            if not arguments:
                self.rest |= {"proctitle": line} if line else {}
                line = None
                process["cmd_line"] = None
        parent = process.get("parent")
        return self.event(
            PROCESS,
            _LAUNCH,
            process=process,
            actor={"process": parent} if parent else {"process": self.process},
            message=f"Process {process.get('pid', '')} started: {line or process.get('path')}"
            if not failed
            else f"{self.by} failed to start: {line or process.get('path')}",
        )

    def own(self) -> Event:
        """The process started a copy of itself, ended, or changed whom it runs as."""
        process = dict(self.process)
        activity = SET_USER if self.name in _USERS else TERMINATE
        if self.name in STARTS:
            activity = _LAUNCH
            # A fork gives the child's pid as its result.
            child = number(self.main.fields.get("exit"))
            if child:
                process = process | {"pid": child, "parent": {"pid": process.get("pid")}}
        message = f"{self.name} by {self.by}"
        if activity == SET_USER:
            new = [self._argument(index) for index in range(3)]
            self.rest["ids"] = [
                # -1 in 32 and in 64 bits: that id stays as it is.
                None if number_row in (None, 0xFFFFFFFF, 2**64 - 1) else number_row
                for number_row in new
            ]
        return self.event(
            PROCESS,
            activity,
            process=process,
            message=message,
            actor={"process": self.process},
        )

    def _argument(self, at: int) -> int | None:
        text = self.main.fields.get(f"a{at}", "")
        try:
            # Arguments are in hexadecimal, without the mark of it.
            return int(text, 16)
        except ValueError:
            return None

    def file(self) -> Event:
        """Something was done to a file that a PATH record names."""
        audit, activity = self.audit, FILES[self.name]
        made, gone = audit.paths("CREATE"), audit.paths("DELETE")
        main = (audit.paths("NORMAL", "UNKNOWN") or audit.paths())[0]
        more: dict[str, Any] = {}
        if activity == _RENAME:
            main = (gone or made or [main])[0]
            if made and gone:
                more["file_result"] = audit.file(made[-1])
        elif activity == _DELETE:
            main = (gone or [main])[0]
        # `open` with O_CREAT makes a file: the PATH record of kind CREATE tells.
        elif activity == _CREATE or (activity == _OPEN and made):
            main, activity = (made or [main])[0], _CREATE
        elif activity == _OPEN:
            flags = self._argument(1 if self.name in ("open", "creat") else 2)
            # openat2 has its flags in a structure, of which the record only has the pointer.
            if flags is not None and self.name != "openat2" and flags & _WRITING:
                activity = _UPDATE
        elif activity in (MOUNT, UNMOUNT):
            main = audit.paths()[0]
        file = audit.file(main)
        return self.event(
            FILE,
            activity,
            file=file,
            more=more | audit.owner(main),
            message=f"{self.name} {file['path']} by {self.by}",
        )

    def socket(self) -> Event:
        """A connection was made, taken or waited for."""
        address = self.audit.address
        assert address is not None
        here: dict[str, Any] = {"hostname": self.audit.host} if self.audit.host else {}
        there = {"ip": address.ip, "port": address.port, "name": address.path}
        ends = {"src_endpoint": here or None, "dst_endpoint": there}
        direction = (2, "Outbound")
        if self.name in INCOMING:
            ends, direction = {"src_endpoint": there, "dst_endpoint": here or None}, (1, "Inbound")
        elif self.name in ("bind", "listen"):
            ends, direction = {"src_endpoint": here | there}, (0, "Unknown")
        if address.family == "unix" or not address.ip:
            direction = (4, "Local") if address.family == "unix" else (0, "Unknown")
        if not any(there.values()):
            ends = {"src_endpoint": here or {"hostname": "unknown"}}
        self.rest["family"] = address.family
        where = address.path or f"{address.ip}:{address.port}" if address.ip or address.path else ""
        return self.event(
            NETWORK,
            SOCKETS[self.name],
            connection_info={
                "direction_id": direction[0],
                "direction": direction[1],
                "protocol_ver_id": {"inet": 4, "inet6": 6}.get(address.family),
            },
            message=f"{self.name} {where or address.family} by {self.by}",
            **ends,
        )

    def module(self) -> Event:
        """A kernel module was loaded or removed."""
        record = self.audit.of("KERN_MODULE")
        name = record.fields.get("name") if record else None
        paths = self.audit.paths("NORMAL", "UNKNOWN")
        file: dict[str, Any] = {"name": name or "unknown", "type_id": 1}
        if paths:
            file = self.audit.file(paths[0]) | ({"name": name} if name else {})
        done = "load" if _MODULES[self.name] == 1 else "unload"
        return self.event(
            KERNEL_EXTENSION,
            _MODULES[self.name],
            severity_id=MEDIUM,
            more={"driver": {"file": file}},
            message=f"{done} of kernel module {name or file['name']} by {self.by}",
        )

    def _target(self, pid: int | None) -> dict[str, Any]:
        record = self.audit.of("OBJ_PID")
        if record is None:
            return {"pid": pid} if pid else {"pid": 0}
        names = record.names
        return {
            "pid": number(record.fields.get("opid")) or pid,
            "name": record.fields.get("ocomm"),
            "user": user(record.fields.get("ouid"), names.get("OUID")),
        }

    def trace(self) -> Event:
        """A process looked into another, or wrote into it."""
        request = self._argument(0)
        pid = self._argument(1) if self.name == "ptrace" else request
        activity, name = _TRACES.get(request or 0, OTHER), None
        if self.name != "ptrace":
            activity = INJECT if self.name.endswith("writev") else OPEN_PROCESS
        if activity == OTHER:
            name = "Trace"
        return self.event(
            PROCESS,
            activity,
            activity_name=name,
            process=self._target(pid),
            severity_id=MEDIUM,
            message=f"{self.name} of process {pid} by {self.by}",
        )

    def signal(self) -> Event:
        """A process sent another a signal."""
        pid, sent = self._argument(0), self._argument(2 if self.name == "tgkill" else 1)
        deadly = sent in _DEADLY
        return self.event(
            PROCESS,
            TERMINATE if deadly else OTHER,
            activity_name=None if deadly else "Signal",
            # A negative pid means a group of processes.
            process=self._target(pid if pid is None or pid < 2**31 else None),
            message=f"signal {sent} to process {pid} by {self.by}",
        )

    def other(self) -> Event:
        """Any other call."""
        return self.event(
            KERNEL,
            INVOKE,
            more={"kernel": {"name": self.name, "type_id": SYSTEM_CALL, "system_call": self.name}},
            message=f"{self.name} by {self.by}",
        )
