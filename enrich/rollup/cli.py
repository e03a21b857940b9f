"""Command `rollup`: what of the counts was compared with the events, and counting anew."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import Any

from infra.config.settings import Settings
from infra.config.time_args import instant, instant_or_none
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.priority import stand_back
from infra.process.table_output import add_output_option, print_rows

_NICE = 10
"""The live jobs go first."""

_COLUMNS = ("hour", "checked_at", "events", "missing", "recounted", "unmended")
_CHECKS = """
SELECT hour, checked_at, events, missing, recounted, unmended FROM ops.rollup_check
WHERE ($since IS NULL OR hour >= $since) AND ($until IS NULL OR hour < $until)
  AND ($all OR missing > 0 OR unmended > 0)
ORDER BY hour DESC, checked_at DESC
"""
_WAITING = """
SELECT count(DISTINCT r.hour) FROM ops.recount r LEFT JOIN (
  SELECT hour, max(checked_at) AS checked_at FROM ops.rollup_check GROUP BY hour
) c ON c.hour = r.hour
WHERE c.checked_at IS NULL OR c.checked_at <= r.asked_at
"""


def build(subparsers: Any) -> None:
    """Add `rollup` to the command."""
    parser = subparsers.add_parser(
        "rollup",
        help="counts: what was compared with the events; count anew",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="checks    hours of arrivals whose counts differed from the events "
        "(--all: every hour compared)\n"
        "recount   count anew what arrived in a span, as after a reparse or an erasure",
    )
    parser.add_argument("what", choices=("checks", "recount"))
    parser.add_argument("--since", help="arrived since: 2026-11-20T00:00:00Z")
    parser.add_argument("--until", help="arrived before")
    parser.add_argument("--all", action="store_true", help="checks: also hours that were right")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rollup`: 0, or 1 when hours differ that cannot be counted anew."""
    recount = _recount(args, settings) if args.what == "recount" else _checks(args, settings)
    columns = _COLUMNS if args.what == "checks" else tuple(recount[0])
    print_rows(recount, args.output, columns)
    if not recount:
        nothing = "no hour was compared" if args.all else "no hour that was compared differed"
        print(nothing, file=sys.stderr)
    return 1 if any(row["unmended"] for row in recount) else 0


def _checks(args: argparse.Namespace, settings: Settings) -> list[dict[str, Any]]:
    # The engine is loaded only by what asks it.
    from infra.delta.duckdb_views import AskedViews

    since, until = instant_or_none("--since", args.since), instant_or_none("--until", args.until)
    with AskedViews(settings.lake_root, needs=("ops.rollup_check",)) as views:
        bounds = {"since": since, "until": until, "all": args.all}
        rows = views.execute(_CHECKS, bounds).fetchall()
        # A lake of an earlier release has no such table until a driver ran.
        asked_anew = not views.lacking(["ops.recount"])
        (wait,) = (views.execute(_WAITING).fetchone() if asked_anew else None) or (0,)
        if wait:
            print(f"to be counted anew, as events were changed: {wait} hours", file=sys.stderr)
    return [dict(zip(_COLUMNS, map(_cell, row), strict=True)) for row in rows]


def _cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _recount(args: argparse.Namespace, settings: Settings) -> list[dict[str, Any]]:
    if args.since is None or args.until is None:
        raise Usage("rollup recount: name the span, --since and --until")
    since, until = instant("--since", args.since), instant("--until", args.until)
    if since >= until:
        raise Usage(f"--since {args.since}: not before --until {args.until}")

    from enrich.rollup.reconcile import recount_hours
    from infra.delta.duckdb_views import require_lake
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    require_lake(settings.lake_root)
    stand_back(_NICE)
    spark = session(settings, "headgate rollup")
    try:
        recount = recount_hours(Lake(spark, settings).ensure(), since, until)
    finally:
        spark.stop()
    lines = {
        "hours": recount.hours,
        "missing": recount.missing,
        "recounted": len(recount.recounted),
        "unmended": recount.unmended,
    }
    _audit(settings, {"since": args.since, "until": args.until, **lines})
    return [lines]


def _audit(settings: Settings, detail: dict[str, Any]) -> None:
    from infra.streaming.outbox import put_row

    instant = datetime.now(UTC)
    row = {
        "at": instant.isoformat(),
        "who": acting_user(),
        "act": "rollup.recount",
        "target": "gold.rollup",
        "detail": json.dumps(detail),
        "outcome": "ok",
    }
    put_row(settings.home.absolute() / "spool" / "audit", f"rollup-{instant:%Y%m%dT%H%M%S%f}", row)
