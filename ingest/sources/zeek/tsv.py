"""Zeek's own text format: lines of values, named and typed by header lines.

https://docs.zeek.org/en/master/log-formats.html#zeek-tsv-format-logs . A line becomes the
object that Zeek would have written as JSON: a field without a value is left out, a set or
vector is an array. So both formats of the same traffic become the same events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import INT64, not_utf8
from ingest.parsing.timestamps import EPOCH, like_iso

_Read = Callable[[str], Any]

HEADER_BYTES = 256 * 1024
_MOST_FIELDS = 1000
"""Far above what any log has, so that a few layouts can be kept."""
CLOSING = ("#close", "#end")
"""Header lines behind the last record, which say when the log was closed."""
UNTYPED: Mapping[str, str] = MappingProxyType(
    {
        "ts": "time",
        "id.orig_p": "port",
        "id.resp_p": "port",
        **dict.fromkeys(("duration", "rtt", "lease_time", "suppress_for"), "interval"),
        **dict.fromkeys(("orig_bytes", "resp_bytes", "orig_pkts", "resp_pkts"), "count"),
        **dict.fromkeys(("orig_ip_bytes", "resp_ip_bytes", "missed_bytes"), "count"),
        **dict.fromkeys(("trans_id", "qclass", "qtype", "rcode", "Z", "trans_depth"), "count"),
        **dict.fromkeys(("request_body_len", "response_body_len", "status_code"), "count"),
        **dict.fromkeys(("seen_bytes", "total_bytes", "depth", "reply_code", "p"), "count"),
        **dict.fromkeys(("AA", "TC", "RD", "RA", "rejected", "local_orig"), "bool"),
        **dict.fromkeys(("local_resp", "success", "auth_success", "established"), "bool"),
        **dict.fromkeys(("resumed", "is_orig", "notice", "tls"), "bool"),
        **dict.fromkeys(("answers", "msg_types", "tunnel_parents", "tags"), "vector[string]"),
        **dict.fromkeys(("tx_hosts", "rx_hosts", "conn_uids", "actions"), "vector[string]"),
        **dict.fromkeys(("resp_mime_types", "orig_mime_types", "uids"), "vector[string]"),
        "TTLs": "vector[interval]",
    }
)
"""Types of fields that every version has, for a header that lost its `#types`."""


class Layout(NamedTuple):
    """What header lines say of the lines after them: the log's name, separators, fields."""

    path: str | None
    separator: str
    unset: str
    columns: tuple[tuple[str, _Read], ...]


@lru_cache(maxsize=128)
def layout(header: bytes) -> Layout:
    """What the last block of header lines in `header` says. Raises `Unreadable`."""
    if len(header) > HEADER_BYTES:
        raise Unreadable(f"the header has {len(header)} bytes; at most {HEADER_BYTES} are read")
    try:
        text = header.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"the header is {not_utf8(header)}") from None
    lines: dict[str, str] = {}
    separator = "\t"
    for line in text.split("\n"):
        line = line.rstrip("\r")
        # The one line that is parted by a blank, since it says what parts the others.
        if line.startswith("#separator"):
            # A file may hold several logs, each behind a block of its own.
            lines = {}
            separator = _unescaped(line.removeprefix("#separator").lstrip(" ")) or "\t"
        elif line.startswith("#"):
            key, _, value = line[1:].partition(separator)
            lines[key] = value
    if not lines.get("fields"):
        raise Unreadable("no '#fields' among the header lines of a Zeek log")
    return _layout(lines, separator)


def _layout(directives: Mapping[str, str], separator: str) -> Layout:
    names = directives["fields"].split(separator)
    if "types" in directives:
        types = directives["types"].split(separator)
    else:
        types = [UNTYPED.get(name, "string") for name in names]
    if len(names) > _MOST_FIELDS:
        raise Unreadable(f"the header names {len(names)} fields; at most {_MOST_FIELDS} are read")
    if len(types) != len(names):
        raise Unreadable(f"the header has {len(names)} fields, but {len(types)} types")
    # A field that stands twice would let its second value replace the first.
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"the header names the field '{twice[:80]}' twice")
    between = _unescaped(directives.get("set_separator", ",")) or ","
    empty = directives.get("empty_field", "(empty)")
    unset = directives.get("unset_field", "-")
    readers = (
        _reader(of, name, between, empty, unset) for name, of in zip(names, types, strict=True)
    )
    path = directives.get("path")
    return Layout(
        None if path in (None, unset) else path,
        separator,
        unset,
        tuple(zip(names, readers, strict=True)),
    )


