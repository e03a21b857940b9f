"""Flow logs of AWS: VPC, subnet and transit gateway (versions 2 to 8).

https://docs.aws.amazon.com/vpc/latest/userguide/flow-log-records.html . A line names no
fields: they stand in the file's first line, or are AWS's default, or the documented
order. JSON is read under any spelling of the same names, and CloudWatch's
subscription envelope is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import objects, unpacked
from ingest.parsing.ocsf import BASE, FAILURE, NETWORK, SUCCESS, UNKNOWN, kept, metadata, unmapped
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, not_utf8
from ingest.parsing.timestamps import EPOCH, Stamp, stamp_epoch
from ingest.sources.shared.firewall import (
    INBOUND,
    OUTBOUND,
    REFUSE,
    TRAFFIC,
    Fields,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    traffic,
)

_PRODUCT: Mapping[str, str] = {"name": "VPC Flow Logs", "vendor_name": "AWS"}
_ORDER = """
        version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes
    start     end action log-status vpc-id subnet-id instance-id tcp-flags type pkt-srcaddr
    pkt-dstaddr     region az-id sublocation-type sublocation-id pkt-src-aws-service
    pkt-dst-aws-service flow-direction traffic-path ecs-cluster-arn ecs-cluster-name
    ecs-container-instance-arn ecs-container-instance-id ecs-container-id
    ecs-second-container-id ecs-service-name ecs-task-definition-arn ecs-task-arn ecs-task-id
    reject-reason
"""
ORDER = _ORDER.split()
"""The fields as AWS lists them; the default line is the first 14."""
DEFAULT = 14
_GATEWAY = """
        resource-type tgw-id tgw-attachment-id tgw-src-vpc-account-id tgw-dst-vpc-account-id
    tgw-src-vpc-id tgw-dst-vpc-id tgw-src-subnet-id tgw-dst-subnet-id tgw-src-eni tgw-dst-eni
    tgw-src-az-id tgw-dst-az-id tgw-pair-attachment-id packets-lost-no-route
    packets-lost-blackhole     packets-lost-mtu-exceeded packets-lost-ttl-expired
"""
GATEWAY = _GATEWAY.split()
_SIMPLE = re.compile(r"[^a-z0-9]")
_NAMES: Mapping[str, str] = MappingProxyType(
    {_SIMPLE.sub("", name): name for name in (*ORDER, *GATEWAY)}
    | {"status": "log-status", "statuscode": "log-status", "account": "account-id"}
    | {"sourceaddress": "srcaddr", "destinationaddress": "dstaddr"}
    | {"sourceport": "srcport", "destinationport": "dstport", "numpackets": "packets"}
    | {"numbytes": "bytes", "starttime": "start", "endtime": "end", "accountuid": "account-id"}
    | {"sourceaddr": "srcaddr", "destaddr": "dstaddr", "destport": "dstport"}
)
"""Every spelling of a field, without case and separators, to AWS's own."""
KNOWN = frozenset((*ORDER, *GATEWAY))
_FIELD = re.compile(r"[a-z][a-z0-9-]*")
_STATES = frozenset({"OK", "NODATA", "SKIPDATA"})
EXPORTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ", re.ASCII)
INTERFACE_LEAVES: Mapping[str, str] = MappingProxyType(
    {
        "interface-id": "interface_uid",
        "vpc-id": "vpc_uid",
        "subnet-id": "subnet_uid",
        "instance-id": "instance_uid",
    }
)


def _named(header: str) -> list[str] | None:
    """The fields that a header line names; None where it is no such line."""
    words = [word.strip('"${}').replace("_", "-") for word in re.split(r"[\s,]+", header)]
    words = [word for word in words if word]
    count = sum(word in KNOWN for word in words)
    # A later version's fields may be among them; values of a record are never such words.
    if count < 2 or count * 2 < len(words) or not all(map(_FIELD.fullmatch, words)):
        return None
    return words


def _of_line(line: str, names: Sequence[str] | None) -> Fields:
    # CloudWatch's export puts a time before each line.
    values = EXPORTED.sub("", line).split()
    if names is None:
        # With more values the documented order holds only where action and status stand in their
        # places: somebody may have chosen fields of their own.
        fits = len(values) == DEFAULT or (
            DEFAULT < len(values) <= len(ORDER)
            and values[12] in ("ACCEPT", "REJECT", "-")
            and values[13] in _STATES
        )
        names = ORDER[: len(values)] if fits else None
    if names is None:
        raise Unreadable(
            f"{len(values)} values and no header that names them; the default line has {DEFAULT}"
        )
    if len(values) != len(names):
        raise Unreadable(f"{len(values)} values for the {len(names)} fields of the header")
    fields = Fields(zip(names, values, strict=True))
    # A line in another order would fill every field with another's value.
    if names[0] == "version" and not values[0].isdecimal():
        raise Unreadable(f"version: expected a number, found '{values[0][:40]}'")
    return fields


