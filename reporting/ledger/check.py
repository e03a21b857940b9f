"""The check of the ledger: bronze against what the job has read and what the broker holds, and the
records that came since the last check against the tables.

A run looks at what is new since the one before. What was missing then it looks at again, until it
is there or a person has accepted that it never will be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from infra.config.settings import KafkaSettings, Settings
from infra.kafka.client import source_of
from infra.storage.file_lock import ExclusiveLock
from infra.streaming.kafka_offsets import (
    BrokerRange,
    Checkpoint,
    OffsetReader,
    TopicPartitionKey,
    kafka_checkpoint,
)
from infra.streaming.outbox import put_row
from ingest.completeness.gaps import INGEST_JOB, find_gaps, own_id
from ingest.completeness.ledger_state import LedgerCheckState, RepeatedStretch, ledger_check_folder
from ingest.completeness.offset_ranges import (
    CountedStretch,
    Span,
    Stretch,
    block_of,
    count_ranges,
    merged_ranges,
    offset_count,
)
from ingest.quality.silence_rules import finished
from reporting.ledger.completeness import Completeness, excused, hourly
from reporting.ledger.missing_offsets import AcceptedGap, Explainer, Reasons, accepted

if TYPE_CHECKING:
    import duckdb

TABLES = ("bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap",
          "ops.ledger")  # fmt: skip
_SLACK = timedelta(hours=1)
"""So far before what the last check had seen is looked at again: clocks differ, what stands twice
came soon after what it repeats, and a batch of files is in later than it arrived."""
_AT_FIRST = timedelta(days=1)
"""How far back the first run counts records; offsets it looks at in all of bronze."""
_HOUR = timedelta(hours=1)
_SOON = 0.75
"""Unread messages that are older than this share of what their topic keeps are about to be lost."""
_EXAMPLES = 10
KEPT = 100
"""So many spans of a partition are looked at again; more are, together with what is between."""

_Row = dict[str, Any]


@dataclass(frozen=True)
class LedgerCheckResult:
    """What a check came to: rows of ops.ledger_check, what did not pass in words, and the holes
    that nothing explains."""

    rows: list[_Row]
    failures: list[str]
    holes: list[tuple[Stretch, Span]]


def check_ledger(
    settings: Settings,
    connection: duckdb.DuckDBPyConnection,
    *,
    everything: bool = False,
    now: datetime | None = None,
) -> LedgerCheckResult:
    """Compare checkpoint, bronze, broker and tables; rows are left for the driver to write.

    `connection`: from `reporting.cli.reader.open_lake`. `everything`: as if it were the first
    check. Raises `Retryable` where the broker is away, `Taken` beside another check.
    """
    folder = ledger_check_folder(settings)
    # Two checks beside each other would each write the state that the other has read.
    held = ExclusiveLock(folder / "lock", lambda who: f"another check is under way (process {who})")
    try:
        state = LedgerCheckState() if everything else LedgerCheckState.load(folder)
        checked, after = _check(settings, connection, state, now or datetime.now(UTC))
        _keep(settings, checked.rows)
        # After the rows: killed in between, the same span is checked once more.
        after.save(folder)
        return checked
    finally:
        held.release()


def _check(
    settings: Settings,
    connection: duckdb.DuckDBPyConnection,
    state: LedgerCheckState,
    now: datetime,
) -> tuple[LedgerCheckResult, LedgerCheckState]:
    # What the job had read then, bronze has when it is looked at later.
    # The order matters: checkpoint, then broker, then bronze, each at least as new as the one
    # before.
    checkpoint_folder = kafka_checkpoint(settings.checkpoint_root / INGEST_JOB)
    reached = finished(connection)
    broker = OffsetReader(settings.kafka)
    there = broker.held(
        {*broker.partitions(settings.kafka.topic_prefix), *checkpoint_folder.offsets}
    )
    gaps = accepted(settings, connection)
    # What is looked at again stands first; its number says where the new ones begin.
    wanted = stretches(checkpoint_folder, state, settings.kafka, gaps, there)
    since = datetime.fromisoformat(state.finished) - _SLACK if state.finished else None
    last = datetime.fromisoformat(state.at) if state.at else None
    # What was missing is searched for in all of bronze; what is new only in what arrived since.
    old = len(state.again)
    looked_up = count_ranges(connection, wanted[:old], None) + count_ranges(
        connection, wanted[old:], since
    )
    with closing(
        Explainer(settings, connection, gaps, there, last, checkpoint_folder.ids)
    ) as explain:
        judged = [(stretch, explain(stretch, again=n < old)) for n, stretch in enumerate(looked_up)]
    places = _Places(settings, broker, checkpoint_folder, there, now)
    rows = [
        places.row(place, judged)
        for place in sorted({*checkpoint_folder.offsets, *there} - places.ticks)
    ]
    counted, hours = _sources(connection, state, reached)
    rows += counted
    failures = [*_lost(settings), *filter(None, map(_words, rows))]
    after = LedgerCheckState(
        at=now.isoformat(),
        passed=not failures,
        missing=sum(row["missing"] for row in rows if row["topic"]),
        repeated=sum(row["repeated"] for row in rows),
        unaccounted=sum(row["missing"] for row in rows if not row["topic"]),
        expiring=sum(row.get("expiring") or 0 for row in rows),
        lost=len(failures) - sum(not row["passed"] for row in rows),
        through=_through(checkpoint_folder, state, settings.kafka),
        again=sorted(_again(judged)),
        finished=reached.isoformat() if reached else None,
        hours=hours,
    )
    rows = [{"run_at": now.isoformat(), **row} for row in rows]
    holes = [(stretch.stretch, span) for stretch, why in judged for span in why.missing]
    return LedgerCheckResult(rows, failures, holes), after


# -- offsets ---------------------------------------------------------------------------------------


def key(place: TopicPartitionKey) -> str:
    """A partition as the state names it."""
    return f"{place[0]}/{place[1]}"


def stretches(
    at: Checkpoint,
    state: LedgerCheckState,
    kafka: KafkaSettings,
    gaps: Sequence[AcceptedGap],
    held: Mapping[TopicPartitionKey, BrokerRange],
) -> list[Stretch]:
    """What is to be looked at: first what is looked at again, then what the job has read since."""
    stretch_list = [Stretch(*stretch) for stretch in state.again]
    for place, end in sorted(at.offsets.items()):
        named = at.ids.get(place[0])
        # Ticks only move time on and leave no records behind.
        if place[0] == kafka.tick_topic or named is None:
            continue
        for stretch in _new(place, named, end, state, gaps, held):
            if (
                stretch.first <= stretch.end
            ):  # where nothing is new, something may stand there again
                stretch_list.append(stretch)
    return stretch_list


def _new(
    place: TopicPartitionKey,
    named: str,
    end: int,
    state: LedgerCheckState,
    gaps: Sequence[AcceptedGap],
    held: Mapping[TopicPartitionKey, BrokerRange],
) -> Iterator[Stretch]:
    before, through = state.through.get(key(place), ("", 0))
    # The same log as the last time, so the look goes on where that one ended.
    if before == named:
        yield Stretch(*place, named, through, end)
        return
    # At a first look bronze may begin anywhere, and so where the broker did not begin at 0.
    late = not state.through or place not in held or held[place].first > 0
    begins: Literal["all", "inside"] = "inside" if late else "all"
    if not before:
        yield Stretch(*place, named, 0, end, begins)
        return
    kinds = ("recreated", "reset")
    last = datetime.fromisoformat(state.at) if state.at else datetime(1, 1, 1, tzinfo=UTC)
    anew = [gap for gap in gaps if gap.place == place and gap.kind in kinds and gap.at >= last]
    if anew:
        # Both logs: the end of the former one was read as well before it went.
        yield Stretch(*place, before, through, anew[0].first)
        on = anew[-1].goes_on_at
        yield Stretch(*place, named, on or 0, end, "inside" if on is None else "all")
    elif own_id(before) == own_id(named):  # the log of another partition lost its end
        yield Stretch(*place, named, through, end, before=before)
    else:
        yield Stretch(*place, named, 0, end, begins)


def _through(
    at: Checkpoint, state: LedgerCheckState, kafka: KafkaSettings
) -> dict[str, tuple[str, int]]:
    read = {
        key(place): (at.ids[place[0]], end)
        for place, end in at.offsets.items()
        if place[0] != kafka.tick_topic and place[0] in at.ids
    }
    return state.through | read


def _again(judged: Sequence[tuple[CountedStretch, Reasons]]) -> set[RepeatedStretch]:
    """Where something is missing, and the blocks where something stands twice."""
    agains: set[RepeatedStretch] = set()
    missing: dict[tuple[str, int, str], list[Span]] = {}
    for stretch_row, why in judged:
        stretch = stretch_row.stretch
        named = stretch.topic, stretch.partition, stretch.topic_id
        # By the log's own id: a topic made anew counts its offsets from 0 again.
        missing.setdefault(named, []).extend(why.missing)
        agains |= {(*named, *block_of(block), "none") for block in stretch_row.twice}
    for named, spans in missing.items():
        # Merged, since the state is a file that is read and written by every check.
        agains |= {(*named, *span, "all") for span in merged_ranges(sorted(spans), KEPT)}
    return agains


class _Places:
    """What is told of each partition."""

    def __init__(
        self,
        settings: Settings,
        broker: OffsetReader,
        at: Checkpoint,
        held: Mapping[TopicPartitionKey, BrokerRange],
        now: datetime,
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._at = at
        self._held = held
        self._now = now
        self.ticks = {place for place in held if place[0] == settings.kafka.tick_topic}
        self.ticks |= {place for place in at.offsets if place[0] == settings.kafka.tick_topic}
        self._kept = broker.retention_ms(place[0] for place in held)

    def row(
        self, place: TopicPartitionKey, judged: Sequence[tuple[CountedStretch, Reasons]]
    ) -> _Row:
        """A row of ops.ledger_check, without when the check ran."""
        read = self._at.offsets.get(place, 0)
        ours = [
            (judged_stretch, why)
            for judged_stretch, why in judged
            if judged_stretch.stretch.place == place
        ]
        spans = [span for _, why in ours for span in why.missing]
        there = self._held.get(place)
        # From the broker's first offset on: what it has deleted cannot be read any more.
        unread = max(0, there.end - max(there.first, read)) if there else None
        expiring = self._expiring(place, read, there) if unread else 0
        row: _Row = {
            "topic": place[0],
            "partition": place[1],
            "source": source_of(place[0], self._settings.kafka),
            "from_offset": min(
                (judged_stretch.stretch.first for judged_stretch, _ in ours), default=read
            ),
            "to_offset": read,
            "records": sum(judged_stretch.records for judged_stretch, _ in ours),
            "gaps": sum(why.gaps for _, why in ours),
            "expired": sum(why.expired for _, why in ours),
            "erased": sum(why.erased for _, why in ours),
            "empty": sum(why.empty for _, why in ours),
            "unasked": sum(why.unasked for _, why in ours),
            "missing": offset_count(spans),
            "repeated": _repeated([judged_stretch for judged_stretch, _ in ours]),
            "broker_first": there.first if there else None,
            "broker_end": there.end if there else None,
            "unread": unread,
            "expiring": expiring,
            "examples": json.dumps(spans[:_EXAMPLES]) if spans else None,
        }
        return row | {"passed": not (row["missing"] or row["repeated"] or expiring)}

    def _expiring(
        self, place: TopicPartitionKey, read: int, there: BrokerRange | None
    ) -> int | None:
        """Unread messages that the broker will not keep for long; None: it does not say."""
        kept_ms = self._kept.get(place[0])
        if kept_ms is None or there is None:
            return None
        # Before the end of retention, so that a person still has time to do something.
        oldest = int(self._now.timestamp() * 1000 - _SOON * kept_ms)
        young = self._broker.since(place, oldest)
        return max(0, (there.end if young is None else young) - max(read, there.first))


def _repeated(stretches: Sequence[CountedStretch]) -> int:
    """Rows that stand there again; a block may have been looked at for two reasons."""
    blocks: dict[tuple[str, int], int] = {}
    for stretch in stretches:
        for block, more in stretch.twice.items():
            results = stretch.stretch.topic_id, block
            # The same block may lie in two stretches; its doubles are counted once.
            blocks[results] = max(more, blocks.get(results, 0))
    return sum(blocks.values())


# -- records ---------------------------------------------------------------------------------------


def _sources(
    connection: duckdb.DuckDBPyConnection, state: LedgerCheckState, reached: datetime | None
) -> tuple[list[_Row], list[str]]:
    """A row for each source of what arrived since the last check and shortly before it, and the
    hours that are looked at again the next time: in which records are unaccounted, or are still
    being written. An import that was killed stands in its hour, and holds up nothing else."""
    if reached is None:
        return [], state.hours
    since = reached - _AT_FIRST
    if state.finished is not None:
        # After a restore the lake may be behind what the last check saw.
        since = min(datetime.fromisoformat(state.finished), reached) - _SLACK
    spans = [
        (begin, min(begin + _HOUR, since)) for begin in map(datetime.fromisoformat, state.hours)
    ]
    spans = [(begin, end) for begin, end in [*spans, (since, reached)] if begin < end]
    sources = [row for begin, end in spans for row in hourly(connection, begin, end)]
    bad = {
        source.hour
        for source in sources
        # These hours are counted again next time, until they come out right.
        if source.unaccounted or source.duplicated or source.unfinished
    }
    bad |= {hour_of(position) for position in excused(connection)}
    by_source: dict[str, list[Completeness]] = {}
    for source in sources:
        by_source.setdefault(source.source, []).append(source)
    first = min((begin for begin, _ in spans), default=since)
    rows = [_counted(name, ours, first, reached) for name, ours in sorted(by_source.items())]
    return rows, sorted(hour.isoformat() for hour in bad if hour)


def hour_of(at: datetime) -> datetime:
    """The hour of arrival, as the ledger names it."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _counted(name: str, rows: Sequence[Completeness], since: datetime, until: datetime) -> _Row:
    missing = sum(row.unaccounted for row in rows)
    repeated = sum(row.duplicated for row in rows)
    return {
        "topic": None,
        "source": name,
        "records": sum(row.received for row in rows),
        "missing": missing,
        "repeated": repeated,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "passed": not (missing or repeated),
    }


