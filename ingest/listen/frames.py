"""Where one syslog message of a stream ends and the next begins (RFC 6587, RFC 5425).

Two ways: each message after its length and a space, or a line each. A connection keeps to the one
that its first message shows: else whoever gets a line begun with a number could swallow the
messages behind it. What is too long or broken is handed on in parts, each with the reason.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from infra.config.listen_section import SyslogFraming

_COUNT = re.compile(rb"([1-9]\d{0,8}) ")
_MAYBE_COUNT = re.compile(rb"[1-9]\d{0,8}\Z")
# A message of syslog opens with its priority, so that a line `2026 ...` is no length.
_COUNTED = re.compile(rb"[1-9]\d{0,8} <")
_MAYBE_COUNTED = re.compile(rb"(?:[1-9]\d{0,8} ?)?\Z")

_NO_LENGTH = "no length stands before it, as before the others of its connection"


class Frame(NamedTuple):
    """A message, or bytes that are none and why."""

    data: bytes
    refused: str = ""


class Framer:
    """The messages of one connection, whatever the pieces that its bytes come in.

    No frame is longer than `longest` bytes, and no more than that waits for its end. Blank lines
    are no messages.
    """

    def __init__(self, longest: int, framing: SyslogFraming = "auto") -> None:
        self._longest = longest
        self._framing = framing
        self._rest = b""
        self._missing = 0
        """Bytes still to come of a message that is longer than allowed; 0: none is under way."""
        self._parts = ""
        """Why what is read now is a part; empty: it begins a message."""

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that are whole now."""
        self._rest += data
        if self._framing == "auto" and not self._decide():
            return []
        return self._counted() if self._framing == "octets" else self._lines()

    def end(self, cut: str = "") -> list[Frame]:
        """What is left when nothing more comes. `cut`: why, where it was not the sender's wish."""
        if self._framing == "auto":
            self._framing = "lines"
        frames = self._counted() if self._framing == "octets" else self._lines()
        rest, self._rest = self._rest, b""
        why = self._parts or cut
        if self._framing == "octets" and not self._parts:
            why = "the connection ended before the message did" if self._missing else _NO_LENGTH
        # The last line of an orderly connection often lacks its end.
        return [*frames, Frame(rest, why)] if rest.strip(b"\r\n") else frames

    def _decide(self) -> bool:
        """Whether the first message shows how all are told apart."""
        self._rest = self._rest.lstrip(b"\r\n")
        if _MAYBE_COUNTED.match(self._rest):
            return False
        self._framing = "octets" if _COUNTED.match(self._rest) else "lines"
        return True

    def _lines(self) -> list[Frame]:
        frames: list[Frame] = []
        rest, start = self._rest, 0
        while True:
            # One byte more than the longest: there may be the end of a line of just that length.
            end = rest.find(b"\n", start, start + self._longest + 1)
            if end < 0 and len(rest) - start <= self._longest:
                break
            if end < 0:
                self._parts = f"a part of a line of more than {self._longest} bytes"
                end = start + self._longest
                frames.append(Frame(rest[start:end], self._parts))
                start = end
                continue
            if rest[start:end].strip(b"\r"):
                frames.append(Frame(rest[start:end], self._parts))
            self._parts = ""
            start = end + 1
        self._rest = rest[start:]
        return frames

    def _counted(self) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        while start < len(self._rest):
            if not self._missing:
                begun = self._begin(start, frames)
                if begun is None:
                    break
                start = begun
                continue
            size = min(self._missing, self._longest)
            if len(self._rest) - start < size:
                break
            frames.append(Frame(self._rest[start : start + size], self._parts))
            start += size
            self._missing -= size
            if not self._missing:
                self._parts = ""
        self._rest = self._rest[start:]
        return frames

    def _begin(self, start: int, frames: list[Frame]) -> int | None:
        """Read what stands at `start`: the length of a message, a line break between two (some
        senders do not count it), or what is neither. Where it ends; None: more has to come."""
        rest = self._rest
        if rest[start] in b"\r\n":
            return start + 1
        counted = _COUNT.match(rest, start)
        if counted is not None:
            self._missing = int(counted[1])
            if self._missing > self._longest:
                self._parts = f"a part of a message of {self._missing} bytes, not {self._longest}"
            return counted.end()
        if _MAYBE_COUNT.match(rest, start):
            return None
        # Up to the next line, where a length may stand again.
        end = rest.find(b"\n", start, start + self._longest + 1)
        if end < 0:
            end = start + self._longest
            if len(rest) <= end:
                return None
        frames.append(Frame(rest[start:end], _NO_LENGTH))
        return end
