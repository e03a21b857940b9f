"""`headgate demo`: broker, driver and API on this machine, and a story in the logs.

The parts are processes of their own, as in earnest; the alerts shown are read
by a consumer from the topic, not from our tables.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from alerts.delivery.platform_alert import RULE as PLATFORM_RULE
from alerts.delivery.topic_listener import Listener, TopicMessage
from api.console.session import new_link
from api.services.console.demo_story import begin_story
from api.serving import base_url
from headgate.demo.check import DemoCounts, demo_counts
from infra.config.number_args import factor, whole
from infra.config.settings import Settings, load
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics, require_free
from infra.process import jdk
from infra.process.subprocesses import PlatformProcess
from infra.runtime.machine_checks import check_disk, check_memory
from infra.spark.session import project_root
from ingest.replay import replay

STORY = project_root() / "samples" / "demo"
SETTLE_SECONDS = 300.0
"""Longest wait, after the last line was sent, for all of it to be through."""
_QUIET_SECONDS = 8.0
"""All is through when the numbers agree and have not moved for this long."""


def build(commands: Any) -> None:
    """Register `demo`."""
    demo = commands.add_parser("demo", help="everything on one machine, with a story in the logs")
    demo.add_argument("--once", action="store_true", help="end when all is through; prints JSON")
    demo.add_argument("--speed", type=factor, default=1.0, help="shorten the gaps by this factor")
    demo.add_argument("--keep", action="store_true", help="go on with the lake of the last run")
    demo.add_argument(
        "--kafka-port",
        type=whole(1, 65_535),
        default=9092,
        help="port of its broker (default: 9092)",
    )
    demo.add_argument(
        "--api-port", type=whole(1, 65_535), default=8765, help="port of its API (default: 8765)"
    )
    demo.set_defaults(run=run)


@dataclass
class Demo:
    """One run: its processes and what was seen."""

    settings: Settings
    config: Path
    speed: float
    once: bool
    began: float = field(default_factory=time.monotonic)
    first_alert: float | None = None
    heard: list[TopicMessage] = field(default_factory=list)
    parts: list[PlatformProcess] = field(default_factory=list)

    def stage(self, text: str) -> None:
        """One line for a stage that has come up."""
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", file=sys.stderr, flush=True)

    def on_alert(self, message: TopicMessage) -> None:
        """An alert arrived on the topic; one about a slow job is shown, and not of the story."""
        self.stage(message.line())
        if message.body["rule"]["id"] == PLATFORM_RULE:
            return
        if self.first_alert is None:
            self.first_alert = time.monotonic() - self.began
        self.heard.append(message)
        if words := correction(message.body):
            self.stage(f"      {words}")


def correction(body: dict[str, Any]) -> str | None:
    """What a revision corrects, in words for who watches; None where it corrects nothing."""
    holder = body.get("attribution") or {}
    before = holder.get("previous") or {}
    if body["reason"] != "attribution" or not before:
        return None
    first, now = (each.get("hostname") or each.get("mac") or "nobody" for each in (before, holder))
    # A host name stands in a log as its device sent it.
    words = (
        f"corrected: a DHCP line came late; {holder.get('ip')} was not {first}'s then, but {now}'s"
    )
    return "".join(c if c.isprintable() else "?" for c in words)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Start everything, replay, show what happens, and end it all again."""
    _require(arguments, settings)
    home = (arguments.home or settings.home / "demo").absolute()
    if not arguments.keep:
        _clear(home)
    home.mkdir(parents=True, exist_ok=True)
    (home / "demo").touch()
    config = STORY / "headgate.toml"
    settings = load(
        config,
        home=home,
        kafka={"bootstrap": f"127.0.0.1:{arguments.kafka_port}"},
        api={"port": arguments.api_port},
    )
    demo = Demo(settings, config, arguments.speed, arguments.once)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _run(demo, arguments.kafka_port)
    except KeyboardInterrupt:
        demo.stage("stopping ...")
        # As a shell tells of SIGINT, 128 and 2: with `--once`, an end by hand is no result.
        return 0 if not arguments.once else 130


def _interrupt(*_: object) -> None:
    """End in order, once: a second Ctrl-C would leave processes behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _require(arguments: argparse.Namespace, settings: Settings) -> None:
    if not STORY.is_dir():
        raise Fatal(f"{STORY} is not there: this installation is not whole; install headgate again")
    jdk.require_java()
    for finding in (check_memory(), check_disk(settings.home)):
        if finding.remedy:
            raise Fatal(f"{finding.what}: {finding.found}; {finding.remedy}")
    require_free(arguments.kafka_port, "Kafka", "--kafka-port")
    require_free(arguments.api_port, "the API", "--api-port")


def _clear(home: Path) -> None:
    """Remove the last run's folder, and only a folder that a demo made."""
    if not home.exists() or not any(home.iterdir()):
        return
    if not (home / "demo").is_file():  # a folder of this name is a demo's home, not its mark
        raise Fatal(f"{home} was not made by a demo; remove it yourself or choose another --home")
    shutil.rmtree(home)


