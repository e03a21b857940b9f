"""Alerts on one axis of time, a lane for each tactic, in the order in which attacks go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from alerts.domain.attack import TACTICS
from alerts.domain.levels import severity_of_level
from api.console.lanes import Lane, Picture, Scale, TimeMark, picture

WIDTH = 1040
NO_TACTIC = "No tactic named"
_ORDER = [name for _, name in TACTICS.values()]


def attack_picture(alerts: Sequence[Mapping[str, Any]]) -> Picture | None:
    """The picture; None without alerts. An alert with several tactics stands in each lane."""
    if not alerts:
        return None
    first = min(alert["window_start"] for alert in alerts)
    last = max(alert["event_time"] for alert in alerts)
    margin = max((last - first) * 0.04, timedelta(minutes=2))
    scale = Scale(first - margin, last + margin, WIDTH)
    by_tactic: dict[str, list[Mapping[str, Any]]] = {}
    for alert in alerts:
        for tactic in alert["tactics"] or [NO_TACTIC]:
            by_tactic.setdefault(tactic, []).append(alert)
    names = sorted(by_tactic, key=lambda name: _ORDER.index(name) if name in _ORDER else 99)
    lanes = []
    for name in names:
        rows = by_tactic[name]
        bars = [
            scale.bar(row["window_start"], row["event_time"], "", _title(row), 5)
            for row in rows
            if row["event_time"] - row["window_start"] > timedelta(seconds=1)
        ]
        marks = [
            TimeMark(
                scale.x(row["event_time"]), 4.5 + row["severity_id"] * 0.4, _title(row),
                f"l{severity_of_level(row['level'])}",
                f"/alerts/{row['alert_id']}",
            )
            for row in rows
        ]  # fmt: skip
        note = f"{len(rows)} alert{'' if len(rows) == 1 else 's'}"
        lanes.append(Lane(name, note, bars, marks, strong=name != NO_TACTIC))
    return picture(scale, lanes)


def _title(row: Mapping[str, Any]) -> str:
    who = row["hostname"] or row["entity_value"]
    return f"{row['event_time']:%Y-%m-%d %H:%M:%S} UTC, {row['level']}: {row['rule_name']} ({who})"
