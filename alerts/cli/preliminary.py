"""`headgate alerts tell-early` and `verify`: preliminary alerts, and that each has its answer."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_rows


def build(verbs: Any) -> None:
    """Register the verbs with those of `alerts`."""
    telling = verbs.add_parser(
        "tell-early", help="send preliminary alerts as events come, until stopped ('up' does this)"
    )
    telling.set_defaults(run=_tell_early)

    verified = verbs.add_parser(
        "verify", help="has each preliminary alert on the topic its one answer? exit code 1: no"
    )
    add_output_option(verified)
    verified.set_defaults(run=_verify)


def _tell_early(args: argparse.Namespace, settings: Settings) -> int:
    from alerts.preliminary.consumer_lane import run_lane

    _require(settings)
    if settings.alerts.preliminary_by != "lane":
        raise Usage("alerts.preliminary_by is batch: job ingest sends them; set it to lane")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Python calls a handler in the middle of whatever runs, so it only sets a flag.
        signal.signal(number, lambda *_: stop.set())
    run_lane(settings, stop)
    return 0


def _require(settings: Settings) -> None:
    if not settings.kafka.preliminary_topic:
        raise Usage("there are no preliminary alerts; name a topic in kafka.preliminary_topic")


def _verify(args: argparse.Namespace, settings: Settings) -> int:
    from alerts.preliminary.topic_check import check_topic
    from infra.kafka.client import require_broker

    _require(settings)
    require_broker(settings.kafka)
    check = check_topic(settings)
    print_rows(check.wrong, args.output, ("alert_id", "problem"))
    print(
        f"{check.alerts} preliminary alerts, {check.answered} answers; {len(check.waiting)} wait, "
        f"{check.late} of them too long",
        file=sys.stderr,
    )
    # So that a monitor can ask by exit code alone.
    return 1 if check.wrong else 0
