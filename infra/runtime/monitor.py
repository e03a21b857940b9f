"""Watching the jobs of a driver: reads their queries and writes where each stands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psutil
from pyspark.sql import SparkSession

from infra.config.settings import Settings
from infra.process.clock import clock
from infra.runtime.job_status import JobStatus, Memory, with_ages, write_status
from infra.runtime.lag import LagReader
from infra.spark.internals import heap_use
from infra.streaming.job import Job
from infra.streaming.progress import durations, state, watermark

WRITE_SECONDS = 2.0
RESTING_WRITE_SECONDS = 5.0
"""How often a status is written; the second of a job that waits, while nothing of it changes."""

RESTING_SECONDS = 10.0
"""So long a query that waits is not asked again, unless it began a batch: eight of them, asked
every two seconds, were a good part of what an idle driver costs."""

MEMORY_SECONDS = 10.0
RESTING_MEMORY_SECONDS = 30.0
"""How often memory is measured, the second while all jobs wait: walking the processes and asking
the JVM take some 20 ms."""


@dataclass
class Watch:
    """Keeps the status of a driver's jobs; `look` is called again and again by one thread."""

    settings: Settings
    spark: SparkSession
    waiting: LagReader
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The newest progress of each job's query, as Spark tells it."""
    _memory: Memory = field(default_factory=Memory)
    _measured: float = 0.0
    _written: dict[str, float] = field(default_factory=dict)
    _last_state: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """State and batch of each job, as they were last written."""
    _rested: dict[str, tuple[Job, int | None, float]] = field(default_factory=dict)
    """Of each query that waits: after which batch, and when it said so."""

    def of(self, name: str) -> JobStatus:
        """The status of a job, made when it is first asked for."""
        if name not in self.statuses:
            self.statuses[name] = JobStatus(name, pid=os.getpid(), started_at=clock.time())
        return self.statuses[name]

    def began(self, name: str) -> None:
        """A job was started, for the first time or again."""
        status = self.of(name)
        status.state, status.started_at = "starting", clock.time()
        # It is the former query's, whose figures are not those of this one.
        self.progress.pop(name, None)
        self.tell(name)

    def ended(self, name: str, state: Any, why: str, failures: int = 0) -> None:
        """A job is in backoff, failed for good or was stopped."""
        status = self.of(name)
        status.state, status.why, status.failures = state, why, failures
        self.tell(name)

    def keep(self, name: str) -> None:
        """Write the status of a job that does not run now as often as of one that does."""
        if name in self.statuses and self._due(name):
            self.tell(name)

    def look(self, job: Job) -> None:
        """Bring a running job's status up to date; written every few seconds."""
        status, pulse = self.of(job.name), job.pulse
        self.gather(job)
        idle = self._rests(job)
        if pulse.done_at is not None:
            status.batch, status.batch_at = pulse.done, pulse.done_at
            status.rows, status.written = pulse.rows, dict(pulse.written)
            status.failures, status.why = 0, ""
            status.progressed_at = max(status.progressed_at or 0.0, pulse.done_at)
        if idle:
            status.progressed_at = clock.time()
        if idle:
            status.state = "waiting"
        elif pulse.done is not None or status.state == "waiting":
            status.state = "running"
        if pulse.regime is not None:
            status.cap, status.regime = pulse.cap, pulse.regime
        status.held_back, status.held_since = pulse.held_back, pulse.held_since
        if pulse.finished:
            status.complete_to = datetime.fromisoformat(pulse.finished).timestamp()
        if self._due(job.name):
            self.tell(job.name)

    def _rests(self, job: Job) -> bool:
        """Whether a query waits for something to do, as it said lately, if no batch began since."""
        began, now = job.pulse.batch, time.monotonic()
        looked_at, batch, looked_when = self._rested.get(job.name, (None, None, 0.0))
        if looked_at is job and batch == began and now - looked_when < RESTING_SECONDS:
            return True
        if idle := _idle(job):
            self._rested[job.name] = job, began, now
        return idle

    def _due(self, name: str) -> bool:
        status = self.of(name)
        rests = status.state == "waiting" and self._last_state.get(name) == (
            status.state,
            status.batch,
        )
        seconds = RESTING_WRITE_SECONDS if rests else WRITE_SECONDS
        return time.monotonic() - self._written.get(name, 0.0) >= seconds

    def tell(self, name: str) -> None:
        """Write a job's status now."""
        rest = all(status.state == "waiting" for status in self.statuses.values())
        every = RESTING_MEMORY_SECONDS if rest else MEMORY_SECONDS
        if time.monotonic() - self._measured >= every:
            self._memory, self._measured = memory(self.spark), time.monotonic()
        status = self.of(name)
        status.at, status.memory = clock.time(), self._memory
        self._waits(status)
        with suppress(OSError):  # a full disk must not end the watch; readers see it grow old
            write_status(self.settings, with_ages(status, clock.jumped))
        self._written[name], self._last_state[name] = time.monotonic(), (status.state, status.batch)

    def _waits(self, status: JobStatus) -> None:
        """What it has not taken, also while its query hangs or there is none."""
        result = self.waiting.of(status.job)
        status.unread_messages, status.unread_commits = result.messages, result.commits
        status.behind_seconds = None
        if result.commits is not None:
            # Commits are dated by the system's clock.
            status.behind_seconds = max(0.0, time.time() - result.oldest) if result.oldest else 0.0
        waits = result.messages if result.messages is not None else result.commits
        status.asked_at = result.asked_at if waits == 0 else None
        # Ticks come seldom while nothing does; that all messages are in is known all the same.
        if result.messages == 0:
            status.complete_to = max(status.complete_to or 0.0, result.asked_at)

    def gather(self, job: Job) -> None:
        """Take what Spark tells of the batches of a job that have ended since the last time.

        It is asked only when there are such: an answer costs milliseconds.
        """
        status, newest = self.of(job.name), self.progress.get(job.name)
        seen = -1 if newest is None else newest["batchId"]
        if job.pulse.done is not None and seen < job.pulse.done:
            with suppress(Exception):  # a query that just ends has no answer
                for progress in _since(job, seen):
                    status.dropped_so_far += state(progress).dropped
                    self.progress[job.name] = newest = progress
        if newest is None:
            return
        kept = state(newest)
        status.state_rows, status.state_bytes, status.dropped = kept.rows, kept.bytes, kept.dropped
        status.phases = durations(newest)
        status.seconds = status.phases.get("triggerExecution")
        if (mark := watermark(newest)) is not None:
            status.complete_to = status.event_at = mark.timestamp()


