"""`headgate rules scorecard` and `headgate rules tune`: what verdicts teach about rules."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alerts.cli.coverage import known_blindness
from alerts.cli.explain import asking
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import compiled_rules, rule_rows
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from alerts.rulepack.rule_pack import Rule
    from alerts.tuning.filters import Proposal
    from alerts.tuning.kept_filters import KeptFilter

DAYS, MOST_DAYS = 30, 3_650

_BRIEF = ("recommendation", "alerts", "per_week", "judged", "precision", "name", "reason")
"""What a person looks at first."""


def build(verbs: Any) -> None:
    """Add the commands below `headgate rules`."""
    scored = verbs.add_parser(
        "scorecard",
        help="what verdicts say of each rule: keep, tune or retire, and why",
        description="Precision is the share of true positives (suspicious among them) of the "
        "alerts judged true, false or benign; test, duplicate and insufficient_data count as "
        "'other'. Muted alerts are not counted. JSON and CSV have more columns than the table: "
        "bounds with 95%% confidence, median seconds from opened to closed, CPU seconds, "
        "blindness, last true positive, last fired.",
    )
    _add_days(scored)
    add_output_option(scored, WIDE)
    scored.set_defaults(run=show_scorecard)

    tuned = verbs.add_parser(
        "tune",
        help="filters that remove a rule's false positives and keep every true one",
        description="Learns from judged alerts (headgate alerts close ID --verdict ...): filters "
        "of at most two conditions that would have hidden alerts judged false_positive or benign, "
        "and no event of one judged true_positive or suspicious. What each would have hidden is "
        "counted over all retained alerts. A filter of a host alone needs three such alerts, or is "
        "for what nothing narrower removes; 'wide' says what it hides. --write N keeps filter N in "
        "the first folder of alerts.rules and puts it in force; after its --expires the rules are "
        "compiled without it.",
    )
    tuned.add_argument("rule", metavar="RULE", help="id or name")
    _add_days(tuned)
    tuned.add_argument(
        "--write", type=whole(), metavar="N", help="keep filter N; needs the next three"
    )
    tuned.add_argument("--owner", help="who answers for it")
    tuned.add_argument("--reason", help="why, for those who wonder later")
    tuned.add_argument("--expires", type=date.fromisoformat, help="a date: 2026-12-31")
    add_output_option(tuned)
    tuned.set_defaults(run=tune_rule)


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=int,
        default=DAYS,
        help=f"alerts that began so many days ago or since ({DAYS})",
    )


def _since(days: int, until: datetime) -> datetime:
    if not 1 <= days <= MOST_DAYS:
        raise Usage(f"--days {days}: must be from 1 to {MOST_DAYS}")
    return until - timedelta(days=days)


def show_scorecard(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules scorecard`: most alerts first."""
    from alerts.tuning.scorecard import scorecard

    until = datetime.now(UTC)
    since = _since(args.days, until)
    blindness = known_blindness(settings)
    rules = rule_rows(settings, compiled_rules(settings), model_rules(settings), blindness)
    with asking(settings) as ask:
        card = scorecard(ask, rules, since, until)
    rows = [asdict(score) for score in card.rules]
    if args.output in ("table", WIDE):
        # Rules without a short name would be nameless rows.
        rows = [row | {"name": row["name"] or row["title"]} for row in rows]
    print_rows(rows, args.output, brief=_BRIEF)
    judged = sum(score.judged for score in card.rules)
    alerts = sum(score.alerts for score in card.rules)
    print(
        f"{judged:,} of {alerts:,} alerts of {args.days} days are judged; weeks are counted from "
        f"the first finding on, {card.covered.total_seconds() / 86_400:.1f} days ago at most",
        file=sys.stderr,
    )
    if card.elsewhere:
        print(
            f"{card.elsewhere:,} alerts are of several rules together or of rules not in force",
            file=sys.stderr,
        )
    return 0


def tune_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules tune RULE`: the filter that removes most for each condition first."""
    from alerts.tuning.filter_file import text_of_conditions
    from alerts.tuning.filters import propose
    from alerts.tuning.judged_alerts import rule_history
    from alerts.tuning.kept_filters import standing_filters
    from alerts.tuning.rule_tuning import (
        limits_of,
        proposal_row,
        tunable_rule,
        verdicts_that_wait,
    )

    now = datetime.now(UTC)
    since = _since(args.days, now)
    _require_whole(args, now.date())
    rule, path = tunable_rule(settings, args.rule)
    # Before the table: what is taken in between is told twice and not left out.
    waiting = list(verdicts_that_wait(settings, rule.id))
    with asking(settings) as ask:
        history = rule_history(ask, rule.id, since)
    for line in waiting:
        print(line, file=sys.stderr)
    if not history.judged:
        print(
            f"none of its {sum(history.verdicts.values()) + history.left_out:,} alerts is judged: "
            "headgate alerts close ID --verdict false_positive, or true_positive, benign, ...",
            file=sys.stderr,
        )
        return 1
    proposals = propose(history.alerts)
    standing = standing_filters(settings, rule)
    kept = [standing.get(text_of_conditions(each.conditions)) for each in proposals]
    numbered = list(enumerate(zip(proposals, kept, strict=True), 1))
    print_rows([proposal_row(n, each, bool(same)) for n, (each, same) in numbered], args.output)
    for number, (_, same) in numbered:
        if same:
            print(printable(_already(number, same)), file=sys.stderr)
    for line in limits_of(history):
        print(line, file=sys.stderr)
    if not proposals:
        print("no filter of two conditions removes any and keeps every true one", file=sys.stderr)
    if args.write is None:
        return 0 if proposals else 1
    if not 1 <= args.write <= len(proposals):
        raise Usage(f"--write {args.write}: there are {len(proposals)} filters")
    return _write(args, settings, rule, path, proposals[args.write - 1])


def _already(number: int, same: KeptFilter) -> str:
    until = f" until {same.expires}" if same.expires else ""
    return f"filter {number} is kept already, by {same.owner or 'nobody named'}{until}: {same.path}"


def _require_whole(args: argparse.Namespace, today: date) -> None:
    given = [args.owner, args.reason, args.expires]
    if args.write is None:
        if any(given):
            raise Usage("--owner, --reason and --expires go with --write N")
        return
    if not all(given) or not args.owner.strip() or not args.reason.strip():
        raise Usage("--write needs --owner NAME, --reason TEXT and --expires DATE")
    if args.expires <= today:
        raise Usage(f"--expires {args.expires}: must be after today")


def _write(
    args: argparse.Namespace, settings: Settings, rule: Rule, path: Path, proposal: Proposal
) -> int:
    from alerts.tuning.rule_tuning import FilterWish, keep_proposed_filter

    filter_wish = FilterWish(proposal.conditions, args.owner, args.reason, args.expires)
    written, pack = keep_proposed_filter(settings, rule, path, filter_wish)
    print(
        printable(
            f"{written}: in force with rule pack {pack}; take the file away to end it before "
            f"{args.expires}. It ends when rules are compiled then: at a driver's start, or by "
            "'headgate rules enable'"
        ),
        file=sys.stderr,
    )
    return 0
