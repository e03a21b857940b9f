"""The command `headgate rules blind`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from infra.config.time_args import instant_or_none
from infra.process.table_output import add_output_option, print_rows

if TYPE_CHECKING:
    from infra.config.settings import Settings

NICE = 10
"""A scheduled look lets the jobs beside it go first."""


def build(verbs: Any) -> None:
    """Register `rules blind`."""
    blind = verbs.add_parser(
        "blind", help="rules whose source stopped or no longer fills what they need; exit code 1"
    )
    blind.add_argument("--at", help="as of then: 2026-11-20T00:00:00Z (default: now)")
    blind.add_argument(
        "--tell", action="store_true", help="what runs on a schedule: keep it, raise alerts of it"
    )
    add_output_option(blind)
    blind.set_defaults(run=show_blind)


def show_blind(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules blind`: exit code 1 when a rule sees nothing."""
    from alerts.coverage.blind import BLIND
    from alerts.coverage.run import look

    if args.tell:
        os.nice(NICE)
    done = look(settings, instant_or_none("--at", args.at), tell=args.tell)
    ordered = sorted(done.blind.values(), key=lambda one: (one.state != BLIND, one.rule.title))
    rows = [
        {
            "id": one.rule.id,
            "name": one.rule.name,
            "level": one.rule.level,
            "state": one.state,
            "since": one.since.isoformat(timespec="seconds"),
            "reason": one.reason,
            "title": one.rule.title,
        }
        for one in ordered
    ]
    print_rows(rows, args.output)
    blind = sum(one.state == BLIND for one in ordered)
    more = f", {done.told} records sent, {done.closed} alerts taken back" if args.tell else ""
    print(
        f"as of {done.at:%Y-%m-%d %H:%M:%S} UTC: {blind} rules blind, "
        f"{len(ordered) - blind} partly{more}",
        file=sys.stderr,
    )
    return 1 if blind else 0


def known(settings: Settings) -> dict[str, str]:
    """What the last scheduled look said of rules, by id, in a few words."""
    from alerts.coverage.run import State, folder_of

    return {
        rule_id: f"{told['state']} since {told['since'][:16]}: {told['reason']}"
        for rule_id, told in State.load(folder_of(settings)).blind.items()
    }
