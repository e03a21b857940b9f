"""A request of OpenTelemetry's logs as messages: the protocol's JSON, as source `json` reads it.

A message holds records of one resource and scope. JSON goes on as it came, record by record;
Protobuf becomes the JSON that the protocol says (https://opentelemetry.io/docs/specs/otlp/): ids in
hexadecimal, numbers of 64 bits as text, bytes in base64, so each value keeps its type.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

_MESSAGE_BYTES = 512 * 1024
_MESSAGE_RECORDS = 500
_IDS = ("traceId", "spanId")

_Raws = dict[str, msgspec.Raw]
_objects: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_fields: msgspec.json.Decoder[_Raws] = msgspec.json.Decoder(_Raws)


class Unusable(ValueError):
    """The request is not what the protocol says; its text says why."""


class TooMuch(ValueError):
    """The request is larger than is taken."""


class Group(NamedTuple):
    """Records of one resource and scope; all of it JSON."""

    resource: Mapping[str, bytes]
    scope: Mapping[str, bytes]
    records: Sequence[bytes]


@dataclass
class Packed:
    """The messages of a request, and what of it was not taken."""

    messages: list[tuple[str, bytes, int]] = field(default_factory=list)
    """Source and value of each, and how many records it holds."""
    records: int = 0
    rejected: int = 0
    why: str = ""

    def reject(self, count: int, why: str) -> None:
        """So many records are not taken."""
        if count > 0:
            self.rejected += count
            self.why = self.why or why


@dataclass(frozen=True)
class Bounds:
    """How much is taken, and where it goes."""

    records: int
    message_bytes: int
    """Largest message that the topics take."""
    source: str
    services: Mapping[str, str]


def unzip(data: bytes, limit: int) -> bytes:
    """The content of gzip, at most `limit` bytes of it. Raises `Unusable` or `TooMuch`."""
    parts, room = [], limit + 1
    # Several members may follow each other (RFC 1952).
    while data:
        # 31: with gzip's header and checksum, and in no other form (zlib's `inflateInit2`).
        inflate = zlib.decompressobj(wbits=31)
        try:
            # Never more than allowed and a byte: a bomb is not unpacked to see that it is one.
            parts.append(inflate.decompress(data, room))
        except zlib.error as error:
            raise Unusable(f"the body is no gzip: {error}") from None
        room -= len(parts[-1])
        if room <= 0:
            raise TooMuch(f"more than {limit} bytes once unpacked")
        if not inflate.eof:
            raise Unusable("the body's gzip ends early")
        data = inflate.unused_data
    return b"".join(parts)


def of_protobuf(body: bytes, bounds: Bounds) -> Packed:
    """The messages of a request in Protobuf. Raises `Unusable`."""
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise Unusable(f"the body is no ExportLogsServiceRequest: {error}") from None
    return _packed(_groups_of(request), bounds)


def of_json(body: bytes, bounds: Bounds) -> Packed:
    """The messages of a request in JSON. Raises `Unusable`."""
    try:
        body.decode()  # the decoder looks into texts only where it builds them
        groups = list(_groups_in(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"the body is no logs request in JSON: {error}") from None
    return _packed(groups, bounds)


def _groups_of(request: ExportLogsServiceRequest) -> Iterator[Group]:
    for resource in request.resource_logs:
        about = {"resource": _json(_plain(resource.resource))}
        if resource.schema_url:
            about["schemaUrl"] = _json(resource.schema_url)
        for scope in resource.scope_logs:
            within = {"scope": _json(_plain(scope.scope))}
            if scope.schema_url:
                within["schemaUrl"] = _json(scope.schema_url)
            yield Group(about, within, [_record(_plain(record)) for record in scope.log_records])


def _plain(message: Any) -> dict[str, Any]:
    # OTLP departs from Protobuf's JSON in two things: enums are numbers, and ids hexadecimal.
    plain: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    return plain


def _record(record: dict[str, Any]) -> bytes:
    for name in _IDS:
        if name in record:
            record[name] = base64.b64decode(record[name]).hex()
    return _json(record)


_json: Callable[[Any], bytes] = msgspec.json.Encoder().encode


def _groups_in(body: bytes) -> Iterator[Group]:
    for resource in _list(_fields.decode(body), "resourceLogs"):
        about = _fields.decode(resource)
        for scope in _list(about, "scopeLogs"):
            within = _fields.decode(scope)
            records = [bytes(record) for record in _list(within, "logRecords")]
            yield Group(_but(about, "scopeLogs"), _but(within, "logRecords"), records)


def _list(fields: _Raws, name: str) -> list[msgspec.Raw]:
    """A list that may be left out, or null, as Protobuf's JSON allows."""
    value = fields.get(name)
    return [] if value is None or bytes(value) == b"null" else _objects.decode(value)


def _but(fields: _Raws, name: str) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in fields.items() if key != name}


def _packed(groups: Iterator[Group] | list[Group], bounds: Bounds) -> Packed:
    packed = Packed()
    for group in groups:
        source = _source(group.resource, bounds)
        head, tail = _around(group)
        taken = group.records[: bounds.records - packed.records]
        surplus = len(group.records) - len(taken)
        packed.reject(surplus, f"a request may have {bounds.records} records; send it in parts")
        room = bounds.message_bytes - len(head) - len(tail)
        for block in _blocks(taken, room, packed):
            packed.records += len(block)
            packed.messages.append((source, head + b",".join(block) + tail, len(block)))
    return packed


def _around(group: Group) -> tuple[bytes, bytes]:
    """What stands before and behind the records of a message."""

    def open_object(fields: Mapping[str, bytes]) -> bytes:
        return b"".join(_json(name) + b":" + value + b"," for name, value in fields.items())

    head = b'{"resourceLogs":[{' + open_object(group.resource)
    head += b'"scopeLogs":[{' + open_object(group.scope) + b'"logRecords":['
    return head, b"]}]}]}"


def _blocks(records: Sequence[bytes], room: int, packed: Packed) -> Iterator[list[bytes]]:
    """The records, as many as one message takes at a time."""
    block: list[bytes] = []
    size = 0
    for record in records:
        if record[:1] != b"{":
            packed.reject(1, "a log record is no object")
            continue
        if len(record) > room:
            packed.reject(1, f"a record of {len(record)} bytes; a message has room for {room}")
            continue
        if block and (
            size + len(record) > min(_MESSAGE_BYTES, room) or len(block) == _MESSAGE_RECORDS
        ):
            yield block
            block, size = [], 0
        block.append(record)
        size += len(record) + 1
    if block:
        yield block


def _source(resource: Mapping[str, bytes], bounds: Bounds) -> str:
    if not bounds.services or "resource" not in resource:
        return bounds.source
    about = msgspec.json.decode(resource["resource"])
    attributes = about.get("attributes") if type(about) is dict else None
    for pair in attributes if type(attributes) is list else ():
        if type(pair) is dict and pair.get("key") == "service.name":
            value = pair.get("value")
            name = value.get("stringValue") if type(value) is dict else None
            return bounds.services.get(name, bounds.source) if type(name) is str else bounds.source
    return bounds.source
