"""Rows of osquery's tables as OCSF events (https://osquery.io/schema/).

A scheduled query may have any name and select what it likes, so a table is told by its columns,
and by the name of the query where columns do not suffice. Every value comes as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from posixpath import basename
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.audit_event import UNSET
from ingest.audit_names import TYPES
from ingest.audit_user import KINDS
from ingest.named import mac, port, whole
from ingest.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    BASE,
    DNS,
    FAILURE,
    FILE,
    FINDING,
    GROUP,
    INVENTORY,
    JOB,
    KERNEL_EXTENSION,
    MEDIUM,
    NETWORK,
    OTHER,
    PERIPHERAL,
    PROCESS,
    SCRIPT,
    SOFTWARE,
    SUCCESS,
    USER_INVENTORY,
    address,
    kept,
)

LOG, COLLECT = 1, 2
ADDED, REMOVED, SNAPSHOT = "added", "removed", "snapshot"


class Found(NamedTuple):
    """What a row is: class, activity, the columns of its event, and `more` of them."""

    class_uid: int
    activity: int
    columns: dict[str, Any]
    more: Mapping[str, Any] = MappingProxyType({})


class Row:
    """One row: the columns of the table not used yet, and what happened to it."""

    def __init__(self, columns: dict[str, Any], action: str, query: str, first: bool) -> None:
        self.columns, self.action, self.query = columns, action, query.lower()
        self.first = first

    def take(self, *names: str) -> str | None:
        """The first of the columns that says something, taken out."""
        for name in names:
            value = self.columns.get(name)
            if type(value) in (str, int) and value != "":
                del self.columns[name]
                return str(value)
        return None

    def number(self, *names: str) -> int | None:
        """The first of the columns that is a whole number, taken out."""
        for name in names:
            found = whole(self.columns.get(name))
            if found is not None:
                del self.columns[name]
                return found
        return None

    def endpoint(self, ip: str, number: str) -> dict[str, Any] | None:
        """An address with its port, taken out."""
        spelled = self.columns.get(ip)
        found = address(spelled) if type(spelled) is str else None
        if found:
            del self.columns[ip]
        at = port(self.columns.get(number))
        if at is not None:
            del self.columns[number]
        return kept(ip=found, port=at) or None

    def has(self, *names: str) -> bool:
        """Whether it has all these columns."""
        return all(name in self.columns for name in names)

    def asked(self, *words: str) -> bool:
        """Whether the query's name has one of these words."""
        return any(word in self.query for word in words)

    def changed(self, added: int, removed: int, seen: int = 0) -> int:
        """The activity of a change; `seen` where the row was only found to be there."""
        if self.action == ADDED and not self.first:
            return added
        return removed if self.action == REMOVED else seen


def _process(row: Row) -> dict[str, Any]:
    path = row.take("path", "proc_path", "binary_path")
    line = row.take("cmdline", "command_line", "proc_cmdline")
    parent = row.number("parent", "ppid")
    ancestor = kept(pid=parent, path=row.take("parent_path"), cmd_line=row.take("parent_cmdline"))
    uid, name = row.take("uid", "user_id"), row.take("username", "user")
    hashes = [
        {"algorithm": label, "value": value}
        for column, label in (("md5", "MD5"), ("sha1", "SHA-1"), ("sha256", "SHA-256"))
        if (value := row.take(column))
    ]
    return kept(
        pid=row.number("pid"),
        name=row.take("name", "process_name") or (basename(path) if path else None),
        path=path,
        cmd_line=line,
        cwd=row.take("cwd"),
        parent=ancestor or None,
        user=kept(uid=uid, name=name) or None,
        hashes=hashes or None,
    )


def _actor(row: Row, process: dict[str, Any]) -> dict[str, Any] | None:
    login = row.take("auid")
    user = {"uid": login} if login and login not in UNSET else process.get("user")
    parent = process.get("parent")
    return kept(user=user, process=parent) or None


def process_event(row: Row) -> Found:
    """process_events, es_process_events, bpf_process_events."""
    process = _process(row)
    kind = (row.take("event_type", "syscall") or "exec").lower()
    activity = 2 if kind in ("exit", "exit_group") else 1
    code = row.columns.get("status")
    failed = type(code) is str and code not in ("", "0") and code.isdecimal() and "audit" in kind
    return Found(
        PROCESS,
        activity,
        {
            "process": process,
            "actor": _actor(row, process),
            "status_id": FAILURE if failed else SUCCESS,
            "message": f"{kind}: {process.get('cmd_line') or process.get('path') or ''}".strip(),
        },
    )


