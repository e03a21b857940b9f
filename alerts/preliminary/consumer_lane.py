"""The process that tells preliminary alerts without waiting for a batch; `headgate up` starts it.

raw topics ──> parser ──> matcher ────┐
gold.finding, gold.preliminary_answer ┴──> one Kafka transaction with the place
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import duckdb

from alerts.lifecycle.suppression import Suppression
from alerts.preliminary.early_finder import EarlyFinder
from alerts.preliminary.early_publisher import EarlyPublisher
from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.known_suppressions import KnownSuppressions
from alerts.preliminary.raw_topics import RawTopics
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings
from infra.errors import HeadgateError, Retryable
from infra.process.log import News, say
from infra.storage.file_lock import ExclusiveLock

_TABLES_EVERY = 0.5
"""Seconds between two looks at the tables while one waits for its answer; else ten times that."""

_REST = 1.0
"""Seconds until it is tried again after a failure of the broker or the lake."""


class ConsumerLane:
    """Reads raw topics and tables in turn, in one thread: no two of its transactions cross."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        packs = PackStore(store_folder(settings))
        self._known = KnownSuppressions(settings)
        self._holders = KnownHolders(settings)
        self._silent: Sequence[Suppression] | None = None
        self._publisher = EarlyPublisher(settings, packs, self._holders, lambda: self._silent)
        self._finder = EarlyFinder(settings, packs)
        self._topics = RawTopics(settings, self._finder.wants)
        self._looked = float("-inf")
        self._news = News()

    def turn(self, seconds: float = 0.5) -> int:
        """Look at the tables where it is time, then at what comes within so many seconds.

        How many messages were sent. Raises `Retryable`, and is then to be called again.
        """
        try:
            sent = self._tables() if self._due() else 0
            messages = self._topics.take(self._publisher.reached, seconds)
            early = self._finder.find(messages) if messages else []
            return sent + (self._publisher.tell(early) if early else 0)
        except BaseException:
            # What was taken and not told is taken again: what was told of it is known.
            self._topics.close()
            self._looked = float("-inf")
            raise

    def run(self, stop: threading.Event) -> None:
        """Take turns until `stop`. Raises `Fatal` when another one has taken over."""
        self._holders.refresh()
        while not stop.is_set():
            try:
                self.turn()
            except (Retryable, OSError) as error:
                self._news.tell(f"preliminary alerts: {error}; they go out later")
                stop.wait(_REST)
            else:
                self._news.over()
        self._topics.close()

    def _due(self) -> bool:
        every = _TABLES_EVERY if self._publisher.waiting else 10 * _TABLES_EVERY
        return time.monotonic() - self._looked >= every

    def _tables(self) -> int:
        if self._finder.reload():
            # Other rules may look at other sources.
            self._topics.close()
        try:
            self._silent = self._known.current()
        except (HeadgateError, OSError, duckdb.Error) as error:
            # Nobody is to be told early of what may be silenced.
            self._silent = None
            say(f"preliminary alerts: none are made, as suppressions cannot be read: {error}")
        sent = self._publisher.publish()
        self._looked = time.monotonic()
        return sent


def run_lane(settings: Settings, stop: threading.Event) -> None:
    """Tell until `stop`; raises `Taken` where another process of this home does."""
    lock = ExclusiveLock(
        settings.checkpoint_root / "ingest" / "preliminary.lock",
        lambda holder: f"preliminary alerts are sent already, by process {holder}",
    )
    try:
        lane = ConsumerLane(settings)
        say("preliminary alerts: sent as events come")
        lane.run(stop)
    finally:
        lock.release()
