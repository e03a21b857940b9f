"""The driver: all jobs, or one, in one Spark session, watched and restarted.

A job that fails is started again with growing pauses while the others run on;
one that cannot be helped by a retry is named and left stopped, until it is told
to go on (`headgate jobs resume`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from infra.checkpoint import failed_batch
from infra.config.settings import Settings
from infra.delta.catalog import table
from infra.delta.retention import require_sources
from infra.delta.schema import Table
from infra.errors import Fatal, Retryable, Usage
from infra.kafka.client import ensure_topics, require_broker
from infra.process.clock import clock
from infra.process.log import News, about, say, use
from infra.runtime import job_status as status
from infra.runtime.alarm import Alarm
from infra.runtime.ingest_rate import GOVERNED, Governor
from infra.runtime.job_registry import JOBS, wanted_jobs
from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.runtime.outbox_flusher import OutboxFlusher
from infra.runtime.outbox_registry import outboxes
from infra.runtime.restart_policy import FailureRecord, GiveUp, Retry, own_error, reason
from infra.runtime.scheduled_tasks import Every, Steady, scheduled_commands
from infra.runtime.ticker import Arrivals, Ticker
from infra.runtime.waker import Waker
from infra.spark.gc_overhead import Heap
from infra.spark.internals import collection_seconds
from infra.spark.session import (
    ALERTING,
    LEISURE,
    POOL,
    begin_workers,
    end_jvm,
    jvm_ended,
    session,
)
from infra.storage.file_lock import SharedLock, Taken
from infra.streaming.job import Job, beside
from infra.streaming.lake import Lake

_Say = Callable[[str], None]

WHOLE = frozenset({"ingest", "sessions", "alert"})
"""A driver that runs these sees all that alerts wait for."""


@dataclass
class Watched:
    """A job under watch."""

    name: str
    job: Job | None = None
    record: FailureRecord = field(default_factory=FailureRecord)
    started: float = 0.0
    ran: bool = False
    """Whether it began in this driver."""
    again_at: float | None = None
    after: Watched | None = None
    """The job whose first batch it waits for, if it has not been started yet."""
    stopped_for: str | None = None
    """Why it stopped for good."""
    stopping: threading.Thread | None = None
    """Ends the query, which is then started at another pace."""


@dataclass
class Driver:
    """Runs jobs until told to stop."""

    settings: Settings
    names: Sequence[str]
    tell: _Say = say
    once: bool = False
    every: bool = False
    """Also jobs that get something to do only while it runs."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Start everything, watch until stopped (or, with `once`, until all is worked off).

        Returns 0, or 1 when a job stopped for good.
        """
        unknown = [name for name in self.names if name not in JOBS]
        if unknown:
            raise Usage(f"no job '{unknown[0]}'; there are {', '.join(JOBS)}")
        require_sources(self.settings)
        use(self.settings.log_format)
        if not self.once and self._all_failed():
            if "alert" in self.names:
                self._alarm().look()  # what starts drivers again and again has no other occasion
            return 1
        if (admitted := self._admitted()) is None:
            return 0
        try:
            return self._run()
        finally:
            admitted.release()

    def _all_failed(self) -> bool:
        """Whether an earlier driver stopped all of these jobs for good, and that stands; says so.

        Whatever starts drivers again and again (systemd, Kubernetes) then starts no JVM for it.
        """
        results = {
            name: failed_batch.stands(self.settings.checkpoint_root / name) for name in self.names
        }
        if not all(results.values()):
            return False
        content = status.read_status(self.settings)
        for name, why in results.items():
            changed = replace(content.get(name) or status.JobStatus(name), state="failed")
            changed = replace(changed, why=why or "", at=clock.time(), pid=os.getpid())
            status.write_status(self.settings, status.with_ages(changed, clock.jumped))
            self.tell(f"job {name}: stopped for good: {why}")
        return True

    def _admitted(self) -> SharedLock | None:
        """The right to work beside others, once no backup is under way; None when told to stop.

        It is the driver's own, as it also writes while none of its jobs runs: tables that are
        missing, and what waits in the spool.
        """
        news = News(self.tell)
        while True:
            try:
                return beside(self.settings.checkpoint_root, "the driver")
            except Retryable as error:
                if self.once:
                    raise
                news.tell(str(error))
            if self.pause(1.0):
                return None

    def _run(self) -> int:
        require_broker(self.settings.kafka)
        ensure_topics(self.settings, jobs=self.names)
        spark = session(self.settings, small_batches=True)
        if self.settings.spark.local:  # elsewhere it would reach one executor of many
            begin_workers(spark)
        self.tell("spark: up")
        lake = Lake(spark, self.settings).ensure()
        self.tell(f"tables: ready in {self.settings.lake_root}")
        ticker, waker = self._clockwork()
        folder = OutboxFlusher(lake, self._outboxes()).start()
        scheduled = [every.start() for every in self._scheduled()]
        watched = [Watched(name) for name in self.names]
        alarm = self._alarm().start() if "alert" in self.names and not self.once else None
        waiting = LagReader(self.settings).start()
        watch = Watch(self.settings, spark, waiting)
        status.end_unwanted(self.settings, {*wanted_jobs(self.settings), *self.names})
        try:
            if self.once:
                return self._through(lake, watched)
            return Round(self, lake, watched, watch, Governor(self.settings), waker).run()
        except (OSError, Py4JError):
            # It shows here before the process has ended.
            if (gone := jvm_ended(self.settings, within=5.0)) is not None:
                raise Fatal(gone) from None
            raise
        finally:
            waiting.stop()
            if alarm:
                alarm.stop()
            for every in scheduled:
                every.stop()
            if waker:
                waker.stop()
            if ticker:
                ticker.stop()
            alive = jvm_ended(self.settings) is None
            for each in watched:
                if each.job and alive:
                    each.job.stop()
                # With `once` nothing is told: another driver may be running the job.
                if each.name in watch.statuses and not each.stopped_for:
                    watch.ended(each.name, "stopped", "")
            if alive:
                # Before Spark: what it folds last is a commit.
                folder.stop()
                spark.stop()

    def _alarm(self) -> Alarm:
        return Alarm(self.settings, lambda: wanted_jobs(self.settings), self.tell)

    def _clockwork(self) -> tuple[Ticker | None, Waker | None]:
        """What moves time on and wakes the jobs, begun; none of it with `once`.

        Ticks feed only the job that reads them. Where the jobs are in drivers of their own, nobody
        sees all that waits: there ticks come steadily, and each query looks for itself.
        """
        if self.once or "ingest" not in self.names:
            return None, None
        kafka = self.settings.kafka
        if not set(self.names) >= WHOLE:
            return Ticker(kafka).start(), None
        waker = Waker()
        waker.ticker = Ticker(kafka, Arrivals(kafka), waker.due).start()
        return waker.ticker, waker.start()

    def _outboxes(self) -> dict[str, Table]:
        return {folder: table(name) for folder, name in outboxes().items()}

    def _scheduled(self) -> list[Every | Steady]:
        """What runs in processes of its own beside job ingest, if there is one."""
        wanted = "ingest" in self.names and not self.once
        return scheduled_commands(self.settings, self.tell) if wanted else []

    def stop(self) -> None:
        """Make `run` end after the batches under way."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """SIGINT and SIGTERM end the driver in order."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # Python calls a handler in the middle of whatever runs, so it only sets a flag.
            signal.signal(number, lambda *_: self.stop())

    def pause(self, seconds: float) -> bool:
        """Wait; True when the driver is to end."""
        return self._stop.wait(seconds)

    def _through(self, lake: Lake, watched: Sequence[Watched]) -> int:
        for watched_job in watched:
            watched_job.job = begin(
                _lake_for(watched_job.name, lake, Governor(self.settings)),
                watched_job.name,
                once=True,
            )
            try:
                watched_job.job.wait()
            except StreamingQueryException as error:  # it has the plan and all that Spark did
                if (message := own_error(str(error))) is None:
                    raise
                raise Fatal(f"job {watched_job.name}: {message}") from None
            self.tell(f"job {watched_job.name}: all that was there is through")
        return 0


