"""What the driver says: a line for a person, or an object a line for a machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from infra.process.text_output import printable

_Format = Literal["text", "json"]

batch_in_hand: ContextVar[tuple[str, int] | None] = ContextVar("batch_in_hand", default=None)
"""Job and number of the batch this thread works on, if any."""

SAME_AGAIN = 600.0
"""Seconds until what was said last is said again."""

_format: _Format = "text"


def use(form: _Format) -> None:
    """How `say` writes from now on, in this process."""
    global _format  # one stderr a process, so one form
    _format = form


@contextmanager
def about(job: str, batch: int | None) -> Iterator[None]:
    """What is said inside is about that batch of a job, if it is about one."""
    token = batch_in_hand.set(None if batch is None else (job, batch))
    try:
        yield
    finally:
        batch_in_hand.reset(token)


def say(line: str, **facts: Any) -> None:
    """One line for the operator, on stderr; inside a batch it carries job and batch as JSON."""
    line = log_line_json(line, facts) if _format == "json" else printable(line)
    # A driver's lines often go to a pipe: each is to be there when it is said.
    print(line, file=sys.stderr, flush=True)


def note_batch(line: str, **facts: Any) -> None:
    """What only a machine wants to read, such as each batch: nothing in form text."""
    if _format == "json":
        say(line, **facts)


class News:
    """Tells a sentence that is another than the last one; the same again after `again` seconds.

    For what is tried over and over, and would say the same each time. One thread at a time.
    """

    def __init__(self, tell: Callable[[str], None] = say, again: float = SAME_AGAIN) -> None:
        self._tell = tell
        self._again = again
        self._last, self._at = "", 0.0

    def tell(self, sentence: str) -> None:
        """Tell it, unless it was told last and lately."""
        now = time.monotonic()
        if sentence != self._last or now - self._at >= self._again:
            self._last, self._at = sentence, now
            self._tell(sentence)

    def over(self) -> None:
        """It is well: what comes again is news, unless it comes and goes all the time."""
        if time.monotonic() - self._at >= SAME_AGAIN:
            self._last = ""


def log_line_json(line: str, facts: dict[str, Any], now: datetime | None = None) -> str:
    """`line` as one JSON object: `at`, `message`, `job` and `batch` where known, and `facts`."""
    in_hand = batch_in_hand.get()
    where: dict[str, Any] = {}
    if in_hand is not None:
        where = {"job": in_hand[0], "batch": in_hand[1]}
    elif line.startswith("job "):
        where = {"job": line[4:].partition(":")[0]}
    stamp = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")
    return json.dumps({"at": stamp, **where, "message": line, **facts}, default=str)
