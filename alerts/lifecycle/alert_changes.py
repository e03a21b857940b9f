"""What an alert takes over from a finding, or from another alert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from alerts.domain.alert import (
    Alert,
    about_of,
    evidence_of,
    sampled,
)


def by_publication(alert: Alert) -> tuple[bool, int, str]:
    """Ranks one that is out before one that a budget holds back, of which nobody would hear."""
    return alert.suppressed_by is not None, alert.first, alert.alert_id


def summarise_storm(summary: Alert, held: Alert, count: int, limit: int) -> None:
    """Let the summary of a storm tell of one more alert that was held back."""
    summary.count = summary.total = count
    summary.last = max(summary.last, held.last)
    summary.received = max(summary.received, held.received)
    summary.evidence = sampled([*summary.evidence, *held.evidence[:1]])
    whose = f" of tenant {summary.tenant_uid}" if summary.tenant_uid else ""
    message = f"alerts{whose} held back: {count}; at most {limit} an hour go out"
    summary.about = msgspec.structs.replace(
        held.about,
        snippet=message,
        role="rule",
        scope=None,
        ip=None,
        host_name=None,
        user_name=None,
        dst_ip=None,
        fields={"held_back": str(count), "hourly_budget": str(limit)},
    )


def show_finding(alert: Alert, row: Mapping[str, Any]) -> bool:
    """Let an alert show a correlation's finding as it is now; whether that differs.

    A correction may have taken some of what it counted to another device.
    """
    ref, message = alert.refs[row["finding_id"]], evidence_of(row)
    shown = {e.event_uid for e in alert.evidence if e.finding_id == ref.finding_id}
    if row.get("kind") != "correlation" or shown <= {e.event_uid for e in message}:
        return False
    total = int(row.get("evidence_total") or 1)
    alert.total, ref.total = alert.total - ref.total + total, total
    others = [e for e in alert.evidence if e.finding_id != ref.finding_id]
    alert.evidence = sampled([*others, *message])
    if ref.time == alert.last:
        alert.about = about_of(row)
    return True


def hand_over(alert: Alert, target: Alert) -> None:
    """What people said of an alert goes on with the one that has its findings now."""
    target.assignee = target.assignee or alert.assignee
    target.verdict = target.verdict or alert.verdict
    target.comment = target.comment or alert.comment
