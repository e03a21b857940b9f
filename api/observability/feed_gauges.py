"""How feeds of threat intelligence stand, for /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from alerts.feeds.feed_state import FeedState, state_file
from infra.config.intelligence_section import FeedSettings
from infra.config.settings import Settings
from infra.errors import Fatal

GAUGES = {
    "up": "1 when the newest fetch of the feed succeeded, and is not long ago.",
    "age_seconds": "Since the feed was last fetched with success.",
    "entries": "Entries of the list that it keeps.",
    "refused": "Indicators of it that could not be used, by what they say.",
}


class FeedGauges(Collector):
    """Gauges from the files that fetches leave. A feed that was never fetched has none."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._settings = settings
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, without values."""
        for name, doc in GAUGES.items():
            yield GaugeMetricFamily(f"headgate_feed_{name}", doc, labels=("feed",))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the files anew."""
        values = {feed.name: self._values(feed) for feed in self._settings.intelligence.feeds}
        for name, family in zip(GAUGES, self.describe(), strict=True):
            for feed, gauges in values.items():
                if name in gauges:
                    family.add_metric([feed], gauges[name])
            yield family

    def _values(self, feed: FeedSettings) -> dict[str, float]:
        try:
            state = state_file(self._settings, feed).read() or FeedState()
        except (Fatal, OSError):  # no file must cost all other metrics
            return {}
        if not state.tried_at:
            return {}
        now = time.time()
        # A feed that never succeeded has no age; its list was never there.
        age = {} if state.succeeded_at is None else {"age_seconds": now - state.succeeded_at}
        return age | {
            "up": float(state.trouble(feed, now) is None),
            "entries": float(state.entries),
            "refused": float(sum(state.refused.values())),
        }
