"""Records of Microsoft's auoms, which joins those of the audit system itself and passes them
on through syslog (https://github.com/microsoft/OMS-Auditd-Plugin).

It writes numbers with the names they stand for, `user=tomcat uid=1001`, and the command line
last and as it is, so that what looks like a field in it is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context
from ingest.sources.linux.audit_record import Part, read_part

AUOMS = re.compile(r"type=AUOMS_\w{1,40} audit\(", re.ASCII)
_TITLED = re.compile(r" (?:proctitle|cmdline)=", re.ASCII)
_ENDED = " redactors="
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "audit_user": "AUID",
        "user": "UID",
        "effective_user": "EUID",
        "set_user": "SUID",
        "filesystem_user": "FSUID",
        "group": "GID",
        "effective_group": "EGID",
        "set_group": "SGID",
        "filesystem_group": "FSGID",
    }
)
_OF_PATH = ("name", "nametype", "mode", "ouid", "ogid", "inode", "dev", "rdev")
_OF_CALL = frozenset({"syscall", "arch"})


def read_auoms(text: str, context: Context) -> list[Part]:
    """The records that auoms joined to one line. Raises `Unreadable`."""
    begin = _TITLED.search(text)
    titles: dict[str, str] = {}
    if begin:
        end = text.rfind(_ENDED)
        end = end if end >= begin.end() else len(text)
        titles = {begin[0].strip(" ="): text[begin.end() : end]}
        text = text[: begin.start()] + text[end:]
    zone: ZoneInfo = context.zone(context.host)
    whole = read_part(text, zone, context.record.received_at)
    fields = whole.fields
    whole.node = whole.node or fields.pop("node", None)
    for name, enriched in _NAMES.items():
        if name in fields:
            whole.names[enriched] = fields.pop(name)
    kind = whole.type
    parts = [whole]
    if fields.keys() >= _OF_CALL:
        whole.type = "SYSCALL"
        fields["auoms_type"] = kind
    path = {name: fields.pop(name) for name in _OF_PATH if name in fields}
    if path:
        parts.append(_part("PATH", whole, path))
    if "cwd" in fields:
        parts.append(_part("CWD", whole, {"cwd": fields.pop("cwd")}))
    if "saddr" in fields:
        parts.append(_part("SOCKADDR", whole, {"saddr": fields.pop("saddr")}))
    for name, value in titles.items():
        line = value.strip()
        if len(line) > 1 and line[0] == line[-1] == '"':
            line = line[1:-1]
        if name == "cmdline":
            parts.append(_part("EXECVE", whole, {"a0": line}))
        elif line:
            parts.append(_part("PROCTITLE", whole, {"proctitle": line}))
    return parts


def _part(kind: str, whole: Part, fields: dict[str, str]) -> Part:
    return Part(kind, whole.node, whole.stamp, whole.key, fields)
