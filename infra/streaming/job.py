"""A job: a streaming query with a name, a checkpoint that is its own, and a ledger.

Layout under `<checkpoints>/<job>/`: `spark/` is Spark's checkpoint, `batches/`
holds what each batch decided before it ran (`infra.streaming.batch`), `lock` belongs to the
living driver (`infra.streaming.job_lock`), `poison.json` counts how often a batch failed
(`infra.checkpoint.failed_batch`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from infra.checkpoint import failed_batch
from infra.checkpoint.integrity import check, unfinished
from infra.checkpoint.leftovers import put_aside
from infra.spark.internals import QueryControl, streamed_paths
from infra.streaming.admission import Intake
from infra.streaming.batch import Work
from infra.streaming.batch_runner import BatchGate, BatchRunner
from infra.streaming.cpu_meter import cpu_meter_of
from infra.streaming.job_lock import JobLock
from infra.streaming.progress import Pulse


class Job:
    """A running job; `stop` ends it and gives its lock back."""

    def __init__(
        self,
        name: str,
        query: StreamingQuery,
        lock: JobLock,
        gate: BatchGate,
        pulse: Pulse,
        intake: Intake | None,
    ) -> None:
        self.name = name
        self.query = query
        self.pulse = pulse
        self.control: QueryControl | None = None
        """What of its query is set from outside; none for one that ends by itself."""
        self.reads: Sequence[str | None] = ()
        """Paths of the tables it reads, in the order of its offsets; None for Kafka."""
        self.pause = 0.0
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


def start_job(
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
    lock = JobLock(folder, name)
    try:
        # All looks at the checkpoint are under the lock, or another driver could change it
        # meanwhile.
        _require_sound(name, folder, lock, attempts)
        before()
        gate, pulse = BatchGate(), Pulse()
        cpu = cpu_meter_of(rows.sparkSession.sparkContext.master)
        runner = BatchRunner(name, folder, spool, work, gate, pulse, intake, cpu)
        pause = trigger_seconds if intake is None else intake.start(trigger_seconds)
        # From here on Spark calls the batch in a thread of its own.
        query = _begun(name, rows, runner, folder, output_mode, pause)
    except BaseException:
        lock.release()
        raise
    job = Job(name, query, lock, gate, pulse, intake)
    try:
        control = QueryControl(rows.sparkSession, query)
        if intake is not None:
            intake.attach(control, pulse)
        if trigger_seconds is not None:
            job.control, job.reads = control, streamed_paths(rows)
            job.pause = trigger_seconds
    except BaseException:
        # The lock is given back once no batch can commit any more.
        job.stop()
        raise
    return job


def _require_sound(name: str, folder: Path, lock: JobLock, attempts: int) -> None:
    """Raises `Fatal` when the job's checkpoint is damaged, or the job was given up."""
    put_aside(name, folder)
    check(name, folder)
    # A lock that was not given back: the last driver died, perhaps of the batch it was in.
    batch = unfinished(folder) if lock.abandoned else None
    if batch is not None:
        failed_batch.ended(name, folder, batch, attempts)
    # After `ended`, which may be what gives the job up.
    failed_batch.require_no_failure(folder)


def _begun(
    name: str,
    rows: DataFrame,
    runner: BatchRunner,
    folder: Path,
    output_mode: Literal["append", "update"],
    pause: float | None,
) -> StreamingQuery:
    """The query, running; `pause`: seconds between batches, None where it ends by itself."""
    writer = (
        rows.writeStream.queryName(name)
        .outputMode(output_mode)
        # Not Delta's own sink: it rebuilds the snapshot for each batch (decision 0001).
        .foreachBatch(runner)
        .option("checkpointLocation", str(folder / "spark"))
    )
    if pause is None:
        # Not `once`, which ignores the sources' limits: a whole backlog would be one batch.
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(pause * 1000)} milliseconds").start()
