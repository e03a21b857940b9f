"""`headgate rules scorecard`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from alerts.cli.coverage import known_blindness
from alerts.cli.explain import asking
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import compiled_rules, rule_rows
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_rows

DAYS, MOST_DAYS = 30, 3_650

_NARROW = ("recommendation", "alerts", "per_week", "judged", "precision", "true_positive",
           "false_positive", "benign", "unjudged", "name", "reason")  # fmt: skip
"""Columns of a table; programs get all of them."""


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
    add_output_option(scored)
    scored.set_defaults(run=show_scorecard)


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
    known = known_blindness(settings)
    rules = rule_rows(settings, compiled_rules(settings), model_rules(settings), known)
    with asking(settings) as ask:
        card = scorecard(ask, rules, since, until)
    rows = [asdict(score) for score in card.rules]
    if args.output == "table":
        # Rules without a short name would be nameless rows.
        rows = [row | {"name": row["name"] or row["title"]} for row in rows]
        print_rows(rows, columns=_NARROW)
    else:
        print_rows(rows, args.output)
    judged = sum(score.judged for score in card.rules)
    alerts = sum(score.alerts for score in card.rules)
    print(
        f"{judged:,} of {alerts:,} alerts of {args.days} days are judged; weeks are counted from "
        f"the first finding on, {card.covered.total_seconds() / 86_400:.1f} days ago at most",
        file=sys.stderr,
    )
    if card.elsewhere:
        print(f"{card.elsewhere:,} alerts are of rules not in force", file=sys.stderr)
    return 0