def fields_of(line: str, layout: Layout) -> dict[str, Any]:
    """The fields of a line that have a value. Raises `Unreadable`."""
    values = line.split(layout.separator)
    if len(values) != len(layout.columns):
        raise Unreadable(
            f"the line has {len(values)} values, its header names {len(layout.columns)} fields"
        )
    unset = layout.unset
    return {
        name: read(value)
        for (name, read), value in zip(layout.columns, values, strict=True)
        if value != unset
    }


# -- values ------------------------------------------------------------------------------------

_CONTAINER = re.compile(r"(?:set|vector|table|list)\[(.*)\]")
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,2})?", re.ASCII)
# Zeek writes times after January 2038 with an exponent.
_TIME = re.compile(r"-?\d{1,12}(?:\.\d{1,18})?(?:e\+\d{1,2})?", re.ASCII)


def _reader(of: str, name: str, between: str, empty: str, unset: str) -> _Read:
    """How a value of the type `of` is read; what is not of that type stays text."""
    container = _CONTAINER.fullmatch(of)
    if container:
        reader = _reader(container[1], name, between, empty, unset)
        return partial(_elements, reader, between, empty, unset)
    if of in ("count", "int", "port", "counter"):
        return _whole
    if of in ("double", "interval"):
        return _float
    if of == "time":
        # `ts` is read by whoever reads the record, from a number or ISO text.
        return _float if name == "ts" else _time
    if of == "bool":
        return _bool
    return partial(_string, empty)


def _elements(one: _Read, between: str, empty: str, unset: str, text: str) -> list[Any]:
    if text == empty:
        return []
    # Before unescaping: Zeek escapes a separator that stands inside of an element.
    return [None if each == unset else one(each) for each in text.split(between)]


def _string(empty: str, text: str) -> str:
    return "" if text == empty else _unescaped(text)


def _whole(text: str) -> Any:
    # A count of Zeek has 64 bits without a sign, a column of Delta 63.
    if _WHOLE.fullmatch(text) and -INT64 <= int(text) < INT64:
        return int(text)
    return _unescaped(text)


def _float(text: str) -> Any:
    return float(text) if _NUMBER.fullmatch(text) else _unescaped(text)


def _time(text: str) -> Any:
    """Seconds since 1970 as ISO text, whose digits are exact."""
    if not _TIME.fullmatch(text):
        return _unescaped(text)
    try:
        time = EPOCH + timedelta(microseconds=int(Decimal(text) * 1_000_000))
    except OverflowError:
        return text
    return f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"


def _bool(text: str) -> Any:
    return {"T": True, "F": False}.get(text, text)


_ESCAPE = re.compile(r"\\\\|(?:\\x[0-9a-fA-F]{2})+")
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")


def _unescaped(text: str) -> str:
    r"""`text` with `\x09` and `\\` as what they stand for.

    Control characters and bytes that are no UTF-8 stay escaped: so does Zeek write
    them in JSON, and nothing that moves a terminal's cursor gets out.
    """
    return _ESCAPE.sub(_plain, text) if "\\" in text else text


def _plain(match: re.Match[str]) -> str:
    if match[0] == "\\\\":
        return "\\"
    decoded = bytes.fromhex(match[0].replace("\\x", "")).decode(errors="backslashreplace")
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", decoded)


# -- replay ------------------------------------------------------------------------------------


def restamp_line(raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
    """A line of text with the time in its first field, where every log has it, replaced."""
    if b"\n" in raw.strip():
        raise Unreadable("several lines; only the time of one can be replaced")
    old, tab, rest = raw.partition(b"\t")
    number = re.fullmatch(rb"\d{1,11}(?:\.(\d{1,9}))?", old)
    if number:
        whole = when - EPOCH
        micros = (whole.days * 86400 + whole.seconds) * 1_000_000 + whole.microseconds
        digits = f"{micros % 1_000_000:06d}000"[: len(number[1] or b"")]
        new = f"{micros // 1_000_000}" + (f".{digits}" if digits else "")
        return new.encode() + tab + rest
    iso = like_iso(old.decode(errors="replace"), when, zone)
    if iso is None:
        raise Unreadable(f"no time in the first field, but '{old[:40].decode(errors='replace')}'")
    return iso.encode() + tab + rest
