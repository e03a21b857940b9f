"""Server programs that log through syslog or into a file of their own.

Such a program says the same words either way; only what stands before them differs. A
`Daemon` reads both framings, and hands the words to one reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import (
    A_COMMAND,
    A_HOST,
    A_MAC,
    A_MAIL,
    A_PATH,
    A_USER,
    AN_IP,
    AUTHENTICATION,
    BASE,
    CRITICAL,
    EMAIL,
    FAILURE,
    FATAL,
    FTP,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    NETWORK,
    RDP,
    SSH,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import FILE_BYTES
from ingest.parsing.syslog import Line, SyslogSource, one_line
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.daemon_timestamps import read_clock, write_clock

_LONGEST = 8192
"""Characters of a message that is looked at closely. No daemon writes longer ones through
syslog; one that is longer is kept as it is, and cannot make a pattern search for long."""

NAMED: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("panic", "fatal", "emerg", "emergency"), FATAL),
        **dict.fromkeys(("crit", "critical", "alert"), CRITICAL),
        **dict.fromkeys(("error", "err"), HIGH),
        **dict.fromkeys(("warning", "warn"), MEDIUM),
        **dict.fromkeys(
            ("note", "notice", "info", "debug", "trace", "core", "system"), INFORMATIONAL
        ),
    }
)
"""OCSF severity by the name that programs give a level."""

# OpenWrt's logd and BusyBox put the priority in words before the program.
_PRIORITY = re.compile(
    r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])"
    r"\.(?P<level>emerg|alert|crit|err|warn|warning|notice|info|debug)",
    re.ASCII,
)
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
_TAGGED = re.compile(
    r"(?P<program>[A-Za-z][^\s:\[]{0,63})(?:\[(?P<pid>\d{1,10})\]:?|:) (?P<text>.*)", re.ASCII
)


@dataclass(frozen=True)
class Daemon(SyslogSource):
    """A program that logs through syslog, or in one of its own `forms`.

    A form's pattern has the groups `time` and `text`, and may have `host`, `program`
    and `pid`; all its other groups become fields of `Line.rest`. `bare` are lines
    known by their words alone, as a supervisor keeps them: they get their arrival time.
    """

    forms: tuple[re.Pattern[str], ...] = ()
    bare: re.Pattern[str] | None = None
    families: tuple[str, ...] = ()
    """Programs that begin so are read as well."""

    def reads_program(self, program: str) -> bool:
        return super().reads_program(program) or program.startswith(self.families)

    def parse(self, record: Any, context: Context) -> list[Event]:
        raw: bytes = record.raw
        if raw.count(b"\n", 0, -1) == 0:
            return self.events(raw, context)
        if len(raw) > FILE_BYTES:
            raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
        return self.several(self.pieces(raw), context)

    def pieces(self, raw: bytes) -> list[bytes]:
        """The records in a text of several lines: each line that is not blank."""
        return [line for line in raw.split(b"\n") if line.strip()]

    def several(self, raws: list[bytes], context: Context) -> list[Event]:
        """The events of several lines in one record; a bad one costs only itself."""
        if not raws:
            raise Unreadable("the record is empty")
        events: list[Event] = []
        read = 0
        for raw in raws:
            try:
                events += self.events(raw, context)
                read += 1
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
        if not read:
            raise Unreadable(events[0]["dead_letter_reason"])
        return events

    def events(self, raw: bytes, context: Context) -> list[Event]:
        """The events of one line. Raises `Unreadable`."""
        return [self.read(self.framed(one_line(raw), context), context)]

    def framed(self, text: str, context: Context) -> Line:
        """The line behind its framing: the program's own, or that of syslog."""
        for form in self.forms:
            match = form.fullmatch(text)
            if match:
                return _line(match, context)
        try:
            return self._retagged(syslog.read_text(text, context))
        except Unreadable:
            match = _TAGGED.fullmatch(text)
            if match and self.reads_program(match["program"]):
                return _line(match, context)
            if self.bare is not None and self.bare.match(text):
                return Line(
                    Stamp.missing(context.record.received_at, None),
                    context.host,
                    None,
                    None,
                    text.strip(),
                    {},
                )
            raise

    def _retagged(self, line: Line) -> Line:
        """The line, its program found behind a priority in words or without its colon."""
        # The words stand where syslog has the host, so they were taken for one.
        written = _PRIORITY.fullmatch(line.host or "")
        if written:
            line = line._replace(host=None, rest=line.rest | _priority(written))
        if line.program is not None:
            return line
        first, _, behind = line.text.partition(" ")
        written = _PRIORITY.fullmatch(first)
        match = _TAGGED.fullmatch(behind if written else line.text)
        if match is None or not self.reads_program(match["program"]):
            return line
        rest = line.rest | (_priority(written) if written else {})
        pid = int(match["pid"]) if match["pid"] else line.pid
        return line._replace(program=match["program"], pid=pid, text=match["text"], rest=rest)

    def known(self, line: Line, context: Context) -> Event | None:
        if line.program is not None and not self.reads_program(line.program):
            return None
        if len(line.text) > _LONGEST:
            return None
        # PAM first: its modules write under the daemon's own name.
        read = pam(line, self.product) or self.reader(line, context)
        return read and syslog.counted(read, line)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        for form in self.forms:
            match = form.fullmatch(text)
            new = write_clock(match["time"], when, zone) if match else None
            if match and new is not None:
                start = len(text[: match.start("time")].encode())
                return raw[:start] + new.encode() + raw[start + len(match["time"].encode()) :]
        return syslog.restamp(raw, when, zone)


