"""Messages that job `ingest` was to read and that the broker no longer has.

Nothing is skipped unseen: the job does not start while something is missing, and says
exactly what. A person accepts that (`headgate gaps accept`); the checkpoint then gets a batch
that reads nothing and goes on behind the gap, and `ops.gap` keeps what was missed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from infra.checkpoint.batch_decisions import decisions_file, forget_digest
from infra.checkpoint.log_files import forget_checksum, note_done, pass_over, write_entry
from infra.config.settings import KafkaSettings, Settings
from infra.delta.catalog import table
from infra.delta.log_reader import newest_first
from infra.errors import Fatal, Usage
from infra.kafka.client import source_of
from infra.process.log import say
from infra.storage.paths import Location
from infra.streaming.job_lock import JobLock
from infra.streaming.kafka_offsets import (
    BrokerRange,
    Checkpoint,
    OffsetReader,
    TopicPartitionKey,
    kafka_checkpoint,
    offsets_of,
)
from infra.streaming.outbox import put_row
from ingest.completeness.gap_times import goes_on, newest_times
from ingest.completeness.log_truncation import first_new

INGEST_JOB = "ingest"
LOOK = "see 'headgate gaps'; 'headgate gaps accept' goes on without what is missing"
AFTER_MS = 1_000
"""So far the clocks of broker and driver may be apart; to start, a broker takes longer."""

WRITES = ("bronze.record", "silver.event", "gold.finding")
"""Tables of the job in the order in which a batch commits them; not all batches write the first."""

_Kind = Literal["expired", "reset", "recreated", "removed"]
_SAID = {
    "expired": "were deleted by the broker's retention before they were read",
    "reset": "the broker's log lost its end, which was read already",
    "recreated": "the topic was made anew; what the old one still held is gone",
    "removed": "the topic is gone with what it still held",
}


@dataclass(frozen=True)
class Gap:
    """What is missing of one partition, `[from_offset, to_offset)`; None: unknown."""

    kind: _Kind
    topic: str
    partition: int
    from_offset: int
    to_offset: int | None
    goes_on_at: int | None
    """Where the job would go on; None: nowhere, the topic is gone."""

    @property
    def messages(self) -> int | None:
        """How many are missing."""
        return None if self.to_offset is None else self.to_offset - self.from_offset

    @property
    def gap_id(self) -> str:
        """Identity of what is missing. Where a log ends too early, messages come while one looks
        at it, and may move where the job would go on."""
        as_row = asdict(self) | ({"goes_on_at": None} if self.kind == "reset" else {})
        return hashlib.sha256(json.dumps(as_row).encode()).hexdigest()[:12]

    def sentence(self) -> str:
        """The gap in words."""
        where = f"topic {self.topic} partition {self.partition}"
        if self.to_offset is None:
            return f"{where}: unread from {self.from_offset} on: {_SAID[self.kind]}"
        last = self.to_offset - 1
        return (
            f"{where}: messages {self.from_offset} to {last} ({self.messages}) {_SAID[self.kind]}"
        )


def compare_offsets(
    at: Checkpoint, held: Mapping[TopicPartitionKey, BrokerRange], ids: Mapping[str, str]
) -> tuple[Gap, ...]:
    """What is missing between a checkpoint and what the broker holds; a new job misses nothing."""
    if at.done is None:
        return ()
    places = sorted({*at.offsets, *held})
    return tuple(gap for place in places if (gap := _gap(place, at, held.get(place), ids)))


def _gap(
    place: TopicPartitionKey, at: Checkpoint, held: BrokerRange | None, ids: Mapping[str, str]
) -> Gap | None:
    topic, partition = place
    # A partition that came after the checkpoint is read from its beginning.
    position = at.offsets.get(place, 0)
    unknown = Gap("removed", topic, partition, position, None, None)
    if held is None:
        return unknown
    # The topic's id, since a topic made anew may have as many messages as the old one had.
    if topic in ids and own_id(at.ids.get(topic, ids[topic])) != ids[topic]:
        known = place in at.offsets  # a partition only the new topic has: nothing is missing
        return replace(unknown, kind="recreated", goes_on_at=held.first) if known else None
    # The end lies before what was read: the log is shorter than it was.
    if held.end < position:
        return replace(unknown, kind="reset", goes_on_at=held.end)
    if held.first > position:
        return Gap("expired", topic, partition, position, held.first, held.first)
    return None


def has_read(settings: Settings) -> bool:
    """Whether job `ingest` has finished a batch with this home: before, nothing can be missing."""
    return _in_tables(settings).done is not None


def find_gaps(settings: Settings) -> tuple[Gap, ...]:
    """What is missing now. Raises `Retryable` when the broker does not say."""
    return _missing(settings, _in_tables(settings))


def _missing(settings: Settings, at: Checkpoint) -> tuple[Gap, ...]:
    broker = OffsetReader(settings.kafka)
    if at.done is None:
        return ()
    # Also partitions that no batch has read yet: retention may have taken their first messages.
    places = {*at.offsets, *broker.partitions(settings.kafka.topic_prefix)}
    held = broker.held(places)
    gaps = compare_offsets(at, held, broker.ids(topic for topic, _ in places))
    by_partition = {(gap.topic, gap.partition): gap for gap in gaps}
    there = {
        place: held[place]
        for place in held
        if place not in by_partition or _cut(by_partition[place])
    }
    by_partition |= {
        place: _behind_what_was_read(by_partition[place], at, broker) for place in by_partition
    }
    by_partition |= cuts(settings, at, there)
    return tuple(by_partition[place] for place in sorted(by_partition))


def cuts(
    settings: Settings, at: Checkpoint, held: Mapping[TopicPartitionKey, BrokerRange]
) -> dict[TopicPartitionKey, Gap]:
    """Logs that lost their end and have other messages there, by what bronze has of them."""
    bronze = settings.lake_root / table("bronze.record").path
    logs = {place: held[place] for place in held if place[0] != settings.kafka.tick_topic}
    return {
        place: Gap("reset", *place, at.offsets[place], None, new)
        for place, new in first_new(bronze, at, logs, settings.kafka).items()
    }


def _cut(gap: Gap) -> bool:
    return gap.kind == "reset"


def _behind_what_was_read(gap: Gap, at: Checkpoint, broker: OffsetReader) -> Gap:
    """Where a log lost its end and bronze cannot say from where it is new, the broker's times do:
    what had been read was there before the newest batch was planned."""
    if not _cut(gap) or at.planned_ms is None:
        return gap
    since = broker.since((gap.topic, gap.partition), at.planned_ms + AFTER_MS)
    return gap if since is None else replace(gap, goes_on_at=min(since, gap.goes_on_at or since))


def _in_tables(settings: Settings) -> Checkpoint:
    """The checkpoint, with a batch that all tables have as done: what it read is not missing."""
    checkpoint_folder = kafka_checkpoint(settings.checkpoint_root / INGEST_JOB)
    if checkpoint_folder.under_way is None or not _have(settings, checkpoint_folder.under_way)[-1]:
        return checkpoint_folder
    file = checkpoint_folder.folder / "spark" / "offsets" / str(checkpoint_folder.under_way)
    return replace(checkpoint_folder, done=checkpoint_folder.under_way, offsets=offsets_of(file))


def _note_done(settings: Settings) -> None:
    """Note a batch as done that was killed just before: Spark would read it again to pass it over,
    and the broker does not have it any more."""
    with _held(settings) as position:
        if position.under_way is not None and _have(settings, position.under_way)[-1]:
            _settle(settings, position, position.under_way)


def own_id(named: str) -> str:
    """A topic's own id, as the broker has it, of the one that its records are named by."""
    return named.partition("~")[0]


