"""Texts that must occur, folded, in any value that satisfies a test."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import ip_network
from typing import Literal, NamedTuple, TypeAlias

from alerts.rulepack.predicate import Test, fold

_Place: TypeAlias = Literal["anywhere", "start", "end", "whole"]

PLACES: dict[str, _Place] = {
    "eq": "whole",
    "contains": "anywhere",
    "startswith": "start",
    "endswith": "end",
}


class Needle(NamedTuple):
    """A folded text in a column, and where in the value it must stand."""

    path: str
    text: str
    place: _Place = "anywhere"

    def pattern(self, separator: bytes) -> bytes:
        """The bytes to search for among values that have a separator on either side."""
        # JSON may escape half a surrogate pair; a strict encoding would throw on such a text.
        data = self.text.encode("utf-8", "surrogatepass")
        before = separator if self.place in ("start", "whole") else b""
        after = separator if self.place in ("end", "whole") else b""
        return before + data + after


@lru_cache(maxsize=100_000)
def needles_of(test: Test) -> tuple[Needle, ...]:
    """Needles that each occur in any value for which the test holds; none: nothing is known."""
    if test.op in PLACES and test.value:
        return (Needle(test.field, fold(str(test.value)), PLACES[test.op]),)
    if test.op == "like":
        return tuple(Needle(test.field, *literal) for literal in _of_like(test))
    if test.op == "cidr":
        return tuple(_of_network(test.field, str(test.value)))
    if test.op == "re":
        texts = dict.fromkeys(fold(text) for text in _of_regex(str(test.value)))
        return tuple(Needle(test.field, text) for text in texts)
    return ()


def _of_like(test: Test) -> Iterator[tuple[str, _Place]]:
    last = len(test.parts) - 1
    for number, (kind, text) in enumerate(test.parts):
        if kind != "text" or not text:
            continue
        # A pattern without a wildcard is an equality.
        if last == 0:
            yield fold(text), "whole"
        elif number == 0:
            yield fold(text), "start"
        elif number == last:
            yield fold(text), "end"
        else:
            yield fold(text), "anywhere"


def _of_network(path: str, value: str) -> Iterator[Needle]:
    """The whole numbers of an IPv4 network; addresses are only read in their one plain form."""
    try:
        network = ip_network(value)
    except ValueError:
        return
    whole = network.prefixlen // 8
    # IPv6 addresses have several spellings, so no text of one is sure to occur.
    if network.version == 4 and whole:
        text = ".".join(str(network.network_address).split(".")[:whole])
        # The dot at the end keeps 10.1 from being sought in 10.10.0.1.
        yield Needle(path, text, "whole") if whole == 4 else Needle(path, f"{text}.", "start")


_TOKEN = re.compile(
    r"""(?s)
      (?P<class>\[\^?(?:\[:\^?\w+:\]|\\.|[^\\])(?:\[:\^?\w+:\]|\\.|[^]\\])*\]) |
      (?P<open>\((?:\?(?:P?<\w+>|[imsU-]*:))?) |
      (?P<close>\)) |
      (?P<escape>\\.) |
      (?P<repeat>(?:[*+?]|\{\d+,?\d*\})\??) |
      (?P<other>.)
    """,
    re.VERBOSE,
)

_FLAGS = re.compile(r"\(\?([imsU]+)\)")
# Numbers of characters, classes and quoted runs: which characters they stand for is not seen here.
_UNKNOWN_ESCAPES = "xpPQECX01234567"
# Shorter texts occur in nearly every value, and would only cost the search.
_MIN_CHARS = 3


def _of_regex(pattern: str) -> list[str]:
    """Texts any match of an RE2 expression must contain; none where it is not plain to see.

    Only the outermost sequence is read. Under `i`, k and s stand for letters beyond
    ASCII too (the Kelvin sign, the long s), which do not fold to them, and so does
    every letter beyond ASCII: they end a text.
    """
    leading = _FLAGS.match(pattern)
    body = pattern[leading.end() :] if leading else pattern
    # Flags that change inside the expression: what must occur is no longer plain to see.
    if re.search(r"\(\?[^P:<]*i|\(\?[^:]*\)|\(\?\w*-", body):
        return []
    loose = leading is not None and "i" in leading[1]
    runs = _runs(body, "kKsS" if loose else "", loose)
    return [run for run in runs or () if len(run) >= _MIN_CHARS]


def _runs(body: str, breaking: str, loose: bool) -> list[str] | None:
    """Runs of plain characters outside all groups; None when the expression is beyond this."""
    runs, depth = [""], 0
    for token in _TOKEN.finditer(body):
        kind, text = token.lastgroup, token.group()
        if text == "[" or (kind == "escape" and text[1] in _UNKNOWN_ESCAPES):
            return None
        depth += (kind == "open") - (kind == "close")
        # An alternative at the top: no single run has to occur.
        if depth < 0 or (depth == 0 and text == "|"):
            return None
        if depth:
            continue
        plain = _plain(kind, text)
        if plain is not None and not (plain in breaking or (loose and not plain.isascii())):
            runs[-1] += plain
            continue
        # `?`, `*` and `{0,}` may leave out the character before them.
        if kind == "repeat" and not text.startswith("+"):
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return runs if depth == 0 else None


def _plain(kind: str | None, text: str) -> str | None:
    """The character a token stands for, if it is one."""
    if kind == "other" and text not in "^$.":
        return text
    if kind == "escape" and text[1] in string.punctuation:
        return text[1]
    return None
