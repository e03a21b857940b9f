"""Commands `report` and `ledger`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from infra.cells import for_programs
from infra.duck import connect
from infra.errors import Fatal, Usage
from infra.expired import furthest
from infra.settings import Settings
from ingest.files import under_way
from reporting.interval import Interval, parse_interval
from reporting.ledger import (
    COLUMNS,
    TABLES,
    Completeness,
    completeness,
    excuse,
    forgive,
    gaps,
    total,
)

Render = Callable[[duckdb.DuckDBPyConnection, Interval, datetime], str]
REPORTS = ("daily",)


def build(subparsers: Any) -> None:
    """Add the commands; each sets `run`, called with the arguments and the settings."""
    report = subparsers.add_parser("report", help="write a report, or list the reports there are")
    kinds = report.add_subparsers(dest="action", required=True)
    run = kinds.add_parser("run", help="write one self-contained HTML page")
    run.add_argument("name", choices=REPORTS)
    run.add_argument(
        "--interval",
        required=True,
        help="2026-11-20/2026-11-21 (UTC; the end is not in it), or one day",
    )
    run.add_argument("--out", type=Path, help="file (default: <home>/reports/<name>-<span>.html)")
    run.set_defaults(run=run_report)
    kinds.add_parser("list", help="reports there are").set_defaults(run=list_reports)

    ledger = subparsers.add_parser(
        "ledger", help="what was received and what became of it; exit 1 if any is unaccounted"
    )
    ledger.add_argument("--since", help="first arrival time, UTC (default: 24 hours ago)")
    ledger.add_argument("--until", help="end of arrival times (default: now)")
    ledger.add_argument("--source", help="one source")
    ledger.add_argument("--output", choices=("table", "json", "ndjson", "csv"), default="table")
    ledger.set_defaults(run=run_ledger)


def run_report(args: argparse.Namespace, settings: Settings) -> int:
    """Write the report and print where it is."""
    from reporting.reports import daily

    interval = parse_interval(args.interval)
    out: Path = args.out or settings.home / "reports" / f"{args.name}-{interval.slug}.html"
    render: Render = daily.render
    page = render(_lake(settings, daily.TABLES), interval, datetime.now(UTC))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, "utf-8")
    except OSError as error:
        raise Fatal(f"{out}: cannot be written ({error.strerror})") from error
    print(out)
    return 0


def list_reports(args: argparse.Namespace, settings: Settings) -> int:
    """Name the reports, and the files made so far."""
    from reporting.reports import daily

    print(f"daily  {daily.DOC}")
    for file in sorted((settings.home / "reports").glob("*.html")):
        print(f"  {file}")
    return 0


def run_ledger(args: argparse.Namespace, settings: Settings) -> int:
    """Print completeness by source; 1 when a record is unaccounted or a row stands twice."""
    until = _instant("--until", args.until) or datetime.now(UTC)
    since = _instant("--since", args.since) or until - timedelta(days=1)
    if since >= until:
        raise Usage(f"--since {since.isoformat()}: not before --until {until.isoformat()}")
    lake = _lake(settings, TABLES)
    rows = completeness(lake, since, until, args.source)
    summed = total(rows)
    show(rows, summed, args.output)
    for sentence in gaps(lake, since, until):
        print(f"headgate: {sentence}", file=sys.stderr)
    return 1 if summed.unaccounted or summed.duplicated else 0


def show(rows: Sequence[Completeness], summed: Completeness, form: str) -> None:
    """Write the rows; the sum of all sources comes last."""
    told = [asdict(row) for row in (*rows, summed)]
    if form == "table":
        _table(told)
    else:
        for_programs(list(COLUMNS), told, form)


def _table(told: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "source" else "right", no_wrap=True)
    for row in told:
        marked = row["source"] == "all"
        table.add_row(
            *[Text(str(row[name]), "bold" if marked else "") for name in COLUMNS]
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)


def _lake(settings: Settings, needs: Sequence[str]) -> duckdb.DuckDBPyConnection:
    before = under_way(settings.checkpoint_root)
    connection = connect(settings.lake_root, needs=needs, memory=settings.api.statement_memory)
    # One may have begun before the tables were looked at, and one since.
    excuse(connection, [*before, *under_way(settings.checkpoint_root)])
    forgive(connection, furthest(settings, "silver.event"), furthest(settings, "gold.attribution"))
    return connection


def _instant(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{option} {text}: write a time such as 2026-11-20T14:00") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
