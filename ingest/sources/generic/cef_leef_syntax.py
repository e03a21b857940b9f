"""The two formats that `cef` reads: CEF's header and extension, LEEF's attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ingest.parsing.source import Unreadable
from ingest.sources.shared.firewall import Fields
from ingest.sources.shared.key_values import put

# A key stands at the start or behind a blank, and `==` is part of a value, as in base64.
_KEY = re.compile(r"(?:(?<=^)|(?<=[ \t]))([\w.\[\]-]{1,64}|\w[\w.]{0,63})=(?!=)", re.ASCII)
LEEF_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "srcPort": "spt",
        "dstPort": "dpt",
        "srcMAC": "smac",
        "dstMAC": "dmac",
        "usrName": "suser",
        "srcBytes": "out",
        "dstBytes": "in",
        "sev": "severity",
        "devTime": "rt",
        "srcPreNAT": "srcPreNAT",
        "identHostName": "shost",
        "url": "request",
        "policy": "rule",
        "action": "act",
        "domain": "sntdom",
        "username": "suser",
        "srcport": "spt",
        "dstport": "dpt",
        "proto": "proto",
    }
)


class CefHeader(NamedTuple):
    """The header of an event in either format, and its extension."""

    vendor: str
    product: str
    version: str
    signature: str
    name: str
    severity: str
    fields: Fields


def _split(text: str, parts: int) -> list[str]:
    """The first `parts` fields between bars, `\\|` being none, and what follows."""
    results: list[str] = []
    piece: list[str] = []
    position = 0
    while position < len(text) and len(results) < parts:
        as_text = text[position]
        if as_text == "\\" and text[position + 1 : position + 2] in ("|", "\\"):
            piece.append(text[position + 1])
            position += 2
            continue
        if as_text == "|":
            results.append("".join(piece))
            piece = []
        else:
            piece.append(as_text)
        position += 1
    if len(results) < parts and piece:
        results.append("".join(piece))
    return [*results, text[position:]]


_ESCAPED = re.compile(r"\\([\\=nrt|\"])")
_MEANS = {"n": "\n", "r": "\r", "t": "\t"}


def _plain(value: str) -> str:
    return _ESCAPED.sub(lambda match: _MEANS.get(match[1], match[1]), value)


def _extension(text: str) -> Fields:
    """The pairs of a CEF extension."""
    fields = Fields()
    keys = list(_KEY.finditer(text))
    if keys and text[: keys[0].start()].strip():
        fields["extension"] = text[: keys[0].start()].strip()
    for here, there in zip(keys, [*keys[1:], None], strict=False):
        value = text[here.end() : there.start() if there else len(text)].strip()
        if value:
            put(fields, here[1], _plain(value))
    if not keys and text.strip():
        fields["extension"] = text.strip()
    return fields


def of_cef(text: str) -> CefHeader:
    parts = _split(text, 6)
    extension = parts.pop() if len(parts) == 7 else ""
    if len(parts) < 5:
        raise Unreadable(f"{len(parts)} fields between bars where CEF has 6")
    fields = _extension(extension)
    # Some products leave out the last fields of the header.
    parts += [""] * (6 - len(parts))
    vendor, product, version, uid, name, level = (part.strip() for part in parts[:6])
    return CefHeader(vendor, product, version, uid, name, level, fields)


def of_leef(version: str, text: str) -> CefHeader:
    parts = _split(text, 5 if version == "2.0" else 4)
    body = parts.pop()
    if len(parts) < 4:
        raise Unreadable(f"{len(parts)} fields between bars where LEEF has 4")
    # The default of both versions.
    delimiter = "\t"
    if version == "2.0" and len(parts) == 5:
        named = parts[4]
        if re.fullmatch(r"(?:0?x)[0-9a-fA-F]{1,4}", named):
            delimiter = chr(int(named.lower().rpartition("x")[2], 16))
        elif len(named) == 1:
            delimiter = named
        # LEEF 2.0 without its field for the delimiter: what stands there is the first pair.
        elif "=" in named:
            body = f"{named}|{body}" if body else named
    fields = Fields()
    for pair in body.split(delimiter):
        key, equals, value = pair.strip().partition("=")
        if equals:
            put(fields, LEEF_NAMES.get(key, key), value)
        elif key:
            put(fields, "extension", key)
    level = fields.text("severity") or ""
    vendor, product, release, uid = parts[:4]
    return CefHeader(vendor, product, release, uid, fields.get("name", uid), level, fields)
