"""Wakes the thread that waits for work: any thread of this process that has made some sets it."""

from __future__ import annotations

import threading


class WakeSignal:
    """Set by many threads, waited for by one. Set while nobody waits, it ends the next wait."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """End the wait; a second time before that adds nothing."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until it is set, at most so long."""
        self._event.wait(seconds)
        self._event.clear()


COMMITTED = WakeSignal()
"""Set when this process has committed to a table."""
