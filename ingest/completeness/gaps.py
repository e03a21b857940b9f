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

from infra.checkpoint.batch_decisions import file_of, forget_digest
from infra.checkpoint.log_files import forget_checksum, note_done, pass_over, write
from infra.config.settings import KafkaSettings, Settings
from infra.delta.log_reader import newest_first
from infra.delta.schema import table
from infra.errors import Fatal, Usage
from infra.kafka.client import source_of
from infra.process.log import say
from infra.storage.paths import Location
from infra.streaming.job import Lock
from infra.streaming.kafka_offsets import Broker, Checkpoint, Held, Place, checkpoint, offsets_of
from infra.streaming.outbox import put
from ingest.completeness.gap_times import goes_on, newest
from ingest.completeness.log_truncation import first_new

JOB = "ingest"
LOOK = "see 'headgate gaps'; 'headgate gaps accept' goes on without what is missing"
AFTER_MS = 1_000
"""So far the clocks of broker and driver may be apart; to start, a broker takes longer."""

WRITES = ("bronze.record", "silver.event", "gold.finding")
"""Tables of the job in the order in which a batch commits them; not all batches write the first."""

Kind = Literal["expired", "reset", "recreated", "removed"]
_SAID = {
    "expired": "were deleted by the broker's retention before they were read",
    "reset": "the broker's log lost its end, which was read already",
    "recreated": "the topic was made anew; what the old one still held is gone",
    "removed": "the topic is gone with what it still held",
}


@dataclass(frozen=True)
class Gap:
    """What is missing of one partition, `[from_offset, to_offset)`; None: nobody can tell."""

    kind: Kind
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
        told = asdict(self) | ({"goes_on_at": None} if self.kind == "reset" else {})
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]

    def sentence(self) -> str:
        """The gap in words."""
        where = f"topic {self.topic} partition {self.partition}"
        if self.to_offset is None:
            return f"{where}: unread from {self.from_offset} on: {_SAID[self.kind]}"
        last = self.to_offset - 1
        return (
            f"{where}: messages {self.from_offset} to {last} ({self.messages}) {_SAID[self.kind]}"
        )


def compare(at: Checkpoint, held: Mapping[Place, Held], ids: Mapping[str, str]) -> tuple[Gap, ...]:
    """What is missing between a checkpoint and what the broker holds; a new job misses nothing."""
    if at.done is None:
        return ()
    places = sorted({*at.offsets, *held})
    return tuple(gap for place in places if (gap := _gap(place, at, held.get(place), ids)))


def _gap(place: Place, at: Checkpoint, held: Held | None, ids: Mapping[str, str]) -> Gap | None:
    topic, partition = place
    position = at.offsets.get(place, 0)
    unknown = Gap("removed", topic, partition, position, None, None)
    if held is None:
        return unknown
    if topic in ids and own_id(at.ids.get(topic, ids[topic])) != ids[topic]:
        known = place in at.offsets  # a partition only the new topic has: nothing is missing
        return replace(unknown, kind="recreated", goes_on_at=held.first) if known else None
    if held.end < position:
        return replace(unknown, kind="reset", goes_on_at=held.end)
    if held.first > position:
        return Gap("expired", topic, partition, position, held.first, held.first)
    return None


def find(settings: Settings) -> tuple[Gap, ...]:
    """What is missing now. Raises `Retryable` when the broker does not say."""
    return _missing(settings, _in_tables(settings))


def _missing(settings: Settings, at: Checkpoint) -> tuple[Gap, ...]:
    broker = Broker(settings.kafka)
    if at.done is None:
        return ()
    wanted = {*at.offsets, *broker.partitions(settings.kafka.topic_prefix)}
    held = broker.held(wanted)
    gaps = compare(at, held, broker.ids(topic for topic, _ in wanted))
    found = {(gap.topic, gap.partition): gap for gap in gaps}
    there = {place: held[place] for place in held if place not in found or _cut(found[place])}
    found |= {place: _behind_what_was_read(found[place], at, broker) for place in found}
    found |= cuts(settings, at, there)
    return tuple(found[place] for place in sorted(found))


