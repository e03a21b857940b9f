"""Wakes the jobs of a driver when there is something to read, in place of looks again and again.

By itself a query looks at all its inputs with each trigger; eight that found nothing were most of
what an idle platform cost, and a commit waited half a trigger on average for who reads it. Here one
thread knows what there is: the next file of a table's log is asked for by name, which costs
microseconds, and the broker is asked by the ticker. A query is woken when one of its inputs has
changed, when it had a batch since it was last woken (the next may close a window, or take what the
last left), and now and then in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.delta.log_archive import LOG
from infra.delta.log_reader import newest_version
from infra.process.log import News
from infra.process.wake_signal import COMMITTED, WakeSignal
from infra.runtime.job_registry import JOBS
from infra.runtime.ticker import Ticker
from infra.spark.internals import QueryControl
from infra.storage.paths import location
from infra.streaming.admission import place
from infra.streaming.job import Job
from infra.streaming.progress import newest_from

LOOK_SECONDS = 0.2
"""How often tables are looked at that another process may have written to."""

RESTING_LOOK_SECONDS = 0.5
"""The same while all queries rest: what this process commits, and what the broker gets, rings."""

ACTIVE_SECONDS = 5.0
"""So long after it was woken, or had a batch, a query does not count as one that rests."""

LONGEST_SECONDS = 60.0
"""The longest a query rests: what nobody thought of comes then."""

DUE_SECONDS = 20.0
"""So long time is moved quickly from when something is due: each step of a watermark takes a batch
of two jobs, and the second counts only once the first is in."""

START_SECONDS = 90.0
"""So long it is after a start, since nobody knows what waits."""

FIRST_SECONDS = 30.0
"""So long after a start, jobs that had their first batch leave the cores to those that had none:
a first batch costs ten times a later one, and is over sooner alone."""

YIELD_SECONDS = 5.0
"""What they rest then, from the end of their batch."""

AWAIT_SECONDS = 2.0
"""So long from when a job was woken, who reads what its batches write waits for its commit: begun a
moment before, a batch would leave the new rows to the one behind it."""

BEGIN_SECONDS = 0.5
"""So long after it was woken it may yet begin a batch."""

QUIET_SECONDS = 600.0
"""So long nothing came when jobs of history rest longer: heartbeats alone tell them little."""

QUIET_PAUSE_SECONDS = 240.0
"""What they rest then; within their targets."""


@dataclass
class _Resting:
    """A job's query, and how things were when it was last woken."""

    job: Job
    control: QueryControl
    history: bool
    """Whether what it writes is read as history."""
    rests: bool = False
    """Whether it waits for us, and no longer for Spark's clock."""
    inputs: Sequence[object] | None = None
    done: int | None = None
    woken: float = 0.0
    begun: int | None = None
    """The batch last begun when it was woken."""
    counted: int | None = None
    """The batch whose rows were last looked at."""
    ended: float = 0.0
    """When that batch was seen to be in."""


def _coming(each: _Resting, now: float) -> frozenset[str]:
    """Paths of the tables that a job soon commits to."""
    pulse, since = each.job.pulse, now - each.woken
    if pulse.under_way:
        return pulse.coming if since < AWAIT_SECONDS else frozenset()
    begins = pulse.batch == each.begun and since < BEGIN_SECONDS
    return pulse.writes if begins else frozenset()


