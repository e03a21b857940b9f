"""osquery's tables of what a machine is like: logins, accounts, jobs, modules, software; and how
a row's table is told.
"""

from __future__ import annotations

from collections.abc import Callable
from posixpath import basename
from typing import Any

from ingest.parsing.field_lookup import mac
from ingest.parsing.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    DNS,
    FAILURE,
    FINDING,
    GROUP,
    INVENTORY,
    JOB,
    KERNEL_EXTENSION,
    MEDIUM,
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
from ingest.sources.linux.audit_event import UNSET
from ingest.sources.linux.audit_names import TYPES
from ingest.sources.linux.audit_user import KINDS
from ingest.sources.osquery.tables import (
    SNAPSHOT,
    OsqueryRow,
    TableRow,
    file_event,
    listening,
    of_process,
    open_socket,
    process_event,
    process_seen,
    socket_event,
)

_LOG, _COLLECT = 1, 2


def login(row: OsqueryRow) -> TableRow:
    """logged_in_users and last."""
    name = row.take("user", "username")
    host = row.take("host")
    ip = address(host) if host else None
    terminal = row.take("tty")
    activity = row.changed(1, 2, 1)
    if str(row.columns.get("type")) == "8":  # `last`: DEAD_PROCESS
        activity = 2
    return TableRow(
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
        # OCSF requires a user of a login; in `more`, because the column must not name somebody.
        {} if name else {"user": {"name": "", "type_id": 0}},
    )


