"""Replays files into Kafka as if their lines were written now.

`fire` sends a schedule (`ingest.replay.schedule`), each line's time rewritten to the moment
of sending; `run` does so with the configured broker.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from confluent_kafka import KafkaError, Message
from rich.console import Console
from rich.progress import Progress

from infra.config.number_args import factor
from infra.config.settings import Settings
from infra.errors import Usage
from infra.kafka.client import ensure_topics, produce, producer, require_broker, topic_of
from ingest.parsing.source import ParseSettings, Unreadable, lookup
from ingest.replay.schedule import (
    MODE,
    SENDER,
    ZONE,
    Plan,
    ReplayHeader,
    Shot,
    load_plan,
    plan_of_files,
    schedule,
)

__all__ = [
    "Clock",
    "KafkaOut",
    "Plan",
    "Sent",
    "Shot",
    "WallClock",
    "build",
    "fire",
    "load_plan",
    "plan_of_files",
    "run",
    "schedule",
]

Produce = Callable[[str, bytes, list[ReplayHeader]], None]
"""Takes a message for a topic: `produce(topic, raw, headers)`."""

FLUSH_SECONDS = 30.0


@dataclass
class Sent:
    """What came of it."""

    messages: dict[str, int] = field(default_factory=dict)
    """Messages handed to the broker, by topic."""
    bytes: int = 0
    refused: list[str] = field(default_factory=list)
    """A sentence for each line that was not sent."""
    failed: list[str] = field(default_factory=list)
    """A sentence for each message the broker did not take."""

    @property
    def total(self) -> int:
        """Messages the broker has acknowledged."""
        return sum(self.messages.values()) - len(self.failed)


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> datetime: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """This moment, UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def fire(
    shots: Sequence[Shot],
    produce: Produce,
    clock: Clock,
    settings: Settings,
    *,
    mode: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
    step: Callable[[int], None] = lambda _: None,
) -> Sent:
    """Send each shot at its time, its line's time rewritten to it, or to `event_at` if late.

    Begins on a whole second, so that formats without fractions keep their order to lines
    that have them. A sender that falls behind moves what follows: gaps stay as planned.
    `tell` gets a sentence for each line that is not sent, `step` the number of lines done.
    """
    sent = Sent()
    zones = ParseSettings.of(settings)
    start = clock.now()
    if start.microsecond:
        start = start.replace(microsecond=0) + timedelta(seconds=1)
    for due, together in _batches(shots):
        behind = (clock.now() - start).total_seconds() - due
        if behind < 0:
            clock.sleep(-behind)
        # Under a second is the machine's jitter; moving the plan for it would let it drift.
        elif behind > 1:
            start += timedelta(seconds=behind)
        for shot in together:
            message = _message(shot, start, zones, mode)
            # The broker would refuse it, only later and with less to say.
            if len(message[0]) > settings.kafka.max_message_bytes:
                sent.refused.append(_too_large(shot, len(message[0]), settings))
                tell(sent.refused[-1])
                continue
            topic = topic_of(shot.source, settings.kafka)
            produce(topic, *message)
            sent.messages[topic] = sent.messages.get(topic, 0) + 1
            sent.bytes += len(message[0])
        step(len(together))
    return sent


def _batches(shots: Sequence[Shot]) -> Iterator[tuple[float, list[Shot]]]:
    """Shots of the same moment together."""
    together: list[Shot] = []
    for shot in shots:
        if together and shot.at != together[0].at:
            yield together[0].at, together
            together = []
        together.append(shot)
    if together:
        yield together[0].at, together


def _message(
    shot: Shot, start: datetime, zones: ParseSettings, mode: str | None
) -> tuple[bytes, list[ReplayHeader]]:
    headers = list(shot.headers)
    zone = shot.zone
    raw = shot.raw
    if not shot.as_is:
        zone = zone or zones.zone(shot.source).key
        try:
            when = start + timedelta(seconds=shot.event_at)
            raw = lookup(shot.source).restamp(raw, when, ZoneInfo(zone))
        except Unreadable:
            raw = shot.raw  # it becomes a dead letter, which is for ingest to say
    if zone:
        headers.append((ZONE, zone.encode()))
    if mode:
        headers.append((MODE, mode.encode()))
    return raw, headers


