"""The whole platform on this machine for a benchmark: broker, driver with all jobs, a listener."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from alerts.delivery.topic_listener import Listener, TopicMessage
from bench.lines import Sent
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import HeadgateError
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from infra.runtime import job_status

JOBS = ("ingest", "alert")
NORMAL_SECONDS = 15.0
"""A job whose lag is below this keeps up; without a load it is a few seconds."""
SLOTS = 20
"""A second is sent in so many parts, so that the load is even."""


@dataclass
class Whole:
    """A running platform: `send` lines, and see in `heard` what came on the topic, in order."""

    settings: Settings
    driver: PlatformProcess
    heard: list[TopicMessage] = field(default_factory=list)
    sent: int = 0
    failed: list[str] = field(default_factory=list)
    behind: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._client = producer(self.settings.kafka)

    def hear(self, heard: TopicMessage) -> None:
        """Note what came."""
        with self.lock:
            self.heard.append(heard)

    def first_of(self, rule: str) -> list[TopicMessage]:
        """First revisions of a rule's alerts (by its title), in the order of the topic."""
        with self.lock:
            heard = list(self.heard)
        return [h for h in heard if h.body["revision"] == 1 and h.body["rule"]["name"] == rule]

    def send(self, lines: Iterable[Sent]) -> None:
        """Send lines now."""
        for source, raw in lines:
            self._client.produce(
                topic_of(source, self.settings.kafka), raw, on_delivery=self._delivered
            )
            self._client.poll(0)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.sent += 1
        else:
            self.failed.append(str(error))

    def pace(self, seconds: float, slot: Callable[[int], Iterable[Sent]]) -> None:
        """Send `slot(n)` at each twentieth of a second, for so long."""
        began = time.monotonic()
        for number in range(round(seconds * SLOTS)):
            late = time.monotonic() - began - number / SLOTS
            self.behind = max(self.behind, late)
            if late < 0:
                time.sleep(-late)
            self.send(slot(number))
            self.alive()
        self.flush()

    def flush(self) -> None:
        """Wait until the broker has all; raises when it did not take something."""
        self._client.flush(60)
        if self.failed:
            raise AssertionError(f"{len(self.failed)} messages were not taken: {self.failed[0]}")

    def alive(self) -> None:
        """Raises when the driver ended."""
        if self.driver.ended is not None:
            raise AssertionError(
                f"the driver ended ({self.driver.ended}): {self.driver.last_words(10)}"
            )

    def wait(self, what: str, seconds: float, done: Callable[[], bool]) -> float:
        """Wait until something is so; the seconds it took. Raises when it is not by then."""
        began = time.monotonic()
        while not done():
            self.alive()
            if time.monotonic() - began > seconds:
                said = self.driver.last_words()
                raise AssertionError(f"{what}: not within {seconds:.0f} s; the driver: {said}")
            time.sleep(0.5)
        return time.monotonic() - began

    def keeps_up(self) -> bool:
        """Whether detection and job alert have taken all but the newest seconds."""
        now, found = time.time(), job_status.read_status(self.settings)
        lags = [found[job].arrival_time_lag(now) if job in found else None for job in JOBS]
        return all(lag is not None and lag < NORMAL_SECONDS for lag in lags)

    def ask(self, sql: str, needs: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """A question to the tables; no rows while they are not there."""
        try:
            connection = connect(self.settings.lake_root, needs=needs)
        except HeadgateError:
            return []
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


@contextmanager
def whole(
    sources: tuple[str, ...], prepare: Callable[[Settings], Mapping[str, str]] = lambda _: {}
) -> Iterator[Whole]:
    """A platform with all jobs. `prepare` is done before it runs, and gives its environment."""
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    settings = load(home=home / "home", kafka={"bootstrap": broker.address})
    try:
        ensure_topics(settings, sources)
        driver = PlatformProcess("driver", ("up",), settings, environment=prepare(settings))
        running = Whole(settings, driver)
        try:
            with Listener(settings, running.hear):
                yield running
        finally:
            driver.stop()
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
