"""A job: a streaming query with a name, a checkpoint that is its own, and a ledger.

Layout under `<checkpoints>/<job>/`: `spark/` is Spark's checkpoint, `batches/`
holds what each batch decided before it ran, `lock` belongs to the living driver,
`poison.json` counts how often a batch failed (`infra.checkpoint.failed_batch`).
`<checkpoints>/lock` belongs to all who work on the home together, or to a backup alone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from infra.checkpoint import failed_batch
from infra.checkpoint.batch_decisions import decided, decisions_file, write_decision
from infra.checkpoint.leftovers import put_aside
from infra.checkpoint.offset_log import digest_of
from infra.checkpoint.soundness import check, unfinished
from infra.errors import Retryable
from infra.process.batch_telemetry import BatchRecord, batch_ended
from infra.process.clock import clock
from infra.process.log import batch_in_hand, note_batch
from infra.spark.internals import QueryControl, streamed_paths
from infra.storage.file_lock import ExclusiveLock, LockRefused, SharedLock
from infra.streaming.cpu_meter import CpuMeter, meter_of
from infra.streaming.outbox import put_row
from infra.streaming.progress import Pulse

if TYPE_CHECKING:
    from infra.streaming.admission import Intake

KEPT_BATCHES = 200
"""Decisions of this many batches are kept; Spark itself replays only the newest."""

LOCK = "lock"
"""A lock file's name, of a job in its folder and of the home beside these folders."""