def _too_large(shot: Shot, size: int, settings: Settings) -> str:
    return (
        f"{shot.origin}: {size:,} bytes, more than the {settings.kafka.max_message_bytes:,} that "
        "kafka.max_message_bytes allows; not sent"
    )


class KafkaOut:
    """Hands messages to the broker and remembers which it did not take."""

    def __init__(self, settings: Settings) -> None:
        self._producer = producer(settings.kafka, **{"compression.type": "lz4"})
        self.failed: list[str] = []

    def __call__(self, topic: str, raw: bytes, headers: list[ReplayHeader]) -> None:
        produce(self._producer, topic, raw, headers=headers, on_delivery=self._done)

    def finish(self) -> list[str]:
        """Wait for the broker; gives back a sentence for each message it did not take."""
        if self._producer.flush(FLUSH_SECONDS):
            # What is left is given up, so that each message gets its report and none is lost
            # unseen.
            self._producer.purge()
            self._producer.flush(1)
        return self.failed

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sender = dict(message.headers() or []).get(SENDER)
            line = sender.decode("utf-8", "replace") if isinstance(sender, bytes) else "a message"
            self.failed.append(f"{line}: not taken by {message.topic()}: {error.str()}")


def run(
    plan: Plan,
    settings: Settings,
    *,
    speed: float = 1.0,
    mode: str | None = None,
    clock: Clock | None = None,
) -> Sent:
    """Replay a plan into the configured broker and wait until it has everything.

    Makes missing topics. Raises `Retryable` when no broker answers.
    """
    require_broker(settings.kafka)
    shots = schedule(plan, speed, ParseSettings.of(settings))
    # After the plan was read: one that is wrong makes no topics.
    ensure_topics(settings, plan.sources, jobs=())
    out = KafkaOut(settings)
    with _progress(len(shots)) as step:
        sent = fire(shots, out, clock or WallClock(), settings, mode=mode, tell=_say, step=step)
    sent.failed = out.finish()
    return sent


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replay", total=total)
        yield lambda lines: bar.advance(task, lines)


# -- command -----------------------------------------------------------------------------------


def build(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `replay` to the command."""
    parser = subparsers.add_parser(
        "replay",
        help="send files to Kafka as if their lines were written now",
        description="Sends the lines of files to Kafka with the gaps that their own times have, "
        "each line's time rewritten to the moment it is sent.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="log files, also .gz")
    parser.add_argument("--source", help="what they are: zeek:conn, sshd, aws_cloudtrail, ...")
    parser.add_argument(
        "--plan", type=Path, help="a replay plan instead of files (docs/tutorials/demo.md)"
    )
    parser.add_argument("--tz", help="zone of times that name none; else that of the settings")
    parser.add_argument("--speed", type=factor, default=1.0, help="divides the gaps; inf: no gaps")
    times = parser.add_mutually_exclusive_group()
    times.add_argument("--now", action="store_true", help="rewrite times to now (the default)")
    times.add_argument("--as-is", action="store_true", help="leave the lines as they are")
    parser.add_argument(
        "--mode", choices=("live", "replay"), default="live", help="how the events are marked"
    )
    parser.set_defaults(run=replay)


def replay(args: argparse.Namespace, settings: Settings) -> int:
    """The command `replay`: 0 if the broker has every line, else 1."""
    if bool(args.files) == bool(args.plan):
        raise Usage("replay takes files with --source, or --plan PLAN")
    if args.files and not args.source:
        raise Usage(f"--source is missing: what is {args.files[0]}?")
    if args.plan and (args.source or args.tz or args.as_is):
        raise Usage("--source, --tz and --as-is go with files; a plan says them for each input")
    if args.plan:
        plan = load_plan(args.plan)
    else:
        zones = ParseSettings.of(settings)
        plan = plan_of_files(args.files, args.source, args.tz, as_is=args.as_is, settings=zones)
    sent = run(plan, settings, speed=args.speed, mode="replay" if args.mode == "replay" else None)
    for topic, messages in sorted(sent.messages.items()):
        _say(f"{topic}: {messages}")
    _say(f"{sent.total} messages, {sent.bytes:,} bytes")
    for sentence in sent.failed:
        _say(sentence)
    return 1 if sent.failed or sent.refused else 0
