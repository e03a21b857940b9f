"""Gauges that are read from a file at each scrape, for /metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class FileGauges(Collector):
    """Gauges from a file that a job leaves; they need neither Spark nor the lake.

    `prefix`: what their names begin with; `docs`: what each is, by the rest of its name.
    """

    prefix: ClassVar[str]
    docs: ClassVar[Mapping[str, str]]

    def __init__(self, registry: CollectorRegistry) -> None:
        # A collector, asked at each scrape, and no gauges that somebody would have to set in time.
        registry.register(self)

    @abstractmethod
    def values(self) -> Mapping[str, float]:
        """The file's values now. One that is not known is left out: 0 would say something.

        Raises nothing, for no file must cost all other metrics.
        """

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, without values."""
        for name, doc in self.docs.items():
            yield GaugeMetricFamily(f"{self.prefix}_{name}", doc)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the file anew."""
        values = self.values()
        for name, family in zip(self.docs, self.describe(), strict=True):
            if name in values:
                family.add_metric([], values[name])
            yield family