@dataclass
class Batch:
    """One micro-batch: its identity, what it decided, and what it has written so far."""

    job: str
    query_id: str
    batch_id: int
    digest: str
    folder: Path
    look_back: bool
    started_at: datetime
    offsets: str
    decisions: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    commits: list[tuple[str, float, float]] = field(default_factory=list)
    """Table, beginning and end of each commit, epoch seconds."""
    replayed: bool = False
    # Handing on, as to the alerts' topic, is no part of the batch: tables are committed whatever
    # Kafka does, and what is held back goes out with a later batch.
    held_back: str = ""  # why what is in the tables could not be handed on
    noted: dict[str, Any] = field(default_factory=dict)
    """What its commits carry besides the marker's own fields."""
    due_after: tuple[float, ...] = ()
    """In how many seconds what it leaves waiting needs time to have moved on (ticks)."""
    pulse: Pulse = field(default_factory=Pulse)
    """What whoever watches the job sees of it."""
    _unwritten: list[str] | None = None
    """Decisions that are written down later, where that is so."""

    def will_commit(self, paths: Iterable[str]) -> None:
        """Say which tables each batch of the job commits to: who reads several of them is woken
        once the last is in (`infra.runtime.waker`)."""
        self.pulse.writes = self.pulse.coming = frozenset(paths)

    @property
    def marker(self) -> dict[str, Any]:
        """What each commit of this batch carries, so that a retry finds it."""
        return {
            **self.noted,
            "job": self.job,
            "query": self.query_id,
            "batch": self.batch_id,
            "digest": self.digest,
        }

    @property
    def metadata(self) -> str:
        """The marker as a commit has it in `userMetadata`."""
        return json.dumps(self.marker, sort_keys=True)

    def decide(self, name: str, choose: Callable[[], Any]) -> Any:
        """The value `choose` gave when this batch first ran, also when it runs again.

        A retry must write the same rows, so whatever depends on the clock, on
        another table's newest version or on the rules in force is kept (as
        JSON) beside the checkpoint before it is used.
        """
        if name not in self.decisions:
            self.decisions[name] = choose()
            if self._unwritten is None:
                write_decision(self.folder, self.batch_id, self.decisions)
            else:
                self._unwritten.append(name)
        return self.decisions[name]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is decided inside is written down together, as it ends: each time is a wait for the
        disk. Nothing that depends on it may be done inside."""
        self._unwritten = []
        try:
            yield
            if self._unwritten:
                write_decision(self.folder, self.batch_id, self.decisions)
        finally:
            self._unwritten = None

    def load(self) -> Batch:
        """Read the decisions of an earlier attempt, if there was one."""
        if decisions_file(self.folder, self.batch_id).exists():
            self.decisions = decided(self.folder, self.batch_id)
        return self

    def record(self, error: str | None = None) -> BatchRecord:
        """What became of this attempt, for telemetry; `error`: the kind of what ended it."""
        began, now = self.started_at.timestamp(), clock.time()
        return BatchRecord(self.job, self.query_id, self.batch_id, began, now, dict(self.counts),
                           dict(self.rows), self.replayed, tuple(self.commits), error)  # fmt: skip

    def ledger_row(self) -> dict[str, Any]:
        """The batch as a row of `ops.ledger`."""
        return {
            "job": self.job,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "started_at": self.started_at.isoformat(),
            "finished_at": clock.now().isoformat(),
            "offsets": self.offsets,
            "rows_read": self.counts.get("read"),
            "rows_written": self.rows,
            "rows_dead": self.counts.get("dead"),
            "rows_late": self.counts.get("late"),
            "versions": self.versions,
            "pack": self.decisions.get("pack"),
            "decisions": json.dumps(self.decisions),
            "replayed": self.replayed,
        }


Work = Callable[[DataFrame, Batch], None]


class Job:
    """A running job; `stop` ends it and gives its lock back."""

    def __init__(
        self,
        name: str,
        query: StreamingQuery,
        lock: Lock,
        gate: _Gate,
        pulse: Pulse,
        intake: Intake | None = None,
        control: QueryControl | None = None,
        reads: Sequence[str | None] = (),
        pause: float = 0.0,
    ) -> None:
        self.name = name
        self.query = query
        self.pulse = pulse
        self.control = control
        """What of its query is set from outside; none for one that ends by itself."""
        self.reads = reads
        """Paths of the tables it reads, in the order of its offsets; None for Kafka."""
        self.pause = pause
        """Least seconds between the beginnings of two batches while it keeps up; 0: none."""
        self._intake = intake
        self._lock = lock
        self._gate = gate

    def look(self) -> None:
        """Bound its next batch by what has come since the last; to be called again and again."""
        if self._intake is not None:
            self._intake.look()

    def stop(self, seconds: float = 20.0) -> None:
        """End the query after the batch it is in, or at once if that takes too long."""
        if self._intake is not None:
            self._intake.stop()
        # First the gate, then the query: a batch that is interrupted between two commits is done
        # again.
        self._gate.shut(seconds if self.query.isActive else 0)
        # Why a query failed is asked elsewhere (`failure`); here it is only to end.
        with suppress(Exception):
            self.query.stop()
        if self._gate.left(0):
            # Spark says that a query has stopped while its last batch may still run.
            self._lock.release()
        else:
            # A daemon thread: a batch that never ends must not keep the process alive.
            threading.Thread(target=self._give_back, daemon=True).start()

    def _give_back(self) -> None:
        """A batch that Spark could not end in time may still commit: until then nobody else may."""
        self._gate.left(-1)
        self._lock.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it ends; raises what made it fail. True when it has ended."""
        try:
            # Spark refuses to wait for nothing.
            ended = self.query.awaitTermination(None if seconds is None else max(1, int(seconds)))
        except Exception:
            self._lock.release()
            raise
        if ended or seconds is None:
            self._lock.release()
        return bool(ended) or seconds is None

    def failure(self) -> str | None:
        """Why it ended, None while it runs or after a stop."""
        error = None if self.query.isActive else self.query.exception()
        return None if error is None else str(error)


class _Gate:
    """Lets batches in until it is shut; the one that then waits is done at the next start."""

    def __init__(self) -> None:
        self._shut = threading.Event()
        self._free = threading.Lock()

    def shut(self, seconds: float) -> None:
        """Let no further batch in, and wait for the one inside."""
        self._shut.set()
        self.left(seconds)

    def left(self, seconds: float) -> bool:
        """Wait until no batch is inside, for as long as it takes where `seconds` is -1."""
        if self._free.acquire(timeout=seconds):
            self._free.release()
            return True
        return False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A batch's stay; raises `Retryable` when the gate is shut."""
        if self._shut.is_set():
            # The query is being stopped: its thread is interrupted while we wait.
            time.sleep(5)
            raise Retryable("the job is being stopped")
        with self._free:
            yield


