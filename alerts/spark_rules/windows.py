"""Which windows of event time new events lie in, and what to read to look at them again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from math import gcd

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from alerts.domain.entity import event_instant
from alerts.rulepack.rule_pack import Query

_Span = tuple[int, int]
"""[since, until), microseconds."""

MOST_SPANS = 50
"""Spans of time that one question asks for; of more, those with the least between them are one."""


@dataclass(frozen=True)
class Touched:
    """Where in time new events lie: numbers of slots of `slot` microseconds since 1970."""

    slots: frozenset[int]
    slot: int
    received: datetime
    """Newest arrival among them, UTC."""

    def starts(self, query: Query) -> frozenset[int]:
        """Starts of the query's windows that an event may lie in, microseconds."""
        window, slide = query.window_seconds * 1_000_000, query.slide_seconds * 1_000_000
        # Windows that slide overlap: an event lies in as many as fit into one window's length.
        newest = {slot * self.slot // slide * slide for slot in self.slots}
        return frozenset(first - back for first in newest for back in range(0, window, slide))

    def spans(self, query: Query) -> list[_Span]:
        """The time that these windows cover."""
        return window_spans(self.starts(query), query.window_seconds * 1_000_000)


def touched(events: DataFrame, queries: Iterable[Query]) -> Touched | None:
    """Where these events lie, as finely as the queries' windows begin; None without events."""
    # The greatest common divisor: one pass over the events serves the windows of all queries.
    slot = reduce(gcd, (query.slide_seconds for query in queries)) * 1_000_000
    place = F.floor(F.unix_micros("time") / F.lit(slot))
    newest = F.max(F.unix_micros("received_at"))
    row = events.agg(F.collect_set(place).alias("slots"), newest.alias("newest")).first()
    if row is None or not row["slots"]:
        return None
    return Touched(frozenset(row["slots"]), slot, event_instant(row["newest"]))


def window_spans(starts: Iterable[int], length: int, most: int = MOST_SPANS) -> list[_Span]:
    """The time that windows of `length` from these starts cover, in at most `most` spans."""
    merged: list[_Span] = []
    for start in sorted(starts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], start + length)
        else:
            merged.append((start, start + length))
    while len(merged) > most:
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(merged)]
        # The smallest gap first: it costs the least to read what lies in between.
        position = gaps.index(min(gaps))
        merged[position : position + 2] = [(merged[position][0], merged[position + 1][1])]
    return merged


def within(spans: Iterable[_Span]) -> Column:
    """Whether an event's `time` lies in one of some spans."""
    column = F.col("time")
    inside = [
        (column >= F.lit(event_instant(since))) & (column < F.lit(event_instant(until)))
        for since, until in spans
    ]
    return reduce(Column.__or__, inside, F.lit(False))


def whole_windows(spans: Iterable[_Span], query: Query) -> Column:
    """Whether a finding's window lies in one of some spans with all its rows."""
    start, length = F.unix_micros("window_start"), query.window_seconds * 1_000_000
    # Windows at the edge were read in part; what a query says of them would be wrong.
    inside = [(start >= since) & (start <= until - length) for since, until in spans]
    return reduce(Column.__or__, inside, F.lit(False))
