"""The file in which a batch of job alert keeps what it decided."""

from __future__ import annotations

from pathlib import Path

from pyspark import TaskContext


def batch_file(checkpoints: Path) -> Path | None:
    """The file with what was decided for this task's micro-batch; None outside of one.

    Sources: Spark's local property `streaming.sql.batchId`, and `Batch.decide` of
    `infra.streaming.batch`.
    """
    context = TaskContext.get()
    # The only way for code in a worker to learn which micro-batch it works for.
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    return None if batch is None else checkpoints / "alert" / "batches" / f"{batch}.json"
