"""How much one message may become: events, values, lines, seconds.

A few bytes name many rows: 6 MB of `[{},{},` are two million, 61 kB of gzip are 21 million. Beyond
these bounds a message is one dead letter that says how much it holds; its bytes stay in
bronze.record. What counts is told from the bytes before anything is made of them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from ingest.parsing.source import Unreadable

MAX_EVENTS = 200_000
"""Events of one message; files of products have some ten thousand."""
MAX_VALUES = 4_000_000
"""JSON values of one message: each takes a hundred bytes once it is read."""
MAX_LINES = 2_000_000
"""Lines of a file that is one record, such as one of leases."""
MAX_REPEATED_BYTES = 128 * 1024 * 1024
"""Of a message, repeated by its events, in all of them together."""
MAX_UNREADABLE = 1_000
"""Dead letters of one message; the rest of them are counted in one more."""
CPU_SECONDS = 60
"""Of the processor's time, not the clock's: a busy machine makes no message unreadable."""

_SMALL = 64 * 1024
_REMEDY = "its bytes stay in bronze.record; send it in parts"


def require_few_values(raw: bytes) -> None:
    """Raises `Unreadable` for JSON of more values than are read."""
    if len(raw) < _SMALL:
        return
    values = _values(raw)
    if values > MAX_VALUES:
        raise Unreadable(
            f"the message holds about {values} JSON values; at most {MAX_VALUES} are read; "
            f"{_REMEDY}"
        )


def few_values() -> Callable[[bytes], None]:
    """The same bound for JSON that comes piece by piece: what is to see each piece in turn."""
    values = 0

    def look(piece: bytes) -> None:
        nonlocal values
        values += _values(piece)
        if values > MAX_VALUES:
            raise Unreadable(
                f"the message holds more than {MAX_VALUES} JSON values, "
                f"which are all that are read; {_REMEDY}"
            )

    return look


def _values(raw: bytes) -> int:
    # An upper bound, as these stand in strings too; exact enough, and no parser has to run.
    return raw.count(b",") + raw.count(b"{") + raw.count(b"[")


def require_few(number: int, what: str = "events") -> None:
    """Raises `Unreadable` where a message holds more events than are read."""
    if number > MAX_EVENTS:
        raise Unreadable(
            f"the message holds {number} {what}; at most {MAX_EVENTS} are read; {_REMEDY}"
        )


def require_few_repeated(size: int, number: int) -> None:
    """Raises `Unreadable` where a message's events, `number` of them, would each repeat `size`
    bytes of it, and a worker's memory might not hold them."""
    if size * number > MAX_REPEATED_BYTES:
        raise Unreadable(
            f"the message holds {number} events that each repeat {size} bytes of it; at most "
            f"{MAX_REPEATED_BYTES} bytes are repeated in all; {_REMEDY}"
        )


def require_few_lines(raw: bytes, *, whole_file: bool) -> None:
    """The same of its lines, before they are told apart; `whole_file`: a line is no event."""
    most = MAX_LINES if whole_file else MAX_EVENTS
    # A message of fewer bytes cannot have so many lines, so most are not counted.
    if len(raw) > most and (lines := raw.count(b"\n")) > most:
        raise Unreadable(f"the message holds {lines} lines; at most {most} are read; {_REMEDY}")


def few_dead_letters(
    rows: list[dict[str, Any]], before: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a message without most of its dead letters, and how many were left out.

    `before`: so many dead letters of the message came before these rows.
    """
    dead = sum(1 for row in rows if row.get("dead_letter_reason"))
    if dead + before <= MAX_UNREADABLE:
        return rows, 0
    room = max(0, MAX_UNREADABLE - before)
    remaining = []
    for row in rows:
        if row.get("dead_letter_reason"):
            room -= 1
            if room < 0:
                continue
        remaining.append(row)
    return remaining, len(rows) - len(remaining)


def left_out(number: int) -> str:
    """What the one dead letter says that stands for many."""
    return (
        f"{number} more parts of the message cannot be read, beside the {MAX_UNREADABLE} before; "
        "its bytes stay in bronze.record"
    )


def bounded_time(raw: bytes) -> AbstractContextManager[None]:
    """Raises `Unreadable` in the middle of what reads a message, where it takes too long.

    Small messages are not watched, nor is what runs beside the main thread, where no signal comes.
    """
    if len(raw) < _SMALL or threading.current_thread() is not threading.main_thread():
        return _UNBOUNDED
    return _bounded(raw)


_UNBOUNDED = nullcontext()


@contextmanager
def _bounded(raw: bytes) -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise Unreadable(
            f"the message of {len(raw)} bytes was not read in {CPU_SECONDS} s; {_REMEDY}"
        )

    # SIGVTALRM counts this process's own time; SIGALRM would go off while the machine is busy.
    before = signal.signal(signal.SIGVTALRM, give_up)
    # It goes off each second from then on, as a broad `except` in a parser may catch the first.
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
