"""What one bucket of rules and correlations remembers between micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from alerts.alert import Fold, FoldState, forget_alerts
from alerts.body import alert_row
from alerts.correlate import CorrelationState, Correlator, forget_findings
from alerts.correlation_measure import told_at_once
from alerts.entity import micros
from alerts.pack import Correlation, RulePack
from infra.errors import Fatal
from infra.settings import AlertSettings

HEADER = b"HGALERT\x01"
"""First bytes of an encoded bucket; the last of them is the version."""

Packs = Callable[[str], RulePack]
Row = Mapping[str, Any]


class _Kept(msgspec.Struct):
    folds: dict[str, FoldState] = {}
    correlations: dict[str, CorrelationState] = {}
    clock: int = 0


class BucketState:
    """Folds and correlations of the rules in one bucket; encoded as one versioned blob."""

    def __init__(self) -> None:
        self._kept = _Kept()

    @classmethod
    def decode(cls, blob: bytes) -> BucketState:
        """Read what `encode` wrote; raises `Fatal` when it is of another version."""
        if not blob.startswith(HEADER):
            raise Fatal(
                f"alert state begins with {bytes(blob[:8])!r}, not {HEADER!r}: "
                "it was written by another version; start job alert on a new checkpoint"
            )
        bucket = cls()
        bucket._kept = msgspec.msgpack.decode(blob[len(HEADER) :], type=_Kept)
        return bucket

    def encode(self) -> bytes:
        """Everything remembered, as bytes; equal states give equal bytes."""
        return HEADER + msgspec.msgpack.encode(self._kept)

    def step(
        self,
        rows: Sequence[Row],
        packs: Packs,
        settings: AlertSettings,
        detected_at: int,
        lineage: Row | None = None,
    ) -> list[dict[str, Any]]:
        """Take a micro-batch of rows and return `{"out": kind, "row": ...}`.

        Rows have `row_kind` (finding, correction, action, tick) and `target`: the
        rule a finding is of, or a correlation that counts it; none for a tick.
        Times are datetimes in UTC or microseconds; `detected_at` microseconds, to
        be the same when the batch is tried again. The order of rows is no matter.

        Kinds returned: alert (gold.alert), finding (gold.finding, of a correlation),
        attribution (gold.attribution, of a correlation's finding), refused (an
        action on an alert that is no longer remembered, with a `reason`).
        """
        self._advance(rows)
        known = _Packs(packs)
        findings = [row for row in rows if row["row_kind"] in ("finding", "correction")]
        outputs = self._correlate(findings, known)
        outputs += self._settle(known)
        outputs += self._fold(findings, rows, known, settings, detected_at, lineage or {})
        self._forget()
        return outputs

    def _advance(self, rows: Iterable[Row]) -> None:
        """Move the clock to the newest arrival or tick: progress, never the wall clock."""
        for row in rows:
            if row["row_kind"] == "tick":
                time = row.get("tick") or row.get("event_time")
            elif row["row_kind"] == "action":
                time = row.get("at")
            else:
                time = row["received_at"]
            if time is not None:
                self._kept.clock = max(self._kept.clock, micros(time))

    def _correlate(self, findings: Sequence[Row], packs: _Packs) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = []
        for target, rows in _by_target(findings, lambda r: r["target"] != r["rule_id"]):
            state = self._kept.correlations.setdefault(target, CorrelationState())
            correlator = Correlator(state)
            for row in rows:
                definition = packs.described(row["pack"], target)
                if isinstance(definition, Correlation):
                    outputs += correlator.feed(definition, row)
        return outputs

    def _settle(self, packs: _Packs) -> list[dict[str, Any]]:
        """What correlations that wait for their windows to close tell now, by the rule last used.

        Every batch looks, and a tick is enough: a window closes when nothing comes.
        """
        outputs: list[dict[str, Any]] = []
        for target, state in sorted(self._kept.correlations.items()):
            definition = packs.described(state.pack, target)
            if isinstance(definition, Correlation) and not told_at_once(definition):
                outputs += Correlator(state).settle(definition, self._kept.clock)
        return outputs

    def _fold(
        self,
        findings: Sequence[Row],
        rows: Sequence[Row],
        packs: _Packs,
        settings: AlertSettings,
        detected_at: int,
        lineage: Row,
    ) -> list[dict[str, Any]]:
        own = dict(_by_target(findings, lambda r: r["target"] == r["rule_id"]))
        asked: dict[str, list[Row]] = {}
        for row in rows:
            if row["row_kind"] == "action":
                asked.setdefault(row["target"], []).append(row)
        outputs: list[dict[str, Any]] = []
        for target in sorted({*self._kept.folds, *own, *asked}):
            fold = Fold(self._kept.folds.setdefault(target, FoldState()), settings)
            actions = sorted(asked.get(target, []), key=lambda a: (micros(a["at"]), a["action_id"]))
            revised, unknown = fold.apply(own.get(target, []), actions, self._kept.clock)
            for revision in revised:
                pack = packs.get(revision.alert.about.pack)
                row = alert_row(revision, pack, settings.tenant, detected_at, lineage)
                outputs.append({"out": "alert", "row": row})
            outputs += [_refused(action) for action in unknown]
        return outputs

    def _forget(self) -> None:
        kept = self._kept
        for target, fold in list(kept.folds.items()):
            forget_alerts(fold, kept.clock)
            if not fold.alerts:
                del kept.folds[target]
        hour = 3600 * 1_000_000
        for target, state in list(kept.correlations.items()):
            forget_findings(state, max(state.clock, kept.clock - hour))
            if not state.groups:
                del kept.correlations[target]


class _Packs:
    """Packs by hash, loaded once a step; None for one that is gone."""

    def __init__(self, load: Packs) -> None:
        self._load = load
        self._known: dict[str, RulePack | None] = {}

    def get(self, pack_hash: str) -> RulePack | None:
        if pack_hash not in self._known:
            try:
                self._known[pack_hash] = self._load(pack_hash)
            except Fatal:
                self._known[pack_hash] = None
        return self._known[pack_hash]

    def described(self, pack_hash: str, rule_id: str) -> Any:
        pack = self.get(pack_hash)
        return pack.described(rule_id) if pack else None


def _by_target(
    findings: Iterable[Row], wanted: Callable[[Row], bool]
) -> list[tuple[str, list[Row]]]:
    """Findings by target, in time order, each once with its newest attribution."""
    best: dict[tuple[str, str], Row] = {}
    for row in findings:
        if not wanted(row):
            continue
        key = (row["target"], row["finding_id"])
        if key not in best or _newness(row) > _newness(best[key]):
            best[key] = row
    targets: dict[str, list[Row]] = {}
    ordered = sorted(best.values(), key=lambda r: (micros(r["event_time"]), r["finding_id"]))
    for row in ordered:
        targets.setdefault(row["target"], []).append(row)
    return sorted(targets.items())


def _newness(row: Row) -> tuple[int, str]:
    """Higher wins; the holder only decides between equals, so that a retry decides alike."""
    rev = row.get("attr_rev")
    return (-1 if rev is None else int(rev)), repr(row.get("holder"))


def _refused(action: Row) -> dict[str, Any]:
    reason = (
        f"alert {action['alert_id']} is no longer in the state, or '{action['action']}' unknown"
    )
    return {"out": "refused", "row": {**action, "reason": reason}}
