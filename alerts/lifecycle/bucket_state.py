"""What one bucket of rules and correlations remembers between micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from alerts.correlation.conditions import told_at_once
from alerts.correlation.correlator import Correlator
from alerts.correlation.group import CORRECTABLE, LATENESS, SKEW, CorrelationState
from alerts.correlation.history import forget_findings, pack_away
from alerts.domain.alert import FoldState, forget_alerts, rev_of
from alerts.domain.entity import entity_of, event_instant, holder_of, micros
from alerts.domain.finding import counts, identity
from alerts.lifecycle.alert_fold import Fold
from alerts.lifecycle.alert_json import alert_row
from alerts.lifecycle.republish_guard import RepublishQuestion, nothing_published
from alerts.lifecycle.restore_alert import revive, revive_asked
from alerts.lifecycle.risk_score import (
    INCIDENT,
    INCIDENT_REST,
    MAX_ENTITIES,
    RISK,
    EntityRisk,
    Risk,
    RiskFinding,
    forget_risk,
    risk_incidents,
    take_away,
)
from alerts.lifecycle.suppression import (
    SUPPRESS,
    UNSUPPRESS,
    Suppression,
    apply_suppressions,
    covering,
)
from alerts.rulepack.rule_pack import Correlation, RulePack
from infra.config.settings import AlertSettings
from infra.errors import Fatal
from infra.storage.compression import compressed, expanded

HEADER = b"HGALERT\x03"
"""First bytes of an encoded bucket; the last of them is the version."""

UNPACKED = (b"HGALERT\x02", b"HGALERT\x01")
"""Older versions, which can be read; they were not compressed, nor their correlations packed.

Version 1 knew no suppressions, budgets and risk: they begin empty.
"""

RETURNS = 7 * 24 * 3600 * 1_000_000
"""How long a correlation's finding may be on its way back, microseconds: behind a backlog, days."""

SWEEP = 3600 * 1_000_000
"""How often what counts no more is dropped from the risk of all entities, microseconds."""

_NOTHING = msgspec.Raw(msgspec.msgpack.encode({}))

Packs = Callable[[str], RulePack]
_Row = Mapping[str, Any]


class Open(msgspec.Struct):
    """The incident of an entity, which its alerts name until then (microseconds)."""

    alert_id: str
    until: int


class _Kept(msgspec.Struct):
    folds: dict[str, FoldState] = {}
    correlations: dict[str, CorrelationState] = {}
    clock: int = 0
    suppressions: dict[str, Suppression] = {}
    incidents: dict[str, Open] = {}
    # Decoded only by a batch that brings findings: there are many entities, and ticks come often.
    risk: msgspec.Raw = _NOTHING
    risk_swept: int = 0
    dhcp_known: int = 0
    # Findings of correlations that were folded when told and have not come back, by id: since when.
    folded: dict[str, int] = {}


