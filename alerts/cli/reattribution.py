"""Command `repair`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

from infra.config.settings import Settings
from infra.config.time_args import instant_or_none
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows

_NICE = 10
"""The live jobs go first."""


def build(subparsers: Any) -> None:
    """Add `repair` to the command."""
    parser = subparsers.add_parser(
        "repair",
        help="put leases and attributions right where DHCP lines came too late",
        description="Compares what was said of addresses with what their DHCP lines say, appends "
        "what differs, and attributes the findings anew whose device is another one now. Asked "
        "for nothing, it looks at what came to be in doubt since the last run: lines that were "
        "too late for the stream, imports and reparses. Runs beside the jobs; a second run "
        "changes nothing.",
    )
    parser.add_argument("--since", help="look at every address with a line since then")
    parser.add_argument("--until", help="and before then")
    parser.add_argument("--ip", help="look at this address only")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate repair`: 0 when all addresses in doubt are as their lines say, 1 when some finding
    had to be left as it was."""
    since = instant_or_none("--since", args.since)
    until = instant_or_none("--until", args.until)
    if since is not None and until is not None and since >= until:
        raise Usage(f"--since {args.since}: not before --until {args.until}")
    ip = None if args.ip is None else _address(args.ip)

    from alerts.reattribution.history_repair import RepairOutcome, note_repair, repair_history
    from infra.delta.duckdb_views import require_lake
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    require_lake(settings.lake_root)
    os.nice(_NICE)
    request = {"since": args.since, "until": args.until, "ip": ip}
    spark = session(settings, "headgate repair")
    try:
        lake = Lake(spark, settings).ensure()
        done = repair_history(
            lake, since=since, until=until, ip=ip, dry=args.dry_run, tell=_progress
        )
    except Exception as error:
        if not args.dry_run:
            note_repair(
                settings, RepairOutcome("none"), request | {"said": str(error)[:500]}, "failed"
            )
        raise
    finally:
        spark.stop()
    if not done.dry:
        note_repair(settings, done, request)
    show(asdict(done), args.output)
    return 1 if done.left_out else 0


def show(outcome: dict[str, Any], form: str) -> None:
    """What a repair came to, on standard output."""
    if form == "json":
        print_document(outcome)
    else:
        print_rows([outcome], form)


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise Usage(f"--ip {text}: not an IP address") from None


def _progress(sentence: str) -> None:
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr, flush=True)
