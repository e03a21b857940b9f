"""The command `headgate alerts`."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import Any

from alerts.shown import FORMATS, print_rows, since_when
from infra.errors import Usage
from infra.settings import Settings

LEVELS = ("informational", "low", "medium", "high", "critical")


def build(subparsers: Any) -> None:
    """Register `alerts` with the command line's subparsers."""
    alerts = subparsers.add_parser("alerts", help="read alerts from the topic or the table")
    verbs = alerts.add_subparsers(dest="verb", required=True)

    tailed = verbs.add_parser("tail", help="alerts as they come on the topic, until Ctrl-C")
    tailed.add_argument(
        "--from", dest="begin", choices=("beginning", "now"), default="now", help="where to begin"
    )
    tailed.add_argument("--output", choices=("line", "json"), default="line")
    tailed.set_defaults(run=tail_alerts)

    listed = verbs.add_parser("list", help="alerts in their newest revision, newest event first")
    listed.add_argument("--level", action="append", choices=LEVELS, help="one, or several times")
    listed.add_argument("--since", help="newest event since: 2026-11-20T00:00:00Z, or 90m, 24h, 7d")
    listed.add_argument("--entity", help="MAC address, address, host or user it is about")
    listed.add_argument("--muted", action="store_true", help="also what was kept from the topic")
    listed.add_argument("--limit", type=int, default=50, help="most alerts (default: 50)")
    listed.add_argument("--output", choices=FORMATS, default="table")
    listed.set_defaults(run=list_alerts)

    shown = verbs.add_parser("show", help="one alert whole, and all its revisions")
    shown.add_argument("id", metavar="ID", help="alert_id, or its first characters")
    shown.add_argument("--output", choices=("text", "json"), default="text")
    shown.set_defaults(run=show_alert)

    closed = verbs.add_parser("close", help="ask that an alert be closed")
    closed.add_argument("id", metavar="ID", help="alert_id, or its first characters")
    closed.add_argument("--verdict", help="what it was: true_positive, false_positive, benign, ...")
    closed.add_argument("--comment", help="why, for those who read it later")
    closed.set_defaults(run=close_alert)


def tail_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts tail`: one revision a line; Ctrl-C is its ordinary end."""
    from alerts.read import tail
    from infra.topic import Heard

    def hear(heard: Heard) -> None:
        print(json.dumps(heard.body) if args.output == "json" else heard.line(), flush=True)

    try:
        tail(settings, hear, args.begin)
    except KeyboardInterrupt:
        return 0
    return 0


def list_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts list`: what a limit leaves out is said on stderr."""
    from alerts.read import Wanted, newest

    if args.limit < 1:
        raise Usage(f"--limit {args.limit}: must be at least 1")
    since = since_when(args.since, datetime.now(UTC)) if args.since else None
    wanted = Wanted(tuple(args.level or ()), since, args.entity, args.limit, args.muted)
    rows, more = newest(settings, wanted)
    print_rows(rows, args.output)
    if more:
        print(f"the newest {len(rows)}; there are more (--limit)", file=sys.stderr)
    return 0


def show_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts show ID`."""
    from alerts.read import detail

    found = detail(settings, args.id)
    if args.output == "json":
        print(json.dumps({"alert": found.body, "revisions": found.revisions}, indent=2))
        return 0
    # JSON escapes what could steer a terminal.
    print(json.dumps(found.body, indent=2))
    print()
    print_rows(found.revisions, "table")
    return 0


def close_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts close ID`: leaves a request that job `alert` makes a revision."""
    from alerts.read import close

    request = close(settings, args.id, args.verdict, args.comment)
    print(
        f"asked to close alert {request['alert_id']}; "
        "the running driver takes it within seconds, else at its next start",
        file=sys.stderr,
    )
    return 0