def process_seen(row: Row) -> Found:
    """processes, and queries that join it."""
    process = _process(row)
    activity = row.changed(1, 2, OTHER)
    name = None if activity != OTHER else "Seen"
    line = process.get("cmd_line") or process.get("path") or process.get("name") or ""
    columns = {"process": process, "actor": _actor(row, process), "activity_name": name}
    return Found(PROCESS, activity, columns | {"message": f"process {row.action}: {line}"})


_CALLS: Mapping[str, int] = MappingProxyType({"connect": 1, "accept": 1, "accept4": 1, "bind": 7})


def _connection(row: Row, incoming: bool | None) -> dict[str, Any]:
    written = row.columns.get("protocol")
    protocol = {"6": "tcp", "17": "udp", "1": "icmp"}.get(str(written))
    number = whole(row.columns.get("protocol")) if protocol else None
    if protocol:
        row.columns.pop("protocol", None)
    known = {None: (0, "Unknown"), True: (1, "Inbound"), False: (2, "Outbound")}[incoming]
    return kept(
        protocol_name=protocol, protocol_num=number, direction_id=known[0], direction=known[1]
    )


def socket_event(row: Row) -> Found:
    """socket_events and bpf_socket_events."""
    call = str(row.columns.get("action") or row.columns.get("syscall") or "connect").lower()
    incoming = call.startswith("accept") if call in _CALLS and call != "bind" else None
    here = row.endpoint("local_address", "local_port")
    there = row.endpoint("remote_address", "remote_port")
    connection = _connection(row, incoming)
    process = _process(row)
    done = {"succeeded": SUCCESS, "1": SUCCESS, "failed": FAILURE, "0": FAILURE}
    ends = (there, here) if incoming else (here, there)
    where = f"{(there or {}).get('ip', '')}:{(there or {}).get('port', '')}"
    return Found(
        NETWORK,
        _CALLS.get(call, 6),
        {
            "src_endpoint": ends[0],
            "dst_endpoint": ends[1],
            "connection_info": connection,
            "actor": _by(row, process),
            "status_id": done.get(str(row.columns.get("success") or row.columns.get("status"))),
            "message": f"{call} {where} by {process.get('path') or process.get('name') or '?'}",
        },
    )


def _by(row: Row, process: dict[str, Any]) -> dict[str, Any] | None:
    login = row.take("auid")
    user = {"uid": login} if login and login not in UNSET else process.get("user")
    return kept(user=user, process=process or None) or None


def open_socket(row: Row) -> Found:
    """process_open_sockets."""
    here = row.endpoint("local_address", "local_port")
    there = row.endpoint("remote_address", "remote_port")
    connection = _connection(row, None)
    process = _process(row)
    return Found(
        NETWORK,
        row.changed(1, 2, 6),
        {
            "src_endpoint": here,
            "dst_endpoint": there,
            "connection_info": connection,
            "actor": _by(row, process),
            "message": f"socket {row.action}: {here or ''} {there or ''}"[:200],
        },
    )


def listening(row: Row) -> Found:
    """listening_ports."""
    here = row.endpoint("address", "port")
    connection = _connection(row, None)
    process = _process(row)
    return Found(
        NETWORK,
        row.changed(7, 2, 7),
        {
            "src_endpoint": here,
            "connection_info": connection,
            "actor": _by(row, process),
            "message": f"listening port {row.action}: {(here or {}).get('port', '')}",
        },
    )


_FILE_ACTIONS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("created", "create", "write_create", "filecreate"), 1),
        **dict.fromkeys(("opened", "open"), 14),
        **dict.fromkeys(("accessed", "read"), 2),
        **dict.fromkeys(("updated", "update", "write", "filewrite"), 3),
        **dict.fromkeys(("deleted", "delete", "unlink", "filedelete"), 4),
        **dict.fromkeys(("moved_to", "moved_from", "rename", "filerename_newname", "link"), 5),
        **dict.fromkeys(("attributes_modified", "chmod", "chown", "attributes"), 6),
    }
)


