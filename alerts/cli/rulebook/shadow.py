"""`headgate rules shadow`, `promote` and `drop`."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alerts.cli.explain import asking
from alerts.cli.rulebook.switches import add_criteria, criteria_of, tell_in_force
from alerts.rollout.bulk import rules_in_shadow
from alerts.rollout.shadow import (
    ShadowWish,
    drop_rules,
    promote_rules,
    shadow_file,
    shadow_rules,
)
from alerts.rulebook.rule_choice import chosen_rules
from alerts.rulebook.rule_store import read_rule_files
from infra.config.settings import Settings
from infra.errors import Retryable, Usage
from infra.process.os_user import acting_user
from infra.process.table_output import add_output_option, print_rows

if TYPE_CHECKING:
    from alerts.rollout.shadow_report import ShadowLine


def build(verbs: Any) -> None:
    """Add `shadow`, `promote` and `drop` below `headgate rules`."""
    parser = verbs.add_parser(
        "shadow",
        help="try rules on live events without alerts; alone: what they would have alerted",
        description="Without a rule: what each rule in shadow would have alerted. A rule in shadow "
        "finds as always and alerts nobody, adds to no risk and is counted by no live correlation. "
        "A file with the id of a rule in force is tried beside it.",
    )
    parser.add_argument("rule", nargs="*", metavar="RULE|FILE", help="id, name or a rule's file")
    add_criteria(parser)
    parser.add_argument("--pack", default="", metavar="NAMES", help="folders of alerts.rules")
    parser.add_argument("--days", type=int, default=7, help="how long (default: 7)")
    parser.add_argument("--reason", default="", help="why, for those who wonder later")
    parser.add_argument("--yes", action="store_true", help="do it to all that are like that")
    add_output_option(parser)
    parser.set_defaults(run=shadow)

    for verb, words, run in (
        ("promote", "let rules in shadow alert; a changed text takes its rule's place", promote),
        ("drop", "give up rules in shadow: off, or the changed text taken away", drop),
    ):
        ended = verbs.add_parser(verb, help=words)
        ended.add_argument("rule", nargs="*", metavar="RULE", help="id or name")
        add_criteria(ended)
        ended.add_argument("--pack", default="", metavar="NAMES", help="folders of alerts.rules")
        ended.add_argument("--yes", action="store_true", help="do it to all that are like that")
        ended.add_argument("--reason", default="", help="why, for those who wonder later")
        ended.set_defaults(run=run)


def shadow(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules shadow`: without rules a report."""
    criteria = criteria_of(args)
    if not args.rule and not criteria:
        return _report(args, settings)
    shadow_wish = ShadowWish(acting_user(), args.reason, args.days)
    names = [name for name in args.rule if not _is_file(name)]
    files = [Path(name) for name in args.rule if _is_file(name)]
    chosen = chosen_rules(read_rule_files(settings), names, criteria)
    print(f"rules chosen: {len(chosen) + len(files)}", file=sys.stderr)
    if criteria and not args.yes:
        rules = [source.rule for source in chosen.values()]
        rows = [{"id": r.id, "name": r.name, "level": r.level, "title": r.title} for r in rules]
        print_rows(rows, args.output)
        raise Usage("nothing was put in shadow; add --yes if it is these")
    for path in files:
        rule_id, pack = shadow_file(settings, path, shadow_wish)
        print(f"{path}: in shadow as {rule_id} for {shadow_wish.days} days", file=sys.stderr)
    if chosen:
        pack = shadow_rules(settings, list(chosen), shadow_wish)
        print(
            f"in shadow for {shadow_wish.days} days, without alerts; what they would have alerted: "
            "headgate rules shadow",
            file=sys.stderr,
        )
    return tell_in_force(pack)


def _is_file(name: str) -> bool:
    return name.endswith((".yml", ".yaml"))


def promote(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules promote RULE...`."""
    ids = _in_shadow(args, settings)
    return tell_in_force(promote_rules(settings, ids, acting_user(), args.reason))


def drop(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules drop RULE...`."""
    ids = _in_shadow(args, settings)
    pack = drop_rules(settings, ids, acting_user(), args.reason)
    print(
        "dropped: what was put in shadow itself is switched off (headgate rules enable RULE), of a "
        "changed text the rule in force stays as it is",
        file=sys.stderr,
    )
    return tell_in_force(pack)


def _in_shadow(args: argparse.Namespace, settings: Settings) -> list[str]:
    """The rules in shadow that are named, and those that are like what was asked for."""
    criteria = criteria_of(args)
    ids = rules_in_shadow(read_rule_files(settings), args.rule, criteria)
    print(f"rules chosen: {len(ids)}", file=sys.stderr)
    if criteria and not args.yes:
        raise Usage("look which they are with 'headgate rules shadow' first, then add --yes")
    return ids


def _report(args: argparse.Namespace, settings: Settings) -> int:
    from alerts.rollout.shadow_report import shadow_lines

    try:
        with asking(settings) as ask:
            lines = shadow_lines(settings, ask, datetime.now(UTC))
    except Retryable as error:
        print(f"nothing to report yet: {error}", file=sys.stderr)
        lines = shadow_lines(settings, None, datetime.now(UTC))
    print_rows([_row(line) for line in lines], args.output)
    if not lines:
        print("no rule is in shadow; 'headgate rules shadow RULE' puts one there", file=sys.stderr)
    return 0


def _row(line: ShadowLine) -> dict[str, Any]:
    outcome = line.outcome
    return {
        "rule": line.name or line.rule_id,
        "since": line.mark.since.isoformat(),
        "until": line.mark.until.isoformat() + (" (over)" if line.over else ""),
        "findings": outcome.findings if outcome else None,
        "alerts": outcome.alerts if outcome else None,
        "a_day": outcome.per_day if outcome else None,
        "most": outcome.busiest if outcome else "",
        "changes": line.mark.changes,
        "by": line.mark.who,
        "reason": line.mark.reason,
        "note": "live it alerts not itself" if line.muted else "",
    }
