"""Whether a JVM does little but look for memory, as it may for hours before it gives up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

SPAN_SECONDS = 60.0
_EVERY_SECONDS = 5.0
_MOST = 0.6
"""Share of a minute that collections of garbage may take. What works well takes a tenth; of a
JVM without memory three quarters were seen, while others had the cores as well."""


class Heap:
    """`spent`: seconds that a JVM has collected garbage since it began."""

    def __init__(
        self, gc_seconds: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gc_seconds, self._clock = gc_seconds, clock
        self._seen: deque[tuple[float, float]] = deque()

    def exhausted(self) -> bool:
        """Whether most of the last minute went into collections; asked often, looks seldom."""
        now = self._clock()
        if self._seen and now - self._seen[-1][0] < _EVERY_SECONDS:
            return False
        self._seen.append((now, self._gc_seconds()))
        # By the second one, so that the first stays at least a minute old.
        while len(self._seen) > 1 and now - self._seen[1][0] >= SPAN_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        long = now - since >= SPAN_SECONDS
        return long and self._seen[-1][1] - before >= _MOST * (now - since)
