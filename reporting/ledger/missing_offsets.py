"""Why bronze may lack an offset that job ingest has read: what is known of it, and what is not.

Whoever finds no reason for a hole has found a loss. Reasons, in the order in which they are looked
for: a gap that a person accepted; retention; an erasure, which keeps no list of what it took, so
as many holes are its own as it took records since; and an offset that never was a message, as the
marks at the end of a transaction are. Raw topics are not compacted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import randrange
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.delta.log_reader import newest_first
from infra.delta.retention import furthest
from infra.delta.time_travel import Committed
from infra.kafka.client import source_of
from infra.storage.paths import path_of
from infra.streaming.kafka_offsets import BrokerRange, TopicPartitionKey
from ingest.completeness.log_truncation import NEAR, PartitionLog
from ingest.completeness.offset_ranges import CountedStretch, Span, Stretch, offset_count, without

if TYPE_CHECKING:
    import duckdb

_ANEW = ("recreated", "reset", "removed")
"""Kinds of gaps behind which a partition gives its offsets once more."""
MOST_ASKED = 500
"""Holes of a stretch that the broker is asked about at least. Many more where they lie close
together, as the marks of a producer with transactions do, which leaves thousands. If there are
still more, single ones are asked about from a random one on, so that a loss that recurs shows."""


@dataclass(frozen=True)
class Reasons:
    """What became of a stretch's holes: how many each reason explains, and what is left."""

    gaps: int = 0
    expired: int = 0
    erased: int = 0
    empty: int = 0
    unasked: int = 0
    """Single offsets taken for empty, as all were that the broker was asked about."""
    missing: tuple[Span, ...] = ()


@dataclass(frozen=True)
class AcceptedGap:
    """A gap as `ops.gap` has it, or as it waits for the driver to put it there."""

    place: TopicPartitionKey
    kind: str
    first: int
    end: int | None
    goes_on_at: int | None
    at: datetime
    gap_id: str = ""


def hole_id(named: str, place: TopicPartitionKey, span: Span) -> str:
    """Identity of a hole in what its records are named by: a topic made anew has others."""
    dumps = json.dumps([named, place[1], *span])
    return hashlib.sha256(dumps.encode()).hexdigest()[:12]


_GAPS = """
SELECT topic, "partition", kind, from_offset, to_offset, goes_on_at, accepted_at, gap_id
FROM ops.gap ORDER BY accepted_at
"""


def accepted(settings: Settings, connection: duckdb.DuckDBPyConnection) -> list[AcceptedGap]:
    """All gaps that were gone on without, the newest last."""
    accepteds = [
        AcceptedGap((topic, partition), *rest)
        for topic, partition, *rest in connection.execute(_GAPS).fetchall()
    ]
    # An acceptance waits as a file until the driver folds it in; it counts from the moment it is
    # given.
    waiting = (settings.home.absolute() / "spool" / "gap").rglob("*.json")
    accepteds += [_spooled(file) for file in waiting]
    return sorted(accepteds, key=lambda gap: gap.at)


def _spooled(file: Path) -> AcceptedGap:
    row = json.loads(file.read_text("utf-8"))
    place = row["topic"], row["partition"]
    return AcceptedGap(
        place,
        row["kind"],
        row["from_offset"],
        row["to_offset"],
        row["goes_on_at"],
        datetime.fromisoformat(row["accepted_at"]),
        row["gap_id"],
    )


def erased(settings: Settings, since: datetime | None) -> int:
    """Records that erasures took out of bronze since then, as far as its log tells."""
    folder = settings.lake_root / path_of("bronze.record")
    times = Committed(folder)
    removed = 0
    for commit in newest_first(folder):
        # Newest first, so that a log of years is read only as far back as the last check.
        if since is not None and times.of(commit.version) < since:
            break
        note = _note(commit.user_metadata)
        removed += int(note.get("removed") or 0) if "erase" in note else 0
    return removed


