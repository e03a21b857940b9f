"""`headgate rules backtest` and `headgate rules backtests`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from alerts.cli import models as models_cli
from alerts.cli.output import since_when
from infra.config.settings import Settings
from infra.delta.duckdb_views import require_lake
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows

if TYPE_CHECKING:
    from alerts.backtest.run import BacktestRequest
    from infra.streaming.lake import Lake

_NICE = 10


def build(verbs: Any) -> None:
    """Add the commands below `headgate rules`."""
    tested = verbs.add_parser(
        "backtest",
        help="what rules, correlations or drafts would have raised in the past",
        description="Runs rules over history as the jobs would have: the same matcher and state, "
        "attribution as it was known then. Interrupted, the same command goes on where it was.",
    )
    tested.add_argument(
        "rule", nargs="+", metavar="RULE|FILE", help="id or name, or the file of a draft"
    )
    tested.add_argument(
        "--from", dest="since", required=True, help="events since: an instant, or 24h, 7d"
    )
    tested.add_argument("--to", dest="until", help="events before (default: now)")
    tested.add_argument(
        "--against",
        metavar="RULE|FILE|PACK",
        help="compare with this: a rule, a draft, a pack's hash, or 'current'",
    )
    add_output_option(tested)
    tested.set_defaults(run=_backtest)

    listed = verbs.add_parser("backtests", help="backtests that were run, or one of them again")
    listed.add_argument("id", nargs="?", metavar="ID", help="show this one")
    add_output_option(listed)
    listed.set_defaults(run=backtests)


def _backtest(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules backtest RULE|FILE...`: nothing is written to the lake but a rule pack."""
    if models := models_cli.among(settings, args.rule):
        return _of_model(args, settings, models[0])
    # All that can be wrong is found before a JVM starts.
    request = _request(args, settings)
    require_lake(settings.lake_root)
    from alerts.backtest.result import summarise
    from alerts.backtest.run import (
        Backtest,
        begin_backtest,
        forget_backtest,
        require_fit_queries,
    )
    from alerts.rulepack.locations import store_folder
    from alerts.rulepack.rule_pack import PackStore

    # It may run for minutes beside the stream, which must have the cores first.
    os.nice(_NICE)
    with ExitStack() as stack:
        # One session, whoever asks first.
        lake = cache(lambda: _lake(settings, stack))
        require_fit_queries(request, lake)
        run = begin_backtest(settings, request)
        if run.chunks:
            _say(f"goes on with backtest {run.id}: {len(run.chunks)} chunks are through")
        work = Backtest(settings, lake, run)
        result = summarise(work, work.through(_say), PackStore(store_folder(settings)))
        work.finish()
    forget_backtest(settings)
    _show(result, settings, args.output)
    return 0


def _lake(settings: Settings, stack: ExitStack) -> Lake:
    """The lake over a session of Spark that ends with `stack`."""
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    _say("starting Spark: more than one process does by itself")
    spark = session(settings, "headgate backtest")
    stack.callback(spark.stop)
    return Lake(spark, settings)


def _of_model(args: argparse.Namespace, settings: Settings, name: str) -> int:
    """A model judges hours, not events, and has its own form of history."""
    if len(args.rule) > 1:
        raise Usage(f"'{name}' is a rule of kind model; backtest it by itself")
    if args.against:
        raise Usage(
            f"--against {args.against}: '{name}' is a rule of kind model; compare with "
            f"'headgate models backtest {name} --model HASH'"
        )
    return models_cli.model_summary(settings, name, args.since, args.until, args.output)


def backtests(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules backtests [ID]`."""
    from alerts.backtest.result import loaded, took
    from alerts.backtest.run import backtest_folder, stored_backtests

    runs = stored_backtests(settings)
    if args.id is None:
        rows = [
            {
                "id": run.id,
                "rules": ", ".join(run.rules),
                "against": run.against or "",
                "since": run.since,
                "until": run.until,
                "state": f"{took(run):.0f} s"
                if run.finished
                else f"unfinished, {len(run.chunks)} of {len(run.pieces())} chunks",
            }
            for run in runs
        ]
        print_rows(rows, args.output)
        if not rows:
            print("no backtest is kept; 'headgate rules backtest RULE' makes one", file=sys.stderr)
        return 0
    result = [run for run in runs if run.id.startswith(args.id)]
    if len(result) != 1 or result[0].finished is None:
        raise Usage(f"no finished backtest '{args.id}'; 'headgate rules backtests' lists them")
    _show(loaded(backtest_folder(settings) / result[0].id), settings, args.output)
    return 0


def _request(args: argparse.Namespace, settings: Settings) -> BacktestRequest:
    from alerts.backtest.rule_selection import choose_against, select_rules
    from alerts.backtest.run import BacktestRequest

    now = datetime.now(UTC)
    since = since_when(args.since, now, "--from").astimezone(UTC)
    until = since_when(args.until, now, "--to").astimezone(UTC) if args.until else now
    if since >= until:
        raise Usage(f"--from {args.since}: not before --to {args.until or 'now'}")
    rules = select_rules(settings, args.rule)
    against = choose_against(settings, args.against, rules.ids) if args.against else None
    # As it was typed: `7d`, asked again after an interruption, means the same run.
    asked = f"{args.since} {args.until}"
    return BacktestRequest(tuple(args.rule), rules, since, until, against, args.against, asked)


def _show(result: dict[str, Any], settings: Settings, output: str) -> None:
    from alerts.backtest.result import kept_alerts
    from alerts.backtest.run import backtest_folder

    if output == "json":
        print_document(result, indent=2)
    elif output == "table":
        _print_result(result)
    else:
        print_rows(kept_alerts(backtest_folder(settings) / result["id"]), output)


def _print_result(result: dict[str, Any]) -> None:
    new = result["sides"]["new"]
    print(f"{result['since']} to {result['until']} (backtest {result['id']})")
    print_rows(new["rules"])
    for rule in new["rules"]:
        # Of a result that an earlier release kept it is not known.
        if rule.get("events") == 0:
            print(
                f"'{rule['title']}' had no event of its log source in this time: 'headgate rules "
                "coverage' says what rules lack"
            )
    if "difference" in result:
        _print_difference(result)
        return
    print()
    print_rows([{"day": day, "alerts": many} for day, many in new["by_day"].items()])
    print()
    print_rows(new["by_entity"])
    if new["by_attribution"]:
        statuses = ", ".join(f"{many} {status}" for status, many in new["by_attribution"].items())
        print(f"\nattribution as known then: {statuses}")
    if new["imported_findings"]:
        print(f"{new['imported_findings']} findings are imported events', attributed as known now")
    print()
    print_rows(_short(new["examples"]))


def _print_difference(result: dict[str, Any]) -> None:
    difference = result["difference"]
    print("\nagainst")
    print_rows(result["sides"]["old"]["rules"])
    print()
    print_rows([{"what": what, **difference[what]} for what in ("alerts", "findings")])
    for change in ("gained", "lost"):
        if difference["examples"][change]:
            print(f"\n{change}, the newest")
            print_rows(_short(difference["examples"][change]))


def _short(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("raised", "entity", "count", "title")} for row in rows]


def _say(sentence: str) -> None:
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr, flush=True)
