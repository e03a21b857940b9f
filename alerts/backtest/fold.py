"""Findings of history through the live state machine, in the order in which they came.

The same `BucketState` as in job `alert`. Each rule has a bucket of its own here:
how rules share buckets makes no difference to what they tell.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from alerts.compiler.enrichment_predicates import Confirming
from alerts.correlation.group import SETTLE
from alerts.correlation.negation import looks_ahead
from alerts.domain.entity import entity_of, holder_of, micros
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.risk_score import ENTITIES, INCIDENT, RISK
from alerts.lifecycle.suppression import SUPPRESS, UNSUPPRESS
from alerts.rulepack.rule_pack import Correlation, RulePack
from enrich.assets.index import AssetIndex
from infra.config.settings import Settings

_Row = Mapping[str, Any]
_Packs = Callable[[str], RulePack]

DENSE = 50
"""A rule with much in its state waits until its rows are a fiftieth of it: a step costs what the
state holds, so history with many alerts would take time in the square of it."""

_HOUR = 3600 * 1_000_000
_DAY = 24 * _HOUR


class Brief(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An alert in its newest revision, as far as a backtest tells; times are microseconds.

    `raised`: the event that made it; `first` is that of a correlation's first finding.
    """

    alert_id: str
    rule_id: str
    level: str
    entity_type: str
    entity_value: str
    key: str
    raised: int = 0
    first: int
    last: int
    received: int
    count: int
    status: str
    title: str
    state: str = "open"
    superseded_by: str | None = None
    revisions: int = 1
    evidence: list[str] = []
    snippet: str = ""


@dataclass
class _Target:
    """What one rule or correlation remembers and still has to take."""

    state: BucketState = field(default_factory=BucketState)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    since: int = 0
    held: float = 0.0
    newest: int = 0
    settles_at: int = 0
    seen_for_all: int = 0
    """How many of the rows that concern everybody it knows."""

    def due_at(self, pause: int) -> int:
        """When what waits is to be taken, or a window that closed to be looked at."""
        if not self.waiting:
            return self.settles_at
        enough = len(self.waiting) * DENSE >= self.held
        return self.since + (pause if enough else _HOUR)

    def take(self) -> list[dict[str, Any]]:
        """What waits. What was taken before counts half as much with each day: it is forgotten."""
        rows, self.waiting = self.waiting, []
        newest = max(micros(row["available_at"]) for row in rows)
        self.held = self.held * 0.5 ** (max(0, newest - self.newest) / _DAY) + len(rows)
        self.newest = max(newest, self.newest)
        return rows


