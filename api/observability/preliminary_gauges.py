"""Preliminary alerts that wait for their answer, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from alerts.preliminary.alarm import late_and_waiting
from api.observability.file_gauges import FileGauges
from infra.config.settings import Settings
from infra.errors import Fatal

_DOCS = {
    "waiting": "Preliminary alerts without an answer; only with kafka.preliminary_topic.",
    "overdue": "Of these, how many should have been answered; more than 0 is an alarm.",
}


class PreliminaryGauges(FileGauges):
    """Gauges from the place that job `ingest` leaves."""

    prefix, docs = "headgate_preliminary", _DOCS

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        super().__init__(registry)

    def values(self) -> dict[str, float]:
        """None where no preliminary alerts are made."""
        if not self._settings.kafka.preliminary_topic:
            return {}
        try:
            late, waiting = late_and_waiting(self._settings)
        except (Fatal, OSError):  # no file must cost all other metrics
            return {}
        return {"waiting": waiting, "overdue": len(late)}
