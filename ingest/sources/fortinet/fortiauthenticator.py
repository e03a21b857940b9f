"""FortiAuthenticator, Fortinet's server of logins: its log in syslog, or as it is downloaded.

https://docs.fortinet.com/document/fortiauthenticator/6.6.0/administration-guide (Logging: log
access and the reference of log types). Behind the header stand pairs with values in quotes, and
in syslog behind those the message in plain words, which may hold what a stranger typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import (
    ACCOUNT,
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
)
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import Line, one_line
from ingest.parsing.timestamps import Stamp, stamp_iso
from ingest.sources.shared.daemon_source import daemon_event
from ingest.sources.shared.device_header import each_line
from ingest.sources.shared.firewall import SEVERITY_NAMES, Fields, endpoint, split_user
from ingest.sources.shared.key_values import certain, put

_PRODUCT: Mapping[str, str] = {"name": "FortiAuthenticator", "vendor_name": "Fortinet"}
_LOGON, _LOGOFF = 1, 2
_ADD, _EDIT, _DELETE = 1, 3, 4
_PAIR = re.compile(
    r'[ ,]*(?P<key>[A-Za-z_]\w{0,31})=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^ "]*))'
    r"(?=[ ,]|$)",
    re.ASCII,
)
# The message has quotes of its own, so it ends before the next pair.
_MESSAGE = re.compile(r'[ ,]*msg="(?P<quoted>.*?)"(?=[ ,]+[A-Za-z_]\w{0,31}=|[ ,]*$)', re.ASCII)
_START = re.compile(r"(?<![\w=])(?:category|cat|logid|typeid|date|log_id)=", re.ASCII)
_OWN = frozenset({"subcategory", "subcat", "typeid", "logid"})
_CHOSEN = ("user", "nas", "userip", "action", "status", "subcategory", "typeid", "logid")
# From its start: behind it may stand a name that somebody typed.
_FROM = re.compile(
    r"(?:Local|Remote)(?: [A-Za-z]{2,16}){1,3} from (?P<ip>[0-9a-fA-F:.]{2,45})(?= |$)", re.ASCII
)
_WHY = re.compile(r"(?:.{0,400}?(?: failed|authentication)): (?P<why>[^:]{1,200}?)\.?", re.ASCII)
_WITH = re.compile(r" with (?P<why>(?:invalid|wrong|expired) [a-z ]{1,40})\.?$", re.ASCII)
_CHANGE = re.compile(
    r"(?P<verb>Added|Edited|Deleted|Changed|Created|Removed) (?P<kind>[A-Z][\w ]{1,40}): "
    r"(?P<name>.*)"
)
_VERBS: Mapping[str, int] = {
    "Added": _ADD,
    "Created": _ADD,
    "Edited": _EDIT,
    "Changed": _EDIT,
    "Deleted": _DELETE,
    "Removed": _DELETE,
}
# Of OCSF's Account Change: created, attributes changed (other), deleted.
_ACCOUNT_CHANGES = {_ADD: 1, _EDIT: OTHER, _DELETE: 6}


def _fields(text: str) -> Fields:
    """The pairs from the start of `text`; from the first that is none on, all is the message."""
    fields = Fields()
    position = 0
    while match := _MESSAGE.match(text, position) or _PAIR.match(text, position):
        part = match.groupdict()
        value = part["quoted"] if part["quoted"] is not None else part["bare"] or ""
        put(fields, part.get("key") or "msg", value.replace('\\"', '"').replace("\\\\", "\\"))
        position = match.end()
    words = text[position:].strip(" ,")
    if words:
        # Of old releases the message is a pair, `msg`; both are kept.
        put(fields, "msg", words)
    return certain(fields, _CHOSEN)


def _stamp(fields: Fields, line: Line, context: Context) -> Stamp:
    day, clock = fields.get("date"), fields.get("time")
    if type(day) is str and type(clock) is str:
        stamp = stamp_iso(f"{day} {clock}", context.zone(line.host), context.record.received_at)
        if stamp.quality != "received":
            del fields["date"], fields["time"]
            return stamp
    return line.stamp


def _read(line: Line, context: Context) -> Event | None:
    # The header is short: further in, only a message could look like the first pair.
    start = _START.search(line.text, 0, 256)
    fields = _fields(line.text[start.start() :]) if start else Fields()
    if not fields.keys() & _OWN:
        return None
    line = line._replace(stamp=_stamp(fields, line, context))
    words = fields.text("msg") or ""
    kind = (fields.text("subcategory", "subcat") or "").lower()
    code = fields.text("typeid", "logid", "log_id")
    level = SEVERITY_NAMES.get(str(fields.get("level", "")).lower(), 1)
    about: dict[str, Any] = {
        "message": words or line.text,
        "fields": kept(event_code=code, log_name=kind or None),
    }
    change = _CHANGE.fullmatch(words)
    action = (fields.text("action") or "").lower()
    if action or (kind == "authentication" and fields.get("status")):
        return _login(action, words, fields, line, about, level)
    if change:
        return _change(change, fields, line, about, level)
    user = split_user(fields.text("user"))
    return daemon_event(
        line,
        _PRODUCT,
        BASE,
        UNKNOWN,
        severity_id=level,
        user=user,
        src_endpoint=endpoint(ip=fields.ip("userip")),
        rest=fields.left(),
        **about,
    )


def _login(
    action: str, words: str, fields: Fields, line: Line, about: dict[str, Any], level: int
) -> Event:
    """Somebody logs in or out, here or at a device that asked (`nas`)."""
    status = fields.text("status")
    low = (status or "").lower()
    # `Pending`: the first of two factors was right, and the second is asked for.
    outcome = SUCCESS if low == "success" else FAILURE if low.startswith("fail") else UNKNOWN
    nas = fields.get("nas")
    nas_device = endpoint(
        ip=fields.ip("nas"),
        hostname=nas if type(nas) is str and re.fullmatch(r"[\w-]+(?:\.[\w-]+)+", nas) else None,
    )
    ip = fields.ip("userip")
    written = None if ip else _FROM.match(words)
    ip = address(written["ip"]) if written else ip
    why = _WHY.fullmatch(words) or _WITH.search(words) if outcome == FAILURE else None
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGOFF if "logout" in action else _LOGON,
        severity_id=max(level, 2) if outcome == FAILURE else level,
        status_id=outcome,
        status_code=status,
        status_detail=why["why"] if why else None,
        user=split_user(fields.text("user")),
        src_endpoint=endpoint(ip=ip),
        dst_endpoint=nas_device,
        auth_protocol="RADIUS" if "RADIUS" in words else None,
        is_remote=True if ip or nas_device else None,
        service={"name": "FortiAuthenticator"},
        rest=fields.left() | kept(action=action or None),
        **about,
    )


def _change(
    change: re.Match[str], fields: Fields, line: Line, about: dict[str, Any], level: int
) -> Event:
    """An administrator changed an account or another object."""
    verb = _VERBS[change["verb"]]
    name = change["name"].partition(" (changed fields:")[0].strip()
    source = endpoint(ip=fields.ip("userip"))
    about |= {"severity_id": level, "status_id": SUCCESS, "by": fields.text("user") or "unknown"}
    if change["kind"].endswith("User"):
        activity = _ACCOUNT_CHANGES[verb]
        return daemon_event(
            line,
            _PRODUCT,
            ACCOUNT,
            activity,
            activity_name=change["verb"] if activity == OTHER else None,
            user={"name": name or "unknown"},
            src_endpoint=source,
            rest=fields.left(),
            **about,
        )
    return daemon_event(
        line,
        _PRODUCT,
        API,
        verb,
        api={
            "operation": f"{change['verb']} {change['kind']}",
            "service": {"name": "FortiAuthenticator"},
        },
        src_endpoint=source or {"name": "unknown"},
        resources=[kept(name=name, type=change["kind"])] if name else None,
        rest=fields.left(),
        **about,
    )


@dataclass(frozen=True)
class FortiAuthenticator(Source):
    """FortiAuthenticator's log."""

    name: str = "fortiauthenticator"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [self._line(text, context)])

    def _line(self, text: str, context: Context) -> Event:
        try:
            line = syslog.read_text(text, context)
        except Unreadable:
            # As it is downloaded, without a header.
            line = Line(
                Stamp.missing(context.record.received_at, None), context.host, None, None, text, {}
            )
            read = _read(line, context)
            if read is None:
                raise
            return read
        return _read(line, context) or syslog.base_event(line, _PRODUCT)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        local = when.astimezone(zone)
        own = re.search(r"date=(\d{4}-\d\d-\d\d) time=(\d\d:\d\d:\d\d)", text[:512])
        if own is None:
            return syslog.restamp(raw, when, zone)
        new = f"date={local:%Y-%m-%d} time={local:%H:%M:%S}"
        changed = text[: own.start()] + new + text[own.end() :]
        return changed.encode() + raw[len(text.encode()) :]


SOURCES = (FortiAuthenticator(),)
