"""Histories of findings for the tests of correlations: rows, arrivals, and DuckDB as the judge."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import duckdb
import msgspec

from alerts.correlation.conditions import asks_absence
from alerts.correlation.group import SETTLE
from alerts.domain.finding import identity
from alerts.lifecycle.bucket_state import BucketState
from alerts.rulepack.rule_pack import Correlation, RulePack
from infra.config.settings import AlertSettings

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
RULES = ("a", "b", "c")
SPAN = 60
END = 3_000
"""Seconds after noon at which every story ends, long after its last finding."""
OPS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "eq": "=", "neq": "<>"}


class Point(NamedTuple):
    """One finding: when (seconds after noon), of which rule, in which group, with which value."""

    number: int
    second: int
    rule: str
    group: str
    value: str | None


def correlation(**keys: Any) -> Correlation:
    plain = Correlation(
        id="many",
        title="Many",
        type="event_count",
        rules=RULES,
        group_by=("user.name",),
        timespan_seconds=SPAN,
        count=3,
        field="traffic.bytes_out",
    )
    return msgspec.structs.replace(plain, **keys)


def row(point: Point, delay: float = 0, target: str = "many") -> dict[str, Any]:
    """The point as the alert state sees it, received `delay` seconds after it happened."""
    at = NOON + timedelta(seconds=point.second)
    uid = f"e{point.number}"
    return {
        "row_kind": "finding",
        "target": target,
        "finding_id": identity(point.rule, uid),
        "rule_id": point.rule,
        "event_uid": uid,
        "event_time": at,
        "received_at": at + timedelta(seconds=delay),
        "pack": "p",
        "source": "test",
        "mode": "live",
        "role": "device",
        "user_name": point.group,
        "fields": {} if point.value is None else {"traffic.bytes_out": point.value},
        "snippet": uid,
    }


def tick(second: float) -> dict[str, Any]:
    return {"row_kind": "tick", "target": None, "tick": NOON + timedelta(seconds=second)}


def cut(rows: Sequence[Any], chance: random.Random) -> list[list[Any]]:
    """The rows in batches of random size, none of them lost."""
    batches, at = [], 0
    while at < len(rows):
        size = chance.randint(1, 6)
        batches.append(list(rows[at : at + size]))
        at += size
    return batches


def delayed(points: Iterable[Point], chance: random.Random) -> list[dict[str, Any]]:
    """The points in an order of arrival with none later than a window stays open."""
    limit = SETTLE // 1_000_000
    rows = [row(point, chance.randint(0, limit)) for point in points]
    return sorted(rows, key=lambda r: (r["received_at"], r["finding_id"]))


def streamed(
    definition: Correlation, batches: Iterable[Sequence[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What the alert state tells over the batches, its memory through bytes after each."""
    pack = RulePack(correlations=(definition,))
    state, told = BucketState(), []
    for batch in [*batches, [tick(END)]]:
        outputs = state.step(batch, lambda _: pack, AlertSettings(), 0)
        told += [out["row"] for out in outputs if out["out"] == "finding"]
        state = BucketState.decode(state.encode())
    return told


def ends(rows: Iterable[dict[str, Any]]) -> set[tuple[str, int]]:
    """(group, second the window ended) of what was told, spelt as the judge spells it."""
    return {
        (r["fields"]["user.name"].lower(), int((r["event_time"] - NOON).total_seconds()))
        for r in rows
    }


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


