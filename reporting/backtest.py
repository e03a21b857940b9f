"""What a rule pack would have found: the live matcher over history."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.match import arrow_matcher, columns_read
from alerts.pack import PackStore, RulePack
from alerts.store import store_folder
from alerts.tables import FINDING
from infra.lake import Lake
from ingest.jobs import MODES
from ingest.tables import EVENT
from reporting.interval import Interval


def backtest(lake: Lake, pack: RulePack, interval: Interval) -> DataFrame:
    """Findings of the pack's rules among events whose `time` is in the interval.

    Rows of gold.finding, written nowhere, with the ids the live job would give
    them. Imported logs are looked at too. Correlations count findings and are
    not part of it.
    """
    store = PackStore(store_folder(lake.settings))
    matcher = arrow_matcher(str(store.folder), store.put(pack), MODES)
    events = lake.read(EVENT).where(
        (F.col("time") >= F.lit(interval.start)) & (F.col("time") < F.lit(interval.end))
    )
    return events.select(columns_read(pack)).mapInArrow(matcher, FINDING.schema)