def beside(checkpoints: Path, who: str) -> SharedLock:
    """The right to work on a home beside others: no backup of it is begun meanwhile.

    `who`: what cannot begin otherwise. Raises `Retryable` while a backup is under way.
    """
    return SharedLock(
        checkpoints / LOCK,
        lambda holder: (
            f"{who} cannot begin: a backup is under way (process {holder}), and would have a part "
            "of what is written meanwhile; what 'headgate up' or 'headgate run' looks after goes "
            "on by itself when it is done, begin anything else again then"
        ),
    )


def already_runs(folder: Path, job: str) -> LockRefused:
    """Why a job cannot begin, of the process that runs it."""
    return lambda holder: (
        f"job {job} already runs (process {holder}); stop that one first: two drivers "
        f"on one checkpoint ({folder}) would write every batch twice"
    )


class Lock(ExclusiveLock):
    """The right to run a job, which nobody else runs, and beside which no backup is begun.

    Raises `Taken` or, while a backup is under way, `Retryable`.
    """

    def __init__(self, folder: Path, job: str) -> None:
        self._beside = beside(folder.parent, f"job {job}")
        try:
            # The home's lock is had by now: a backup cannot begin between the two.
            super().__init__(folder / LOCK, already_runs(folder, job))
        except BaseException:
            # Else a job that was refused would keep backups away as long as this process lives.
            self._beside.release()
            raise

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        super().release()
        self._beside.release()


def start(
    name: str,
    rows: DataFrame,
    work: Work,
    *,
    checkpoints: Path,
    spool: Path,
    trigger_seconds: float | None,
    attempts: int = 6,
    before: Callable[[], object] = lambda: None,
    output_mode: Literal["append", "update"] = "append",
    intake: Intake | None = None,
) -> Job:
    """Run `work` on each micro-batch of `rows`, once, through restarts.

    `trigger_seconds`: pause between batches; None: work off what is there and end. `attempts`: so
    often a batch may fail until it is poison, and twice as often end the driver. `before`: is
    called when the job is ours and its checkpoint was looked at, and the query not begun yet.
    `output_mode`: update for counts whose rows take the place of earlier ones
    (`infra.streaming.merge`). `intake`: what sets how much each batch takes; none: the limits that
    `rows` were made with. Raises `Fatal` when the job runs already, its checkpoint is damaged or it
    was given up before, `Retryable` while a backup is under way.
    """
    folder = checkpoints / name
    lock = Lock(folder, name)
    try:
        # All looks at the checkpoint are under the lock, or another driver could change it
        # meanwhile.
        put_aside(name, folder)
        check(name, folder)
        # A lock that was not given back: the last driver died, perhaps of the batch it was in.
        batch = unfinished(folder) if lock.abandoned else None
        if batch is not None:
            failed_batch.ended(name, folder, batch, attempts)
        # After `ended`, which may be what gives the job up.
        failed_batch.require_no_failure(folder)
        before()
        gate = _Gate()
        pulse = Pulse()
        cpu = meter_of(rows.sparkSession.sparkContext.master)
        runner = _Runner(name, folder, spool, work, gate, pulse, intake, cpu)
        asked = trigger_seconds
        if intake is not None:
            trigger_seconds = intake.start(trigger_seconds)
        writer = (
            rows.writeStream.queryName(name)
            .outputMode(output_mode)
            # Not Delta's own sink: it rebuilds the snapshot for each batch (decision 0001).
            .foreachBatch(runner)
            .option("checkpointLocation", str(folder / "spark"))
        )
        timed = (
            # Not `once`, which ignores the sources' limits: a whole backlog would be one batch.
            writer.trigger(availableNow=True)
            if trigger_seconds is None
            else writer.trigger(processingTime=f"{int(trigger_seconds * 1000)} milliseconds")
        )
        # From here on Spark calls the batch in a thread of its own.
        query = timed.start()
        if intake is not None:
            intake.attach(rows.sparkSession, query, pulse)
        if asked is None:
            return Job(name, query, lock, gate, pulse, intake)
        control = QueryControl(rows.sparkSession, query)
        return Job(name, query, lock, gate, pulse, intake, control, streamed_paths(rows), asked)
    except BaseException:
        lock.release()
        raise


