"""The audit logs of the Windows DHCP server: `DhcpSrvLog-Mon.log`, `DhcpV6SrvLog-Mon.log`.

Lines are comma-separated, in local time without a zone, written MM/DD/YY. A
file starts with a preface that explains the event ids and names the columns;
those lines become base events, so that they neither count as dead letters nor
vanish. The client chooses its host name: a line with more fields than the
format has could shift the hardware address, so it is refused, as is one of IPv6
whose client identifier has not the length that stands before it. Format:
https://learn.microsoft.com/en-us/previous-versions/windows/it-pro/windows-server-2008-R2-and-2008/dd183591(v=ws.10)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    BASE,
    FAILURE,
    OTHER,
    SUCCESS,
    address,
    device,
    event,
    mac_address,
    metadata,
    unmapped,
)
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, LINE_BYTES
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import Stamp, stamp_parts
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    EXPIRE,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
    mac_of_duid,
)

_PRODUCT: Mapping[str, str] = {"name": "Windows DHCP Server", "vendor_name": "Microsoft"}

_COLUMNS = (
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
_COLUMNS6 = (
    "ID",
    "Date",
    "Time",
    "Description",
    "IPv6 Address",
    "Host Name",
    "Error Code",
    "Duid Length",
    "Duid Bytes(Hex)",
    "User Name",
    "Dhcid",
    "Subnet Prefix",
    "",
    "",
)
"""The last two are empty, and have no name in the file either."""
LEAST = 7
"""Fields of the oldest servers, up to the hardware address."""

_ENTRY = re.compile(r"\d{2,5},")
IS_6 = re.compile(r"11\d{2,3},")
"""Event ids of DHCPv6: 11000 and up, and 1103 for some of its service."""
_HEADER = re.compile(r"(?:#?Fields: )?ID,\s*[^,]{1,40},(?:[^,]{0,40},){3,20}[^,]{0,40}")
PREFACE = re.compile(
    r"\s*(?:Microsoft .{1,200}|Event ID\s+Meaning|\d{2,5}\+?\s+\S.*"
    r"|QResult\b.*|ID,\s*Date,.*)?",
    re.ASCII,
)
WHEN = re.compile(
    r"(?P<a>\d{1,4})(?P<mark>[/.-])(?P<b>\d{1,2})(?P=mark)(?P<c>\d{4}|\d\d),"
    r"(?P<clock>\d{1,2}:\d\d:\d\d),",
    re.ASCII,
)

_ACTIVITY = MappingProxyType(
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
        11000: DISCOVER,
        11001: OFFER,
        11002: REQUEST,
        11003: REQUEST,
        11004: REQUEST,
        11005: REQUEST,
        11006: DECLINE,
        11007: RELEASE,
        11008: INFORM,
        11009: OTHER,
        11014: DECLINE,
        11015: DECLINE,
        11016: EXPIRE,
        11018: EXPIRE,
    }
)
"""Leases by event id: 10 new, 11 renewed, 12 released, 13 found in use, 14 and 22 pool
exhausted, 15 denied, 16 and 23 deleted, 17 and 18 expired, 20 and 21 BOOTP. Of DHCPv6 the
log has the clients' messages, by their names, and not the server's answers."""
_FAILED = frozenset({"31", "33", "34", "35", "36", "54", "56", "58", "59", "60", "1098", "11023"})
_DONE = frozenset({"32", "51", "55", "1103", "11024"})
"""What failed and what succeeded among all else: DNS updates, authorisation, dropped packets."""

_CLIENTS = frozenset({"30", "31", "32", "33", "34", "35", "36"})
"""Event ids of what concerns a client without being a lease."""

_USED = frozenset(
    {
        *("ID", "Date", "Time", "Description", "IP Address", "Host Name", "MAC Address"),
        *("IPv6 Address", "Duid Length", "Duid Bytes(Hex)", ""),
    }
)


def _when(text: str) -> re.Match[str] | None:
    entry = _ENTRY.match(text)
    return WHEN.match(text, entry.end()) if entry else None


def _order(match: re.Match[str]) -> str:
    """In which order the date stands: the server's own, or that of a locale."""
    if len(match["a"]) == 4:
        return "ymd"
    # With points, or a first number that is no month, the day stands first.
    if match["mark"] == "." or (int(match["a"]) > 12 and int(match["b"]) <= 12):
        return "dmy"
    return "mdy"


