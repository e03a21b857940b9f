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
from infra.storage.file_lock import Alone
from infra.streaming.kafka_offsets import Broker, Checkpoint, Held, Place, checkpoint
from infra.streaming.outbox import put
from ingest.completeness.gaps import JOB, find, own_id
from ingest.completeness.ledger_state import Again, State, folder_of
from ingest.completeness.offset_ranges import Found, Span, Stretch, block_of, gathered, look, size
from ingest.quality.silence_rules import finished
from reporting.ledger.completeness import Completeness, excused, hourly
from reporting.ledger.missing_offsets import Accepted, Explainer, Reasons, accepted

if TYPE_CHECKING:
    import duckdb

TABLES = ("bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap",
          "ops.ledger")  # fmt: skip
SLACK = timedelta(hours=1)
"""So far before what the last check had seen is looked at again: clocks differ, what stands twice
came soon after what it repeats, and a batch of files is in later than it arrived."""
AT_FIRST = timedelta(days=1)
"""How far back the first run counts records; offsets it looks at in all of bronze."""
HOUR = timedelta(hours=1)
SOON = 0.75
"""Unread messages that are older than this share of what their topic keeps are about to be lost."""
EXAMPLES = 10
KEPT = 100
"""So many spans of a partition are looked at again; more are, together with what is between."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Checked:
    """What a check came to: rows of ops.ledger_check, what did not pass in words, and the holes
    that nothing explains."""

    rows: list[Row]
    failures: list[str]
    holes: list[tuple[Stretch, Span]]


def check(
    settings: Settings,
    connection: duckdb.DuckDBPyConnection,
    *,
    everything: bool = False,
    now: datetime | None = None,
) -> Checked:
    """Compare checkpoint, bronze, broker and tables; rows are left for the driver to write.

    `connection`: from `reporting.cli.main.opened`. `everything`: as if it were the first check.
    Raises `Retryable` where the broker is away, `Taken` beside another check.
    """
    folder = folder_of(settings)
    held = Alone(folder / "lock", lambda who: f"another check is under way (process {who})")
    try:
        state = State() if everything else State.load(folder)
        checked, after = _check(settings, connection, state, now or datetime.now(UTC))
        _keep(settings, checked.rows)
        after.save(folder)
        return checked
    finally:
        held.release()


def _check(
    settings: Settings, connection: duckdb.DuckDBPyConnection, state: State, now: datetime
) -> tuple[Checked, State]:
    # What the job had read then, bronze has when it is looked at later.
    at = checkpoint(settings.checkpoint_root / JOB)
    reached = finished(connection)
    broker = Broker(settings.kafka)
    there = broker.held({*broker.partitions(settings.kafka.topic_prefix), *at.offsets})
    gaps = accepted(settings, connection)
    wanted = stretches(at, state, settings.kafka, gaps, there)
    since = datetime.fromisoformat(state.finished) - SLACK if state.finished else None
    last = datetime.fromisoformat(state.at) if state.at else None
    old = len(state.again)
    found = look(connection, wanted[:old], None) + look(connection, wanted[old:], since)
    with closing(Explainer(settings, connection, gaps, there, last, at.ids)) as explain:
        judged = [(one, explain(one, again=n < old)) for n, one in enumerate(found)]
    places = Places(settings, broker, at, there, now)
    rows = [places.row(place, judged) for place in sorted({*at.offsets, *there} - places.ticks)]
    counted, hours = _sources(connection, state, reached)
    rows += counted
    failures = [*_lost(settings), *filter(None, map(_words, rows))]
    after = State(
        at=now.isoformat(),
        passed=not failures,
        missing=sum(row["missing"] for row in rows if row["topic"]),
        repeated=sum(row["repeated"] for row in rows),
        unaccounted=sum(row["missing"] for row in rows if not row["topic"]),
        expiring=sum(row.get("expiring") or 0 for row in rows),
        lost=len(failures) - sum(not row["passed"] for row in rows),
        through=_through(at, state, settings.kafka),
        again=sorted(_again(judged)),
        finished=reached.isoformat() if reached else None,
        hours=hours,
    )
    rows = [{"run_at": now.isoformat(), **row} for row in rows]
    holes = [(one.stretch, span) for one, why in judged for span in why.missing]
    return Checked(rows, failures, holes), after


# -- offsets ---------------------------------------------------------------------------------------


def key(place: Place) -> str:
    """A partition as the state names it."""
    return f"{place[0]}/{place[1]}"


def stretches(
    at: Checkpoint,
    state: State,
    kafka: KafkaSettings,
    gaps: Sequence[Accepted],
    held: Mapping[Place, Held],
) -> list[Stretch]:
    """What is to be looked at: first what is looked at again, then what the job has read since."""
    found = [Stretch(*one) for one in state.again]
    for place, end in sorted(at.offsets.items()):
        named = at.ids.get(place[0])
        if place[0] == kafka.tick_topic or named is None:
            continue
        for one in _new(place, named, end, state, gaps, held):
            if one.first <= one.end:  # where nothing is new, something may stand there again
                found.append(one)
    return found


def _new(
    place: Place,
    named: str,
    end: int,
    state: State,
    gaps: Sequence[Accepted],
    held: Mapping[Place, Held],
) -> Iterator[Stretch]:
    before, through = state.through.get(key(place), ("", 0))
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
    anew = [one for one in gaps if one.place == place and one.kind in kinds and one.at >= last]
    if anew:
        yield Stretch(*place, before, through, anew[0].first)
        on = anew[-1].goes_on_at
        yield Stretch(*place, named, on or 0, end, "inside" if on is None else "all")
    elif own_id(before) == own_id(named):  # the log of another partition lost its end
        yield Stretch(*place, named, through, end, before=before)
    else:
        yield Stretch(*place, named, 0, end, begins)


def _through(at: Checkpoint, state: State, kafka: KafkaSettings) -> dict[str, tuple[str, int]]:
    read = {
        key(place): (at.ids[place[0]], end)
        for place, end in at.offsets.items()
        if place[0] != kafka.tick_topic and place[0] in at.ids
    }
    return state.through | read


def _again(judged: Sequence[tuple[Found, Reasons]]) -> set[Again]:
    """Where something is missing, and the blocks where something stands twice."""
    found: set[Again] = set()
    missing: dict[tuple[str, int, str], list[Span]] = {}
    for one, why in judged:
        at = one.stretch
        named = at.topic, at.partition, at.topic_id
        missing.setdefault(named, []).extend(why.missing)
        found |= {(*named, *block_of(block), "none") for block in one.twice}
    for named, spans in missing.items():
        found |= {(*named, *span, "all") for span in gathered(sorted(spans), KEPT)}
    return found


class Places:
    """What is told of each partition."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        at: Checkpoint,
        held: Mapping[Place, Held],
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

    def row(self, place: Place, judged: Sequence[tuple[Found, Reasons]]) -> Row:
        """A row of ops.ledger_check, without when the check ran."""
        read = self._at.offsets.get(place, 0)
        ours = [(one, why) for one, why in judged if one.stretch.place == place]
        spans = [span for _, why in ours for span in why.missing]
        there = self._held.get(place)
        unread = max(0, there.end - max(there.first, read)) if there else None
        expiring = self._expiring(place, read, there) if unread else 0
        row: Row = {
            "topic": place[0],
            "partition": place[1],
            "source": source_of(place[0], self._settings.kafka),
            "from_offset": min((one.stretch.first for one, _ in ours), default=read),
            "to_offset": read,
            "records": sum(one.records for one, _ in ours),
            "gaps": sum(why.gaps for _, why in ours),
            "expired": sum(why.expired for _, why in ours),
            "erased": sum(why.erased for _, why in ours),
            "empty": sum(why.empty for _, why in ours),
            "unasked": sum(why.unasked for _, why in ours),
            "missing": size(spans),
            "repeated": _repeated([one for one, _ in ours]),
            "broker_first": there.first if there else None,
            "broker_end": there.end if there else None,
            "unread": unread,
            "expiring": expiring,
            "examples": json.dumps(spans[:EXAMPLES]) if spans else None,
        }
        return row | {"passed": not (row["missing"] or row["repeated"] or expiring)}

    def _expiring(self, place: Place, read: int, there: Held | None) -> int | None:
        """Unread messages that the broker will not keep for long; None: it does not say."""
        kept_ms = self._kept.get(place[0])
        if kept_ms is None or there is None:
            return None
        oldest = int(self._now.timestamp() * 1000 - SOON * kept_ms)
        young = self._broker.since(place, oldest)
        return max(0, (there.end if young is None else young) - max(read, there.first))


