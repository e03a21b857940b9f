"""The command `headgate alerts`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from alerts.cli import preliminary
from alerts.cli.output import since_when
from alerts.cli.triage import add_ids, ids_of, print_asked
from alerts.domain.levels import LEVELS
from alerts.domain.verdict import VERDICTS, verdict_of
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_document, print_rows

if TYPE_CHECKING:
    from alerts.delivery.publisher import Publisher

_BRIEF = ("event_time", "level", "state", "title", "alert_id")
"""What a person looks at first."""


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
    listed.add_argument("--rule", help="id, name or title of their rule")
    listed.add_argument("--muted", action="store_true", help="also what was kept from the topic")
    listed.add_argument("--limit", type=whole(), default=50, help="most alerts (default: 50)")
    add_output_option(listed, WIDE)
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
        "--up-to",
        type=whole(-1),
        metavar="VERSION",
        help="what is there up to it does; -1: nothing",
    )
    where.add_argument(
        "--leave-out",
        action="append",
        metavar="ALERT_ID:REVISION",
        help="let consumers do without a revision whose body is damaged (repeatable)",
    )
    add_output_option(placed)
    placed.set_defaults(run=_published)
    preliminary.build(verbs)


def tail_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts tail`: one revision a line; Ctrl-C is its ordinary end."""
    from alerts.delivery.topic_listener import TopicMessage, tail

    def hear(message: TopicMessage) -> None:
        print(json.dumps(message.body) if args.output == "json" else message.line(), flush=True)

    try:
        tail(settings, hear, args.begin)
    except KeyboardInterrupt:
        return 0
    return 0


def _list_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts list`: what a limit leaves out is said on stderr."""
    from alerts.delivery.reader import Wanted, newest_revisions
    from alerts.rulebook.rule_switch import id_of_alerts

    since = since_when(args.since, datetime.now(UTC)) if args.since else None
    rule, unknown = args.rule, None
    try:
        rule = args.rule and id_of_alerts(settings, args.rule)
    except Usage as error:
        # Alerts outlive their rules, whose ids are known still.
        unknown = error
    wanted = Wanted(tuple(args.level or ()), since, args.entity, args.limit, args.muted, rule)
    rows, more = newest_revisions(settings, wanted)
    if unknown is not None and not rows:
        raise unknown
    # In a table an alert is named as commands take it: by the first characters of its id.
    short = {"event_time": _to_seconds, "alert_id": lambda alert_id: alert_id[:8]}
    print_rows(rows, args.output, brief=_BRIEF, shown=short if args.output == "table" else {})
    if not rows:
        limited = args.level or args.since or args.entity or rule
        print("there is no alert like that" if limited else "there is no alert", file=sys.stderr)
    if more:
        print(f"the newest {len(rows)}; there are more (--limit)", file=sys.stderr)
    return 0


def _to_seconds(time: str) -> str:
    """`2026-11-20T14:05:00.123Z` as `2026-11-20T14:05:00Z`."""
    return f"{time[:19]}Z" if time.endswith("Z") else time


def show_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts show ID`."""
    from alerts.delivery.reader import detail

    alert_rows = detail(settings, args.id)
    if alert_rows.damage is not None:
        print(alert_rows.damage, file=sys.stderr)
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
    from alerts.cli.explain import asking
    from alerts.delivery.held_back import held_back, held_sentence, leave_out
    from alerts.delivery.publisher import Publisher
    from alerts.tables import ALERT
    from infra.delta.log_reader import newest_version, oldest_version
    from infra.kafka.client import require_broker
    from infra.streaming.job_lock import JobLock

    table = settings.lake_root / ALERT.path
    first, newest = oldest_version(table) - 1, newest_version(table)
    if newest < 0:
        raise Usage(f"{table}: there is no such table yet; job alert makes it (headgate up)")
    if args.leave_out:
        with asking(settings) as ask:
            leave_out(settings, ask, args.leave_out)
        _note_published(settings, {"left_out": args.leave_out})
        print("what waits behind them goes out within 30 s while job alert runs", file=sys.stderr)
        return 0
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
    _note_published(settings, {"up_to": version})
    print(
        f"alerts go on behind version {version}; a driver that runs starts job alert by itself",
        file=sys.stderr,
    )
    if sentence := held_sentence(held_back(settings)):
        print(sentence, file=sys.stderr)
    return 0


def _note_published(settings: Settings, detail: dict[str, object]) -> None:
    from infra.runtime.job_registry import resume
    from infra.runtime.job_status import at_work, read_status
    from infra.streaming.outbox import note_audit

    note_audit(settings.home.absolute() / "spool", "alerts.published", "gold.alert", detail)
    status = read_status(settings).get("alert")
    # Of a job that runs nobody takes the request, and it would start one that fails later.
    if status is None or not at_work(status, time.time()):
        resume(settings, "alert")


def _show_places(settings: Settings, publisher: Publisher, newest: int, form: str) -> int:
    from alerts.delivery.held_back import held_sentence
    from alerts.delivery.publish_offset import publish_offset_file

    names = (
        "gold.alert",
        f"topic {settings.kafka.progress_topic}",
        str(publish_offset_file(settings)),
    )
    noted, kept = publisher.places()
    show_places = (newest, *(place and place.version for place in (noted, kept)))
    rows = list(zip(names, show_places, strict=True))
    offset = noted or kept
    for alert_id, hold in sorted(offset.held.items()) if offset else ():
        name = f"alert {alert_id}, revisions {hold.first} to {hold.last}: held back since"
        rows.append((name, hold.version))
        if sentence := held_sentence({alert_id: hold}):
            print(sentence, file=sys.stderr)
    print_rows([{"what": name, "version": version} for name, version in rows], form)
    return 0