def _stamp(text: str, context: Context) -> Stamp:
    match = _when(text)
    received_at = context.record.received_at
    if match is None:
        return Stamp.missing(received_at, ",".join(text.split(",")[1:3]))
    part = dict(zip(_order(match), match.group("a", "b", "c"), strict=True))
    # No server wrote this log in another century.
    year = part["y"] if len(part["y"]) == 4 else f"20{part['y']}"
    written = f"{match['a']}{match['mark']}{match['b']}{match['mark']}{match['c']}"
    return stamp_parts(
        int(year),
        int(part["m"]),
        int(part["d"]),
        # Some locales write the hour with one digit.
        match["clock"].zfill(8),
        context.zone(context.host),
        received_at,
        original=f"{written} {match['clock']}",
    )


def _columns(text: str, header: Sequence[str] | None) -> Sequence[str]:
    """The columns of an entry: of the two formats, or as many as its file's header names."""
    if IS_6.match(text):
        return _COLUMNS6
    if header and 0 < len(header) - LEAST < 40 and header[0] == "ID":
        return [*_COLUMNS[: len(header)], *header[len(_COLUMNS) :]]
    return _COLUMNS


def _entry(text: str, context: Context, header: Sequence[str] | None = None) -> Event:
    values = text.split(",")
    columns = _columns(text, header)
    # One more than the least: the oldest servers end each line with a comma.
    if not LEAST <= len(values) <= max(len(columns), LEAST + 1):
        raise Unreadable(f"{len(values)} fields; an entry has {LEAST} to {len(columns)}")
    part = dict(zip(columns, (value.strip() for value in values), strict=False))
    part.pop("", None)
    stamp = _stamp(text, context)
    rest = {name: value for name, value in part.items() if value and name not in _USED}
    activity = _ACTIVITY.get(int(part["ID"]))
    if activity is None:
        rest |= _client(part)
        about = _about(rest) if part["ID"] in _CLIENTS else None
        return _base(part["Description"], stamp, context, part["ID"], rest, about)
    make = _lease6 if columns is _COLUMNS6 else _lease
    return make(activity, part, rest, stamp, context)


def _lease(
    activity: int, part: dict[str, str], rest: dict[str, str], stamp: Stamp, context: Context
) -> Event:
    transaction = rest.pop("TransactionID", None)
    mac = mac_address(part["MAC Address"])
    if mac is None and part["MAC Address"]:
        rest["MAC Address"] = part["MAC Address"]  # a client's identifier of another kind
    return dhcp_event(
        activity,
        context,
        stamp,
        _PRODUCT,
        activity_name="Pool exhausted" if activity == OTHER else None,
        ip=part["IP Address"] or None,
        mac=mac,
        hostname=part["Host Name"] or None,
        host=context.host,
        refused=part["Description"] if activity == OTHER else None,
        transaction_uid=None if transaction == "0" else transaction,
        is_renewal=part["ID"] == "11" if activity == ACK else None,
        message=part["Description"],
        rest=rest,
        fields={"event_code": part["ID"]},
    )


def _lease6(
    activity: int, part: dict[str, str], rest: dict[str, str], stamp: Stamp, context: Context
) -> Event:
    written, length = part.get("Duid Bytes(Hex)", ""), part.get("Duid Length", "")
    try:
        duid = bytes.fromhex(written)
    except ValueError:
        raise Unreadable(f"'{written[:40]}' where a client's identifier should stand") from None
    # A host name with a comma would shift the columns; the length tells of it.
    if length.isdecimal() and int(length[:9]) != len(duid):
        raise Unreadable(f"an identifier of {len(duid)} bytes; the entry says {length[:9]}")
    code = rest.get("Error Code", "0")
    ip = address(part["IPv6 Address"])
    if ip is None and part["IPv6 Address"]:
        raise Unreadable(f"'{part['IPv6 Address'][:40]}' where an IP address should stand")
    return dhcp_event(
        activity,
        context,
        stamp,
        _PRODUCT,
        activity_name="Pool exhausted" if activity == OTHER else None,
        ip=ip,
        mac=mac_of_duid(duid),
        hostname=part["Host Name"] or None,
        host=context.host,
        client_uid=duid.hex(":") or None,
        refused=part["Description"] if activity == OTHER or code not in ("0", "") else None,
        message=part["Description"],
        rest=rest,
        fields={"event_code": part["ID"]},
    )


