"""`headgate webhooks`: what waits for them, what they never took, and the process that delivers."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from alerts.delivery.webhook_queue import hook_named, queue_file
from infra.config.settings import Settings, WebhookSettings
from infra.errors import Fatal, Retryable, Usage
from infra.process.clock import clock
from infra.process.table_output import add_output_option, print_rows
from infra.storage.file_lock import ExclusiveLock, Taken

if TYPE_CHECKING:
    from alerts.delivery.webhook_queue import Queue, WaitingWebhook

IDLE = 0.5
PAGE = 1_000
_REST = 30.0
"""Seconds until the topic is read again after a failure of the broker."""


def build(subparsers: Any) -> None:
    """Register the command with the command line's subparsers."""
    webhooks = subparsers.add_parser("webhooks", help="alerts that wait for webhooks")
    verbs = webhooks.add_subparsers(dest="verb", required=True)

    listed = verbs.add_parser("list", help="what waits, and what was given up after a day")
    listed.add_argument("--dead", action="store_true", help="only what was given up")
    add_output_option(listed)
    listed.set_defaults(run=list_waiting)

    retried = verbs.add_parser("retry", help="give what was given up another day")
    retried.add_argument("--hook", metavar="NAME", help="of this hook only")
    retried.set_defaults(run=retry)

    tested = verbs.add_parser("test", help="send a made-up alert to a hook, in its form")
    tested.add_argument("hook", metavar="NAME", help="name of the hook")
    tested.set_defaults(run=send_sample)

    delivering = verbs.add_parser("deliver", help="deliver until stopped ('up' does this)")
    delivering.set_defaults(run=deliver)


