"""What other counts, windows and groups of a correlation would have told of the past.

Findings are gathered once; each choice then runs through the correlator and the alert state that
jobs use. So a figure is what the rule would have told, had nothing come late.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from alerts.backtest.fold import Refold
from alerts.backtest.rerun import FINDINGS_NEED, counted_rows
from alerts.correlation.conditions import NUMERIC, asks_absence
from alerts.correlation.entry import correlation_entry
from alerts.correlation.history import over_history
from alerts.correlation.negation import looks_back
from alerts.domain.alert_body import in_body
from alerts.domain.entity import event_instant, micros
from alerts.domain.verdict import JUDGING_VERDICTS, TRUE_VERDICTS
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation, RulePack
from alerts.tuning.judged_alerts import Ask, Row, named_events
from infra.config.settings import Settings
from infra.errors import Usage

MOST_FINDINGS = 200_000
"""Findings that are held in memory and counted again for each choice: some seconds each."""
MOST_CHOICES = 40

COUNT_TYPES = ("event_count", "value_count", *NUMERIC)
"""Types whose condition is a number of their own choice; of the others only window and group."""

_STEPS = (0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5)
_WINDOWS = (0.5, 1, 2, 4)

_JUDGED = f"""
SELECT alert_id, body, {in_body("verdict")} AS verdict
FROM gold.alert_current
WHERE rule_id = $rule AND window_start >= $since AND window_start < $until
  AND list_contains($verdicts, {in_body("verdict")})
