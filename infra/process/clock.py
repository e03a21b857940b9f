"""The time of day as a process may believe it: a jump of the clock does not move it at once.

Stream time is made of times of arrival, and it never runs back. A clock that jumps a day ahead
and is set right a minute later would therefore leave a day in which every lease comes too late.
So the clock is held against one that counts seconds and cannot be set. Where both agree, the
clock is believed; where it has jumped, what the other counts is, until the jump has lasted
`BELIEVED_AFTER`, or the process is started anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

TOLERANCE = 60.0
"""Seconds by which a clock may be put right at once. More is a jump."""

BELIEVED_AFTER = 600.0
"""Seconds after which a jump is believed. A machine that was stopped and goes on has a right clock
that jumped: for so long its arrivals are dated too early. A wrong clock that was believed costs as
long as it was ahead."""

STALLED = 10.0
"""Seconds back that what waits for a time of day is not left to sit out."""

_Seconds = Callable[[], float]


def _counted() -> float:
    """Seconds since the machine started, its sleep included where the system counts that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ForwardClock:
    """The time of day, without the jumps of `wall` that did not last.

    Asked often, it follows a clock that is slowly put right however far that goes.
    """

    def __init__(self, wall: _Seconds = time.time, steady: _Seconds = _counted) -> None:
        self._wall, self._steady = wall, steady
        self._ahead = wall() - steady()
        self._jump: tuple[float, float] | None = None
        """When the clock jumped, in steady seconds, and what it has been ahead of these since."""
        self._seen = self._ahead
        self._back = 0.0
        self._jumps: list[str] = []
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The time of day, UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def time(self) -> float:
        """The same in seconds since 1970."""
        with self._lock:
            return self._look() + self._ahead

    @property
    def jumped(self) -> float:
        """Seconds by which the system's clock is ahead of what is believed; 0 while they agree."""
        with self._lock:
            self._look()
            return 0.0 if self._jump is None else self._jump[1] - self._ahead

    def doubt(self) -> str:
        """Why nothing that is old by the system's clock may go at the moment; empty if it may."""
        jump = self.jumped
        return f"the clock jumped {spoken(jump)}" if jump else ""

    def went_back(self) -> bool:
        """Whether the system's clock was set back since this was last asked, believed or not.

        Whoever waits for a time of day then waits for longer than was meant.
        """
        with self._lock:
            self._look()
            back, self._back = self._back, 0.0
        return back > STALLED

    def new_jumps(self) -> list[str]:
        """What there is to tell of jumps, each once."""
        with self._lock:
            self._look()
            message, self._jumps = self._jumps, []
        return message

    def _look(self) -> float:
        steady = self._steady()
        ahead = self._wall() - steady
        # Summed up: a clock may be set back in several small steps.
        self._back = max(0.0, self._back + self._seen - ahead)
        self._seen = ahead
        if abs(ahead - self._ahead) <= TOLERANCE:
            if self._jump is not None:
                self._jumps.append("the clock is right again")
            self._ahead, self._jump = ahead, None
        elif self._jump is None or abs(ahead - self._jump[1]) > TOLERANCE:
            # A jump from where it had jumped to is another one: its ten minutes begin anew.
            self._jump = steady, ahead
            self._jumps.append(
                f"the clock jumped {spoken(ahead - self._ahead)}. Until it has stayed there for "
                f"{BELIEVED_AFTER / 60:.0f} minutes, arrivals are dated by seconds counted since "
                "before; if it is right now, start again to go by it at once"
            )
        elif steady - self._jump[0] >= BELIEVED_AFTER:
            self._jumps.append(f"the clock is believed, {spoken(ahead - self._ahead)}")
            self._ahead, self._jump = ahead, None
        return steady


def spoken(seconds: float) -> str:
    """A jump in words: how far, and which way."""
    size, way = abs(seconds), "ahead" if seconds > 0 else "back"
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if size >= 2 * length:
            return f"{size / length:.1f} {name} {way}"
    return f"{size:.0f} seconds {way}"


clock = ForwardClock()
"""The one of this process."""
