"""Questions about events take turns: a few at a time, on threads that stand behind all others.

Such a question reads many files. Side by side they would take the cores from the jobs of the same
machine, and all of them would end late.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from api.asking import asking
from api.sql.worker_line import WorkerLine
from infra.config.settings import ApiSettings
from infra.process.priority import lower_thread

T = TypeVar("T")

_IN_A_ROW = 8
"""Turns that one request has without a place further back: a page asks so much, an export more."""


def searches_at_once(settings: ApiSettings) -> int:
    """How many run at a time; unless the settings say it, one for each four cores."""
    return settings.searches_at_once or max(1, (os.cpu_count() or 1) // 4)


class SearchThreads:
    """The threads of all readers of one process."""

    def __init__(self, settings: ApiSettings) -> None:
        self.at_once = searches_at_once(settings)
        self._line = WorkerLine(
            [_LowThread() for _ in range(self.at_once)],
            noun="searches",
            wait_seconds=settings.wait_seconds,
        )

    @property
    def waiting(self) -> int:
        """How many questions wait for their turn."""
        return self._line.waiting

    def run(self, work: Callable[[], T]) -> T:
        """What a question gives, in its turn; raises what it raises, and `Busy`.

        Callers have their turns by `api.sql.worker_line`. The further questions of a request stand
        where its first one stood, so that a page that was begun is finished first.
        """
        request = asking()
        since = request.came if 0 < request.turns < _IN_A_ROW else None
        with self._line.worker(request.who, since=since) as thread:
            request.turns += 1
            return thread.run(work)


def at_low_priority(work: Callable[[], T]) -> T:
    """What a piece of work gives that begins threads of its own; they are as low as a search's."""
    thread = _LowThread()
    try:
        return thread.run(work)
    finally:
        thread.end()


class _LowThread:
    """A thread that waits for work while somebody holds it; it keeps no process from its end."""

    def __init__(self) -> None:
        self._work: _Waiting | None = None

    def run(self, work: Callable[[], T]) -> T:
        if self._work is None:
            self._work = queue.SimpleQueue()
            # Not a pool: Python waits for a pool's threads before it ends.
            threading.Thread(target=_work, args=(self._work,), name="search", daemon=True).start()
        future: Future[T] = Future()
        self._work.put((work, future))
        return future.result()

    def end(self) -> None:
        """Let it go; who holds it uses it no more."""
        if self._work is not None:
            self._work.put(None)


_Waiting = queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]


def _work(waiting: _Waiting) -> None:
    lower_thread()
    while (given := waiting.get()) is not None:
        work, future = given
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        # Else the answer stays in memory until the next question.
        del given, work, future


class InFlight:
    """Questions under way: who asks the same meanwhile gets the same answer."""

    def __init__(self) -> None:
        self._running: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def answer(self, question: Hashable, work: Callable[[], T]) -> T:
        """What `work` gives, run once however many ask; an error is everybody's as well."""
        with self._lock:
            running = self._running.get(question)
            if running is None:
                mine = self._running[question] = Future[Any]()
        if running is not None:
            shared: T = running.result()
            return shared
        try:
            answer = work()
            mine.set_result(answer)
            return answer
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[question]