class BucketState:
    """Folds and correlations of the rules in one bucket; encoded as one versioned blob."""

    def __init__(self) -> None:
        self._kept = _Kept()

    @classmethod
    def decode(cls, blob: bytes) -> BucketState:
        """Read what `encode` wrote; raises `Fatal` when it is of another version, or damaged."""
        head, rest = bytes(blob[: len(HEADER)]), blob[len(HEADER) :]
        if head not in (HEADER, *UNPACKED):
            raise Fatal(
                f"alert state begins with {bytes(blob[:8])!r}, not {HEADER!r}: "
                "another release wrote it; go back to that one"
            )
        bucket = cls()
        try:
            # The version stands before the compressed part, so it is known before anything is
            # decoded.
            plain = rest if head in UNPACKED else expanded(rest)
            bucket._kept = msgspec.msgpack.decode(plain, type=_Kept)
        except (ValueError, msgspec.MsgspecError) as error:
            raise Fatal(
                f"job alert: its state cannot be read ({error}); restore its checkpoint from "
                "a backup"
            ) from error
        return bucket

    def encode(self) -> bytes:
        """Everything remembered, as bytes; equal states give equal bytes."""
        return HEADER + compressed(msgspec.msgpack.encode(self._kept))

    def step(
        self,
        rows: Sequence[_Row],
        packs: Packs,
        settings: AlertSettings,
        detected_at: int,
        lineage: _Row | None = None,
        published: RepublishQuestion = nothing_published,
    ) -> list[dict[str, Any]]:
        """Take a micro-batch of rows and return `{"out": kind, "row": ...}`.

        Rows have `row_kind` (finding, correction, action, tick) and `target`: the
        rule a finding is of, a correlation that counts it, or the risk of its entity;
        none for what every bucket must know: a tick, a suppression, an incident, and
        a correction, which may take a finding from the risk of another entity.
        Times are datetimes in UTC or microseconds; `detected_at` microseconds, to
        be the same when the batch is tried again, as is what `published` answers (see `Fold`). The
        order of rows is no matter.

        Kinds returned: alert (gold.alert), finding (gold.finding, of a correlation),
        attribution (gold.attribution, of a correlation's finding), answer
        (gold.preliminary_answer), refused (an action on an alert that is no longer
        remembered, with a `reason`).
        """
        before = self._kept.clock
        self._advance(rows)
        known = _Packs(packs)
        findings = [row for row in rows if row["row_kind"] in ("finding", "correction")]
        self._heed(rows, findings, settings, before)
        outputs = self._weigh(findings, known, settings)
        aimed = [r for r in findings if r["target"] and not r["target"].startswith(RISK)]
        correlated = self._correlate(aimed, known) + self._settle(known)
        outputs += correlated
        own = [*self._unfolded(aimed), *self._at_once(correlated)]
        outputs += self._fold(own, rows, known, settings, detected_at, lineage or {}, published)
        self._forget(settings.dedup_seconds * 1_000_000)
        return outputs

    def dhcp_known(self, rows: Iterable[_Row], wait_us: int) -> int:
        """How far the DHCP log is complete, microseconds of arrival; 0: not known.

        A tick leaves the join only once segments are known so far beyond it that none can
        cover it any more (`enrich.attribution.stream_join.attribute`).
        """
        ticks = (
            micros(row.get("tick") or row["event_time"])
            for row in rows
            if row["row_kind"] == "tick"
        )
        newest = max((tick + wait_us for tick in ticks), default=0)
        self._kept.dhcp_known = max(self._kept.dhcp_known, newest)
        return self._kept.dhcp_known

    def _advance(self, rows: Iterable[_Row]) -> None:
        """Move the clock to the newest arrival or tick: progress, never the wall clock."""
        for row in rows:
            # An alert's clock is the arrival of its findings, so that a replay folds as it did
            # live.
            if row["row_kind"] == "action":
                continue  # what people ask is of now, however far behind the findings are
            if row["row_kind"] == "tick":
                time = row.get("tick") or row.get("event_time")
            else:
                time = row["received_at"]
            if time is not None:
                self._kept.clock = max(self._kept.clock, micros(time))

    def _heed(
        self, rows: Iterable[_Row], findings: Iterable[_Row], settings: AlertSettings, before: int
    ) -> None:
        """Learn what concerns every bucket: suppressions, and incidents that are open.

        `before`: the clock as it was, since the batch may hold findings far older than its newest.
        """
        kept = self._kept
        suppressions = [row for row in rows if row.get("action") in (SUPPRESS, UNSUPPRESS)]
        apply_suppressions(kept.suppressions, suppressions, before)
        for key, incident in list(kept.incidents.items()):
            if kept.clock > incident.until:
                del kept.incidents[key]
        for row in findings:
            if row["rule_id"] == INCIDENT and row["target"] is None:
                entity = entity_of(row, holder_of(row))
                until = micros(row["event_time"]) + INCIDENT_REST * 1_000_000
                alert_id = identity(settings.tenant, INCIDENT, row["event_uid"])
                kept.incidents[entity.key] = Open(alert_id, until)

    def _weigh(
        self, findings: Sequence[_Row], packs: _Packs, settings: AlertSettings
    ) -> list[dict[str, Any]]:
        """Take findings into the risk of their entities; incidents are findings to tell."""
        moved = _newest(r for r in findings if r["target"] is None and r["rule_id"] != INCIDENT)
        new = [row for row in findings if (row["target"] or "").startswith(RISK) and counts(row)]
        if not moved and not new:
            return []
        owners = {finding_id: (_owner(row), rev_of(row)) for finding_id, row in moved.items()}
        risk_findings = [
            self._risk_finding(row, packs)
            for _, rows in _by_target(new, lambda _: True)
            for row in rows
            if not (self._silenced(row) or _in_shadow(row, packs))
            and rev_of(row) >= rev_of(moved.get(row["finding_id"], row))
        ]
        heat = self._heat(owners, risk_findings, settings)
        return [{"out": "finding", "row": row} for row in heat]

    def _heat(
        self,
        owners: Mapping[str, tuple[str, int]],
        risk_findings: Sequence[RiskFinding],
        settings: AlertSettings,
    ) -> list[dict[str, Any]]:
        """What findings and corrections make of the risk that is kept.

        Only the entities they are about are decoded: alerts wait for this, and entities are
        many. All are for a correction, and where it is time to forget.
        """
        kept = self._kept
        cold = msgspec.msgpack.decode(kept.risk, type=dict[str, msgspec.Raw])
        sweep = kept.clock - kept.risk_swept >= SWEEP or len(cold) > 1.2 * MAX_ENTITIES
        wanted = (
            cold.keys() if owners or sweep else {s.entity.key for s in risk_findings} & cold.keys()
        )
        risk: Risk = {
            key: msgspec.msgpack.decode(cold[key], type=EntityRisk) for key in sorted(wanted)
        }
        rest = {key: raw for key, raw in cold.items() if key not in risk}
        take_away(risk, owners)
        changed = risk_incidents(risk, risk_findings, settings)
        if sweep:
            forget_risk(risk, kept.clock)
            kept.risk_swept = kept.clock
        kept.risk = msgspec.Raw(msgspec.msgpack.encode({**rest, **risk}))
        return changed

    def _silenced(self, row: _Row) -> bool:
        holder = holder_of(row)
        known = self._kept.suppressions.values()
        return covering(known, row, entity_of(row, holder), holder) is not None

    def _risk_finding(self, row: _Row, packs: _Packs) -> RiskFinding:
        holder = holder_of(row)
        rule = packs.described(row["pack"], row["rule_id"])
        return RiskFinding(
            row=row,
            entity=entity_of(row, holder),
            holder=holder,
            time=min(micros(row["event_time"]), micros(row["received_at"]) + SKEW),
            rev=rev_of(row),
            tactics=tuple(rule.tactics) if rule else (),
        )

    def _correlate(self, findings: Sequence[_Row], packs: _Packs) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = []
        for target, rows in _by_target(findings, lambda r: r["target"] != r["rule_id"]):
            state = self._kept.correlations.setdefault(target, CorrelationState())
            correlator = Correlator(state)
            used = None
            for row in rows:
                definition = packs.described(row["pack"], target)
                if isinstance(definition, Correlation):
                    outputs += correlator.feed(definition, row)
                    used = definition
            if used is not None:
                outputs += correlator.judge(used)
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

    def _at_once(self, outputs: Iterable[_Row]) -> list[_Row]:
        """Findings that correlations tell now, as rows that this batch folds.

        A correlation's alerts lie in its own bucket, so they need not wait for the finding to
        come back through gold.finding; when it does, `_unfolded` leaves it out. One without a
        holder is to be attributed first.
        """
        row_list = [out["row"] for out in outputs if out["out"] == "finding"]
        rows: list[_Row] = [
            {**row, "row_kind": "finding", "target": row["rule_id"]}
            for row in row_list
            # An alert about a bare address would have to be corrected as soon as its holder is
            # known.
            if row["holder"] is not None
        ]
        self._kept.folded.update((row["finding_id"], self._kept.clock) for row in rows)
        return rows

    def _unfolded(self, findings: Iterable[_Row]) -> list[_Row]:
        """Findings without those that `_at_once` took; a newer attribution of one stays."""
        folded = self._kept.folded
        return [
            row
            for row in findings
            if row["target"] != row["rule_id"]
            or rev_of(row) >= 0
            or folded.pop(row["finding_id"], None) is None
        ]

    def _fold(
        self,
        findings: Sequence[_Row],
        rows: Sequence[_Row],
        packs: _Packs,
        settings: AlertSettings,
        detected_at: int,
        lineage: _Row,
        published: RepublishQuestion,
    ) -> list[dict[str, Any]]:
        own = dict(_by_target(findings, lambda r: r["target"] == r["rule_id"]))
        actions_of: dict[str, list[_Row]] = {}
        for row in rows:
            if row["row_kind"] == "action" and row["target"]:
                actions_of.setdefault(row["target"], []).append(row)
        silences = tuple(self._kept.suppressions.values())
        incidents = {key: incident.alert_id for key, incident in self._kept.incidents.items()}
        outputs: list[dict[str, Any]] = []
        # Rules that nothing came for, too: a count that waits may be due by the clock alone.
        for target in sorted({*self._kept.folds, *own, *actions_of}):
            state = self._kept.folds.setdefault(target, FoldState())
            # Before the fold: what comes back must be known before it is asked for.
            revive(own.get(target, []), state)
            revive_asked(actions_of.get(target, []), state)
            # Findings and actions of a batch go through one fold, so an alert gets one revision of
            # both.
            fold = Fold(state, settings, silences, incidents, published)
            actions = sorted(
                actions_of.get(target, []), key=lambda a: (micros(a["at"]), a["action_id"])
            )
            revised, unknown = fold.apply(own.get(target, []), actions, self._kept.clock)
            for revision in revised:
                pack = packs.get(revision.alert.about.pack)
                row = alert_row(revision, pack, settings.tenant, detected_at, lineage)
                outputs.append({"out": "alert", "row": row})
            outputs += [_refused(action) for action in unknown]
            outputs += [_answered(answer, detected_at) for answer in fold.answers]
        return outputs

    def _correctable(self, target: str) -> int:
        """How long what a correlation told may be corrected by its findings, microseconds."""
        state = self._kept.correlations.get(target)
        return 0 if state is None else state.span + LATENESS + CORRECTABLE

    def _forget(self, folding: int) -> None:
        kept = self._kept
        for target, fold in list(kept.folds.items()):
            # An alert outlives its dedup window while its correlation may still be taken back.
            forget_alerts(fold, kept.clock, max(folding, self._correctable(target)))
            if not fold.alerts:
                del kept.folds[target]
        hour = 3600 * 1_000_000
        for target, state in list(kept.correlations.items()):
            # A correlation whose rules are silent has a clock that stands; arrivals move it, with
            # an hour's grace.
            forget_findings(state, max(state.clock, kept.clock - hour))
            pack_away(state, kept.clock)
            if not state.groups:
                del kept.correlations[target]
        oldest = kept.clock - RETURNS
        kept.folded = {key: key_row for key, key_row in kept.folded.items() if key_row >= oldest}


