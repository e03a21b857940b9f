"""What rules cost live: a worker tells it once a minute, as one row of ops.rule_cost.

A measurement, no record: what a worker had still to tell when it ended is lost, and a
batch that runs twice counts twice.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from alerts.matching.matcher import Cost, Matcher, matcher_of
from infra.streaming.outbox import put_row

EVERY = 60.0
"""Seconds between two rows of a worker."""

_NOTHING = Cost(0, 0, 0, 0.0)


class Meter:
    """A matcher that tells from time to time what its rules have cost it.

    `clock` is seconds of a clock that never runs back.
    """

    def __init__(
        self, matcher: Matcher, spool: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._matcher = matcher
        self._spool = spool
        self._clock = clock
        self._since = clock()
        self._events = 0
        self._seconds = 0.0
        self._logged: dict[str, Cost] = {}

    def match(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """As `Matcher.match`."""
        began = time.perf_counter()
        matches = self._matcher.match(events)
        self._seconds += time.perf_counter() - began
        self._events += events.num_rows
        if self._clock() - self._since >= EVERY:
            self._log_costs()
        return matches

    def _log_costs(self) -> None:
        costs = self._matcher.costs()
        row = {
            "at": datetime.now(UTC).isoformat(),
            "pack": self._matcher.pack_hash,
            "worker": f"{os.uname().nodename}:{os.getpid()}",
            "seconds": self._clock() - self._since,
            "events": self._events,
            "match_us": round(self._seconds * 1e6),
            "rules": {
                rule_id: cost_since
                for rule_id, cost in costs.items()
                # Rules without candidates cost nothing of their own, and most have none in a
                # minute.
                if (cost_since := _since(cost, self._logged.get(rule_id, _NOTHING)))["candidates"]
            },
        }
        self._logged, self._since = costs, self._clock()
        self._events, self._seconds = 0, 0.0
        # A full disk stops the batch where it writes its rows, with a sentence that says so.
        with suppress(OSError):
            put_row(self._spool, f"{os.getpid()}-{time.time_ns()}", row)


def _since(now: Cost, before: Cost) -> dict[str, Any]:
    return {
        "events": now.rows - before.rows,
        "candidates": now.candidates - before.candidates,
        "hits": now.hits - before.hits,
        "us": round((now.seconds - before.seconds) * 1e6),
    }


@lru_cache(maxsize=4)
def metered_matcher(store_folder: str, pack: str, spool: str) -> Meter:
    """The metered matcher of a stored pack; a worker lives on and makes it once."""
    meter = Meter(matcher_of(store_folder, pack), Path(spool))
    if TaskContext.get() is not None:
        # Of thousands of rules it is what a worker has most of, and stays: a full collection would
        # walk it. It goes without the collector when its time is over.
        gc.collect()
        gc.freeze()
    return meter
