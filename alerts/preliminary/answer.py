"""What becomes of a preliminary alert: pure rules, asked where findings are folded into alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.domain.alert import Alert
from alerts.domain.finding import identity
from alerts.domain.rate_limit import HELD_BACK

CONFIRMED, MERGED, WITHDRAWN = "confirmed", "merged", "withdrawn"
"""Its alert is there under its own id; it counts on another alert; there will be no alert."""

SUPPRESSED, BUDGET, NOT_MEANT, UNANSWERED = "suppressed", "budget", "not_meant", "unanswered"
NOT_FOUND = "not_found"
"""Why one is withdrawn: a suppression covers it; its rule is beyond its budget; the rule does not
hold for whom it is about; job `alert` gave no answer for a day; job `ingest` has no such finding,
as of an event that was delivered twice, or of a rule that was changed meanwhile."""


def preliminary_id(row: Mapping[str, Any], tenant: str) -> str:
    """`alert_id` of a finding's preliminary alert: that of the alert which the finding makes."""
    return identity(tenant, row["rule_id"], row["event_uid"])


def is_told_early(row: Mapping[str, Any]) -> bool:
    """Whether a preliminary alert was made of a finding."""
    return row.get("answer_by") is not None


def answer_of(row: Mapping[str, Any], alert: Alert | None, tenant: str) -> dict[str, Any]:
    """The answer to a finding's preliminary alert, as a row of gold.preliminary_answer.

    `alert`: what the finding counts on, after its revision was numbered; None: it does not count.
    `answered_at` is left to the caller.
    """
    answer, merged_into, revision, reason = _judged(preliminary_id(row, tenant), alert)
    return {
        "alert_id": preliminary_id(row, tenant),
        "finding_id": row["finding_id"],
        "rule_id": row["rule_id"],
        "answer": answer,
        "merged_into": merged_into,
        "revision": revision,
        "reason": reason,
        "answer_by": row["answer_by"],
    }


def _judged(own_id: str, alert: Alert | None) -> tuple[str, str | None, int | None, str | None]:
    if alert is None:
        return WITHDRAWN, None, None, NOT_MEANT
    # Before it is asked whose alert it is: nobody is told of one that is kept from the topic.
    if alert.suppressed_by is not None:
        return WITHDRAWN, None, None, BUDGET if alert.suppressed_by == HELD_BACK else SUPPRESSED
    if alert.alert_id == own_id:
        return CONFIRMED, None, alert.revision, None
    return MERGED, alert.alert_id, alert.revision, None
