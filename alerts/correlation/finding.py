"""What a correlation tells: the finding of a window, and the correction of one already told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from alerts.correlation.conditions import NUMERIC, MeasuredCondition, Number, asks_absence
from alerts.correlation.entry import COPIED, CorrelationEntry
from alerts.correlation.negation import looks_ahead, rules_out
from alerts.domain.alert import Evidence, sampled
from alerts.domain.entity import Holder, event_instant, micros
from alerts.domain.finding import DISPROVED, identity, single_line
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation

_EVIDENCE = 10
_END_OF_TIME = micros(datetime.max)


class Fired(msgspec.Struct, gc=False):
    """A window that fired, kept to stay quiet afterwards and to be corrected.

    `disproved`: its findings turned out to be of several groups, of which none fulfils the
    condition; it keeps nobody quiet then, and has no members.
    """

    start: int
    end: int
    newest: str
    members: list[str]
    rev: int
    entity: str
    finding: dict[str, Any]
    disproved: bool = False


def fired(
    definition: Correlation,
    within: Sequence[CorrelationEntry],
    what: MeasuredCondition,
    *,
    pack: str,
    late: bool = False,
    dropped: int = 0,
) -> Fired:
    """The window `within` as something told.

    `late`: it closed before what completed it came. `dropped`: findings of the
    window that were no longer remembered, so that its number is only a part.
    """
    newest = what.chosen[-1]
    # Without the value that is new, one instant's two new values would share an anchor.
    apart = [fold(newest.value or "")] if definition.type == "first_seen" else []
    # By the window's begin and group: a retry, and history, give the same id.
    anchor = identity(*newest.group, str(within[0].time), *apart)
    marks = {"late": "true"} if late else {}
    if dropped:
        marks["incomplete"] = str(dropped)
    finding = {
        **{name: newest.copied.get(name) for name in COPIED},
        "finding_id": identity(definition.id, anchor),
        "rule_id": definition.id,
        "rule_version": definition.version,
        "rule_title": definition.title,
        "level": definition.level,
        "kind": "correlation",
        "pack": pack,
        "feeds": list(definition.feeds),
        "alerting": definition.alerting,
        "event_uid": anchor,
        "event_time": _told_at(definition, within),
        "received_at": max(e.received for e in within),
        "window_start": within[0].time,
        "holder": newest.holder and msgspec.structs.asdict(newest.holder),
        "fields": newest.carried
        | dict(zip(definition.group_by, newest.shown, strict=True))
        | _numbers(definition, within, newest, what.value)
        | marks,
        "snippet": _summary(definition, within, what, late),
        "evidence": [
            {"event_uid": e.event_uid, "time": e.time, "snippet": e.snippet}
            for e in _events(_sample(what.chosen))
        ],
        "evidence_total": sum(e.events for e in what.chosen),
    }
    return Fired(
        within[0].time,
        within[-1].time,
        newest.finding_id,
        [e.finding_id for e in within],
        newest.rev,
        newest.entity,
        finding,
    )


def _told_at(definition: Correlation, within: Sequence[CorrelationEntry]) -> int:
    """When it was so, microseconds: with the newest finding, and of an absence when its time was
    over, or what counts it would be looked for in the past."""
    # A log may tell the last second of the last year there is, and nothing is behind that.
    return min(within[-1].time + looks_ahead(definition), _END_OF_TIME)


def correlation_summary(finding: Mapping[str, Any]) -> dict[str, Any]:
    """The finding as a row of gold.finding, its times as UTC datetimes."""
    row = dict(finding)
    for name in ("event_time", "received_at", "window_start"):
        row[name] = event_instant(row[name])
    row["evidence"] = [e | {"time": event_instant(e["time"])} for e in row["evidence"]]
    return row


def corrected(fired: Fired, entry: CorrelationEntry) -> Iterator[dict[str, Any]]:
    """The correction of what fired, when its newest finding turns out to be another device's."""
    # The window shows the holder of its newest finding; another one's changes nothing here.
    if fired.newest != entry.finding_id or entry.rev <= fired.rev:
        return
    # A newer statement for the same device is noted, but told to nobody.
    moved = entry.entity != fired.entity
    fired.rev, fired.entity = entry.rev, entry.entity
    if moved:
        yield told_again(fired, entry.holder, entry.holder)


