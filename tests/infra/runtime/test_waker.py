"""Jobs are woken by what comes, and time moves on while something is due; no Spark, no broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.config.settings import load
from infra.process.wake_signal import WakeSignal
from infra.runtime import waker as waker_module
from infra.runtime.job_registry import JOBS, JobSpec
from infra.runtime.ticker import QUIET_SECONDS, Arrivals, Ticker, pause_in_quiet
from infra.runtime.waker import Waker
from infra.streaming.job import Job
from infra.streaming.progress import Pulse
from tests.wait import until


@dataclass
class Control:
    """A query's control that only counts."""

    woken: int = 0
    begun: bool = True
    left_out: list[int] = field(default_factory=list)

    def rest_until_woken(self) -> bool:
        return self.begun

    def leave_out(self, numbers: Iterable[int]) -> None:
        self.left_out = list(numbers)

    def wake(self) -> None:
        self.woken += 1


@dataclass
class Table:
    """The log of a table, by its names alone."""

    folder: Path
    version: int = -1
    signal: WakeSignal = field(default_factory=WakeSignal)

    def commit(self) -> None:
        (self.folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.version += 1
        (self.folder / "_delta_log" / f"{self.version:020d}.json").write_text("{}")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "silver" / "event")
    made.commit()
    return made


def resting(*reads: str | None, pause: float = 0.01) -> tuple[Job, Control]:
    control = Control()
    job = SimpleNamespace(name="j", reads=reads, pause=pause, pulse=Pulse(), control=control)
    return cast(Job, job), control