def _id(before: str, now: str, cut: bool) -> str:
    """What records of a topic are named by: its own id, and how often its log lost an end that was
    read. Offsets are then given once more, and records of both must not be taken for one."""
    own, _, times = before.partition("~")
    if own != now or not cut:
        return before if own == now else now
    return f"{own}~{int(times or 0) + 1}"


def gap_statement(gaps: Iterable[Gap]) -> str:
    """Identity of all that is missing, which a person accepts as a whole."""
    return hashlib.sha256("".join(gap.gap_id for gap in gaps).encode()).hexdigest()[:12]


def require_no_gap(settings: Settings) -> None:
    """Raises `Fatal` that names what is missing. Lost ticks hold nothing and are passed over."""
    noted, position = kafka_checkpoint(settings.checkpoint_root / INGEST_JOB), _in_tables(settings)
    if noted.done != position.done and _missing(settings, noted):
        _note_done(settings)
    gaps = _missing(settings, position)
    if not gaps:
        return
    lost = [gap for gap in gaps if not _tick(gap, settings.kafka)]
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise Fatal(f"{lost[0].sentence()}{more}; {LOOK}")
    if not _without_ticks(settings):
        go_on(settings, gaps)
    say(f"job {INGEST_JOB}: ticks of the time it did not run are gone; it goes on with new ones")


