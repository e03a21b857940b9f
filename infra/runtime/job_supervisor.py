"""Watches the jobs of a driver: begins them, restarts what failed, gives up what cannot be helped.

The driver (`driver.py`) makes the session and all that works beside the jobs.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from infra.checkpoint import failed_batch
from infra.config.settings import Settings
from infra.errors import Fatal, Retryable
from infra.process.clock import clock
from infra.process.log import News, about
from infra.runtime.ingest_rate import GOVERNED, Governor
from infra.runtime.job_registry import JOBS, wanted_jobs
from infra.runtime.monitor import Watch
from infra.runtime.restart_policy import FailureRecord, GiveUp, Retry, reason
from infra.runtime.waker import Waker
from infra.spark.gc_overhead import Heap
from infra.spark.internals import collection_seconds
from infra.spark.session import ALERTING, LEISURE, POOL, end_jvm, jvm_ended
from infra.storage.file_lock import Taken
from infra.streaming.job import Job
from infra.streaming.lake import Lake


class RunningDriver(Protocol):
    """What the supervisor needs of the driver that it works for."""

    settings: Settings
    every: bool

    @property
    def tell(self) -> Callable[[str], None]:
        """Says something to whoever started the driver."""
        ...

    def pause(self, seconds: float) -> bool:
        """Wait; True when the driver is to end."""
        ...


@dataclass
class WatchedJob:
    """A job under watch."""

    name: str
    job: Job | None = None
    record: FailureRecord = field(default_factory=FailureRecord)
    started: float = 0.0
    ran: bool = False
    """Whether it began in this driver."""
    again_at: float | None = None
    after: WatchedJob | None = None
    """The job whose first batch it waits for, if it has not been started yet."""
    rest: float = 0.0
    """How many seconds old that batch is to be."""
    through_at: float | None = None
    """When its first batch was seen, steady seconds; noted where another job waits for it."""
    stopped_for: str | None = None
    """Why it stopped for good."""
    stopping: threading.Thread | None = None
    """Ends the query, which is then started at another pace."""


def begin_job(lake: Lake, name: str, governor: Governor, *, once: bool = False) -> Job:
    """Start a job. Its query's tasks run in the pool that this thread has when it starts."""
    spec = JOBS[name]
    lake.spark.sparkContext.setLocalProperty(POOL, LEISURE if spec.history else ALERTING)
    # A governed job takes its pace from the settings of the lake that it is given.
    paced = Lake(lake.spark, governor.start()) if name == GOVERNED else lake
    return spec.load()(paced, once=once)


def out_of_the_way(watched: WatchedJob | None, rest: float) -> bool:
    """Whether a job is through with a batch since it was started, or stopped for good.

    `rest`: seconds since that batch, the first that was seen.
    """
    if watched is None or watched.stopped_for:
        return watched is not None
    if watched.job is None or watched.job.pulse.done is None:
        return False
    watched.through_at = watched.through_at or time.monotonic()
    return time.monotonic() - watched.through_at >= rest


def state_below(folder: Path, limit: int) -> bool:
    """Whether the state in a job's folder, its former versions included, is smaller than this."""
    size = 0
    for path in (folder / "spark" / "state").rglob("*"):
        with suppress(OSError):  # cleaned away meanwhile
            size += path.stat().st_size
        if size >= limit:
            break
    return size < limit


LOOK_SECONDS = 0.5
IDLE_LOOK_SECONDS = 2.0
"""How often the queries are looked at; the second where none began a batch since the last look."""

SUSPENSE_SECONDS = 600.0
"""So long a job waits for one that may have ended drivers: that may pause for other reasons."""

_EITHER = "the driver ended in the middle of a batch of either, and one of them may be why"


