"""One record of the Linux audit system: its type, its serial number and its fields.

Formats: auditd's log, raw and enriched, with or without `node=`; the kernel's own lines in
syslog; what `ausearch -i` prints (https://github.com/linux-audit/audit-documentation,
auditd.conf(5), ausearch(8)). What users choose, such as a file's name, the kernel writes in
quotes only where it holds neither blank nor quote, else in hexadecimal: so a field is what
stands first under its name, and whatever stands behind cannot replace it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from ingest.parsing.source import Unreadable
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_parts
from ingest.sources.linux.audit_names import TYPES

ENRICHMENT = "\x1d"
HEADER = re.compile(
    r"(?:node=(?P<node>\S{1,256}) )?(?:type=(?P<type>[A-Za-z0-9_]{1,64}(?:\[\d{1,9}\])?) )?"
    r"(?:msg=)?audit\((?P<time>[0-9./: ]{1,40}?):(?P<serial>\d{1,20})\) ?: ?(?P<body>.*)",
    re.ASCII | re.DOTALL,
)
JOURNAL = re.compile(r"(?P<type>[A-Z][A-Z0-9_]{2,40}) (?P<body>(?:[a-z]|\S+=).*)", re.ASCII)
"""How journald passes records on: without a time of their own."""
_EPOCH = re.compile(r"\d{1,11}(?:\.\d{1,9})?", re.ASCII)
_DATED = re.compile(r"(\d\d)/(\d\d)/(\d{4}|\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)", re.ASCII)
_TOKEN = re.compile(
    r"\(?(?P<name>[A-Za-z0-9_.\[\]-]{1,64})="
    r"(?P<value>\"[^\"]*\"|\{[^{}]*\}|\[[^\[\]]*\]|\([^()\s]*\)|'[^']*'|"
    # Some shippers drop the separator before what enrichment added.
    r"[^\s'\"]*?(?=(?:SADDR|ARCH|A?UID|OUID)=|[\s'\"]|\Z))|(?P<word>\S+)",
    re.ASCII,
)
# Until RHEL 6: `old auid=700 new auid=701`.
_OLD_LOGIN = re.compile(r"\b(old|new) (auid|ses)=")
_HEX = re.compile(r"(?:[0-9A-F]{2})+", re.ASCII)
_AVC = re.compile(r"avc: {1,2}(denied|granted) {1,2}\{ ?([^{}]*?) ?\} (?:for )?", re.ASCII)
_ARGUMENT = re.compile(r"a\d{1,6}(?:\[\d{1,6}\])?", re.ASCII)
ENCODED = frozenset(
    {
        *("acct", "cmd", "comm", "exe", "cwd", "name", "path", "proctitle", "data", "key", "dir"),
        *("file", "grp", "new_group", "vm", "sw", "watch", "ocomm", "device", "cgroup", "root_dir"),
        *("profile", "srcname", "target", "info", "peer_profile", "old-log_passwd", "containerid"),
    }
)
"""Fields that are written in hexadecimal where their value is not plain."""
_NAMED = frozenset(
    {
        *("ARCH", "SYSCALL", "AUID", "UID", "GID", "EUID", "SUID", "FSUID", "EGID", "SGID"),
        *("FSGID", "OUID", "OGID", "SADDR", "ID", "OAUID", "OLD-AUID", "IUID", "INODE_UID"),
        *("INODE_GID", "OBJ_UID", "OBJ_GID", "OLD_AUID", "SAUID", "NEW_GID", "EXIT"),
    }
)
"""What an enriched log adds: the names behind the numbers."""
_WORDY = frozenset({"op", "proctitle", "cmd", "data", "exit", "reason", "info"})
_NOTHING = frozenset({"?", "(null)", "(none)", "(unset)", ""})


@dataclass
class Part:
    """One record. `inner` are the fields a program sent, `names` what enrichment added."""

    type: str
    node: str | None
    stamp: Stamp | None
    key: str | None
    fields: dict[str, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def take(self, name: str) -> str | None:
        """The field `name`, taken out; a program's own where the kernel gives none."""
        value = self.fields.pop(name, None)
        return self.inner.pop(name, None) if value is None else value

    def rest(self) -> dict[str, str]:
        """What has not been taken."""
        rest = dict(self.fields)
        for name, value in self.inner.items():
            rest[name if name not in rest else f"msg.{name}"] = value
        return rest


