"""What Spark calls for each micro-batch of a job, one at a time, until the job is being stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import DataFrame

from infra.checkpoint import failed_batch
from infra.checkpoint.batch_decisions import decisions_file
from infra.checkpoint.offset_log import digest_of
from infra.errors import Retryable
from infra.process.batch_telemetry import batch_ended
from infra.process.clock import clock
from infra.process.log import batch_in_hand, note_batch
from infra.streaming.admission import Intake
from infra.streaming.batch import Batch, Work
from infra.streaming.cpu_meter import CpuMeter
from infra.streaming.outbox import put_row
from infra.streaming.progress import Pulse

KEPT_BATCHES = 200
"""Decisions of this many batches are kept; Spark itself replays only the newest."""


class BatchGate:
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
        with self._free:
            # Asked in here: a batch that asked before might follow one that a stop waited for.
            if not self._shut.is_set():
                yield
                return
        # The query is being stopped: its thread is interrupted while we wait.
        time.sleep(5)
        raise Retryable("the job is being stopped")


class BatchRunner:
    """The foreachBatch callback: gives each batch its identity, keeps its ledger row."""

    def __init__(
        self,
        name: str,
        folder: Path,
        spool: Path,
        work: Work,
        gate: BatchGate,
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
                self._run(rows, batch_id)
        finally:
            batch_in_hand.reset(token)

    def _run(self, rows: DataFrame, batch_id: int) -> None:
        run = self._identified(batch_id)
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
        self._announce(run)
        self._forget(batch_id - KEPT_BATCHES)
        if self._intake is not None:
            self._intake.after(run.offsets, time.monotonic() - began)

    def _announce(self, run: Batch) -> None:
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

    def _identified(self, batch_id: int) -> Batch:
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
