"""Suricata's EVE log: alerts, flows, files and what it read of protocols.

https://docs.suricata.io/en/latest/output/eve/eve-json-format.html . A packet that
raised an alert may be the server's; where the event says so (`direction`, the flow's
own addresses), its ends are turned, so that the client is the source. As the log had
them they stand in `unmapped`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import JsonSource
from ingest.parsing.json_time import restamp_json
from ingest.parsing.ocsf import (
    BASE,
    FINDING,
    LOW,
    NETWORK,
    OTHER,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, ParseSettings, Read, Record, Unreadable
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso
from ingest.sources.shared.firewall import (
    CLOSE,
    REFUSE,
    TRAFFIC,
    Fields,
    endpoint,
    firewall_disposition,
    located,
    severity,
    traffic,
)
from ingest.sources.suricata.alert import rule_columns
from ingest.sources.suricata.common import (
    Entry,
    http_seen,
    read_dns,
    read_file,
    read_http,
    read_tls,
    seconds_between,
)
from ingest.sources.suricata.protocols import READERS

if TYPE_CHECKING:
    import pyarrow as pa

_CREATE = 1
"""OCSF's type of an analytic that is a rule."""
# Suricata's output to syslog, and what rsyslog calls JSON in a message.
SYSLOG = re.compile(rb"(?:<\d{1,3}>)?[^{}\n]{0,200}(?:suricata(?:\[\d+\])?: ?(?:@cee: ?)?|@cee: ?)")