def _of_object(flow: dict[str, Any]) -> Fields:
    """An object's fields under AWS's names; what AWS does not name keeps its own."""
    fields = Fields()
    for key, value in flow.items():
        name = _NAMES.get(_SIMPLE.sub("", key.lower()))
        # Two spellings of one name: the second keeps its own, so that nothing is lost.
        if name is None or name in fields or type(value) in (dict, list):
            fields[key] = value
        else:
            fields[name] = value
    for prefix, end in (("src", "src_endpoint"), ("dst", "dst_endpoint")):
        inner = fields.child(end)
        for leaf, name in (("ip", f"{prefix}addr"), ("port", f"{prefix}port")):
            if leaf in inner and name not in fields:
                fields[name] = inner.pop(leaf)
        fields.keep(end, inner.left())
    if not fields.keys() & KNOWN:
        raise Unreadable("no field of a flow log in the object")
    return fields


def _flow(fields: Fields, context: Context, extra: Mapping[str, Any] | None = None) -> Event:
    """One record: the packets of one flow in one interval, or that there are none."""
    times = {name: _stamp(fields, name, context) for name in ("start", "end")}
    stamp = times["start"] or times["end"] or Stamp.missing(context.record.received_at, None)
    direction = fields.get("flow-direction")
    way = {"ingress": INBOUND, "egress": OUTBOUND}.get(str(direction), {})
    if way:
        fields.pop("flow-direction")
    source = endpoint(ip=fields.ip("srcaddr"), port=fields.port("srcport"))
    target = endpoint(ip=fields.ip("dstaddr"), port=fields.port("dstport"))
    if source is None and target is None:
        # NODATA and SKIPDATA: all that is known is whose traffic was not recorded.
        target = endpoint(uid=fields.text("interface-id"))
    endpoint_known = source or target
    action, state = fields.text("action"), fields.text("log-status")
    allowed = {"ACCEPT": True, "REJECT": False}.get((action or "").upper())
    if action and allowed is None:
        fields["action"] = action
    sent, packets = fields.number("bytes"), fields.number("packets")
    flags = fields.number("tcp-flags", most=4095)
    more: dict[str, Any] = {}
    if way:
        # The interface's own side: a record that came in was sent to it.
        leaves = {leaf: fields.text(name) for name, leaf in INTERFACE_LEAVES.items()}
        more["dst_endpoint" if direction == "ingress" else "src_endpoint"] = kept(**leaves)
    if flags is not None:
        more["connection_info"] = {"tcp_flags": flags, "direction_id": way.get("direction_id", 0)}
    spoken = fields.number("protocol", most=255)
    status = {"OK": SUCCESS, "SKIPDATA": FAILURE}.get(state or "", UNKNOWN)
    ends = f"{(source or {}).get('ip', '?')} to {(target or {}).get('ip', '?')}"
    message = source is not None or "ip" in (target or {})
    return located(
        NETWORK if endpoint_known else BASE,
        UNKNOWN if not message else REFUSE if allowed is False else TRAFFIC,
        stamp,
        **({"status_id": status} | firewall_disposition(allowed)),
        status_code=state,
        message=f"Flow from {ends}" if message else f"Flow log without data: {state}",
        metadata=metadata(_PRODUCT, stamp, log_name="vpcflow"),
        src_endpoint=source,
        dst_endpoint=target,
        connection_info=connection(
            spoken, (source or {}).get("ip"), **way, flag_history=_flags(flags)
        ),
        traffic=traffic(sent, None, packets, total=sent, packets=packets),
        cloud={
            "provider": "AWS",
            "region": fields.text("region"),
            "account": kept(uid=fields.text("account-id")) or None,
        },
        start_time=times["start"].time if times["start"] else None,
        end_time=times["end"].time if times["end"] else None,
        duration=_span(times["start"], times["end"]),
        more=more,
        observables=ends_seen(source, target),
        unmapped=unmapped(
            {name: value for name, value in fields.left().items() if value != "-"}
            | dict(extra or {})
        ),
    )


def _stamp(fields: Fields, name: str, context: Context) -> Stamp | None:
    value = fields.get(name)
    if value in (None, "", "-"):
        return None
    stamp = stamp_epoch(value, context.record.received_at)
    if stamp.quality == "received":
        return None
    del fields[name]
    return stamp