def _note(text: str | None) -> Mapping[str, Any]:
    try:
        decoded = json.loads(text or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


class Explainer:
    """Looks for reasons; asks only where there are holes."""

    def __init__(
        self,
        settings: Settings,
        connection: duckdb.DuckDBPyConnection,
        gaps: Sequence[AcceptedGap],
        held: Mapping[TopicPartitionKey, BrokerRange],
        since: datetime | None,
        ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`held`: what the broker has. `since`: when the check before this one began. `ids`: by
        topic, what its records are named by now; of a topic not in it, each stretch is of now."""
        self._settings = settings
        self._connection = connection
        self._gaps = gaps
        self._held = held
        self._since = since
        self._ids = ids
        self._erased: int | None = None
        self._log: PartitionLog | None = None

    def __call__(self, counted: CountedStretch, *, again: bool) -> Reasons:
        """Why a stretch has holes. `again`: they were there the last time already."""
        holes = list(counted.holes)
        if not holes:
            return Reasons()
        place = counted.stretch.place
        # From the surest reason to the least sure: what one explains, the next need not.
        left = without(holes, self._known(counted.stretch))
        reasons = Reasons(gaps=offset_count(holes) - offset_count(left))
        kept = self._kept(counted)
        inside = without(left, [(0, kept)] if kept else [])
        reasons = replace(reasons, expired=offset_count(left) - offset_count(inside))
        # An erasure notes how many records it took, not which; so it can only explain that many
        # once.
        if inside and not again and offset_count(inside) <= self._budget():
            self._erased = self._budget() - offset_count(inside)
            return replace(reasons, erased=offset_count(inside))
        missing, unasked = self._messages(place, inside, again=again)
        empty = offset_count(inside) - offset_count(missing) - unasked
        return replace(reasons, empty=empty, unasked=unasked, missing=tuple(missing))

    def close(self) -> None:
        """End the client that asked the broker."""
        if self._log is not None:
            self._log.close()

    def _known(self, stretch: Stretch) -> list[Span]:
        """The gaps that were accepted of a stretch's own log: one made anew gives its offsets once
        more, and what was lost of the former says nothing of it."""
        ours = [gap for gap in self._gaps if gap.place == stretch.place]
        anew = max((gap.at for gap in ours if gap.kind in _ANEW), default=None)
        return [
            (gap.first, gap.end)
            for gap in ours
            if gap.end and (anew is None or self._of_log(gap, stretch, anew))
        ]

    def _of_log(self, gap: AcceptedGap, stretch: Stretch, anew: datetime) -> bool:
        """Whether a gap is of the log that a stretch is of. `anew`: when that was last changed."""
        if gap.kind == "hole":  # one of the former log may be accepted when the new one is there
            span = gap.first, gap.end or 0
            names = {stretch.topic_id, stretch.before} - {""}
            return gap.gap_id in {hole_id(named, gap.place, span) for named in names}
        newest = self._ids.get(stretch.topic, stretch.topic_id) == stretch.topic_id
        return gap.at > anew if newest else gap.at < anew

    def _kept(self, counted: CountedStretch) -> int | None:
        """The first offset whose record no retention has reached; None: it reached none."""
        stretch = counted.stretch
        source = source_of(stretch.topic, self._settings.kafka)
        limit = furthest(self._settings, "bronze.record").of(source)
        if limit is None:
            return None
        row = self._connection.execute(
            'SELECT min("offset") FROM bronze.record WHERE topic = $topic AND "partition" = $part '
            "AND received_at >= $limit AND starts_with(record_id, $named)",
            {
                "topic": stretch.topic,
                "part": stretch.partition,
                "limit": limit,
                "named": stretch.ids(stretch.topic_id),
            },
        ).fetchone()
        return row[0] if row else None

    def _budget(self) -> int:
        if self._erased is None:
            self._erased = erased(self._settings, self._since)
        return self._erased

    def _messages(
        self, place: TopicPartitionKey, holes: Sequence[Span], *, again: bool
    ) -> tuple[list[Span], int]:
        """The holes at which the broker has messages, or had them: it keeps no older ones. And at
        how many single offsets it was not asked; what was missing before stays so until it was."""
        held = self._held.get(place)
        # A partition that the broker does not have any more explains nothing.
        if held is None or not holes:
            return list(holes), 0
        missing = without(holes, [(held.first, held.end)])
        there = without(holes, [(0, held.first), (held.end, max(held.end, holes[-1][1]))])
        # The widest first: a single offset is mostly the mark of a transaction.
        wide = sorted(
            (span for span in there if offset_count([span]) > 1), key=lambda span: span[0] - span[1]
        )
        single = [span for span in there if offset_count([span]) == 1]
        # From a random one on, so that a loss that comes again is met sooner or later.
        turn = randrange(len(single)) if single else 0
        requested = [*sorted(wide[:MOST_ASKED]), *single[turn:], *single[:turn]]
        first = self._first(place, [begin for begin, _ in requested])
        lost = [(first[begin], end) for begin, end in requested if first.get(begin, end) < end]
        unasked = [span for span in single if span[0] not in first]
        # Once a loss is proved, single holes beside it are not taken for transaction markers.
        if lost or again:
            return sorted([*missing, *lost, *wide[MOST_ASKED:], *unasked]), 0
        return sorted([*missing, *wide[MOST_ASKED:]]), len(unasked)

    def _first(self, place: TopicPartitionKey, offsets: Sequence[int]) -> Mapping[int, int]:
        """The first message from each offset on, of as many as are asked for."""
        if not offsets:
            return {}
        if self._log is None:
            self._log = PartitionLog(self._settings.kafka)
        return self._log.walk(place, offsets, MOST_ASKED * NEAR)
