"""A correlation over time: all of history at once, and what a stream forgets or packs away."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from alerts.correlation.correlator import Correlator
from alerts.correlation.entry import CorrelationEntry, time_key
from alerts.correlation.finding import Fired
from alerts.correlation.first_seen import forget_values
from alerts.correlation.group import CORRECTABLE, LATENESS, MAX_ENTRIES, SETTLE, CorrelationState
from alerts.correlation.packed_history import ENOUGH, pack_history
from alerts.rulepack.rule_pack import Correlation

HISTORY_BATCH = 10_000
"""Findings of history between two times of forgetting."""


def over_history(
    definition: Correlation, rows: Iterable[Mapping[str, Any]], until: int = 0
) -> Iterator[dict[str, Any]]:
    """The findings of one correlation over history: what the stream tells when nothing is late.

    `rows` are attributed findings by event time and then by finding id. Of two
    attributions of a finding give the newer one only. `until`: the end of history, microseconds,
    where it is later than its newest finding: an absence may end in between.
    """
    state = CorrelationState()
    for number, row in enumerate(rows, 1):
        # A Correlator indexes all of its state, so one serves until the next forgetting.
        if number % HISTORY_BATCH == 1:
            forget_findings(state, state.clock)
            correlator = Correlator(state)
        told_now = correlator.feed(definition, row)
        # With the forgetting: windows that wait have to be told before their findings go.
        if number % HISTORY_BATCH == 0:
            told_now += correlator.settle(definition, 0)
        yield from (out["row"] for out in told_now if out["out"] == "finding")
    yield from (out["row"] for out in Correlator(state).settle(definition, until=until))


def forget_findings(state: CorrelationState, clock: int) -> None:
    """Drop what no finding inside the lateness can concern any more; `clock` in event time."""
    oldest = state.forgotten = clock - state.span - LATENESS
    # Whole packs go without being opened; single old entries in one are left out at `_thaw`.
    state.cold = [cold for cold in state.cold if cold.until >= oldest]
    for key, group in list(state.groups.items()):
        group.entries = [e for e in group.entries if e.time >= oldest]
        group.fired = [f for f in group.fired if f.end >= oldest - CORRECTABLE]
        if group.seen is not None:
            group.fired = _newest(group.fired, clock - LATENESS - CORRECTABLE)
        if group.seen is not None and forget_values(group.seen, oldest):
            group.seen = None
        remembered = group.entries or group.fired or group.seen is not None or group.cold >= oldest
        if not remembered:
            del state.groups[key]


def _newest(windows: list[Fired], since: int) -> list[Fired]:
    """What a group told of new values from an instant on, and before it no more than a cap: its
    span may be a month, and a value that is always new would fill the state in that time."""
    ordered = sorted(windows, key=lambda window: window.end)
    recent = len(ordered) - MAX_ENTRIES
    return [
        window for place, window in enumerate(ordered) if place >= recent or window.end >= since
    ]


def pack_away(state: CorrelationState, clock: int, enough: int = ENOUGH) -> None:
    """Pack what only a finding that comes later than `SETTLE` can concern, once it is `enough`.

    `clock`: how far both event time and arrivals have come, so that a clock ahead of ours
    packs nothing away that others still need.
    """
    # What may still share a window with a finding that is on time stays unpacked.
    before = min(clock, state.clock) - state.span - SETTLE
    cuts = {key: bisect_left(g.entries, before, key=time_key) for key, g in state.groups.items()}
    # A pack has a cost of its own, so small ones are not worth making.
    if sum(cuts.values()) < enough:
        return
    taken: dict[str, list[CorrelationEntry]] = {}
    for key, cut in cuts.items():
        if cut:
            group = state.groups[key]
            taken[key], group.entries = group.entries[:cut], group.entries[cut:]
            group.cold = max(group.cold, taken[key][-1].time)
    state.cold.append(pack_history(taken))