class _Packs:
    """Packs by hash, loaded once a step; None for one that is gone."""

    def __init__(self, load: Packs) -> None:
        self._load = load
        self._known: dict[str, RulePack | None] = {}
        self._described: dict[tuple[str, str], Any] = {}

    def get(self, pack_hash: str) -> RulePack | None:
        if pack_hash not in self._known:
            try:
                self._known[pack_hash] = self._load(pack_hash)
            except Fatal:
                # An old pack may be removed; alerts that rest on it are then told with less detail.
                self._known[pack_hash] = None
        return self._known[pack_hash]

    def described(self, pack_hash: str, rule_id: str) -> Any:
        key = (pack_hash, rule_id)
        if key not in self._described:
            pack = self.get(pack_hash)
            self._described[key] = pack.described(rule_id) if pack else None
        return self._described[key]


def _by_target(
    findings: Iterable[_Row], wanted: Callable[[_Row], bool]
) -> list[tuple[str, list[_Row]]]:
    """Findings by target, in time order, each once with its newest attribution."""
    best: dict[tuple[str, str], _Row] = {}
    for row in findings:
        if not wanted(row):
            continue
        key = (row["target"], row["finding_id"])
        if key not in best or _newness(row) > _newness(best[key]):
            best[key] = row
    targets: dict[str, list[_Row]] = {}
    ordered = sorted(best.values(), key=lambda r: (micros(r["event_time"]), r["finding_id"]))
    for row in ordered:
        targets.setdefault(row["target"], []).append(row)
    return sorted(targets.items())


