"""Sources whose records are JSON: one object, several, or a file of them.

What a shipper packs together is unpacked here, so that a source only says what one
object means: a JSON array, an object of one array (`Records` of AWS, `logs`, `value`),
one object a line (NDJSON), and any of these in gzip. Several objects on *one* line are
refused: a way to smuggle one past a detector.
"""

from __future__ import annotations

import io
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import msgspec

from ingest.parsing.json_time import restamp_json
from ingest.parsing.message_bounds import (
    MAX_EVENTS,
    MAX_UNREADABLE,
    few_values,
    require_few,
    require_few_lines,
    require_few_values,
)
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, LINE_BYTES, decode_object, require_single

GZIP = b"\x1f\x8b"


_INPUT, _OUTPUT = 64 * 1024, 1024 * 1024
"""Packed and unpacked bytes of one step of `gunzip`."""


def gunzip(
    raw: bytes, *, padded: bool = False, look: Callable[[bytes], None] | None = None
) -> bytes:
    """The one gzip member that `raw` is, at most `FILE_BYTES` of it. Raises `Unreadable`.

    `padded`: NULs may follow it, as tapes and some copies leave them. `look` sees each piece as
    it is unpacked, and ends it by raising.
    """
    # 31 asks for gzip alone; not `gzip.decompress`, which knows no limit and joins several members.
    inflate = zlib.decompressobj(wbits=31)
    data = bytearray()
    try:
        # Step by step, so that a bomb costs what shows it to be one, and not all that is allowed.
        for start in range(0, len(raw), _INPUT):
            packed = raw[start : start + _INPUT]
            while packed:
                piece = inflate.decompress(packed, _OUTPUT)
                packed = inflate.unconsumed_tail
                data += piece
                if look is not None:
                    look(piece)
                if len(data) > FILE_BYTES:
                    raise Unreadable(f"more than {FILE_BYTES} bytes once unpacked")
            if inflate.eof:
                break
    except zlib.error as error:
        raise Unreadable(f"not valid gzip: {error}") from None
    if not inflate.eof:
        raise Unreadable(f"the gzip data ends early, at byte {len(raw)}")
    # Zlib stops at the member's end; what follows would go unread, and unseen by every rule.
    end = min(start + _INPUT, len(raw)) - len(inflate.unused_data)
    if raw[end:].strip(b"\x00") if padded else raw[end:]:
        raise Unreadable(f"trailing bytes after the gzip data, at byte {end} of {len(raw)}")
    return bytes(data)


def unpacked(raw: bytes, look: Callable[[bytes], None] | None = None) -> bytes:
    """`raw` itself, or what is in it where it is gzip; `look` as of `gunzip`.

    Raises `Unreadable`.
    """
    return gunzip(raw, padded=True, look=look) if raw[:2] == GZIP else raw


def objects(raw: bytes, envelope: str | None = "Records") -> Iterator[dict[str, Any] | Unreadable]:
    """The JSON objects in `raw`; in place of one that cannot be read, why.

    `envelope` is the key of an object that only holds an array of them. Raises
    `Unreadable` where nothing in it can be read.
    """
    raw = unpacked(raw, few_values())
    stripped = raw.strip()
    # Before the look at lines: a pretty-printed array has many, and none is an object.
    if stripped[:1] == b"[":
        yield from _elements(stripped)
        return
    require_few_lines(stripped, whole_file=True)
    lines = [line for line in stripped.splitlines() if line.strip()]
    # A pretty-printed object starts with `{` alone, so only a whole first line means NDJSON.
    if len(lines) > 1 and _is_object(lines[0]):
        for line in lines:
            try:
                yield decode_object(line.strip())
            except Unreadable as why:
                yield why
        return
    # The unstripped bytes, so that an error names a place in the record as it was sent.
    decoded = decode_object(raw, LINE_BYTES if len(raw) <= LINE_BYTES else FILE_BYTES)
    if envelope is not None and type(decoded.get(envelope)) is list:
        for element in decoded[envelope]:
            yield _single(element, f"{envelope}: an element that is no object")
        return
    yield decoded


def _single(element: object, otherwise: str) -> dict[str, Any] | Unreadable:
    """An object of several, as strict about its own keys as if it came alone."""
    if type(element) is not dict:
        return Unreadable(otherwise)
    try:
        require_single(element)
    except Unreadable as why:
        return why
    return element


PART_BYTES = 2 * 1024 * 1024
"""A file of many objects is read in parts of about so many bytes."""


