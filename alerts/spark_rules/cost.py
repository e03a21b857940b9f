"""What queries cost live: rows of ops.rule_cost, told once a minute by the driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from infra.streaming.outbox import put_row

_EVERY = 60.0
"""Seconds between two rows."""


class QueryCost:
    """Sums up what each query took, and tells it from time to time. A measurement, no record."""

    def __init__(self, spool: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is seconds of a clock that never runs back."""
        self._spool = spool
        self._clock = clock
        self._since = clock()
        self._rules: dict[str, dict[str, int]] = {}
        self._pack = ""

    def note(self, pack: str, rule_id: str, hits: int, seconds: float) -> None:
        """A query gave so many new findings in so much time of the driver's clock."""
        self._pack = pack
        sums = self._rules.setdefault(rule_id, {"events": 0, "candidates": 0, "hits": 0, "us": 0})
        sums["hits"] += hits
        sums["us"] += round(seconds * 1e6)
        if self._clock() - self._since >= _EVERY:
            self._log_costs()

    def _log_costs(self) -> None:
        row = {
            "at": datetime.now(UTC).isoformat(),
            "pack": self._pack,
            "worker": f"{os.uname().nodename}:{os.getpid()}",
            "seconds": self._clock() - self._since,
            "events": 0,
            "match_us": sum(sums["us"] for sums in self._rules.values()),
            "rules": self._rules,
        }
        # Before the row is written: a disk that is full must not let the sums grow.
        self._rules, self._since = {}, self._clock()
        # A full disk stops the batch where it writes its rows, with a sentence that says so.
        with suppress(OSError):
            put_row(self._spool, f"queries-{os.getpid()}-{time.time_ns()}", row)
