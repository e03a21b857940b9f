"""Sigma correlations over attributed findings: sliding windows in event time.

Everything here is a function of the rows given, never of the wall clock. A
finding that arrives late is put in its place; what it completes fires then.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from alerts.entity import Holder, entity_of, fields_of, holder_of, micros, moment
from alerts.finding import identity, one_line
from alerts.pack import Correlation

LATENESS = 600 * 1_000_000
"""How late a finding may be, microseconds: longer than any source of ours delivers late."""

CORRECTABLE = 3600 * 1_000_000
"""How long after a firing its holder can still be corrected, as long as job `repair` looks back."""

MAX_ENTRIES = 1_000
"""Findings kept for a group; the oldest go first. Above any threshold worth setting."""

EVIDENCE = 10

_COPIED = ("class_uid", "source", "mode", "role", "scope", "ip", "host_name", "user_name", "dst_ip")
_COLUMN = {
    "src_endpoint.ip": "ip",
    "dst_endpoint.ip": "dst_ip",
    "user.name": "user_name",
    "actor.user.name": "user_name",
    "device.hostname": "host_name",
}
"""Columns of a finding that stand in for a field it does not carry."""


class Entry(msgspec.Struct, order=False):
    """A finding that a correlation remembers. `used`: it counted in a window that fired."""

    time: int
    finding_id: str
    rule_id: str
    rev: int
    event_uid: str
    snippet: str
    received: int
    group: list[str]
    copied: dict[str, Any]
    entity: str
    value: str | None = None
    holder: Holder | None = None
    used: bool = False


class Fired(msgspec.Struct):
    """A window that fired, kept to stay quiet afterwards and to correct its holder."""

    start: int
    end: int
    newest: str
    members: list[str]
    rev: int
    entity: str
    finding: dict[str, Any]


class Group(msgspec.Struct):
    """Entries of one group, by time, and what fired."""

    entries: list[Entry] = []
    fired: list[Fired] = []


class CorrelationState(msgspec.Struct):
    """All that one correlation remembers. `span`: its newest time span, microseconds."""

    groups: dict[str, Group] = {}
    span: int = 0


class Correlator:
    """One correlation over its state; `feed` takes findings in any order."""

    def __init__(self, state: CorrelationState) -> None:
        self.state = state
        self._where: dict[str, str] = {}
        for key, group in state.groups.items():
            for entry in group.entries:
                self._where[entry.finding_id] = key
            for fired in group.fired:
                self._where.update(dict.fromkeys(fired.members, key))

    def feed(self, definition: Correlation, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take one attributed finding, or the same again with a newer attribution.

        Returns `{"out": "finding", "row": ...}` for a window that fires and
        `{"out": "attribution", "row": ...}` when what fired belongs to another device now.
        """
        self.state.span = definition.timespan_seconds * 1_000_000
        entry = _entry(definition, row)
        if entry is None:
            return []
        known = self._where.get(entry.finding_id)
        if known is None:
            return self._insert(definition, row, entry)
        return self._again(definition, row, entry, known)

    def _insert(
        self, definition: Correlation, row: Mapping[str, Any], entry: Entry
    ) -> list[dict[str, Any]]:
        key = msgspec.json.encode(entry.group).decode()
        group = self.state.groups.setdefault(key, Group([], []))
        insort(group.entries, entry, key=_order)
        self._where[entry.finding_id] = key
        if len(group.entries) > MAX_ENTRIES:
            dropped = group.entries.pop(0)
            self._where.pop(dropped.finding_id, None)
        window = _first_window(definition, group, entry.time)
        if window is None:
            return []
        within, chosen = window
        finding = _finding(definition, row, within, chosen)
        for member in within:
            member.used = True
        newest = chosen[-1]
        group.fired.append(
            Fired(
                within[0].time,
                newest.time,
                newest.finding_id,
                [e.finding_id for e in within],
                newest.rev,
                newest.entity,
                finding,
            )
        )
        return [{"out": "finding", "row": _told(finding)}]

    def _again(
        self, definition: Correlation, row: Mapping[str, Any], entry: Entry, key: str
    ) -> list[dict[str, Any]]:
        """The same finding once more: a newer attribution may move it to another group."""
        group = self.state.groups[key]
        at = bisect_left(group.entries, _order(entry), key=_order)
        old = group.entries[at] if at < len(group.entries) else None
        if old is not None and old.finding_id == entry.finding_id:
            if entry.rev <= old.rev:
                return []
            if not old.used and entry.group != old.group:
                group.entries.pop(at)
                return self._insert(definition, row, entry)
            entry.used = old.used
            group.entries[at] = entry
        return [out for fired in group.fired for out in _corrected(fired, entry)]


