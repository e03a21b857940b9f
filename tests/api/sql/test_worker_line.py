"""Who gets a worker when all are at work."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from api.sql import worker_line
from api.sql.worker_line import Busy, Cancelled, WorkerLine

Order = list[str]


class Crowd:
    """Callers of one worker; each notes its name once it has it, and goes on when let."""

    def __init__(self, line: WorkerLine[str], pool: ThreadPoolExecutor) -> None:
        self.line, self.pool = line, pool
        self.order: Order = []
        self.go_on: dict[str, threading.Event] = {}

    def come(
        self, name: str, cancelled: threading.Event | None = None, since: float | None = None
    ) -> Future[None]:
        """A caller, `who` its first letter; returns once it waits or works."""
        self.go_on[name] = threading.Event()
        before = self.line.waiting + len(self.order)
        future = self.pool.submit(self._work, name, cancelled, since)
        while self.line.waiting + len(self.order) == before and not future.done():
            time.sleep(0.001)
        return future

    def _work(self, name: str, cancelled: threading.Event | None, since: float | None) -> None:
        with self.line.worker(name[0], cancelled, since=since):
            self.order.append(name)
            assert self.go_on[name].wait(10)

    def end(self, name: str) -> None:
        """Let one end, and whoever comes next begin."""
        waits, had = self.line.waiting, len(self.order)
        self.go_on[name].set()
        while waits and len(self.order) == had:
            time.sleep(0.001)


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(32)


def test_who_waits_longest_is_next_and_a_newcomer_does_not_pass_by(
    pool: ThreadPoolExecutor,
) -> None:
    crowd = Crowd(WorkerLine(["w"]), pool)
    callers = [crowd.come(name) for name in ("a", "b", "c")]
    crowd.end("a")
    callers.append(crowd.come("d"))
    for name in ("b", "c", "d"):
        crowd.end(name)
    for caller in callers:
        caller.result(10)
    assert crowd.order == ["a", "b", "c", "d"]


def test_a_caller_with_many_statements_does_not_starve_the_others(pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(WorkerLine(["v", "w"]), pool)
    callers = [crowd.come(name) for name in ("a1", "a2", "a3", "a4", "b1")]
    crowd.end("a1")
    assert crowd.order == ["a1", "a2", "b1"]
    for name in ("a2", "b1", "a3", "a4"):
        crowd.end(name)
    for caller in callers:
        caller.result(10)
    assert crowd.order == ["a1", "a2", "b1", "a3", "a4"]


def test_a_caller_who_waits_with_several_goes_behind_those_who_came_meanwhile(
    pool: ThreadPoolExecutor,
) -> None:
    crowd = Crowd(WorkerLine(["w"]), pool)
    names = ("a1", "a2", "a3", "b1", "c1", "b2")
    callers = [crowd.come(name) for name in names]
    for name in ("a1", "b1", "c1", "a2", "b2", "a3"):
        crowd.end(name)
    for caller in callers:
        caller.result(10)
    assert crowd.order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_who_goes_on_with_what_came_before_stands_where_that_stood(
    pool: ThreadPoolExecutor,
) -> None:
    crowd = Crowd(WorkerLine(["w"]), pool)
    before = time.monotonic()
    callers = [crowd.come("a1"), crowd.come("b1"), crowd.come("a2", since=before)]
    for name in ("a1", "a2", "b1"):
        crowd.end(name)
    for caller in callers:
        caller.result(10)
    assert crowd.order == ["a1", "a2", "b1"]


def test_more_than_may_wait_are_told_at_once(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_line, "MOST_WAITING", 2)
    crowd = Crowd(WorkerLine(["w"]), pool)
    callers = [crowd.come(name) for name in ("a", "b", "c")]
    with pytest.raises(Busy, match="1 statements are running and 2 wait already"):
        crowd.come("d").result(10)
    for name in ("a", "b", "c"):
        crowd.end(name)
    for caller in callers:
        caller.result(10)


@pytest.mark.full
def test_who_hangs_up_or_waits_too_long_leaves_the_line(pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(WorkerLine(["w"], wait_seconds=2.0), pool)
    first, gone = crowd.come("a"), threading.Event()
    second = crowd.come("b", gone)
    gone.set()
    with pytest.raises(Cancelled):
        second.result(10)
    with pytest.raises(Busy, match="not this one's turn in 2 s; try again in 1 s") as busy:
        crowd.come("c").result(10)
    assert busy.value.retry_after == 1
    assert crowd.line.waiting == 0
    crowd.end("a")
    first.result(10)
    last = crowd.come("d")
    crowd.end("d")
    last.result(10)
    assert crowd.order == ["a", "d"]


def test_the_worker_that_rested_last_is_asked_again() -> None:
    line = WorkerLine(["cold", "warm"])
    for _ in range(2):
        with line.worker(None) as worker:
            assert worker == "warm"
    with line.worker(None), line.worker(None) as other:
        assert other == "cold"


def test_a_statement_that_fails_gives_its_worker_back() -> None:
    line = WorkerLine(["w"])
    with pytest.raises(ValueError, match="bad"), line.worker("a"):
        raise ValueError("bad")
    with line.worker("a") as worker:
        assert worker == "w"
