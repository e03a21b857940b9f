"""What one caller may take, so that the others have theirs: requests, statements, seconds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class QuotaUsedUp(Exception):
    """A caller asks too often; `retry_after`: seconds until one more is allowed."""

    def __init__(self, text: str, retry_after: int) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class StillRunning(QuotaUsedUp):
    """As many statements of the caller as are allowed are at work."""


@dataclass
class _Bucket:
    left: float
    seen: float


class Quotas:
    """A bucket of tokens for each caller: a minute's requests may come at once, then one by one.

    Seconds of statements are the same over an hour, charged when a statement ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: dict[str, _Bucket] = {}
        self._seconds: dict[str, _Bucket] = {}
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, name: str, per_minute: int | None) -> None:
        """Count a request; raises `QuotaUsedUp`. Without a limit nothing is counted."""
        # Before the lock: most callers have no limit.
        if per_minute is None:
            return
        with self._lock:
            bucket = self._filled(self._requests, name, per_minute, 60)
            if bucket.left < 1:
                # Rounded up: a client that waits exactly so long must not be refused again.
                wait = int((1 - bucket.left) * 60 / per_minute) + 1
                raise QuotaUsedUp(f"key '{name}' may make {per_minute} requests a minute", wait)
            bucket.left -= 1

    @contextmanager
    def statement(self, name: str, at_once: int, seconds_an_hour: float) -> Iterator[None]:
        """While a statement of a caller waits or runs; raises `QuotaUsedUp`."""
        with self._lock:
            bucket = self._filled(self._seconds, name, seconds_an_hour, 3600)
            if bucket.left <= 0:
                wait = int((1 - bucket.left) * 3600 / seconds_an_hour) + 1
                raise QuotaUsedUp(
                    f"the statements of key '{name}' ran for {seconds_an_hour:g} s within the hour "
                    "(api.statement_seconds_per_hour)",
                    wait,
                )
            # Refused and not made to wait: those that wait hold threads that answer everybody.
            if self._running[name] >= at_once:
                raise StillRunning(
                    f"{at_once} statements of key '{name}' run already "
                    "(api.statements_at_once); ask again when one has ended",
                    1,
                )
            self._running[name] += 1
            began = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._running[name] -= 1
                # It may fall below nothing, as what a statement takes is known only when it ends.
                bucket.left -= self._clock() - began

    def _filled(
        self, buckets: dict[str, _Bucket], name: str, most: float, period: float
    ) -> _Bucket:
        """The bucket of a caller with what it gained since it was looked at."""
        now = self._clock()
        bucket = buckets.setdefault(name, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.seen) * most / period)
        bucket.seen = now
        return bucket
