"""What the records of all Zeek logs have in common, taken field by field.

A value that does not fit its field, such as a port of 99999, stays where it is and so ends
in `unmapped` under its own name; the event goes on without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    AN_IP,
    AUTHENTICATION,
    BASE,
    EMAIL,
    FINDING,
    FTP,
    NETWORK,
    NTP,
    RDP,
    SMB,
    SOFTWARE,
    SSH,
    address,
    device,
    event,
    kept,
    mac_address,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.ocsf_export import milliseconds as ms_of
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import INT64, LINE_BYTES, integral
from ingest.parsing.timestamps import EPOCH, Stamp, of_iso, stamp_epoch, stamp_iso
from ingest.sources.zeek.tsv import layout

PRODUCT: Mapping[str, str] = {"name": "Zeek", "vendor_name": "Zeek"}
PORT = 65535
PROTOCOLS = MappingProxyType({"icmp": 1, "tcp": 6, "udp": 17})
TIME_KEYS = ("@timestamp", "timestamp")
"""Where shippers put the time when they take `ts` away."""
DIGITS = re.compile(r"\d{1,19}", re.ASCII)

_NESTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "id": ("orig_h", "orig_p", "resp_h", "resp_p"),
        "certificate": (
            *("version", "serial", "subject", "issuer", "not_valid_before", "not_valid_after"),
            *("key_alg", "sig_alg", "key_type", "key_length", "exponent", "curve", "cn"),
        ),
        "san": ("dns", "uri", "email", "ip"),
        "basic_constraints": ("ca", "path_len"),
        "data_channel": ("passive", "orig_h", "resp_h", "resp_p"),
        "remote_location": ("country_code", "region", "city", "latitude", "longitude"),
        "times": ("modified", "accessed", "created", "changed"),
        "version": ("major", "minor", "minor2", "minor3", "addl"),
        "seen": ("indicator", "indicator_type", "where", "node"),
        "alert": (
            *("action", "gid", "signature_id", "rev", "signature", "category", "severity"),
            "metadata",
        ),
    }
)
"""Fields that are records in Zeek: `certificate.serial`, which some shippers write
`certificate_serial` and some `"certificate": {"serial": ...}`."""
_DOTTED = MappingProxyType(
    {f"{nest}_{leaf}": f"{nest}.{leaf}" for nest, leaves in _NESTS.items() for leaf in leaves}
)
_TIMES = frozenset(
    {
        *("compile_ts", "ref_time", "org_time", "rec_time", "xmt_time", "up_since", "till", "from"),
        *("times.modified", "times.accessed", "times.created", "times.changed", "last_seen"),
        *("certificate.not_valid_before", "certificate.not_valid_after", "first_seen"),
        *("revoketime", "thisUpdate", "nextUpdate"),
    }
)
"""Times besides `ts`, in JSON numbers or ISO text as Zeek was told."""
_UTC = ZoneInfo("UTC")
_BETWEEN_ENDS = frozenset({NETWORK, NTP, RDP, SMB, SSH, FTP})
_WITHOUT_CONNECTION = frozenset({BASE, AUTHENTICATION, EMAIL, SOFTWARE})


def dotted(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` in Zeek's own spelling, in their order."""
    results: dict[str, Any] = {}
    for key, value in fields.items():
        if type(value) is dict and key in _NESTS:
            inner = {f"{key}.{leaf}": element for leaf, element in value.items()}
            # A field that is there in both spellings must not replace itself; then all stays as it
            # is.
            if inner.keys().isdisjoint(fields) and inner.keys().isdisjoint(results):
                results |= inner
                continue
        name = _DOTTED.get(key, key)
        results[key if name in fields or name in results else name] = value
    return results


def stamp_of(fields: dict[str, Any], context: Context, host: str | None) -> Stamp:
    """Take the time out of a record: a number since 1970, of any unit, or ISO text."""
    ts = fields.pop("ts", None)
    if ts is None:
        key = next((key for key in TIME_KEYS if fields.get(key) is not None), None)
        ts = None if key is None else fields.pop(key)
    received_at = context.record.received_at
    if type(ts) is str:
        stamp = stamp_iso(ts, context.zone(host), received_at)
        # A number may come as text, as some shippers put quotes around all.
        return stamp if stamp.quality != "received" else stamp_epoch(ts, received_at)
    return stamp_epoch(ts, received_at)