def renew(fired: Fired, now: Fired) -> None:
    """Let what fired say what `now` does, under the id that it has."""
    # Its row of gold.finding is found by these.
    same = ("finding_id", "event_uid", "role", "event_time", "received_at")
    kept = {name: fired.finding.get(name) for name in same}
    fired.start, fired.end, fired.newest = now.start, now.end, now.newest
    fired.members, fired.entity = now.members, now.entity
    fired.finding = now.finding | kept
    fired.disproved = False


def rename(fired: Fired) -> None:
    """Give what fires another id: its own is borne by what fired there and went elsewhere."""
    finding = fired.finding
    # Derived from the id that is taken, so a retry comes to the same new one.
    finding["event_uid"] = identity(finding["event_uid"], "again")
    finding["finding_id"] = identity(finding["rule_id"], finding["event_uid"])


def told_again(fired: Fired, holder: Holder | None, because: Holder | None) -> dict[str, Any]:
    """What fired, as it is now: another device's, with other findings, or disproved.

    `because`: the lease that shows it.
    """
    finding = correlation_summary(fired.finding)
    known_at = because.known_at if because else None
    return {
        "out": "attribution",
        "row": {
            "finding_id": finding["finding_id"],
            "role": finding["role"],
            "rev": fired.rev,
            "event_time": finding["event_time"],
            "holder": holder and msgspec.structs.asdict(holder),
            "via": DISPROVED if fired.disproved else "correction",
            "attributed_at": known_at or finding["received_at"],
            "finding": msgspec.json.encode(
                {name: value for name, value in finding.items() if name != "holder"}
            ).decode(),
        },
    }


def _numbers(
    definition: Correlation,
    within: Sequence[CorrelationEntry],
    newest: CorrelationEntry,
    value: Number,
) -> dict[str, str]:
    """The window's number under its type's name, for people and for correlations above."""
    if definition.type == "first_seen":
        return {definition.field or "value": newest.value or ""}
    seen = 0 if asks_absence(definition) else len(within)
    return {"count": str(seen), definition.type: _spell(value)}


def _spell(value: Number) -> str:
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)


def _sample(entries: Sequence[CorrelationEntry]) -> list[CorrelationEntry]:
    """At most ten: the first and the last five."""
    if len(entries) <= _EVIDENCE:
        return list(entries)
    half = _EVIDENCE // 2
    return [*entries[:half], *entries[-half:]]


def _events(entries: Sequence[CorrelationEntry]) -> Sequence[CorrelationEntry | Evidence]:
    """The events of some findings: of a correlation's those it counted, for it is none itself."""
    if not any(entry.evidence for entry in entries):
        return entries
    own = ([Evidence(e.finding_id, e.event_uid, e.time, e.snippet)] for e in entries)
    return sampled(
        [x for e, events in zip(entries, own, strict=True) for x in e.evidence or events]
    )


def _summary(
    definition: Correlation, within: Sequence[CorrelationEntry], what: MeasuredCondition, late: bool
) -> str:
    seconds = (what.chosen[-1].time - within[0].time) / 1_000_000
    message = f"{len(what.chosen)} findings in {seconds:.0f} s"
    if rules_out(definition):
        message += f" and none that it rules out within {definition.timespan_seconds} s"
    elif asks_absence(definition):
        message = f"nothing for {definition.timespan_seconds} s"
    elif definition.type == "value_count":
        counted = " with ".join(definition.every_field)
        message = f"{what.value} values of {counted} in {seconds:.0f} s"
    elif definition.type in NUMERIC:
        kind = definition.type.removeprefix("value_")
        message = f"{kind} of {definition.field} is {_spell(what.value)} in {seconds:.0f} s"
    elif definition.type == "first_seen":
        message = f"{definition.field} {what.chosen[-1].value} is new"
    when = " (late)" if late else ""
    return single_line(f"{definition.title}: {message}{when}; last: {what.chosen[-1].snippet}")