def forget_findings(state: CorrelationState, clock: int) -> None:
    """Drop what no finding inside the lateness can concern any more; `clock` in event time."""
    oldest = clock - state.span - LATENESS
    for key, group in list(state.groups.items()):
        group.entries = [e for e in group.entries if e.time >= oldest]
        group.fired = [f for f in group.fired if f.end >= oldest - CORRECTABLE]
        if not group.entries and not group.fired:
            del state.groups[key]


def _order(entry: Entry) -> tuple[int, str]:
    return entry.time, entry.finding_id


def _entry(definition: Correlation, row: Mapping[str, Any]) -> Entry | None:
    """The finding as an entry; None when it lacks what the correlation groups by or counts."""
    holder = holder_of(row)
    entity = entity_of(row, holder)
    group = [_value(definition, row, name, entity.key) for name in definition.group_by]
    value = definition.field and _value(definition, row, definition.field, entity.key)
    if None in group or (definition.field and value is None):
        return None
    rev = row.get("attr_rev")
    return Entry(
        time=micros(row["event_time"]),
        finding_id=row["finding_id"],
        rule_id=row["rule_id"],
        rev=-1 if rev is None else int(rev),
        event_uid=row["event_uid"],
        snippet=row.get("snippet") or "",
        received=micros(row["received_at"]),
        group=[str(v) for v in group],
        copied={name: row.get(name) for name in _COPIED},
        entity=entity.key,
        value=value,
        holder=holder,
    )


def _value(definition: Correlation, row: Mapping[str, Any], name: str, entity: str) -> str | None:
    if name == "device":
        return entity
    if name in definition.aliases:
        name = definition.aliases[name].get(row["rule_id"], name)
    found = fields_of(row).get(name)
    if found is None:
        found = row.get(_COLUMN.get(name, name))
    return None if found is None else str(found)


def _first_window(
    definition: Correlation, group: Group, since: int
) -> tuple[list[Entry], list[Entry]] | None:
    """The first window, by its end, that a finding at `since` completes: (all in it, evidence)."""
    span = definition.timespan_seconds * 1_000_000
    entries = group.entries
    at = bisect_left(entries, (since, ""), key=_order)
    for end in range(at, len(entries)):
        last = entries[end]
        if last.time > since + span:
            break
        if any(f.start - span <= last.time <= f.end + span for f in group.fired):
            continue
        low = bisect_left(entries, (last.time - span, ""), key=_order)
        within = [e for e in entries[low : end + 1] if not e.used]
        chosen = _satisfied(definition, within)
        if chosen:
            return within, chosen
    return None


def _satisfied(definition: Correlation, within: Sequence[Entry]) -> list[Entry] | None:
    """The entries that fulfil the condition, by time, or None."""
    needed = definition.count + (definition.op == "gt")
    if definition.type == "event_count":
        return list(within) if len(within) >= needed else None
    if definition.type == "value_count":
        return list(within) if len({e.value for e in within}) >= needed else None
    if definition.type == "temporal":
        latest = {e.rule_id: e for e in within}
        return sorted(latest.values(), key=_order) if len(latest) >= needed else None
    return _in_order(definition.rules, within)


