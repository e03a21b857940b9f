"""The command `headgate rules coverage`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from infra.config.time_args import instant_or_none
from infra.process.table_output import add_output_option, print_rows

if TYPE_CHECKING:
    from infra.config.settings import Settings

_NICE = 10
"""A scheduled look lets the jobs beside it go first."""


def build(verbs: Any) -> None:
    """Register `rules coverage`."""
    blind = verbs.add_parser(
        "coverage", help="rules whose source stopped or no longer fills what they need; exit code 1"
    )
    blind.add_argument("--at", help="as of then: 2026-11-20T00:00:00Z (default: now)")
    blind.add_argument(
        "--tell", action="store_true", help="what runs on a schedule: keep it, raise alerts of it"
    )
    add_output_option(blind)
    blind.set_defaults(run=show_blind)


def show_blind(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules coverage`: exit code 1 when a rule sees nothing."""
    from alerts.coverage.blind import BLIND
    from alerts.coverage.run import look_for_blind_rules

    if args.tell:
        os.nice(_NICE)
    done = look_for_blind_rules(settings, instant_or_none("--at", args.at), tell=args.tell)
    ordered = sorted(
        done.blind.values(),
        key=lambda blind_rule: (blind_rule.state != BLIND, blind_rule.rule.title),
    )
    rows = [
        {
            "id": blind_rule.rule.id,
            "name": blind_rule.rule.name,
            "level": blind_rule.rule.level,
            "state": blind_rule.state,
            "since": blind_rule.since.isoformat(timespec="seconds"),
            "reason": blind_rule.reason,
            "title": blind_rule.rule.title,
        }
        for blind_rule in ordered
    ]
    print_rows(rows, args.output)
    blind = sum(blind_rule.state == BLIND for blind_rule in ordered)
    more = f", {done.told} records sent, {done.closed} alerts taken back" if args.tell else ""
    print(
        f"as of {done.at:%Y-%m-%d %H:%M:%S} UTC: {blind} rules blind, "
        f"{len(ordered) - blind} partly{more}",
        file=sys.stderr,
    )
    return 1 if blind else 0


def known_blindness(settings: Settings) -> dict[str, str]:
    """What the last scheduled look said of rules, by id, in a few words."""
    from alerts.coverage.state import CoverageState, coverage_folder

    return {
        rule_id: f"{cause['state']} since {cause['since'][:16]}: {cause['reason']}"
        for rule_id, cause in CoverageState.load(coverage_folder(settings)).blind.items()
    }
