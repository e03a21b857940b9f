"""Text of `key=value` pairs, values in quotes where they hold spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ingest.sources.shared.firewall import Fields

_BLANK = re.compile(r"[\s,]*+", re.ASCII)
_KEY = re.compile(r"([A-Za-z_][\w.-]{0,63})=", re.ASCII)
# Possessive, so that a quote that is never closed costs one look and not many.
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_WORD = re.compile(r"[^\s]*")
_CELL = re.compile(r"[^,]*")
_ESCAPED = re.compile(r'\\(["\\])')


def key_values(text: str, *, commas: bool = False) -> Fields:
    """The pairs of `text`, from its start; what is no pair is kept under `text`.

    Read from the left, so that what stands in quotes is never taken for a key. Of a
    key that stands twice the first counts: others may have written the second, which
    is kept in `key_again`. A quote that is never closed runs to the end.
    """
    fields = Fields()
    words: list[str] = []
    position = begin = 0
    while position < len(text):
        # A word may be blank itself, as a form feed is, and then ends within what was passed here:
        # passed again for each, many of them would cost a square.
        if position >= begin and (blank := _BLANK.match(text, position)):
            begin = blank.end()
        match = _KEY.match(text, begin)
        if match is None:
            end = _next_space(text, position)
            word = text[position:end].strip(" ,\t")
            if word:
                words.append(word)
            position = end
            continue
        value, position = _value(text, match.end(), commas)
        put(fields, match[1], value)
    if words:
        fields["text"] = " ".join(words)
    return fields


def put(fields: Fields, key: str, value: str) -> None:
    """Set `key`, or where it stands already, keep `value` in the list `key_again`."""
    if key not in fields:
        fields[key] = value
        return
    again = fields.get(f"{key}_again")
    if type(again) is list:
        again.append(value)
    else:
        fields[f"{key}_again"] = [value] if again is None else [again, value]


def certain(fields: Fields, keys: Iterable[str]) -> Fields:
    """`fields` without those of `keys` that stand twice with different values.

    A product that does not escape what others choose lets them write keys of their
    own, and which of two is the product's cannot be told. Both are kept under other
    names, and the record is marked `ambiguous`.
    """
    for key in keys:
        again = fields.get(f"{key}_again")
        if type(again) is list and any(element != fields.get(key) for element in again):
            fields[f"{key}_first"] = fields.pop(key)
            fields["ambiguous"] = True
    return fields


def _next_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " ,\t":
        position += 1
    while position < len(text) and text[position] not in " \t":
        position += 1
    return position


def _value(text: str, at: int, commas: bool) -> tuple[str, int]:
    if text[at : at + 1] == '"':
        quoted = _QUOTED.match(text, at)
        # Cut off by a limit on the line's length: all that is left belongs to the value.
        if quoted is None:
            return text[at + 1 :], len(text)
        return _ESCAPED.sub(r"\1", quoted[1]), quoted.end()
    plain = (_CELL if commas else _WORD).match(text, at)
    return (plain[0], plain.end()) if plain else ("", at)