@dataclass
class JobSupervisor:
    """Looks at all jobs of a driver, again and again."""

    driver: RunningDriver
    lake: Lake
    watched: list[WatchedJob]
    watch: Watch
    governor: Governor
    waker: Waker | None = None
    news: dict[str, News] = field(init=False)
    """What keeps a job from being watched or heard, by job."""
    _batches: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing was told yet."""
        self.news = defaultdict(lambda: News(self.driver.tell))

    def run(self) -> int:
        """Until told to stop, or all jobs stopped for good; 1 when one was."""
        self._begin_all()
        heap = Heap(partial(collection_seconds, self.lake.spark))
        while not self.driver.pause(self._pause()):
            self._look_at_jvm(heap)
            self._look_at_clock()
            self._join_in()
            for watched in self.watched:
                self._look(watched)
            if all(watched.stopped_for for watched in self.watched):
                break
        # A query that is being started anew still ends its batch: cut off, that would be done
        # again.
        for watched in self.watched:
            # What is being started anew ends its batch; one that is cut off is done again.
            if watched.stopping is not None:
                watched.stopping.join(60)
        self.governor.stop()
        return 1 if any(watched.stopped_for for watched in self.watched) else 0

    def _pause(self) -> float:
        """Seconds to the next look: asking the queries of eight jobs costs more than they rest."""
        pulses = [watched.job.pulse if watched.job else None for watched in self.watched]
        batches = [pulse.batch if pulse else None for pulse in pulses]
        moved, self._batches = batches != self._batches, batches
        waits = any(
            watched.stopping or (watched.job is None and not watched.stopped_for)
            for watched in self.watched
        )
        return LOOK_SECONDS if moved or waits else IDLE_LOOK_SECONDS

    def _begin_all(self) -> None:
        """Start all jobs; those that may have ended drivers before come one after the other."""
        ends: dict[str, int] = {}
        before: WatchedJob | None = None
        for watched in self.watched:
            if (suspected := failed_batch.suspected(self._folder(watched))) is not None:
                watched.record = FailureRecord(
                    batch=suspected.batch, on_batch=suspected.failures, starved=suspected.starved
                )
                ends[watched.name] = (
                    suspected.ends if suspected.ends >= failed_batch.SUSPECTED else 0
                )
        # Suspects begin one at a time: if the driver ends again, it is known in whose batch.
        for watched in sorted(self.watched, key=lambda watched: -ends.get(watched.name, 0)):
            if not ends.get(watched.name):
                self._begin(watched)
                continue
            if before is None:
                self._begin(watched)
            else:
                self.watch.began(watched.name)
                watched.again_at, watched.after = time.monotonic() + SUSPENSE_SECONDS, before
                self.driver.tell(f"job {watched.name}: waits for job {before.name}: {_EITHER}")
            before = watched

    def _folder(self, watched: WatchedJob) -> Path:
        return self.lake.settings.checkpoint_root / watched.name

    def _begin(self, watched: WatchedJob) -> None:
        """Start a job with the driver, or say when it is to start."""
        later = JOBS[watched.name].later
        if later is None or state_below(self._folder(watched), later.state_bytes):
            self._try(watched)
            return
        by_name = {other.name: other for other in self.watched}
        watched.after = by_name.get(later.job) if later.job else None
        watched.rest = later.rest
        others = (
            watched.after is not None
            if later.job
            else any(not JOBS[name].history for name in by_name)
        )
        if others:
            watched.again_at = time.monotonic() + later.seconds
        else:
            self._try(watched)

    def _look_at_jvm(self, heap: Heap) -> None:
        """Raise `Fatal` when the JVM is gone, or as good as gone."""
        settings = self.driver.settings
        if (gone := jvm_ended(settings)) is not None:
            raise Fatal(gone)
        if heap.exhausted():
            raise Fatal(end_jvm(settings))

    def _look_at_clock(self) -> None:
        """Say what it did. Spark dates the next batch by it, so set back it would stop all jobs."""
        for line in clock.new_jumps():
            self.driver.tell(line)
        if clock.went_back():
            for watched in self.watched:
                if watched.job is not None and watched.stopping is None:
                    self._restart(
                        watched, watched.job, "started anew, since the clock was set back"
                    )

    def _join_in(self) -> None:
        """Start jobs that have something to do by now, where all of them are to run."""
        # A job that a setting or a rule asked for only now starts without a restart of the driver.
        running = {watched.name for watched in self.watched}
        for name in wanted_jobs(self.driver.settings) if self.driver.every else ():
            if name not in running:
                self.watched.append(WatchedJob(name))
                self._try(self.watched[-1])

    def _look(self, watched: WatchedJob) -> None:
        if watched.job is None or watched.stopping is not None:
            self.watch.keep(watched.name)
        if watched.stopping is not None:
            if not watched.stopping.is_alive() and watched.job is not None:
                self.watch.gather(watched.job)
                watched.stopping = watched.job = None
                self._try(watched)
        elif watched.stopped_for:
            if self._asked(watched):
                with suppress(OSError):  # another account's: it then says so again
                    failed_batch.forget_failures(self._folder(watched))
                watched.stopped_for, watched.record = None, FailureRecord()
                self._try(watched)
        elif watched.again_at is not None:
            if time.monotonic() >= watched.again_at or out_of_the_way(watched.after, watched.rest):
                self._try(watched)
        elif watched.job is not None and not watched.job.query.isActive:
            self._failed(watched, watched.job.failure() or "it ended")
        elif watched.job is not None and self._other_pace(watched, watched.job):
            self._restart(watched, watched.job, f"now {self.governor.pace_text}")

    def _other_pace(self, watched: WatchedJob, job: Job) -> bool:
        """Bring a job's status up to date; whether its query is to be started at another pace."""
        try:
            job.look()
            self.watch.look(job)
            if watched.name != GOVERNED:
                return False
            progress, status = self.watch.progress.get(watched.name), self.watch.of(watched.name)
            return self.governor.look(job, progress, status)
        except Exception as error:  # what watches must not end what it watches
            message = f"job {watched.name}: cannot be watched: {type(error).__name__}: {error}"
            self.news[watched.name].tell(message)
            return False

    def _restart(self, watched: WatchedJob, job: Job, why: str) -> None:
        """Start a job's query anew on its checkpoint, once the batch it is in has ended."""
        self.driver.tell(f"job {watched.name}: {why}")
        # So long a batch may take while it catches up; one that is cut off is done again.
        patience = self.driver.settings.jobs.behind_batch_seconds + 20.0
        if self.waker is not None:
            self.waker.leave(job)
        # In a thread of its own: other jobs are watched while this one ends its batch.
        watched.stopping = threading.Thread(target=job.stop, args=(patience,), daemon=True)
        watched.stopping.start()

    def _request(self, watched: WatchedJob) -> Path:
        return self.lake.spool / "resume" / watched.name

    def _asked(self, watched: WatchedJob) -> bool:
        """Whether a person wants the job to go on; the request is taken.

        A folder of another account ends no driver.
        """
        request = self._request(watched)
        try:
            request.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            message = (
                f"job {watched.name}: {request} cannot be read ({error.strerror}): whose is it?"
            )
            self.news[watched.name].tell(message)
            return False
        return True

    def _try(self, watched: WatchedJob) -> None:
        watched.again_at = watched.after = None
        watched.started = time.monotonic()
        self.watch.began(watched.name)
        try:
            watched.job = begin_job(self.lake, watched.name, self.governor)
            pace = f" ({self.governor.pace_text})" if watched.name == GOVERNED else ""
            self.driver.tell(f"job {watched.name}: running{pace}")
            watched.ran = True
            if self.waker is not None:
                self.waker.take(watched.job)
        except Taken as error:
            if watched.ran:  # a batch of ours has yet to leave, or a command looked whether it runs
                self._failed(watched, f"{Retryable.__module__}.{Retryable.__name__}: {error}")
            else:
                self._give_up(watched, str(error))
        except Fatal as error:
            self._give_up(watched, str(error))
        except Exception as error:  # one job that cannot start must not take the others along
            self._failed(watched, f"{type(error).__module__}.{type(error).__name__}: {error}")

    def _failed(self, watched: WatchedJob, why: str) -> None:
        batch = None
        if watched.job:
            # Between two batches Spark's own planning or commit failed, and no batch is to blame.
            batch = watched.job.pulse.batch if watched.job.pulse.under_way else None
            self.watch.gather(watched.job)
            if self.waker is not None:
                self.waker.leave(watched.job)
            watched.job.stop()
            watched.job = None
        ran = time.monotonic() - watched.started
        attempts = self.lake.settings.jobs.max_batch_failures
        if watched.name == GOVERNED:
            self.governor.failed()
        follows = watched.record.failed(why, batch, ran, attempts)
        self._remember(watched, reason(why), follows)
        with about(watched.name, batch):
            if not isinstance(follows, Retry):
                self._give_up(watched, follows.why)
                return
            watched.again_at = time.monotonic() + follows.seconds
            cause = reason(why)
            self.watch.ended(watched.name, "backoff", cause, watched.record.failures)
            self.driver.tell(
                f"job {watched.name}: failed, again in {follows.seconds:.0f} s: {cause}"
            )

    def _remember(self, watched: WatchedJob, why: str, follows: Retry | GiveUp) -> None:
        """Keep for later drivers how often a batch failed by its own fault."""
        stopped, failures = follows.why if isinstance(follows, GiveUp) else None, watched.record
        # What no retry can help is no fault of the batch: the next driver is to try it.
        if isinstance(follows, GiveUp) and not follows.poison:
            return
        folder = self._folder(watched)
        with suppress(OSError, Fatal):  # this driver knows it all the same
            if failures.batch is None:
                failed_batch.spared(folder)
                return
            failed_batch.failed(
                folder, failures.batch, failures.on_batch, why, stopped, failures.starved
            )

    def _give_up(self, watched: WatchedJob, why: str) -> None:
        watched.stopped_for = why
        self._asked(watched)  # asked before it was stopped: not about this
        self.watch.ended(watched.name, "failed", why, watched.record.failures)
        self.driver.tell(f"job {watched.name}: stopped for good: {why}")
