"""Questions about events take turns: a few at a time, on threads that stand behind all others.

Such a question reads many files. Side by side they would take the cores from the jobs of the same
machine, and all of them would end late.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb

from api.asking import current_request
from api.sql.worker_line import LOOK_SECONDS, Ended, HungUp, WorkerLine
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

    def run(self, work: Callable[[], T], ended: Ended | None = None) -> T:
        """What a question gives, in its turn; raises what it raises, `Busy`, and `HungUp` where
        it is `ended` before its turn.

        Callers have their turns by `api.sql.worker_line`. The further questions of a request stand
        where its first one stood, so that a page that was begun is finished first.
        """
        request = current_request()
        since = request.came if 0 < request.turns < _IN_A_ROW else None
        with self._line.worker(request.who, ended, since=since) as thread:
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


@contextmanager
def interrupted(cursor: duckdb.DuckDBPyConnection, end: float, ended: Ended) -> Iterator[None]:
    """What `cursor` runs in the block is interrupted at `end` (`time.monotonic`), or once it is
    `ended`. DuckDB has no time limit for a statement; another thread has to interrupt it.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(LOOK_SECONDS, max(0.0, end - time.monotonic())) or LOOK_SECONDS):
            # Again and again: DuckDB forgets an interrupt that comes between two statements.
            if ended.is_set() or time.monotonic() >= end:
                cursor.interrupt()

    watching = threading.Thread(target=watch, name="search-end", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


class _UnderWay:
    """A question, its answer once it is there, and who waits for that."""

    def __init__(self, gone: threading.Event) -> None:
        self.answer: Future[Any] = Future()
        self.waiting = [gone]
        self._left = False
        # Who joins and who looks whether all have left must not pass each other by.
        self._lock = threading.Lock()

    def is_set(self) -> bool:
        """Whether all who wait for it have gone."""
        with self._lock:
            return self._all_left()

    def joined(self, gone: threading.Event) -> bool:
        """Let one more wait for it; False where all have left: its end is nobody's answer."""
        with self._lock:
            if self._all_left():
                return False
            self.waiting.append(gone)
            return True

    def _all_left(self) -> bool:
        self._left = self._left or all(gone.is_set() for gone in self.waiting)
        return self._left


class InFlight:
    """Questions under way: who asks the same meanwhile gets the same answer."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _UnderWay] = {}
        self._lock = threading.Lock()

    def answer(self, question: Hashable, work: Callable[[Ended], T]) -> T:
        """What `work` gives, run once however many ask; an error is everybody's as well.

        `work` is handed what says whether the last of them has gone. Raises `HungUp` for one who
        has gone while others still wait.
        """
        gone = current_request().gone
        with self._lock:
            running = self._running.get(question)
            first = running is None or not running.joined(gone)
            if running is None or first:
                running = self._running[question] = _UnderWay(gone)
        if not first:
            while not wait([running.answer], LOOK_SECONDS).done:
                if gone.is_set():
                    raise HungUp
            shared: T = running.answer.result()
            return shared
        try:
            answer = work(running)
            running.answer.set_result(answer)
            return answer
        except BaseException as error:
            running.answer.set_exception(error)
            raise
        finally:
            with self._lock:
                if self._running.get(question) is running:
                    del self._running[question]