@pytest.fixture
def waking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Waker]:
    monkeypatch.setattr(waker_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(waker_module, "RESTING_LOOK_SECONDS", 0.01)

    def begin(ticker: Any = None) -> Waker:
        return Waker(ticker, WakeSignal()).start()

    return begin


def settled(control: Control) -> int:
    """How often it was woken, once that no longer grows."""
    before = -1
    while before != control.woken:
        before = control.woken
        time.sleep(0.1)
    return before


def test_a_commit_wakes_who_reads_the_table_and_nothing_else_does(
    table: Table, waking: Callable[..., Waker]
) -> None:
    job, control = resting(str(table.folder))
    waker = waking()
    try:
        waker.take(job)
        first = settled(control)
        assert first == 1, "once at the beginning: what is there is unknown"
        table.commit()
        until(lambda: control.woken == 2)
        assert settled(control) == 2
    finally:
        waker.stop()


def test_looks_are_seldom_while_all_rest_and_a_signal_or_what_waits_ends_that(
    table: Table, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, control = resting(str(table.folder), pause=0.3)
    waker = waking()
    try:
        waker.take(job)
        until(lambda: control.woken == 1)
        time.sleep(0.4)
        monkeypatch.setattr(waker_module, "ACTIVE_SECONDS", 0.0)
        monkeypatch.setattr(waker_module, "RESTING_LOOK_SECONDS", 3600.0)
        assert settled(control) == 1
        table.commit()
        assert settled(control) == 1  # by another process, and nobody looks for an hour
        waker.signal.set()
        until(lambda: control.woken == 2)
        table.commit()
        waker.signal.set()  # into its pause: it is woken after that without another signal
        until(lambda: control.woken == 3)
    finally:
        waker.stop()


def test_a_query_that_had_a_batch_looks_again(table: Table, waking: Callable[..., Waker]) -> None:
    job, control = resting(str(table.folder))
    waker = waking()
    try:
        waker.take(job)
        settled(control)
        job.pulse.batch = 7
        table.commit()
        time.sleep(0.1)
        assert control.woken == 1, "nobody is woken in the middle of a batch"
        job.pulse.ended(7, 0.0)
        until(lambda: control.woken == 2)
        # That batch may have left a window to close, which needs no input.
        job.pulse.batch = 8
        job.pulse.ended(8, 0.0)
        until(lambda: control.woken == 3)
        assert settled(control) == 3
    finally:
        waker.stop()


def test_only_tables_with_something_new_are_looked_at_for_the_batch(
    table: Table, waking: Callable[..., Waker], tmp_path: Path
) -> None:
    rests = Table(tmp_path / "silver" / "segment")
    rests.commit()
    job, control = resting(str(table.folder), str(rests.folder))
    waker = waking()
    try:
        waker.take(job)
        settled(control)
        assert control.left_out == [], "nobody knows how far the first batch is"
        read = [{"reservoirId": "t", "reservoirVersion": 1, "index": -100} for _ in range(2)]
        job.pulse.offsets = "\n".join(["v1", "{}", *map(json.dumps, read)])
        job.pulse.batch = job.pulse.done = 0
        job.pulse.regime = "steady"
        table.commit()
        until(lambda: control.left_out == [1])
        # In the middle of a commit there is more of it, whatever its version.
        read[1] |= {"index": 0, "reservoirVersion": 0}
        job.pulse.offsets = "\n".join(["v1", "{}", *map(json.dumps, read)])
        table.commit()
        until(lambda: control.left_out == [])
        job.pulse.offsets, job.pulse.regime = "v1\n{}\n{}\n{}", "behind"
        woken = control.woken
        table.commit()
        until(lambda: control.woken > woken)
        assert control.left_out == []
    finally:
        waker.stop()


def test_who_had_its_first_batch_leaves_the_cores_to_who_had_none(
    table: Table, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "YIELD_SECONDS", 3600.0)
    (first, early), (second, late) = (resting(str(table.folder)) for _ in range(2))
    first.name, second.name = "first", "second"
    waker = waking()
    try:
        waker.take(first)
        waker.take(second)
        until(lambda: (early.woken, late.woken) == (1, 1))
        first.pulse.ended(1, 0.0)
        time.sleep(0.1)
        table.commit()
        until(lambda: late.woken == 2)
        assert settled(early) == 1, "the other one has yet to have its first batch"
        second.pulse.ended(1, 0.0)
        until(lambda: early.woken == 2)
    finally:
        waker.stop()


def test_nobody_waits_for_long_for_the_first_batch_of_another(
    table: Table, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "YIELD_SECONDS", 3600.0)
    monkeypatch.setattr(waker_module, "FIRST_SECONDS", 0.0)
    (first, early), (second, _) = (resting(str(table.folder)) for _ in range(2))
    first.name, second.name = "first", "second"
    waker = waking()
    try:
        waker.take(first)
        waker.take(second)
        until(lambda: early.woken == 1)
        first.pulse.ended(1, 0.0)
        until(lambda: early.woken == 2)
    finally:
        waker.stop()


def test_a_query_is_woken_no_more_often_than_its_trigger_allows(
    table: Table, waking: Callable[..., Waker]
) -> None:
    job, control = resting(str(table.folder), pause=30.0)
    waker = waking()
    try:
        waker.take(job)
        until(lambda: control.woken == 1)
        table.commit()
        time.sleep(0.2)
        assert control.woken == 1
    finally:
        waker.stop()


def test_who_reads_two_tables_of_a_batch_is_woken_behind_its_second_commit(
    table: Table, tmp_path: Path, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(waker_module, "AWAIT_SECONDS", 3600.0)
    logs, findings = Table(tmp_path / "logs"), Table(tmp_path / "gold" / "finding")
    logs.commit()
    findings.commit()
    both = frozenset({str(table.folder), str(findings.folder)})
    (writer, written), (reader, read) = resting(str(logs.folder)), resting(*sorted(both))
    writer.name, reader.name = "writer", "reader"
    waker = waking()
    try:
        waker.take(writer)
        waker.take(reader)
        until(lambda: (written.woken, read.woken) == (1, 1))
        writer.pulse.batch, writer.pulse.writes, writer.pulse.coming = 1, both, both
        table.commit()
        writer.pulse.coming -= {str(table.folder)}
        assert settled(read) == 1, "the second table is to come"
        findings.commit()
        writer.pulse.coming = frozenset()
        until(lambda: read.woken == 2)
        assert settled(read) == 2

        monkeypatch.setattr(waker_module, "AWAIT_SECONDS", 0.0)
        writer.pulse.coming = both
        table.commit()
        until(lambda: read.woken == 3)  # a batch that takes long is not waited for
    finally:
        waker.stop()


def test_a_job_that_was_just_woken_is_waited_for_until_it_has_or_makes_no_batch(
    table: Table, tmp_path: Path, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(waker_module, "BEGIN_SECONDS", 3600.0)
    logs, leases = Table(tmp_path / "logs"), Table(tmp_path / "silver" / "lease")
    logs.commit()
    leases.commit()
    writer, written = resting(str(logs.folder))
    reader, read = resting(str(table.folder), str(leases.folder))
    writer.name, reader.name = "writer", "reader"
    writer.pulse.writes = frozenset({str(table.folder)})
    waker = waking()
    try:
        waker.take(reader)
        until(lambda: read.woken == 1)
        waker.take(writer)
        until(lambda: written.woken == 1)
        leases.commit()
        assert settled(read) == 1, "the writer is about to begin"
        table.commit()  # its rows are here: more of them are not waited for
        until(lambda: read.woken == 2)
        leases.commit()
        assert settled(read) == 2
        monkeypatch.setattr(waker_module, "BEGIN_SECONDS", 0.0)
        until(lambda: read.woken == 3)
    finally:
        waker.stop()


def test_a_query_that_has_yet_to_begin_or_was_left_is_not_woken(
    table: Table, waking: Callable[..., Waker]
) -> None:
    job, control = resting(str(table.folder))
    control.begun = False
    waker = waking()
    try:
        waker.take(job)
        assert settled(control) == 0
        control.begun = True
        until(lambda: control.woken == 1)
        waker.leave(job)
        table.commit()
        assert settled(control) == 1
    finally:
        waker.stop()


def test_a_job_whose_inputs_cannot_be_looked_at_keeps_its_trigger(
    waking: Callable[..., Waker],
) -> None:
    waker = waking()
    try:
        for job, control in (resting(None), resting("s3://lake/silver/event"), resting(pause=0)):
            waker.take(job)
            assert settled(control) == 0
    finally:
        waker.stop()


class Broker(Arrivals):
    """What a broker would say of one partition."""

    def __init__(self) -> None:
        self.end: int | None = 0

    def ends(self) -> dict[tuple[str, int], int] | None:
        return None if self.end is None else {("logs.sshd", 0): self.end}


class Counting(Ticker):
    """Ticks that go nowhere."""

    def _tick(self) -> None:
        self._ticks += 1


@pytest.fixture
def kafka() -> Any:
    return load(kafka={"tick_seconds": 0.02, "idle_tick_seconds": 3600}).kafka


def test_ticks_come_while_something_is_due_or_messages_came(kafka: Any) -> None:
    broker, due = Broker(), [False]
    ticker = Counting(kafka, broker, lambda: due[0]).start()
    try:
        until(lambda: ticker._ticks >= 1)  # whatever there is at the start, is new
        time.sleep(0.2)
        assert ticker._ticks == 1, "nothing came, nothing is due"
        quiet = ticker.state
        broker.end = 5
        until(lambda: ticker._ticks == 2)
        until(lambda: ticker.state != quiet)
        due[0] = True
        until(lambda: ticker._ticks > 5)
        due[0] = False
        time.sleep(0.1)
        before = ticker._ticks
        time.sleep(0.2)
        assert ticker._ticks == before
        assert ticker.state == ticker.state
        assert ticker.asked_at is not None
    finally:
        ticker.stop()


def test_ticks_come_more_seldom_once_it_was_quiet_for_long() -> None:
    assert [pause_in_quiet(30.0, quiet) for quiet in (0.0, QUIET_SECONDS, QUIET_SECONDS + 1)] == [
        *(30.0, 30.0, 120.0),
    ]


def test_a_broker_that_does_not_answer_makes_nobody_rest(kafka: Any) -> None:
    broker = Broker()
    broker.end = None
    ticker = Counting(kafka, broker, lambda: False).start()
    try:
        until(lambda: ticker._ticks > 3)
        assert ticker.state != ticker.state, "who cannot know has to look"
    finally:
        ticker.stop()


def test_what_is_due_is_due_for_a_while_and_then_forgotten() -> None:
    pulse = Pulse()
    pulse.expect((10.0, 100.0))
    now = time.monotonic()
    assert [pulse.is_due(now + wait, 12.0) for wait in (5, 11, 15, 50, 101, 130)] == [
        *(False, True, True, False, True, False),
    ]
    assert pulse.due == set()


def test_a_job_of_history_rests_long_where_nothing_but_heartbeats_came(
    table: Table, waking: Callable[..., Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "QUIET_SECONDS", 0.3)
    past, alerting = resting(str(table.folder)), resting(str(table.folder))
    past[0].name, alerting[0].name = "repair", "alert"
    monkeypatch.setitem(JOBS, "repair", JobSpec("repair", 1, cast(Any, None), history=True))
    waker = waking()
    try:
        for job, _ in (past, alerting):
            waker.take(job)
        until(lambda: past[1].woken == alerting[1].woken == 1)
        time.sleep(0.4)
        table.commit()
        until(lambda: alerting[1].woken == 2)
        assert settled(past[1]) == 1
        # Rows came with a batch: what is history is wanted again.
        alerting[0].pulse.rows, alerting[0].pulse.batch = 12, 1
        alerting[0].pulse.ended(1, 0.0)
        until(lambda: past[1].woken == 2)
    finally:
        waker.stop()
