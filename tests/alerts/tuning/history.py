"""Alerts with verdicts in tables in memory, and questions to them as commands and the API ask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.reporting.memory_lake import MemoryLake

UNTIL = datetime(2026, 11, 24, tzinfo=UTC)
SINCE = UNTIL - timedelta(days=28)
Row = dict[str, Any]


class Asked:
    """A reader over the tables, with the form of the API's."""

    tenants = None

    def __init__(self, lake: MemoryLake) -> None:
        self.lake = lake

    def rows(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        *,
        needs: Sequence[str],
        kept: bool = False,
        **_where_to_look: object,
    ) -> list[Row]:
        """The rows of a question."""
        result = self.lake.connection.execute(sql, dict(params or {}))
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def alert(alert_id: str, rule_id: str, verdict: str | None = None, **more: Any) -> Row:
    """The newest revision of an alert that began a day before the end; `more` overrides."""
    began = more.pop("began", UNTIL - timedelta(days=1))
    body = {
        "state": "closed" if verdict else "open",
        "verdict": verdict,
        "detected_at": began.isoformat(),
        "evidence": more.pop("evidence", []),
        "evidence_total": more.pop("evidence_total", None),
    }
    return {
        "alert_id": alert_id, "revision": 1, "mode": "live", "rule_id": rule_id,
        "rule_name": rule_id.title(), "level": "high", "event_time": began,
        "window_start": began, "window_end": began, "body": json.dumps(body), **more,
    }  # fmt: skip


def finding(uid: str, rule_id: str, **more: Any) -> Row:
    """A finding of a rule in one event."""
    time = more.pop("time", UNTIL - timedelta(days=1))
    return {
        "finding_id": f"{rule_id}-{uid}", "rule_id": rule_id, "kind": "event", "event_uid": uid,
        "event_time": time, **more,
    }  # fmt: skip


def listed(rule_id: str, **more: Any) -> Row:
    """A rule as `rule_rows` lists it."""
    return {
        "id": rule_id, "name": rule_id, "title": rule_id.title(), "level": "high", "kind": "rule",
        "state": "on", "alerts": "yes", "sees": "", **more,
    }  # fmt: skip