def _newest(findings: Iterable[_Row]) -> dict[str, _Row]:
    """Findings by id, each with its newest attribution."""
    best: dict[str, _Row] = {}
    for row in findings:
        known = best.setdefault(row["finding_id"], row)
        if _newness(row) > _newness(known):
            best[row["finding_id"]] = row
    return best


def _newness(row: _Row) -> tuple[int, str]:
    """Higher wins; the holder only decides between equals, so that a retry decides alike."""
    rev = row.get("attr_rev")
    return (-1 if rev is None else int(rev)), repr(row.get("holder"))


def _in_shadow(row: _Row, packs: _Packs) -> bool:
    # The pack tells, not the marks: those may have changed between two tries of a batch.
    rule = None if row["alerting"] else packs.described(row["pack"], row["rule_id"])
    return rule is not None and rule.in_shadow


def _owner(row: _Row) -> str:
    """Key of the entity that a finding counts for; of one that does not, nobody's."""
    return entity_of(row, holder_of(row)).key if counts(row) else ""


def _answered(answer: dict[str, Any], at: int) -> dict[str, Any]:
    return {"out": "answer", "row": answer | {"answered_at": event_instant(at)}}


def _refused(action: _Row) -> dict[str, Any]:
    reason = (
        f"alert {action['alert_id']} is no longer in the state, or cannot be asked to "
        f"{action['action']}"
    )
    return {"out": "refused", "row": {**action, "reason": reason}}