def _without_ticks(settings: Settings) -> bool:
    """Let a batch that is in a part of its tables be read again without its ticks; False: there is
    none. Its places stay, so it is the same batch; only the ticks before it are passed over."""
    with _held(settings) as position:
        if (
            position.done is None
            or position.under_way is None
            or not any(_have(settings, position.under_way))
        ):
            return False
        offsets = position.folder / "spark" / "offsets"
        ends = json.loads((offsets / str(position.under_way)).read_text("utf-8").splitlines()[2])
        lines = (offsets / str(position.done)).read_text("utf-8").splitlines()
        starts = json.loads(lines[2])
        ticks = settings.kafka.tick_topic
        starts[ticks] = ends.get(ticks, {})
        # The digest is of the offsets as they were; with it the batch would be refused as another
        # one.
        forget_digest(position.folder, position.done)
        write_entry(offsets / str(position.done), "\n".join([*lines[:2], json.dumps(starts)]))
        return True


def _tick(gap: Gap, kafka: KafkaSettings) -> bool:
    return gap.topic == kafka.tick_topic


def accept(settings: Settings, stated: str, who: str, reason: str) -> tuple[Gap, ...]:
    """Go on without what is missing; what was missed, in rows for `ops.gap` and `ops.audit`.

    `stated`: the `gap_statement` a person has read. Raises `Usage` when something else is missing
    by now, `Fatal` while the job runs.
    """
    gaps = find_gaps(settings)
    if not gaps:
        raise Usage("nothing is missing: there is no gap to accept")
    # More may have gone while a person was reading; they accept what they saw and no more.
    if gap_statement(gaps) != stated:
        raise Usage(f"{stated}: that is not what is missing now; {LOOK.partition(';')[0]}")
    go_on(settings, gaps, lambda: _keep(settings, gaps, who, reason))
    return gaps