def user_event(row: OsqueryRow) -> TableRow:
    """user_events: what the audit system says of logins."""
    # `type` is the number of a record of the audit system (linux/audit.h).
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
    # The login's uid stays through `su` and `sudo`, so it is who did it; daemons have none, all
    # bits set.
    if login_uid in UNSET:
        login_uid = None
    user = kept(uid=login_uid or uid, name=row.take("username")) or None
    process = kept(
        pid=row.number("pid"), path=path, user={"uid": uid} if uid and login_uid else None
    )
    written = str(row.columns.get("message") or "")
    failed = "res=failed" in written or "res=0" in written
    return TableRow(
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


def _account(row: OsqueryRow) -> TableRow:
    """users."""
    name, uid = row.take("username"), row.take("uid")
    user = kept(name=name, uid=uid, full_name=row.take("description")) or {"name": "unknown"}
    activity = row.changed(1, 6, 0)
    if not activity:
        columns = {"user": user, "message": f"account {name}"}
        return TableRow(USER_INVENTORY, _COLLECT if row.action == SNAPSHOT else _LOG, columns)
    message = f"account {name} {'created' if activity == 1 else 'deleted'}"
    return TableRow(ACCOUNT, activity, {"user": user, "status_id": SUCCESS, "message": message})


def _group(row: OsqueryRow) -> TableRow:
    """groups."""
    name, gid = row.take("groupname"), row.take("gid")
    activity = row.changed(6, 5, OTHER)
    return TableRow(
        GROUP,
        activity,
        {
            "group": kept(name=name, uid=gid),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"group {name} {row.action}",
        },
    )


def membership(row: OsqueryRow) -> TableRow:
    """user_groups."""
    uid, gid = row.take("uid"), row.take("gid")
    activity = row.changed(3, 4, OTHER)
    name, of = row.take("username"), row.take("groupname")
    return TableRow(
        GROUP,
        activity,
        {
            "group": kept(uid=gid, name=of),
            "user": kept(uid=uid, name=name),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"user {name or uid} in group {of or gid}: {row.action}",
        },
    )


def job(row: OsqueryRow) -> TableRow:
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
    return TableRow(
        JOB,
        activity,
        {
            "job": kept(name=str(name), cmd_line=line, desc=row.take("description")),
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"job {row.action}: {line or name}",
        },
        {"job": {"file": file}} if file else {},
    )


def module(row: OsqueryRow) -> TableRow:
    """kernel_modules, kernel_extensions, drivers."""
    name = row.take("name", "device_name", "service") or "unknown"
    path = row.take("path", "image")
    file = kept(name=name, path=path, version=row.take("version")) | {"type_id": 1}
    activity = row.changed(1, 2, OTHER)
    return TableRow(
        KERNEL_EXTENSION,
        activity,
        {
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"kernel module {name} {row.action}",
        },
        {"driver": {"file": file}, "actor": {"invoked_by": "unknown"}},
    )


def _software(row: OsqueryRow) -> TableRow:
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
    return TableRow(
        SOFTWARE,
        _COLLECT if row.action == SNAPSHOT else _LOG,
        {"message": f"software {name} {version} {row.action}"},
        {"package": package},
    )


def _script(row: OsqueryRow) -> TableRow:
    """powershell_events."""
    text = row.take("script_text") or ""
    return TableRow(
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


def history(row: OsqueryRow) -> TableRow:
    """shell_history."""
    line, uid = row.take("command"), row.take("uid")
    name = row.take("username")
    user = kept(uid=uid, name=name) or None
    # The history does not keep the process; the line in it identifies it.
    process = kept(cmd_line=line, user=user) | {"uid": f"{uid or ''}:{line or ''}"[:256]}
    columns: dict[str, Any] = {"process": process, "activity_name": "Shell History"}
    columns["actor"] = {"user": user} if user else {"invoked_by": "shell"}
    return TableRow(PROCESS, OTHER, columns | {"message": f"shell history: {line}"})


def yara(row: OsqueryRow) -> TableRow:
    """yara and yara_events: rules that a file matched."""
    matches, path = row.take("matches"), row.take("target_path", "path")
    return TableRow(
        FINDING,
        1,
        {
            "severity_id": MEDIUM,
            "file": {"path": path, "type_id": 0} if path else None,
            "finding_info": {
                # The same rules on the same file are one finding, however often the query runs.
                "uid": f"{path or ''}:{matches or ''}"[:512],
                "title": f"YARA match: {matches or 'unknown'}",
                "types": ["YARA"],
            },
            "message": f"YARA {matches} matched {path}",
        },
    )


def peripheral(row: OsqueryRow) -> TableRow:
    """usb_devices and hardware_events."""
    name = row.take("model", "name") or "unknown"
    about = kept(
        name=name,
        vendor_name=row.take("vendor"),
        serial_number=row.take("serial"),
        uid=row.take("path"),
    )
    activity = row.changed(1, 2, OTHER)
    return TableRow(
        PERIPHERAL,
        activity,
        {
            "activity_name": "Seen" if activity == OTHER else None,
            "message": f"device {name} {row.action}",
        },
        {"peripheral_device": about, "actor": {"invoked_by": "unknown"}},
    )


def _dns(row: OsqueryRow) -> TableRow:
    """dns_lookup_events and dns_cache."""
    name = row.take("query", "hostname", "domain", "name")
    kind = row.take("query_type", "type")
    process = of_process(row)
    return TableRow(
        DNS,
        1,
        {
            "query": kept(hostname=name, type=kind) if name else None,
            "actor": {"process": process} if process else None,
            "message": f"query of {name}",
        },
    )


def _inventory(row: OsqueryRow) -> TableRow:
    """Any other table: a fact about the machine."""
    hardware = mac(row.columns.get("mac"))
    columns: dict[str, Any] = {"message": f"{row.query}: {row.action}"}
    if hardware:
        columns["mac"] = hardware
    return TableRow(INVENTORY, _COLLECT if row.action == SNAPSHOT else _LOG, columns)


_Reader = Callable[[OsqueryRow], TableRow]


def reader_of(row: OsqueryRow) -> _Reader:
    """What reads the table that a row is of."""
    for holds, reader in _TABLES:
        if holds(row):
            return reader
    return _inventory


_SOFTWARE = (
    *("package", "programs", "apps", "software", "extensions", "addons", "plugins", "homebrew"),
    *("patches", "python_", "npm_", "portage", "chocolatey"),
)
# The order decides: tables with few columns of their own stand behind those with many.
_TABLES: tuple[tuple[Callable[[OsqueryRow], bool], _Reader], ...] = (
    (lambda row: row.has("matches") and row.asked("yara"), yara),
    (lambda row: row.has("script_text"), _script),
    (lambda row: row.asked("dns_lookup", "dns_events", "dns_cache"), _dns),
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
    (lambda row: row.has("uid", "gid") and row.has("username", "directory"), _account),
    (lambda row: row.has("gid", "groupname") and not row.has("uid"), _group),
    (lambda row: row.has("uid", "gid") and row.asked("user_groups", "group_member"), membership),
    (lambda row: row.has("username", "uid") and row.asked("users", "account"), _account),
    (
        lambda row: (
            row.has("pid")
            and (row.has("path") or row.has("cmdline") or row.has("name"))
            # `osquery_info` has the pid of osquery itself, which nobody started just now.
            and not row.asked("osquery_info", "os_version")
        ),
        process_seen,
    ),
    (
        lambda row: (
            (row.has("name", "version") or row.has("bundle_name")) and row.asked(*_SOFTWARE)
        ),
        _software,
    ),
)