def parts(raw: bytes, envelope: str | None = "Records") -> Iterator[list[bytes]]:
    """The objects of a large file, some at a time; nothing where it is not plainly such a file.

    Plainly: an array, an object a line, or an object with the array `envelope` and nothing
    else. What is said twice or besides would be passed over here, so such a file is read as
    a whole.
    Raises `Unreadable` where gzip is broken, or padded, which only some sources take.
    """
    # Packed files are unpacked to see: their size says little.
    if len(raw) < PART_BYTES and raw[:2] != GZIP:
        return
    content = (gunzip(raw, look=few_values()) if raw[:2] == GZIP else raw).strip()
    if len(content) <= PART_BYTES:
        return
    # Before decoding: a hundred bytes of objects in memory come out of two bytes of text.
    require_few_values(content)
    require_few_lines(content, whole_file=True)
    elements = _elements_of(content, envelope)
    if elements is None:
        return
    held: list[bytes] = []
    size = 0
    for element in elements:
        held.append(bytes(element))
        size += len(held[-1])
        if size > PART_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _elements_of(content: bytes, envelope: str | None) -> Iterable[bytes | msgspec.Raw] | None:
    lines = content.partition(b"\n")
    if content[:1] == b"{" and lines[1] and _is_object(lines[0].strip()):
        require_few(content.count(b"\n"), "lines")
        # Line by line, since a list of all lines would hold the file twice.
        return (line for line in io.BytesIO(content) if line.strip())
    try:
        if content[:1] == b"[":
            elements = _ARRAY.decode(content)
        elif envelope is not None:
            elements = _one_array(envelope).decode(content).elements
        else:
            return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    require_few(len(elements))
    counted_bytes = sum(len(memoryview(element)) for element in elements) + 8 * len(elements)
    # Far more bytes than the elements means there is more in the file; then it is read as a whole.
    return None if len(content) > counted_bytes + 64 else elements


# `Raw` only finds where each element ends; nothing of it is built yet.
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _one_array(envelope: str) -> msgspec.json.Decoder[Any]:
    shape = msgspec.defstruct(
        "File",
        [("elements", list[msgspec.Raw])],
        rename={"elements": envelope},
        # What stands beside the array belongs to the file, and reading in parts would lose it.
        forbid_unknown_fields=True,
    )
    return msgspec.json.Decoder(shape)


def _is_object(line: bytes) -> bool:
    """Whether a line is a JSON value of its own, so that its file is one a line."""
    try:
        return type(msgspec.json.decode(line)) is dict
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # A first line that is damaged must not turn a file of good lines into one dead letter.
        return line[:1] == b"{" and line[-1:] == b"}" and len(line) > 2


def _elements(raw: bytes) -> Iterator[dict[str, Any] | Unreadable]:
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
    # Only where it may hold too many: `Raw` finds them in a quarter of the time of making them.
    if raw.count(b",") >= MAX_EVENTS:
        require_few_values(raw)
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            require_few(len(_ARRAY.decode(raw)))
    # As the one value of an object, so that what is refused in an object is refused here.
    wrapped = decode_object(b'{"v":' + raw + b"}", FILE_BYTES + 8)
    if not wrapped["v"]:
        raise Unreadable("expected a JSON object, found an array without any")
    for index, element in enumerate(wrapped["v"]):
        yield _single(element, f"element {index} of the array is no object")


class JsonSource(Source):
    """A source whose events are JSON objects."""

    whole_file: ClassVar[bool] = True
    envelope: ClassVar[str | None] = "Records"
    """Key of an object that only holds an array of events."""
    large: ClassVar[str | None] = "Records"
    """The same in files so large that they are read in parts (`parts`)."""
    time_key: ClassVar[str] = "time"
    """Where a top-level time stands, for `restamp`."""

    @abstractmethod
    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        """The events of one object, which it may empty as it goes. Raises `Unreadable`."""

    def parse(self, record: Record, context: Context) -> list[Event]:
        events: list[Event] = []
        read = 0
        for each in objects(record.raw, self.envelope):
            try:
                if isinstance(each, Unreadable):
                    raise each
                events += self.events(each, context)
                read += 1
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
                # Nothing good among so many: most likely the wrong source is set for the topic.
                if read == 0 and len(events) >= MAX_UNREADABLE:
                    raise Unreadable(
                        f"none of its first {MAX_UNREADABLE} objects can be read: {why}"
                    ) from None
        # One reason for the record instead of one for each line: the record as a whole is not this
        # format.
        if read == 0 and events:
            raise Unreadable(events[0]["dead_letter_reason"])
        return events

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return restamp_json(raw, self.time_key, when, zone)
