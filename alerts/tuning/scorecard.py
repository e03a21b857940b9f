"""How each rule in force does: volume, precision by verdicts, cost, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from alerts.domain.alert_body import in_body
from alerts.tuning.verdict_counts import BY_RULE, NEEDS, TRUE_SQL, share_bounds
from infra.errors import Retryable

Row = dict[str, Any]
Ask = Callable[..., list[Row]]
"""`ask(sql, params, needs=tables)` gives rows as dictionaries."""

Recommendation = Literal["keep", "tune", "retire", "too few verdicts", "none"]
"""`none`: of a rule without alerts there is nothing to judge."""

LEAST_JUDGED = 5
"""Verdicts below which nothing is recommended."""
MANY_JUDGED = 30
"""Verdicts from which the share itself decides, where its bounds still lie on both sides."""
WANTED = 0.5
"""Share of judged alerts that ought to be true: below it a rule wants tuning."""
HOPELESS = 0.2
"""A rule without any true positive goes when its share is below this with 95 % confidence."""

_WEEK = timedelta(days=7)
_TRUE = f"""
SELECT rule_id, max(event_time) AS newest FROM gold.alert_current
WHERE ($only IS NULL OR rule_id = $only)
  AND {in_body("verdict")} IN ({TRUE_SQL}) GROUP BY rule_id
