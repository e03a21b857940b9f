"""What the newest check of the ledger found, for /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from infra.config.settings import Settings
from infra.errors import Fatal
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder

GAUGES = {
    "passed": "1 when the newest check of the ledger found nothing missing, doubled or expiring.",
    "age_seconds": "Since the newest check of the ledger began.",
    "missing": "Messages that were read and are not in bronze.",
    "repeated": "Rows that stand there again.",
    "unaccounted": "Records that no row names.",
    "expiring": "Unread messages that the broker soon deletes.",
    "lost": "Gaps that nobody has accepted.",
}


class LedgerCheck(Collector):
    """Gauges from the file that a check leaves; they need neither Spark nor the lake.

    Before the first check they have no values: 0 would say that it failed. Nor have they where the
    file cannot be read, of which the check itself says why.
    """

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._folder = ledger_check_folder(settings)
        # A collector, asked at each scrape, and no gauges that somebody would have to set in time.
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, without values."""
        for name, doc in GAUGES.items():
            yield GaugeMetricFamily(f"headgate_ledger_{name}", doc)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the file anew."""
        values = self._values()
        for name, family in zip(GAUGES, self.describe(), strict=True):
            if name in values:
                family.add_metric([], values[name])
            yield family

    def _values(self) -> dict[str, float]:
        try:
            return _told(LedgerCheckState.load(self._folder))
        except (Fatal, OSError, ValueError, TypeError):  # no file must cost all other metrics
            return {}


def _told(state: LedgerCheckState) -> dict[str, float]:
    if state.at is None:
        return {}
    age = datetime.now(UTC) - datetime.fromisoformat(state.at)
    counts = ("missing", "repeated", "unaccounted", "expiring", "lost")
    results = {name: float(getattr(state, name)) for name in counts}
    return results | {"passed": float(state.passed), "age_seconds": age.total_seconds()}
