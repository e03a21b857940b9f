"""IIS and other services of Windows that write the W3C Extended Log File Format.

https://learn.microsoft.com/en-us/previous-versions/iis/6.0-sdk/ms525807(v=vs.90) and
https://www.w3.org/TR/WD-logfile.html: `#Fields:` names the columns, which are separated by
spaces; times are UTC; a space in a value is `+`. HTTP.sys' own HTTPERR log has the same
form, as have FTP and SMTP. Lines without the header are read where they fit one of IIS'
default sets of columns. A line with more or fewer columns is refused: a client could
otherwise move its address.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import each_line
from ingest.parsing.ocsf import BASE, FTP, INFORMATIONAL, LOW, NETWORK, address, kept
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import Stamp, like_iso, stamp_iso
from ingest.sources.shared.http_exchange import CODE, NONE, Exchange, http_event, whole
from ingest.sources.shared.http_fields import fill

_PRODUCT: Mapping[str, str] = {"name": "IIS", "vendor_name": "Microsoft"}
_CLOSE, _TRAFFIC, FTP_OTHER = 2, 6, 99
DIRECTIVE = re.compile(
    r"#(Software|Version|Date|Fields|Remark|Start-Date|End-Date|GMT-Offset): ?(.*)"
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII)
_JOINED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?", re.ASCII)
ORIGINAL = ("x-forwarded-for", "cs(x-forwarded-for)", "x_forwarded_for", "originalip")

_HEAD = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent)"
_TAIL = "sc-status sc-substatus sc-win32-status"
DEFAULTS: tuple[tuple[str, ...], ...] = tuple(
    tuple(names.split())
    for names in (
        f"{_HEAD} cs(Referer) {_TAIL} time-taken",
        f"{_HEAD} {_TAIL} time-taken",
        f"{_HEAD} {_TAIL}",
        f"{_HEAD} cs(Referer) {_TAIL} time-taken X-Forwarded-For",
        "date time s-sitename s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip "
        f"cs(User-Agent) {_TAIL}",
        "date time s-sitename s-computername s-ip cs-method cs-uri-stem cs-uri-query s-port "
        "cs-username c-ip cs-version cs(User-Agent) cs(Cookie) cs(Referer) cs-host "
        f"{_TAIL} sc-bytes cs-bytes time-taken",
        "date time s-sitename cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip "
        f"cs(User-Agent) cs(Cookie) cs(Referer) cs-host {_TAIL} sc-bytes cs-bytes time-taken",
        "date time c-ip c-port s-ip s-port cs-version cs-method cs-uri sc-status s-siteid "
        "s-reason s-queuename",
        "date time c-ip c-port s-ip s-port cs-version cs-method cs-uri streamid sc-status "
        "s-siteid s-reason s-queuename",
    )
)
"""Columns of IIS 10 and 8.5, 7 and 8, 7 without the span, 10 with the header that load
balancers ask for, 6, all of them, Azure's App Service, and HTTPERR, by what is usual."""
FTP_ACTIVITY: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("STOR", "APPE", "STOU"), 1),
        "RETR": 2,
        "DELE": 4,
        "RMD": 4,
        **dict.fromkeys(("RNFR", "RNTO"), 5),
        **dict.fromkeys(("LIST", "NLST", "MLSD"), 6),
    }
)
"""Commands of FTP as OCSF's activities: upload, download, delete, rename, list."""
FTP_ONLY = frozenset({"x-session", "x-fullpath"})


@dataclass(frozen=True, slots=True)
class _Header:
    """What the directives of a file say."""

    fields: tuple[str, ...] = ()
    commas: bool = False
    day: str | None = None
    software: str | None = None


def header_of(lines: Sequence[str], former: _Header | None = None) -> _Header:
    """What `lines` of directives say, besides what was `former` before."""
    header = former or _Header()
    fields, commas, day, software = (
        header.fields,
        header.commas,
        header.day,
        header.software,
    )
    for line in lines:
        match = DIRECTIVE.match(line.strip())
        if match is None:
            continue
        name, value = match[1], match[2].strip()
        if name == "Fields":
            # Exchange writes the same form with commas.
            commas = "," in value and " " not in value.replace(", ", "")
            parts = value.split(",") if commas else value.split()
            fields = tuple(part.strip() for part in parts)
        elif name in ("Date", "Start-Date") and _DAY.match(value):
            day = value[:10]
        elif name == "Software":
            software = value
    return _Header(fields, commas, day, software)


def _split(text: str) -> list[str]:
    """Columns between commas, quoted where they hold one."""
    try:
        # Strict: a quote that is never closed must not swallow the columns behind it.
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise Unreadable(f"not a line of columns: {error}") from None


