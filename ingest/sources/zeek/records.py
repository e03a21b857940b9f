"""The records in a Zeek message or file, whichever way they were packed.

One JSON object; several, one a line or in an array; lines of Zeek's text format with their
header lines, or with the header handed along; and any of these in gzip. Shippers wrap the
object: Kafka writers as `{"conn": {...}}`, others as text in `message`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ingest.parsing.json_source import objects, unpacked
from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import FILE_BYTES, LINE_BYTES, decode_object, not_utf8
from ingest.sources.zeek.tsv import CLOSING, Layout, fields_of, layout

_WRAPPERS = frozenset(
    {"zeek", "bro", "corelight", "result", "_source", "event", "log", "data", "json", "record"}
)
"""Keys of a wrapping that do not say which log it is."""
INSIDE = ("_source", "result")
"""Where search engines put the record in what they export."""


class ZeekRecord(NamedTuple):
    """The fields of one record, and the log's name where its wrapping or header says it."""

    fields: dict[str, Any]
    path: str | None


def records_of(raw: bytes, header: bytes | None) -> Iterator[ZeekRecord | Unreadable]:
    """The records in `raw`; in place of one that cannot be read, why.

    None at all if it holds but header lines. Raises `Unreadable` where nothing of
    it can be read.
    """
    raw = unpacked(raw)
    start = raw[:80].lstrip()[:1]
    if start in (b"{", b"["):
        return _objects(raw)
    if header is None and start != b"#":
        if b"\t" in raw:
            raise Unreadable("a line of Zeek's text format without its header lines (#fields)")
        return iter([unwrapped(decode_object(raw))])  # or it says what it is instead
    return _lines(raw, header)


def unwrapped(fields: dict[str, Any]) -> ZeekRecord:
    """The record without what a shipper wrapped it in."""
    path = None
    while len(fields) == 1:
        ((key, inner),) = fields.items()
        # `id` alone is a connection's ends as some shippers nest them, and no wrapping.
        if type(inner) is not dict or key == "id":
            break
        # Kafka's writer names the log by the key around the record.
        path = path if key in _WRAPPERS else key
        fields = inner
    if "ts" not in fields:
        fields = _from_inside(fields)
    return ZeekRecord(fields, path)


def _from_inside(fields: dict[str, Any]) -> dict[str, Any]:
    key = next((key for key in INSIDE if type(fields.get(key)) is dict), None)
    text = fields.get("message")
    inner: dict[str, Any]
    if key is not None:
        inner = fields.pop(key)
    elif type(text) is str and text[:1] == "{":
        inner = decode_object(text.encode())
        del fields["message"]
    else:
        return fields
    # What the shipper says besides stays, but never in place of the record's own fields.
    return inner | {key: value for key, value in fields.items() if key not in inner}


def _objects(raw: bytes) -> Iterator[ZeekRecord | Unreadable]:
    stripped = raw.strip()
    single_line = b"\n" not in stripped
    if (stripped[:1] == b"{" and single_line) or stripped[1:].strip() == b"]":
        yield unwrapped(decode_object(raw))
        return
    for each in objects(raw, envelope=None):
        try:
            yield each if isinstance(each, Unreadable) else unwrapped(each)
        except Unreadable as why:
            yield why


def _lines(raw: bytes, header: bytes | None) -> Iterator[ZeekRecord | Unreadable]:
    text = _text(raw)
    block: list[str] = []
    current: Layout | Unreadable | None = None
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if line.startswith("#"):
            if not line.startswith(CLOSING):
                block.append(line)
            continue
        if not line:
            continue
        if block or current is None:
            current = _layout("\n".join(block).encode() if block else header or b"", current)
            block = []
        try:
            if isinstance(current, Unreadable):
                raise current
            yield ZeekRecord(fields_of(line, current), current.path)
        except Unreadable as why:
            yield why


def _layout(header: bytes, before: Layout | Unreadable | None) -> Layout | Unreadable:
    """What a block of header lines says; one without fields changes nothing."""
    # A rotated file may repeat a part of its header in the middle.
    if b"#fields" not in header and before is not None:
        return before
    try:
        return layout(header)
    except Unreadable as why:
        return why


def _text(raw: bytes) -> str:
    most = FILE_BYTES if b"\n" in raw.rstrip() else LINE_BYTES
    if len(raw) > most:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {most} are read")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(not_utf8(raw)) from None
    if "\x00" in text:
        raise Unreadable(f"a NUL at byte {raw.index(0)}")
    if not text.strip():
        raise Unreadable("the record is empty")
    return text