def _priority(match: re.Match[str]) -> dict[str, Any]:
    name = match["level"].replace("warning", "warn")
    return {"priority": match[0], "level": _LEVELS.index(name)}


_FRAME = frozenset({"time", "text", "host", "program", "pid"})


def _line(match: re.Match[str], context: Context) -> Line:
    part = match.groupdict()
    host = part.get("host") or context.host
    received_at = context.record.received_at
    time, pid = part.get("time"), part.get("pid")
    stamp = (
        read_clock(time, context.zone(host), received_at)
        if time
        else Stamp.missing(received_at, None)
    )
    rest = {name: value for name, value in part.items() if value and name not in _FRAME}
    text = (part["text"] or "").strip()
    return Line(stamp, host, part.get("program"), int(pid) if pid else None, text, rest)


_BETWEEN = frozenset({NETWORK, SSH, RDP, FTP})


def daemon_event(
    line: Line,
    product: Mapping[str, str],
    class_uid: int,
    activity: int,
    *,
    rest: dict[str, Any] | None = None,
    by: str | None = None,
    fields: Mapping[str, str | None] | None = None,
    by_session: str | None = None,
    **columns: Any,
) -> Event:
    """An event of what a daemon said.

    `by` names the user who acts, `by_session` their session, `fields` are further metadata.
    Whatever the columns name that is worth searching becomes an observable.
    """
    severity = columns.pop("severity_id", None)
    if severity is None:
        severity = syslog.severity(line)
        if columns.get("status_id") == FAILURE:
            # A daemon may log a failed login at level info, like all else.
            severity = max(severity, LOW)
    actor = kept(
        process=kept(name=line.program, pid=line.pid) if line.pid is not None else None,
        user={"name": by} if by else None,
        session={"uid": by_session} if by_session else None,
    )
    columns = {"message": line.text} | {n: v for n, v in columns.items() if v is not None}
    if actor:
        columns["actor"] = actor
    ends = columns.get("src_endpoint") or columns.get("dst_endpoint")
    if class_uid in _BETWEEN and not ends:
        # OCSF has no connection of which neither end is known.
        class_uid, activity = BASE, 0
        columns.pop("activity_name", None)
    # OCSF checks addresses of mail, and servers log whatever the client said.
    if class_uid == EMAIL:
        columns["email"], odd = mailboxes(columns.get("email") or {})
        if odd:
            columns["more"] = (columns.get("more") or {}) | {"email": odd}
    if class_uid == AUTHENTICATION and not columns.get("user"):
        # OCSF wants one with a name even of a logon that names nobody.
        columns["more"] = {"user": {"name": "", "type_id": 0}} | (columns.get("more") or {})
    return event(
        class_uid,
        activity,
        line.stamp,
        severity_id=severity,
        metadata=metadata(product, line.stamp, **kept(log_provider=line.program, **(fields or {}))),
        device=device(line.host),
        observables=observables(*_worth(columns)),
        unmapped=unmapped(line.rest | (rest or {})),
        **columns,
    )


