"""Lines of each text source with a hole that somebody outside fills, and how products escape it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from xml.sax.saxutils import escape as xml

IP, USER = "6.6.6.6", "mallory"
REAL = "10.0.0.5"
STAMP = "<86>1 2026-03-02T09:00:00Z b1 "


def plain(text: str) -> str:
    return text


def apache(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def nginx(text: str) -> str:
    return text.replace("\\", "\\x5C").replace('"', "\\x22")


def no_space(text: str) -> str:
    return text.replace(" ", "+")


def percent(text: str) -> str:
    return text.replace(" ", "%20").replace('"', "%22").replace("\t", "%09")


def cef(text: str) -> str:
    return text.replace("\\", "\\\\").replace("=", "\\=")


def csv(text: str) -> str:
    return text.replace('"', '""')


def leases_csv(text: str) -> str:
    return text.replace("&", "&#x26").replace(",", "&#x2c")


def audit(text: str) -> str:
    """In quotes, or in hexadecimal where it holds a space, a quote or a control character."""
    plain = text.isascii() and not any(c <= " " or c == '"' for c in text)
    return f'"{text}"' if plain else text.encode().hex().upper()


def tabs(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\x09")


def element(text: str) -> str:
    return xml(text)


class Holes(NamedTuple):
    """Lines of a source with `{}` where an outsider writes, and how the product escapes that."""

    source: str
    lines: tuple[str, ...]
    before: str = ""
    escape: Callable[[str], str] = plain
    imitated: tuple[str, ...] = ()
    header: bytes = b""
    """Header lines that hold for the record."""