# -- what is said ----------------------------------------------------------------------------------


def _lost(settings: Settings) -> list[str]:
    """Gaps that nobody has accepted yet."""
    gaps = find_gaps(settings)
    return [gap.sentence() for gap in gaps if gap.topic != settings.kafka.tick_topic]


def _words(row: _Row) -> str:
    if row["passed"]:
        return ""
    if row["topic"] is None:
        return (
            f"source {row['source']}: {row['missing']} records unaccounted and {row['repeated']} "
            f"event ids on more than one row, of arrivals since {row['since'][:19]}"
        )
    words = []
    if row["missing"]:
        spans = json.loads(row["examples"])
        shown = ", ".join(f"{begin} to {end - 1}" for begin, end in spans[:3])
        words.append(f"{row['missing']} messages that were read are not in bronze ({shown})")
    if row["repeated"]:
        words.append(f"{row['repeated']} rows of bronze stand there again")
    if row["expiring"]:
        words.append(
            f"{row['expiring']} unread messages are soon deleted by the broker's retention"
        )
    return f"topic {row['topic']} partition {row['partition']}: {'; '.join(words)}"


def _keep(settings: Settings, rows: Sequence[_Row]) -> None:
    spool = settings.home.absolute() / "spool" / "ledger_check"
    for number, row in enumerate(rows):
        name = datetime.fromisoformat(row["run_at"]).strftime("%Y%m%dT%H%M%S%f")
        put_row(spool, f"{name}-{number}", row)
