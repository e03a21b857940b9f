"""First-seen: a value that its group did not have within a time span, such as a device's process.

A group remembers of each value when its present run began and was last seen; a
run ends when the value stays away for longer than the span. The group has a run
of its own, of any value: what is seen while it is younger than `learn` is only
learned.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import msgspec

from alerts.rulepack.rule_pack import Correlation

MAX_VALUES = 10_000
"""Values remembered for a group; those seen longest ago go first, and are new when they return."""


# As arrays: there are up to ten thousand of them in a group, and names would double the state.
class _Run(msgspec.Struct, array_like=True):
    """First and last instant of a run, microseconds."""

    first: int
    last: int


class FirstSeen(msgspec.Struct):
    """What a group has had. `dropped`: values forgotten because there were too many."""

    values: dict[str, _Run] = {}
    presence: _Run | None = None
    dropped: int = 0


class OldestValues:
    """Of a group with too many values which one is to go, without a look at all of them each time.

    Follows from the group, so it is not kept with it.
    """

    def __init__(self, seen: FirstSeen) -> None:
        self.seen = seen
        self._heap: list[tuple[int, str]] = []

    def noted(self, value: str) -> None:
        """A value was seen; what the heap has of it from before is passed over by `pop`."""
        if self._heap:
            heappush(self._heap, (self.seen.values[value].last, value))

    def pop(self) -> str:
        """The value seen longest ago, which goes; by itself where several were seen at once, so
        that a retry forgets the same one."""
        values = self.seen.values
        while True:
            if not self._heap:
                self._heap = [(run.last, value) for value, run in values.items()]
                heapify(self._heap)
            last, value = heappop(self._heap)
            run = values.get(value)
            if run is not None and run.last == last:
                del values[value]
                return value


def note_value(
    seen: FirstSeen,
    definition: Correlation,
    value: str,
    time: int,
    oldest: OldestValues | None = None,
) -> bool:
    """Note a value; True when it begins a run in a group that is known long enough.

    A sighting that comes late and lies before a run it touches makes the run
    begin earlier and tells nothing: what the run's first sighting told stands.
    """
    span = definition.span
    # A group that was silent for a span is learned anew: all of it would look new.
    seen.presence, _ = _extended(seen.presence, time, span)
    run, begins = _extended(seen.values.get(value), time, span)
    seen.values[value] = run
    oldest = oldest or OldestValues(seen)
    oldest.noted(value)
    if len(seen.values) > MAX_VALUES:
        oldest.pop()
        seen.dropped += 1
    learned = time - seen.presence.first >= definition.learn_seconds * 1_000_000
    return begins and learned


def forget_values(seen: FirstSeen, oldest: int) -> bool:
    """Drop values last seen before `oldest`; True when nothing is left."""
    seen.values = {value: run for value, run in seen.values.items() if run.last >= oldest}
    return not seen.values


def _extended(run: _Run | None, time: int, span: int) -> tuple[_Run, bool]:
    """The run with a sighting more, and whether that begins one.

    What lies further before the run than the span belongs to a run that is over.
    """
    if run is None or time > run.last + span:
        return _Run(time, time), True
    if time < run.first - span:
        return run, False
    return _Run(min(run.first, time), max(run.last, time)), False