def _repeated(found: Sequence[Found]) -> int:
    """Rows that stand there again; a block may have been looked at for two reasons."""
    blocks: dict[tuple[str, int], int] = {}
    for one in found:
        for block, more in one.twice.items():
            at = one.stretch.topic_id, block
            blocks[at] = max(more, blocks.get(at, 0))
    return sum(blocks.values())


# -- records ---------------------------------------------------------------------------------------


def _sources(
    connection: duckdb.DuckDBPyConnection, state: State, reached: datetime | None
) -> tuple[list[Row], list[str]]:
    """A row for each source of what arrived since the last check and shortly before it, and the
    hours that are looked at again the next time: in which records are unaccounted, or are still
    being written. An import that was killed stands in its hour, and holds up nothing else."""
    if reached is None:
        return [], state.hours
    since = reached - AT_FIRST
    if state.finished is not None:
        since = min(datetime.fromisoformat(state.finished), reached) - SLACK
    spans = [
        (begin, min(begin + HOUR, since)) for begin in map(datetime.fromisoformat, state.hours)
    ]
    spans = [(begin, end) for begin, end in [*spans, (since, reached)] if begin < end]
    found = [row for begin, end in spans for row in hourly(connection, begin, end)]
    bad = {one.hour for one in found if one.unaccounted or one.duplicated or one.unfinished}
    bad |= {hour_of(at) for at in excused(connection)}
    by_source: dict[str, list[Completeness]] = {}
    for one in found:
        by_source.setdefault(one.source, []).append(one)
    first = min((begin for begin, _ in spans), default=since)
    rows = [_counted(name, ours, first, reached) for name, ours in sorted(by_source.items())]
    return rows, sorted(hour.isoformat() for hour in bad if hour)