def _in_order(rules: Sequence[str], within: Sequence[Entry]) -> list[Entry] | None:
    """The latest chain in which each rule comes no earlier than the one before it."""
    chain: list[Entry] = []
    limit = within[-1].time if within else 0
    for rule_id in reversed(rules):
        fitting = [e for e in within if e.rule_id == rule_id and e.time <= limit]
        if not fitting:
            return None
        chain.append(fitting[-1])
        limit = fitting[-1].time
    return chain[::-1]


def _finding(
    definition: Correlation,
    row: Mapping[str, Any],
    within: Sequence[Entry],
    chosen: Sequence[Entry],
) -> dict[str, Any]:
    """The finding of a window that fired; times in microseconds."""
    newest = chosen[-1]
    anchor = identity(*newest.group, str(within[0].time))
    named = dict(zip(definition.group_by, newest.group, strict=True))
    return {
        **newest.copied,
        "finding_id": identity(definition.id, anchor),
        "rule_id": definition.id,
        "rule_version": definition.version,
        "rule_title": definition.title,
        "level": definition.level,
        "kind": "correlation",
        "pack": row["pack"],
        "feeds": list(definition.feeds),
        "alerting": definition.alerting,
        "event_uid": anchor,
        "event_time": newest.time,
        "received_at": max(e.received for e in within),
        "window_start": within[0].time,
        "holder": newest.holder and msgspec.structs.asdict(newest.holder),
        "fields": named | {"count": str(len(within))},
        "snippet": _summary(definition, within, chosen),
        "evidence": [
            {"event_uid": e.event_uid, "time": e.time, "snippet": e.snippet}
            for e in _sample(chosen)
        ],
        "evidence_total": len(chosen),
    }


def _sample(entries: Sequence[Entry]) -> list[Entry]:
    """At most ten: the first and the last five."""
    if len(entries) <= EVIDENCE:
        return list(entries)
    half = EVIDENCE // 2
    return [*entries[:half], *entries[-half:]]


def _summary(definition: Correlation, within: Sequence[Entry], chosen: Sequence[Entry]) -> str:
    seconds = (chosen[-1].time - within[0].time) / 1_000_000
    what = f"{len(chosen)} findings in {seconds:.0f} s"
    if definition.type == "value_count":
        what = f"{len({e.value for e in within})} values of {definition.field} in {seconds:.0f} s"
    return one_line(f"{definition.title}: {what}; last: {chosen[-1].snippet}")


def _told(finding: Mapping[str, Any]) -> dict[str, Any]:
    """The finding as a row of gold.finding, its times as UTC datetimes."""
    row = dict(finding)
    for name in ("event_time", "received_at", "window_start"):
        row[name] = moment(row[name])
    row["evidence"] = [e | {"time": moment(e["time"])} for e in row["evidence"]]
    return row


def _corrected(fired: Fired, entry: Entry) -> Iterator[dict[str, Any]]:
    """The correction of what fired, when its newest finding turns out to be another device's."""
    if fired.newest != entry.finding_id or entry.rev <= fired.rev:
        return
    moved = entry.entity != fired.entity
    fired.rev, fired.entity = entry.rev, entry.entity
    if not moved:
        return
    holder = entry.holder and msgspec.structs.asdict(entry.holder)
    finding = _told(fired.finding)
    known_at = entry.holder.known_at if entry.holder else None
    yield {
        "out": "attribution",
        "row": {
            "finding_id": finding["finding_id"],
            "role": finding["role"],
            "rev": entry.rev,
            "event_time": finding["event_time"],
            "holder": holder,
            "via": "correction",
            "attributed_at": known_at or finding["received_at"],
            "finding": msgspec.json.encode(
                {name: value for name, value in finding.items() if name != "holder"}
            ).decode(),
        },
    }