def cuts(settings: Settings, at: Checkpoint, held: Mapping[Place, Held]) -> dict[Place, Gap]:
    """Logs that lost their end and have other messages there, by what bronze has of them."""
    bronze = settings.lake_root / table("bronze.record").path
    logs = {place: held[place] for place in held if place[0] != settings.kafka.tick_topic}
    return {
        place: Gap("reset", *place, at.offsets[place], None, new)
        for place, new in first_new(bronze, at, logs, settings.kafka).items()
    }


def _cut(gap: Gap) -> bool:
    return gap.kind == "reset"


def _behind_what_was_read(gap: Gap, at: Checkpoint, broker: Broker) -> Gap:
    """Where a log lost its end and bronze cannot say from where it is new, the broker's times do:
    what had been read was there before the newest batch was planned."""
    if not _cut(gap) or at.planned_ms is None:
        return gap
    found = broker.since((gap.topic, gap.partition), at.planned_ms + AFTER_MS)
    return gap if found is None else replace(gap, goes_on_at=min(found, gap.goes_on_at or found))


def _in_tables(settings: Settings) -> Checkpoint:
    """The checkpoint, with a batch that all tables have as done: what it read is not missing."""
    at = checkpoint(settings.checkpoint_root / JOB)
    if at.under_way is None or not _have(settings, at.under_way)[-1]:
        return at
    file = at.folder / "spark" / "offsets" / str(at.under_way)
    return replace(at, done=at.under_way, offsets=offsets_of(file))


def _note_done(settings: Settings) -> None:
    """Note a batch as done that was killed just before: Spark would read it again to pass it over,
    and the broker does not have it any more."""
    with _held(settings) as at:
        if at.under_way is not None and _have(settings, at.under_way)[-1]:
            _settle(settings, at, at.under_way)


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


def statement(gaps: Iterable[Gap]) -> str:
    """Identity of all that is missing, which a person accepts as a whole."""
    return hashlib.sha256("".join(gap.gap_id for gap in gaps).encode()).hexdigest()[:12]


def require_none(settings: Settings) -> None:
    """Raises `Fatal` that names what is missing. Lost ticks hold nothing and are passed over."""
    noted, at = checkpoint(settings.checkpoint_root / JOB), _in_tables(settings)
    if noted.done != at.done and _missing(settings, noted):
        _note_done(settings)
    gaps = _missing(settings, at)
    if not gaps:
        return
    lost = [gap for gap in gaps if not _tick(gap, settings.kafka)]
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise Fatal(f"{lost[0].sentence()}{more}; {LOOK}")
    if not _without_ticks(settings):
        go_on(settings, gaps)
    say(f"job {JOB}: ticks of the time it did not run are gone; it goes on with new ones")


def _without_ticks(settings: Settings) -> bool:
    """Let a batch that is in a part of its tables be read again without its ticks; False: there is
    none. Its places stay, so it is the same batch; only the ticks before it are passed over."""
    with _held(settings) as at:
        if at.done is None or at.under_way is None or not any(_have(settings, at.under_way)):
            return False
        offsets = at.folder / "spark" / "offsets"
        ends = json.loads((offsets / str(at.under_way)).read_text("utf-8").splitlines()[2])
        lines = (offsets / str(at.done)).read_text("utf-8").splitlines()
        starts = json.loads(lines[2])
        ticks = settings.kafka.tick_topic
        starts[ticks] = ends.get(ticks, {})
        forget_digest(at.folder, at.done)
        write(offsets / str(at.done), "\n".join([*lines[:2], json.dumps(starts)]))
        return True


def _tick(gap: Gap, kafka: KafkaSettings) -> bool:
    return gap.topic == kafka.tick_topic