ORDER BY alert_id
"""


@dataclass(frozen=True)
class ThresholdHistory:
    """The findings that a correlation counts in [since, until), and its judged alerts.

    `rows` begin earlier, so that windows which reach into the span are whole. `judged`: by alert
    the verdict and the ids of the events that it names. `since` is no earlier than the first row.
    """

    rows: tuple[Row, ...]
    judged: Mapping[str, tuple[str, tuple[str, ...]]]
    since: datetime
    until: datetime

    @property
    def days(self) -> float:
        """Length of the span, at least one day: a rate of an hour is no rate of a day."""
        return max((self.until - self.since) / timedelta(days=1), 1.0)

    def per_day(self, number: int) -> float:
        """Of a number in the span, how many a day."""
        return round(number / self.days, 2)


@dataclass(frozen=True)
class ThresholdOutcome:
    """What a choice tells in the span: windows that fire, alerts they fold into, judged ones kept.

    `busiest`: most alerts that began on one day, UTC. `passed_over`: findings without a value to
    group by. A judged alert is kept where the choice fires with one of its events, or had fired for
    that group less than a window before.
    """

    fires: int
    alerts: int
    busiest: int
    true_kept: tuple[str, ...]
    noise_kept: tuple[str, ...]
    passed_over: int


def counts_around(definition: Correlation) -> list[int | float]:
    """Counts below and above the one in force, itself among them; none where no count is set."""
    if definition.type not in COUNT_TYPES or asks_absence(definition):
        return []
    now = definition.count
    # A share or a ratio: rounded to whole numbers, all its neighbours would be 0 or 1.
    if isinstance(now, float) and not now.is_integer():
        return sorted({now * step for step in _STEPS})
    return sorted({*(max(1, round(now * step)) for step in _STEPS), int(now)})


def windows_around(definition: Correlation) -> list[int]:
    """Windows below and above the one in force, itself among them, in seconds."""
    return sorted({max(1, round(definition.timespan_seconds * step)) for step in _WINDOWS})


def threshold_history(
    ask: Ask,
    definition: Correlation,
    since: datetime,
    until: datetime,
    *,
    longest_seconds: int,
    confirmed: Callable[[Row], bool] = lambda _: True,
) -> ThresholdHistory:
    """What is counted and what was judged. `longest_seconds`: the longest window to be tried.

    `confirmed` leaves out findings that job `alert` would not count. Raises `Usage` beyond
    `MOST_FINDINGS`, and `Retryable` while the lake lacks the tables.
    """
    before = since - looks_back(definition, longest_seconds)
    params = {"rules": list(definition.rules), "since": before, "until": until}
    (whole,) = ask(
        "SELECT count(*) AS n FROM gold.finding "
        "WHERE list_contains($rules, rule_id) AND event_time >= $since AND event_time <= $until",
        params,
        needs=FINDINGS_NEED,
    )
    if whole["n"] > MOST_FINDINGS:
        raise Usage(
            f"{whole['n']:,} findings to count again, at most {MOST_FINDINGS:,}: choose a later "
            "--since"
        )
    rows = tuple(row for row in counted_rows(ask, definition, "", before, until) if confirmed(row))
    # A lake younger than the span would make every choice look quieter than it is.
    first = event_instant(micros(rows[0]["event_time"])) if rows else since
    params = {"rule": definition.id, "since": since, "until": until}
    judged = ask(
        _JUDGED,
        params | {"verdicts": sorted(JUDGING_VERDICTS)},
        needs=("gold.alert", "gold.alert_current"),
    )
    named = {
        row["alert_id"]: (row["verdict"], tuple(uid for uid, _ in named_events(row)[0]))
        for row in judged
    }
    return ThresholdHistory(rows, named, max(since, first), until)


def evaluate_threshold(
    definition: Correlation, history: ThresholdHistory, settings: Settings
) -> ThresholdOutcome:
    """What the correlation tells of this history; it alerts even where it is muted today."""
    # Without those that count it in turn: their alerts are not what is chosen here.
    definition = msgspec.structs.replace(definition, alerting=True, feeds=())
    since, until = micros(history.since), micros(history.until)
    every = over_history(definition, history.rows, until)
    windows = sorted(every, key=lambda row: row["event_time"])
    fires = sum(since <= micros(row["event_time"]) < until for row in windows)
    raised = [us for us in _alerts(definition, windows, settings) if since <= us < until]
    days = Counter(event_instant(us).date() for us in raised)
    kept = _kept(definition, windows, history)
    return ThresholdOutcome(
        fires=fires,
        alerts=len(raised),
        busiest=max(days.values(), default=0),
        true_kept=tuple(a for a in kept if history.judged[a][0] in TRUE_VERDICTS),
        noise_kept=tuple(a for a in kept if history.judged[a][0] not in TRUE_VERDICTS),
        passed_over=sum(correlation_entry(definition, row) is None for row in history.rows),
    )


def unplaced_alerts(history: ThresholdHistory) -> tuple[str, ...]:
    """Judged alerts none of whose events is among the findings any more: no choice keeps them."""
    present = {row["event_uid"] for row in history.rows}
    return tuple(a for a, (_, uids) in history.judged.items() if not present.intersection(uids))


def _alerts(definition: Correlation, windows: Sequence[Row], settings: Settings) -> list[int]:
    """When each alert was raised, microseconds: repeats fold as in job `alert`."""
    pack = RulePack(correlations=(definition,))
    refold = Refold(lambda _: pack, settings, [definition.id])
    refold.run(
        row | {"attr_rev": -1, "via": "outside", "available_at": row["event_time"]}
        for row in windows
    )
    return [alert.raised for alert in refold.alerts.values()]


def _kept(
    definition: Correlation, windows: Sequence[Row], history: ThresholdHistory
) -> tuple[str, ...]:
    """Judged alerts that the windows, each with the rest after it, tell of."""
    rest = definition.span
    spans: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for row in windows:
        # In the form in which `correlation_entry` gives the group of a finding.
        group = tuple(fold(str(row["fields"][name])) for name in definition.group_by)
        spans[group].append((micros(row["window_start"]), micros(row["event_time"]) + rest))
    named = {uid for _, uids in history.judged.values() for uid in uids}
    # What no judged alert names decides nothing here, and need not be looked up.
    covered = _covered(definition, [r for r in history.rows if r["event_uid"] in named], spans)
    return tuple(a for a, (_, uids) in history.judged.items() if covered.intersection(uids))


def _covered(
    definition: Correlation,
    rows: Sequence[Row],
    spans: Mapping[tuple[str, ...], Collection[tuple[int, int]]],
) -> set[str]:
    """Events whose findings lie in a span of their group."""
    covered: set[str] = set()
    for row in rows:
        entry = correlation_entry(definition, row)
        if entry is None:
            continue
        if any(start <= entry.time <= end for start, end in spans.get(tuple(entry.group), ())):
            covered.add(entry.event_uid)
    return covered


def threshold_choices(
    grouped: Sequence[Correlation],
    counts: Sequence[int | float],
    windows: Sequence[int],
    current: Correlation,
) -> list[Correlation]:
    """Every count with every window and group; `grouped` are definitions that differ in group.

    Empty `counts` or `windows`: the one in force. Raises `Usage` beyond `MOST_CHOICES`.
    """
    made = [
        msgspec.structs.replace(definition, count=count, timespan_seconds=window)
        for definition in grouped
        for window in windows or [current.timespan_seconds]
        for count in counts or [current.count]
    ]
    if len(made) > MOST_CHOICES:
        raise Usage(f"{len(made)} choices; at most {MOST_CHOICES} are tried at once")
    return made


def is_same(one: Correlation, other: Correlation) -> bool:
    """Whether both have the same count, window and group."""
    keys = ("count", "timespan_seconds", "group_by")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def timespan_text(seconds: int) -> str:
    """Seconds as Sigma writes a time span: 90s, 10m, 2h, 7d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
