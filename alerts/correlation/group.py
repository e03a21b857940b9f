"""What a correlation remembers: the findings of each group, what fired, and for how long.

State of job `alert`; what is here is written with its bucket.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import msgspec

from alerts.correlation.conditions import most_needed
from alerts.correlation.entry import CorrelationEntry, by_order
from alerts.correlation.finding import Fired
from alerts.correlation.first_seen import FirstSeen
from alerts.correlation.packed_history import PackedEntries
from alerts.rulepack.rule_pack import Correlation

LATENESS = 600 * 1_000_000
"""How late a finding may be, microseconds: longer than any source of ours delivers late."""

SETTLE = 90 * 1_000_000
"""How long after its end a window closes, microseconds: what attribution waits, and some delay."""

SKEW = 300 * 1_000_000
"""How far, microseconds, a clock ahead of ours may move a correlation's time."""

CORRECTABLE = 3600 * 1_000_000
"""How long after a firing its holder can still be corrected, as long as job `repair` looks back."""

MAX_ENTRIES = 1_000
"""Findings kept for a group, or twice what its condition needs; the oldest go first, counted."""


class Group(msgspec.Struct, omit_defaults=True, gc=False):
    """Entries of one group, by time, and what fired.

    `closed`: windows that end up to there were looked at, for conditions that
    wait. `dropped` findings were one too many, the newest of them at `dropped_at`.
    `cold`: time of the newest entry that was packed away.
    """

    entries: list[CorrelationEntry] = []
    fired: list[Fired] = []
    closed: int = 0
    dropped: int = 0
    dropped_at: int = 0
    seen: FirstSeen | None = None
    cold: int = 0

    def keep(self, what: Fired) -> None:
        """Note what fired, in order of its end: who asks for some of it need not go through all."""
        insort(self.fired, what, key=end_key)

    def fired_between(self, since: int, until: int | None = None) -> list[Fired]:
        """What fired in windows that end in [since, until]."""
        begin = bisect_left(self.fired, since, key=end_key)
        behind = None if until is None else bisect_right(self.fired, until, key=end_key)
        return self.fired[begin:behind]

    def place_of(self, entry: CorrelationEntry) -> int | None:
        """Where the group has this finding."""
        position = bisect_left(self.entries, by_order(entry), key=by_order)
        is_here = (
            position < len(self.entries) and self.entries[position].finding_id == entry.finding_id
        )
        return position if is_here else None

    def rests(self, end: int, span: int) -> bool:
        """Whether a window that ends then would only repeat what fired."""
        windows = self.fired_between(end - span)
        return any(f.start - span <= end for f in windows if not f.disproved)


class CorrelationState(msgspec.Struct):
    """All that one correlation remembers. `span`: how far back by its newest definition findings
    concern what may still be told, microseconds.

    `clock`: its newest event time, which a clock ahead of ours moves by `SKEW` at
    most. `pack`: of its newest finding. `late` and `dropped` count findings that came
    after their window closed, and that were too many for their group. `cold` holds
    findings of all groups that only a late one can still concern; of those nothing
    from before `forgotten` counts any more.
    """

    groups: dict[str, Group] = {}
    span: int = 0
    clock: int = 0
    pack: str = ""
    late: int = 0
    dropped: int = 0
    cold: list[PackedEntries] = []
    forgotten: int = 0


def most_entries(definition: Correlation) -> int:
    """Findings that a group keeps."""
    # A count above the cap could never be reached, so the cap grows with it.
    needed = most_needed(definition) if definition.type.endswith("_count") else 0
    return max(MAX_ENTRIES, 2 * needed)


def end_key(what: Fired) -> int:
    """What fired is kept in this order."""
    return what.end
