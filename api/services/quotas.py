"""How many requests a caller may make in a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


class QuotaUsedUp(Exception):
    """A caller asks too often; `retry_after`: seconds until one more is allowed."""

    def __init__(self, text: str, retry_after: int) -> None:
        super().__init__(text)
        self.retry_after = retry_after


@dataclass
class _Bucket:
    left: float
    seen: float


class Quotas:
    """A bucket of tokens for each caller: a minute's requests may come at once, then one by one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._lock = threading.Lock()

    def take(self, name: str, per_minute: int | None) -> None:
        """Count a request; raises `QuotaUsedUp`. Without a limit nothing is counted."""
        # Before the lock: most callers have no limit.
        if per_minute is None:
            return
        with self._lock:
            now = self._clock()
            bucket = self._buckets.setdefault(name, _Bucket(per_minute, now))
            gained = (now - bucket.seen) * per_minute / 60
            bucket.left, bucket.seen = min(per_minute, bucket.left + gained), now
            if bucket.left < 1:
                # Rounded up: a client that waits exactly so long must not be refused again.
                wait = int((1 - bucket.left) * 60 / per_minute) + 1
                raise QuotaUsedUp(f"key '{name}' may make {per_minute} requests a minute", wait)
            bucket.left -= 1