def list_waiting(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate webhooks list`: exit code 1 when something was given up."""
    from alerts.delivery.webhook_queue import Queue

    rows = []
    # Without the file nothing ever waited; looking must not make it.
    if queue_file(settings).exists():
        queue = Queue(queue_file(settings))
        rows = [_shown(row) for row in queue.listed()]
        queue.close()
    dead = [row for row in rows if row["state"] == "dead"]
    print_rows(dead if args.dead else rows, args.output)
    if not settings.webhooks:
        print("the settings have no webhook ([[webhooks]])", file=sys.stderr)
    elif not (dead if args.dead else rows):
        print("nothing was given up" if args.dead else "no delivery waits", file=sys.stderr)
    # So that a monitor can ask by exit code alone.
    return 1 if dead else 0


def retry(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate webhooks retry`."""
    from alerts.delivery.webhook_queue import Queue

    if args.hook is not None:
        hook_named(settings, args.hook)
    count = 0
    if queue_file(settings).exists():
        queue = Queue(queue_file(settings))
        count = queue.again(args.hook, time.time())
        queue.close()
    print(f"{count} will be tried again", file=sys.stderr)
    return 0


def send_sample(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate webhooks test NAME`: exit code 1 when the hook did not take it."""
    from alerts.delivery.webhook import Undelivered
    from alerts.delivery.webhook_try import try_hook

    try:
        hook = try_hook(settings, args.hook)
    except Undelivered as error:
        print(f"webhook {args.hook}: {error}", file=sys.stderr)
        return 1
    print(f"webhook {hook.name} took a sample as {hook.form}", file=sys.stderr)
    return 0


def deliver(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate webhooks deliver`: exit code 1 when a thread has died; 'up' starts it again."""
    from alerts.delivery.webhook_try import check_hook

    if not settings.webhooks:
        raise Usage("there are no webhooks; write [[webhooks]] into the settings")
    for hook in settings.webhooks:
        # All hooks before the first delivery: a wrong setting is then said at once, not by one
        # thread.
        check_hook(settings, hook)
        _warn(settings, hook)
    alone = _alone(settings)
    stop = threading.Event()
    for hook in settings.webhooks:
        # Daemons: a post that hangs must not keep the process from ending.
        threading.Thread(target=_hold, args=(settings, hook, stop), daemon=True).start()
    try:
        listen(settings, stop)
    finally:
        stop.set()
        alone.release()
    return 1


def _warn(settings: Settings, hook: WebhookSettings) -> None:
    """Say which rules of a filter are not there; a rule that was removed must not stop the rest."""
    from alerts.delivery.webhook_try import rules_problem

    try:
        unknown = rules_problem(settings, hook)
    except Fatal:
        return  # no rules were compiled yet
    if unknown:
        print(unknown, file=sys.stderr, flush=True)


def delivering(settings: Settings) -> bool:
    """Whether a process delivers now, and so reads the topic."""
    try:
        _alone(settings).release()
    except Taken:
        return True
    return False


def _alone(settings: Settings) -> ExclusiveLock:
    """The right to deliver: two processes would post each revision twice."""
    return ExclusiveLock(
        queue_file(settings).with_suffix(".lock"),
        lambda holder: (
            f"webhooks are delivered already, by process {holder}: the driver of job ingest does it"
        ),
    )


def _hold(settings: Settings, hook: WebhookSettings, stop: threading.Event) -> None:
    """Deliver to one hook; what ends this ends all, for nobody would see one hook fall silent."""
    try:
        if hook.form == "mail":
            mail_off(settings, hook, stop)
        else:
            work_off(settings, hook, stop)
    finally:
        stop.set()


def listen(settings: Settings, stop: threading.Event) -> None:
    """Put what comes on the topic before the hooks that want its level, until `stop`."""
    from confluent_kafka import KafkaException

    from alerts.delivery.consumer import AlertConsumer
    from alerts.delivery.webhook_queue import Queue
    from infra.kafka.auth import denied, lacking
    from infra.kafka.client import client_options

    # Makes the tables before the consumer writes into the same file.
    Queue(queue_file(settings)).close()
    while not stop.is_set():
        try:
            with AlertConsumer(
                client_options(settings.kafka),
                queue_file(settings),
                topic=settings.kafka.alerts_topic,
                api=TableFeed(settings),
                # A hook that is new is not sent the alerts of the past.
                begin="now",
            ) as alerts:
                alerts.run(_putter(settings), stop)
        except (KafkaException, Retryable, OSError) as error:
            if isinstance(error, KafkaException) and denied(error.args[0]):
                read = f"read the topic {settings.kafka.alerts_topic}"
                raise lacking(settings.kafka, read) from None
            print(f"webhooks: {error}; again in {_REST:.0f} s", file=sys.stderr, flush=True)
            stop.wait(_REST)


def _putter(settings: Settings) -> Any:
    from alerts.delivery.webhook_forms import FIRST_ONLY, webhook_wants
    from alerts.delivery.webhook_queue import enqueue, is_new
    from alerts.domain.alert_body import damage

    def put(revision: Any, db: Any) -> None:
        body = revision.body
        if sentence := damage(body, revision.alert_id, revision.revision):
            print(f"webhooks: {sentence}; no hook gets it", file=sys.stderr, flush=True)
        is_open = body.get("state") != "closed"
        hooks = [
            hook.name
            for hook in settings.webhooks
            if webhook_wants(hook, body)
            and (
                hook.form not in FIRST_ONLY
                or (is_open and is_new(db, hook.name, revision.alert_id))
            )
        ]
        key = (revision.alert_id, revision.revision)
        # Into the file in which the consumer keeps its place: a crash leaves both or neither.
        enqueue(db, hooks, key, str(body.get("title")), msgspec.json.encode(body), clock.time())

    return put


def work_off(settings: Settings, hook: WebhookSettings, stop: threading.Event) -> None:
    """Deliver to one hook what waits for it, until `stop`."""
    from alerts.delivery.webhook import Undelivered, post
    from alerts.delivery.webhook_queue import Queue

    queue = Queue(queue_file(settings))
    while not stop.is_set():
        due = queue.due(hook.name, clock.time())
        if due is None:
            stop.wait(IDLE)
            continue
        try:
            post(hook, due.key, due.body, int(clock.time()), settings.api.console_url)
        except Undelivered as error:
            _failed(queue, hook, due, error)
            stop.wait(IDLE)  # one that fails is not hammered with all that waits for it
        else:
            queue.done(due)
    queue.close()


def mail_off(settings: Settings, hook: WebhookSettings, stop: threading.Event) -> None:
    """Send by mail what waits for it, until `stop`: those that came within some seconds in one."""
    from alerts.delivery.mail_route import post_mail
    from alerts.delivery.webhook_queue import Queue

    queue = Queue(queue_file(settings))
    while not stop.is_set():
        now = clock.time()
        waiting = queue.batch(hook.name, now, hook.batch_most)
        # The oldest says when: a stream of alerts must not put the mail off for good.
        full = len(waiting) >= hook.batch_most
        if not waiting or not (full or now - waiting[0].queued_at >= hook.batch_seconds):
            stop.wait(IDLE)
            continue
        try:
            problem = post_mail(hook, settings.reports.mail, waiting, settings.api.console_url)
        except (Retryable, Usage) as error:
            for each in waiting:
                _failed(queue, hook, each, error)
            stop.wait(IDLE)
        else:
            if problem:
                print(f"webhook {hook.name}: {problem}", file=sys.stderr, flush=True)
            for each in waiting:
                queue.done(each)
    queue.close()


def _failed(queue: Queue, hook: WebhookSettings, due: WaitingWebhook, error: Exception) -> None:
    if queue.failed(due, str(error), clock.time()):
        print(
            f"webhook {hook.name}: gave up {due.key} after a day: {error}; "
            "'headgate webhooks list --dead' shows it",
            file=sys.stderr,
            flush=True,
        )


class TableFeed:
    """The feed straight from gold.alert, for when the topic has lost what we had not read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def feed(self, after: str) -> Iterator[Any]:
        """All revisions behind a place, as `alerts.delivery.consumer.Api.feed`."""
        from alerts.delivery.consumer import AlertRevision
        from alerts.delivery.feed import FEED_SQL, FeedCursor, cursor_place, sequence_of
        from alerts.domain.alert_body import readable_body
        from infra.delta.duckdb_views import connect

        place = cursor_place(after, "")
        connection = connect(self._settings.lake_root, needs=("gold.alert",), only=())
        try:
            # By pages: sorted as a whole, what a long outage left would not fit into memory.
            while rows := connection.execute(FEED_SQL, {**asdict(place), "most": PAGE}).fetchall():
                for sequence, alert_id, revision, body in rows:
                    place = FeedCursor(sequence, alert_id, revision)
                    decoded = readable_body(body)
                    yield AlertRevision(alert_id, revision, sequence_of(sequence), decoded)
        finally:
            connection.close()


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    def at(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

    return row | {
        "queued_at": at(row["queued_at"]),
        "next_at": at(row["next_at"]) if row["state"] == "waiting" else None,
    }
