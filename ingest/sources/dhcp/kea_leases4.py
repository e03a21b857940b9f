"""Kea's lease files, IPv4 and IPv6 (`kea-leases4.csv`, `kea-leases6.csv`), as memfile writes them.

An append log: a row a change, with a header line that names the columns. `expire` is in
seconds since 1970, so a lease began at `expire - valid_lifetime`. A release is a row with
`valid_lifetime` 0, and its `expire` is when the lease it ends *began*: the row does not say
when the client let go. In a whole file the next row that has a time bounds that from above,
to seconds on a busy server; of a row alone, or the last, its arrival stands in. Format:
https://kea.readthedocs.io/en/latest/arm/dhcp4-srv.html#memfile-basic-storage-for-leases
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import BASE, OTHER, address, event, mac_address, metadata, unmapped
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, not_utf8
from ingest.parsing.timestamps import Stamp, of_epoch
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    EXPIRE,
    INFINITE,
    RELEASE,
    dhcp_event,
    mac_of_duid,
)

PRODUCT4: Mapping[str, str] = {"name": "Kea DHCPv4", "vendor_name": "ISC"}
_PRODUCT6: Mapping[str, str] = {"name": "Kea DHCPv6", "vendor_name": "ISC"}
COLUMNS4 = (
    "address",
    "hwaddr",
    "client_id",
    "valid_lifetime",
    "expire",
    "subnet_id",
    "fqdn_fwd",
    "fqdn_rev",
    "hostname",
    "state",
    "user_context",
    "pool_id",
)
_COLUMNS6 = (
    "address",
    "duid",
    "valid_lifetime",
    "expire",
    "subnet_id",
    "pref_lifetime",
    "lease_type",
    "iaid",
    "prefix_len",
    "fqdn_fwd",
    "fqdn_rev",
    "hostname",
    "hwaddr",
    "state",
    "user_context",
    "hwtype",
    "hwaddr_source",
    "pool_id",
)
LEAST4, LEAST6 = 9, 12
"""Columns of the oldest Kea, up to the host's name."""
ASSIGNED, DECLINED, RECLAIMED, RELEASED, REGISTERED = 0, 1, 2, 3, 4
_STATES: Mapping[int, str] = MappingProxyType(
    {
        ASSIGNED: "assigned",
        DECLINED: "declined",
        RECLAIMED: "expired-reclaimed",
        RELEASED: "released",
        REGISTERED: "registered",
    }
)
_PREFIX = "2"
"""`lease_type` of a delegated prefix, which no single client uses."""
_USED = frozenset(
    {"address", "hwaddr", "client_id", "valid_lifetime", "expire", "hostname", "duid"}
)


_HEADER = re.compile(r"address,(?:hwaddr|duid)(?:,[a-z_0-9]+){3,40}", re.ASCII)


def _unescaped(value: str) -> str:
    """A value without Kea's escapes: `&#x2c` is a comma, two hex digits without an end."""
    first, *rest = value.split("&#x")
    return first + "".join(
        chr(int(piece[:2], 16)) + piece[2:] if _is_hex(piece[:2]) else f"&#x{piece}"
        for piece in rest
    )


