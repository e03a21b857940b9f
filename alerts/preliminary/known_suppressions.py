"""The suppressions in force, for who asks before job `alert` does."""

from __future__ import annotations

from typing import Any

from alerts.lifecycle.suppression import SUPPRESS, UNSUPPRESS, Suppression, apply_suppressions
from alerts.tables import ALERT_ACTION
from infra.config.settings import Settings
from infra.delta.appended_rows import AppendedRows
from infra.delta.duckdb_views import connect
from infra.process.clock import clock

_COLUMNS = (
    *("action_id", "alert_id", "rule_id", "action", "at", "entity", "fields", "expires_at"),
)
_SQL = f"""
SELECT {", ".join(f'"{name}"' for name in _COLUMNS)} FROM gold.alert_action
WHERE action IN ('{SUPPRESS}', '{UNSUPPRESS}')
"""


class KnownSuppressions:
    """What people asked to be silent, as gold.alert_action has it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, Suppression] = {}
        self._tail: AppendedRows | None = None

    def current(self) -> tuple[Suppression, ...]:
        """Those in force, by id. Raises what a lake raises that cannot be read."""
        asked: list[dict[str, Any]] = []
        tail = self._tail
        if tail is None:
            # Before the question: what comes meanwhile is then read twice, and not missed.
            tail = AppendedRows(self._settings.lake_root / ALERT_ACTION.path, _COLUMNS)
            asked += self._before() if tail.has_rows else []
        asked += tail.read()
        # Behind both answers: where one is missing, the next call asks again.
        self._tail = tail
        acts = [row for row in asked if row["action"] in (SUPPRESS, UNSUPPRESS)]
        apply_suppressions(self._known, acts, round(clock.time() * 1_000_000))
        return tuple(sorted(self._known.values(), key=lambda known: known.suppression_id))

    def _before(self) -> list[dict[str, Any]]:
        with connect(self._settings.lake_root, needs=("gold.alert_action",), only=()) as duck:
            return list(duck.execute(_SQL).to_arrow_table().to_pylist())