class Refold:
    """History as job `alert` would have folded it.

    `wanted`: ids of rules and correlations whose rows matter; `incidents`: also what
    several of them say of one entity; `index`: the inventories that rules ask. What it told is
    in `alerts`, the newest revision of each by id, and in `findings`, those of correlations and
    incidents.
    """

    def __init__(
        self,
        packs: _Packs,
        settings: Settings,
        wanted: Iterable[str],
        *,
        incidents: bool = False,
        index: AssetIndex | None = None,
    ) -> None:
        self.alerts: dict[str, Brief] = {}
        self.findings: list[dict[str, Any]] = []
        self.clock = 0
        self._packs = packs
        self._confirming, self._index = Confirming(packs), index
        self._settings = settings.alerts
        # Rows of one trigger are one batch live, and an alert gets one revision for each batch.
        self._pause = max(1_000_000, round(settings.jobs.alert_trigger_seconds * 1_000_000))
        self._wanted = frozenset(wanted) | ({INCIDENT} if incidents else set())
        self._incidents = incidents
        self._for_all: list[dict[str, Any]] = []
        self._targets: dict[str, _Target] = {}
        self._busy: set[str] = set()
        self._back: list[tuple[int, int, dict[str, Any]]] = []
        self._numbers = count()

    def run(self, rows: Iterable[_Row], tell: Callable[[int, int], None] = lambda *_: None) -> None:
        """Take rows by `available_at`: attributed findings, or actions with `row_kind`.

        `tell` hears now and then how many rows were taken and up to when.
        """
        taken = 0
        for taken, row in enumerate(rows, 1):
            now = micros(row["available_at"])
            if now >= self.clock + self._pause:
                self._advance(now)
            self._take(row)
            if taken % 10_000 == 0:
                tell(taken, now)
        # Until nothing is under way: windows at the end of the span still have to close.
        while self._busy or self._back:
            self._advance(self.clock + _HOUR)
        for _, target in sorted(self._targets.items()):
            self._let(target, [], self.clock + _DAY)  # counts that were not told yet
        tell(taken, self.clock)

    def _advance(self, now: int) -> None:
        """Move the clock to `now`, past all that falls due on the way, in its order.

        What a correlation found comes back in the batch after the one that found it.
        """
        while True:
            due = min((self._targets[name].due_at(self._pause) for name in self._busy), default=now)
            back = self._back[0][0] if self._back else now + 1
            if min(due, back) > now or not (self._busy or self._back):
                break
            self.clock = max(self.clock, min(due, back))
            # What came back first goes in first, or it would miss the batch it belongs to.
            if back <= due:
                self._take(heapq.heappop(self._back)[2])
            else:
                self._step()
        self.clock = max(self.clock, now)

    def _take(self, row: _Row) -> None:
        kind = row.get("row_kind", "finding")
        # A suppression concerns every rule; each takes note of it at its own next step.
        if row.get("action") in (SUPPRESS, UNSUPPRESS):
            self._for_all.append({**row, "target": None})
            return
        if kind == "finding" and not self._confirming.holds(row, self._index):
            return
        for name in self._targets_of(row, kind):
            target = self._targets.setdefault(name, _Target())
            if not target.waiting:
                target.since = micros(row["available_at"])
            self._busy.add(name)
            # What job `alert` had forgotten is no alert that this run has raised.
            target.waiting.append({**row, "row_kind": kind, "target": name, "alert": None})

    def _targets_of(self, row: _Row, kind: str) -> Iterator[str]:
        """The rule, the correlations that count it and the risk of its entity: as in `to_state`."""
        rule_id = row["rule_id"]
        if rule_id in self._wanted and (kind == "action" or row["alerting"]):
            yield rule_id
        if kind == "action":
            return
        for feed in dict.fromkeys(row.get("feeds") or ()):
            if feed in self._wanted and feed != rule_id:
                yield feed
        if self._incidents and rule_id != INCIDENT:
            entity = entity_of(row, holder_of(row))
            if entity.type in ENTITIES:
                yield f"{RISK}|{entity.key}"

    def _step(self) -> None:
        """One batch: rules take what has waited long enough, or look at windows that closed."""
        for name in sorted(self._busy):
            target = self._targets[name]
            if target.due_at(self._pause) > self.clock:
                continue
            if target.waiting:
                rows = target.take()
                if any(row["rule_id"] != name for row in rows):
                    waits = self._looks_ahead(name, rows[-1]["pack"])
                    target.settles_at = target.newest + waits + 2 * SETTLE
                self._let(target, rows, target.newest)
            else:
                position, target.settles_at = target.settles_at, 0
                self._let(target, [], position)
            if not target.settles_at:
                self._busy.discard(name)

    def _looks_ahead(self, name: str, pack: str) -> int:
        definition = self._packs(pack).described(name)
        return looks_ahead(definition) if isinstance(definition, Correlation) else 0

    def _let(self, target: _Target, rows: list[dict[str, Any]], at: int) -> None:
        tick = {"row_kind": "tick", "target": None, "event_time": at}
        new_rows, target.seen_for_all = self._for_all[target.seen_for_all :], len(self._for_all)
        step = target.state.step([*new_rows, *rows, tick], self._packs, self._settings, at)
        for output in step:
            if output["out"] == "alert":
                self._note(output["row"])
            elif output["out"] == "finding":
                self._note_finding(output["row"], at)

    def _note_finding(self, finding: _Row, at: int) -> None:
        row = {
            **finding,
            "attr_rev": -1,
            "via": "outside",
            "available_at": max(at, self.clock) + self._pause,
        }
        self.findings.append(row)
        # The number parts what is due at once: a heap cannot compare the rows.
        heapq.heappush(self._back, (row["available_at"], next(self._numbers), row))

    def _note(self, row: _Row) -> None:
        body = row["body"]
        evidence = body["evidence"]
        earlier = self.alerts.get(row["alert_id"])
        self.alerts[row["alert_id"]] = Brief(
            alert_id=row["alert_id"],
            rule_id=row["rule_id"],
            level=row["level"],
            entity_type=row["entity_type"],
            entity_value=row["entity_value"],
            key=row["dedup_key"].partition("|")[2],
            raised=earlier.raised if earlier else micros(row["event_time"]),
            first=micros(row["window_start"]),
            last=micros(row["window_end"]),
            received=micros(row["received_at"]),
            count=row["count"],
            status=row["status"],
            title=row["title"],
            state=body["state"],
            superseded_by=body["superseded_by"],
            revisions=row["revision"],
            evidence=[event["event_uid"] for event in evidence],
            snippet=evidence[-1]["snippet"] if evidence else "",
        )