def hour_of(at: datetime) -> datetime:
    """The hour of arrival, as the ledger names it."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _counted(name: str, rows: Sequence[Completeness], since: datetime, until: datetime) -> Row:
    missing = sum(one.unaccounted for one in rows)
    repeated = sum(one.duplicated for one in rows)
    return {
        "topic": None,
        "source": name,
        "records": sum(one.received for one in rows),
        "missing": missing,
        "repeated": repeated,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "passed": not (missing or repeated),
    }


# -- what is said ----------------------------------------------------------------------------------


def _lost(settings: Settings) -> list[str]:
    """Gaps that nobody has accepted yet."""
    gaps = find(settings)
    return [one.sentence() for one in gaps if one.topic != settings.kafka.tick_topic]


def _words(row: Row) -> str:
    if row["passed"]:
        return ""
    if row["topic"] is None:
        return (
            f"source {row['source']}: {row['missing']} records unaccounted and {row['repeated']} "
            f"event ids on more than one row, of arrivals since {row['since'][:19]}"
        )
    said = []
    if row["missing"]:
        spans = json.loads(row["examples"])
        shown = ", ".join(f"{begin} to {end - 1}" for begin, end in spans[:3])
        said.append(f"{row['missing']} messages that were read are not in bronze ({shown})")
    if row["repeated"]:
        said.append(f"{row['repeated']} rows of bronze stand there again")
    if row["expiring"]:
        said.append(f"{row['expiring']} unread messages are soon deleted by the broker's retention")
    return f"topic {row['topic']} partition {row['partition']}: {'; '.join(said)}"


def _keep(settings: Settings, rows: Sequence[Row]) -> None:
    spool = settings.home.absolute() / "spool" / "ledger_check"
    for number, row in enumerate(rows):
        name = datetime.fromisoformat(row["run_at"]).strftime("%Y%m%dT%H%M%S%f")
        put(spool, f"{name}-{number}", row)
