"""Strict JSON: one object, all of it, and nothing besides.

What a lenient reader lets pass is a way to smuggle a log line past a detector:
a second object on the line, a key that stands twice, bytes after the end.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from ingest.parsing.message_bounds import MAX_EVENTS, require_few, require_few_values
from ingest.parsing.source import Unreadable

LINE_BYTES = 10 * 1024 * 1024
FILE_BYTES = 64 * 1024 * 1024
# Far below Python's own limit, so that nothing behind this needs to fear recursion.
_DEPTH = 64
INT64 = 2**63

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NAMES = {
    type(None): "null",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "an object",
}


def decode_object(raw: bytes, limit: int = LINE_BYTES) -> dict[str, Any]:
    """The one JSON object that `raw` is. Raises `Unreadable`.

    Refused: anything before or after it, invalid UTF-8, a key twice in one
    object, an integer beyond 64 bits, more than `DEPTH` levels or `limit` bytes.
    """
    if len(raw) > limit:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {limit} are read")
    require_few_values(raw)
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(_reason(raw, error)) from None
    if type(value) is not dict:
        raise Unreadable(f"expected a JSON object, found {_NAMES[type(value)]}")
    # Of a key that stands twice msgspec keeps the last; a detector upstream may see the first.
    keys = _measure(value, 1)
    # A key is followed by a colon, so with as many `":` as keys none stood twice.
    # Space before a colon or a `\":` in a string only costs the exact look.
    spaced = b" :" in raw or b"\t:" in raw or b"\n:" in raw or b"\r:" in raw
    if spaced or raw.count(b'":') != keys:
        _refuse_repeated_keys(raw)
    return value


def encode(value: object) -> str:
    """JSON text of `value`."""
    return _encode(value).decode()


def kind(value: object) -> str:
    """What JSON calls the type of `value`."""
    return _NAMES.get(type(value), type(value).__name__)


def _measure(node: Any, depth: int) -> int:
    """Number of keys in `node`; raises `Unreadable` for depth and oversized integers."""
    if depth > _DEPTH:
        raise Unreadable(f"nested deeper than {_DEPTH} levels")
    keys, values = (len(node), node.values()) if type(node) is dict else (0, node)
    # Width is bounded as well as depth: one array may be all of the message.
    if len(node) > MAX_EVENTS:
        require_few(len(node), "values in one array or object")
    for value in values:
        of = type(value)
        if of is str:
            continue
        if of is dict or of is list:
            keys += _measure(value, depth + 1)
        # Spark and Delta have no integer wider than 64 bits.
        elif of is int and not -INT64 <= value < INT64:
            raise Unreadable(f"{_place(node, value)}: a number beyond 64 bits")
    return keys


def _place(node: Any, value: object) -> str:
    pairs = node.items() if type(node) is dict else enumerate(node)
    return next(f"'{key}'" for key, text_found in pairs if text_found is value)


def _refuse_repeated_keys(raw: bytes) -> None:
    def pairs(items: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in items:
            if key in seen:
                raise Unreadable(f"the key '{key[:80]}' stands twice in one object")
            seen.add(key)

    # Python's own reader hands over the pairs before they become a dictionary; msgspec does not.
    json.loads(raw, object_pairs_hook=pairs)


def _reason(raw: bytes, error: Exception) -> str:
    if not raw.strip():
        return "the record is empty"
    if isinstance(error, UnicodeDecodeError):
        return not_utf8(raw)
    if isinstance(error, RecursionError):
        return f"nested deeper than {_DEPTH} levels"
    if b"\x00" in raw:
        return f"a NUL at byte {raw.index(0)}"
    text = str(error)
    match = re.search(r"(.*) \(byte (\d+)\)", text.removeprefix("JSON is malformed: "))
    if match and match[1] == "trailing characters":
        end = int(match[2]) - 1
        what = "a second value" if raw[end : end + 1] in (b"{", b"[") else "trailing bytes"
        return f"{what} after the end of the JSON value, at byte {end} of {len(raw)}"
    if match:
        return f"not valid JSON: {match[1]} at byte {match[2]}"
    # To msgspec half of a surrogate pair looks like text that ends early.
    if "truncated" in text and re.search(rb"\\u[dD][89a-fA-F]", raw):
        return "not valid JSON: cut short, or an escaped surrogate without its pair"
    if "truncated" in text:
        return f"not valid JSON: it ends early, at byte {len(raw)}"
    return f"not valid JSON: {text}"


def not_utf8(raw: bytes) -> str:
    """Where `raw` stops being UTF-8, as a reason."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"not valid UTF-8 at byte {error.start}"
    return "not valid UTF-8"


def text(obj: dict[str, Any], key: str) -> str | None:
    """Take the string `key` out of `obj`; None where it is missing or null."""
    value = obj.pop(key, None)
    if value is None or type(value) is str:
        return value
    raise Unreadable(f"{key}: expected a string, found {kind(value)}")


def number(obj: dict[str, Any], key: str, most: int = INT64 - 1) -> int | None:
    """Take the whole number `key`, from 0 to `most`, out of `obj`."""
    value = obj.pop(key, None)
    if value is None:
        return None
    if type(value) is not int:
        raise Unreadable(f"{key}: expected a whole number, found {kind(value)}")
    if not 0 <= value <= most:
        raise Unreadable(f"{key}: expected a number from 0 to {most}, found {value}")
    return value


def seconds(obj: dict[str, Any], key: str) -> float | None:
    """Take the span `key`, in seconds, out of `obj`."""
    value = obj.pop(key, None)
    if value is None:
        return None
    if type(value) is not float and type(value) is not int:
        raise Unreadable(f"{key}: expected a number of seconds, found {kind(value)}")
    if not 0 <= value < 1e10:
        raise Unreadable(f"{key}: expected seconds from 0 to 1e10, found {value}")
    return float(value)


def flag(obj: dict[str, Any], key: str) -> bool | None:
    """Take the truth value `key` out of `obj`."""
    value = obj.pop(key, None)
    if value is None or type(value) is bool:
        return value
    raise Unreadable(f"{key}: expected true or false, found {kind(value)}")


def child(obj: dict[str, Any], key: str) -> dict[str, Any]:
    """The object `key` of `obj`, left in place; an empty one where it is missing or null."""
    value = obj.get(key)
    if value is None:
        return {}
    if type(value) is not dict:
        raise Unreadable(f"{key}: expected an object, found {kind(value)}")
    return value
