"""The command `rebuild`: a new checkpoint for job `sessions`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.process.table_output import add_output_option, print_document, print_rows

if TYPE_CHECKING:
    from enrich.dhcp.checkpoint_rebuild import Rebuilt


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    command = subparsers.add_parser(
        "rebuild",
        help="make a job's checkpoint anew from the tables",
        description="Make the checkpoint of job sessions anew from silver.dhcp_segment and "
        "silver.event, so that it goes on exactly where the tables end: when the checkpoint is "
        "lost, when jobs.session_buckets is to change, when its state lies in cells, and with a "
        "release to which you go back. The job must be stopped. The old checkpoint is kept beside "
        "the new one.",
    )
    command.add_argument("job", choices=("sessions",))
    add_output_option(command)
    command.set_defaults(run=run_rebuild)


def run_rebuild(args: argparse.Namespace, settings: Settings) -> int:
    """Rebuild, and tell what the new checkpoint holds."""
    from enrich.dhcp.checkpoint_rebuild import rebuild
    from infra.delta.duckdb_views import require_lake
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    def say(line: str) -> None:
        if sys.stderr.isatty():
            print(f"rebuild: {line}", file=sys.stderr, flush=True)

    require_lake(settings.lake_root)
    spark = session(settings)
    try:
        lake = Lake(spark, settings).ensure()
        _show(rebuild(lake, say), args.output)
    finally:
        spark.stop()
    return 0


def _show(done: Rebuilt, form: str) -> None:
    """Print what was made."""
    row = asdict(done)
    if form == "json":
        print_document(row, indent=2)
    elif form != "table":
        print_rows([row], form)
    else:
        _sentences(done)


def _sentences(done: Rebuilt) -> None:
    print(
        f"job sessions: new checkpoint {done.query}, state of version {done.version} in "
        f"{done.buckets} buckets; it goes on after batch {done.from_batch} of {done.from_query}"
    )
    print(f"it remembers {done.addresses} addresses, known up to {done.known_at}")
    if done.unplayed:
        print(
            f"of {done.unplayed} addresses the lines in silver.event do not give what was said; "
            "they are taken as they were said, and late lines are put on top of it"
        )
    if done.kept:
        print(f"the old checkpoint is in {done.kept}; remove it when all is well")
