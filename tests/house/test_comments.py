"""Enough comments to enter a module by: the share of lines that carry one."""

from __future__ import annotations

import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("headgate", "infra", "ingest", "enrich", "alerts", "reporting", "api")

LEAST = 0.03
"""Of the lines that are not blank so many have a comment; docstrings do not count as such."""

DIRECTIVES = ("# noqa", "# type:", "# fmt:", "#!")
"""How comments begin that tell a tool something, and a reader nothing."""


def commented(source: bytes) -> int:
    """How many lines of a module have a comment that is meant for people."""
    return sum(
        token.type == tokenize.COMMENT and not token.string.startswith(DIRECTIVES)
        for token in tokenize.tokenize(BytesIO(source).readline)
    )


def sources() -> Iterator[bytes]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield file.read_bytes()


def test_directives_texts_and_docstrings_are_no_comments() -> None:
    module = b'"""# Of the module."""\nx = "# text"  # noqa: E501\n# Why.\ny = 1  # And why.\n'
    assert commented(module) == 2


def test_a_reader_finds_out_why() -> None:
    read = list(sources())
    comments = sum(commented(source) for source in read)
    lines = sum(bool(line.strip()) for source in read for line in source.splitlines())
    assert lines > 100_000
    assert comments / lines >= LEAST, f"{comments} of {lines} lines: {comments / lines:.2%}"
