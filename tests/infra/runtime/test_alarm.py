"""A job that gets nowhere is told of by the driver itself; no Spark, no broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.config.settings import Settings, load
from infra.errors import Retryable
from infra.runtime import alarm as alarm_module
from infra.runtime.alarm import Alarm, Stuck
from infra.runtime.job_status import JobStatus, write_status


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path, targets={"alarm_seconds": 600, "alert": 60})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[list[Stuck]]:
    heard: list[list[Stuck]] = []
    monkeypatch.setattr(alarm_module, "_TELLERS", [lambda _: lambda stuck: heard.append([*stuck])])
    return heard


def look(settings: Settings, at: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the driver says of a look at that time; each look is of a driver of its own."""
    said: list[str] = []
    monkeypatch.setattr(time, "time", lambda: at)
    Alarm(settings, lambda: ("alert",), said.append).look()
    return said


def test_a_job_that_is_stuck_for_ten_minutes_is_told_also_through_restarts_of_the_driver(
    settings: Settings, told: list[list[Stuck]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    hangs = JobStatus("alert", "running", at=now, started_at=now, progressed_at=now - 100)
    write_status(settings, hangs)
    assert look(settings, now, monkeypatch) == []
    # The driver began anew, and its job fails again and again: that is no progress either.
    fails = JobStatus("alert", "backoff", at=now + 699, started_at=now + 590, failures=7, why="no")
    write_status(settings, fails)
    said = look(settings, now + 700, monkeypatch)
    assert said == ["alarm: alert misses its target: " + told[-1][0].why]
    assert not told[-1][0].held_back
    assert "failed 7 times: no" in told[-1][0].why
    assert told[-1][0].since == pytest.approx(now)


def test_a_job_that_makes_progress_and_hands_nothing_on_is_told_as_that(
    settings: Settings, told: list[list[Stuck]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    for at in (now, now + 700):
        works = JobStatus("alert", "waiting", at=at, started_at=now, progressed_at=at)
        works.held_back, works.held_since = "alert a, revision 1, is damaged", now - 100
        write_status(settings, works)
        said = look(settings, at, monkeypatch)
    why = "what it wrote is not handed on for 800 s: alert a, revision 1, is damaged"
    assert said == [f"alarm: alert misses its target: {why}"]
    (stuck,) = told[-1]
    assert (stuck.why, stuck.held_back) == (why, True)
    # One that gets nowhere itself gets nowhere, whatever else waits.
    write_status(settings, replace(works, at=now + 900))
    look(settings, now + 900, monkeypatch)
    assert not told[-1][0].held_back


def test_a_job_that_nobody_started_is_told_of(
    settings: Settings, told: list[list[Stuck]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    look(settings, now, monkeypatch)
    look(settings, now + 601, monkeypatch)
    assert [[stuck.job for stuck in each] for each in told] == [[], ["alert"]]
    assert "no driver reports it" in told[-1][0].why


def test_of_a_job_that_was_stopped_for_good_it_is_told_at_once_and_of_one_ended_by_hand_never(
    settings: Settings, told: list[list[Stuck]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    write_status(settings, JobStatus("alert", "failed", at=now, why="its checkpoint is damaged"))
    look(settings, now, monkeypatch)
    assert told[-1][0].why == "stopped for good: its checkpoint is damaged"
    write_status(settings, JobStatus("alert", "stopped", at=now))
    for later in (now + 1, now + 1000):
        look(settings, later, monkeypatch)
        assert told[-1] == []


def test_what_cannot_be_told_now_is_told_at_the_next_look(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Sequence[Stuck]] = []

    def away(stuck: Sequence[Stuck]) -> None:
        tries.append(stuck)
        raise Retryable("the broker is away")

    monkeypatch.setattr(alarm_module, "_TELLERS", [lambda _: away])
    write_status(settings, JobStatus("alert", "failed", at=time.time(), why="damaged"))
    said: list[str] = []
    alarm = Alarm(settings, lambda: ("alert",), said.append)
    alarm.look()
    alarm.look()
    assert len(tries) == 2
    assert said[-1] == "alarm: cannot be sent now: the broker is away"
