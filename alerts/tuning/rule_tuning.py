"""Filters for one rule: what is proposed, what that rests on, and keeping one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from alerts.delivery.action_request import waiting_requests
from alerts.domain.verdict import TRUE_VERDICTS
from alerts.rulebook.rule_switch import any_source
from alerts.rulepack.rule_pack import Rule
from alerts.tuning.filter_file import filter_text, log_source_of, write_filter
from alerts.tuning.filters import Condition, Proposal
from alerts.tuning.judged_alerts import RuleHistory
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.text_output import json_text


@dataclass(frozen=True)
class FilterWish:
    """A filter that somebody answers for until a day."""

    conditions: Sequence[Condition]
    owner: str
    reason: str
    expires: date

    def require_whole(self) -> None:
        """Raises `Usage` unless owner, reason and a day to come are given."""
        if not self.owner.strip() or not self.reason.strip():
            raise Usage("a filter needs an owner and a reason")
        if self.expires <= datetime.now(UTC).date():
            raise Usage(f"expires {self.expires}: must be after today")


def tunable_rule(settings: Settings, name: str) -> tuple[Rule, Path]:
    """A rule over events and its file; raises `Usage` for one that no Sigma filter can narrow."""
    source = any_source(settings, name)
    return require_tunable(source.rule, name), source.path


def require_tunable(described: object, name: str) -> Rule:
    """The rule that a name stands for; raises `Usage` for one that no Sigma filter can narrow."""
    if not isinstance(described, Rule):
        raise Usage(
            f"rule '{name}' is no Sigma rule over events, which filters narrow; of a correlation "
            "tune the rules that it counts, or its count and window: "
            f"headgate rules thresholds {name}"
        )
    return described


def keep_proposed_filter(
    settings: Settings, rule: Rule, path: Path, filter_wish: FilterWish
) -> tuple[Path, str]:
    """Write a filter and put it in force: its file, and the pack's hash; raises `Usage`."""
    filter_wish.require_whole()
    text = filter_text(
        rule,
        log_source_of(path, rule.id),
        filter_wish.conditions,
        owner=filter_wish.owner.strip(),
        reason=filter_wish.reason.strip(),
        expires=filter_wish.expires,
    )
    return write_filter(settings, rule.id, f"filter_{rule.id}_{uuid4().hex[:8]}.yml", text)


def proposal_row(number: int, proposal: Proposal, kept: bool = False) -> dict[str, Any]:
    """A proposal as a row: alerts that it would have hidden, by verdict; `kept`: it stands."""
    hidden = {verdict: len(ids) for verdict, ids in proposal.hidden.items()}
    shown = ("false_positive", "benign", "")
    return {
        "filter": number,
        "removes": proposal.removed,
        "false_positive": hidden.get("false_positive", 0),
        "benign": hidden.get("benign", 0),
        "true_positive": sum(hidden.get(verdict, 0) for verdict in TRUE_VERDICTS),
        "unjudged": hidden.get("", 0),
        "other": sum(n for verdict, n in hidden.items() if verdict not in shown),
        "unjudged_examples": " ".join(proposal.hidden.get("", ())[:3]),
        "kept": kept,
        "conditions": " and ".join(
            f"{c.field} {'=' if c.op == 'eq' else c.op} {json_text(c.value)}"
            for c in proposal.conditions
        ),
        "wide": proposal.wide,
    }


def verdicts_that_wait(settings: Settings, rule_id: str) -> Iterator[str]:
    """What to say of verdicts on a rule's alerts that job `alert` has not taken yet."""
    judging = [r for r in waiting_requests(settings) if r.get("action") in ("close", "verdict")]
    judged = {r.get("alert_id") for r in judging if r.get("rule_id") == rule_id and r.get("value")}
    if judged:
        yield f"{len(judged)} alerts have a verdict that waits for job alert and does not count yet"


def limits_of(history: RuleHistory) -> Iterator[str]:
    """What the proposals do not rest on, in sentences."""
    counted = ", ".join(f"{n} {verdict or 'not judged'}" for verdict, n in history.verdicts.items())
    yield f"looked at: {counted}"
    for verdict, ids in history.without_events.items():
        what = "protected only by what is left" if verdict in TRUE_VERDICTS else "not considered"
        yield (
            f"{len(ids)} alerts ({verdict or 'not judged'}) lack evidence events in silver.event, "
            f"{what}: {' '.join(ids[:3])}{' ...' if len(ids) > 3 else ''}"
        )
    if history.partly:
        yield f"{history.partly} alerts name a sample of their events; only these were compared"
    if history.older:
        yield f"{history.older} false or benign alerts began before --days; none is to be removed"
    if history.left_out:
        yield f"{history.left_out} older alerts that nobody judged were not looked at"