def _since(job: Job, seen: int) -> list[Mapping[str, Any]]:
    """The progress of each batch after `seen`, as far back as Spark keeps it (a hundred)."""
    newest = job.query.lastProgress
    if newest is None or newest["batchId"] <= seen:
        return []
    # The usual case: one progress comes out of the JVM, not the hundred that it keeps.
    message = [newest] if newest["batchId"] == seen + 1 else job.query.recentProgress
    # As Spark wrote it: the dictionary itself has offsets as text.
    return [json.loads(progress.json) for progress in message if progress["batchId"] > seen]


def _idle(job: Job) -> bool:
    """Whether the query looked and found nothing to do."""
    try:
        status = job.query.status
    except Exception:  # it is just ending; the driver sees to it
        return False
    return waits(status) and bool(job.query.isActive)


def waits(status: Mapping[str, Any]) -> bool:
    """Whether a query's status says so. One that has yet to begin says the same, but for its
    message: what fails before its first look must not count as getting on."""
    looked = not str(status["message"]).startswith("Initializing")
    return looked and not status["isDataAvailable"] and not status["isTriggerActive"]


def memory(spark: SparkSession | None) -> Memory:
    """What this process, its JVM and its Python workers hold."""
    used = Memory(driver=psutil.Process().memory_info().rss)
    used.jvm, used.workers = resident(psutil.Process())
    if spark is not None:
        with suppress(Exception):  # a JVM that is going tells nothing
            heap = heap_use(spark)
            used.heap_used, used.heap_after_collection = (
                heap.used,
                heap.after_collection,
            )
    return used


def resident(driver: psutil.Process) -> tuple[int, int]:
    """Bytes that the JVM of a driver holds, and the Python workers below that JVM.

    Commands that run beside the jobs are children of the driver too, with JVMs of their own.
    """
    jvm = workers = 0
    for child in driver.children():
        with suppress(psutil.Error):
            if child.name().startswith("java"):
                jvm += child.memory_info().rss
                for worker in child.children(recursive=True):
                    with suppress(psutil.Error):
                        workers += worker.memory_info().rss
    return jvm, workers
