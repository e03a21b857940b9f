"""A new checkpoint for job `sessions`, with a state that goes on exactly where the tables end.

For a checkpoint that was lost, for another number of buckets, and for one whose state this release
does not read: in cells, or of a release after it. The state is made from `silver.dhcp_segment` and
the lines of `silver.event` that are not settled yet (`enrich.dhcp.state_bootstrap`), up to where
the newest commit of the job says it had read (`enrich.dhcp.input_offset`).

1. What is to be remembered is worked out and lies in files beside the checkpoint.
2. The old checkpoint is put aside. (A new one cannot be made elsewhere and moved: Spark notes
   where it lies.)
3. A query of one batch writes the state, under the operator of the job, into a new checkpoint.
4. The offsets of that batch are replaced by the place in silver.event.
5. An empty commit to silver.dhcp_segment names the new checkpoint.

What fails before the commit puts the old one back. Whatever it dies of, the same command begins
again: until the commit the table refuses a new checkpoint, after it the old one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from enrich.dhcp.input_offset import Position, events_until, newest
from enrich.dhcp.state_bootstrap import SEED, SeededState, write
from enrich.dhcp.state_encoding import VERSION
from enrich.dhcp.state_layout import (
    INPUT,
    SESSIONS_JOB,
    layout_folder,
    note_layout,
    wanted_layout,
)
from enrich.dhcp.stateful_operator import seeded
from enrich.tables import DHCP_SEGMENT
from infra.checkpoint.log_files import forget_checksum
from infra.checkpoint.offset_log import numbers
from infra.errors import Fatal
from infra.process.os_user import acting_user
from infra.streaming.batch import Batch
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row

_PARTS = ("spark", "batches", "state.json")
"""What of a job's folder belongs to one checkpoint."""


@dataclass(frozen=True)
class Rebuilt:
    """What was made: from which batch of which checkpoint, and what it holds.

    `unplayed`: addresses whose lines, played, do not give what was said of them; they are taken
    as they were said. `kept`: where the old checkpoint lies now, if there was one.
    """

    version: int
    buckets: int
    addresses: int
    unplayed: int
    known_at: str | None
    from_query: str
    from_batch: int
    query: str
    kept: str | None


def rebuild(lake: Lake, say: Callable[[str], None] = lambda line: None) -> Rebuilt:
    """Make the checkpoint anew, with the settings' number of buckets.

    Raises `Fatal` when the job runs or the tables do not say enough.
    """
    target = layout_folder(lake.settings)
    lock = JobLock(target, SESSIONS_JOB)
    try:
        position = newest(lake)
        say(f"{DHCP_SEGMENT.name} ends with batch {position.batch} of {position.query}")
        seeds = target / "seeds"
        # Of a rebuild that was killed.
        shutil.rmtree(seeds, ignore_errors=True)
        made = write(lake, events_until(lake, position), seeds)
        say(f"{made.addresses} addresses are to be remembered")
        done = _exchange(lake, target, seeds, position, made)
        shutil.rmtree(seeds)
    finally:
        lock.release()
    _audit(lake, done)
    return done


def _exchange(
    lake: Lake, target: Path, seeds: Path, position: Position, made: SeededState
) -> Rebuilt:
    """Put the old checkpoint aside and a new one in its place; back when that fails."""
    now = datetime.now(UTC)
    there = any((target / name).exists() for name in _PARTS)
    aside = target / f"before-{now:%Y%m%dT%H%M%S%f}" if there else None
    if aside is not None:
        _move(target, aside)
    try:
        _seed(lake.spark, seeds, target / "spark")
        run = _named(lake, target, position, now)
    except BaseException:
        shutil.rmtree(target / "spark", ignore_errors=True)
        (target / "state.json").unlink(missing_ok=True)
        if aside is not None:
            _move(aside, target)
            aside.rmdir()
        raise
    known_us = made.known.at_us
    return Rebuilt(
        version=VERSION,
        buckets=lake.settings.jobs.session_buckets,
        addresses=made.addresses,
        unplayed=made.unplayed,
        known_at=None
        if known_us is None
        else datetime.fromtimestamp(known_us / 1e6, UTC).isoformat(),
        from_query=position.query,
        from_batch=position.batch,
        query=run.query_id,
        kept=None if aside is None else str(aside),
    )


def _seed(spark: SparkSession, seeds: Path, checkpoint: Path) -> None:
    """Run the one batch that writes the state into the new checkpoint."""
    rows = spark.readStream.schema(SEED).parquet(str(seeds)).select("bucket", "state")
    query = (
        seeded(rows)
        # The rows must be read by somebody, or Spark runs no operator and writes no state.
        .writeStream.foreachBatch(
            lambda seeded, _: seeded.write.format("noop").mode("append").save()
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    committed = numbers(checkpoint / "commits")
    # The place in silver.event is put into one entry of the log, so one batch must have it all.
    if committed != [0]:
        raise Fatal(f"{checkpoint}: the state took batches {committed}, not one")
    # The log of Spark's file source; the job that goes on from here reads a Delta table.
    shutil.rmtree(checkpoint / "sources")


def _named(lake: Lake, target: Path, position: Position, now: datetime) -> Batch:
    """Give the new checkpoint its place in the input, and name it in the table."""
    text = _placed(target / "spark" / "offsets" / "0", position.offset)
    note_layout(target, wanted_layout(lake.settings))
    run = Batch(
        job=SESSIONS_JOB,
        query_id=json.loads((target / "spark" / "metadata").read_text("utf-8"))["id"],
        batch_id=0,
        digest=hashlib.sha256(text).hexdigest()[:16],
        folder=target,
        # No commit can have the id of a query that was made a moment ago.
        look_back=False,
        started_at=now,
        offsets=text.decode("utf-8"),
    )
    run.noted = {INPUT: position.offset, "rebuilt_from": [position.query, position.batch]}
    lake.commit(DHCP_SEGMENT, run, [])
    return run


def _placed(offsets: Path, offset: str) -> bytes:
    """Let a batch's offsets end at `offset` of silver.event; the file as it is then."""
    *head, _ = offsets.read_text("utf-8").splitlines()
    offsets.write_text("\n".join([*head, offset]), "utf-8")
    # Hadoop's checksum is of the former text: Spark would take the file for damaged.
    forget_checksum(offsets)
    return offsets.read_bytes()


def _move(source: Path, target: Path) -> None:
    """Move what belongs to a checkpoint."""
    target.mkdir(exist_ok=True)
    for name in _PARTS:
        if (source / name).exists():
            (source / name).replace(target / name)


def _audit(lake: Lake, done: Rebuilt) -> None:
    row = {
        "at": datetime.now(UTC).isoformat(),
        "who": acting_user(),
        "act": "sessions.rebuild",
        "target": SESSIONS_JOB,
        "detail": json.dumps(asdict(done)),
        "outcome": "ok",
    }
    put_row(lake.spool / "audit", f"rebuild-{done.query}", row)
