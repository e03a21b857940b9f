"""Files from outside within bounds that hold before their content is in memory.

What a size says of a file is no promise: a device has none, and a file grows while it is read. So
one byte more than the bound is asked for, and never the whole.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.errors import Usage

MAX_TOML_BYTES = 256 * 1024
"""Bytes of a settings file or a replay plan; the longest of use have a hundredth of it."""
MAX_LINE_CHARS = 1 << 20

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONG_KEY = re.compile(r"""^[\s\[]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')\s*\.\s*){32}""", re.MULTILINE)
"""A TOML key of more parts than any setting has; its parser takes the square of their number."""


def bounded_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes. Raises `Usage` for another."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Usage(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise Usage(f"{path}: larger than {most} bytes, which are the most that are read")
    return content


def bounded_text(path: Path, most: int) -> str:
    """The same of a UTF-8 text, without its byte order mark."""
    try:
        return bounded_bytes(path, most).removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        raise Usage(f"{path}: not UTF-8 at byte {error.start}") from None


def toml_file(path: Path, what: str = "valid TOML") -> dict[str, Any]:
    """A file of TOML. Raises `Usage` that names the file and what it should be."""
    text = bounded_text(path, MAX_TOML_BYTES)
    if _LONG_KEY.search(text):
        raise Usage(f"{path}: not {what}: a key of more than 32 parts")
    try:
        return tomllib.loads(text)
    # ValueError: a number of thousands of digits; its parser also goes as deep as it is told.
    except (ValueError, RecursionError) as error:
        raise Usage(f"{path}: not {what}: {_reason(error)}") from None


def json_value(text: str) -> Any:
    """The value that a text of JSON is. Raises `ValueError`, for depth and long numbers too."""
    try:
        return json.loads(text, parse_int=_int)
    except RecursionError as error:
        raise ValueError(_reason(error)) from None


def bounded_lines(path: Path) -> Iterator[tuple[int, str | None]]:
    """The lines of a UTF-8 text, from 1, None for one that is too long to be read.

    Raises `OSError` and `UnicodeDecodeError` as reading does.
    """
    with path.open(encoding="utf-8-sig") as file:
        number = 0
        while line := file.readline(MAX_LINE_CHARS):
            number += 1
            if len(line) < MAX_LINE_CHARS or line.endswith("\n"):
                yield number, line
                continue
            # Passed over in pieces: a file without any newline is one such line.
            while (rest := file.readline(MAX_LINE_CHARS)) and not rest.endswith("\n"):
                pass
            yield number, None


def _int(digits: str) -> int | float:
    # Python refuses thousands of digits with words that only programmers understand.
    return int(digits) if len(digits) < 100 else float(digits)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number of too many digits" if "digits" in str(error) else str(error)
