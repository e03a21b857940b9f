"""What verdicts teach about one rule, and filters that people keep of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from alerts.domain.verdict import TRUE_VERDICTS
from alerts.tuning.filters import FIELDS, Condition, JudgedAlert, Proposal, filter_matches, propose
from alerts.tuning.judged_alerts import rule_history
from alerts.tuning.rule_tuning import (
    FilterWish,
    keep_proposed_filter,
    limits_of,
    proposal_row,
    tunable_rule,
)
from alerts.tuning.threshold_file import ThresholdWish, keep_threshold, threshold_rule
from api.observability.audit_log import audit_request
from api.services.reader import Reader
from api.services.visibility import in_force_when
from api.wire import rules as wire
from infra.config.settings import Settings
from infra.errors import Usage

MOST_NOISE = 500
"""Alerts to be removed that are compared while somebody waits."""
_SHOWN = ("removes", "false_positive", "benign", "true_positive", "unjudged", "other")


def rule_proposals(
    settings: Settings, reader: Reader, rule: str, days: int
) -> wire.FilterProposals:
    """Filters that remove alerts judged false or benign of the last days, and no true one."""
    known, _ = tunable_rule(settings, rule)
    history = rule_history(reader.rows, known.id, datetime.now(UTC) - timedelta(days=days))
    noise = sum(history.verdicts.get(verdict, 0) for verdict in ("false_positive", "benign"))
    if noise - history.older > MOST_NOISE:
        raise Usage(
            f"{noise - history.older} alerts were judged false or benign, more than "
            f"{MOST_NOISE} are not compared here; take fewer days, or run headgate rules tune"
        )
    return wire.FilterProposals(
        judged=history.judged,
        items=[_item(n, each) for n, each in enumerate(propose(history.alerts), 1)],
        limits=list(limits_of(history)) if history.verdicts else ["it has no alert yet"],
    )


def save_filter(
    settings: Settings, reader: Reader, who: str, rule: str, asked: wire.NewFilter
) -> wire.FilterSaved:
    """Put a filter in force; raises `Usage` for one that takes an event of a true alert."""
    known, path = tunable_rule(settings, rule)
    conditions = tuple(Condition(**each.model_dump()) for each in asked.conditions)
    for condition in conditions:
        if condition.field not in FIELDS:
            raise Usage(f"field '{condition.field}': a filter asks one of {', '.join(FIELDS)}")
    wish = FilterWish(conditions, asked.owner, asked.reason, asked.expires)
    wish.require_whole()
    # Looked at anew: an alert may have been judged true since the filter was proposed.
    history = rule_history(reader.rows, known.id, datetime.now(UTC))
    if struck := [alert.alert_id for alert in history.alerts if _strikes(conditions, alert)]:
        raise Usage(
            f"it would take events of {len(struck)} alerts that were judged true: "
            f"{' '.join(struck[:3])}"
        )
    written, pack = keep_proposed_filter(settings, known, path, wish)
    detail = {"file": written.name, "owner": asked.owner, "reason": asked.reason,
              "expires": asked.expires.isoformat(), "pack": pack}  # fmt: skip
    audit_request(settings, "rule.filter", "ok", who=who, target=known.id, detail=detail)
    visible = in_force_when(settings)
    return wire.FilterSaved(rule_id=known.id, path=str(written), pack=pack, visible=visible)


def save_threshold(
    settings: Settings, who: str, rule: str, asked: wire.NewThreshold
) -> wire.ThresholdSaved:
    """Put a copy with another number in force; raises `Usage` where that changes nothing."""
    source, current = threshold_rule(settings, rule)
    if not asked.owner.strip() or not asked.reason.strip():
        raise Usage("a threshold needs an owner and a reason")
    count = current.count if asked.count is None else asked.count
    # Sigma's count of events is a whole number.
    whole = int(count) if float(count).is_integer() else count
    window = asked.window_seconds or current.timespan_seconds
    chosen = msgspec.structs.replace(current, count=whole, timespan_seconds=window)
    wish = ThresholdWish(asked.owner, asked.reason, who)
    rule_id, path, pack, left_out = keep_threshold(settings, source, chosen, wish)
    detail = {"count": whole, "window_seconds": window, "owner": asked.owner,
              "reason": asked.reason, "replaces": current.id, "pack": pack}  # fmt: skip
    audit_request(settings, "rule.threshold", "ok", who=who, target=rule_id, detail=detail)
    return wire.ThresholdSaved(
        rule_id=rule_id,
        replaces=current.id,
        path=str(path),
        pack=pack,
        tests_left_out=left_out,
        visible=in_force_when(settings),
    )


def _strikes(conditions: tuple[Condition, ...], alert: JudgedAlert) -> bool:
    true = alert.verdict in TRUE_VERDICTS
    return true and any(filter_matches(conditions, event) for event in alert.events)


def _item(number: int, proposal: Proposal) -> wire.FilterProposal:
    row = proposal_row(number, proposal)
    return wire.FilterProposal(
        conditions=[
            wire.FilterCondition.model_validate({"field": c.field, "op": c.op, "value": c.value})
            for c in proposal.conditions
        ],
        words=row["conditions"],
        unjudged_examples=row["unjudged_examples"].split(),
        **{name: row[name] for name in _SHOWN},
    )
