"""The audit log of the Windows DHCP server (`DhcpSrvLog-Mon.log`), IPv4.

Lines are comma-separated, in local time without a zone, written MM/DD/YY. A
file starts with a preface that explains the event ids and names the columns;
those lines become base events, so that they neither count as dead letters nor
vanish. The client chooses its host name: a line with more fields than the
format has could shift the hardware address, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from zoneinfo import ZoneInfo

from ingest.dhcp import ACK, DECLINE, EXPIRE, NAK, RELEASE, dhcp_event
from ingest.ocsf import BASE, OTHER, device, event, metadata, unmapped
from ingest.source import Context, Event, Record, Source, Unreadable
from ingest.strict import LINE_BYTES
from ingest.syslog import one_line
from ingest.time import Stamp, stamp_iso

PRODUCT: Mapping[str, str] = {"name": "Windows DHCP Server", "vendor_name": "Microsoft"}

COLUMNS = (
    "ID",
    "Date",
    "Time",
    "Description",
    "IP Address",
    "Host Name",
    "MAC Address",
    "User Name",
    "TransactionID",
    "QResult",
    "Probationtime",
    "CorrelationID",
    "Dhcid",
    "VendorClass(Hex)",
    "VendorClass(ASCII)",
    "UserClass(Hex)",
    "UserClass(ASCII)",
    "RelayAgentInformation",
    "DnsRegError",
)
LEAST = 7
"""Fields of the oldest servers, up to the hardware address."""

ENTRY = re.compile(r"\d{2,5},")
PREFACE = re.compile(
    r"\s*(?:Microsoft (?:Windows )?DHCP.*|Event ID\s+Meaning|\d\d\d?\+?\t.*"
    r"|QResult\b.*|ID,\s*Date,.*)?",
    re.ASCII,
)
WHEN = re.compile(r"(\d\d)/(\d\d)/(\d\d(?:\d\d)?),(\d\d:\d\d:\d\d),", re.ASCII)

ACTIVITY = MappingProxyType(
    {
        10: ACK,
        11: ACK,
        12: RELEASE,
        13: DECLINE,
        14: OTHER,
        15: NAK,
        16: EXPIRE,
        17: EXPIRE,
        18: EXPIRE,
        20: ACK,
        21: ACK,
        22: OTHER,
        23: EXPIRE,
    }
)
"""Leases by event id: 10 new, 11 renewed, 12 released, 13 found in use, 14 and 22 pool
exhausted, 15 denied, 16 and 23 deleted, 17 and 18 expired, 20 and 21 BOOTP."""

USED = frozenset({"ID", "Date", "Time", "Description", "IP Address", "Host Name", "MAC Address"})


def _when(text: str) -> re.Match[str] | None:
    entry = ENTRY.match(text)
    return WHEN.match(text, entry.end()) if entry else None


def _stamp(text: str, context: Context) -> Stamp:
    match = _when(text)
    received_at = context.record.received_at
    if match is None:
        return Stamp.missing(received_at, ",".join(text.split(",")[1:3]))
    month, day, year, clock = match.groups()
    full = year if len(year) == 4 else f"20{year}"
    stamp = stamp_iso(f"{full}-{month}-{day} {clock}", context.zone(context.host), received_at)
    return stamp._replace(original=f"{month}/{day}/{year} {clock}")


def _entry(text: str, context: Context) -> Event:
    values = text.split(",")
    if not LEAST <= len(values) <= len(COLUMNS):
        raise Unreadable(f"{len(values)} fields; an entry has {LEAST} to {len(COLUMNS)}")
    part = dict(zip(COLUMNS, (value.strip() for value in values), strict=False))
    code = int(part["ID"])
    stamp = _stamp(text, context)
    transaction = part.get("TransactionID") or None
    rest = {name: value for name, value in part.items() if value and name not in USED}
    activity = ACTIVITY.get(code)
    if activity is None:
        return _base(part["Description"], stamp, context, part["ID"], rest | _client(part))
    rest.pop("TransactionID", None)
    return dhcp_event(
        activity,
        context,
        stamp,
        PRODUCT,
        activity_name="Pool exhausted" if activity == OTHER else None,
        ip=part["IP Address"] or None,
        mac=part["MAC Address"] or None,
        hostname=part["Host Name"] or None,
        host=context.host,
        refused=part["Description"] if activity == OTHER else None,
        transaction_uid=None if transaction == "0" else transaction,
        is_renewal=code == 11 if activity == ACK else None,
        message=part["Description"],
        rest=rest,
        fields={"event_code": part["ID"]},
    )


def _client(part: dict[str, str]) -> dict[str, str]:
    return {name: part[name] for name in ("IP Address", "Host Name", "MAC Address") if part[name]}


def _base(
    text: str, stamp: Stamp, context: Context, code: str | None, rest: dict[str, str]
) -> Event:
    return event(
        BASE,
        0,
        stamp,
        message=text,
        metadata=metadata(PRODUCT, stamp, event_code=code),
        device=device(context.host),
        unmapped=unmapped(rest),
    )


@dataclass(frozen=True)
class WindowsDhcp(Source):
    """The audit log, a line a record."""

    name: str = "windows_dhcp"

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = record.raw
        text = one_line(raw) if raw.strip() else ""
        if ENTRY.match(text):
            return [_entry(text, context)]
        # A blank line is part of the preface, but nothing at all was never a line.
        if len(raw) > LINE_BYTES or not raw or not PREFACE.fullmatch(text):
            raise Unreadable(f"neither an entry nor the preface at byte 0: '{text[:40]}'")
        stamp = Stamp.missing(record.received_at, None)
        return [_base(text.strip(), stamp, context, None, {})]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        match = _when(text)
        if match is None:
            raise Unreadable(f"no date and time in '{text[:40]}'")
        local = when.astimezone(zone)
        year = f"{local:%y}" if len(match[3]) == 2 else f"{local.year:04d}"
        new = f"{local:%m/%d}/{year},{local:%H:%M:%S},"
        return (text[: match.start()] + new).encode() + raw[len(text[: match.end()].encode()) :]


SOURCES = (WindowsDhcp(),)