def _client(part: dict[str, str]) -> dict[str, str]:
    names = ("IP Address", "Host Name", "MAC Address", "IPv6 Address", "Duid Bytes(Hex)")
    return {name: part[name] for name in names if part.get(name)}


def _about(rest: dict[str, str]) -> dict[str, str | None] | None:
    """The client of an update of DNS or of a dropped packet; what is used goes out of `rest`."""
    ip, mac = address(rest.get("IP Address", "")), mac_address(rest.get("MAC Address"))
    for name, value in (("IP Address", ip), ("MAC Address", mac)):
        if value:
            del rest[name]
    results = {"ip": ip, "mac": mac, "hostname": rest.pop("Host Name", None)}
    # OCSF wants an endpoint to have more than a hardware address.
    if not ip and not results["hostname"]:
        results["name"] = mac
    return results if any(results.values()) else None


def _base(
    text: str,
    stamp: Stamp,
    context: Context,
    code: str | None,
    rest: dict[str, str],
    about: dict[str, str | None] | None = None,
) -> Event:
    status = FAILURE if code in _FAILED else SUCCESS if code in _DONE else None
    return event(
        BASE,
        0,
        stamp,
        status_id=status,
        status_code=rest.get("DnsRegError"),
        message=text,
        metadata=metadata(_PRODUCT, stamp, event_code=code),
        src_endpoint=about,
        device=device(context.host),
        unmapped=unmapped(rest),
    )


@dataclass(frozen=True)
class WindowsDhcp(Source):
    """The audit log, a line a record, or a file of it."""

    name: str = "windows_dhcp"

    def is_header(self, line: bytes) -> bool:
        return line.startswith(b"ID,") and _HEADER.fullmatch(line.decode("latin-1")) is not None

    def parse(self, record: Record, context: Context) -> list[Event]:
        # Windows tools like to put a byte order mark before UTF-8.
        raw = record.raw.removeprefix(b"\xef\xbb\xbf")
        lines = raw.splitlines(keepends=True)
        if len(lines) > 1 and raw.strip():
            return self._file(lines, record, context)
        named = (context.header or b"").decode("utf-8", "replace").splitlines()
        return [self._line(raw, record, context, named[-1].split(",") if named else None)]

    def _file(self, lines: Sequence[bytes], record: Record, context: Context) -> list[Event]:
        if len(record.raw) > FILE_BYTES:
            raise Unreadable(
                f"the record has {len(record.raw)} bytes; at most {FILE_BYTES} are read"
            )
        header: Sequence[str] | None = None
        events: list[Event] = []
        for line in lines:
            if self.is_header(line.rstrip()):
                header = line.decode("utf-8", "replace").rstrip().split(",")
            try:
                events.append(self._line(line, record, context, header))
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
        if all("dead_letter_reason" in event for event in events):
            one_line(record.raw)  # says that it is more than a line
        return events

    def _line(
        self, raw: bytes, record: Record, context: Context, header: Sequence[str] | None
    ) -> Event:
        text = one_line(raw) if raw.strip() else ""
        if _ENTRY.match(text):
            return _entry(text, context, header)
        # A blank line is part of the preface, but nothing at all was never a line.
        is_header = PREFACE.fullmatch(text) or _HEADER.fullmatch(text)
        if len(raw) > LINE_BYTES or not raw or not is_header:
            raise Unreadable(f"neither an entry nor the preface at byte 0: '{text[:40]}'")
        stamp = Stamp.missing(record.received_at, None)
        return _base(text.strip(), stamp, context, None, {})

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        match = _when(text)
        if match is None:
            raise Unreadable(f"no date and time in '{text[:40]}'")
        local = when.astimezone(zone)
        # Dates are in the server's regional format, with two or four digits of the year.
        year = {"y": f"{local:%y}" if len(match["c"]) == 2 else f"{local.year:04d}"}
        order = _order(match)
        if order == "ymd":
            year = {"y": f"{local.year:04d}"}
        part = year | {"m": f"{local:%m}", "d": f"{local:%d}"}
        date = match["mark"].join(part[letter] for letter in order)
        new = f"{date},{local:%H:%M:%S},"
        return (text[: match.start()] + new).encode() + raw[len(text[: match.end()].encode()) :]


SOURCES = (WindowsDhcp(),)
