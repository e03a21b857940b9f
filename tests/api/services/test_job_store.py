"""Work that outlives a request: what becomes of it, and what its caller hears."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.auth import Caller
from api.services.act_store import new_id
from api.services.searches.job_store import JobStore
from api.wire.jobs import SearchJob
from infra.config.settings import load
from infra.errors import Fatal
from tests.wait import until

ANN = Caller("ann", "analyst")


class Store(JobStore[SearchJob]):
    """Jobs that do what a test says."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            load(home=home), SearchJob, "tried", noun="job", most_waiting=5, longest=60.0
        )

    def begin(self, raised: Exception, wait: float, go_on: threading.Event) -> str:
        now = datetime.now(UTC)
        job = SearchJob(
            id=new_id(), state="queued", progress=None, sql="SELECT 1", query=None, who=ANN.name,
            made_at=now, expires_at=now + timedelta(hours=1), rows=None, columns=None,
            elapsed_ms=None, engine=None, versions={}, problem=None,
        )  # fmt: skip

        def work(_: SearchJob, cancelled: threading.Event) -> None:
            assert go_on.wait(30)
            raise raised

        return self._begin(ANN, job, work, wait).id


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
