"""Files of a checkpoint or of Delta's log that a crash or a disk has damaged, before use.

Source of the form of checksums: Hadoop's ChecksumFileSystem, which keeps `.NAME.crc` beside
each file it writes: the bytes `crc` and 0, how many bytes a sum covers (four bytes, big-endian),
then a CRC-32 of each such part.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from infra.errors import Fatal
from infra.storage.paths import Location

_HEADER = b"crc\0"


class Damaged(ValueError):
    """A file is not what was written; the text says how that shows."""


def read_checked(file: Location) -> str:
    """Text of a file. Raises `Damaged` when its checksum, if it has one, says otherwise.

    A bucket has none: the store compares what it keeps with sums of its own.
    """
    content = file.read_bytes()
    try:
        message = sums_beside(file).read_bytes() if isinstance(file, Path) else b""
    except FileNotFoundError:
        message = b""
    if message.startswith(_HEADER) and message[8:] != _sums(
        content, int.from_bytes(message[4:8], "big")
    ):
        raise Damaged("its checksum says otherwise")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(str(error)) from None


def sums_beside(file: Path) -> Path:
    """Where Hadoop keeps the sums of a file."""
    return file.with_name(f".{file.name}.crc")


def sums_file(content: bytes, step: int = 512) -> bytes:
    """What Hadoop writes beside a file of such a content."""
    return _HEADER + step.to_bytes(4, "big") + _sums(content, step)


def _sums(content: bytes, step: int) -> bytes:
    # A damaged header may say 0 bytes, a step that `range` refuses.
    parts = (content[index : index + step] for index in range(0, len(content), max(1, step)))
    return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def json_lines(text: str) -> list[str]:
    """The lines of a text with one JSON value a line, but for empty ones.

    Not `splitlines`: a line may hold U+2028 and its like, which JSON does not escape.
    """
    return [line for line in text.split("\n") if line.strip()]


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text, one a line. Raises `Damaged`, also where there is none."""
    result = [json_object(line) for line in json_lines(text)]
    if not result:
        raise Damaged("it is empty")
    return result


def logged(file: Path, lines: int) -> list[str]:
    """The lines of an entry of Spark's offset or commit log, at least so many, `v1` the first."""
    splitlines = read_checked(file).splitlines()
    if len(splitlines) < lines or splitlines[0] != "v1":
        raise Damaged("it is cut short" if splitlines else "it is empty")
    json_object(splitlines[1])
    return splitlines


def json_object(text: str) -> dict[str, Any]:
    """A JSON object. Raises `Damaged`."""
    try:
        decoded = json.loads(text)
    except ValueError as error:
        raise Damaged(f"no JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise Damaged("no JSON object")
    return decoded


def emptied(state: Path) -> Path | None:
    """A file of Spark's state without a byte, as none is ever written; None: there is none."""
    files = (file for file in state.rglob("[0-9]*") if file.is_file())
    return next((file for file in files if file.stat().st_size == 0), None)


def damaged(file: Location, error: Exception, remedy: str) -> Fatal:
    """What is said of a file of ours that cannot be read."""
    return Fatal(f"{file} is damaged ({error}); {remedy}")