def file_event(row: Row) -> Found:
    """file_events, process_file_events, es_process_file_events and ntfs_journal_events."""
    done = str(row.columns.get("action") or row.columns.get("operation") or "")
    if "event_type" in row.columns and not done:
        done = str(row.columns["event_type"])
    path = row.take("target_path", "dest_path", "dest_filename", "filename", "path") or "unknown"
    size = row.number("size")
    hashes = [
        {"algorithm": label, "value": value}
        for column, label in (("md5", "MD5"), ("sha1", "SHA-1"), ("sha256", "SHA-256"))
        if (value := row.take(column))
    ]
    file = {"path": path, "size": size, "hashes": hashes or None, "type_id": 0}
    uid = row.take("uid")
    owner = {"file": {"owner": {"uid": uid}}} if uid else {}
    path_of = row.take("executable", "process_path")
    process = kept(pid=row.number("pid"), path=path_of, name=basename(path_of) if path_of else None)
    return Found(
        FILE,
        _FILE_ACTIONS.get(done.lower(), OTHER if done else 0),
        {
            "file": kept(**file),
            "actor": {"process": process} if process else {"invoked_by": "unknown"},
            "activity_name": done.capitalize()
            if done and done.lower() not in _FILE_ACTIONS
            else None,
            "message": f"file {done.lower() or row.action}: {path}",
        },
        owner,
    )


def login(row: Row) -> Found:
    """logged_in_users and last."""
    name = row.take("user", "username")
    host = row.take("host")
    ip = address(host) if host else None
    terminal = row.take("tty")
    activity = row.changed(1, 2, 1)
    if str(row.columns.get("type")) == "8":  # `last`: DEAD_PROCESS
        activity = 2
    return Found(
        AUTHENTICATION,
        activity,
        {
            "user": {"name": name} if name else None,
            "src_endpoint": kept(ip=ip, hostname=None if ip else host) or None,
            "session": {"terminal": terminal} if terminal else None,
            "status_id": SUCCESS,
            "is_remote": True if host else None,
            "message": f"{'login' if activity == 1 else 'logout'} of {name} {host or ''}".strip(),
        },
        {} if name else {"user": {"name": "", "type_id": 0}},
    )


def user_event(row: Row) -> Found:
    """user_events: what the audit system says of logins."""
    kind = TYPES.get(str(row.columns.get("type")), "")
    class_uid, activity, name = KINDS.get(kind, (AUTHENTICATION, 0, None))
    if class_uid != AUTHENTICATION:
        class_uid, activity, name = AUTHENTICATION, 0, None
    spelled = row.columns.get("address")
    ip = address(spelled) if type(spelled) is str else None
    if ip:
        del row.columns["address"]
    terminal, path = row.take("terminal"), row.take("path")
    uid, login_uid = row.take("uid"), row.take("auid")
    if login_uid in UNSET:
        login_uid = None
    user = kept(uid=login_uid or uid, name=row.take("username")) or None
    process = kept(
        pid=row.number("pid"), path=path, user={"uid": uid} if uid and login_uid else None
    )
    written = str(row.columns.get("message") or "")
    failed = "res=failed" in written or "res=0" in written
    return Found(
        AUTHENTICATION,
        activity,
        {
            "activity_name": name,
            "user": user,
            "src_endpoint": {"ip": ip} if ip else None,
            "session": {"terminal": terminal} if terminal else None,
            "actor": {"process": process} if process else None,
            "status_id": FAILURE if failed else SUCCESS if "res=" in written else None,
            "service": {"name": basename(path)} if path else None,
            "message": f"{kind or 'user event'} {written}".strip(),
        },
        {} if user else {"user": {"name": "", "type_id": 0}},
    )


def account(row: Row) -> Found:
    """users."""
    name, uid = row.take("username"), row.take("uid")
    user = kept(name=name, uid=uid, full_name=row.take("description")) or {"name": "unknown"}
    activity = row.changed(1, 6, 0)
    if not activity:
        columns = {"user": user, "message": f"account {name}"}
        return Found(USER_INVENTORY, COLLECT if row.action == SNAPSHOT else LOG, columns)
    message = f"account {name} {'created' if activity == 1 else 'deleted'}"
    return Found(ACCOUNT, activity, {"user": user, "status_id": SUCCESS, "message": message})