def accept(settings: Settings, stated: str, who: str, reason: str) -> tuple[Gap, ...]:
    """Go on without what is missing; what was missed, in rows for `ops.gap` and `ops.audit`.

    `stated`: the `statement` a person has read. Raises `Usage` when something else is missing
    by now, `Fatal` while the job runs.
    """
    gaps = find(settings)
    if not gaps:
        raise Usage("nothing is missing: there is no gap to accept")
    if statement(gaps) != stated:
        raise Usage(f"{stated}: that is not what is missing now; {LOOK.partition(';')[0]}")
    go_on(settings, gaps, lambda: _keep(settings, gaps, who, reason))
    return gaps


def _keep(settings: Settings, gaps: Sequence[Gap], who: str, reason: str) -> None:
    """Leave what was missed, and who went on without it, for `ops.gap` and `ops.audit`."""
    at, stated = datetime.now(UTC).isoformat(), statement(gaps)
    logs = [gap for gap in gaps if not _tick(gap, settings.kafka)]
    behind = {(one.topic, one.partition): one.goes_on_at for one in logs}
    after = newest(settings, list(behind))
    before = goes_on(settings, {place: to for place, to in behind.items() if to is not None})
    spool = settings.home.absolute() / "spool"
    detail = json.dumps({"reason": reason, "gaps": [asdict(gap) for gap in gaps]})
    for gap in logs:
        place = gap.topic, gap.partition
        told = {"gap_id": gap.gap_id, "job": JOB, "messages": gap.messages, **asdict(gap)}
        told |= {"accepted_at": at, "accepted_by": who, "reason": reason}
        told |= {"source": source_of(gap.topic, settings.kafka)}
        told |= {"lost_after": _text(after.get(place)), "lost_before": _text(before.get(place))}
        put(spool / "gap", gap.gap_id, told)
    act = {"at": at, "who": who, "act": "gap.accept", "target": stated, "outcome": "ok"}
    put(spool / "audit", f"gap-{stated}", act | {"detail": detail})


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def go_on(
    settings: Settings, gaps: Sequence[Gap], first: Callable[[], None] = lambda: None
) -> None:
    """Add a batch to the checkpoint that reads nothing and ends behind the gaps.

    `first`: what is done before, once nothing stands in the way.
    """
    with _held(settings) as at:
        if at.under_way is not None:
            at = _settle(settings, at, at.under_way)
        if at.done is None:
            raise Fatal(f"checkpoint of job {JOB}: {at.folder} has no batch to go on from")
        now = Broker(settings.kafka).ids(topic for topic, _ in at.offsets)
        cut = {gap.topic for gap in gaps if _cut(gap)}
        before = {**now, **at.ids}
        first()
        _add(at, at.done, gaps, {one: _id(before[one], now[one], one in cut) for one in now})


@contextmanager
def _held(settings: Settings) -> Iterator[Checkpoint]:
    """The job's checkpoint, which nobody else changes meanwhile."""
    folder = settings.checkpoint_root / JOB
    lock = Lock(folder, JOB)
    try:
        yield checkpoint(folder)
    finally:
        lock.release()


def _settle(settings: Settings, at: Checkpoint, planned: int) -> Checkpoint:
    """Bring a batch that was planned and not noted as done to one or the other."""
    has = _have(settings, planned)
    spark = at.folder / "spark"
    if has[-1]:
        note_done(spark, at.done, planned)
    elif any(has):
        raise Fatal(
            f"job {JOB}: batch {planned} is in a part of its tables, and what it read is gone from "
            "the broker; restore lake and checkpoints from a backup"
        )
    else:
        file_of(at.folder, planned).unlink(missing_ok=True)
        # Its number is given again: what it had seen must not count as seen by that batch.
        for keys in (at.folder / "keys").glob(f"{planned}-*"):
            keys.unlink()
        forget_checksum(spark / "offsets" / str(planned))
        (spark / "offsets" / str(planned)).unlink()
    return checkpoint(at.folder)


def _have(settings: Settings, batch: int) -> list[bool]:
    """Which of the job's tables have a batch."""
    return [_holds(settings.lake_root / table(name).path, batch) for name in WRITES]


def _holds(folder: Location, batch: int) -> bool:
    for commit in newest_first(folder):
        if commit.marker is not None and commit.marker["job"] == JOB:
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
