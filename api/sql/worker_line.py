"""Callers wait for a worker in turn: no newcomer passes by, and no caller takes all.

A worker that is given back goes to the waiting caller with the fewest statements at work; of
several, to the one that waits longest.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from infra.errors import Fatal, Retryable

MOST_WAITING = 16
"""Callers that may wait; each holds a thread of the API, which also has to serve its pages."""
WAIT_SECONDS = 15.0
"""A few statements of a person are answered in so long; who waits longer better asks again."""
LOOK_SECONDS = 0.2
"""So often it is looked whether a caller is still there."""

T = TypeVar("T")


class Busy(Retryable):
    """All workers are at work."""


class Cancelled(Fatal):
    """Who asked has gone, or the API ends; nobody waits for the answer."""


@dataclass(eq=False)
class _Waiting(Generic[T]):
    who: str | None
    handed: threading.Event = field(default_factory=threading.Event)
    worker: T | None = None


class WorkerLine(Generic[T]):
    """Hands out workers. One that rested last is handed out first: it is warm."""

    def __init__(self, workers: Sequence[T]) -> None:
        self._all = len(workers)
        self._free = list(workers)
        self._waiting: list[_Waiting[T]] = []
        self._at_work: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    @contextmanager
    def worker(self, who: str | None, cancelled: threading.Event | None = None) -> Iterator[T]:
        """A worker for one statement of `who`.

        Raises `Busy` where too many wait or none came free in `WAIT_SECONDS`, and `Cancelled` once
        `cancelled` is set.
        """
        worker = self._take(who, cancelled or threading.Event())
        try:
            yield worker
        finally:
            self._give(worker, who)

    def _take(self, who: str | None, cancelled: threading.Event) -> T:
        with self._lock:
            # Those who wait were here first, also where a worker is free for a moment.
            if self._free and not self._waiting:
                self._at_work[who] += 1
                return self._free.pop()
            if len(self._waiting) >= MOST_WAITING:
                raise Busy(
                    f"{self._all} statements are running and {MOST_WAITING} wait already; "
                    "try again shortly"
                )
            waiting: _Waiting[T] = _Waiting(who)
            self._waiting.append(waiting)
        until = time.monotonic() + WAIT_SECONDS
        while not waiting.handed.wait(LOOK_SECONDS):
            if not cancelled.is_set() and time.monotonic() < until:
                continue
            with self._lock:
                if waiting.handed.is_set():  # at this very moment: it is ours to use or give back
                    break
                self._waiting.remove(waiting)
            if cancelled.is_set():
                raise Cancelled("the caller hung up")
            raise Busy(
                f"{self._all} statements are running and none ended in {WAIT_SECONDS:g} s; "
                "try again shortly"
            )
        assert waiting.worker is not None
        return waiting.worker

    def _give(self, worker: T, who: str | None) -> None:
        with self._lock:
            self._at_work[who] -= 1
            if not self._at_work[who]:
                del self._at_work[who]
            if not self._waiting:
                self._free.append(worker)
                return
            # Handed over, not put among the free: a newcomer could take it before who waits wakes.
            turn = min(self._waiting, key=lambda waiting: self._at_work[waiting.who])
            self._waiting.remove(turn)
            self._at_work[turn.who] += 1
            turn.worker = worker
            turn.handed.set()