@dataclass
class Waker:
    """Wakes jobs that were given to it, from a thread of its own."""

    ticker: Ticker | None = None
    signal: WakeSignal = field(default_factory=lambda: COMMITTED)
    _resting: dict[str, _Resting] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False
    _thread: threading.Thread | None = None
    _news: News = field(default_factory=News)
    _began: float = field(default_factory=time.monotonic)
    _arrived: float = field(default_factory=time.monotonic)
    """When a batch last had rows that it counts as arrived."""

    def start(self) -> Waker:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="waker", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End; queries that rest are to be stopped, nobody wakes them any more."""
        self._stopped = True
        self.signal.set()
        if self._thread is not None:
            self._thread.join(5)

    def take(self, job: Job) -> None:
        """From now on wake this job, in the place of an earlier one of its name.

        Jobs that never wait, or read what cannot be looked at cheaply, keep Spark's trigger.
        """
        if job.control is None or not job.pause or not self._all_known(job.reads):
            return
        with self._lock:
            spec = JOBS.get(job.name)
            self._resting[job.name] = _Resting(job, job.control, bool(spec and spec.history))
        self.signal.set()

    def leave(self, job: Job) -> None:
        """Wake it no more: it ends."""
        with self._lock:
            if (resting := self._resting.get(job.name)) is not None and resting.job is job:
                del self._resting[job.name]

    def due(self) -> bool:
        """Whether time must move on now, for something that one of the jobs has waiting."""
        now = time.monotonic()
        with self._lock:
            pulses = [resting.job.pulse for resting in self._resting.values()]
        starts = now - self._began < START_SECONDS
        return starts or any(pulse.is_due(now, DUE_SECONDS) for pulse in pulses)

    def _all_known(self, reads: Sequence[str | None]) -> bool:
        tables = [path for path in reads if path is not None]
        kafka = len(tables) < len(reads)
        return (self.ticker is not None or not kafka) and all(
            isinstance(location(path), Path) for path in tables
        )

    def _run(self) -> None:
        seconds = LOOK_SECONDS
        while not self._stopped:
            self.signal.wait(seconds)
            with self._lock:
                resting = list(self._resting.values())
            self._look_at_tables({path for each in resting for path in each.job.reads if path})
            begins = self._begins(resting)
            seconds = RESTING_LOOK_SECONDS
            for each in resting:
                try:
                    seconds = min(seconds, self._see_to(each, begins))
                    self._news.over()
                except Exception as error:  # a query that has just ended has no clock any more
                    seconds = LOOK_SECONDS
                    self._news.tell(f"job {each.job.name}: not woken: {error}")

    def _look_at_tables(self, paths: set[str]) -> None:
        for path in paths:
            folder = location(path)
            try:
                newest = self._versions.get(path)
                if newest is None or not isinstance(folder, Path):
                    self._versions[path] = newest_version(folder)
                else:
                    self._versions[path] = newest_from(folder / LOG, newest)
            except OSError:  # the query says what is wrong; it looks as often as it may
                self._versions.pop(path, None)

    def _begins(self, resting: Sequence[_Resting]) -> bool:
        """Whether a job that alerts wait for has yet to have its first batch of this start."""
        begun = [each.job.pulse.done is not None for each in resting if not each.history]
        return not all(begun) and time.monotonic() - self._began < FIRST_SECONDS

    def _see_to(self, each: _Resting, begins: bool) -> float:
        """Wake a query if it is time to; seconds after which it is to be looked at again."""
        pulse, now = each.job.pulse, time.monotonic()
        if pulse.done != each.counted:
            each.counted, each.ended = pulse.done, now
            self._arrived = now if pulse.rows else self._arrived
        each.rests = each.rests or each.control.rest_until_woken()
        # What comes in the middle of a batch is seen behind it.
        if not each.rests or pulse.under_way:
            return LOOK_SECONDS
        if begins and pulse.done is not None and now - each.ended < YIELD_SECONDS:
            return LOOK_SECONDS
        inputs = [self._input(path) for path in each.job.reads]
        more = inputs != each.inputs or pulse.done != each.done
        rest = each.woken + self._pause(each, now) - now
        active = now - max(each.woken, each.ended) < ACTIVE_SECONDS
        seldom = LOOK_SECONDS if active else RESTING_LOOK_SECONDS
        if rest > 0:
            # To the moment: what waits for this batch waits for its beginning.
            return min(rest, seldom) if more else seldom
        if self._awaits(each, now):
            return LOOK_SECONDS
        if not more and now - each.woken < LONGEST_SECONDS:
            return seldom
        # Noted before it looks: what comes while it does is then news.
        each.inputs, each.done, each.woken = inputs, pulse.done, now
        each.begun = pulse.batch
        each.control.leave_out(self._unchanged(each))
        each.control.wake()
        return LOOK_SECONDS

    def _unchanged(self, each: _Resting) -> Iterator[int]:
        """Numbers of the tables that have nothing which the query has not read: for each that it
        looks at Spark lists the whole log, twice where there is something."""
        places = [place(line) for line in each.job.pulse.offsets.splitlines()[2:]]
        # Batches that follow each other are not woken.
        if each.job.pulse.regime != "steady" or len(places) != len(each.job.reads):
            return
        for number, (path, at_place) in enumerate(zip(each.job.reads, places, strict=True)):
            version = None if path is None else self._versions.get(path)
            if at_place is None or version is None:
                continue
            _, offset = at_place
            if version < offset.version and offset.index < 0:
                yield number

    def _awaits(self, each: _Resting, now: float) -> bool:
        """Whether another job is at a batch that soon writes what this query has read so far."""
        if each.inputs is None or now - self._began < FIRST_SECONDS:
            return False
        # What is new by now is to be read at once, whoever writes more of it.
        old = {
            path
            for path, version in zip(each.job.reads, each.inputs, strict=True)
            if path is not None and version == self._input(path)
        }
        with self._lock:
            others = [other for other in self._resting.values() if other is not each]
        return any(old & _coming(other, now) for other in others)

    def _pause(self, each: _Resting, now: float) -> float:
        """Least seconds between two looks."""
        quiet = each.history and now - self._arrived > QUIET_SECONDS
        return max(each.job.pause, QUIET_PAUSE_SECONDS) if quiet else each.job.pause

    def _input(self, path: str | None) -> object:
        if path is None:
            return self.ticker.state if self.ticker is not None else object()
        # Nothing is equal to a new object: who cannot know has to look.
        return self._versions.get(path, object())
