"""Rows of osquery's tables as OCSF events (https://osquery.io/schema/).

A scheduled query may have any name and select what it likes, so a table is told by its columns,
and by the name of the query where columns do not suffice. Every value comes as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.parsing.field_lookup import port, whole
from ingest.parsing.ocsf import FAILURE, FILE, NETWORK, OTHER, PROCESS, SUCCESS, address, kept
from ingest.sources.linux.audit_event import UNSET

_LOG, _COLLECT = 1, 2
ADDED, REMOVED, SNAPSHOT = "added", "removed", "snapshot"


class TableRow(NamedTuple):
    """What a row is: class, activity, the columns of its event, and `more` of them."""

    class_uid: int
    activity: int
    columns: dict[str, Any]
    more: Mapping[str, Any] = MappingProxyType({})


class OsqueryRow:
    """One row: the columns of the table not used yet, and what happened to it."""

    def __init__(self, columns: dict[str, Any], action: str, query: str, first: bool) -> None:
        self.columns, self.action, self.query = columns, action, query.lower()
        self.first = first

    def take(self, *names: str) -> str | None:
        """The first of the columns that says something, taken out."""
        for name in names:
            value = self.columns.get(name)
            # By type, not `isinstance`: a bool is an int in Python, and no path or name.
            if type(value) in (str, int) and value != "":
                del self.columns[name]
                return str(value)
        return None

    def number(self, *names: str) -> int | None:
        """The first of the columns that is a whole number, taken out."""
        for name in names:
            whole_number = whole(self.columns.get(name))
            if whole_number is not None:
                del self.columns[name]
                return whole_number
        return None

    def endpoint(self, ip: str, number: str) -> dict[str, Any] | None:
        """An address with its port, taken out."""
        spelled = self.columns.get(ip)
        ip_address = address(spelled) if type(spelled) is str else None
        if ip_address:
            del self.columns[ip]
        position = port(self.columns.get(number))
        if position is not None:
            del self.columns[number]
        return kept(ip=ip_address, port=position) or None

    def has(self, *names: str) -> bool:
        """Whether it has all these columns."""
        return all(name in self.columns for name in names)

    def asked(self, *words: str) -> bool:
        """Whether the query's name has one of these words."""
        return any(word in self.query for word in words)

    def changed(self, added: int, removed: int, seen: int = 0) -> int:
        """The activity of a change; `seen` where the row was only found to be there."""
        # The first answer says `added` of all that is there.
        if self.action == ADDED and not self.first:
            return added
        return removed if self.action == REMOVED else seen


def of_process(row: OsqueryRow) -> dict[str, Any]:
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


def _actor(row: OsqueryRow, process: dict[str, Any]) -> dict[str, Any] | None:
    # Who logged in stays the same through su and sudo (auid of the audit system).
    login = row.take("auid")
    user = {"uid": login} if login and login not in UNSET else process.get("user")
    parent = process.get("parent")
    return kept(user=user, process=parent) or None


def process_event(row: OsqueryRow) -> TableRow:
    """process_events, es_process_events, bpf_process_events."""
    process = of_process(row)
    kind = (row.take("event_type", "syscall") or "exec").lower()
    activity = 2 if kind in ("exit", "exit_group") else 1
    code = row.columns.get("status")
    failed = type(code) is str and code not in ("", "0") and code.isdecimal() and "audit" in kind
    return TableRow(
        PROCESS,
        activity,
        {
            "process": process,
            "actor": _actor(row, process),
            "status_id": FAILURE if failed else SUCCESS,
            "message": f"{kind}: {process.get('cmd_line') or process.get('path') or ''}".strip(),
        },
    )


def process_seen(row: OsqueryRow) -> TableRow:
    """processes, and queries that join it."""
    process = of_process(row)
    activity = row.changed(1, 2, OTHER)
    name = None if activity != OTHER else "Seen"
    line = process.get("cmd_line") or process.get("path") or process.get("name") or ""
    columns = {"process": process, "actor": _actor(row, process), "activity_name": name}
    return TableRow(PROCESS, activity, columns | {"message": f"process {row.action}: {line}"})


_CALLS: Mapping[str, int] = MappingProxyType({"connect": 1, "accept": 1, "accept4": 1, "bind": 7})


def _connection(row: OsqueryRow, incoming: bool | None) -> dict[str, Any]:
    written = row.columns.get("protocol")
    protocol = {"6": "tcp", "17": "udp", "1": "icmp"}.get(str(written))
    number = whole(row.columns.get("protocol")) if protocol else None
    if protocol:
        row.columns.pop("protocol", None)
    direction = {None: (0, "Unknown"), True: (1, "Inbound"), False: (2, "Outbound")}[incoming]
    return kept(
        protocol_name=protocol,
        protocol_num=number,
        direction_id=direction[0],
        direction=direction[1],
    )


def socket_event(row: OsqueryRow) -> TableRow:
    """socket_events and bpf_socket_events."""
    call = str(row.columns.get("action") or row.columns.get("syscall") or "connect").lower()
    # `bind` has no direction: nobody has called yet.
    incoming = call.startswith("accept") if call in _CALLS and call != "bind" else None
    here = row.endpoint("local_address", "local_port")
    there = row.endpoint("remote_address", "remote_port")
    connection = _connection(row, incoming)
    process = of_process(row)
    done = {"succeeded": SUCCESS, "1": SUCCESS, "failed": FAILURE, "0": FAILURE}
    # `local` is this host whichever way it went: of what it accepted it is the destination.
    ends = (there, here) if incoming else (here, there)
    where = f"{(there or {}).get('ip', '')}:{(there or {}).get('port', '')}"
    return TableRow(
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


def _by(row: OsqueryRow, process: dict[str, Any]) -> dict[str, Any] | None:
    login = row.take("auid")
    user = {"uid": login} if login and login not in UNSET else process.get("user")
    return kept(user=user, process=process or None) or None


def open_socket(row: OsqueryRow) -> TableRow:
    """process_open_sockets."""
    here = row.endpoint("local_address", "local_port")
    there = row.endpoint("remote_address", "remote_port")
    connection = _connection(row, None)
    process = of_process(row)
    return TableRow(
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


def listening(row: OsqueryRow) -> TableRow:
    """listening_ports."""
    here = row.endpoint("address", "port")
    connection = _connection(row, None)
    process = of_process(row)
    return TableRow(
        NETWORK,
        row.changed(7, 2, 7),
        {
            "src_endpoint": here,
            "connection_info": connection,
            "actor": _by(row, process),
            "message": f"listening port {row.action}: {(here or {}).get('port', '')}",
        },
    )


# The same deeds in the words of inotify's table, of macOS' Endpoint Security and of the NTFS
# journal.
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


def file_event(row: OsqueryRow) -> TableRow:
    """file_events, process_file_events, es_process_file_events and ntfs_journal_events."""
    done = str(row.columns.get("action") or row.columns.get("operation") or "")
    if "event_type" in row.columns and not done:
        done = str(row.columns["event_type"])
    # Where a file was moved to comes first: there it is now.
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
    return TableRow(
        FILE,
        _FILE_ACTIONS.get(done.lower(), OTHER if done else 0),
        {
            "file": kept(**file),
            # OCSF requires an actor of a file's event, and something in it.
            "actor": {"process": process} if process else {"invoked_by": "unknown"},
            "activity_name": done.capitalize()
            if done and done.lower() not in _FILE_ACTIONS
            else None,
            "message": f"file {done.lower() or row.action}: {path}",
        },
        owner,
    )
