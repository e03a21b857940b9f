"""What a rule pack would have found: the live matcher over history, for notebooks and reports.

Alerts, correlations and attribution over history are `headgate rules backtest`
(`alerts.backtest.run`).
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from alerts.backtest.history_match import EventHistory, matched
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from alerts.spark_rules.rule import QueryRule
from infra.streaming.lake import Lake
from reporting.interval import Interval


def backtest(lake: Lake, pack: RulePack, interval: Interval) -> DataFrame:
    """Findings of the pack's rules among events whose `time` is in the interval.

    Rows of gold.finding, written nowhere, with the ids the live job would give
    them. Imported logs are looked at too. Correlations count findings and are
    not part of it.
    """
    store = PackStore(store_folder(lake.settings))
    store.put(pack)
    history, span = EventHistory(lake), (interval.start, interval.end)
    matches = matched(history.events(*span), str(store.folder), [pack])
    queried = [history.queried(QueryRule(query, pack.hash), *span) for query in pack.queries]
    return reduce(DataFrame.unionByName, queried, matches)
