"""Callers wait for a worker in turn: no newcomer passes by, and no caller takes all.

A worker that is given back goes to the waiting caller with the fewest workers; of several, to the
one that waits longest, where who had a worker meanwhile waits since it was given back.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from infra.errors import Fatal, Retryable

MOST_WAITING = 64
"""Callers that may wait in one line; each holds a thread, of which `api.app` has as many more."""
WAIT_SECONDS = 60.0
_SOONEST, _LATEST = 1, 60
"""Seconds after which who was turned away is told to come again."""
LOOK_SECONDS = 0.2
"""So often it is looked whether a caller is still there."""

T = TypeVar("T")


class Ended(Protocol):
    """Whether nobody waits for an answer any more; an Event is one."""

    def is_set(self) -> bool:
        """Once true, it stays so."""


class Busy(Retryable):
    """All workers are at work; `retry_after`: seconds until one more may be taken."""

    def __init__(self, text: str, retry_after: int = 5) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Cancelled(Fatal):
    """Who asked has gone, or the API ends; nobody waits for the answer."""


class HungUp(Cancelled):
    """Who asked has gone."""

    def __init__(self, text: str = "the caller hung up") -> None:
        super().__init__(text)


@dataclass(eq=False)
class _Waiting(Generic[T]):
    who: str | None
    came: float
    stays: bool
    """Whether its place is that of when it came, whatever its caller had since."""
    handed: threading.Event = field(default_factory=threading.Event)
    worker: T | None = None


class WorkerLine(Generic[T]):
    """Hands out workers. One that rested last is handed out first: it is warm."""

    def __init__(
        self,
        workers: Sequence[T],
        *,
        noun: str = "statements",
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`noun`: what they work on, in sentences. `wait_seconds`: longest wait of a caller."""
        self._all = len(workers)
        self._noun = noun
        self._wait_seconds = wait_seconds
        self._free = list(workers)
        self._waiting: list[_Waiting[T]] = []
        self._at_work: Counter[str | None] = Counter()
        self._given_back: dict[str | None, float] = {}
        self._usual = 1.0
        """Seconds for which a worker was held lately."""
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    @contextmanager
    def worker(
        self,
        who: str | None,
        cancelled: Ended | None = None,
        *,
        since: float | None = None,
    ) -> Iterator[T]:
        """A worker for one statement of `who`.

        `since`: it goes on with what came then (`time.monotonic`), and stands where that stood.
        Raises `Busy` where too many wait or none came free in time, and `Cancelled` once
        `cancelled` is set.
        """
        worker = self._take(who, cancelled or threading.Event(), since)
        began = time.monotonic()
        try:
            yield worker
        finally:
            self._give(worker, who, time.monotonic() - began)

    def _take(self, who: str | None, cancelled: Ended, since: float | None) -> T:
        with self._lock:
            # Those who wait were here first, also where a worker is free for a moment.
            if self._free and not self._waiting:
                self._at_work[who] += 1
                return self._free.pop()
            if len(self._waiting) >= MOST_WAITING:
                raise self._busy(f"{MOST_WAITING} wait already")
            now = time.monotonic()
            waiting: _Waiting[T] = _Waiting(who, since or now, since is not None)
            self._waiting.append(waiting)
        until = now + self._wait_seconds
        while not waiting.handed.wait(LOOK_SECONDS):
            if not cancelled.is_set() and time.monotonic() < until:
                continue
            with self._lock:
                if waiting.handed.is_set():  # at this very moment: it is ours to use or give back
                    break
                self._waiting.remove(waiting)
            if cancelled.is_set():
                raise HungUp
            raise self._busy(f"it was not this one's turn in {self._wait_seconds:g} s")
        assert waiting.worker is not None
        return waiting.worker

    def _busy(self, why: str) -> Busy:
        rounds = (len(self._waiting) + 1) / self._all
        seconds = min(max(math.ceil(self._usual * rounds), _SOONEST), _LATEST)
        return Busy(
            f"{self._all} {self._noun} are running and {why}; try again in {seconds} s", seconds
        )

    def _place(self, waiting: _Waiting[T]) -> tuple[int, float]:
        had = -math.inf if waiting.stays else self._given_back.get(waiting.who, -math.inf)
        return self._at_work[waiting.who], max(waiting.came, had)

    def _give(self, worker: T, who: str | None, seconds: float) -> None:
        with self._lock:
            self._usual += (seconds - self._usual) / 8
            self._given_back[who] = time.monotonic()
            self._at_work[who] -= 1
            if not self._at_work[who]:
                del self._at_work[who]
            if not self._waiting:
                # Nobody is passed by: what was before does not matter to who comes next.
                self._given_back.clear()
                self._free.append(worker)
                return
            # Handed over, not put among the free: a newcomer could take it before who waits wakes.
            turn = min(self._waiting, key=self._place)
            self._waiting.remove(turn)
            self._at_work[turn.who] += 1
            turn.worker = worker
            turn.handed.set()
