"""Two versions of rules over the same history: what one tells more, less, and the same."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import duckdb

from alerts.backtest.fold import Brief


@dataclass(frozen=True)
class _Difference:
    """Alerts of one version that the other has not, and those that both have."""

    gained: tuple[Brief, ...]
    lost: tuple[Brief, ...]
    same: tuple[Brief, ...]


@dataclass(frozen=True)
class _Counted:
    """How many events (rule and event) one version found more, less, and the same."""

    gained: int
    lost: int
    same: int


def compare_alerts(new: Iterable[Brief], old: Iterable[Brief], by_rule: bool) -> _Difference:
    """Alerts of `new` against those of `old`.

    Two alerts are the same when they are about one entity and their spans meet:
    a retuned rule may well begin or end elsewhere. `by_rule`: only alerts of one
    rule id are; not so when a draft stands against a rule with another id.
    """
    ours, theirs = list(new), list(old)
    met, met_back = _Meets(theirs, by_rule), _Meets(ours, by_rule)
    return _Difference(
        gained=tuple(our for our in ours if not met(our)),
        lost=tuple(our for our in theirs if not met_back(our)),
        same=tuple(our for our in ours if met(our)),
    )


class _Meets:
    """Whether some alert among many is about the same entity at the same time."""

    def __init__(self, alerts: Iterable[Brief], by_rule: bool) -> None:
        self._by_rule = by_rule
        spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for alert in alerts:
            spans[self._key(alert)].append((alert.first, alert.last))
        # By begin, with the latest end of all that begin no later.
        self._spans = {
            key: [(first, end) for (first, _), end in zip(sorted(each), _latest(each), strict=True)]
            for key, each in spans.items()
        }

    def __call__(self, one: Brief) -> bool:
        spans = self._spans.get(self._key(one), [])
        # With the latest end so far beside each begin, one look tells whether any of them meets it.
        position = bisect_right(spans, one.last, key=lambda span: span[0])
        return position > 0 and spans[position - 1][1] >= one.first

    def _key(self, one: Brief) -> tuple[str, str]:
        return (one.rule_id if self._by_rule else "", one.key)


def _latest(spans: Iterable[tuple[int, int]]) -> Iterable[int]:
    return accumulate((last for _, last in sorted(spans)), max)


def compare_findings(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[Path],
    packs: tuple[str, str],
    ids: tuple[Collection[str], Collection[str]],
    span: tuple[object, object],
) -> _Counted:
    """Events that the rules `ids` of two packs found in a span, of findings in Parquet files."""
    if not files:
        return _Counted(0, 0, 0)
    gained, lost, same = connection.execute(
        _FINDINGS,
        {
            "files": [str(file) for file in files],
            "new": packs[0],
            "old": packs[1],
            "new_ids": list(ids[0]),
            "old_ids": list(ids[1]),
            "since": span[0],
            "until": span[1],
            "by_rule": set(ids[0]) == set(ids[1]),
        },
    ).fetchall()[0]
    return _Counted(int(gained), int(lost), int(same))


_FINDINGS = """
WITH found AS (
  SELECT event_uid, CASE WHEN $by_rule THEN rule_id ELSE '' END AS rule,
         bool_or(pack = $new AND list_contains($new_ids, rule_id)) AS new,
         bool_or(pack = $old AND list_contains($old_ids, rule_id)) AS old
  FROM read_parquet($files)
  WHERE event_time >= $since AND event_time < $until
  GROUP BY ALL
)
SELECT count(*) FILTER (WHERE new AND NOT old), count(*) FILTER (WHERE old AND NOT new),
       count(*) FILTER (WHERE new AND old)
FROM found
"""
