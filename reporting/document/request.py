"""What a report is made from: the tables, the interval, and whom it is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import duckdb

from infra.config.settings import Settings
from reporting.document.arrival import Arrival, arrival
from reporting.interval import Interval


@dataclass(frozen=True)
class ReportRequest:
    """One report that is asked for. `subject`: of a dossier, the device or the incident.

    `tenant`: whose rows alone `connection` has; tables that do not tell whose their rows are it has
    not. `asks` is called with each question.
    """

    settings: Settings
    connection: duckdb.DuckDBPyConnection
    interval: Interval
    made_at: datetime
    subject: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    tenant: str | None = None
    asks: Callable[[], None] = lambda: None

    def ask(self, sql: str, **more: Any) -> list[dict[str, Any]]:
        """Rows of a question; `$since`, `$until`, `$zone` and `$subject` are the request's."""
        self.asks()
        known = {
            "since": self.interval.start,
            "until": self.interval.end,
            "zone": self.interval.zone,
            "subject": self.subject,
            **more,
        }
        # DuckDB refuses a parameter that the text does not have.
        used = set(re.findall(r"\$([a-z_]+)", sql))
        values = {name: value for name, value in known.items() if name in used}
        result = self.connection.execute(sql, values)
        names = [str(column[0]) for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def value(self, sql: str, **more: Any) -> Any:
        """The only value of a question of one row and column."""
        (row,) = self.ask(sql, **more)
        return next(iter(row.values()))

    @property
    def before(self) -> ReportRequest:
        """The same over the period before."""
        return replace(self, interval=self.interval.before)

    def arrived(self) -> Arrival:
        """Which data had arrived."""
        return arrival(self.connection, self.interval, self.versions)
