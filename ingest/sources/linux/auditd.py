"""auditd: the records of the Linux audit system, those of one event joined.

A record comes as a line of auditd's log, raw or enriched (auditd.conf(5)), as `ausearch -i`
prints it, or through syslog: from the daemon's plugin (audispd, audisp-syslog), the kernel,
journald, or Microsoft's auoms, which joins the records itself. Several lines in one raw record
are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import ACTION, DISPOSITION, FAILURE, STATUS
from ingest.parsing.source import Context, Event, JoiningSource, Record, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, not_utf8
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import EPOCH, Stamp
from ingest.sources.linux.audit_event import PRODUCT, Audit
from ingest.sources.linux.audit_kernel import refused
from ingest.sources.linux.audit_record import HEADER, Part, read_journal, read_part
from ingest.sources.linux.audit_syscalls import of_syscall
from ingest.sources.linux.audit_user import of_user
from ingest.sources.linux.auoms import AUOMS, read_auoms

SERIAL = re.compile(rb"audit\([0-9./: ]{1,40}?:\d{1,20}\)")
_KERNEL = re.compile(
    r"(?:\[ *\d+\.\d+\] ?)?(?:audit: )?(?=(?:node=\S{1,256} )?(?:type=\w|(?:msg=)?audit\())",
    re.ASCII,
)
_SKIPPED = re.compile(r"-{4}|time->.*", re.ASCII)
_EPOCH_TIME = re.compile(rb"(audit\()(\d{1,11})(?:\.(\d{1,9}))?(:\d{1,20}\))")
# Records that only describe others; they name an event where nothing else has come.
_BESIDES = frozenset({"PROCTITLE", "CWD", "PATH", "SOCKADDR", "EXECVE", "OBJ_PID", "MMAP", "EOE"})


class Auditd(JoiningSource):
    """Records of the Linux audit system."""

    name = "auditd"
    programs = frozenset(
        {"auditd", "audispd", "audisp-syslog", "audisp-remote", "audit", "kernel", "auoms"}
    )
    product: Mapping[str, str] = PRODUCT

    def part_of(self, record: Record, context: Context) -> str | None:
        """Node, time and serial number of a record; None for several in one."""
        raw = record.raw
        # The serial stands in the head of a line; a user's text behind may hold a forged one.
        match = SERIAL.search(raw[:2048])
        if match is None or b"\n" in raw.rstrip(b"\r\n") or b"AUOMS_" in raw[:256]:
            return None
        node = re.match(rb"node=(\S{1,256}) ", raw)
        # Serial numbers begin anew on each machine, so the sender belongs to the key.
        host = syslog.read_syslog(raw, context).host if raw[:1] == b"<" else None
        return f"{node[1].decode('utf-8', 'replace') if node else host or ''}:{match[0].decode()}"

    def join(self, parts: Sequence[Record], context: Context) -> list[Event]:
        """The events of lines: of each serial number one, whatever order they came in."""
        event_list: list[Event] = []
        joined: dict[str, list[tuple[Part, Line | None]]] = {}
        for text in _lines(parts):
            try:
                self._add(joined, event_list, text, context)
            except Unreadable as why:
                event_list.append({"dead_letter_reason": str(why)})
        events = [_event(these, context) for these in joined.values()]
        if not events and all("dead_letter_reason" in event for event in event_list):
            raise Unreadable(
                event_list[0]["dead_letter_reason"] if event_list else "the record is empty"
            )
        return events + event_list

    def _add(
        self,
        joined: dict[str, list[tuple[Part, Line | None]]],
        events_so_far: list[Event],
        text: str,
        context: Context,
    ) -> None:
        # auoms has joined the records already, so its line is an event of its own.
        if AUOMS.match(text):
            events_so_far.append(_joined(text, None, context))
            return
        if HEADER.fullmatch(text):
            self._part(joined, text, None, context)
            return
        try:
            line = syslog.read_text(text, context)
        except Unreadable:
            raise Unreadable(
                f"no 'msg=audit(time:serial):' in the line, but '{text[:40]}'"
            ) from None
        events = self.known(line, context) if not _kernel_text(line) else None
        if events is not None:
            events_so_far += events
        elif _kernel_text(line):
            self._part(joined, _bare(line.text), line, context)
        else:
            events_so_far.append(syslog.counted(syslog.base_event(line, PRODUCT), line))

    def _part(
        self,
        joined: dict[str, list[tuple[Part, Line | None]]],
        text: str,
        line: Line | None,
        context: Context,
    ) -> None:
        part = read_part(text, context.zone(context.host), context.record.received_at)
        host = part.node or (line.host if line else None) or ""
        joined.setdefault(f"{host}:{part.key}", []).append((part, line))

    def part_of_line(self, line: Line) -> str | None:
        """Host, time and serial number of a record that came through syslog."""
        fullmatch = HEADER.fullmatch(_bare(line.text)) if _kernel_text(line) else None
        return (
            f"{fullmatch['node'] or line.host or ''}:{fullmatch['time']}:{fullmatch['serial']}"
            if fullmatch
            else None
        )

    def of_lines(self, lines: Sequence[Line], context: Context) -> list[Event]:
        """The events of lines of syslog that are parts of one."""
        joined: dict[str, list[tuple[Part, Line | None]]] = {}
        for line in lines:
            self._part(joined, _bare(line.text), line, context)
        return [_event(these, context) for these in joined.values()]

    def read(self, line: Line, context: Context) -> Event:
        """The event of one line of syslog."""
        events = self.known(line, context)
        return events[0] if events else syslog.base_event(line, PRODUCT)

    def known(self, line: Line, context: Context) -> list[Event] | None:
        """The events of one line of syslog; None where it is no record of the audit system."""
        if self.programs.isdisjoint(syslog.names_of(line.program)):
            return None
        if AUOMS.match(line.text):
            return [_joined(line.text, line, context)]
        if _kernel_text(line):
            return self.of_lines([line], context)
        part = read_journal(line.text) if line.program in ("audit", "kernel") else None
        return [_event([(part, line)], context)] if part else None

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        since = when - EPOCH
        seconds = since.days * 86400 + since.seconds

        def moved(match: re.Match[bytes]) -> bytes:
            digits = len(match[3] or b"")
            rest = f".{since.microseconds:06d}000"[: digits + 1] if digits else ""
            return match[1] + f"{seconds}{rest}".encode() + match[4]

        # Only the first: a user's text may hold one as well, and must stay as it is.
        changed, times = _EPOCH_TIME.subn(moved, raw, count=1)
        if not times:
            raise Unreadable("no 'audit(seconds:serial)' in the record")
        if raw[:5] in (b"type=", b"node="):
            return changed
        return syslog.restamp(changed, when, zone)


def _lines(parts: Sequence[Record]) -> Iterable[str]:
    if sum(len(part.raw) for part in parts) > FILE_BYTES:
        raise Unreadable(f"the records have more than {FILE_BYTES} bytes")
    for part in parts:
        if not part.raw.strip():
            raise Unreadable("the record is empty")
        for raw in part.raw.split(b"\n"):
            if not raw.strip():
                continue
            try:
                text = raw.decode().rstrip("\r")
            except UnicodeDecodeError:
                raise Unreadable(not_utf8(raw)) from None
            # A NUL would end the text for readers written in C, and hide what follows.
            if "\x00" in text:
                raise Unreadable(f"a NUL at byte {raw.index(0)}")
            # ausearch puts a rule of dashes and the time between events.
            if not _SKIPPED.fullmatch(text):
                yield text


def _kernel_text(line: Line) -> bool:
    return _KERNEL.match(line.text) is not None and AUOMS.match(line.text) is None


def _bare(text: str) -> str:
    match = _KERNEL.match(text)
    return text[match.end() :] if match else text


def _event(these: Sequence[tuple[Part, Line | None]], context: Context) -> Event:
    """The event of records of one serial number."""
    parts = [part for part, _ in these]
    line = next((line for _, line in these if line is not None), None)
    first = parts[0]
    stamp = first.stamp or (line.stamp if line else None)
    host = first.node or (line.host if line else None) or context.host
    framing: dict[str, Any] = dict(line.rest) if line else {}
    if line and line.program not in (None, "kernel", "audit"):
        framing["program"] = line.program
    missing = Stamp.missing(context.record.received_at, None)
    audit = Audit(parts, stamp or missing, host, first.key, framing)
    main = _main(parts)
    event = of_syscall(audit, main) if main.type == "SYSCALL" else of_user(audit, main)
    return _judged(event, audit) if main.type == "SYSCALL" else event


def _joined(text: str, line: Line | None, context: Context) -> Event:
    """The event of a line in which auoms has joined the records."""
    return _event([(part, line) for part in read_auoms(text, context)], context)


def _main(parts: Sequence[Part]) -> Part:
    # An anomaly is what the event is about, even where a system call stands beside it.
    odd = next((part for part in parts if part.type.startswith("ANOM_")), None)
    if odd is not None:
        return odd
    for part in parts:
        if part.type == "SYSCALL":
            return part
    bearing = [part for part in parts if part.type not in _BESIDES]
    order = {"EXECVE": 0, "SOCKADDR": 1, "PATH": 2, "PROCTITLE": 3}
    return bearing[0] if bearing else min(parts, key=lambda part: order.get(part.type, 9))


def _judged(event: Event, audit: Audit) -> Event:
    """`event`, with what a security module decided on the call."""
    avc = audit.of("AVC", "SELINUX_ERR", "APPARMOR_DENIED", "APPARMOR_ALLOWED")
    verdict = refused(avc) if avc else None
    if verdict:
        action, disposition, denied = verdict
        event["action_id"], event["action"] = action, ACTION[action]
        event["disposition_id"], event["disposition"] = disposition, DISPOSITION[disposition]
        if denied and event.get("status_id") is None:
            event["status_id"], event["status"] = FAILURE, STATUS[FAILURE]
    return event


AUDITD = Auditd()
SOURCES = (AUDITD,)
