"""Whether what anomaly models judged still looks like what they learned."""

from __future__ import annotations

from typing import Any

from alerts.anomaly.drift import drift_of
from alerts.anomaly.store import ModelStore
from alerts.rulebook.rule_store import model_rules
from alerts.rulepack.locations import store_folder
from infra.errors import Fatal
from reporting.document.request import ReportRequest

_JUDGED = """
SELECT rule_id, model, max(hour) AS newest FROM gold.device_hour
WHERE hour >= $since AND hour < $until GROUP BY rule_id, model ORDER BY rule_id, newest
"""


def model_drift(request: ReportRequest) -> list[dict[str, Any]]:
    """Each model that judged in the interval: `title` of its rule, `model`, and the figures of
    `alerts.anomaly.drift.Drift`. One that is no longer kept is told as such."""
    judged = request.ask(_JUDGED)
    if not judged:
        return []
    rules = model_rules(request.settings).sources.values()
    titles = {source.rule.id: source.rule.title for source in rules}
    store = ModelStore(store_folder(request.settings))
    rows: list[dict[str, Any]] = []
    for row in judged:
        title = titles.get(row["rule_id"], row["rule_id"])
        figures: dict[str, Any]
        try:
            model = store.get(row["model"])
        except Fatal as error:
            # A report is not to fail for want of a model that somebody removed.
            figures = {"state": "unknown", "hours": None, "rare": None, "sentence": str(error)}
        else:
            begin, end = request.interval.start, request.interval.end
            drift = drift_of(request.connection, model, begin, end)
            figures = {"state": drift.state, "hours": drift.hours, "rare": drift.rare}
            figures["sentence"] = drift.sentence
        rows.append({"title": title, "model": row["model"], **figures})
    return rows
