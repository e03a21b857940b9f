"""Sigma correlations over attributed findings: sliding windows in event time.

Everything here is a function of the rows given, never of the wall clock. The
windows of a group end with its findings: at each instant t that has one, the
window is all of the group in [t - timespan, t], both ends included. A window
that fulfils the condition fires; then the group rests for a timespan.

Conditions that more findings can only fulfil the better (`gt`, `gte` of a count,
a sum or a sequence) fire with the finding that completes them, in any order of
arrival. The others (`lt`, `lte`, `eq`, `neq`, averages, percentiles) are looked
at when their window closes, in the order of event time. A finding that comes
after that is put in its place, the windows it lies in are looked at again, and
what fires then is marked late.

What asks for an absence looks the other way: at each instant t that has a finding, and none
in (t, t + timespan], the group fell silent. That is told once that time is over, as of its end,
and again only when the group came back and fell silent anew. A finding of that time that comes
late, or by a correction, disproves it. So it is with an expression that rules findings out
(`alerts.correlation.negation`): its window closes once none of them can come any more.

A correction may give a finding of a window that fired to another group. What fired
stays with its group while that fulfils the condition without it; else it goes to the
group that does with what it got; and where none does, it is disproved.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from alerts.correlation.conditions import MeasuredCondition, asks_absence, told_at_once
from alerts.correlation.entry import CorrelationEntry, by_order, correlation_entry, time_key
from alerts.correlation.finding import (
    Fired,
    corrected,
    correlation_summary,
    fired,
    rename,
    renew,
    told_again,
)
from alerts.correlation.first_seen import FirstSeen, OldestValues, note_value
from alerts.correlation.group import (
    SETTLE,
    SKEW,
    CorrelationState,
    Group,
    end_key,
    most_entries,
)
from alerts.correlation.negation import looks_ahead, remembers, rules_out
from alerts.correlation.packed_history import unpack_history
from alerts.correlation.windows import Span, first_window, holds, unseen
from alerts.domain.entity import micros
from alerts.domain.finding import counts
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation


@dataclass(frozen=True)
class _Shaken:
    """What fired in a group and lost findings: `lost`, as they are now."""

    key: str
    fired: Fired
    lost: list[CorrelationEntry]


class Correlator:
    """One correlation over its state; `feed` takes findings in any order.

    Of a batch's corrections it knows what fired and lost findings (`_shaken`), which findings came
    to a group (`_entered`), and the groups in which windows that end in a span are to be looked at
    again (`_stirred`, microseconds).
    """

    def __init__(self, state: CorrelationState) -> None:
        self.state = state
        self._where: dict[str, str] = {}
        self._shaken: dict[str, _Shaken] = {}
        self._stirred: list[tuple[str, int, int]] = []
        self._entered: list[tuple[str, CorrelationEntry]] = []
        self._homes: dict[str, Group] = {}
        self._oldest: dict[str, OldestValues] = {}
        for key, group in state.groups.items():
            # As an earlier release left it, it is in another order.
            group.fired.sort(key=end_key)
            for earlier in group.fired:
                self._where.update(dict.fromkeys(earlier.members, key))
                self._homes[earlier.finding["finding_id"]] = group
        # After what fired: a finding that is still here counts where it is now, not where it fired.
        for key, group in state.groups.items():
            for entry in group.entries:
                self._where[entry.finding_id] = key

    def feed(self, definition: Correlation, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take one attributed finding, or the same again with a newer attribution.

        Returns `{"out": "finding", "row": ...}` for a window that fires and
        `{"out": "attribution", "row": ...}` when what fired belongs to another device now.
        What corrections that go from group to group come to is told by `judge`.
        """
        state = self.state
        state.span = remembers(definition)
        state.pack = row["pack"]
        entry = correlation_entry(definition, row)
        outputs: list[dict[str, Any]] = []
        if entry is not None:
            # Before it is looked up: the finding itself, or its window, may lie in a pack.
            self._thaw(entry.time)
            place = self._where.get(entry.finding_id)
            if not counts(row):
                self._let_go(entry, place)
                return []
            if place is None:
                outputs = self._insert(definition, entry)
            else:
                outputs = self._again(entry, place)
        # A host with a clock in the future must not close the windows of all others.
        time = min(micros(row["event_time"]), micros(row["received_at"]) + SKEW)
        state.clock = max(state.clock, time)
        return outputs

    def judge(self, definition: Correlation) -> list[dict[str, Any]]:
        """What the corrections come to that were fed since: call it when a batch is through.

        Not with each: a lease that was another device's brings one for each of its findings,
        and only all of them say where the window is now.
        """
        outputs = [
            row
            for shaken in self._shaken.values()
            if (row := self._judged(definition, shaken)) is not None
        ]
        for key, entry in self._entered:
            outputs += self._end_silences(definition, self.state.groups[key], entry)
        seen: dict[str, list[Span]] = {}
        for key, since, until in self._stirred:
            group = self.state.groups[key]
            self._bound(definition, group)
            # Without what left, the group may have been silent since the finding before it.
            since -= self.state.span if asks_absence(definition) or rules_out(definition) else 0
            # Each window once: from here on no finding comes or goes, and what fires only keeps
            # others quiet. A lease that was another device's stirs the same hour with each finding.
            for begin, end in unseen(seen.setdefault(key, []), since, until):
                outputs += self._fire(definition, group, begin, end, again=True)
        self._shaken, self._stirred, self._entered = {}, [], []
        return outputs

    def settle(
        self, definition: Correlation, arrivals: int | None = None, until: int = 0
    ) -> list[dict[str, Any]]:
        """Look at the windows that closed, of a condition that waits; outputs as of `feed`.

        A window closes when event time, or the time of arrivals, is `SETTLE` past
        the finding it ends with, and of an absence past its time span. Without `arrivals` all
        windows close; those of an absence that end by `until`, microseconds, or the newest finding.
        """
        if told_at_once(definition):
            return []
        outputs: list[dict[str, Any]] = []
        for _, group in sorted(self.state.groups.items()):
            outputs += self._close(definition, group, arrivals, until)
        return outputs

    def _close(
        self, definition: Correlation, group: Group, arrivals: int | None, until: int = 0
    ) -> list[dict[str, Any]]:
        waiting = group.entries[bisect_right(group.entries, group.closed, key=time_key) :]
        closing = [e.time for e in waiting if self._is_closed(definition, e, arrivals, until)]
        if not closing:
            return []
        since, group.closed = waiting[0].time, closing[-1]
        return self._fire(definition, group, since, group.closed)

    def _is_closed(
        self, definition: Correlation, entry: CorrelationEntry, arrivals: int | None, until: int
    ) -> bool:
        waits = looks_ahead(definition)
        if arrivals is None:
            # Nobody knows what came after the end of a history.
            return not waits or entry.time + waits <= max(self.state.clock, until)
        if entry.received + waits < arrivals - SETTLE:
            return True
        return entry.time + waits < self.state.clock - SETTLE

    def _thaw(self, time: int) -> None:
        """Take back what was packed away and may share a window with a finding at `time`."""
        state = self.state
        needed = [c for c in state.cold if c.since - state.span <= time <= c.until + state.span]
        for cold in needed:
            state.cold.remove(cold)
            for key, entries in unpack_history(cold).items():
                alive = [e for e in entries if e.time >= state.forgotten]
                group = state.groups.setdefault(key, Group())
                group.entries = sorted([*alive, *group.entries], key=by_order)
                self._where.update((e.finding_id, key) for e in alive)

    def _insert(self, definition: Correlation, entry: CorrelationEntry) -> list[dict[str, Any]]:
        # JSON and not joined text: values may hold any separator, and null is no empty string.
        key = msgspec.json.encode(entry.group).decode()
        group = self.state.groups.setdefault(key, Group())
        entry.late = entry.time < self.state.clock - SETTLE
        self.state.late += entry.late
        if definition.type == "first_seen":
            return self._sighted(definition, group, entry, key)
        insort(group.entries, entry, key=by_order)
        self._where[entry.finding_id] = key
        outputs: list[dict[str, Any]] = []
        oldest = group.entries[0]
        waits = not told_at_once(definition) and oldest.time > group.closed
        full = len(group.entries) > most_entries(definition)
        # Windows that closed are looked at before their findings go: a batch may bring days. By
        # event time the oldest closes first: where it has not, none has.
        if waits and full and self._is_closed(definition, oldest, arrivals=0, until=0):
            outputs += self._close(definition, group, arrivals=0)
        self._bound(definition, group)
        outputs += self._end_silences(definition, group, entry)
        return outputs + self._look_again(definition, group, entry.time)

    def _end_silences(
        self, definition: Correlation, group: Group, entry: CorrelationEntry
    ) -> list[dict[str, Any]]:
        """Take back an absence in whose time a finding comes late or by a correction."""
        if not (asks_absence(definition) or rules_out(definition)):
            return []
        outputs, span = [], definition.span
        for silence in group.fired_between(entry.time - span, entry.time + span):
            if not silence.disproved and self._ends(definition, group, silence, entry):
                silence.rev = max(silence.rev + 1, entry.rev)
                silence.disproved, silence.members = True, []
                outputs.append(told_again(silence, None, entry.holder))
        return outputs

    def _ends(
        self, definition: Correlation, group: Group, silence: Fired, entry: CorrelationEntry
    ) -> bool:
        """Whether a finding, which is the group's now, makes untrue what was told."""
        span = definition.span
        if asks_absence(definition):
            return silence.end < entry.time <= silence.end + span
        # Of a window of which something is forgotten nobody knows better than who told of it.
        forgotten = silence.end - span < self.state.forgotten or silence.end <= group.dropped_at
        if forgotten or abs(entry.time - silence.end) > span:
            return False
        if holds(definition, group.entries, silence.end):
            return False
        # Where findings of it were one too many, it may be they that are missing.
        others = [each for each in group.entries if each is not entry]
        return silence.start > group.dropped_at or holds(definition, others, silence.end)

    def _bound(self, definition: Correlation, group: Group) -> None:
        """Keep the group at its cap: the oldest finding goes, is counted, and marks its windows."""
        while len(group.entries) > most_entries(definition):
            gone = group.entries.pop(0)
            self._where.pop(gone.finding_id, None)
            group.dropped += 1
            group.dropped_at = max(group.dropped_at, gone.time)
            self.state.dropped += 1

    def _look_again(self, definition: Correlation, group: Group, time: int) -> list[dict[str, Any]]:
        """Look at the windows that a finding at `time` lies in, if they are not to wait."""
        span, since = definition.span, time
        if rules_out(definition):
            # Of windows that closed it can concern none: to look at them with each finding that
            # comes on time would be to go through the whole group with each.
            if time > group.closed + looks_ahead(definition):
                return []
            # It may have taken back what kept others quiet, a span to either side.
            since, span = time - 2 * span, 2 * span
        return self._fire(definition, group, since, time + span, again=True)

    def _fire(
        self, definition: Correlation, group: Group, since: int, until: int, *, again: bool = False
    ) -> list[dict[str, Any]]:
        """Fire the windows that end in [since, until] and fulfil the condition, resting between."""
        outputs, span = [], definition.span
        window = self._window(definition, group, since, until)
        while window is not None:
            within, what = window
            end = within[-1].time
            late = end < self.state.clock - SETTLE if again else within[-1].late
            cut = group.dropped if group.dropped_at >= end - span else 0
            now = fired(definition, within, what, pack=self.state.pack, late=late, dropped=cut)
            outputs.append(self._fired_output(group, now, what.chosen[-1]))
            # Behind the rest of what just fired: its span counts with both ends.
            window = self._window(definition, group, end + span + 1, until)
        return outputs

    def _fired_output(self, group: Group, now: Fired, newest: CorrelationEntry) -> dict[str, Any]:
        """A window that fires; one that was disproved under its id takes its place again."""
        home = self._homes.get(now.finding["finding_id"])
        while home is not None:
            # Exactly one, since an id stands in one group: anything else fails the batch, instead
            # of moving what another group told.
            (earlier,) = (
                f for f in home.fired if f.finding["finding_id"] == now.finding["finding_id"]
            )
            if earlier.disproved:
                home.fired = [each for each in home.fired if each is not earlier]
                renew(earlier, now)
                group.keep(earlier)
                self._homes[earlier.finding["finding_id"]] = group
                earlier.rev = max(earlier.rev + 1, now.rev)
                return told_again(earlier, newest.holder, newest.holder)
            # It went to another group with the id that it got here.
            rename(now)
            home = self._homes.get(now.finding["finding_id"])
        group.keep(now)
        self._homes[now.finding["finding_id"]] = group
        return {"out": "finding", "row": correlation_summary(now.finding)}

    def _sighted(
        self, definition: Correlation, group: Group, entry: CorrelationEntry, key: str
    ) -> list[dict[str, Any]]:
        if entry.value is None:
            return []
        group.seen = group.seen or FirstSeen()
        oldest = self._oldest.get(key)
        if oldest is None or oldest.seen is not group.seen:
            oldest = self._oldest[key] = OldestValues(group.seen)
        if not note_value(group.seen, definition, fold(entry.value), entry.time, oldest):
            return []
        # A value that is new is the whole condition: there is no window to measure.
        what = MeasuredCondition(1, [entry])
        told_now = fired(
            definition,
            [entry],
            what,
            pack=self.state.pack,
            late=entry.late,
            dropped=group.seen.dropped,
        )
        group.keep(told_now)
        self._where[entry.finding_id] = key
        return [{"out": "finding", "row": correlation_summary(told_now.finding)}]

    def _again(self, entry: CorrelationEntry, key: str) -> list[dict[str, Any]]:
        """The same finding once more: a newer attribution may move it to another group."""
        group = self.state.groups[key]
        place = group.place_of(entry)
        if place is not None:
            old = group.entries[place]
            # A finding comes once for each lease and with each retry; only a newer word counts.
            if entry.rev <= old.rev:
                return []
            # Late is how it first came: a correction always comes later.
            entry.late = old.late
            if entry.group != old.group:
                self._leave(entry, key, place)
                self._enter(entry)
                return []
            group.entries[place] = entry
        # Of a window whose findings are forgotten, the newest one says whose it is.
        windows = group.fired_between(entry.time)
        return [out for fired in windows for out in corrected(fired, entry)]

    def _let_go(self, entry: CorrelationEntry, key: str | None) -> None:
        """A finding that counts no more, by a newer attribution."""
        group = self.state.groups.get(key or "")
        place = group.place_of(entry) if group else None
        if group is None or key is None or place is None:
            return
        if entry.rev > group.entries[place].rev:
            self._leave(entry, key, place)

    def _leave(self, entry: CorrelationEntry, key: str, at: int) -> None:
        """A finding is not its group's any more; what fired with it is to be judged."""
        group = self.state.groups[key]
        group.entries.pop(at)
        self._where.pop(entry.finding_id)
        self._stirred.append((key, entry.time, entry.time + self.state.span))
        for earlier in group.fired_between(entry.time):
            if entry.finding_id in earlier.members:
                told_as = earlier.finding["finding_id"]
                self._shaken.setdefault(told_as, _Shaken(key, earlier, [])).lost.append(entry)

    def _enter(self, entry: CorrelationEntry) -> None:
        key = msgspec.json.encode(entry.group).decode()
        insort(self.state.groups.setdefault(key, Group()).entries, entry, key=by_order)
        self._where[entry.finding_id] = key
        self._entered.append((key, entry))
        self._stirred.append((key, entry.time, entry.time + self.state.span))

    def _judged(self, definition: Correlation, shaken: _Shaken) -> dict[str, Any] | None:
        """What fired, now that it is clear which of its findings are whose; None: as told."""
        fired_row, group = shaken.fired, self.state.groups[shaken.key]
        taken_back = fired_row.disproved
        newest = max(shaken.lost, key=lambda entry: entry.rev)
        fired_row.rev = max(fired_row.rev + 1, newest.rev)
        since, until = fired_row.start, fired_row.end + definition.span
        # What it kept quiet, before it and after it, may speak.
        # A span to either side, since a rest holds before and after what fired.
        self._stirred.append((shaken.key, since - self.state.span, until))
        # Taken out while its groups are asked, or its own rest would keep its window quiet.
        group.fired = [each for each in group.fired if each is not fired_row]
        for home in self._candidates(shaken):
            window = self._window(definition, home, since, until)
            if window is not None:
                within, what = window
                marks, pack = fired_row.finding["fields"], fired_row.finding["pack"]
                late, dropped = "late" in marks, int(marks.get("incomplete", 0))
                renew(
                    fired_row,
                    fired(definition, within, what, pack=pack, late=late, dropped=dropped),
                )
                home.keep(fired_row)
                self._homes[fired_row.finding["finding_id"]] = home
                return told_again(fired_row, what.chosen[-1].holder, newest.holder)
        fired_row.disproved, fired_row.members = True, []
        # Kept, though disproved: it comes back under its id if its findings do.
        group.keep(fired_row)
        if taken_back:
            return None  # by a finding of the same batch that came in between
        return told_again(fired_row, None, newest.holder)

    def _candidates(self, shaken: _Shaken) -> list[Group]:
        """Groups that what fired may be of: its own, then those of its findings, newest first."""
        now = [self._where.get(finding_id) for finding_id in reversed(shaken.fired.members)]
        keys = dict.fromkeys([shaken.key, *now])
        return [self.state.groups[key] for key in keys if key in self.state.groups]

    def _window(
        self, definition: Correlation, group: Group, since: int, until: int
    ) -> tuple[Sequence[CorrelationEntry], MeasuredCondition] | None:
        """The first window that may be told by now, of those that end in [since, until]."""
        # No further than what closed: an average may still change while findings come.
        if not told_at_once(definition):
            until = min(until, group.closed)
        return first_window(definition, group, since, until)