class _Runner:
    """The foreachBatch callback: gives each batch its identity, keeps its ledger row."""

    def __init__(
        self,
        name: str,
        folder: Path,
        spool: Path,
        work: Work,
        gate: _Gate,
        pulse: Pulse,
        intake: Intake | None,
        cpu: CpuMeter,
    ) -> None:
        self._intake = intake
        self._cpu = cpu
        self._gate = gate
        self._pulse = pulse
        self._name = name
        self._folder = folder
        self._spool = spool
        self._work = work
        # Only what an earlier run planned can be in the tables already (decision 0001).
        self._look_back = True

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        token = batch_in_hand.set((self._name, batch_id))
        try:
            with self._gate.inside():
                self._one(rows, batch_id)
        finally:
            batch_in_hand.reset(token)

    def _one(self, rows: DataFrame, batch_id: int) -> None:
        run = self._batch(batch_id)
        began = time.monotonic()
        self._pulse.batch, self._pulse.offsets = batch_id, run.offsets
        self._cpu.begin(self._folder)
        try:
            self._work(rows, run)
        except BaseException as error:
            self._cpu.fail(self._folder)
            batch_ended(run.record(type(error).__name__))
            raise
        finally:
            self._pulse.coming = frozenset()
        taken = self._cpu.end(self._folder)
        # Spark's own commit comes after this call. If that fails the batch runs again, and must
        # still leave one row (decision 0003).
        if not run.decisions.get("in_ledger"):
            put_row(
                self._spool, f"{run.job}-{run.query_id}-{run.batch_id}", run.ledger_row() | taken
            )
            run.decisions |= {
                "versions": run.versions,
                "digest": run.digest,
            }  # kept by the next line
            run.decide("in_ledger", lambda: True)
        # From now on this process knows what it wrote; a failed batch ends the query, and the
        # next one looks back again.
        self._look_back = False
        failed_batch.forget_failures(self._folder)
        self._tell(run)
        self._forget(batch_id - KEPT_BATCHES)
        if self._intake is not None:
            self._intake.after(run.offsets, time.monotonic() - began)

    def _tell(self, run: Batch) -> None:
        """Let whoever watches know that a batch is in."""
        pulse, now = self._pulse, clock.time()
        pulse.rows, pulse.written = run.counts.get("read"), dict(run.rows)
        pulse.bytes = run.counts.get("bytes", 0)
        pulse.finished = run.decisions.get("finished") or pulse.finished
        if run.due_after:
            pulse.expect(run.due_after)
        pulse.ended(run.batch_id, now, run.held_back)
        batch_ended(run.record())
        note_batch(
            f"job {run.job}: batch {run.batch_id} is in",
            rows_read=pulse.rows,
            rows_written=pulse.written,
            seconds=round(now - run.started_at.timestamp(), 3),
            replayed=run.replayed,
        )

    def _batch(self, batch_id: int) -> Batch:
        spark = self._folder / "spark"
        # Spark writes them before it calls the batch, and plans a retry from the same file.
        offsets = (spark / "offsets" / str(batch_id)).read_bytes()
        # Not the folder's name: a checkpoint made anew there counts its batches from 0 again.
        identity = json.loads((spark / "metadata").read_text("utf-8"))["id"]
        (self._folder / "batches").mkdir(exist_ok=True)
        return Batch(
            job=self._name,
            query_id=identity,
            batch_id=batch_id,
            digest=digest_of(offsets),
            folder=self._folder,
            look_back=self._look_back,
            started_at=clock.now(),
            offsets=offsets.decode("utf-8", "replace"),
            pulse=self._pulse,
        ).load()

    def _forget(self, batch_id: int) -> None:
        with suppress(FileNotFoundError):
            decisions_file(self._folder, batch_id).unlink()
