"""`headgate export`, `plan` and `apply`: what is in force, in a git repository."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.errors import Fatal
from infra.process.table_output import add_output_option, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from headgate.as_code.plan import ConfigPlan

_CODES = "Exit code: 0 nothing to change, 2 changes, 1 problems."


def build_export(subparsers: Any) -> None:
    """Register `headgate export`."""
    command = subparsers.add_parser(
        "export",
        help="write what is in force as files for a git repository",
        description="Writes own rules, switches, suppressions, indicator lists, saved queries, "
        "assets, imported functions, webhooks and settings that differ from their default, in an "
        "order that stays. Secrets are left out: a reference stands for each. A folder that is "
        "neither empty nor a former export is refused.",
    )
    command.add_argument("folder", type=Path, metavar="FOLDER", help="where to write them")
    command.set_defaults(run=run_export)


def build_plan(subparsers: Any) -> None:
    """Register `headgate plan`."""
    command = subparsers.add_parser(
        "plan",
        help="what a folder of 'export' would change",
        description="Compares a folder with what is in force; changes nothing. It runs the tests "
        "of changed rules over events and of correlations; those of rules in SQL or Python, and of "
        f"models, are run by 'headgate rules test'. {_CODES}",
    )
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the files")
    command.add_argument("--prune", action="store_true", help="remove what is not in the folder")
    command.add_argument(
        "--preview", metavar="SPAN", help="count findings of changed rules over so long: 24h, 7d"
    )
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="keep the plan for 'apply --plan'"
    )
    add_output_option(command)
    command.set_defaults(run=run_plan)


def build_apply(subparsers: Any) -> None:
    """Register `headgate apply`."""
    command = subparsers.add_parser(
        "apply",
        help="put a folder of 'export' in force, as one",
        description="Checks all of the folder, then makes every change. What ended midway is "
        "finished by the next apply, first of all. Exit code: 0 in force, 2 something is left for "
        "a person, 1 problems, and nothing was changed.",
    )
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the files")
    command.add_argument("--yes", action="store_true", help="do not ask")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--prune", action="store_true", help="remove what is not in the folder")
    how.add_argument("--plan", type=Path, metavar="FILE", help="apply just this plan, or refuse to")
    add_output_option(command)
    command.set_defaults(run=run_apply)


def run_export(args: argparse.Namespace, settings: Settings) -> int:
    """Export, and say how many objects there are."""
    # Imported when it runs: building the parser must stay quick.
    from headgate.as_code.export import export_folder

    counts = export_folder(settings, args.folder)
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{printable(str(args.folder))}: {words}", file=sys.stderr)
    return 0


def run_plan(args: argparse.Namespace, settings: Settings) -> int:
    """Print what would change."""
    from alerts.cli.output import since_when
    from headgate.as_code.apply import unfinished_apply
    from headgate.as_code.plan import planned_folder
    from headgate.as_code.plan_file import write_plan
    from headgate.as_code.rows import COLUMNS, plan_rows, preview_rows

    if (journal := unfinished_apply(settings)) is not None:
        # Half of it is in force: whatever is compared with that misleads.
        raise Fatal(f"{journal.sentence}, ended midway; 'headgate apply' finishes it")
    since = since_when(args.preview, datetime.now(UTC), "--preview") if args.preview else None
    with planned_folder(settings, args.folder, args.prune) as (plan, _, rules):
        rows = plan_rows(plan, rules.titles)
        if since is not None:
            rows += preview_rows(settings, plan, rules, since)
        print_rows(rows, args.output, COLUMNS)
        _print_counts(plan)
        if args.out is not None:
            write_plan(args.out, plan, args.prune)
        return plan.exit_code


def run_apply(args: argparse.Namespace, settings: Settings) -> int:
    """Finish what ended midway, then apply the folder."""
    from headgate.as_code.apply import begin_apply, finish_apply, one_apply
    from headgate.as_code.plan import planned_folder, state_in_force
    from headgate.as_code.plan_file import read_plan, require_as_planned
    from headgate.as_code.rows import COLUMNS, plan_rows

    kept = None if args.plan is None else read_plan(args.plan)
    prune = args.prune if kept is None else kept.prune
    with one_apply(settings), _told_midway(settings):
        if (journal := finish_apply(settings, _go_on)) is not None:
            print(f"finished first: {journal.sentence}", file=sys.stderr)
        with planned_folder(settings, args.folder, prune) as (plan, reading, rules):
            print_rows(plan_rows(plan, rules.titles), args.output, COLUMNS)
            _print_counts(plan)
            if plan.problems:
                return 1
            if kept is not None:
                require_as_planned(args.plan, kept, plan)
            if plan.changes:
                _ask(args.yes)
                # A person may have looked at the question for long.
                if state_in_force(settings) != reading.in_force:
                    raise Fatal("something was changed meanwhile; nothing was applied: plan again")
                begin_apply(settings, reading, plan.changes, args.folder, _go_on)
                print(f"{len(plan.changes)} changes are in force", file=sys.stderr)
            return 2 if plan.by_hand else 0


@contextmanager
def _told_midway(settings: Settings) -> Iterator[None]:
    """Whatever ends an apply, a person learns whether part of it is in force."""
    from headgate.as_code.apply import unfinished_apply

    try:
        yield
    except BaseException:
        if (journal := unfinished_apply(settings)) is not None:
            what = f"{journal.sentence}, ended midway"
            print(f"headgate: {what}; 'headgate apply' finishes it", file=sys.stderr)
        raise


def _go_on(_: str) -> None:
    """Every step is taken."""


def _ask(agreed: bool) -> None:
    if agreed:
        return
    if not sys.stdin.isatty():
        raise Fatal("nobody can be asked here; --yes applies without asking")
    print("Apply? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Fatal("nothing was applied")


def _print_counts(plan: ConfigPlan) -> None:
    print(
        f"{len(plan.changes)} to change, {len(plan.by_hand)} by hand, "
        f"{len(plan.left)} not in the folder, {len(plan.problems)} problems",
        file=sys.stderr,
    )