# What OCSF takes for an address of mail; `root` and `"a b"@c.de` are none to it.
_MAIL = re.compile(r"[a-zA-Z0-9!#$%&'*+-/=?^_`{|}~.]+@[a-zA-Z0-9-]+\.[a-zA-Z0-9-.]+", re.ASCII)


def mailboxes(email: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The addresses that OCSF has as such, and the others, which it has as mailboxes.

    OCSF wants a sender or a recipient of every mail; a step that names none has no recipients.
    """
    good, odd = dict(email), {}
    sender, to = email.get("from"), email.get("to") or []
    if sender and not _MAIL.fullmatch(sender):
        odd["from_mailbox"] = good.pop("from")
    other = [address for address in to if not _MAIL.fullmatch(address)]
    if other:
        odd["to_mailboxes"] = other
        good["to"] = [address for address in to if address not in other] or None
    if not good.get("from") and not good.get("to"):
        odd["to"] = []
    return {name: value for name, value in good.items() if value is not None}, odd


def _worth(columns: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    for name in ("src_endpoint", "dst_endpoint"):
        end = columns.get(name) or {}
        yield f"{name}.ip", AN_IP, end.get("ip")
        yield f"{name}.mac", A_MAC, end.get("mac")
        if name == "src_endpoint":
            yield f"{name}.hostname", A_HOST, end.get("hostname")
    yield "user.name", A_USER, (columns.get("user") or {}).get("name")
    actor = columns.get("actor") or {}
    yield "actor.user.name", A_USER, (actor.get("user") or {}).get("name")
    yield "file.path", A_PATH, (columns.get("file") or {}).get("path")
    email = columns.get("email") or {}
    yield "email.from", A_MAIL, email.get("from")
    for mailbox in email.get("to") or ():
        yield "email.to", A_MAIL, mailbox
    yield "process.cmd_line", A_COMMAND, (columns.get("process") or {}).get("cmd_line")


def endpoint(
    peer: str | None,
    port: str | int | None = None,
    *,
    rest: dict[str, Any],
    name: str = "peer",
    hostname: str | None = None,
) -> dict[str, Any] | None:
    """An endpoint of an address or host, with a port. What is neither goes to `rest`.

    A host that only repeats the address, or says that it has no name, is none.
    """
    peer = peer.strip("[]") if peer else None
    ip = address(peer) if peer else None
    if peer and ip is None:
        # Four numbers that are no address, such as 999.1.1.1, must not pass for a host's name.
        if hostname is None and _HOST.fullmatch(peer) and not _QUAD.fullmatch(peer):
            hostname = peer
        else:
            rest[name] = peer
    number = None
    if port is not None and port != "":
        number = int(port) if str(port).isdecimal() and len(str(port)) <= 5 else None
        # What cannot be a port stays readable under its own name.
        if number is None or number > 65535:
            number, rest[f"{name}_port"] = None, port
    if hostname and (hostname.lower() in _NOBODY or address(hostname.strip("[]"))):
        hostname = None
    if number is not None and not (ip or hostname):
        # OCSF takes no endpoint of a port alone.
        number, rest[f"{name}_port"] = None, number
    return kept(ip=ip, port=number, hostname=hostname or None) or None


_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})", re.ASCII)
_QUAD = re.compile(r"[\d.]+", re.ASCII)
_NOBODY = frozenset({"unknown", "unknown_host", "undef", "?", "null"})


def pairs(text: str) -> dict[str, str]:
    """`a=1 b=2` as a mapping; of a name that stands twice the first."""
    result: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        # The first holds, since what a client sends stands further back in the line.
        if equals and name not in result:
            result[name] = value
    return result


# -- PAM, whose modules write under the name of the program that called them ----------------------

_PAM_FAILED = re.compile(
    r"(?:\(?pam_\w+\)?(?:\((?P<service>[\w.-]+):auth\))?:? )?(?P<text>authentication failure); "
    r"(?P<fields>logname=.*)",
    re.ASCII,
)
_PAM_SESSION = re.compile(
    r"\(?pam_\w+\)?(?:\((?P<service>[\w.-]+):session\))?:? session (?P<what>opened|closed) "
    r"for user (?P<user>\S+?)(?:\(uid=(?P<uid>\d+)\))?"
    r"(?: by (?P<by>[^\s(]*)(?:\(uid=(?P<by_uid>\d+)\))?)?",
    re.ASCII,
)
# The host must be followed by the end or by `user=`: a name may hold ` rhost=` itself.
_RHOST = re.compile(r" rhost=(\S*)(?=$|\s+user=)")


def pam(line: Line, product: Mapping[str, str]) -> Event | None:
    """A failed login or a session, as PAM's modules write it; None for other lines."""
    if not line.text.startswith(("pam_", "(pam_", "authentication failure; ")):
        return None
    match = _PAM_FAILED.fullmatch(line.text)
    if match:
        return _pam_failed(match["fields"], match["service"], line, product)
    match = _PAM_SESSION.fullmatch(line.text)
    if match is None:
        return None
    opened = match["what"] == "opened"
    return daemon_event(
        line,
        product,
        AUTHENTICATION,
        1 if opened else 2,
        status_id=SUCCESS,
        user=kept(name=match["user"], uid=match["uid"]),
        service={"name": match["service"] or line.program or product["name"]},
        dst_endpoint={"hostname": line.host} if line.host else None,
        rest=kept(by=match["by"] or None, by_uid=match["by_uid"]),
    )


def _pam_failed(
    written: str, service: str | None, line: Line, product: Mapping[str, str]
) -> Event | None:
    head, marker, _ = written.partition(" ruser=")
    if not marker:
        return None
    tail = written[len(head) + len(marker) :]
    ruser, rhost, user, doubtful = _pam_ends(tail)
    rest: dict[str, Any] = {name: value for name, value in pairs(head).items() if value}
    rest |= kept(ambiguous=True if doubtful else None, pam=tail if doubtful else None)
    name = user or ruser or None
    return daemon_event(
        line,
        product,
        AUTHENTICATION,
        1,
        status_id=FAILURE,
        status_detail="authentication failure",
        src_endpoint=endpoint(rhost, rest=rest, name="rhost"),
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": name} if name else None,
        service={"name": service or line.program or product["name"]},
        is_remote=True if rhost else None,
        rest=rest | kept(ruser=ruser if ruser and ruser != name else None),
    )


def _pam_ends(tail: str) -> tuple[str, str | None, str | None, bool]:
    """The remote user, host and the user; whether a forged name leaves that in doubt.

    Both names may hold ` rhost=`, but a daemon that asks for one name gives PAM the
    same as both: where they agree, the host between them is the true one.
    """
    pam_ends: list[tuple[str, str, str | None]] = []
    for match in _RHOST.finditer(" " + tail if tail.startswith("rhost=") else tail):
        shift = 1 if tail.startswith("rhost=") else 0
        rest = tail[match.end() - shift :].lstrip()
        user = rest.removeprefix("user=") if rest else None
        pam_ends.append((tail[: max(match.start() - shift, 0)], match[1], user))
    agreed = [
        pam_end for pam_end in pam_ends if pam_end[2] is not None and pam_end[2] == pam_end[0]
    ]
    if len(agreed) == 1:
        return *agreed[0], False
    if len(pam_ends) == 1:
        return *pam_ends[0], False
    nameless = [pam_end for pam_end in pam_ends if pam_end[2] is None]
    if len(nameless) == 1 and not any(user for _, _, user in pam_ends):
        return *nameless[0], False
    # No address is better than one that an attacker has chosen.
    return "", None, None, True
