"""`headgate verify`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from alerts.cli.output import since_when
from alerts.domain.entity import event_instant
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.progress import progress
from infra.process.table_output import add_output_option, print_document, print_rows

_NICE = 10
SHOWN = 20


def build(subparsers: Any) -> None:
    """Add `verify` to the command."""
    verified = subparsers.add_parser(
        "verify",
        help="run the live rules over history and compare with what the stream found",
        description="Findings, correlations and alerts of a span, computed again from the tables "
        "as they were known then. Exit code 1 when a difference has no cause.",
    )
    verified.add_argument(
        "--from", dest="since", required=True, help="events since: an instant, or 24h, 7d"
    )
    verified.add_argument("--to", dest="until", help="events before (default: now)")
    add_output_option(verified)
    verified.set_defaults(run=verify)


def verify(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate verify`: 0 when all is the same or explained."""
    now = datetime.now(UTC)
    since = since_when(args.since, now, "--from").astimezone(UTC)
    until = since_when(args.until, now, "--to").astimezone(UTC) if args.until else now
    if since >= until:
        raise Usage(f"--from {args.since}: not before --to {args.until or 'now'}")
    from alerts.verify.run import Verification, differences
    from infra.delta.duckdb_views import require_lake
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    require_lake(settings.lake_root)
    os.nice(_NICE)
    spark = session(settings, "headgate verify")
    try:
        with progress("verify") as step:
            run = Verification(Lake(spark, settings), since, until, step).run()
    finally:
        spark.stop()
    rows = [
        asdict(difference) | {"at": event_instant(difference.at).isoformat()}
        for difference in differences(run)
    ]
    if args.output == "json":
        whole = asdict(run) | {"differences": rows, "unexplained": run.unexplained}
        print_document(whole, indent=2)
    elif args.output == "table":
        print(f"{run.since} to {run.until}, detection complete up to {run.complete_up_to}")
        same = ", ".join(f"{many} {what}s" for what, many in run.same.items())
        print(f"the same in both: {same}")
        print_rows(run.by_cause(), "table")
        if rows:
            print()
            show_differences(rows)
    else:
        print_rows(rows, args.output)
    print(f"{len(rows)} differences, {run.unexplained} of them unexplained", file=sys.stderr)
    return 1 if run.unexplained else 0


def show_differences(rows: Sequence[Mapping[str, Any]]) -> None:
    """The first differences as a table, and how many more there are."""
    print_rows(rows[:SHOWN], "table")
    if (more := len(rows) - SHOWN) > 0:
        print(f"and {more:,} more; '--output csv' lists all")
