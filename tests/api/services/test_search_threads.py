"""Questions about events take turns, and one that is under way answers all who ask it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from pathlib import Path

import pytest

from api.asking import begin_request
from api.services.searches.search_threads import InFlight, SearchThreads
from api.sql.runner import Statements
from api.sql.worker_line import MOST_WAITING, Ended
from infra.config.settings import load
from infra.process import priority
from ingest.tables import EVENT
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as running:
        yield running


def _await(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def test_pages_are_finished_in_the_order_they_came(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    threads = SearchThreads(load(home=tmp_path, api={"searches_at_once": 1}).api)
    order: list[str] = []
    unfinished = {"a", "b", "c"}
    begun, go_on = threading.Event(), threading.Event()

    def question(name: str) -> None:
        # The next question of every other page waits by then, as between pages it is at once there.
        _await(lambda: threads.waiting >= len(unfinished) - 1)
        order.append(name)

    def page(who: str) -> None:
        begin_request(who)
        for number in range(3):
            if number == 2:
                threads.run(partial(last, who))
            else:
                threads.run(partial(question, f"{who}{number}"))

    def last(who: str) -> None:
        question(f"{who}2")
        unfinished.remove(who)

    asked = [pool.submit(threads.run, lambda: (begun.set(), go_on.wait(30)))]
    assert begun.wait(30)
    for place, who in enumerate("abc", 1):
        asked.append(pool.submit(Context().run, page, who))  # type: ignore[arg-type]
        _await(partial(_waits, threads, place))
    go_on.set()
    for each in asked:
        each.result(30)
    # Another's question runs while the next one of a page is on its way, and never two.
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "c0", "c1", "c2"]


def _waits(threads: SearchThreads, callers: int) -> bool:
    return threads.waiting == callers


def test_no_more_run_at_once_than_the_settings_say(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    threads = SearchThreads(load(home=tmp_path, api={"searches_at_once": 2}).api)
    lock, at_work, most = threading.Lock(), 0, 0

    def work() -> int:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.005)
        with lock:
            at_work -= 1
        return threading.get_ident()

    ran = [each.result(30) for each in [pool.submit(threads.run, work) for _ in range(20)]]
    assert most == 2
    assert len(set(ran)) == 2


def test_an_error_is_told_to_who_asked_and_the_thread_goes_on(tmp_path: Path) -> None:
    threads = SearchThreads(load(home=tmp_path, api={"searches_at_once": 1}).api)
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda: 1 // 0)
    assert threads.run(lambda: 7) == 7


def test_who_asks_what_is_under_way_gets_that_answer(pool: ThreadPoolExecutor) -> None:
    flight, ran = InFlight(), []
    begun, go_on = threading.Event(), threading.Event()

    def work(_: Ended) -> list[int]:
        begun.set()
        assert go_on.wait(30)
        ran.append("a")
        return [1]

    first = pool.submit(flight.answer, "question", work)
    assert begun.wait(30)
    second = pool.submit(flight.answer, "question", lambda _: ran.append("b"))
    other = pool.submit(flight.answer, "other", lambda _: [2])
    assert other.result(30) == [2]
    assert not second.done()
    go_on.set()
    assert (first.result(30), second.result(30), ran) == ([1], [1], ["a"])
    assert flight.answer("question", lambda _: [3]) == [3]


@pytest.fixture
def desk(tmp_path: Path) -> PlainDesk:
    made = PlainDesk(tmp_path, devices=1, searches_at_once=1)
    append_rows(made.settings.lake_root, EVENT, [])
    return made


@pytest.mark.full
def test_twenty_who_search_at_once_are_all_answered(
    desk: PlainDesk, pool: ThreadPoolExecutor
) -> None:
    clients = [desk.browser(f"user-{number}", "read") for number in range(20)]
    asked = [
        pool.submit(client.get, "/search", params={"q": f"10.0.0.{number}", "since": "-1h"})
        for number, client in enumerate(clients)
    ]
    assert [each.result(60).status_code for each in asked] == [200] * 20


def test_where_too_many_wait_one_is_told_when_to_come_again(
    desk: PlainDesk, pool: ThreadPoolExecutor
) -> None:
    go_on, begun = threading.Event(), threading.Event()
    threads = desk.app.state.services.reader.threads
    held = pool.submit(threads.run, lambda: (begun.set(), go_on.wait(30)))
    assert begun.wait(30)
    with ThreadPoolExecutor(MOST_WAITING) as crowd:
        waiting = [crowd.submit(threads.run, lambda: None) for _ in range(MOST_WAITING)]
        _await(partial(_waits, threads, MOST_WAITING))
        refused = desk.browser("ann", "read").get("/search", headers={"Accept": "text/html"})
        alerts = desk.client("bob", "read").get("/api/v1/alerts")
        go_on.set()
        for each in [held, *waiting]:
            each.result(30)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) == 60
    # What asks no events waits for nobody.
    assert alerts.status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_of_statements_stands_back_as_the_api_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "_nice", 7)
    (tmp_path / "lake").mkdir()
    statements = Statements(load(home=tmp_path))
    try:
        assert statements.run("SELECT 1 AS x").rows == [[1]]
        (pid,) = statements.processes
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 7
        session = Path(f"/proc/{pid}/autogroup")
        if session.exists():
            assert session.read_text("ascii").split()[-1] == "7"
    finally:
        statements.close()