class Judge:
    """Sigma's windows as SQL: every instant with a finding ends one, both ends included.

    One judge at a time: the next one takes over its tables.
    """

    def __init__(self, definition: Correlation, points: Iterable[Point]) -> None:
        self.definition = definition
        self.db = _database()
        self.db.execute("CREATE OR REPLACE TABLE f (id INT, t INT, rule TEXT, g TEXT, v TEXT)")
        rows = [(p.number, p.second, p.rule, p.group.lower(), p.value) for p in points]
        if rows:
            self.db.executemany("INSERT INTO f VALUES (?, ?, ?, ?, ?)", rows)
        if definition.none_of is msgspec.UNSET:
            self.db.execute(f"CREATE OR REPLACE TABLE occurrence AS {self._occurrences()}")
            return
        self.db.execute("CREATE OR REPLACE TABLE occurrence (g TEXT, t INT)")
        if pairs := [list(pair) for pair in without(definition, rows)]:
            self.db.executemany("INSERT INTO occurrence VALUES (?, ?)", pairs)

    def occurrences(self) -> set[tuple[str, int]]:
        """Every window that fulfils the condition: (group, end)."""
        return set(self.db.execute("SELECT g, t FROM occurrence").fetchall())

    def firings(self) -> set[tuple[str, int]]:
        """The first of them in each group, and the first after each rest of a timespan."""
        span = self.definition.timespan_seconds
        query = f"""WITH RECURSIVE firing AS (
            SELECT g, min(t) AS t FROM occurrence GROUP BY g
            UNION ALL
            SELECT o.g, min(o.t) FROM firing JOIN occurrence o
            ON o.g = firing.g AND o.t > firing.t + {span} GROUP BY o.g
        ) SELECT g, t FROM firing"""
        return set(self.db.execute(query).fetchall())

    def _occurrences(self) -> str:
        what, span = self.definition, self.definition.timespan_seconds
        if asks_absence(what):
            return f"""
                SELECT DISTINCT a.g, a.t + {span} AS t FROM f a
                WHERE NOT EXISTS (
                    SELECT 1 FROM f m WHERE m.g = a.g AND m.t > a.t AND m.t <= a.t + {span})"""
        number = "TRY_CAST(m.v AS DOUBLE)"
        metric = {
            "event_count": "count(DISTINCT m.id)",
            "value_count": "count(DISTINCT lower(m.v))",
            "value_sum": f"sum({number})",
            "value_avg": f"avg({number})",
            "value_median": f"quantile_cont({number}, 0.5)",
            "value_percentile": f"quantile_cont({number}, {(what.percentile or 0) / 100})",
        }.get(what.type, "count(DISTINCT m.rule)")
        return f"""
            SELECT a.g, a.t FROM (SELECT DISTINCT g, t FROM f) a
            JOIN f m ON m.g = a.g AND m.t BETWEEN a.t - {span} AND a.t
            GROUP BY a.g, a.t HAVING {self._condition(metric)} AND {self._sequence()}"""

    def _condition(self, metric: str) -> str:
        """The number in its range; of an expression over rules, one of its sets as a whole."""
        what = self.definition
        if what.any_of is not msgspec.UNSET:
            sets = [
                " AND ".join(f"bool_or(m.rule = '{rule}')" for rule in rules)
                for rules in what.any_of
            ]
            return f"({' OR '.join(sets)})"
        upper = "" if what.upper is msgspec.UNSET else f" AND {metric} {OPS[what.upper[0]]} "
        last = "" if what.upper is msgspec.UNSET else str(what.upper[1])
        return f"{metric} {OPS[what.op]} {what.count}{upper}{last}"

    def _sequence(self) -> str:
        """For temporal_ordered: some choice of as many rules as needed, each after the last."""
        if self.definition.type != "temporal_ordered":
            return "true"
        span = self.definition.timespan_seconds
        choices = []
        any_of = self.definition.any_of
        chains = combinations(RULES, int(self.definition.count))
        for rules in chains if any_of is msgspec.UNSET else any_of:
            tables = ", ".join(f"f AS s{n}" for n in range(len(rules)))
            tests = [
                f"s{n}.rule = '{rule}' AND s{n}.g = a.g AND s{n}.t BETWEEN a.t - {span} AND a.t"
                for n, rule in enumerate(rules)
            ]
            tests += [f"s{n}.t < s{n + 1}.t" for n in range(len(rules) - 1)]
            choices.append(f"EXISTS (SELECT 1 FROM {tables} WHERE {' AND '.join(tests)})")
        return f"({' OR '.join(choices)})"


Plain = tuple[int, int, str, str, str | None]
"""Number, second, rule, group, value."""


def without(definition: Correlation, rows: Sequence[Plain]) -> set[tuple[str, int]]:
    """(group, second it is known) of an expression with `not`, by trying every choice of findings.

    At each instant the choice counts whose findings are the latest, of the last in order first.
    """
    assert definition.any_of is not msgspec.UNSET
    assert definition.none_of is not msgspec.UNSET
    ways = list(zip(definition.any_of, definition.none_of, strict=True))
    ordered, span = definition.type == "temporal_ordered", definition.timespan_seconds
    last = [max(definition.rules.index(rule) for rule in fire) for fire, _ in ways]
    ahead = any(
        not ordered or definition.rules.index(rule) > last[number]
        for number, (_, never) in enumerate(ways)
        for rule in never
    )

    def together(findings: Sequence[tuple[str, int]]) -> bool:
        """Whether they fit in one timespan and, where order counts, come in order."""
        seconds = [second for _, second in sorted(findings, key=by_rule)]
        fits = max(seconds) - min(seconds) <= span
        return fits and not (ordered and any(a >= b for a, b in pairwise(seconds)))

    def by_rule(finding: tuple[str, int]) -> int:
        return definition.rules.index(finding[0])

    true = set()
    for group, end in {(g, t) for _, t, _, g, _ in rows}:
        mine = [(rule, t) for _, t, rule, g, _ in rows if g == group]
        for fire, never in ways:
            choices = [[f for f in mine if f[0] == rule and f[1] <= end] for rule in fire]
            fitting = [c for c in product(*choices) if together(c) and max(t for _, t in c) == end]
            if not fitting:
                continue
            latest = max(fitting, key=lambda c: [t for _, t in sorted(c, key=by_rule)][::-1])
            if not any(together([*latest, f]) for f in mine if f[0] in never):
                true.add((group, end + span * ahead))
    return true
