"""`headgate rules cost`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from alerts.cli.output import since_when
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, Rule
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_rows

EVENTS, EVENTS_OF_ALL = 100_000, 20_000
"""Events that named rules are tried on, and all of a pack, which may be thousands."""


def build(verbs: Any) -> None:
    """Add the command below `headgate rules`."""
    cost = verbs.add_parser(
        "cost",
        help="what rules cost: predicted before they are enabled, or as measured live",
        description="Runs each rule over a sample of the events that are there. For a correlation "
        "the rules it counts are shown.",
    )
    cost.add_argument("rule", nargs="*", metavar="RULE|FILE", help="id or name, or a draft's file")
    cost.add_argument("--all", action="store_true", help="all rules of the pack in force")
    cost.add_argument("--live", action="store_true", help="what they cost job ingest")
    cost.add_argument("--since", default="24h", help="events since: an instant, or 24h, 7d")
    cost.add_argument(
        "--sample",
        type=whole(),
        help=f"events to try them on (default: {EVENTS}, with --all {EVENTS_OF_ALL})",
    )
    add_output_option(cost, WIDE)
    cost.set_defaults(run=show_cost)


def show_cost(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules cost`: the dearest first."""
    if not args.rule and not args.all and not args.live:
        raise Usage("name a rule or a draft's file, or say --all or --live")
    until = datetime.now(UTC)
    since = since_when(args.since, until).astimezone(UTC)
    if since >= until:
        raise Usage(f"--since {args.since}: lies in the future")
    if args.live:
        return _live(args, settings, since, until)
    return _predicted(args, settings, since, until)


def _predicted(
    args: argparse.Namespace, settings: Settings, since: datetime, until: datetime
) -> int:
    from alerts.coverage.rule_cost import predict, sample
    from infra.delta.duckdb_views import connect

    rules = _rules(args, settings)
    connection = connect(settings.lake_root, needs=("silver.event",), only=())
    try:
        most = args.sample or (EVENTS_OF_ALL if args.all else EVENTS)
        taken = sample(connection, rules, since, until, most)
    finally:
        connection.close()
    if not taken.events:
        raise Usage(f"--since {args.since}: silver.event has no events since then")
    ordered = sorted(
        predict(rules, taken, lambda number: _progress(number, len(rules))),
        key=lambda prediction: (-prediction.micros_per_event, prediction.rule_id),
    )
    print_rows([asdict(prediction) for prediction in ordered], args.output)
    print(
        f"on {taken.events:,} events; the span has {taken.in_span:,}, "
        f"{taken.per_second:.1f} a second",
        file=sys.stderr,
    )
    return 0


def _live(args: argparse.Namespace, settings: Settings, since: datetime, until: datetime) -> int:
    from alerts.backtest.rule_selection import select_rules
    from alerts.coverage.rule_cost import live_costs
    from infra.delta.duckdb_views import connect

    pack = select_rules(settings, args.rule).pack if args.rule else None
    wanted = {rule.id for rule in (*pack.rules, *pack.queries)} if pack is not None else None
    connection = connect(settings.lake_root, needs=("ops.rule_cost",), only=())
    try:
        rows, events, micros = live_costs(connection, since, until)
    finally:
        connection.close()
    titles = _titles(settings)
    print_rows(
        [
            asdict(row) | {"title": titles.get(row.rule_id, "")}
            for row in rows
            if wanted is None or row.rule_id in wanted
        ],
        args.output,
        brief=("title", "events", "candidates", "hits", "us"),
    )
    confirming = sum(row.us for row in rows)
    print(
        f"{events:,} events matched in {micros / 1e6:.1f} s, "
        f"{confirming / 1e6:.1f} s of it confirming candidates of single rules",
        file=sys.stderr,
    )
    return 0


def _rules(args: argparse.Namespace, settings: Settings) -> Sequence[Rule]:
    from alerts.backtest.rule_selection import select_rules
    from alerts.rulebook.rule_store import recompile

    if args.rule:
        pack = select_rules(settings, args.rule).pack
        if pack.queries:
            raise Usage(
                f"rule '{pack.queries[0].title}' is a query to Spark: what it costs shows in "
                "'headgate rules cost --live' once it runs"
            )
        return pack.rules
    store = PackStore(store_folder(settings))
    if not (store.folder / "current").exists():
        recompile(settings)
    return store.get(store.current()).rules


def _titles(settings: Settings) -> dict[str, str]:
    store = PackStore(store_folder(settings))
    if not (store.folder / "current").exists():
        return {}
    pack = store.get(store.current())
    return {rule.id: rule.title for rule in (*pack.rules, *pack.queries)}


def _progress(number: int, of: int) -> None:
    # A carriage return in a log file would make one endless line.
    if sys.stderr.isatty() and of > 1:
        end = "\n" if number == of else ""
        print(f"\r{number} of {of} rules", end=end, file=sys.stderr, flush=True)