@dataclass(slots=True)
class Row:
    """One record: who spoke to whom and when, and in `fields` what is not used yet."""

    log: str | None
    fields: dict[str, Any]
    context: Context
    sensor: str | None
    stamp: Stamp
    uid: str | None = None
    src: dict[str, Any] = field(default_factory=dict)
    dst: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: dict[str, Any], context: Context, log: str | None) -> Row:
        """The record that `fields`, which are used up, are."""
        fields = dotted(fields)
        # Corelight's sensors name themselves; what forwards their logs is only the sender.
        named = [key for key in ("@system", "_system_name") if type(fields.get(key)) is str]
        sensor = fields.pop(named[0]) if named else context.host
        row = cls(log, fields, context, sensor, stamp_of(fields, context, sensor))
        row.uid = row.text("uid")
        row.src = row.end("id.orig_h", "id.orig_p", "orig_l2_addr")
        row.dst = row.end("id.resp_h", "id.resp_p", "resp_l2_addr")
        return row

    # -- taking fields; None leaves them where they are ------------------------------------

    def text(self, key: str) -> str | None:
        """Take a text that is not empty."""
        value = self.fields.get(key)
        if type(value) is not str or not value:
            return None
        del self.fields[key]
        return value

    def count(self, key: str, most: int = INT64 - 1) -> int | None:
        """Take a whole number from 0 to `most`."""
        value = integral(self.fields.get(key))
        if type(value) is str and DIGITS.fullmatch(value):
            value = int(value)
        if type(value) is not int or not 0 <= value <= most:
            return None
        del self.fields[key]
        return value

    def span(self, key: str) -> float | None:
        """Take a span in seconds."""
        value = self.fields.get(key)
        if (type(value) is not float and type(value) is not int) or not 0 <= value < 1e10:
            return None
        del self.fields[key]
        return float(value)

    def flag(self, key: str) -> bool | None:
        """Take a truth value."""
        value = self.fields.get(key)
        if type(value) is not bool:
            return None
        del self.fields[key]
        return value

    def texts(self, key: str) -> list[str]:
        """Take an array of texts, or a single text; empty where there is neither."""
        value = self.fields.get(key)
        values = [value] if type(value) is str and value else value
        if type(values) is not list or not all(
            type(element) is str and element for element in values
        ):
            return []
        if values:
            del self.fields[key]
        return values

    def ip(self, key: str) -> str | None:
        """Take an IP address."""
        value = self.fields.get(key)
        ip_address = address(value) if type(value) is str else None
        if ip_address is not None:
            del self.fields[key]
        return ip_address

    def mac(self, key: str) -> str | None:
        """Take a hardware address of six octets."""
        value = self.fields.get(key)
        clean_mac = mac_address(value) if type(value) is str else None
        if clean_mac is not None:
            del self.fields[key]
        return clean_mac

    def time(self, key: str) -> datetime | None:
        """Take a time, ISO text or seconds since 1970."""
        moment = _moment(self.fields.get(key))
        if moment is not None:
            del self.fields[key]
        return moment

    def time_ms(self, key: str) -> int | None:
        """Take a time as milliseconds since 1970, as `more` has times."""
        time = self.time(key)
        return None if time is None else ms_of(time)

    def end(self, host: str, port: str, mac: str | None = None) -> dict[str, Any]:
        """Take one end of a connection; empty if its address is none."""
        ip = self.ip(host)
        if ip is None:
            return {}
        results: dict[str, Any] = {"ip": ip, "port": self.count(port, PORT)}
        if mac is not None and mac in self.fields:
            results["mac"] = self.mac(mac)
        return results

    # -- giving the event ------------------------------------------------------------------

    def event(
        self,
        class_uid: int,
        activity_id: int,
        *,
        protocol: str | None = None,
        code: str | None = None,
        seen: Iterable[tuple[str, int, Any]] = (),
        seconds: float | None = None,
        **columns: Any,
    ) -> Event:
        """The event of this record, whose fields that are left go to `unmapped`.

        Of a class of the network without any end known, it is a base event. `code` is
        the product's name for what happened, `seen` are observables besides the addresses.
        """
        if class_uid in _BETWEEN_ENDS and not self.src and not self.dst:
            # OCSF has no event between two ends of which neither is known.
            class_uid, activity_id = BASE, 0
            columns.pop("activity_name", None)
        # A finding may be about a host alone: only an id or a protocol shows that there was a
        # connection.
        known = self.uid or protocol if class_uid == FINDING else self.src or self.dst
        if class_uid not in _WITHOUT_CONNECTION and known:
            columns = {"connection_info": self.connection(protocol)} | columns
        elif protocol is not None:
            # Without a connection the protocol has no column, and stays under Zeek's own name.
            self.fields.setdefault("proto", protocol)
        common = {"device": device(self.sensor)} | span_of(self.stamp, seconds)
        return event(
            class_uid,
            activity_id,
            self.stamp,
            metadata=metadata(
                PRODUCT,
                self.stamp,
                **kept(log_name=self.log, event_code=code, correlation_uid=self.uid),
            ),
            src_endpoint=self.src or None,
            dst_endpoint=self.dst or None,
            observables=observables(
                ("src_endpoint.ip", AN_IP, self.src.get("ip")),
                ("dst_endpoint.ip", AN_IP, self.dst.get("ip")),
                *seen,
            ),
            unmapped=unmapped(self.rest()),
            **(common | columns),
        )

    def connection(self, protocol: str | None) -> dict[str, Any]:
        """The connection; its direction is said by few logs."""
        ip = self.src.get("ip") or self.dst.get("ip") or ""
        results = {
            "uid": self.uid,
            "protocol_name": protocol,
            "protocol_num": PROTOCOLS.get(protocol or ""),
            "protocol_ver_id": 6 if ":" in ip else 4,
            "direction_id": 0,
            "direction": "Unknown",
        }
        community = self.text("community_id")
        return results | ({} if community is None else {"community_uid": community})

    def rest(self) -> dict[str, Any]:
        """The fields left, the same from text and from JSON.

        Text has six digits after the point, which is what Zeek measures: what a double
        in JSON shows behind them is noise. Times are in ISO form.
        """
        return {key: _same(key, value) for key, value in self.fields.items() if value is not None}


