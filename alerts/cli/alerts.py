"""The command `headgate alerts`."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from alerts.cli import preliminary
from alerts.cli.output import since_when
from alerts.cli.triage import add_ids, ids_of, print_asked
from alerts.domain.levels import LEVELS
from alerts.domain.verdict import VERDICTS, verdict_of
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows

if TYPE_CHECKING:
    from alerts.delivery.publisher import Publisher


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
    listed.add_argument("--entity", help="MAC address, address, host or user that it names")
    listed.add_argument("--muted", action="store_true", help="also what was kept from the topic")
    listed.add_argument("--limit", type=int, default=50, help="most alerts (default: 50)")
    add_output_option(listed)
    listed.set_defaults(run=_list_alerts)

    shown = verbs.add_parser("show", help="one alert whole, and all its revisions")
    shown.add_argument("id", metavar="ID", help="alert_id, or its first characters")
    shown.add_argument("--output", choices=("text", "json"), default="text")
    shown.set_defaults(run=show_alert)

    closed = verbs.add_parser("close", help="ask that alerts be closed")
    add_ids(closed)
    closed.add_argument("--verdict", type=verdict_of, help=f"what it was: {', '.join(VERDICTS)}")
    closed.add_argument("--comment", help="why, for those who read it later")
    closed.set_defaults(run=close_alert)

    placed = verbs.add_parser(
        "published", help="up to which version gold.alert was published; set it when it was lost"
    )
    where = placed.add_mutually_exclusive_group()
    where.add_argument("--now", action="store_true", help="what is there counts as published")
    where.add_argument(
        "--up-to", type=int, metavar="VERSION", help="what is there up to it does; -1: nothing"
    )
    add_output_option(placed)
    placed.set_defaults(run=_published)
    preliminary.build(verbs)


def tail_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts tail`: one revision a line; Ctrl-C is its ordinary end."""
    from alerts.delivery.topic_listener import TopicMessage, tail

    def hear(heard: TopicMessage) -> None:
        print(json.dumps(heard.body) if args.output == "json" else heard.line(), flush=True)

    try:
        tail(settings, hear, args.begin)
    except KeyboardInterrupt:
        return 0
    return 0


def _list_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts list`: what a limit leaves out is said on stderr."""
    from alerts.delivery.reader import Wanted, newest_revisions

    if args.limit < 1:
        raise Usage(f"--limit {args.limit}: must be at least 1")
    since = since_when(args.since, datetime.now(UTC)) if args.since else None
    wanted = Wanted(tuple(args.level or ()), since, args.entity, args.limit, args.muted)
    rows, more = newest_revisions(settings, wanted)
    print_rows(rows, args.output)
    if not rows:
        limited = args.level or args.since or args.entity
        print("there is no alert like that" if limited else "there is no alert", file=sys.stderr)
    if more:
        print(f"the newest {len(rows)}; there are more (--limit)", file=sys.stderr)
    return 0


def show_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts show ID`."""
    from alerts.delivery.reader import detail

    alert_rows = detail(settings, args.id)
    if args.output == "json":
        print_document({"alert": alert_rows.body, "revisions": alert_rows.revisions}, indent=2)
        return 0
    print_document(alert_rows.body, indent=2)
    print()
    print_rows(alert_rows.revisions, "table")
    return 0


def close_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts close ID ...`: leaves requests of which job `alert` makes revisions."""
    from alerts.delivery.reader import close

    requests = close(settings, ids_of(args.ids), args.verdict, args.comment)
    print_asked("close", [request["alert_id"] for request in requests], settings)
    return 0


def _published(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts published`: the place; with an option it is set, while job `alert` rests."""
    from alerts.delivery.publisher import Publisher
    from alerts.tables import ALERT
    from infra.delta.log_reader import newest_version, oldest_version
    from infra.kafka.client import require_broker
    from infra.runtime.job_registry import resume
    from infra.streaming.job_lock import JobLock
    from infra.streaming.outbox import note_audit

    table = settings.lake_root / ALERT.path
    first, newest = oldest_version(table) - 1, newest_version(table)
    if newest < 0:
        raise Usage(f"{table}: there is no such table yet; job alert makes it (headgate up)")
    require_broker(settings.kafka)
    if not args.now and args.up_to is None:
        return _show_places(settings, Publisher(settings), newest, args.output)
    version = newest if args.now else args.up_to
    if not first <= version <= newest:
        raise Usage(f"--up-to {version}: must be from {first} to {newest}, as its log goes")
    lock = JobLock(settings.checkpoint_root / "alert", "alert")
    try:
        Publisher(settings).move(version)
    finally:
        lock.release()
    note_audit(
        settings.home.absolute() / "spool", "alerts.published", "gold.alert", {"up_to": version}
    )
    resume(settings, "alert")
    print(
        f"alerts go on behind version {version}; a driver that runs starts job alert by itself",
        file=sys.stderr,
    )
    return 0


def _show_places(settings: Settings, publisher: Publisher, newest: int, form: str) -> int:
    from alerts.delivery.publish_offset import publish_offset_file

    names = (
        "gold.alert",
        f"topic {settings.kafka.progress_topic}",
        str(publish_offset_file(settings)),
    )
    show_places = (newest, *(place and place.version for place in publisher.places()))
    rows = zip(names, show_places, strict=True)
    print_rows([{"what": name, "version": version} for name, version in rows], form)
    return 0
