"""The outcome of one expectation over one span of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Outcome:
    """One expectation and how it came out. `unexpected` counts rows, or sources for a share."""

    expectation: str
    passed: bool
    checked: int
    unexpected: int
    examples: str = ""
    suite: str = "events"
    since: datetime | None = None
    until: datetime | None = None

    @property
    def name(self) -> str:
        """Suite and expectation: what stays the same from one run to the next."""
        return f"{self.suite}: {self.expectation}"
