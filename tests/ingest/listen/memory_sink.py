"""A sink that keeps messages in memory, and takes, refuses or keeps them waiting as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.listen.sink import SendOutcome, Settle, TopicMessage


@dataclass
class MemorySink:
    """Keeps messages in memory, in order. `outcome` says what becomes of each; None: it waits,
    as at a broker that does not answer, until `answer`."""

    outcome: Callable[[TopicMessage], SendOutcome | None] = lambda message: SendOutcome.KEPT
    kept: list[TopicMessage] = field(default_factory=list)
    waiting: list[tuple[TopicMessage, Settle]] = field(default_factory=list)

    def send(self, message: TopicMessage, done: Settle) -> None:
        """Decide at once, or let it wait."""
        self.waiting.append((message, done))
        self._settle(len(self.waiting) - 1)

    def answer(self) -> None:
        """Decide anew about all that wait."""
        waiting, self.waiting = self.waiting, []
        for message, done in waiting:
            self.send(message, done)

    def close(self) -> None:
        """Nothing is held open."""

    def _settle(self, place: int) -> None:
        message, done = self.waiting[place]
        outcome = self.outcome(message)
        if outcome is None:
            return
        del self.waiting[place]
        if outcome is SendOutcome.KEPT:
            self.kept.append(message)
        done(outcome, "" if outcome is SendOutcome.KEPT else "so it was told")


def header(message: TopicMessage, name: str) -> bytes | None:
    return dict(message.headers).get(name)
