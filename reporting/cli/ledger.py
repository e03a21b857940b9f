"""The command `ledger`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.config.settings import Settings
from infra.config.time_args import instant_utc
from infra.delta.duckdb_views import without_pandas
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_rows
from infra.process.text_output import printable
from reporting.cli.reader import open_lake
from reporting.ledger.completeness import (
    COLUMNS,
    TABLES,
    Completeness,
    completeness,
    hourly,
    total,
    totals,
)
from reporting.ledger.gaps import missed

_BRIEF = frozenset(
    {"hour", "source", "received", "parsed", "dead", "findings", "unaccounted", "duplicated"}
)
"""Columns that a person looks at first."""


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    ledger = subparsers.add_parser(
        "ledger", help="what was received and what became of it; exit 1 if any is unaccounted"
    )
    ledger.add_argument("--since", help="first arrival time, UTC (default: 24 hours ago)")
    ledger.add_argument("--until", help="end of arrival times (default: now)")
    ledger.add_argument("--source", help="one source")
    ledger.add_argument(
        "--by", choices=("source", "hour"), default="source", help="hour: each hour of arrival too"
    )
    add_output_option(ledger, WIDE)
    ledger.add_argument(
        "--check",
        action="store_true",
        help="compare bronze with what was read and with the broker, as runs on a schedule",
    )
    ledger.add_argument("--all", action="store_true", help="--check: not only what is new")
    ledger.add_argument(
        "--accept", metavar="REASON", help="--check: what is missing stays missing; it is kept"
    )
    ledger.set_defaults(run=run_ledger)


def run_ledger(args: argparse.Namespace, settings: Settings) -> int:
    """Print completeness by source; 1 when a record is unaccounted or a row stands twice."""
    if args.check:
        from reporting.cli.ledger_check import run_check

        return run_check(args, settings)
    if args.all or args.accept is not None:
        raise Usage("--all and --accept go with --check")
    until = _instant("--until", args.until) or datetime.now(UTC)
    since = _instant("--since", args.since) or until - timedelta(days=1)
    if since >= until:
        raise Usage(f"--since {since.isoformat()}: not before --until {until.isoformat()}")
    by_hour = args.by == "hour"
    with without_pandas():
        lake = open_lake(settings, TABLES)
        rows = (hourly if by_hour else completeness)(lake, since, until, args.source)
        gaps = missed(lake, since, until, args.source)
    sums = totals(rows) if by_hour else [total(rows)]
    _show(rows, sums, args.output, by_hour=by_hour)
    for gap in gaps:
        print(f"headgate: {printable(gap.sentence())}", file=sys.stderr)
    return 1 if any(counts.unaccounted or counts.duplicated for counts in sums) else 0


def _show(
    rows: Sequence[Completeness],
    sums: Sequence[Completeness],
    form: str,
    *,
    by_hour: bool = False,
) -> None:
    """Write the rows; the sum of all sources comes last, with `by_hour` in each hour."""
    columns = [*(["hour"] if by_hour else []), *COLUMNS]
    both = [*rows, *sums]
    if by_hour:
        both.sort(key=lambda row: (str(row.hour), row.source == "all"))
    asdicts = [
        asdict(row) | {"packs": list(row.packs), "hour": row.hour and row.hour.isoformat()}
        for row in both
    ]
    asdicts = [{name: row[name] for name in columns} for row in asdicts]
    print_rows(
        asdicts,
        form,
        columns,
        brief=[name for name in columns if name in _BRIEF],
        shown={
            "packs": lambda packs: " ".join(pack[:8] for pack in packs),
            "hour": lambda hour: str(hour)[:16],
        },
        style=lambda row: "bold" if row["source"] == "all" else "",
    )


def _instant(option: str, text: str | None) -> datetime | None:
    return None if text is None else instant_utc(option, text)