def read_part(text: str, zone: ZoneInfo, received_at: datetime) -> Part:
    """The record that a line is. Raises `Unreadable`."""
    match = HEADER.fullmatch(text)
    if match is None:
        raise Unreadable(f"no 'msg=audit(time:serial):' in the line, but '{text[:40]}'")
    kind = match["type"] or "UNKNOWN"
    part = Part(
        TYPES.get(kind.removeprefix("UNKNOWN[").removesuffix("]"), kind),
        match["node"],
        _stamp(match["time"], zone, received_at),
        f"{match['time']}:{match['serial']}",
    )
    _fill(part, match["body"])
    return part


def _stamp(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    if _EPOCH.fullmatch(text):
        return stamp_epoch(text, received_at)
    dated = _DATED.fullmatch(text)
    if dated is None:
        return Stamp.missing(received_at, text)
    month, day, year, clock = dated.groups()
    number = int(year) if len(year) == 4 else 2000 + int(year)
    return stamp_parts(number, int(month), int(day), clock, zone, received_at, original=text)


def read_journal(text: str) -> Part | None:
    """The record in a line of journald's, which has no serial number; None: it is none."""
    match = JOURNAL.fullmatch(text)
    if match is None:
        return None
    part = Part(match["type"], None, None, None)
    _fill(part, match["body"])
    return part


def _fill(part: Part, body: str) -> None:
    # The last separator: auditd adds its names behind everything that a user can choose.
    body, separator, added = body.rpartition(ENRICHMENT)
    if not separator:
        body, added = added, ""
    # What a program sent is quoted by the kernel; its fields must not pass for the kernel's own.
    begin = body.find("msg='")
    if (begin > 0 and body[begin - 1] == " ") or begin == 0:
        # The last quote, as a program may put quotes into its own text.
        end = body.rfind("'")
        end = end if end > begin + 4 else len(body)
        _fields(part, part.inner, body[begin + 5 : end])
        _fields(part, part.fields, f"{body[:begin]} {body[end + 1 :]}")
    else:
        _fields(part, part.fields, body)
    for name, value in _pairs(added):
        part.names.setdefault(name, value.strip('"'))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        if match["name"]:
            yield match["name"], match["value"]


def _fields(part: Part, into: dict[str, str], body: str) -> None:
    # AVC has words in braces instead of fields; bounded, as a body may be long.
    avc = _AVC.search(body[:4096])
    if avc:
        into["seresult"], into["seperms"] = avc[1], avc[2]
        body = body[: avc.start()] + body[avc.end() :]
    if part.type == "LOGIN":
        body = _OLD_LOGIN.sub(lambda m: f"{'old-' if m[1] == 'old' else ''}{m[2]}=", body)
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    words: list[str] = []
    for match in _TOKEN.finditer(body):
        name, value = match["name"], match["value"]
        if name is None:
            # `ausearch -i` writes some values with blanks and without quotes.
            (last or words).append(match["word"])
        elif name in _NAMED:
            part.names.setdefault(name, value.strip('"'))
        else:
            plain = _plain(part.type, name, value)
            # What stands twice is kept, but the first holds.
            position = name if name not in fields else f"{name}'"
            if plain is not None:
                fields.setdefault(position, []).append(plain)
            last = fields[position] if name in _WORDY and plain is not None else []
    into.update((name, " ".join(values)) for name, values in fields.items())
    loose = [word for word in words if word not in (":", "(", ")")]
    if loose:
        into["text"] = " ".join(loose)


def _plain(kind: str, name: str, value: str) -> str | None:
    # In quotes nothing is encoded, even where it looks like hexadecimal.
    if value[:1] == '"' and value[-1:] == '"' and len(value) > 1:
        return value[1:-1]
    if value[:1] != "{" and value[:1] != "(":
        value = value.rstrip(",)")
    if value in _NOTHING:
        return None
    # Only of EXECVE: in SYSCALL `a0` to `a3` are registers, hexadecimal without being text.
    argument = kind == "EXECVE" and _ARGUMENT.fullmatch(name)
    if (argument or name in ENCODED) and _HEX.fullmatch(value):
        return bytes.fromhex(value).decode("utf-8", "replace")
    return value
