"""The driver: all jobs, or one, in one Spark session, watched and restarted.

A job that fails is started again with growing pauses while the others run on;
one that cannot be helped by a retry is named and left stopped.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from infra.catalog import AUDIT, LEDGER
from infra.errors import Fatal, Usage
from infra.jobs import Job
from infra.kafka import Ticker, ensure_topics, require_broker
from infra.lake import Lake
from infra.schedule import Every
from infra.settings import Settings
from infra.spark import session
from infra.spool import Folder
from infra.tables import table

JOBS = {
    "ingest": "alerts.jobs:ingest_and_detect",
    "files": "alerts.jobs:files_and_detect",
    "sessions": "enrich.jobs:sessions",
    "alert": "alerts.jobs:alert",
    "repair": "alerts.jobs:repair",
}
"""Jobs by name and where they start; imported only when they run."""

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
STEADY_SECONDS = 120.0
"""A job that ran this long has recovered: its next failure begins again with the first pause."""

Say = Callable[[str], None]


def say(line: str) -> None:
    """One line for the operator, on stderr."""
    print(line, file=sys.stderr, flush=True)


def wanted(settings: Settings) -> tuple[str, ...]:
    """The jobs that these settings give something to do."""
    return tuple(name for name in JOBS if name != "files" or settings.folders)


@dataclass
class Watched:
    """A job under watch."""

    name: str
    job: Job | None = None
    failures: int = 0
    started: float = 0.0
    again_at: float | None = None
    given_up: str | None = None


@dataclass
class Driver:
    """Runs jobs until told to stop."""

    settings: Settings
    names: Sequence[str]
    tell: Say = say
    once: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Start everything, watch until stopped (or, with `once`, until all is worked off).

        Returns 0, or 1 when a job was given up.
        """
        unknown = [name for name in self.names if name not in JOBS]
        if unknown:
            raise Usage(f"no job '{unknown[0]}'; there are {', '.join(JOBS)}")
        require_broker(self.settings.kafka)
        ensure_topics(self.settings)
        spark = session(self.settings)
        self.tell("spark: up")
        lake = Lake(spark, self.settings).ensure()
        self.tell(f"tables: ready in {self.settings.lake_root}")
        # Ticks feed only a job that will read them: with `once` there is no next batch to move.
        ticker = Ticker(self.settings.kafka).start() if not self.once else None
        spooled = {"ledger": LEDGER, "audit": AUDIT, "alert_action": table("gold.alert_action")}
        spooled |= {name: table(f"ops.{name}") for name in ("quality", "drift")}
        folder = Folder(lake, spooled).start()
        checks = self._checks().start()
        watched = [Watched(name) for name in self.names]
        try:
            return self._through(lake, watched) if self.once else self._watch(lake, watched)
        finally:
            checks.stop()
            if ticker:
                ticker.stop()
            for one in watched:
                if one.job:
                    one.job.stop()
            folder.stop()
            spark.stop()

    def _checks(self) -> Every:
        """The checks of the data, in a process of their own beside job ingest, if there is one."""
        wanted = "ingest" in self.names and not self.once
        minutes = self.settings.jobs.quality_minutes if wanted else 0
        return Every("quality", ("quality", "run"), minutes, self.settings, self.tell)

    def stop(self) -> None:
        """Make `run` end after the batches under way."""
        self._stop.set()

    def stop_on_signals(self) -> None:
        """SIGINT and SIGTERM end the driver in order."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.stop())

    def _through(self, lake: Lake, watched: Sequence[Watched]) -> int:
        for one in watched:
            one.job = self._begin(lake, one.name)
            one.job.wait()
            self.tell(f"job {one.name}: all that was there is through")
        return 0

    def _watch(self, lake: Lake, watched: Sequence[Watched]) -> int:
        for one in watched:
            self._try(lake, one)
        while not self._stop.wait(0.5):
            for one in watched:
                self._look(lake, one)
            if all(one.given_up for one in watched):
                break
        return 1 if any(one.given_up for one in watched) else 0

    def _look(self, lake: Lake, one: Watched) -> None:
        if one.given_up:
            return
        if one.again_at is not None and time.monotonic() >= one.again_at:
            self._try(lake, one)
        elif one.job is not None and not one.job.query.isActive:
            self._failed(one, one.job.failure() or "it ended")

    def _try(self, lake: Lake, one: Watched) -> None:
        one.again_at = None
        try:
            one.job = self._begin(lake, one.name)
            one.started = time.monotonic()
            self.tell(f"job {one.name}: running")
        except Fatal as error:
            one.given_up = str(error)
            self.tell(f"job {one.name}: stopped for good: {error}")
        except Exception as error:  # one job that cannot start must not take the others along
            self._failed(one, f"{type(error).__name__}: {error}")

    def _failed(self, one: Watched, why: str) -> None:
        if one.job:
            one.job.stop()
            one.job = None
        fatal = re.search(r"infra\.errors\.(?:Fatal|Usage): (.+)", why)
        if fatal:
            one.given_up = fatal.group(1)
            self.tell(f"job {one.name}: stopped for good: {one.given_up}")
            return
        if time.monotonic() - one.started > STEADY_SECONDS:
            one.failures = 0
        pause = PAUSES[min(one.failures, len(PAUSES) - 1)]
        one.failures += 1
        one.again_at = time.monotonic() + pause
        self.tell(f"job {one.name}: failed, again in {pause:.0f} s: {reason(why)}")

    def _begin(self, lake: Lake, name: str) -> Job:
        module, function = JOBS[name].split(":")
        job: Job = getattr(import_module(module), function)(lake, once=self.once)
        return job


def reason(text: str) -> str:
    """The line of a Spark or Python error that says what happened."""
    ours = re.search(r"infra\.errors\.\w+: (.+)", text)
    if ours:
        return ours.group(1)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith(("Caused by", "pyspark.", "java."))]
    return (caused or lines or ["unknown"])[-1][:300]