def _span(start: Stamp | None, end: Stamp | None) -> int | None:
    if start is None or end is None or end.time < start.time:
        return None
    return round((end.time - start.time).total_seconds() * 1000)


def _flags(bits: int | None) -> str | None:
    """The names of a flow's TCP flags, as AWS adds them up."""
    names = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
    flags = [name for index, name in enumerate(names) if (bits or 0) >> index & 1]
    return " ".join(flags) or None


def _about(message: str, context: Context, rest: Mapping[str, Any]) -> Event:
    stamp = Stamp.missing(context.record.received_at, None)
    return located(
        BASE,
        UNKNOWN,
        stamp,
        message=message,
        metadata=metadata(_PRODUCT, stamp),
        unmapped=unmapped(rest),
    )


class VpcFlow(Source):
    """AWS flow logs."""

    name = "aws_vpcflow"

    def is_header(self, line: bytes) -> bool:
        return _named(line[:8192].decode("utf-8", "replace")) is not None

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = unpacked(record.raw)
        if raw.lstrip()[:1] in (b"{", b"["):
            return _whole(_of_json(raw, context))
        if len(raw) > FILE_BYTES:
            raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise Unreadable(not_utf8(raw)) from None
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            raise Unreadable("the record is empty")
        return _whole(_of_text(lines, context))

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        names, values = ORDER[:DEFAULT], raw.split()
        if len(values) < DEFAULT or not (values[10] + values[11]).isdigit():
            raise Unreadable(f"no line of the {len(names)} default fields with a start and an end")
        span = int(values[11]) - int(values[10])
        start = int((when.astimezone(UTC) - EPOCH).total_seconds())
        pieces = re.split(rb"(\s+)", raw)
        places = [place for place, piece in enumerate(pieces) if piece.strip()]
        pieces[places[10]], pieces[places[11]] = b"%d" % start, b"%d" % (start + span)
        return b"".join(pieces)


def _whole(parsed: Iterator[Event]) -> list[Event]:
    """All events; where none of them can be read, the record cannot."""
    events = list(parsed)
    if events and all("dead_letter_reason" in event for event in events):
        raise Unreadable(events[0]["dead_letter_reason"])
    return events


def _of_text(lines: Sequence[str], context: Context) -> Iterator[Event]:
    header = (context.header or b"").decode("utf-8", "replace").strip().splitlines()
    names = _named(header[-1]) if header else None
    for line in lines:
        by_name = _named(line)
        if by_name is not None:
            names = by_name
            if len(lines) == 1:
                yield _about("Names of the fields of a flow log", context, {"fields": line})
            continue
        try:
            yield _flow(_of_line(line, names), context)
        except Unreadable as why:
            yield {"dead_letter_reason": str(why)}


def _of_json(raw: bytes, context: Context) -> Iterator[Event]:
    for each in objects(raw):
        try:
            if isinstance(each, Unreadable):
                raise each
            yield from _of_envelope(each, context)
        except Unreadable as why:
            yield {"dead_letter_reason": str(why)}


def _of_envelope(envelope: dict[str, Any], context: Context) -> Iterator[Event]:
    """The flows in one object: of a subscription, of a shipper's `message`, or its own."""
    inside = envelope.get("logEvents")
    if type(inside) is list:
        about = {key: value for key, value in envelope.items() if key != "logEvents"}
        # CloudWatch sends one to see whether the receiver is there.
        if not inside or envelope.get("messageType") == "CONTROL_MESSAGE":
            yield _about("CloudWatch Logs message without flows", context, envelope)
            return
        for entry in inside:
            try:
                yield _of_log_event(entry, about, context)
            except Unreadable as why:
                yield {"dead_letter_reason": str(why)}
        return
    words = envelope.get("message")
    if type(words) is str and not KNOWN & {
        _NAMES.get(_SIMPLE.sub("", key.lower())) for key in envelope
    }:
        yield _flow(_of_line(words, _header(context)), context, _without(envelope))
        return
    yield _flow(_of_object(envelope), context)


def _header(context: Context) -> list[str] | None:
    header = (context.header or b"").decode("utf-8", "replace").strip().splitlines()
    return _named(header[-1]) if header else None


def _without(envelope: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != "message"}


def _of_log_event(one: object, about: Mapping[str, Any], context: Context) -> Event:
    if type(one) is not dict or type(one.get("message")) is not str:
        raise Unreadable("logEvents: an element without 'message'")
    fields = _of_line(one["message"], _header(context))
    rest = {key: value for key, value in one.items() if key not in ("message", "extractedFields")}
    return _flow(fields, context, {**about, "logEvent": rest})


SOURCES = (VpcFlow(),)
