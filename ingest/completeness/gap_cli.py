"""Commands `gaps list` and `gaps accept`: what the broker lost, and going on without it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, fields
from typing import Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import add_output_option, print_document, print_lines, print_rows
from infra.runtime.job_registry import resume
from ingest.completeness.gaps import INGEST_JOB, Gap, accept, find_gaps, gap_statement, has_read

_COLUMNS = (*(field.name for field in fields(Gap)), "messages", "gap_id")


def build(commands: Any) -> None:
    """Register the commands."""
    gaps = commands.add_parser("gaps", help="messages the broker lost before they were read")
    verbs = gaps.add_subparsers(dest="verb", required=True)
    list_parser = verbs.add_parser("list", help="what is missing; exit 1 if there is any")
    add_output_option(list_parser)
    list_parser.set_defaults(run=_gaps)
    taken = verbs.add_parser("accept", help="go on without what 'headgate gaps list' states")
    taken.add_argument("statement", help="the statement that 'headgate gaps list' gives")
    taken.add_argument("--reason", required=True, help="why it is right to go on; it is kept")
    taken.set_defaults(run=_accept)


def _gaps(arguments: argparse.Namespace, settings: Settings) -> int:
    begun, gaps = has_read(settings), find_gaps(settings)
    rows = [{**asdict(gap), "messages": gap.messages, "gap_id": gap.gap_id} for gap in gaps]
    if arguments.output == "json":
        print_document({"statement": gap_statement(gaps) if gaps else None, "gaps": rows})
    elif arguments.output != "table":
        print_rows(rows, arguments.output, _COLUMNS)
    elif gaps:
        print_lines([gap.sentence() for gap in gaps])
        print(f"\nto go on without: headgate gaps accept {gap_statement(gaps)} --reason '...'")
    elif begun:
        print("nothing is missing")
    if not begun:
        print(
            f"job {INGEST_JOB} has read nothing yet with the home {settings.home}: start it "
            "(headgate up), or name another home with --home",
            file=sys.stderr,
        )
    return 1 if gaps else 0


def _accept(arguments: argparse.Namespace, settings: Settings) -> int:
    if not arguments.reason.strip():
        raise Usage("--reason: say why it is right to go on; it stays in ops.gap")
    gaps = accept(settings, arguments.statement, acting_user(), arguments.reason)
    resume(settings, INGEST_JOB)
    for gap in gaps:
        print(f"accepted: {gap.sentence()}", file=sys.stderr)
    print(
        f"job {INGEST_JOB} goes on behind; a driver that runs starts it by itself", file=sys.stderr
    )
    return 0