def group(row: Row) -> Found:
    """groups."""
    name, gid = row.take("groupname"), row.take("gid")
    activity = row.changed(6, 5, OTHER)
    return Found(
        GROUP,
        activity,
        {
            "group": kept(name=name, uid=gid),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"group {name} {row.action}",
        },
    )


def membership(row: Row) -> Found:
    """user_groups."""
    uid, gid = row.take("uid"), row.take("gid")
    activity = row.changed(3, 4, OTHER)
    name, of = row.take("username"), row.take("groupname")
    return Found(
        GROUP,
        activity,
        {
            "group": kept(uid=gid, name=of),
            "user": kept(uid=uid, name=name),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"user {name or uid} in group {of or gid}: {row.action}",
        },
    )


def job(row: Row) -> Found:
    """crontab, launchd, scheduled_tasks, startup_items and systemd_units."""
    line = row.take("command", "program_arguments", "args", "program", "action", "exec_start")
    if row.has("program_arguments") or row.has("program"):
        line = line or row.take("program")
    name = row.take("label", "name", "id") or line or row.columns.get("path") or "unknown"
    path = row.columns.get("path") or row.columns.get("fragment_path")
    activity = row.changed(1, 3, OTHER)
    file = (
        {"path": path, "name": basename(path) or path, "type_id": 0}
        if type(path) is str and path
        else None
    )
    return Found(
        JOB,
        activity,
        {
            "job": kept(name=str(name), cmd_line=line, desc=row.take("description")),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"job {row.action}: {line or name}",
        },
        {"job": {"file": file}} if file else {},
    )


def module(row: Row) -> Found:
    """kernel_modules, kernel_extensions, drivers."""
    name = row.take("name", "device_name", "service") or "unknown"
    path = row.take("path", "image")
    file = kept(name=name, path=path, version=row.take("version")) | {"type_id": 1}
    activity = row.changed(1, 2, OTHER)
    return Found(
        KERNEL_EXTENSION,
        activity,
        {
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"kernel module {name} {row.action}",
        },
        {"driver": {"file": file}, "actor": {"invoked_by": "unknown"}},
    )


def software(row: Row) -> Found:
    """deb_packages, rpm_packages, programs, apps, extensions of browsers and languages."""
    name = row.take("name", "bundle_name", "display_name") or "unknown"
    version = row.take("version", "bundle_short_version", "bundle_version") or "unknown"
    package = kept(
        name=name,
        version=version,
        architecture=row.take("arch"),
        release=row.take("release"),
        vendor_name=row.take("vendor", "publisher", "maintainer", "author"),
    )
    return Found(
        SOFTWARE,
        COLLECT if row.action == SNAPSHOT else LOG,
        {"message": f"software {name} {version} {row.action}"},
        {"package": package},
    )


def script(row: Row) -> Found:
    """powershell_events."""
    text = row.take("script_text") or ""
    return Found(
        SCRIPT,
        1,
        {
            "script": kept(
                content=text,
                uid=row.take("script_block_id"),
                name=row.take("script_name"),
                path=row.take("script_path"),
                type_id=2,
            ),
            "message": f"PowerShell: {text[:200]}",
        },
        {"actor": {"invoked_by": "unknown"}},
    )


def history(row: Row) -> Found:
    """shell_history."""
    line, uid = row.take("command"), row.take("uid")
    name = row.take("username")
    user = kept(uid=uid, name=name) or None
    # The history does not keep the process; the line in it identifies it.
    process = kept(cmd_line=line, user=user) | {"uid": f"{uid or ''}:{line or ''}"[:256]}
    columns: dict[str, Any] = {"process": process, "activity_name": "Shell History"}
    columns["actor"] = {"user": user} if user else {"invoked_by": "shell"}
    return Found(PROCESS, OTHER, columns | {"message": f"shell history: {line}"})


def yara(row: Row) -> Found:
    """yara and yara_events: rules that a file matched."""
    matches, path = row.take("matches"), row.take("target_path", "path")
    return Found(
        FINDING,
        1,
        {
            "severity_id": MEDIUM,
            "file": {"path": path, "type_id": 0} if path else None,
            "finding_info": {
                "uid": f"{path or ''}:{matches or ''}"[:512],
                "title": f"YARA match: {matches or 'unknown'}",
                "types": ["YARA"],
            },
            "message": f"YARA {matches} matched {path}",
        },
    )


