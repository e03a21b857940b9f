"""Values of the tables as cells of a terminal or a spreadsheet: attackers choose some of them."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet runs."""


def cell(value: Any) -> str:
    """A value as text: nothing for none, JSON for what is no text and no time."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else json_text(value)


def printable(value: Any) -> str:
    """A cell with control characters written out: a host name must not steer the terminal."""
    text = cell(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def is_text(value: str) -> bool:
    """Whether it can stand on a command line and in UTF-8: no NUL, no half of a character."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def harmless(value: Any) -> str:
    """A cell for CSV: a quote in front stops what a spreadsheet would run as a formula."""
    text = cell(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON that no terminal and no encoding stumbles over: what cannot be printed is
    escaped, which JSON reads as the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_as_json)
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _as_json(value: Any) -> Any:
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
