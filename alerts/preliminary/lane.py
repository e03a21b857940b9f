"""What job `ingest` does besides, where `kafka.preliminary_topic` is set."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import duckdb
import msgspec

from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.known_suppressions import KnownSuppressions
from alerts.preliminary.publisher import MOST_WAITING, PreliminaryPublisher
from alerts.preliminary.selection import Selection, chosen_now
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings
from infra.errors import HeadgateError, Retryable
from infra.process.clock import clock
from infra.process.log import News, say
from infra.streaming.batch import Batch

LOOK_AGAIN = 1.0
"""Seconds until time must have moved on while one waits for its answer: a tick makes a batch."""


class PreliminaryLane:
    """Decides what a batch tells early, and tells it once the batch is committed."""

    def __init__(self, settings: Settings, packs: PackStore) -> None:
        self._settings = settings
        self._suppressions = KnownSuppressions(settings)
        self._holders = KnownHolders(settings)
        self._publisher = PreliminaryPublisher(settings, packs, self._holders)
        self._lock = threading.Lock()
        self._news = News()

    def begun(self) -> None:
        """Before the first batch: note our place, and send beside it what an earlier run left."""
        self._publisher.begin()

        def send() -> None:
            # What is wrong here, the first batch says.
            with suppress(HeadgateError), self._lock:
                self._holders.refresh()
                self._publisher.publish()

        threading.Thread(target=send, name="preliminary", daemon=True).start()

    def choose(self) -> dict[str, Any] | None:
        """What the next batch tells early, as JSON; None: nothing, as too many are unanswered.

        What was told before its batch (`preliminary_by = "lane"` until now) is marked also then.
        """
        ahead = self._publisher.told_ahead()
        nothing = _plain(Selection(0, (), ahead=ahead)) if ahead else None
        if self._publisher.waiting >= MOST_WAITING:
            say(
                f"job ingest: {MOST_WAITING:,} preliminary alerts wait for their answer, so no "
                "more are made; look at job alert (headgate status)"
            )
            return nothing
        try:
            suppressions = self._suppressions.current()
        except (HeadgateError, OSError, duckdb.Error) as error:
            # The batch goes on without: nobody is to be told early of what may be silenced.
            say(f"job ingest: no preliminary alerts, as suppressions cannot be read: {error}")
            return nothing
        return _plain(chosen_now(self._settings, clock.time(), suppressions, ahead=ahead))

    def committed(self, run: Batch) -> None:
        """Send what the tables hold; where that cannot be done now, the batch says so."""
        try:
            with self._lock:
                self._publisher.publish()
        except Retryable as error:
            # The tables have the batch: it must not fail for what goes out with the next one.
            run.held_back = str(error)
            self._news.tell(f"job ingest: preliminary alerts: {error}; they go out later")
        else:
            self._news.over()
        if self._publisher.waiting:
            run.due_after += (LOOK_AGAIN,)


class MarkingLane:
    """What job `ingest` does where another process tells (`alerts.preliminary.consumer_lane`).

    It marks all findings of the rules that are told early, so that job `alert` answers each.
    """

    def __init__(self, settings: Settings, packs: PackStore) -> None:
        self._settings = settings
        self._publisher = PreliminaryPublisher(settings, packs, KnownHolders(settings))

    def begun(self) -> None:
        """As `PreliminaryLane.begun`, and nothing is sent."""
        self._publisher.begin()

    def choose(self) -> dict[str, Any]:
        """As `PreliminaryLane.choose`."""
        ahead = self._publisher.told_ahead()
        return _plain(chosen_now(self._settings, clock.time(), every=True, ahead=ahead))

    def committed(self, run: Batch) -> None:
        """Nothing: who tells sees the commit."""


def lane_of(settings: Settings, packs: PackStore) -> PreliminaryLane | MarkingLane:
    """What the settings want of job `ingest`."""
    by_batch = settings.alerts.preliminary_by == "batch"
    return PreliminaryLane(settings, packs) if by_batch else MarkingLane(settings, packs)


def _plain(chosen: Selection) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(chosen)
    return plain
