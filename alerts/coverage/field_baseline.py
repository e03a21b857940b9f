"""How often the fields that rules look at are filled, by source and class, as a habit.

A habit is learned from what arrives: of how many events the field was filled, and the longest
time it ever was not. A field is *gone* when it is missing for longer than it ever was, and
so many events came without it that some thirty of them should have had it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from alerts.domain.finding import event_schema
from alerts.rulepack.derived_fields import inputs
from alerts.rulepack.predicate import All, Either, Node, Not, Test
from ingest.quality.silence_rules import OURS

if TYPE_CHECKING:
    import duckdb

EXPECTED = 30
"""Events that should have had the field: that none of them has is no chance."""
LEARN_SECONDS = 86_400
"""A field is not judged before its habit has seen a day and a night."""
LEAST_SECONDS = 3600
_FORGET = 200_000
"""Beyond so many events a habit halves what it counted: it follows what changes for good."""

FieldPlace = tuple[str, int, str]
"""Source, class and leaf of silver.event."""


class FieldHabit(msgspec.Struct):
    """How often a field is filled, and since when it is not. Times are seconds since 1970."""

    events: float = 0
    filled: float = 0
    first: float = 0
    last: float = 0
    longest: float = 0
    """Longest time without it."""
    without: float = 0
    """Events since it was last filled."""

    def take(self, events: int, filled: int, first: float, last: float, ended: bool) -> None:
        """Some events in the order they came; `first` and `last` are those that have the field.

        `ended`: the field was called gone until now; that pause is no habit.
        """
        if not filled:
            self.without += events
            return
        if self.last and not ended:
            # The longest pause that ever was is what a pause has to exceed to be news.
            self.longest = max(self.longest, first - self.last)
        self.first, self.last = self.first or first, max(last, self.last)
        self.events += events + (0 if ended else self.without)
        self.filled += filled
        self.without = 0
        if self.events > _FORGET:
            self.events, self.filled = self.events / 2, self.filled / 2

    def gone(self, at: float) -> bool:
        """Whether the field is gone at an instant."""
        if not self.filled or self.last - self.first < LEARN_SECONDS:
            return False
        # Time and number together: a rare field may be away for long, a quiet source has few
        # events.
        paused = at - self.last > max(self.longest, LEAST_SECONDS)
        return paused and self.without * self.share >= EXPECTED

    @property
    def share(self) -> float:
        """Of how many events it is usually filled."""
        return min(1.0, self.filled / self.events) if self.events else 0.0


def leaf_of(path: str) -> str | None:
    """A path of silver.event as far as it leads through structs; None when there is none."""
    name, *steps = path.split(".")
    index = event_schema().get_field_index(name)
    if index < 0:
        return None
    kind = event_schema().field(index).type
    for position, step in enumerate(steps):
        if not pa.types.is_struct(kind):
            return ".".join([name, *steps[:position]])
        if kind.get_field_index(step) < 0:
            return None
        kind = kind.field(step).type
    return path


def leaves_of(node: Node) -> set[str]:
    """The leaves of silver.event that a predicate looks at."""
    if isinstance(node, Test):
        leaves = {leaf_of(path) for path in inputs(node.field)}
        return {leaf for leaf in leaves if leaf is not None}
    parts = (node.of,) if isinstance(node, Not) else node.of
    return {leaf for part in parts for leaf in leaves_of(part)}


def can_hold(node: Node, gone: Collection[str]) -> bool:
    """Whether a predicate can still be true of some event when these leaves are never filled."""
    if isinstance(node, All):
        return all(can_hold(part, gone) for part in node.of)
    if isinstance(node, Either):
        return any(can_hold(part, gone) for part in node.of)
    if isinstance(node, Not):
        # Conservative: called blind is only what can certainly match nothing.
        return True  # a missing field matches nothing, and `not` of that holds
    if (node.op == "exists" and node.value is False) or (node.op == "eq" and node.value is None):
        return True
    leaves = [leaf_of(path) for path in inputs(node.field)]
    return not all(leaf in gone for leaf in leaves)


def _filled(leaf: str) -> str:
    """SQL that is true where a leaf is filled; lists and texts without anything are not."""
    name, *steps = leaf.split(".")
    kind = event_schema().field(name).type
    for step in steps:
        kind = kind.field(step).type
    column = ".".join(f'"{part}"' for part in leaf.split("."))
    if pa.types.is_list(kind):
        return f"coalesce(len({column}), 0) > 0"
    return f"coalesce({column}, '') <> ''" if pa.types.is_string(kind) else f"{column} IS NOT NULL"


def learn_fields(
    connection: duckdb.DuckDBPyConnection,
    habits: dict[FieldPlace, FieldHabit],
    leaves: Iterable[str],
    gone: Collection[FieldPlace],
    since: datetime,
    until: datetime,
) -> None:
    """Take what was received live in [since, until) into the habits, hour by hour.

    `gone`: places that are called gone until now.
    """
    ordered = sorted(leaves)
    if not ordered or since >= until:
        return
    joined_text = ", ".join(
        # All leaves in one pass: a question for each would read the events as often.
        f"count(*) FILTER ({filled}) AS n{place}, "
        f"epoch(min(received_at) FILTER ({filled})) AS a{place}, "
        f"epoch(max(received_at) FILTER ({filled})) AS z{place}"
        for place, leaf in enumerate(ordered)
        for filled in (_filled(leaf),)
    )
    answer = connection.execute(
        "SELECT source, class_uid, time_bucket(INTERVAL 1 HOUR, received_at) AS hour, "
        f"count(*) AS events, {joined_text} FROM silver.event "
        "WHERE mode = 'live' AND received_at >= $since AND received_at < $until "
        "AND dead_letter_reason IS NULL AND duplicate_of IS NULL AND class_uid IS NOT NULL "
        "AND source NOT IN (SELECT unnest($ours)) GROUP BY ALL ORDER BY hour, source, class_uid",
        {"since": since, "until": until, "ours": list(OURS)},
    )
    for source, class_uid, _, events, *counts in answer.fetchall():
        for place, leaf in enumerate(ordered):
            filled, first, last = counts[3 * place : 3 * place + 3]
            key = (source, int(class_uid), leaf)
            # What a source never fills is no habit, and most fields are of other sources.
            if filled or key in habits:
                habit = habits.setdefault(key, FieldHabit())
                over = key in gone
                habit.take(events, filled, first or 0.0, last or 0.0, over)


def gone_of(habits: Mapping[FieldPlace, FieldHabit], at: float) -> dict[FieldPlace, FieldHabit]:
    """The fields that are gone at an instant."""
    return {place: habit for place, habit in habits.items() if habit.gone(at)}


def as_rows(habits: Mapping[FieldPlace, FieldHabit]) -> list[dict[str, Any]]:
    """Habits to be kept as JSON."""
    return [
        {"place": list(place), **msgspec.structs.asdict(habit)}
        for place, habit in sorted(habits.items())
    ]


def of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[FieldPlace, FieldHabit]:
    """The inverse of `as_rows`."""
    return {
        (row["place"][0], int(row["place"][1]), row["place"][2]): FieldHabit(
            **{name: value for name, value in row.items() if name != "place"}
        )
        for row in rows
    }
