"""`headgate export` and `headgate plan`: what is in force, in a git repository."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.process.table_output import add_output_option, print_rows

_CODES = "Exit code: 0 nothing to change, 2 changes, 1 problems."


def build_export(subparsers: Any) -> None:
    """Register `headgate export`."""
    command = subparsers.add_parser(
        "export",
        help="write what is in force as files for a git repository",
        description="Writes rules, switches, suppressions and indicator lists, in an order that "
        "stays. A folder that is neither empty nor a former export is refused.",
    )
    command.add_argument("folder", type=Path, metavar="FOLDER")
    command.set_defaults(run=run_export)


def build_plan(subparsers: Any) -> None:
    """Register `headgate plan`."""
    command = subparsers.add_parser(
        "plan",
        help="what a folder of 'export' would change",
        description=f"Compares a folder with what is in force; changes nothing. {_CODES}",
    )
    command.add_argument("folder", type=Path, metavar="FOLDER")
    command.add_argument("--prune", action="store_true", help="remove what is not in the folder")
    command.add_argument(
        "--preview", metavar="SPAN", help="count findings of changed rules over so long: 24h, 7d"
    )
    add_output_option(command)
    command.set_defaults(run=run_plan)


def run_export(args: argparse.Namespace, settings: Settings) -> int:
    """Export, and say how many objects there are."""
    # Imported when it runs: building the parser must stay quick.
    from headgate.as_code.export import export_folder

    counts = export_folder(settings, args.folder)
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{args.folder}: {words}", file=sys.stderr)
    return 0


def run_plan(args: argparse.Namespace, settings: Settings) -> int:
    """Print what would change."""
    from alerts.cli.output import since_when
    from headgate.as_code.plan import planned_folder
    from headgate.as_code.rows import COLUMNS, plan_rows, preview_rows

    since = since_when(args.preview, datetime.now(UTC), "--preview") if args.preview else None
    with planned_folder(settings, args.folder, args.prune) as (plan, _, rules):
        rows = plan_rows(plan)
        if since is not None:
            rows += preview_rows(settings, plan, rules, since)
        print_rows(rows, args.output, COLUMNS)
        print(
            f"{len(plan.changes)} to change, {len(plan.by_hand)} by hand, "
            f"{len(plan.left)} not in the folder, {len(plan.problems)} problems",
            file=sys.stderr,
        )
        return plan.exit_code
