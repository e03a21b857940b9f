"""The driver: all jobs, or one, in one Spark session, watched and restarted.

A job that fails is started again with growing pauses while the others run on;
one that cannot be helped by a retry is named and left stopped, until it is told
to go on (`headgate jobs resume`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from infra.checkpoint import failed_batch
from infra.config.settings import Settings
from infra.delta.catalog import table
from infra.delta.retention import require_sources
from infra.delta.schema import Table
from infra.delta.transaction import CHECKPOINTS
from infra.errors import Fatal, Retryable, Usage
from infra.kafka.client import ensure_topics, require_broker
from infra.process.batch_telemetry import hear_batches
from infra.process.clock import clock
from infra.process.log import News, say, use
from infra.runtime import job_status as status
from infra.runtime.alarm import Alarm
from infra.runtime.ingest_rate import Governor
from infra.runtime.job_registry import JOBS, wanted_jobs
from infra.runtime.job_supervisor import JobSupervisor, WatchedJob, begin_job
from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.runtime.outbox_flusher import OutboxFlusher
from infra.runtime.outbox_registry import outboxes
from infra.runtime.restart_policy import own_error
from infra.runtime.scheduled_tasks import Every, Steady, scheduled_commands
from infra.runtime.ticker import Arrivals, Ticker
from infra.runtime.waker import Waker
from infra.spark.session import (
    begin_workers,
    jvm_ended,
    session,
)
from infra.storage.file_lock import SharedLock
from infra.streaming.job_lock import hold_off_backups
from infra.streaming.lake import Lake

if TYPE_CHECKING:
    from infra.process.otlp_export import OtlpExporter

_Say = Callable[[str], None]

WHOLE = frozenset({"ingest", "sessions", "alert"})
"""A driver that runs these sees all that alerts wait for."""


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
        # Asked for with `once`, a person wants to see it fail anew.
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
        outage = News(self.tell)
        while True:
            try:
                return hold_off_backups(self.settings.checkpoint_root, "the driver")
            except Retryable as error:
                if self.once:
                    raise
                outage.tell(str(error))
            if self.pause(1.0):
                return None

    def _run(self) -> int:
        _import_beside(self.names)
        require_broker(self.settings.kafka)
        ensure_topics(self.settings, jobs=self.names)
        spark = session(self.settings, small_batches=True)
        if self.settings.spark.local:  # elsewhere it would reach one executor of many
            begin_workers(spark)
        self.tell("spark: up")
        lake = Lake(spark, self.settings).ensure()
        self.tell(f"tables: ready in {self.settings.lake_root}")
        exporter = self._exporter()
        ticker, waker = self._clockwork()
        if not self.once:
            CHECKPOINTS.begin(spark)
        folder = OutboxFlusher(lake, self._outboxes()).start()
        scheduled = [every.start() for every in self._scheduled()]
        watched = [WatchedJob(name) for name in self.names]
        alarm = self._alarm().start() if "alert" in self.names and not self.once else None
        waiting = LagReader(self.settings).start()
        watch = Watch(self.settings, spark, waiting)
        status.end_unwanted(self.settings, {*wanted_jobs(self.settings), *self.names})
        try:
            if self.once:
                return self._through(lake, watched)
            return JobSupervisor(self, lake, watched, watch, Governor(self.settings), waker).run()
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
            # Calls into a JVM that is gone fail, and would hide what ended it.
            alive = jvm_ended(self.settings) is None
            for each in watched:
                if each.job and alive:
                    each.job.stop()
                # With `once` nothing is told: another driver may be running the job.
                if each.name in watch.statuses and not each.stopped_for:
                    watch.ended(each.name, "stopped", "")
            if exporter:
                hear_batches(None)
                exporter.stop()
            if alive:
                # Before Spark: what it folds last is a commit.
                folder.stop()
                CHECKPOINTS.stop()
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

    def _exporter(self) -> OtlpExporter | None:
        """What tells a collector of batches, begun; None where the settings name none."""
        if self.settings.telemetry.otlp_endpoint is None:
            return None
        # Inside: Protobuf and TLS take memory that most drivers do not need.
        from infra.process.otlp_export import OtlpExporter

        exporter = OtlpExporter(self.settings.telemetry, self.tell).start()
        hear_batches(exporter.hear)
        return exporter

    def _outboxes(self) -> dict[str, Table]:
        return {folder: table(name) for folder, name in outboxes().items()}

    def _scheduled(self) -> list[Every | Steady]:
        """What runs in processes of its own beside job ingest, if there is one."""
        with_ingest = "ingest" in self.names and not self.once
        return scheduled_commands(self.settings, self.tell) if with_ingest else []

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

    def _through(self, lake: Lake, watched: Sequence[WatchedJob]) -> int:
        for watched_job in watched:
            governor = Governor(self.settings)
            watched_job.job = begin_job(lake, watched_job.name, governor, once=True)
            try:
                watched_job.job.wait()
            except StreamingQueryException as error:  # it has the plan and all that Spark did
                if (message := own_error(str(error))) is None:
                    raise
                raise Fatal(f"job {watched_job.name}: {message}") from None
            self.tell(f"job {watched_job.name}: all that was there is through")
        return 0


def _import_beside(names: Sequence[str]) -> None:
    """Import the jobs' modules while the broker and the JVM, which begins, are waited for."""

    def load() -> None:
        # What is wrong with a job, its start says.
        with suppress(Exception):
            for name in names:
                JOBS[name].load()

    threading.Thread(target=load, name="imports", daemon=True).start()
