"""`headgate verify`: events and findings of a span through the engine again, beside the tables."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from pyspark.sql import functions as F

from alerts.backtest import History, attributed, matched
from alerts.backtest_fold import Refold
from alerts.backtest_rules import warm_up_seconds
from alerts.backtest_run import attributed_schema, chunk, in_order, write_rows
from alerts.entity import micros
from alerts.finding import RULE_FAILED, finding_schema
from alerts.jobs import LIVE_MODES, finished
from alerts.pack import PackStore, RulePack
from alerts.risk import INCIDENT
from alerts.store import store_folder
from alerts.suppress import SUPPRESS, UNSUPPRESS
from alerts.tables import FINDING, HEARTBEAT
from alerts.verify import (
    Batches,
    Difference,
    EventFacts,
    Facts,
    Stray,
    Told,
    Verified,
    judge_finding,
    judge_told,
    told_of,
)
from infra.duck import connect
from infra.errors import Fatal
from infra.lake import Lake
from ingest.tables import EVENT

NEEDS = ("gold.finding", "gold.alert", "gold.alert_action", "gold.attribution", "ops.ledger")
Tell = Callable[[str], None]
