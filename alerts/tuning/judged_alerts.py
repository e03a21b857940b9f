"""A rule's alerts with their verdicts and events, as the tables have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from alerts.domain.alert_body import in_body, readable_body
from alerts.domain.verdict import JUDGING_VERDICTS, NOISE_VERDICTS, TRUE_VERDICTS
from alerts.rulepack.event_paths import event_paths
from alerts.tuning.filters import FIELDS, JudgedAlert

Row = dict[str, Any]
Ask = Callable[..., list[Row]]

MOST_ALERTS = 5_000
"""Unjudged alerts that are looked at, the newest; judged ones are looked at all."""
_AT_ONCE = 500
"""Ids of one question."""

_ALERTS = f"""
SELECT alert_id, window_start AS began, body,
       nullif({in_body("verdict")}, '') AS verdict
FROM gold.alert_current WHERE rule_id = $rule
QUALIFY verdict IS NOT NULL
  OR row_number() OVER (PARTITION BY verdict IS NULL ORDER BY event_time DESC, alert_id) <= $most
ORDER BY began, alert_id
"""
_EVENTS = """
SELECT {columns} FROM silver.event
WHERE time >= $since AND time <= $until AND list_contains($uids, event_uid)
"""


@dataclass(frozen=True)
class RuleHistory:
    """What can be learned from. `verdicts`: alerts of each verdict in all, '' for none judged.

    `without_events`: ids by verdict of alerts whose events are not all in silver.event any more;
    `partly`: alerts that show only a sample of their events. `older`: noise judged in alerts that
    began before the span: it is not to be removed. `left_out`: unjudged alerts beyond the limit.
    """

    alerts: tuple[JudgedAlert, ...]
    verdicts: dict[str, int]
    without_events: dict[str, tuple[str, ...]]
    partly: int
    older: int
    left_out: int

    @property
    def judged(self) -> int:
        """Alerts with a verdict that tells something of the rule."""
        return sum(self.verdicts.get(verdict, 0) for verdict in JUDGING_VERDICTS)


def rule_history(ask: Ask, rule_id: str, since: datetime) -> RuleHistory:
    """All retained alerts of a rule; noise counts as such if it began since then."""
    needs = ("gold.alert", "gold.alert_current")
    rows = ask(_ALERTS, {"rule": rule_id, "most": MOST_ALERTS}, needs=needs)
    (whole,) = ask(
        "SELECT count(*) AS n FROM gold.alert_current WHERE rule_id = $rule",
        {"rule": rule_id},
        needs=needs,
    )
    shown = {row["alert_id"]: named_events(row) for row in rows}
    events = _events(ask, [pair for pairs, _ in shown.values() for pair in pairs])
    alerts, verdicts, lost, partly, older = [], dict[str, int](), dict[str, list[str]](), 0, 0
    for row in rows:
        verdict, (pairs, total) = row["verdict"], shown[row["alert_id"]]
        verdicts[verdict or ""] = verdicts.get(verdict or "", 0) + 1
        early = verdict in NOISE_VERDICTS and row["began"] < since
        older += early
        known = tuple(events[uid] for uid, _ in pairs if uid in events)
        if not pairs or len(known) < len(pairs):
            lost.setdefault(verdict or "", []).append(row["alert_id"])
            # A true alert is protected by what is left of it; no other may count as removed.
            if verdict not in TRUE_VERDICTS or not known:
                continue
        partly += total > len(pairs)
        label = f"{verdict} before" if early else verdict
        alerts.append(JudgedAlert(row["alert_id"], label, known))
    return RuleHistory(
        tuple(alerts), verdicts, {name: tuple(ids) for name, ids in sorted(lost.items())},
        partly, older, whole["n"] - len(rows),
    )  # fmt: skip


def named_events(row: Row) -> tuple[list[tuple[str, datetime]], int]:
    """Events that an alert names, with their times, and how many findings it folds."""
    body = readable_body(row["body"])
    named = [each for each in body.get("evidence") or () if each.get("event_uid")]
    pairs = [
        (str(each["event_uid"]), datetime.fromisoformat(each["time"]))
        for each in named
        if each.get("time")
    ]
    return pairs, max(int(body.get("evidence_total") or 0), len(named))


def _events(ask: Ask, wanted: Sequence[tuple[str, datetime]]) -> dict[str, Row]:
    """The events by uid, with the fields that filters ask."""
    roots = sorted({name.partition(".")[0] for name in FIELDS if name in event_paths()})
    columns = ", ".join(f'"{name}"' for name in ("event_uid", *roots))
    ordered = sorted(set(wanted), key=lambda pair: (pair[1], pair[0]))
    known: dict[str, Row] = {}
    # By time: each part then reads few of the files.
    for start in range(0, len(ordered), _AT_ONCE):
        part = ordered[start : start + _AT_ONCE]
        params = {
            "uids": [uid for uid, _ in part],
            "since": part[0][1] - timedelta(seconds=1),
            "until": part[-1][1] + timedelta(seconds=1),
        }
        for row in ask(_EVENTS.format(columns=columns), params, needs=("silver.event",)):
            known[str(row["event_uid"])] = row
    return known
