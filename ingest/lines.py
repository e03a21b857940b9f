"""The records of a file: its lines, each with the header that holds for it, or all of it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from gzip import GzipFile
from itertools import chain
from typing import IO, NamedTuple

from ingest.source import Source

GZIP = b"\x1f\x8b"


class Piece(NamedTuple):
    """One record of a file: its number from 1 (its line's), its bytes, its header lines."""

    number: int
    raw: bytes
    header: bytes


def pieces(stream: IO[bytes], source: Source, header: bytes = b"") -> Iterator[Piece]:
    """The records of a file of `source`, without ends of line.

    A packed file (gzip) of lines is unpacked, one that is a record stays as it is.
    `header` holds until the file has header lines of its own; those are no records.
    Raises `OSError` or `EOFError` where gzip of lines is broken.
    """
    first = stream.readline()
    if first[:2] != GZIP:
        yield from _unpacked(first, stream, source, header)
        return
    content = first + stream.read()
    if source.whole_file and _starts_whole(content, source):
        yield Piece(1, content, header)
        return
    with GzipFile(fileobj=io.BytesIO(content)) as lines:
        yield from _unpacked(lines.readline(), lines, source, header)


def _starts_whole(content: bytes, source: Source) -> bool:
    try:
        with GzipFile(fileobj=io.BytesIO(content)) as lines:
            return source.is_whole(lines.readline())
    except (OSError, EOFError):
        return True  # as one record it becomes a dead letter that says so


def _unpacked(
    first: bytes, rest: IO[bytes] | GzipFile, source: Source, header: bytes
) -> Iterator[Piece]:
    if source.whole_file and source.is_whole(first):
        yield Piece(1, first + rest.read(), header)
        return
    yield from _lines(chain([first] if first else [], rest), source, header)


def _lines(lines: Iterable[bytes], source: Source, header: bytes) -> Iterator[Piece]:
    block: list[bytes] = []
    for number, line in enumerate(lines, 1):
        bare = line.rstrip(b"\r\n")
        if source.is_header(bare):
            block.append(bare)
            header = b"\n".join(block)
        else:
            block = []  # a header line after this one begins another block
            yield Piece(number, bare or line, header)