def _same(key: str, value: Any) -> Any:
    if key in _TIMES:
        time = _moment(value)
        if time is not None:
            return f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"
    if type(value) is float:
        return round(value, 6)
    if type(value) is list:
        return [round(element, 6) if type(element) is float else element for element in value]
    return value


def _moment(value: object) -> datetime | None:
    if type(value) is str:
        read = of_iso(value, _UTC) if len(value) < 64 else None
        return read[0] if read else None
    if type(value) is not float and type(value) is not int:
        return None
    stamp = stamp_epoch(value, EPOCH)
    return stamp.time if stamp.quality == "exact" else None


def span_of(stamp: Stamp, seconds: float | None) -> dict[str, Any]:
    """Start, end and milliseconds of what began at `stamp` and took `seconds`, if that is known."""
    if seconds is None:
        return {}
    try:
        end = stamp.time + timedelta(seconds=seconds)
    except OverflowError:
        end = None
    # By way of microseconds, as Zeek's text has them: JSON shows 0.1035 as 0.10349988937.
    milliseconds = round(round(seconds * 1_000_000) / 1000)
    return {"start_time": stamp.time, "end_time": end, "duration": milliseconds}


def header_event(raw: bytes, context: Context) -> Event:
    """Header lines that came as a record of their own: what they announce."""
    stamp = Stamp.missing(context.record.received_at, None)
    lines = raw.decode(errors="replace")[:LINE_BYTES].rstrip("\r\n")
    try:
        header = layout(raw)
        message = f"Header of Zeek's log {header.path or ''}: {len(header.columns)} fields"
    except Unreadable:
        message = "Header line of a Zeek log"
    return event(
        BASE,
        0,
        stamp,
        message=message,
        metadata=metadata(PRODUCT, stamp),
        device=device(context.host),
        unmapped=unmapped({"header": lines}),
    )
