"""An alert's id as people give it: whole, or its first characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alerts.domain.short_ids import SHORTEST_ID, several_ids
from infra.errors import Usage

ALERTS_NEED = ("gold.alert", "gold.alert_current")

_NAMED = (
    "SELECT alert_id FROM gold.alert_current "
    # A whole id wins over longer ones that begin with it; three are enough to show a clash.
    "WHERE starts_with(alert_id, $id) ORDER BY alert_id = $id DESC, alert_id LIMIT 3"
)


def alert_id_of(ask: Callable[[str, dict[str, Any]], list[dict[str, Any]]], alert_id: str) -> str:
    """The id that begins so; `ask` answers a question to the lake. Raises `Usage` unless it is
    that of one alert."""
    if len(alert_id) < SHORTEST_ID:
        raise Usage(f"alert '{alert_id}': give at least {SHORTEST_ID} characters of its id")
    ids = [str(row["alert_id"]) for row in ask(_NAMED, {"id": alert_id})]
    if not ids:
        raise Usage(f"no alert '{alert_id}'; 'headgate alerts list' shows them")
    if len(ids) > 1 and ids[0] != alert_id:
        raise several_ids("alert", alert_id, ids)
    return ids[0]
