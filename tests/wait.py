"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from infra.process.subprocesses import PlatformProcess

T = TypeVar("T")

PATIENCE = 4
"""How many times slower a machine may be than the one that the seconds of tests are meant for."""


def until(
    true: Callable[[], T],
    *parts: PlatformProcess,
    what: object = "",
    seconds: float = 90.0,
    pause: float = 0.05,
) -> T:
    """Wait until something holds, and return it; it is asked every `pause` seconds.

    Fails as soon as one of `parts` has ended, or after `seconds` and what `PATIENCE` adds; then
    `what` is shown, as it is by then, and what the parts said last.
    """
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while not (found := true()):
        for part in parts:
            assert part.ended is None, part.last_words(20)
        if time.monotonic() > end:
            said = [part.last_words(10) for part in parts]
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what} {said or ''}")
        time.sleep(pause)
    return found