def begin(lake: Lake, name: str, *, once: bool = False) -> Job:
    """Start a job. Its query's tasks run in the pool that this thread has when it starts."""
    spec = JOBS[name]
    lake.spark.sparkContext.setLocalProperty(POOL, LEISURE if spec.history else ALERTING)
    return spec.load()(lake, once=once)


def _lake_for(name: str, lake: Lake, governor: Governor) -> Lake:
    """The lake as a job is to see it: for a governed one, with the pace in its settings."""
    return Lake(lake.spark, governor.start()) if name == GOVERNED else lake


def _out_of_the_way(one: Watched | None) -> bool:
    """Whether a job is through with a batch since it was started, or stopped for good."""
    if one is None or one.stopped_for:
        return one is not None
    return one.job is not None and one.job.pulse.done is not None


LOOK_SECONDS = 0.5
IDLE_LOOK_SECONDS = 2.0
"""How often the queries are looked at; the second where none began a batch since the last look."""

SUSPENSE_SECONDS = 600.0
"""So long a job waits for one that may have ended drivers: that may pause for other reasons."""

_EITHER = "the driver ended in the middle of a batch of either, and one of them may be why"


@dataclass
class Round:
    """Looks at all jobs of a driver, again and again."""

    driver: Driver
    lake: Lake
    watched: list[Watched]
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
        for watched in self.watched:
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
        before: Watched | None = None
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

    def _folder(self, one: Watched) -> Path:
        return self.lake.settings.checkpoint_root / one.name

    def _begin(self, one: Watched) -> None:
        """Start a job with the driver, or say when it is to start."""
        later = JOBS[one.name].later
        if later is None:
            self._try(one)
            return
        known = {other.name: other for other in self.watched}
        one.after = known.get(later.job) if later.job else None
        others = (
            one.after is not None if later.job else any(not JOBS[name].history for name in known)
        )
        if others:
            one.again_at = time.monotonic() + later.seconds
        else:
            self._try(one)

    def _look_at_jvm(self, heap: Heap) -> None:
        """Raise `Fatal` when the JVM is gone, or as good as gone."""
        settings = self.driver.settings
        if (gone := jvm_ended(settings)) is not None:
            raise Fatal(gone)
        if heap.exhausted():
            raise Fatal(end_jvm(settings))

    def _look_at_clock(self) -> None:
        """Say what it did. Spark dates the next batch by it, so set back it would stop all jobs."""
        for line in clock.said():
            self.driver.tell(line)
        if clock.went_back():
            for watched in self.watched:
                if watched.job is not None and watched.stopping is None:
                    self._restart(
                        watched, watched.job, "started anew, since the clock was set back"
                    )

    def _join_in(self) -> None:
        """Start jobs that have something to do by now, where all of them are to run."""
        known = {watched.name for watched in self.watched}
        for name in wanted_jobs(self.driver.settings) if self.driver.every else ():
            if name not in known:
                self.watched.append(Watched(name))
                self._try(self.watched[-1])

    def _look(self, one: Watched) -> None:
        if one.job is None or one.stopping is not None:
            self.watch.keep(one.name)
        if one.stopping is not None:
            if not one.stopping.is_alive() and one.job is not None:
                self.watch.gather(one.job)
                one.stopping = one.job = None
                self._try(one)
        elif one.stopped_for:
            if self._asked(one):
                with suppress(OSError):  # another account's: it then says so again
                    failed_batch.forget_failures(self._folder(one))
                one.stopped_for, one.record = None, FailureRecord()
                self._try(one)
        elif one.again_at is not None:
            if time.monotonic() >= one.again_at or _out_of_the_way(one.after):
                self._try(one)
        elif one.job is not None and not one.job.query.isActive:
            self._failed(one, one.job.failure() or "it ended")
        elif one.job is not None and self._other_pace(one, one.job):
            self._restart(one, one.job, f"now {self.governor.said}")

    def _other_pace(self, one: Watched, job: Job) -> bool:
        """Bring a job's status up to date; whether its query is to be started at another pace."""
        try:
            job.look()
            self.watch.look(job)
            if one.name != GOVERNED:
                return False
            progress, status = self.watch.progress.get(one.name), self.watch.of(one.name)
            return self.governor.look(job, progress, status)
        except Exception as error:  # what watches must not end what it watches
            message = f"job {one.name}: cannot be watched: {type(error).__name__}: {error}"
            self.news[one.name].tell(message)
            return False

    def _restart(self, one: Watched, job: Job, why: str) -> None:
        """Start a job's query anew on its checkpoint, once the batch it is in has ended."""
        self.driver.tell(f"job {one.name}: {why}")
        # So long a batch may take while it catches up; one that is cut off is done again.
        patience = self.driver.settings.jobs.behind_batch_seconds + 20.0
        if self.waker is not None:
            self.waker.leave(job)
        # In a thread of its own: other jobs are watched while this one ends its batch.
        one.stopping = threading.Thread(target=job.stop, args=(patience,), daemon=True)
        one.stopping.start()

    def _request(self, one: Watched) -> Path:
        return self.lake.spool / "resume" / one.name

    def _asked(self, one: Watched) -> bool:
        """Whether a person wants the job to go on; the request is taken.

        A folder of another account ends no driver.
        """
        request = self._request(one)
        try:
            request.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            message = f"job {one.name}: {request} cannot be read ({error.strerror}): whose is it?"
            self.news[one.name].tell(message)
            return False
        return True

    def _try(self, one: Watched) -> None:
        one.again_at = one.after = None
        one.started = time.monotonic()
        self.watch.began(one.name)
        try:
            one.job = begin(_lake_for(one.name, self.lake, self.governor), one.name)
            pace = f" ({self.governor.said})" if one.name == GOVERNED else ""
            self.driver.tell(f"job {one.name}: running{pace}")
            one.ran = True
            if self.waker is not None:
                self.waker.take(one.job)
        except Taken as error:
            if one.ran:  # a batch of ours has yet to leave, or a command looked whether it runs
                self._failed(one, f"{Retryable.__module__}.{Retryable.__name__}: {error}")
            else:
                self._give_up(one, str(error))
        except Fatal as error:
            self._give_up(one, str(error))
        except Exception as error:  # one job that cannot start must not take the others along
            self._failed(one, f"{type(error).__module__}.{type(error).__name__}: {error}")

    def _failed(self, one: Watched, why: str) -> None:
        batch = None
        if one.job:
            # Between two batches Spark's own planning or commit failed, and no batch is to blame.
            batch = one.job.pulse.batch if one.job.pulse.under_way else None
            self.watch.gather(one.job)
            if self.waker is not None:
                self.waker.leave(one.job)
            one.job.stop()
            one.job = None
        ran = time.monotonic() - one.started
        attempts = self.lake.settings.jobs.max_batch_failures
        if one.name == GOVERNED:
            self.governor.failed()
        follows = one.record.failed(why, batch, ran, attempts)
        self._remember(one, reason(why), follows)
        with about(one.name, batch):
            if not isinstance(follows, Retry):
                self._give_up(one, follows.why)
                return
            one.again_at = time.monotonic() + follows.seconds
            cause = reason(why)
            self.watch.ended(one.name, "backoff", cause, one.record.failures)
            self.driver.tell(f"job {one.name}: failed, again in {follows.seconds:.0f} s: {cause}")

    def _remember(self, one: Watched, why: str, follows: Retry | GiveUp) -> None:
        """Keep for later drivers how often a batch failed by its own fault."""
        stopped, known = follows.why if isinstance(follows, GiveUp) else None, one.record
        if isinstance(follows, GiveUp) and not follows.poison:
            return
        folder = self._folder(one)
        with suppress(OSError, Fatal):  # this driver knows it all the same
            if known.batch is None:
                failed_batch.spared(folder)
                return
            failed_batch.failed(folder, known.batch, known.on_batch, why, stopped, known.starved)

    def _give_up(self, one: Watched, why: str) -> None:
        one.stopped_for = why
        self._asked(one)  # asked before it was stopped: not about this
        self.watch.ended(one.name, "failed", why, one.record.failures)
        self.driver.tell(f"job {one.name}: stopped for good: {why}")
