"""Inventory files: CSV with a header, or JSON lines; what cannot be read is named by its line.

A line is a record: a cell cannot span lines, so a quote that is never closed costs one line
and not the rest of the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from enrich.assets.registers import Register, RegisterEntry
from infra.config.bounded_files import bounded_bytes
from infra.errors import Usage
from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import decode_object, not_utf8

_LINE_BYTES = 1024 * 1024
_FILE_BYTES = 256 * 1024 * 1024
_FILE_LINES = 2_000_000
_COLUMNS = 1_000
_SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class RefusedLine:
    """A line that is not taken, and why."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class _Listing:
    """What the files of an inventory say; `entries` with the file each came from."""

    entries: list[tuple[str, RegisterEntry]]
    refused: list[RefusedLine]


def read_inventory(where: str, register: Register) -> _Listing:
    """Read a file, or all files of a folder as one list. Raises `Usage` for what is no inventory.

    Of two lines about one entry at one instant the first counts and the second is refused.
    """
    entries: list[tuple[str, RegisterEntry]] = []
    refused: list[RefusedLine] = []
    seen: dict[tuple[str, Any], str] = {}
    for file in files_of(where):
        for number, result in _records(file, register):
            try:
                if isinstance(result, str):
                    raise ValueError(result)
                entry = register.entry(result, number)
                first = seen.setdefault((entry.id, entry.valid_from), f"{file.name}:{number}")
                if first != f"{file.name}:{number}":
                    raise ValueError(f"{register.one} '{entry.id}' is on {first} already")
                entries.append((file.name, entry))
            except ValueError as error:
                refused.append(RefusedLine(file.name, number, str(error)))
    return _Listing(entries, refused)


def files_of(where: str) -> list[Path]:
    """The files that a path, or a `file://` URL, of a file or folder stands for."""
    parts = urlsplit(where)
    if parts.scheme in ("http", "https"):
        raise Usage(
            f"{where}: nothing is fetched from a network; let another program "
            "refresh a file and name that file"
        )
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(where)
    if not path.is_dir():
        return [path]
    try:
        # In order, as of two lines about one entry the first counts.
        ordered = sorted(
            path_row for path_row in path.iterdir() if path_row.suffix.lower() in _SUFFIXES
        )
    except OSError as error:
        raise Usage(f"{path}: cannot be read ({error.strerror})") from None
    if not ordered:
        raise Usage(f"{path}: no file in it ends in {', '.join(_SUFFIXES)}")
    return ordered


def _records(file: Path, register: Register) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Numbered lines as fields, or as the reason why they are none; empty lines are passed over."""
    try:
        if (size := file.stat().st_size) > _FILE_BYTES:
            raise Usage(f"{file}: {size} bytes; an inventory file has at most {_FILE_BYTES}")
    except OSError as error:
        raise Usage(f"{file}: cannot be read ({error.strerror})") from None
    data = bounded_bytes(file, _FILE_BYTES)
    if (count := data.count(b"\n") + data.count(b"\r")) > _FILE_LINES:
        raise Usage(f"{file}: {count} lines; an inventory file has at most {_FILE_LINES}")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Usage(f"{file}: is UTF-16; save it as UTF-8")
    lines = [
        (number, line)
        # Spreadsheets begin UTF-8 with a byte order mark, which would be part of the first heading.
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1)
        if line.strip()
    ]
    start = lines[0][1].lstrip()[:1] if lines else b""
    if start == b"[":
        raise Usage(f"{file}: a JSON array; write one object a line (jq -c '.[]')")
    if start == b"{":
        return ((number, _object(line)) for number, line in lines)
    return _table(file, lines, register)


def _object(line: bytes) -> dict[str, Any] | str:
    try:
        return decode_object(line, _LINE_BYTES)
    except Unreadable as error:
        return str(error)


def _table(
    file: Path, lines: Sequence[tuple[int, bytes]], register: Register
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    if not lines:
        raise Usage(f"{file}: is empty; an inventory without entries needs its header at least")
    number, first = lines[0]
    # Where the comma is the decimal sign, spreadsheets write semicolons between cells.
    delimiter = max(b",;\t", key=first.count)
    header = _cells(first, chr(delimiter))
    if isinstance(header, str):
        raise Usage(f"{file}:{number}: the header cannot be read: {header}")
    names = [heading.strip() for heading in header]
    if len(names) > _COLUMNS:
        raise Usage(f"{file}:{number}: {len(names)} columns; at most {_COLUMNS} are read")
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise Usage(f"{file}:{number}: column '{doubled[0]}' stands twice in the header")
    if not any(register.column(name) in register.keys for name in names):
        raise Usage(
            f"{file}:{number}: the header names none of {', '.join(register.keys)}; "
            f"it has {', '.join(names)[:200]}"
        )
    return ((position, _row(line, chr(delimiter), names)) for position, line in lines[1:])


def _row(line: bytes, delimiter: str, names: Sequence[str]) -> dict[str, Any] | str:
    cells = _cells(line, delimiter)
    if isinstance(cells, str):
        return cells
    if len(cells) != len(names):
        return f"{len(cells)} cells where the header has {len(names)}"
    return dict(zip(names, cells, strict=True))


def _cells(line: bytes, delimiter: str) -> list[str] | str:
    """The cells of a line, or the reason why it has none."""
    if len(line) > _LINE_BYTES:
        return f"{len(line)} bytes; at most {_LINE_BYTES} are read"
    try:
        # Strict: a stray quote is refused rather than read as a part of the cell.
        return next(csv.reader([line.decode()], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        return not_utf8(line)
    except csv.Error as error:
        if "unexpected end" in str(error):
            return "a quote that is not closed on this line"
        return str(error)
