"""`headgate verify`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from alerts.cli.output import since_when
from alerts.domain.entity import moment
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows

NICE = 10
SHOWN = 20


def build(subparsers: Any) -> None:
    """Add `verify` to the command."""
    verified = subparsers.add_parser(
        "verify",
        help="run the live rules over history and compare with what the stream told",
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
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    os.nice(NICE)
    spark = session(settings, "headgate verify")
    try:
        told = Verification(Lake(spark, settings), since, until, _tell).run()
    finally:
        spark.stop()
    rows = [asdict(one) | {"at": moment(one.at).isoformat()} for one in differences(told)]
    if args.output == "json":
        whole = asdict(told) | {"differences": rows, "unexplained": told.unexplained}
        print_document(whole, indent=2)
    elif args.output == "table":
        print(f"{told.since} to {told.until}, detection complete up to {told.complete_up_to}")
        same = ", ".join(f"{many} {what}s" for what, many in told.same.items())
        print(f"the same in both: {same}")
        print_rows(told.by_cause(), "table")
        if rows:
            print()
            print_rows(rows[:SHOWN], "table")
    else:
        print_rows(rows, args.output)
    print(f"{len(rows)} differences, {told.unexplained} of them unexplained", file=sys.stderr)
    return 1 if told.unexplained else 0


def _tell(sentence: str) -> None:
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr, flush=True)