def _values(text: str, header: _Header) -> dict[str, str]:
    """The columns of a line by name. Raises `Unreadable`."""
    values = _split(text) if header.commas else text.strip(" ").split(" ")
    if header.fields:
        if len(values) != len(header.fields):
            raise Unreadable(
                f"{len(values)} columns where #Fields names {len(header.fields)}: '{text[:40]}'"
            )
        return dict(zip(header.fields, values, strict=True))
    for fields in DEFAULTS:
        if len(values) == len(fields):
            named = dict(zip(fields, values, strict=True))
            # Two sets may have as many columns: only one has numbers and addresses where they
            # belong.
            if _fits(named):
                return named
    raise Unreadable(f"no #Fields known, and none of IIS' default sets fits: '{text[:40]}'")


def _fits(named: Mapping[str, str]) -> bool:
    """Whether a guess at the columns can be right: all that must be numbers and addresses are."""
    return all(
        (_DAY.fullmatch(value) if name == "date" else True)
        and (_CLOCK.fullmatch(value) if name == "time" else True)
        and (address(value) if name == "c-ip" else True)
        and (value == "-" or address(value) if name == "s-ip" else True)
        and (
            value == "-" or whole(value) is not None
            if name in ("s-port", "c-port", "sc-status", "sc-substatus", "time-taken", "sc-bytes")
            else True
        )
        for name, value in named.items()
    )


def _stamp(named: dict[str, str], header: _Header, context: Context) -> Stamp:
    """The time in UTC; of a line without a date that of the header."""
    received_at, utc = context.record.received_at, ZoneInfo("UTC")
    lower = {name.lower(): name for name in named}
    joined = lower.get("date-time") or lower.get("datetime")
    if joined and _JOINED.fullmatch(named[joined]):
        return stamp_iso(named.pop(joined).rstrip("Z") + "Z", utc, received_at)
    clock = named.get(lower.get("time", ""), "")
    # Without the column `date` only the directive `#Date` says the day.
    day = named.get(lower.get("date", ""), "") or header.day or ""
    if not (_DAY.fullmatch(day) and _CLOCK.fullmatch(clock)):
        return Stamp.missing(received_at, f"{day} {clock}".strip() or None)
    stamp = stamp_iso(f"{day}T{clock}Z", utc, received_at)
    # Only a time that was read leaves the columns: any other stays in unmapped.
    if stamp.quality == "exact":
        for name in ("date", "time"):
            named.pop(lower.get(name, ""), None)
    return stamp


def _product(header: _Header) -> Mapping[str, str]:
    """The product as the header names it."""
    if not header.software:
        return _PRODUCT
    name, _, version = header.software.rpartition(" ")
    if "Internet Information" in header.software and version[:1].isdigit():
        return {**_PRODUCT, "version": version}
    if name.startswith("Microsoft ") and version[:1].isdigit():
        return {
            "name": name.removeprefix("Microsoft "),
            "vendor_name": "Microsoft",
            "version": version,
        }
    return {**_PRODUCT, "name": header.software}


def _ip(name: str, value: str) -> bool:
    """Whether a column of addresses holds one; of other columns, that they are others."""
    return name not in ("c-ip", "s-ip", "client-ip", "server-ip") or address(value) is not None


def _exchange(named: dict[str, str]) -> Exchange:
    x = Exchange()
    for name, value in named.items():
        if value in NONE:
            continue
        lower = name.lower()
        # IIS writes a plus for a blank here; in other columns a plus may be one.
        if lower in ("cs(user-agent)", "cs(cookie)"):
            value = value.replace("+", " ")
        if lower in ORIGINAL:
            x.forwarded_for(value.replace("+", " "), name)
        elif lower == "sc-status":
            x.code = whole(value, CODE) or None
            if x.code is None:
                x.rest[name] = value
        elif lower not in _SLOTS or not _ip(lower, value) or not fill(x, name, value):
            x.rest[name] = value
    return x


_SLOTS = frozenset(
    {
        *("c-ip", "c-port", "client-ip", "s-ip", "s-port", "server-ip", "s-computername"),
        *("cs-method", "cs-uri-stem", "cs-uri-query", "cs-uri", "cs-host", "cs(host)"),
        *("cs-username", "cs-version", "cs(user-agent)", "cs(referer)"),
        *("sc-bytes", "cs-bytes", "time-taken", "crypt-protocol"),
    }
)
"""Columns that have a place; all others keep their name."""


