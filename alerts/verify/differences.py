"""Whether the stream told what the same rules tell over history, and where not, why.

Each difference has a cause, from facts that the tables hold. What has none is
`unexplained`: a fault of the platform, or of this comparison.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alerts.backtest.fold import Brief
from alerts.domain.finding import RULE_FAILED

CAUSES = {
    "unfinished": "the job had not got so far yet",
    "rule changed": "the batch used another rule pack than the one that finds it",
    "pack lost": "the rule pack or model of the batch is no longer in the store",
    "rule failed": "the rule threw in that batch and was set aside",
    "reparsed": "silver.event was read again by newer parsers after detection",
    "duplicate": "the event was marked as a second delivery after detection",
    "gone": "the event is no longer in silver.event (retention, erasure)",
    "follows": "findings it rests on differ, as told above",
    "repaired": "the address was attributed to another holder later",
    "late": "it came after its window had closed",
    "order": "findings came in another order, so it began with, or counts on, another one",
    "unexplained": "",
}
"""Causes of a difference, and what they mean."""

_BATCH = re.compile(r"^(ingest|files)-(\d+)-[0-9a-f]{16}-")


@dataclass(frozen=True)
class Difference:
    """One thing that stream and history tell differently.

    `what`: finding, hour (a model's), correlation or alert. `how`: missing (the stream did not tell
    it), extra (only the stream did) or other (told differently).
    """

    what: str
    how: str
    id: str
    rule_id: str
    at: int
    cause: str
    detail: str = ""


@dataclass(frozen=True)
class OneSidedFinding:
    """A finding that only one of both has, or that another pack found. Times: microseconds.

    `recorded`: the pack that gold.finding names; `packs`: those that find it now.
    """

    finding_id: str
    rule_id: str
    event_uid: str
    at: int
    recorded: str | None
    packs: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class EventFacts:
    """What silver.event says today of an event of a stray finding."""

    duplicate: bool
    dead: bool
    file: str


@dataclass(frozen=True)
class Batches:
    """What is known of the batches of detection.

    `packs`: by job and number. `lost`: packs that are in force no more and not in the
    store. `failed`: (rule, pack) that threw.
    """

    packs: Mapping[tuple[str, int], str]
    lost: Collection[str] = ()
    failed: Collection[tuple[str, str]] = ()

    def pack_of(self, file: str) -> str | None:
        """The pack of the batch that wrote a file; None when the name does not tell."""
        match = _BATCH.match(file)
        return self.packs.get((match[1], int(match[2]))) if match else None


def judge_finding(
    stray: OneSidedFinding, event: EventFacts | None, batches: Batches
) -> Difference | None:
    """Why a finding is told by one side only; None when its batch's own pack does not find it."""
    extra = stray.recorded is not None
    # The same finding twice is a fault whatever else is true of it, so it is asked first.
    if stray.times > 1:
        message = f"{stray.times} rows in gold.finding"
        return _of(stray, "other", "unexplained", message)
    if stray.rule_id == RULE_FAILED:
        return _of(stray, "extra" if extra else "missing", "rule failed")
    if event is None:
        return _of(stray, "extra", "gone") if extra else _of_window(stray, batches)
    # Today's event is not the one that was matched; neither side is wrong.
    if event.file.startswith("reparse-"):
        return _of(stray, "extra" if extra else "missing", "reparsed", event.file)
    if extra:
        if stray.recorded in batches.lost:
            return _of(stray, "extra", "pack lost", f"pack {stray.recorded}")
        if event.duplicate or event.dead:
            return _of(stray, "extra", "duplicate")
        return _of(stray, "extra", "unexplained", f"pack {stray.recorded} does not find it")
    pack = batches.pack_of(event.file)
    # The batch's own pack does not find it, so the stream was right not to tell.
    if pack is not None and pack not in stray.packs:
        if pack in batches.lost:
            return _of(stray, "missing", "pack lost", f"pack {pack}")
        return None
    if pack is not None and (stray.rule_id, pack) in batches.failed:
        return _of(stray, "missing", "rule failed")
    # A compaction may have renamed the file; with a single pack in force that would not matter.
    if pack is None and len(set(batches.packs.values())) > 1:
        return _of(stray, "missing", "rule changed", f"its batch is not known ({event.file})")
    return _of(stray, "missing", "unexplained", f"pack {pack or stray.packs[0]} finds it")


def _of_window(stray: OneSidedFinding, batches: Batches) -> Difference:
    """Why the stream did not tell of a window: history has its events, but it is about no single
    one of them."""
    if any((stray.rule_id, pack) in batches.failed for pack in stray.packs):
        return _of(stray, "missing", "rule failed")
    if len(set(batches.packs.values())) > 1:
        return _of(stray, "missing", "rule changed", "its window may be older than the rule")
    return _of(stray, "missing", "unexplained", f"pack {stray.packs[0]} finds it")


def _of(stray: OneSidedFinding, how: str, cause: str, detail: str = "") -> Difference:
    message = f"event {stray.event_uid}" + (f"; {detail}" if detail else "")
    return Difference("finding", how, stray.finding_id, stray.rule_id, stray.at, cause, message)