def _keep(settings: Settings, gaps: Sequence[Gap], who: str, reason: str) -> None:
    """Leave what was missed, and who went on without it, for `ops.gap` and `ops.audit`."""
    instant, stated = datetime.now(UTC).isoformat(), gap_statement(gaps)
    logs = [gap for gap in gaps if not _tick(gap, settings.kafka)]
    behind = {(log.topic, log.partition): log.goes_on_at for log in logs}
    after = newest_times(settings, list(behind))
    before = goes_on(settings, {place: to for place, to in behind.items() if to is not None})
    spool = settings.home.absolute() / "spool"
    detail = json.dumps({"reason": reason, "gaps": [asdict(gap) for gap in gaps]})
    for gap in logs:
        place = gap.topic, gap.partition
        lines = {"gap_id": gap.gap_id, "job": INGEST_JOB, "messages": gap.messages, **asdict(gap)}
        lines |= {"accepted_at": instant, "accepted_by": who, "reason": reason}
        lines |= {"source": source_of(gap.topic, settings.kafka)}
        lines |= {"lost_after": _text(after.get(place)), "lost_before": _text(before.get(place))}
        put_row(spool / "gap", gap.gap_id, lines)
    act = {"at": instant, "who": who, "act": "gap.accept", "target": stated, "outcome": "ok"}
    # Named by the statement: accepted twice, as after a crash, it is one row.
    put_row(spool / "audit", f"gap-{stated}", act | {"detail": detail})


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def go_on(
    settings: Settings, gaps: Sequence[Gap], first: Callable[[], None] = lambda: None
) -> None:
    """Add a batch to the checkpoint that reads nothing and ends behind the gaps.

    `first`: what is done before, once nothing stands in the way.
    """
    with _held(settings) as settle:
        # A batch that was planned over the gap can never be read; it is settled first.
        if settle.under_way is not None:
            settle = _settle(settings, settle, settle.under_way)
        if settle.done is None:
            raise Fatal(
                f"checkpoint of job {INGEST_JOB}: {settle.folder} has no batch to go on from"
            )
        now = OffsetReader(settings.kafka).ids(topic for topic, _ in settle.offsets)
        cut = {gap.topic for gap in gaps if _cut(gap)}
        before = {**now, **settle.ids}
        first()
        _add(
            settle,
            settle.done,
            gaps,
            {
                topic_row: _id(before[topic_row], now[topic_row], topic_row in cut)
                for topic_row in now
            },
        )


@contextmanager
def _held(settings: Settings) -> Iterator[Checkpoint]:
    """The job's checkpoint, which nobody else changes meanwhile."""
    folder = settings.checkpoint_root / INGEST_JOB
    lock = JobLock(folder, INGEST_JOB)
    try:
        yield kafka_checkpoint(folder)
    finally:
        lock.release()


def _settle(settings: Settings, at: Checkpoint, planned: int) -> Checkpoint:
    """Bring a batch that was planned and not noted as done to one or the other."""
    has = _have(settings, planned)
    spark = at.folder / "spark"
    # Tables are committed in order, so what the last one has all of them have.
    if has[-1]:
        note_done(spark, at.done, planned)
    elif any(has):
        raise Fatal(
            f"job {INGEST_JOB}: batch {planned} is in a part of its tables, and what it read is "
            "gone from "
            "the broker; restore lake and checkpoints from a backup"
        )
    else:
        # Its decisions go first: left behind they would rule a batch that reads other offsets.
        decisions_file(at.folder, planned).unlink(missing_ok=True)
        # Its number is given again: what it had seen must not count as seen by that batch.
        for keys in (at.folder / "keys").glob(f"{planned}-*"):
            keys.unlink()
        forget_checksum(spark / "offsets" / str(planned))
        (spark / "offsets" / str(planned)).unlink()
    return kafka_checkpoint(at.folder)


def _have(settings: Settings, batch: int) -> list[bool]:
    """Which of the job's tables have a batch."""
    return [_holds(settings.lake_root / table(name).path, batch) for name in WRITES]


def _holds(folder: Location, batch: int) -> bool:
    for commit in newest_first(folder):
        if commit.marker is not None and commit.marker["job"] == INGEST_JOB:
            return bool(commit.marker["batch"] == batch)
    return False


def _add(at: Checkpoint, done: int, gaps: Sequence[Gap], ids: Mapping[str, str]) -> None:
    moved = {(gap.topic, gap.partition): gap.goes_on_at for gap in gaps}
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), position in {**at.offsets, **moved}.items():
        if position is not None:
            offsets.setdefault(topic, {})[str(partition)] = position
    decided = {"topic_ids": dict(ids), "gaps": [gap.gap_id for gap in gaps]}
    # Killed in it, the batch counts as planned, and the next attempt drops it.
    pass_over(at.folder, done, [json.dumps(offsets)], decided)
