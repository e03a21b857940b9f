"""Ticks: messages of our own that move time on while logs are silent.

A tick makes a batch of job `ingest`, whose heartbeat makes batches of the jobs behind it. So where
nothing is due, and nothing came that must be vouched for, they come seldom.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException, Producer

from infra.config.settings import KafkaSettings
from infra.errors import HeadgateError
from infra.kafka.client import producer
from infra.process.log import News
from infra.process.wake_signal import COMMITTED
from infra.streaming.kafka_offsets import OffsetReader, TopicPartitionKey

ASK_SECONDS = 0.2
"""How often the broker is asked what came: mean delay of a message out of a silence is half."""

TOPICS_SECONDS = 3.0
"""How often it is asked which topics there are."""

_ANSWER_SECONDS = 5.0

QUIET_SECONDS = 300.0
"""So long nothing came when ticks come more seldom still: each makes a batch of six jobs."""

QUIET_TIMES = 4
"""By how many times."""


class Arrivals:
    """Asks the broker how far its log topics reach."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._broker = OffsetReader(kafka, _ANSWER_SECONDS)
        self._places: list[TopicPartitionKey] = []
        self._listed = float("-inf")

    def ends(self) -> Mapping[TopicPartitionKey, int] | None:
        """The end of each partition, ticks aside; None where the broker does not answer."""
        try:
            if time.monotonic() - self._listed >= TOPICS_SECONDS:
                every = self._broker.partitions(self._kafka.topic_prefix)
                self._places = [place for place in every if place[0] != self._kafka.tick_topic]
                self._listed = time.monotonic()
            return self._broker.ends(self._places)
        except (HeadgateError, KafkaException):
            return None


def pause_in_quiet(seconds: float, quiet: float) -> float:
    """Seconds between two ticks: `seconds`, or a multiple once it was quiet for long."""
    return seconds * (QUIET_TIMES if quiet > QUIET_SECONDS else 1)


class Ticker:
    """Feeds the tick topic; with `arrivals`, it also says what came (`state`).

    `due`: whether something waits for time to move on. Then, and when messages came since the
    last tick, they follow each other by `tick_seconds`, else by `idle_tick_seconds`, and once that
    has gone on for long by a multiple of it.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        arrivals: Arrivals | None = None,
        due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kafka = kafka
        self._arrivals = arrivals
        self._due = due
        self._ends: Mapping[TopicPartitionKey, int] | None = None
        self._ticks = 0
        self._news = News()
        self._client: Producer | None = None
        self.asked_at: float | None = None
        """When the broker last told what it has, epoch seconds."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def start(self) -> Ticker:
        """Begin; a broker that is away is waited for."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End within a tick."""
        self._stop.set()
        self._thread.join(self._kafka.tick_seconds + _ANSWER_SECONDS)

    @property
    def state(self) -> object:
        """Another value whenever there may be something to read, ticks included."""
        ends = self._ends
        # Nothing is equal to a new object: who cannot know has to look.
        return object() if ends is None else (tuple(sorted(ends.items())), self._ticks)

    def _run(self) -> None:
        every = self._kafka.tick_seconds
        pause = every if self._arrivals is None else min(ASK_SECONDS, every)
        last = busy = time.monotonic()
        woken = False
        while not self._stop.wait(pause):
            ends = self._asked()
            arrived = ends != self._ends
            woken = woken or arrived or ends is None
            now = time.monotonic()
            if waits := woken or self._due():
                busy = now
            rest = every if waits else pause_in_quiet(self._kafka.idle_tick_seconds, now - busy)
            # A moment less: waits are a little longer than they were asked to be.
            ticks = now - last >= rest - pause / 2
            if ticks:
                self._tick()
                last, woken = time.monotonic(), False
            # Behind the tick, so that the batch that reads the messages also vouches for them.
            self._ends = ends
            if arrived or ticks:
                COMMITTED.set()
        if self._client is not None:
            self._client.flush(2)

    def _asked(self) -> Mapping[TopicPartitionKey, int] | None:
        ends = None if self._arrivals is None else self._arrivals.ends()
        if ends is not None:
            self.asked_at = time.time()
        return ends

    def _tick(self) -> None:
        client = self._client = self._client or self._producer()
        try:
            client.produce(self._kafka.tick_topic, value=b"tick")
            # Whoever is woken now must find it.
            client.flush(0.5)
            self._ticks += 1
            self._news.over()
        except (KafkaException, BufferError) as error:
            # A right that is missing, or a topic that is made anew, for a while. Without
            # ticks no time is ever complete, so this must outlive it.
            topic = self._kafka.tick_topic
            self._news.tell(f"ticks: {topic} takes none ({error}); trying on")
            self._client = None

    def _producer(self) -> Producer:
        """Old ticks say nothing new: what could not be delivered within seconds is dropped."""
        return producer(self._kafka, **{"delivery.timeout.ms": 5000, "linger.ms": 0})