@dataclass(frozen=True)
class ComparedAlert:
    """A finding of a correlation, or an alert, as one side has it. Times: microseconds.

    `key`: entity or group. `evidence`: event uids it rests on.
    """

    id: str
    rule_id: str
    key: str
    entity: str
    first: int
    last: int
    raised: int
    received: int
    count: int
    late: bool = False
    moved: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlertFacts:
    """What the tables say beside. `finished`: the arrival time up to which job `alert` is
    certainly through; `repaired`: event uids whose finding was attributed anew; `strays`:
    event uids whose finding differs."""

    finished: int
    repaired: Collection[str] = ()
    strays: Collection[str] = ()

    def follows(self, *sides: ComparedAlert | None) -> bool:
        """Whether a finding that differs is behind it."""
        return any(side and any(uid in self.strays for uid in side.evidence) for side in sides)

    def repairs(self, *sides: ComparedAlert | None) -> bool:
        """Whether a repaired attribution is behind it."""
        return any(
            side is not None and (side.moved or any(uid in self.repaired for uid in side.evidence))
            for side in sides
        )


def judge_told(
    what: str,
    stream: Iterable[ComparedAlert],
    history: Iterable[ComparedAlert],
    span: tuple[int, int],
    facts: AlertFacts,
) -> tuple[int, list[Difference]]:
    """How many alerts (or findings of correlations) raised in a span are the same, and the rest."""
    ours, theirs = {alert.id: alert for alert in history}, {alert.id: alert for alert in stream}
    # Only what the other side has alone can stand for it, and only once: doubles stay visible.
    partner = _partners(
        [alert for alert in theirs.values() if alert.id not in ours],
        [alert for alert in ours.values() if alert.id not in theirs],
    )
    same, different = 0, []
    for alert_id in sorted({*ours, *theirs}):
        message, result = theirs.get(alert_id), ours.get(alert_id)
        either = message or result
        # Alerts of the warm-up are only there to be counted on; nothing is promised of them.
        if either is None or not span[0] <= either.raised < span[1]:
            continue
        if message is not None and result is not None:
            alert = _both(what, message, result, facts)
        else:
            how = "extra" if message is not None else "missing"
            alert = _alone(what, how, either, partner.get(alert_id), facts)
        same += alert is None
        different += [alert] if alert else []
    return same, different


def _both(
    what: str, told: ComparedAlert, found: ComparedAlert, facts: AlertFacts
) -> Difference | None:
    wrong = []
    if told.key != found.key:
        wrong.append(f"about {told.entity}, by history {found.entity}")
    if told.count != found.count:
        wrong.append(f"counts {told.count}, by history {found.count}")
    if not wrong:
        return None
    # Facts that lie in the data come before the excuse that the job is not through.
    cause = "unexplained"
    if facts.follows(told, found):
        cause = "follows"
    elif facts.repairs(told, found):
        cause = "repaired"
    elif max(told.received, found.received) >= facts.finished:
        cause = "unfinished"
    return Difference(what, "other", told.id, told.rule_id, told.raised, cause, "; ".join(wrong))


def _alone(
    what: str, how: str, one: ComparedAlert, other: ComparedAlert | None, facts: AlertFacts
) -> Difference:
    cause, detail = "unexplained", one.entity
    if how == "missing" and one.received >= facts.finished:
        cause = "unfinished"
    elif facts.follows(one, other):
        cause = "follows"
    elif one.late or (other is not None and other.late):
        cause = "late"
    elif facts.repairs(one, other):
        cause = "repaired"
    elif other is not None:
        cause, detail = "order", f"{one.entity}: beside {other.id}"
    return Difference(what, how, one.id, one.rule_id, one.raised, cause, detail)


def _partners(
    stream: Sequence[ComparedAlert], history: Sequence[ComparedAlert]
) -> dict[str, ComparedAlert]:
    """Pairs of the same rule that share an event, or are about one entity at the same time."""
    by_rule: dict[str, list[ComparedAlert]] = defaultdict(list)
    for alert in history:
        by_rule[alert.rule_id].append(alert)
    pairs: dict[str, ComparedAlert] = {}
    # In a fixed order: pairing is greedy, and the report must be the same each time.
    for alert in sorted(stream, key=lambda alert: (alert.first, alert.id)):
        waiting = by_rule[alert.rule_id]
        other = next((each for each in waiting if _alike(alert, each)), None)
        if other is not None:
            # A partner stands for one alert only, or doubles would hide behind it.
            waiting.remove(other)
            pairs |= {alert.id: other, other.id: alert}
    return pairs


def _alike(one: ComparedAlert, other: ComparedAlert) -> bool:
    if set(one.evidence) & set(other.evidence):
        return True
    return one.key == other.key and one.first <= other.last and other.first <= one.last


def compared_alert(brief: Brief) -> ComparedAlert:
    """An alert of history."""
    return ComparedAlert(
        id=brief.alert_id,
        rule_id=brief.rule_id,
        key=brief.key,
        entity=brief.entity_value,
        first=brief.first,
        last=brief.last,
        raised=brief.raised,
        received=brief.received,
        count=brief.count,
        evidence=tuple(brief.evidence),
    )


@dataclass
class Verified:
    """What a comparison came to: how much is the same, and every difference."""

    since: str
    until: str
    complete_up_to: str
    packs: list[str]
    same: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def unexplained(self) -> int:
        """Differences without a cause."""
        return sum(difference.cause == "unexplained" for difference in self.differences)

    def by_cause(self) -> list[dict[str, Any]]:
        """Differences counted by what and why, those without a cause first."""
        counted: dict[tuple[str, str, str], int] = defaultdict(int)
        for difference in self.differences:
            counted[difference.cause, difference.what, difference.how] += 1
        ordered: Sequence[tuple[tuple[str, str, str], int]] = sorted(
            counted.items(), key=lambda item: (item[0][0] != "unexplained", item[0])
        )
        return [
            {"what": what, "how": how, "cause": cause, "number": many, "meaning": CAUSES[cause]}
            for (cause, what, how), many in ordered
        ]
