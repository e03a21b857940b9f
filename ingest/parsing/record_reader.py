"""The records of a file: its lines, each with the header that holds for it, or all of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from gzip import GzipFile
from typing import IO, NamedTuple, cast

from ingest.parsing.json_source import GZIP
from ingest.parsing.source import Source

_CHUNK = 64 * 1024


class TooLong(Exception):
    """A file that is one record is longer than records may be; its text says so."""


class RecordPiece(NamedTuple):
    """One record of a file: its number from 1 (its line's), its bytes, its header lines.

    `cut`: it is only a part of a line that is longer than lines may be.
    """

    number: int
    raw: bytes
    header: bytes
    cut: bool = False


def pieces(
    stream: IO[bytes], source: Source, header: bytes = b"", longest: int = -1
) -> Iterator[RecordPiece]:
    """The records of a file of `source`, without ends of line.

    A packed file (gzip) of lines is unpacked, one that is a record stays as it is.
    `header` holds until the file has header lines of its own; those are no records.
    `longest` bounds what is held: a longer line comes in parts, a longer record of
    a whole file raises `TooLong`. Raises `OSError`, `EOFError` or `zlib.error`
    where gzip of lines is broken.
    """
    start = _some(stream, _CHUNK)
    # A pipe may give one byte first; the mark of gzip has two.
    start += _some(stream, 1) if len(start) == 1 else b""
    if start[:2] != GZIP:
        yield from _unpacked(_together(start, stream), source, header, longest)
        return
    # Kept packed: bronze keeps a file that is one record as it was received.
    if source.whole_file:
        content = start + _rest(stream, longest, len(start))
        if _starts_whole(content, source):
            yield RecordPiece(1, content, header)
            return
        stream, start = io.BytesIO(content), b""
    with GzipFile(fileobj=_together(start, stream)) as lines:
        yield from _unpacked(cast("IO[bytes]", lines), source, header, longest)


def whole(stream: IO[bytes], longest: int = -1) -> Iterator[RecordPiece]:
    """A file as its one record, as of formats that have no lines. Raises `TooLong`."""
    content = _rest(stream, longest, 0)
    if content:
        yield RecordPiece(1, content, b"")


class _Joined(io.RawIOBase):
    """What was read of a stream to look at it, and then the stream."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io passes
        start = self._start[: len(buffer)] or _some(self._rest, len(buffer))
        self._start = self._start[len(buffer) :]
        buffer[: len(start)] = start
        return len(start)


def _together(start: bytes, rest: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(_Joined(start, rest), _CHUNK))


def _some(stream: IO[bytes], size: int) -> bytes:
    """What is there, up to `size`; of a pipe not waiting for more."""
    # `read` would wait until a pipe has given all of it.
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(size)


def _rest(stream: IO[bytes], longest: int, had: int) -> bytes:
    """All that is left, if the whole is not longer than records may be."""
    if longest < 0:
        return stream.read()
    # One byte more than allowed shows that there is more, without reading all of it.
    content = stream.read(max(0, longest - had) + 1)
    if had + len(content) > longest:
        raise TooLong(f"the file is one record of more than {longest} bytes")
    return content


def _starts_whole(content: bytes, source: Source) -> bool:
    try:
        with GzipFile(fileobj=io.BytesIO(content)) as lines:
            return source.is_whole(lines.readline())
    except (OSError, EOFError):
        return True  # as one record it becomes a dead letter that says so


def _unpacked(
    stream: IO[bytes], source: Source, header: bytes, longest: int
) -> Iterator[RecordPiece]:
    first = stream.readline(longest)
    if source.whole_file and source.is_whole(first):
        yield RecordPiece(1, first + _rest(stream, longest, len(first)), header)
        return
    yield from _lines(first, stream, source, header, longest)


def _lines(
    line: bytes, stream: IO[bytes], source: Source, header: bytes, longest: int
) -> Iterator[RecordPiece]:
    block: list[bytes] = []
    number, part_of_long = 0, False
    while line:
        number += 1
        # Only a part that ends its line, or its file, is no longer cut off from what follows it.
        goes_on = longest > 0 and len(line) >= longest and not line.endswith(b"\n")
        bare = line.rstrip(b"\r\n")
        if goes_on or part_of_long:
            yield RecordPiece(number, line, header, cut=True)
        elif source.is_header(bare):
            block.append(bare)
            header = b"\n".join(block)
        else:
            block = []  # a header line after this one begins another block
            yield RecordPiece(number, bare or line, header)
        part_of_long = goes_on
        line = stream.readline(longest)