def _ends(fields: Fields, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Source and destination, the client first where the event says which it is."""
    ether = fields.child("ether")
    macs = ether.mac("src_mac"), ether.mac("dest_mac")
    fields.keep("ether", ether.left())
    source = kept(ip=fields.ip("src_ip"), port=fields.port("src_port"), mac=macs[0])
    target = kept(ip=fields.ip("dest_ip"), port=fields.port("dest_port"), mac=macs[1])
    if not _turned(fields, kind, source, target):
        return source, target
    for prefix, end in (("src", source), ("dest", target)):
        for leaf in ("ip", "port"):
            if leaf in end:
                fields[f"{prefix}_{leaf}"] = end[leaf]
    return target, source


def _turned(
    fields: Fields, kind: str, source: Mapping[str, Any], target: Mapping[str, Any]
) -> bool:
    """Whether the server sent what the event is about."""
    flow = fields.get("flow")
    if type(flow) is dict and flow.keys() >= {"src_ip", "dest_ip"}:
        of_flow = Fields(flow)
        client, server = of_flow.ip("src_ip"), of_flow.ip("dest_ip")
        ports = of_flow.port("src_port"), of_flow.port("dest_port")
        same = client == target.get("ip") and server == source.get("ip")
        # Where both ends are the same machine, only the ports can tell them apart.
        if client and server and (client != server or ports[0] != ports[1]):
            return same and ports in ((None, None), (target.get("port"), source.get("port")))
    if fields.get("direction") == "to_client":
        return True
    if kind == "dns":
        # Version 1 wrote an answer as its packet went.
        inner = fields.get("dns")
        answer = type(inner) is dict and inner.get("type") == "answer"
        return answer and source.get("port") == 53 and target.get("port") != 53
    if kind == "fileinfo":
        # The sender of a file stands first; what is fetched comes from the server.
        inner = fields.get("http")
        return type(inner) is dict and inner.get("http_method") == "GET"
    return False


def _entry(fields: Fields, kind: str, context: Context) -> Entry:
    sensor = fields.text("host", "sensor_name", "hostname") or context.host
    spelled = fields.pop("timestamp", None)
    zone, received_at = context.zone(sensor), context.record.received_at
    if type(spelled) is str and not spelled.isdecimal():
        stamp = stamp_iso(spelled, zone, received_at)
    else:
        stamp = stamp_epoch(spelled, received_at)
    source, target = _ends(fields, kind)
    flow_id = fields.number("flow_id")
    links = kept(community_uid=fields.text("community_id"))
    detail = fields.child("smtp" if kind == "email" else kind)
    return Entry(
        kind=kind,
        fields=fields,
        detail=detail,
        stamp=stamp,
        context=context,
        source=endpoint(**source),
        target=endpoint(**target),
        protocol=fields.text("proto"),
        sensor=sensor,
        flow_id=None if flow_id is None else str(flow_id),
        links=links,
    )


# -- types -------------------------------------------------------------------------------------


def _alert(entry: Entry) -> Event:
    """A rule that matched."""
    rule = rule_columns(entry.detail)
    columns = _carried(entry)
    numbers = _counted(entry)
    uid = rule["finding_info"]["uid"]
    rule["finding_info"]["created_time"] = entry.stamp.time
    return located(
        FINDING,
        _CREATE,
        entry.stamp,
        connection_info=entry.connection(),
        app_name=_spoken(entry),
        observables=entry.seen(*http_seen(columns)),
        **rule,
        **columns,
        **numbers,
        **entry.common(event_code=None if uid == "unknown" else uid),
        unmapped=entry.rest(),
    )


def _spoken(entry: Entry) -> str | None:
    """The application protocol; `failed` says that none was recognised, and stays unmapped."""
    return None if entry.fields.get("app_proto") == "failed" else entry.fields.text("app_proto")


def _carried(entry: Entry) -> dict[str, Any]:
    """What an alert says of the protocol that the packet belonged to."""
    fields = entry.fields
    columns: dict[str, Any] = {}
    http, tls, dns = fields.child("http"), fields.child("tls"), fields.child("dns")
    columns |= read_http(http) if http else {}
    columns |= read_dns(dns) if dns else {}
    if tls:
        columns["tls"] = read_tls(tls, entry.context) or None
    for name, left in (("http", http), ("tls", tls), ("dns", dns)):
        fields.keep(name, left.left())
    files = fields.get("files")
    if type(files) is list and len(files) == 1 and type(files[0]) is dict:
        file = Fields(files[0])
        columns["file"] = read_file(file) or None
        del fields["files"]
        fields.keep("files", [file.left()] if file.left() else None)
    return columns


def _counted(entry: Entry) -> dict[str, Any]:
    """Volume and times of the flow, as far as it is known."""
    flow = entry.detail if entry.kind == "flow" else entry.fields.child("flow")
    if not flow:
        return {}
    for name in ("src_ip", "dest_ip"):
        flow.ip(name)
    for name in ("src_port", "dest_port"):
        flow.port(name)
    leaves = kept(
        traffic=traffic(
            flow.number("bytes_toserver"),
            flow.number("bytes_toclient"),
            flow.number("pkts_toserver"),
            flow.number("pkts_toclient"),
        )
    ) | _times(flow, entry)
    if entry.kind != "flow":
        entry.fields.keep("flow", flow.left())
    return leaves


def _times(fields: Fields, entry: Entry) -> dict[str, Any]:
    zone, received_at = entry.context.zone(entry.sensor), entry.context.record.received_at
    stamps: dict[str, Stamp] = {}
    for name in ("start", "end"):
        value = fields.get(name)
        if type(value) is str:
            stamp = stamp_iso(value, zone, received_at)
            if stamp.quality != "received":
                del fields[name]
                stamps[name] = stamp
    both = len(stamps) == 2
    return kept(
        start_time=stamps["start"].time if "start" in stamps else None,
        end_time=stamps["end"].time if "end" in stamps else None,
        duration=seconds_between(stamps["start"], stamps["end"]) if both else None,
    )


def _flow(entry: Entry) -> Event:
    """A flow that ended, or both of its halves on their own (`netflow`)."""
    detail = entry.detail
    if entry.kind == "netflow":
        sent, packets = detail.number("bytes"), detail.number("pkts")
        # Each half of a flow is an event of its own, and counts what its side sent.
        columns = kept(traffic=traffic(sent, None, packets, total=sent, packets=packets))
        columns |= _times(detail, entry)
    else:
        columns = _counted(entry)
    state = detail.text("state")
    tcp = entry.fields.child("tcp")
    flags = tcp.text("tcp_flags")
    entry.fields.keep("tcp", tcp.left())
    if flags:
        entry.links["flag_history"] = flags
    action = detail.text("action")
    allowed = {"pass": True, "accept": True, "drop": False}.get(action or "")
    activity = REFUSE if allowed is False else CLOSE if state == "closed" else TRAFFIC
    return located(
        NETWORK,
        activity,
        entry.stamp,
        **firewall_disposition(allowed),
        status_code=state,
        status_detail=detail.text("reason"),
        message=f"Flow from {entry.ends()}",
        app_name=_spoken(entry),
        connection_info=entry.connection(),
        observables=entry.seen(),
        **columns,
        **entry.common(),
        unmapped=entry.rest(),
    )


def drop(entry: Entry) -> Event:
    """A packet that Suricata did not let through."""
    reason = entry.detail.text("reason")
    rule = entry.fields.child("alert")
    sid, title = rule.number("signature_id"), rule.text("signature")
    entry.fields.keep("alert", rule.left())
    return located(
        NETWORK,
        REFUSE,
        entry.stamp,
        **firewall_disposition(False),
        status_detail=reason,
        message=f"Packet from {entry.ends()} dropped" + (f": {reason}" if reason else ""),
        firewall_rule=kept(uid=None if sid is None else str(sid), name=title) or None,
        app_name=_spoken(entry),
        connection_info=entry.connection(),
        observables=entry.seen(),
        **_counted(entry),
        **entry.common(),
        unmapped=entry.rest(),
    )


def _anomaly(entry: Entry) -> Event:
    """A packet or protocol that is not as it should be."""
    what = entry.detail.text("event")
    return located(
        NETWORK,
        OTHER,
        entry.stamp,
        activity_name="Anomaly",
        severity_id=LOW,
        status_code=what,
        message=f"Anomaly {what or ''} from {entry.ends()}",
        app_name=_spoken(entry) or entry.detail.text("app_proto"),
        connection_info=entry.connection(),
        observables=entry.seen(),
        **entry.common(event_code=what),
        unmapped=entry.rest(),
    )


def about_itself(entry: Entry) -> Event:
    """Suricata's counters, and what its engine says of itself."""
    words = entry.detail.text("message")
    level = entry.fields.text("log_level", "level")
    return located(
        BASE,
        UNKNOWN,
        entry.stamp,
        severity_id=severity(level),
        message=words or f"Suricata {entry.kind}",
        **entry.common(event_code=entry.detail.text("error")),
        unmapped=entry.rest(),
    )


def _other(entry: Entry) -> Event:
    """Traffic of any other protocol; all that is said of it stands in `unmapped`."""
    if entry.source is None and entry.target is None:
        return about_itself(entry)
    tls = None
    if entry.kind == "quic":
        sni, ja3 = entry.detail.text("sni"), entry.detail.child("ja3")
        # QUIC has no other version (RFC 9001).
        tls = kept(version="TLS 1.3", sni=sni, ja3_hash=ja3.text("hash"))
        entry.detail.keep("ja3", ja3.left())
    return located(
        NETWORK,
        TRAFFIC,
        entry.stamp,
        message=f"{entry.kind} from {entry.ends()}",
        app_name=_spoken(entry) or entry.kind,
        tls=tls,
        connection_info=entry.connection(),
        observables=entry.seen(),
        **entry.common(),
        unmapped=entry.rest(),
    )


_OWN = MappingProxyType(
    {
        "alert": _alert,
        "flow": _flow,
        "netflow": _flow,
        "drop": drop,
        "anomaly": _anomaly,
        "stats": about_itself,
        "engine": about_itself,
    }
)


class Suricata(JsonSource):
    """Suricata's EVE log."""

    name = "suricata"
    time_key: ClassVar[str] = "timestamp"

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = _bare(record.raw)
        if raw is not record.raw:
            record = Record(record.record_id, record.source, record.mode, record.received_at, raw)
        return super().parse(record, context)

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        shipped = fields.get("suricata")
        if type(shipped) is dict and type(shipped.get("eve")) is dict:
            # A beat's envelope: the event is inside, what the beat adds outside.
            inner = dict(shipped["eve"])
            outer = {key: value for key, value in fields.items() if key != "suricata"}
            fields = {"timestamp": fields.get("@timestamp")} | inner | {"beat": outer}
        all_fields = Fields(fields)
        kind = all_fields.pop("event_type", None)
        if type(kind) is not str or not kind:
            raise Unreadable("no 'event_type' in the object")
        # It becomes a part of names that are searched for; nothing so long is a type of event.
        if len(kind) > 64:
            raise Unreadable(f"event_type: {len(kind)} characters, which is none of Suricata's")
        entry = _entry(all_fields, kind, context)
        reader = _OWN.get(kind) or READERS.get(kind) or _other
        return [reader(entry)]

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        # Imported where Arrow is at hand anyway: the command line starts without it.
        from ingest.sources.suricata.columns import read_events

        return read_events(self.name, records, settings)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        bare = _bare(raw)
        head = raw[: len(raw) - len(bare)]
        return head + restamp_json(bare, self.time_key, when, zone)


def _bare(raw: bytes) -> bytes:
    """The JSON behind a syslog header of Suricata's own."""
    # JSON or gzip as it is: the search for a header is only for lines that open otherwise.
    if raw[:1] in (b"{", b"[", b"\x1f", b" ", b"\n"):
        return raw
    match = SYSLOG.match(raw)
    return raw[match.end() :] if match and raw[match.end() : match.end() + 1] == b"{" else raw


SOURCES = (Suricata(),)
