"""Strict JSON: one object, all of it, and nothing besides.

What a lenient reader lets pass is a way to smuggle a log line past a detector:
a second object on the line, a key that stands twice, bytes after the end.

An odd value deep inside is no reason to lose the event around it: it is kept in a form that
no reader takes for the value of a field, and named in `oddities` beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ingest.parsing.message_bounds import (
    MAX_EVENTS,
    require_few,
    require_few_repeated,
    require_few_values,
)
from ingest.parsing.source import Unreadable

LINE_BYTES = 10 * 1024 * 1024
FILE_BYTES = 64 * 1024 * 1024
# Far below Python's own limit, so that nothing behind this needs to fear recursion.
_DEPTH = 64
INT64 = 2**63

_LEVELS = 8
"""Levels of nearly all records: a record of no more is judged by msgspec as it is read."""


def _within(levels: int) -> Any:
    """The type of a JSON value of so many levels whose whole numbers a column can hold."""
    scalar: Any = bool | Annotated[int, Meta(ge=-INT64, le=INT64 - 1)] | float | str | None
    value = scalar
    for _ in range(levels):
        # By `GenericAlias`, as a type that is computed stands in no annotation.
        value = scalar | GenericAlias(list, (value,)) | GenericAlias(dict, (str, value))
    return value


_decode = msgspec.json.Decoder().decode
_decode_usual = msgspec.json.Decoder(GenericAlias(dict, (str, _within(_LEVELS)))).decode
_encode = msgspec.json.Encoder().encode
ODDITIES = "oddities"
"""Key, in the object that holds a value which JSON allows and no column can take, of what was
odd: a number beyond 64 bits (kept as text), half a surrogate pair (kept as its escape), a key
that stands twice (`Repeated`), more levels than are read (kept as JSON text)."""
_NAMED_ODDITIES = 8
_NAMES = {
    type(None): "null",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "an object",
}


class Repeated(list[Any]):
    """The values of a key that stands several times in an object. No reader takes it for a list."""


_NAMES[Repeated] = "several values under one key"


def decode_object(raw: bytes, limit: int = LINE_BYTES) -> dict[str, Any]:
    """The one JSON object that `raw` is. Raises `Unreadable`.

    Refused: anything before or after it, invalid UTF-8, a key of its own twice, more than
    `limit` bytes. What is odd further inside is kept and named (`ODDITIES`).
    """
    if len(raw) > limit:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {limit} are read")
    require_few_values(raw)
    odd = False
    usual = _usual_object(raw)
    if usual is not None and _is_compact(raw, usual):
        return usual
    value: dict[str, Any]
    try:
        value = _decode(raw) if usual is None else usual
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # 1e999 and half of a surrogate pair are JSON all the same; Python's reader takes them.
        odd = "out of range" in str(error) or _SURROGATE.search(raw) is not None
        if not odd:
            raise Unreadable(_reason(raw, error)) from None
        value = _slowly(raw, error)
    if not isinstance(value, dict):
        raise Unreadable(f"expected a JSON object, found {_NAMES[type(value)]}")
    if not odd:
        # Of a key that stands twice msgspec keeps the last; a detector upstream may see the first.
        keys = _measure(value, 1)
        if keys is not None and _as_many(raw, keys):
            return value
        value = _slowly(raw, None)
    _repair(value, 1)
    require_single(value)
    return value


def plain_object(raw: bytes) -> dict[str, Any] | None:
    """The object that `raw` is where nothing in it is odd; None where `decode_object` must look."""
    try:
        usual = _usual_object(raw)
        if usual is not None and _is_compact(raw, usual):
            return usual
        value: Any = _decode(raw) if usual is None else usual
        keys = _measure(value, 1) if type(value) is dict else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Unreadable):
        return None
    return value if keys is not None and _as_many(raw, keys) else None


def _usual_object(raw: bytes) -> dict[str, Any] | None:
    """The object that `raw` is, of few levels and whole numbers that a column can hold.

    Of a key that stands twice it has the last. None if in doubt.
    """
    # Whoever writes a space behind the first colon writes it behind all: not worth the try.
    if b'": ' in raw[:64]:
        return None
    try:
        value: dict[str, Any] = _decode_usual(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value


def _is_compact(raw: bytes, value: dict[str, Any]) -> bool:
    """Whether `raw` is what `value` is written as, without a space; so no key stood twice.

    Raises `Unreadable` for too many values in one array or object.
    """
    if _encode(value) != raw:
        return False
    # In fewer bytes there are no more values.
    if len(raw) > MAX_EVENTS:
        _measure(value, 1)
    return True


def _as_many(raw: bytes, keys: int) -> bool:
    """Whether `raw` has as many keys as were read; if in doubt, not."""
    # A key is followed by a colon, so with as many `":` as keys none stood twice.
    # Space before a colon or a `\":` in a string only costs the exact look.
    if raw.count(b'":') != keys or b" :" in raw:
        return False
    # One byte is looked for ten times as fast as two.
    return not any(space in raw and space + b":" in raw for space in (b"\t", b"\n", b"\r"))


def require_single(fields: dict[str, Any]) -> None:
    """Raises `Unreadable` where a key of a record stands twice: which of the two decides?"""
    for key, value in fields.items():
        if type(value) is Repeated:
            raise Unreadable(f"the key '{key[:80]}' stands twice in one object")


def require_repeatable(common: Mapping[str, Any], count: int) -> None:
    """Raises `Unreadable` where the events of one message, `count` of them, would repeat too much
    of what stands around them."""
    if count > 1 and common:
        require_few_repeated(len(_encode(common)), count)


def encode(value: object) -> str:
    """JSON text of `value`."""
    return _encode(value).decode()


def kind(value: object) -> str:
    """What JSON calls the type of `value`."""
    return _NAMES.get(type(value), type(value).__name__)


def _measure(node: Any, depth: int) -> int | None:
    """Number of keys in `node`; None where something in it is odd."""
    if depth > _DEPTH:
        return None
    keys, values = (len(node), node.values()) if type(node) is dict else (0, node)
    # Width is bounded as well as depth: one array may be all of the message.
    if len(node) > MAX_EVENTS:
        require_few(len(node), "values in one array or object")
    for value in values:
        of = type(value)
        if of is str:
            continue
        if of is dict or of is list:
            inside = _measure(value, depth + 1)
            if inside is None:
                return None
            keys += inside
        # Spark and Delta have no integer wider than 64 bits.
        elif of is int and not -INT64 <= value < INT64:
            return None
    return keys


class _Beyond(str):
    """A number that no column can hold, as it is written."""


_NAMES[_Beyond] = _NAMES[int]


def _whole(written: str) -> int | _Beyond:
    # Nearly all are so short that they fit.
    if len(written) < 19:
        return int(written)
    # Before `int`: Python refuses thousands of digits with an error of its own.
    if len(written) > 20 or not -INT64 <= int(written) < INT64:
        return _Beyond(written)
    return int(written)


def _real(written: str) -> float | _Beyond:
    number = float(written)
    return number if isfinite(number) else _Beyond(written)


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in items:
        if key not in fields:
            fields[key] = value
        elif type(fields[key]) is Repeated:
            fields[key].append(value)
        else:
            fields[key] = Repeated((fields[key], value))
    return fields


def _never(word: str) -> None:
    raise ValueError(f"not valid JSON: {word}")


_slow = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_whole, parse_float=_real, parse_constant=_never
).decode


def _slowly(raw: bytes, error: Exception | None) -> Any:
    """What `raw` says, with each value of a key that stands twice and numbers of any size."""
    try:
        return _slow(raw.decode())
    except (ValueError, RecursionError) as why:
        raise Unreadable(_reason(raw, error or why)) from None


def _repair(node: Any, depth: int) -> tuple[list[str], int]:
    """Gives odd values in `node` a form that can be stored; what was odd, for its holder to name,
    and how many there were.

    An object names its own; an array has no keys, so its holder does.
    """
    require_few(len(node), "values in one array or object")
    # No more than are shown: each level would write its own place before millions of them.
    names: list[str] = []
    count = 0
    for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
        if type(value) in _NEVER_ODD:
            continue
        new, why, many = _repaired(value, depth)
        if many:
            names += [f"{key}: {reason}" for reason in why[: _NAMED_ODDITIES - len(names)]]
            count += many
            node[key] = new
    if not isinstance(node, dict):
        return names, count
    for key in [key for key in node if _has_surrogate(key)]:
        node[_escaped(key)] = node.pop(key)
        names.append(f"{_escaped(key)}: half of a surrogate pair, kept as its escape")
        count += 1
    if names:
        shown = [_shortened(name) for name in names[:_NAMED_ODDITIES]]
        more = [f"and {count - _NAMED_ODDITIES} more"] if count > _NAMED_ODDITIES else []
        node[_free_key(node)] = shown + more
    return [], 0


_NEVER_ODD = frozenset({int, float, bool, type(None)})


def _repaired(value: Any, depth: int) -> tuple[Any, list[str], int]:
    of = type(value)
    if of is _Beyond:
        return str(value), ["a number beyond 64 bits, kept as text"], 1
    if of is str and _has_surrogate(value):
        return _escaped(value), ["half of a surrogate pair, kept as its escape"], 1
    if of is dict or of is list or of is Repeated:
        if depth == _DEPTH:
            return _as_text(value), [f"more than {_DEPTH} levels, kept as text"], 1
        names, count = _repair(value, depth + 1)
        if of is Repeated:
            # `True` equals 1, hence the types too.
            if type(value[0]) not in (dict, list) and (
                value.count(value[0]) == len(value) and len(set(map(type, value))) == 1
            ):
                return value[0], [f"stands {len(value)} times with the same value"], 1
            return value, [f"stands {len(value)} times", *names], count + 1
        return value, names, count
    return value, [], 0


def _has_surrogate(text: str) -> bool:
    # ASCII is most of it, and known at once.
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        # Python reads a little deeper than it writes.
        raise Unreadable(f"nested deeper than {_DEPTH} levels") from None


def _shortened(name: str) -> str:
    # A path may be long; what is odd stands at its end.
    return _escaped(name if len(name) <= 200 else f"{name[:100]}...{name[-100:]}")


def _free_key(fields: dict[str, Any]) -> str:
    key = ODDITIES
    while key in fields:
        key += "_"
    return key


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


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
    if "truncated" in text and _SURROGATE.search(raw):
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


def take_string(obj: dict[str, Any], key: str) -> str | None:
    """Take the string `key` out of `obj`; None where it is missing or null."""
    value = obj.pop(key, None)
    if value is None or type(value) is str:
        return value
    raise Unreadable(f"{key}: expected a string, found {kind(value)}")


def integral(value: Any) -> Any:
    """`25238.0`, as shippers through JavaScript or Lua write a whole number, as one."""
    return int(value) if type(value) is float and value.is_integer() else value


def number(obj: dict[str, Any], key: str, most: int = INT64 - 1) -> int | None:
    """Take the whole number `key`, from 0 to `most`, out of `obj`."""
    value = integral(obj.pop(key, None))
    if value is None:
        return None
    if type(value) is not int:
        raise Unreadable(f"{key}: expected a whole number, found {kind(value)}")
    if not 0 <= value <= most:
        raise Unreadable(f"{key}: expected a number from 0 to {most}, found {value}")
    return value


def take_seconds(obj: dict[str, Any], key: str) -> float | None:
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