def _run(demo: Demo, kafka_port: int) -> int:
    with ExitStack() as stack:
        broker = Broker(demo.settings.home / "kafka", kafka_port)
        # Before it starts, so that one which fails halfway is ended too. A stack ends in reverse:
        # the broker goes last, when nothing is written to it any more.
        stack.callback(broker.stop)
        broker.start()
        demo.stage(f"Kafka broker at {broker.address}")
        ensure_topics(demo.settings)
        _part(demo, stack, "driver", "up")
        _part(demo, stack, "api", "api")
        # Before the replay: it takes the time of the first alert.
        stack.enter_context(Listener(demo.settings, demo.on_alert))
        _await_driver(demo)
        if not demo.once:
            link = f"{base_url(demo.settings)}{new_link(demo.settings)}"
            demo.stage(f"console {link}  (signs in once; the first page tells the story)")
        sent = _replay(demo)
        demo.stage(f"replay through: {sent['messages']} messages sent")
        if not demo.once:
            _stay(demo)
        result = _settle(demo, sent["messages"])
    print(json.dumps(result.numbers), flush=True)
    for complaint in result.complaints:
        print(f"headgate: {complaint}", file=sys.stderr)
    return 1 if result.complaints else 0


def _part(demo: Demo, stack: ExitStack, name: str, command: str) -> None:
    """A part of the platform as a process of its own, whose words are shown."""

    def show(line: str) -> None:
        if line.startswith(("spark:", "tables:", "job ", "api:", "headgate:")):
            demo.stage(line)

    part = PlatformProcess(name, (command,), demo.settings, config=demo.config, on_line=show)
    demo.parts.append(part)
    stack.callback(part.stop)


def _await_driver(demo: Demo, seconds: float = 180.0) -> None:
    """Wait until the tables are there and job ingest takes part."""
    limit = time.monotonic() + seconds
    # Spark makes the folder of its offsets as a query starts, before the first batch.
    seen = demo.settings.checkpoint_root / "ingest" / "spark" / "offsets"
    while not seen.is_dir():
        _alive(demo)
        if time.monotonic() > limit:
            raise Fatal(
                f"the driver did not start within {seconds:.0f} s; see {demo.settings.home}"
            )
        time.sleep(0.2)


def _alive(demo: Demo) -> None:
    for part in demo.parts:
        if part.ended is not None:
            raise Fatal(f"the {part.name} ended ({part.ended}): {part.last_words()}")


def _replay(demo: Demo) -> dict[str, int]:
    """Send the story; returns what the broker acknowledged, by topic and in all."""
    demo.stage(f"replaying {STORY.name} at speed {demo.speed:g}")
    plan = replay.load_plan(STORY / "plan.toml")
    begin_story(demo.settings, STORY / "story.toml", demo.speed)
    sent = replay.run(plan, demo.settings, speed=demo.speed)
    if sent.failed:
        raise Fatal(f"{len(sent.failed)} messages were not taken: {sent.failed[0]}")
    return {"messages": sent.total}


def _settle(demo: Demo, sent: int) -> DemoCounts:
    """Wait until all that was sent is through and the numbers rest; then count."""
    limit = time.monotonic() + SETTLE_SECONDS
    quiet_since = time.monotonic()
    last: dict[str, Any] = {}
    sent_at = time.time()
    while True:
        _alive(demo)
        now = demo_counts(demo.settings, sent, demo.heard, demo.first_alert, sent_at)
        if now.moving != last:
            last, quiet_since = now.moving, time.monotonic()
        rested = time.monotonic() - quiet_since > _QUIET_SECONDS
        # A complaint may go away while counts catch up; only the limit makes it a result.
        if rested and now.through and not now.complaints:
            return now
        if time.monotonic() > limit:
            slow = f"not all was through {SETTLE_SECONDS:.0f} s after the last message was sent"
            return replace(now, complaints=(*now.complaints, slow))
        time.sleep(1.0)


def _stay(demo: Demo) -> NoReturn:
    """Say where to look next and wait for Ctrl-C."""
    url = base_url(demo.settings)
    home = f"--home {os.path.relpath(demo.settings.home)}"
    token = demo.settings.home / "api.token"
    moment = datetime.now(UTC)
    now, day = moment.isoformat(timespec="seconds"), f"{moment:%Y-%m-%d}"
    print(
        f"""
Where to look next (Ctrl-C ends everything):
  console     {url}{new_link(demo.settings)}  (signs in once, within an hour; then {url}/)
  API         {url}/api/v1/openapi.json
  token       {token.read_text("utf-8").strip() if token.exists() else "none yet"}
  alerts      curl -s -H "Authorization: Bearer $(cat {os.path.relpath(token)})" {url}/api/v1/alerts
  who was it  .venv/bin/headgate {home} lease 10.20.30.117 --at {now}
  ask         .venv/bin/headgate {home} sql "SELECT source, count(*) FROM silver.events GROUP BY 1"
  completeness  .venv/bin/headgate {home} ledger
  report      .venv/bin/headgate {home} report run daily --interval {day}
  notebook    notebooks/01_tour.ipynb
""",
        file=sys.stderr,
        flush=True,
    )
    while True:
        _alive(demo)
        time.sleep(1.0)
