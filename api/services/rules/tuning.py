"""What verdicts teach about one rule, and filters that people keep of it and end."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from alerts.compiler.compiler import RefusedRule
from alerts.domain.verdict import TRUE_VERDICTS
from alerts.rulepack.rule_pack import Rule
from alerts.tuning.filter_file import text_of_conditions
from alerts.tuning.filters import FIELDS, Condition, JudgedAlert, Proposal, filter_matches, propose
from alerts.tuning.judged_alerts import rule_history
from alerts.tuning.kept_filters import KeptFilter, end_filter, kept_filters, standing_filters
from alerts.tuning.rule_tuning import (
    FilterWish,
    keep_proposed_filter,
    limits_of,
    proposal_row,
    tunable_rule,
    verdicts_that_wait,
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
MOST_HIDDEN = 20
"""Alerts that a proposal names of those it would have hidden."""
_SHOWN = ("removes", "false_positive", "benign", "true_positive", "unjudged", "other")


def rule_proposals(
    settings: Settings, reader: Reader, rule: str, days: int
) -> wire.FilterProposals:
    """Filters that remove alerts judged false or benign of the last days, and no true one."""
    known, _ = tunable_rule(settings, rule)
    waiting = list(verdicts_that_wait(settings, known.id))
    history = rule_history(reader.rows, known.id, datetime.now(UTC) - timedelta(days=days))
    noise = sum(history.verdicts.get(verdict, 0) for verdict in ("false_positive", "benign"))
    if noise - history.older > MOST_NOISE:
        raise Usage(
            f"{noise - history.older} alerts were judged false or benign, more than "
            f"{MOST_NOISE} are not compared here; take fewer days, or run headgate rules tune"
        )
    standing = standing_filters(settings, known)
    return wire.FilterProposals(
        judged=history.judged,
        items=[_item(n, each, standing) for n, each in enumerate(propose(history.alerts), 1)],
        limits=[*waiting, *(limits_of(history) if history.verdicts else ["it has no alert yet"])],
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
    filter_wish = FilterWish(conditions, asked.owner, asked.reason, asked.expires)
    filter_wish.require_whole()
    # Looked at anew: an alert may have been judged true since the filter was proposed.
    history = rule_history(reader.rows, known.id, datetime.now(UTC))
    if struck := [alert.alert_id for alert in history.alerts if _strikes(conditions, alert)]:
        raise Usage(
            f"it would take events of {len(struck)} alerts that were judged true: "
            f"{' '.join(struck[:3])}"
        )
    written, pack = keep_proposed_filter(settings, known, path, filter_wish)
    detail = {"file": written.name, "owner": asked.owner, "reason": asked.reason,
              "expires": asked.expires.isoformat(), "pack": pack}  # fmt: skip
    audit_request(settings, "rule.filter", "ok", who=who, target=known.id, detail=detail)
    visible = in_force_when(settings)
    return wire.FilterSaved(rule_id=known.id, path=str(written), pack=pack, visible=visible)


def rule_filters(
    settings: Settings, refused: Sequence[RefusedRule], rule: Rule
) -> list[tuple[KeptFilter, str | None]]:
    """The filters that narrow a rule, each with why it does not load (None: it does)."""
    reasons = {(each.rule, each.path): each.reason for each in refused}
    return [
        (kept, reasons.get((kept.filter_id, str(kept.path))))
        for kept in kept_filters(settings, rule)
    ]


def filter_list(
    settings: Settings, refused: Sequence[RefusedRule], rule: Rule
) -> wire.RuleFilterList:
    """The filters that narrow a rule, as an answer."""
    return wire.RuleFilterList(
        items=[
            wire.RuleFilter(
                filter_id=kept.filter_id,
                title=kept.title,
                text=kept.text,
                owner=kept.owner,
                reason=kept.reason,
                expires=kept.expires,
                of_all=kept.of_all,
                path=str(kept.path),
                can_end=kept.can_end,
                not_in_force=why_not,
            )
            for kept, why_not in rule_filters(settings, refused, rule)
        ]
    )


def end_rule_filter(
    settings: Settings, who: str, rule: Rule, filter_id: str, reason: str
) -> wire.FilterEnded:
    """Let a rule run without a filter from the next batch on; raises `Usage`."""
    ended, pack = end_filter(settings, rule, filter_id)
    # With its text: who ended the wrong one has it back from here.
    detail = {"filter": filter_id, "file": ended.path.name, "text": ended.text, "reason": reason,
              "pack": pack}  # fmt: skip
    audit_request(settings, "rule.filter.end", "ok", who=who, target=rule.id, detail=detail)
    return wire.FilterEnded(
        rule_id=rule.id,
        filter_id=filter_id,
        path=str(ended.path),
        pack=pack,
        visible=in_force_when(settings),
    )


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
    threshold_wish = ThresholdWish(asked.owner, asked.reason, who)
    rule_id, path, pack, left_out = keep_threshold(settings, source, chosen, threshold_wish)
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


def _hidden(proposal: Proposal) -> Iterator[wire.HiddenAlert]:
    """What it hides, those that nobody judged first: they are what is to be looked at."""
    for verdict, ids in sorted(proposal.hidden.items()):
        for alert_id in ids:
            yield wire.HiddenAlert(alert_id=alert_id, verdict=verdict or None)


def _item(number: int, proposal: Proposal, standing: Container[str]) -> wire.FilterProposal:
    row = proposal_row(number, proposal)
    return wire.FilterProposal(
        conditions=[
            wire.FilterCondition.model_validate({"field": c.field, "op": c.op, "value": c.value})
            for c in proposal.conditions
        ],
        words=row["conditions"],
        wide=row["wide"],
        unjudged_examples=row["unjudged_examples"].split(),
        hidden=list(islice(_hidden(proposal), MOST_HIDDEN)),
        kept=text_of_conditions(proposal.conditions) in standing,
        **{name: row[name] for name in _SHOWN},
    )
