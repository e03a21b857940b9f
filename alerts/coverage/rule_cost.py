"""What rules cost: predicted from a sample of silver.event, and as job `ingest` measured it.

The prediction runs the live matcher over real events. What a rule costs alone is
more than it adds to a pack, whose rules share the search for their literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from time import process_time

import duckdb
import pyarrow as pa

from alerts.domain.finding import event_schema
from alerts.matching.matcher import Cost, Matcher, columns_read
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Rule, RulePack
from ingest.parsing.source import MODES

SLICES = 40
"""Places in the span that a sample is taken from: hours and days differ."""

_BATCH_ROWS = 10_000
ROUNDS = 3
"""Each rule runs over the sample so often; the least time counts, the others were disturbed."""

DEAR_MICROS = 5.0
"""CPU time an event above which a rule is called dear: a thousand such rules are 200 events/s."""

DEAR_SHARE = 0.1
"""Share of its log source's events above which it is dear, when they are confirmed one by one
for nothing, or loud, when they match."""

_NEVER = Rule(id="never", title="", classes=(-1,), predicate=Test("message", "eq", ""))
"""A rule for events that there are not: what remains is the matcher's own work."""

_LIMITED = """
SELECT {columns} FROM silver.event
WHERE time >= $since AND time < $until AND source <> '_heartbeat' LIMIT {most}
"""
_RATE = """
SELECT count(*), min(time), max(time) FROM silver.event
WHERE time >= $since AND time < $until AND source <> '_heartbeat'
"""
_LIVE = """
WITH part AS (
  SELECT pack, unnest(map_entries(rules)) AS one
  FROM ops.rule_cost WHERE "at" >= $since AND "at" < $until
)
SELECT one.key AS rule_id, max(pack) AS pack, sum(one.value.events)::BIGINT AS events,
       sum(one.value.candidates)::BIGINT AS candidates, sum(one.value.hits)::BIGINT AS hits,
       sum(one.value.us)::BIGINT AS us
FROM part GROUP BY one.key ORDER BY us DESC, rule_id
"""
_WHOLE = """
SELECT coalesce(sum(events), 0)::BIGINT, coalesce(sum(match_us), 0)::BIGINT
FROM ops.rule_cost WHERE "at" >= $since AND "at" < $until
"""


@dataclass(frozen=True)
class Sample:
    """Events from all over a span, how many the whole span has, and how long they took to come."""

    batches: tuple[pa.RecordBatch, ...]
    events: int
    in_span: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Events a second, from the first to the last."""
        return self.in_span / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Predicted:
    """What a rule would cost. `per_million`: of all events; times are CPU microseconds an event."""

    rule_id: str
    title: str
    events_per_million: int
    candidates_per_million: int
    hits_per_million: int
    micros_per_event: float
    cpu_percent: float
    """Of one core, at the rate of the sample's span."""
    hits_per_day: float
    verdict: str


@dataclass(frozen=True)
class Live:
    """What a rule cost job `ingest` in a span; `us` is the time spent confirming its candidates."""

    rule_id: str
    pack: str
    events: int
    candidates: int
    hits: int
    us: int


def sample(
    connection: duckdb.DuckDBPyConnection,
    rules: Sequence[Rule],
    since: datetime,
    until: datetime,
    most: int,
) -> Sample:
    """At most `most` events, in equal parts from `SLICES` places of the span."""
    needed = columns_read(RulePack(rules=tuple(rules)))
    schema = event_schema()
    fields = pa.schema([schema.field(name) for name in needed])
    columns = ", ".join(f'"{name}"' for name in needed)
    # LIMIT in each slice: DuckDB stops reading there, where a random sample would read all.
    question = _LIMITED.format(columns=columns, most=max(1, most // SLICES))
    asked = {"since": since, "until": until}
    in_span, first, last = connection.execute(_RATE, asked).fetchall()[0]
    if not in_span:
        return Sample((), 0, 0, 0.0)
    # A lake younger than the span has its events in a part of it.
    end = last + timedelta(microseconds=1)
    bounds = [*(first + n * (end - first) / SLICES for n in range(SLICES)), end]
    batches: list[pa.RecordBatch] = []
    for begin, until_then in pairwise(bounds):
        span = {"since": begin, "until": until_then}
        # By itself DuckDB makes room for a million rows at once, gigabytes where they are wide.
        cast = connection.execute(question, span).to_arrow_table(_BATCH_ROWS).cast(fields)
        # In batches of the size that job `ingest` hands over: the cost of a call counts in.
        batches += cast.combine_chunks().to_batches(_BATCH_ROWS)
    seconds = (last - first).total_seconds()
    return Sample(tuple(batches), sum(b.num_rows for b in batches), int(in_span), seconds)


def predict(
    rules: Sequence[Rule],
    taken: Sample,
    tell: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = process_time,
) -> Iterator[Predicted]:
    """What each rule costs alone. `tell` hears how many are through; `clock` is CPU seconds."""
    # What the matcher costs without any rule is taken off, or each rule would carry it.
    idle, _ = _timed(_NEVER, taken, clock)
    for number, rule in enumerate(rules, 1):
        seconds, cost = _timed(rule, taken, clock)
        yield predicted(rule, cost, max(0.0, seconds - idle), taken)
        tell(number)


def predicted(rule: Rule, cost: Cost, seconds: float, taken: Sample) -> Predicted:
    """A rule's cost as numbers a person can weigh, from what the sample took."""
    events = max(1, taken.events)
    micros = seconds * 1e6 / events
    per_second = taken.per_second
    return Predicted(
        rule_id=rule.id,
        title=rule.title,
        events_per_million=round(cost.rows * 1e6 / events),
        candidates_per_million=round(cost.candidates * 1e6 / events),
        hits_per_million=round(cost.hits * 1e6 / events),
        micros_per_event=round(micros, 3),
        cpu_percent=round(micros * per_second / 1e4, 3),
        hits_per_day=round(cost.hits / events * per_second * 86_400, 1),
        verdict=_verdict(cost, micros),
    )


def _verdict(cost: Cost, micros: float) -> str:
    if not cost.rows:
        return "no events of its log source"
    # Before `dear`: what matches so often has as many candidates, and no literal would help.
    if cost.hits > DEAR_SHARE * cost.rows:
        return "loud: narrow its condition"
    if micros > DEAR_MICROS or cost.candidates - cost.hits > DEAR_SHARE * cost.rows:
        return "dear: give it a rarer literal"
    return "cheap"


def _timed(rule: Rule, taken: Sample, clock: Callable[[], float]) -> tuple[float, Cost]:
    """Seconds over the sample, the least of some rounds, and what the last of them counted."""
    least = float("inf")
    for _ in range(ROUNDS):
        matcher = Matcher(RulePack(rules=(rule,)), MODES)
        began = clock()
        for batch in taken.batches:
            matcher.match(batch)
        least = min(least, clock() - began)
    return least, matcher.costs()[rule.id]


def live_costs(
    connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime
) -> tuple[list[Live], int, int]:
    """What each rule cost in a span, the dearest first; events matched, and microseconds in all."""
    asked = {"since": since, "until": until}
    rows = [Live(*row) for row in connection.execute(_LIVE, asked).fetchall()]
    events, micros = connection.execute(_WHOLE, asked).fetchall()[0]
    return rows, int(events), int(micros)
