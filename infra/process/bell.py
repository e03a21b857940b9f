"""Wakes the thread that waits for work: whoever in this process makes some rings."""

from __future__ import annotations

import threading


class Bell:
    """Rung by many threads, waited for by one. A ring while nobody waits ends the next wait."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """End the wait; a second ring before that adds nothing."""
        self._rung.set()

    def wait(self, seconds: float) -> None:
        """Wait for a ring, at most so long."""
        self._rung.wait(seconds)
        self._rung.clear()


COMMITTED = Bell()
"""Rung when this process has committed to a table."""
