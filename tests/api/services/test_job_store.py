"""Work that outlives a request: what becomes of it, and what its caller hears."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.auth import Caller
from api.services.act_store import new_id
from api.services.searches.job_store import JobStore
from api.services.searches.search_jobs import problem_of
from api.sql.worker_line import Busy, Cancelled
from api.wire.jobs import SearchJob
from infra.config.settings import load
from infra.errors import Fatal
from tests.wait import until

ANN = Caller("ann", "analyst")


class Store(JobStore[SearchJob]):
    """Jobs that do what a test says."""

    def __init__(self, home: Path, most: int = 5) -> None:
        super().__init__(
            load(home=home), SearchJob, "tried", noun="job", most_waiting=most, longest=60.0
        )

    def begin(
        self, raised: Exception, wait: float, go_on: threading.Event, who: Caller = ANN
    ) -> str:
        job = _queued().model_copy(update={"who": who.name})

        def work(_: SearchJob, cancelled: threading.Event) -> None:
            assert go_on.wait(30)
            raise raised

        return self._begin(who, job, work, wait).id


def _queued() -> SearchJob:
    now = datetime.now(UTC)
    return SearchJob(
        id=new_id(), state="queued", progress=None, sql="SELECT 1", query=None, who=ANN.name,
        made_at=now, expires_at=now + timedelta(hours=1), rows=None, columns=None,
        elapsed_ms=None, engine=None, versions={}, problem=None,
    )  # fmt: skip


def test_a_job_that_was_ended_is_no_fault_of_its_statement() -> None:
    ended = _queued().model_copy(update={"state": "cancelled", "problem": "cancelled"})
    assert isinstance(problem_of(ended), Cancelled)


def test_one_caller_leaves_places_to_others(tmp_path: Path) -> None:
    store, go_on = Store(tmp_path, most=12), threading.Event()
    for _ in range(6):
        store.begin(Fatal("x"), 0.0, go_on)
    with pytest.raises(Busy, match="6 jobs of yours wait already"):
        store.begin(Fatal("x"), 0.0, go_on)
    assert store.begin(Fatal("x"), 0.0, go_on, Caller("bob", "analyst"))
    go_on.set()
    until(lambda: not store._under_way, what="one is still under way")
    assert store.begin(Fatal("x"), 0.0, go_on)


@pytest.mark.parametrize("raised", [Fatal("no room is left"), ZeroDivisionError("by zero")])
def test_work_that_fails_in_its_callers_time_is_told_and_no_job_stays_under_way(
    tmp_path: Path, raised: Exception
) -> None:
    store, go_on = Store(tmp_path), threading.Event()
    later = store.begin(raised, 0.0, go_on)
    assert store.get(ANN, later).state == "queued"
    go_on.set()
    with pytest.raises(type(raised), match=str(raised)):
        store.begin(raised, 30.0, go_on)

    def failed() -> bool:
        return [job.state for job in store._mine(ANN)] == ["failed", "failed"]

    until(failed, what="one is still under way")
    assert str(raised) in (store.get(ANN, later).problem or "")
    store.close()