"""
_OF_ONE = f"SELECT * FROM ({BY_RULE}) WHERE rule_id = $only"
_FIRED = """
SELECT rule_id, max(event_time) AS newest, min(event_time) AS oldest
FROM gold.findings GROUP BY rule_id
"""
# `at` in quotes: it is a word of DuckDB's own.
_COST = """
WITH part AS (
  SELECT unnest(map_entries(rules)) AS spent
  FROM ops.rule_cost WHERE "at" >= $since AND "at" < $until
)
SELECT spent.key AS rule_id, sum(spent.value.us)::DOUBLE / 1e6 AS seconds FROM part GROUP BY 1
"""


@dataclass(frozen=True)
class RuleScore:
    """A rule in a span. `precision`: true among those judged; bounds with 95 % confidence.

    `judged` counts true_positive (suspicious among them), false_positive and benign; `other`
    are verdicts that say nothing of the rule. `close_seconds`: median from opened to closed.
    `cpu_seconds`: spent confirming its candidates; None: not measured. `last_true_positive` and
    `last_fired` look at all that is retained.
    """

    rule_id: str
    name: str
    title: str
    level: str
    alerts: int
    per_week: float
    judged: int
    true_positive: int
    false_positive: int
    benign: int
    other: int
    unjudged: int
    precision: float | None
    precision_low: float
    precision_high: float
    close_seconds: float | None
    cpu_seconds: float | None
    blindness: str
    last_true_positive: datetime | None
    last_fired: datetime | None
    recommendation: Recommendation
    reason: str


@dataclass(frozen=True)
class Scorecard:
    """The rules, most alerts first. `covered`: part of the span from the first finding on;
    `elsewhere`: alerts of rules that are not in force, such as removed ones."""

    since: datetime
    until: datetime
    covered: timedelta
    rules: tuple[RuleScore, ...]
    elsewhere: int


def scorecard(
    ask: Ask, rules: Sequence[Row], since: datetime, until: datetime, only: str | None = None
) -> Scorecard:
    """The scores of rules, as `rule_rows` gives them; those that are off are left out.

    `only`: the id of the one rule whose alerts are looked at; none are then counted elsewhere.
    Raises `Retryable` as long as gold.alert or gold.finding cannot be read.
    """
    params: dict[str, Any] = {"since": since, "until": until, "made": until}
    question = BY_RULE
    if only is not None:
        question, params = _OF_ONE, params | {"only": only}
    counted = {row["rule_id"]: row for row in ask(question, params, needs=NEEDS)}
    fired = {
        row["rule_id"]: row for row in ask(_FIRED, {}, needs=("gold.finding", "gold.findings"))
    }
    true = {row["rule_id"]: row["newest"] for row in ask(_TRUE, {"only": only}, needs=NEEDS)}
    cost = _cost(ask, since, until)
    # A lake younger than the span would make every rule look quieter than it is.
    oldest = min((row["oldest"] for row in fired.values()), default=since)
    # At least a day: right after the first finding a rate a week would be made of minutes.
    covered = max(until - max(since, oldest), timedelta(days=1))
    running = [rule for rule in rules if not rule["state"].startswith(("off", "untrained"))]
    scores = [
        _score(
            rule,
            counted.get(rule["id"], {}),
            covered,
            cpu_seconds=None if cost is None else cost.get(rule["id"], 0.0),
            last_true_positive=true.get(rule["id"]),
            last_fired=fired.get(rule["id"], {}).get("newest"),
        )
        for rule in running
    ]
    scores.sort(key=lambda score: (-score.alerts, score.title, score.rule_id))
    in_force = {rule["id"] for rule in running}
    elsewhere = sum(row["alerts"] for rule_id, row in counted.items() if rule_id not in in_force)
    return Scorecard(since, until, covered, tuple(scores), elsewhere)


def _cost(ask: Ask, since: datetime, until: datetime) -> dict[str, float] | None:
    """CPU seconds by rule; None where nothing was measured, say in a lake of an earlier release."""
    try:
        rows = ask(_COST, {"since": since, "until": until}, needs=("ops.rule_cost",))
    except Retryable:
        return None
    # No row at all means that nothing was measured, which is not zero seconds.
    return {row["rule_id"]: row["seconds"] for row in rows} or None


def _score(
    rule: Row,
    counts: Mapping[str, Any],
    covered: timedelta,
    *,
    cpu_seconds: float | None,
    last_true_positive: datetime | None,
    last_fired: datetime | None,
) -> RuleScore:
    alerts, judged = counts.get("alerts", 0), counts.get("judged", 0)
    true = counts.get("true_positive", 0)
    low, high = share_bounds(true, judged)
    recommendation, reason = advise(
        true,
        judged,
        alerts,
        ever_true=last_true_positive is not None,
        alerting=rule["alerts"] == "yes",
    )
    if rule["sees"]:
        # Whatever its verdicts say, what it cannot see it cannot find.
        reason += f"; {rule['sees']}"
    return RuleScore(
        rule_id=rule["id"],
        name=rule["name"] or "",
        title=rule["title"],
        level=rule["level"],
        alerts=alerts,
        per_week=round(alerts * (_WEEK / covered), 1),
        judged=judged,
        true_positive=true,
        false_positive=counts.get("false_positive", 0),
        benign=counts.get("benign", 0),
        other=counts.get("other", 0),
        unjudged=counts.get("unjudged", 0),
        precision=round(true / judged, 3) if judged else None,
        precision_low=round(low, 3),
        precision_high=round(high, 3),
        close_seconds=counts.get("close"),
        cpu_seconds=cpu_seconds if cpu_seconds is None else round(cpu_seconds, 3),
        blindness=rule["sees"],
        last_true_positive=last_true_positive,
        last_fired=last_fired,
        recommendation=recommendation,
        reason=reason,
    )


def advise(
    true: int, judged: int, alerts: int, *, ever_true: bool, alerting: bool = True
) -> tuple[Recommendation, str]:
    """What to do about a rule and why, from how many of its judged alerts were true.

    `ever_true`: whether any alert of it was, in all that is retained.
    """
    if not alerting and not alerts:
        return "none", "its findings make no alerts by themselves"
    if not alerts:
        return "none", "no alert in this time"
    if judged < LEAST_JUDGED:
        return "too few verdicts", f"{judged} of {alerts} alerts judged; {LEAST_JUDGED} are needed"
    low, high = share_bounds(true, judged)
    bounds = f"{true} of {judged} judged were true, {low:.0%} to {high:.0%} with 95% confidence"
    # Before `tune`, whose bound every hopeless rule is below as well.
    if not ever_true and high < HOPELESS:
        return "retire", f"{bounds}, and none before"
    if high < WANTED or (judged >= MANY_JUDGED and true / judged < WANTED):
        return "tune", bounds
    if low >= WANTED or judged >= MANY_JUDGED:
        return "keep", bounds
    return "too few verdicts", f"{bounds}: too wide to tell"