def _event(text: str, header: _Header, context: Context) -> Event:
    named = _values(text, header)
    stamp = _stamp(named, header, context)
    x = _exchange(named)
    host = context.host
    columns: dict[str, Any] = {}
    if x.server.get("port") is not None:
        x.port = x.server["port"]
    substatus = named.get("sc-substatus", "0")
    # 401.1 and 401.2 differ in why they refused; the main code does not say it.
    if x.code is not None and substatus not in ("0", *NONE):
        columns["status_detail"] = f"{x.code}.{substatus}"
    reason = x.rest.get("s-reason")
    if reason:
        columns |= {"status_detail": reason}
        x.rest.pop("s-reason")
    x.meta["log_name"] = "HTTPERR" if "s-reason" in named else "W3C"
    lower = {name.lower() for name in named}
    if lower & FTP_ONLY or "MSFTPSVC" in named.get("s-sitename", ""):
        columns |= _ftp(x)
    elif not (x.method or x.target or x.code) or "SMTPSVC" in named.get("s-sitename", ""):
        columns |= _other(x, reason)
    message = columns.pop("message", None)
    return http_event(x, stamp, _product(header), host=host, message=message, **columns)


def _ftp(x: Exchange) -> dict[str, Any]:
    """FTP: `[1]USER` of IIS 6, `USER` of later ones; the path is the file."""
    command = re.sub(r"\A\[\d+\]", "", x.method or "")
    columns: dict[str, Any] = {
        "class_uid": FTP,
        "activity_id": FTP_ACTIVITY.get(command.upper(), FTP_OTHER),
        "command": command or None,
        "message": " ".join(part for part in (command, x.target) if part) or None,
    }
    if x.code is not None:
        x.rest["sc-status"] = x.code
        columns |= {"status_code": str(x.code), "status_id": 1 if x.code < 400 else 2}
        columns["severity_id"] = INFORMATIONAL if x.code < 400 else LOW
    if x.target and columns["activity_id"] != FTP_OTHER:
        columns["file"] = {"path": x.target, "type_id": 0}
    elif x.target:
        x.rest["cs-uri-stem"] = x.target
    x.method = x.target = x.code = None
    return columns


def _other(x: Exchange, reason: str | None) -> dict[str, Any]:
    """A connection that ended, or an entry of a service that serves no HTTP."""
    if x.client is None and "client-ip" not in x.rest:
        return {"class_uid": BASE, "activity_id": 0, "status_id": None}
    for name in ("method", "target", "code", "agent", "referrer", "version"):
        value = getattr(x, name)
        if value is not None:
            x.rest[name] = value
            setattr(x, name, None)
    columns: dict[str, Any] = {"class_uid": NETWORK, "activity_id": _CLOSE if reason else _TRAFFIC}
    return columns | kept(message=reason)


@dataclass(frozen=True)
class Iis(Source):
    """A line of a W3C log, or a whole file with its header."""

    name: str = "iis"

    def is_header(self, line: bytes) -> bool:
        return DIRECTIVE.match(line.decode("utf-8", "replace")) is not None

    def parse(self, record: Record, context: Context) -> list[Event]:
        given = (context.header or b"").decode("utf-8", "replace")
        header = header_of(given.splitlines())
        block: list[str] = []

        def read(raw: bytes) -> Event:
            nonlocal header
            text = one_line(raw).removeprefix("\ufeff")
            if text[:1] != "#":
                return _event(text, header, context)
            if DIRECTIVE.match(text) is None:
                raise Unreadable(f"no directive of the W3C format: '{text[:40]}'")
            block.append(text)
            header = header_of([text], header)
            return self._directive(text, header, context)

        events = each_line(record.raw, read)
        # In a file with entries its header is no event of its own.
        entries = [event for event in events if (event.get("message") or "")[:1] != "#"]
        return entries if entries and len(entries) + len(block) == len(events) else events

    def _directive(self, text: str, header: _Header, context: Context) -> Event:
        """A line that names columns, sent as a record all the same."""
        stamp = Stamp.missing(context.record.received_at, None)
        base: dict[str, Any] = {"class_uid": BASE, "activity_id": 0, "status_id": None}
        return http_event(
            Exchange(), stamp, _product(header), host=context.host, message=text, **base
        )

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        # At the beginning alone: further in, a date may stand in a URL.
        match = re.match(r"(\d{4}-\d\d-\d\d)( |T|,)(\d\d:\d\d:\d\d(?:\.\d{1,9})?)", text, re.ASCII)
        if match is None:
            raise Unreadable(f"no date and time in '{text[:40]}'")
        old = f"{match[1]} {match[3]}"
        new = like_iso(old, when.astimezone(UTC), ZoneInfo("UTC"))
        if new is None:
            raise Unreadable(f"not a time: '{old}'")
        changed = new[:10] + match[2] + new[11:]
        return changed.encode() + raw[len(match[0].encode()) :]


SOURCES = (Iis(),)