def _is_hex(digits: str) -> bool:
    return len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row: its values by column, and its times."""

    part: Mapping[str, str]
    seconds: int
    expire: datetime | None
    state: int

    @property
    def begins(self) -> datetime | None:
        """When the lease of this row was given; None of a row that ends one."""
        if self.seconds == 0 or self.expire is None or self.state == RECLAIMED:
            return None
        return of_epoch(self.expire.timestamp() - self.seconds)


def _row(line: str, columns: Sequence[str]) -> _Row:
    values = line.split(",")
    least = LEAST6 if "duid" in columns else LEAST4
    # Kea appends columns with its versions; rows of an older one in the same file are shorter.
    if not least <= len(values) <= len(columns):
        raise Unreadable(f"{len(values)} fields; the header names {len(columns)}")
    part = dict(zip(columns, map(_unescaped, values), strict=False))
    numbers = []
    for name in ("valid_lifetime", "expire", "state"):
        value = part.get(name) or ("0" if name == "state" else "")
        # `isdecimal` alone takes digits of other scripts; 12 digits reach beyond any year.
        if not (value.isascii() and value.isdecimal() and len(value) < 13):
            raise Unreadable(f"{name}: expected a whole number, found '{value[:40]}'")
        numbers.append(int(value))
    seconds, expire, state = numbers
    # Kea writes an infinite lease as 4294967295 seconds (RFC 2131, 3.3).
    return _Row(part, min(seconds, INFINITE), of_epoch(expire), state)


def _bounds(rows: Sequence[_Row | Event]) -> list[datetime | None]:
    """For each row the first time that a row behind it tells."""
    instants: list[datetime | None] = []
    after: datetime | None = None
    # From the end, so that one walk finds for each row what follows it.
    for row in reversed(rows):
        instants.append(after)
        if isinstance(row, _Row):
            after = row.begins or (row.expire if row.state == RECLAIMED else None) or after
    return instants[::-1]


def _event(row: _Row, bound: datetime | None, renews: bool | None, context: Context) -> Event:
    part, received_at = row.part, context.record.received_at
    activity, when = OTHER, row.begins or row.expire
    if row.state == RECLAIMED:
        activity, when = EXPIRE, row.expire
    elif row.state == DECLINED:
        activity = DECLINE
    elif row.seconds == 0 or row.state == RELEASED:
        # Never before the lease began; the row behind it may be of another address.
        late = bound is not None and row.expire is not None and bound >= row.expire
        activity, when = RELEASE, bound if late else None
    elif row.state == ASSIGNED and part.get("lease_type") != _PREFIX:
        activity = ACK
    stamp = Stamp.exact(when) if when else Stamp.missing(received_at, part["expire"])
    if activity == RELEASE and when:
        # Only a bound and not the moment of the release, so it does not count as exact.
        stamp = Stamp(when, "received", part["expire"])
    duid, client = part.get("duid"), part.get("client_id")
    mac = mac_address(part.get("hwaddr"))
    if mac is None and duid:
        mac = mac_of_duid(_octets(duid))
    rest = {name: value for name, value in part.items() if value and name not in _USED}
    if part.get("hwaddr") and mac_address(part["hwaddr"]) is None:
        rest["hwaddr"] = part["hwaddr"]
    if address(part["address"]) is None:
        raise Unreadable(f"'{part['address'][:40]}' where an IP address should stand")
    words = _STATES.get(row.state, str(row.state)) if row.seconds or row.state else "released"
    return dhcp_event(
        activity,
        context,
        stamp,
        _PRODUCT6 if "duid" in part else PRODUCT4,
        activity_name=words.capitalize() if activity == OTHER else None,
        ip=part["address"],
        mac=mac,
        hostname=part.get("hostname") or None,
        host=context.host,
        client_uid=duid or client or None,
        lease_seconds=row.seconds,
        is_renewal=renews if activity == ACK else None,
        start_time=row.begins,
        end_time=row.expire if row.seconds else None,
        message=f"lease {part['address']} {words}",
        rest=rest | ({} if activity == ACK else {"valid_lifetime": part["valid_lifetime"]}),
        fields={"log_name": "kea-leases6" if "duid" in part else "kea-leases4"},
    )


def _octets(text: str) -> bytes:
    try:
        return bytes.fromhex(text.replace(":", ""))
    except ValueError:
        # An identifier that is no hex names no hardware address; it still is the client's uid.
        return b""


def _columns(line: str, header: bytes | None) -> Sequence[str]:
    """The columns of a row: as its header names them, or else those of the newest Kea."""
    named = (header or b"").decode("utf-8", "replace").splitlines()
    if named and _HEADER.fullmatch(named[-1]):
        return named[-1].split(",")
    # A row that came without its file's header is told by its address.
    return _COLUMNS6 if ":" in line.partition(",")[0] else COLUMNS4


def _text(raw: bytes) -> str:
    if not raw.strip():
        raise Unreadable("the record is empty")
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
    if b"\x00" in raw:
        raise Unreadable(f"a NUL at byte {raw.index(0)}")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(not_utf8(raw)) from None


@dataclass(frozen=True)
class KeaLeases(Source):
    """A lease file, or a row of one with its header."""

    name: str = "kea_leases4"
    whole_file: ClassVar[bool] = True

    def is_header(self, line: bytes) -> bool:
        return (
            line.startswith(b"address,") and _HEADER.fullmatch(line.decode("latin-1")) is not None
        )

    def is_whole(self, first: bytes) -> bool:
        return self.is_header(first.rstrip(b"\r\n"))

    def parse(self, record: Record, context: Context) -> list[Event]:
        lines = [line for line in _text(record.raw).split("\n") if line.strip()]
        if not lines:
            raise Unreadable("the record is empty")
        rows: list[_Row | Event] = []
        columns: Sequence[str] = ()
        for line in (line_row.rstrip("\r") for line_row in lines):
            if _HEADER.fullmatch(line):
                columns = line.split(",")
                continue
            try:
                rows.append(_row(line, columns or _columns(line, context.header)))
            except Unreadable as why:
                rows.append({"dead_letter_reason": str(why)})
        as_list = list(_events(rows, context))
        if not rows:
            return [_header(lines[-1], context)]
        if all("dead_letter_reason" in line_row for line_row in as_list):
            raise Unreadable(str(as_list[0]["dead_letter_reason"]))
        return as_list

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if "\n" in line or _HEADER.fullmatch(line):
            raise Unreadable("a whole file, or its header; only a row has one time")
        columns = _columns(line, None)
        row = _row(line, columns)
        values = raw.split(b",")
        begins = int(when.timestamp())
        ends = begins if row.state == RECLAIMED else begins + row.seconds
        values[list(columns).index("expire")] = str(ends).encode()
        return b",".join(values)


def _events(rows: Sequence[_Row | Event], context: Context) -> Iterator[Event]:
    held: dict[str, tuple[str, datetime | None]] = {}
    for row, bound in zip(rows, _bounds(rows), strict=True):
        if not isinstance(row, _Row):
            yield row
            continue
        where = row.part["address"]
        who = row.part.get("hwaddr") or row.part.get("duid") or ""
        holder, until = held.pop(where, ("", None))
        renews = None
        if holder and until and row.begins:
            renews = holder == who and row.begins <= until
        if row.begins and row.state == ASSIGNED:
            held[where] = (who, row.expire)
        try:
            yield _event(row, bound, renews, context)
        except Unreadable as why:
            yield {"dead_letter_reason": str(why)}


def _header(line: str, context: Context) -> Event:
    stamp = Stamp.missing(context.record.received_at, None)
    return event(
        BASE,
        0,
        stamp,
        message="the header of a lease file",
        metadata=metadata(PRODUCT4, stamp),
        unmapped=unmapped({"header": line}),
    )


SOURCES = (KeaLeases(),)
