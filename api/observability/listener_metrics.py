"""How the listener stands, for /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from infra.config.settings import Settings
from infra.errors import Fatal
from ingest.listen.listener_status import ListenerStatus, read_listener_status

GAUGES = {
    "up": "1 when it runs and Kafka takes what it reads.",
    "waiting_messages": "Messages that wait for Kafka.",
    "waiting_bytes": "Bytes of these.",
    "waits_seconds": "Since when the oldest of these waits.",
    "connections": "Syslog connections that are open.",
}
COUNTERS = {
    "bytes": ("Bytes that Kafka has.", ""),
    "retried": ("Messages that were sent to Kafka again.", ""),
    "refused": ("Broken or too long messages; they are in their topic with the reason.", ""),
    "never": ("Messages that Kafka refused for good; they are kept in <home>/listen.", ""),
    "messages": ("Messages that Kafka has, by topic.", "topic"),
    "turned_away": ("Connections and requests that were not taken, by reason.", "reason"),
    "udp_dropped": ("Datagrams that the kernel dropped, by address.", "address"),
}
"""Since the process of the listener began: they begin anew when it does."""


class ListenerMetrics(Collector):
    """From the file that the listener leaves every two seconds; nothing where none ever ran."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """The metrics, without values."""
        for name, doc in GAUGES.items():
            yield GaugeMetricFamily(f"headgate_listener_{name}", doc)
        for name, (doc, label) in COUNTERS.items():
            yield CounterMetricFamily(f"headgate_listener_{name}", doc, labels=_labels(label))

    def collect(self) -> Iterator[Metric]:
        """Read the file anew."""
        try:
            status = read_listener_status(self._settings)
        except (Fatal, OSError):  # no file must cost all other metrics
            return
        if status is None:
            # Zeros would say of a listener that never ran that it took nothing.
            return
        yield from _gauges(status)
        yield from _counters(status)


def _labels(label: str) -> tuple[str, ...]:
    return (label,) if label else ()


def _gauges(status: ListenerStatus) -> Iterator[Metric]:
    ill = status.ill(time.time()) is not None
    for name, doc in GAUGES.items():
        value = float(not ill) if name == "up" else float(getattr(status, name))
        yield GaugeMetricFamily(f"headgate_listener_{name}", doc, value=value)


def _counters(status: ListenerStatus) -> Iterator[Metric]:
    for name, (doc, label) in COUNTERS.items():
        family = CounterMetricFamily(f"headgate_listener_{name}", doc, labels=_labels(label))
        counts = getattr(status, name)
        for key, count in counts.items() if label else [("", counts)]:
            family.add_metric([key] if label else [], count)
        yield family
