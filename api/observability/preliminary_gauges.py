"""Preliminary alerts that wait for their answer, for /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from alerts.preliminary.alarm import late_and_waiting
from infra.config.settings import Settings
from infra.errors import Fatal

GAUGES = {
    "waiting": "Preliminary alerts without an answer; only with kafka.preliminary_topic.",
    "overdue": "Of these, how many should have been answered; more than 0 is an alarm.",
}


class PreliminaryGauges(Collector):
    """Gauges from the place that job `ingest` leaves; they need neither Spark nor the broker."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, without values."""
        for name, doc in GAUGES.items():
            yield GaugeMetricFamily(f"headgate_preliminary_{name}", doc)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the place anew."""
        values = self._values()
        for name, family in zip(GAUGES, self.describe(), strict=True):
            if name in values:
                family.add_metric([], values[name])
            yield family

    def _values(self) -> dict[str, int]:
        if not self._settings.kafka.preliminary_topic:
            return {}
        try:
            late, waiting = late_and_waiting(self._settings)
        except (Fatal, OSError):  # no file must cost all other metrics
            return {}
        return {"waiting": waiting, "overdue": len(late)}