def peripheral(row: Row) -> Found:
    """usb_devices and hardware_events."""
    name = row.take("model", "name") or "unknown"
    about = kept(
        name=name,
        vendor_name=row.take("vendor"),
        serial_number=row.take("serial"),
        uid=row.take("path"),
    )
    activity = row.changed(1, 2, OTHER)
    return Found(
        PERIPHERAL,
        activity,
        {
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"device {name} {row.action}",
        },
        {"peripheral_device": about, "actor": {"invoked_by": "unknown"}},
    )


def dns(row: Row) -> Found:
    """dns_lookup_events and dns_cache."""
    name = row.take("query", "hostname", "domain", "name")
    kind = row.take("query_type", "type")
    process = _process(row)
    return Found(
        DNS,
        1,
        {
            "query": kept(hostname=name, type=kind) if name else None,
            "actor": {"process": process} if process else None,
            "message": f"query of {name}",
        },
    )


def inventory(row: Row) -> Found:
    """Any other table: a fact about the machine."""
    hardware = mac(row.columns.get("mac"))
    columns: dict[str, Any] = {"message": f"{row.query}: {row.action}"}
    if hardware:
        columns["mac"] = hardware
    return Found(INVENTORY, COLLECT if row.action == SNAPSHOT else LOG, columns)


def status_line(row: Row) -> Found:
    """A line of osquery's own log, and of tables that hold logs."""
    return Found(BASE, 0, {"message": row.take("message") or ""})


Reader = Callable[[Row], Found]


def reader_of(row: Row) -> Reader:
    """What reads the table that a row is of."""
    for holds, reader in _TABLES:
        if holds(row):
            return reader
    return inventory


_SOFTWARE = (
    *("package", "programs", "apps", "software", "extensions", "addons", "plugins", "homebrew"),
    *("patches", "python_", "npm_", "portage", "chocolatey"),
)
_TABLES: tuple[tuple[Callable[[Row], bool], Reader], ...] = (
    (lambda row: row.has("matches") and row.asked("yara"), yara),
    (lambda row: row.has("script_text"), script),
    (lambda row: row.asked("dns_lookup", "dns_events", "dns_cache"), dns),
    (lambda row: row.has("command", "history_file") or row.asked("shell_history"), history),
    (
        lambda row: (
            row.has("remote_address")
            and (row.asked("socket_events") or row.has("action") or row.has("syscall"))
        ),
        socket_event,
    ),
    (lambda row: row.has("remote_address") or row.has("local_port"), open_socket),
    (lambda row: row.has("port") and (row.has("address") or row.asked("listening")), listening),
    (
        lambda row: (
            row.has("target_path")
            or (
                row.asked("file_events", "ntfs_journal")
                and (row.has("path") or row.has("filename"))
            )
        ),
        file_event,
    ),
    (lambda row: row.asked("user_events") and row.has("type"), user_event),
    (
        lambda row: (
            row.has("tty", "host")
            or (row.asked("logged_in", "last") and (row.has("user") or row.has("username")))
        ),
        login,
    ),
    (
        lambda row: (
            (row.has("minute", "command") or row.has("crontab"))
            or (row.asked("crontab", "launchd", "scheduled_task", "startup_item", "systemd_unit"))
            or row.has("program_arguments")
        ),
        job,
    ),
    (
        lambda row: row.asked("kernel_module", "kernel_extension", "drivers", "kextstat"),
        module,
    ),
    (lambda row: row.asked("usb_device", "hardware_event"), peripheral),
    (
        lambda row: (
            row.has("pid")
            and (row.asked("process_event", "exec") or row.has("auid"))
            and (row.has("path") or row.has("cmdline"))
        ),
        process_event,
    ),
    (lambda row: row.has("uid", "gid") and row.has("username", "directory"), account),
    (lambda row: row.has("gid", "groupname") and not row.has("uid"), group),
    (lambda row: row.has("uid", "gid") and row.asked("user_groups", "group_member"), membership),
    (lambda row: row.has("username", "uid") and row.asked("users", "account"), account),
    (
        lambda row: (
            row.has("pid")
            and (row.has("path") or row.has("cmdline") or row.has("name"))
            and not row.asked("osquery_info", "os_version")
        ),
        process_seen,
    ),
    (
        lambda row: (
            (row.has("name", "version") or row.has("bundle_name")) and row.asked(*_SOFTWARE)
        ),
        software,
    ),
)
