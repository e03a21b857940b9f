"""All that was read and is not with Kafka yet: the one bounded place of the listener.

Who reads asks for room first. While there is none, nothing more is read: TCP's senders wait, the
kernel drops and counts what UDP's send, and OpenTelemetry's are told to come again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from infra.process.log import News, say
from ingest.listen.sink import SendOutcome, Sink, TopicMessage

_AGAIN_SECONDS = 0.5
PEER_SHARE = 4
"""One peer may take a quarter of the room: a flood from one address leaves some for the others."""


@dataclass(eq=False)
class _Waiting:
    message: TopicMessage
    peer: str
    since: float
    settled: Callable[[SendOutcome, str], None] | None


@dataclass
class Totals:
    """Counts since the listener began."""

    messages: Counter[str] = field(default_factory=Counter)
    """With Kafka, by topic."""
    bytes: int = 0
    retried: int = 0
    never: int = 0
    """Messages that Kafka will never take."""


class Outbox:
    """Messages on their way. All of it runs in the event loop's thread.

    `limit`: bytes that may wait; one message, or one request, alone may be larger.
    `keep`: takes a message that the sink will never take, and why.
    """

    def __init__(
        self,
        sink: Sink,
        limit: int,
        keep: Callable[[TopicMessage, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._limit = limit
        self._keep = keep
        self._clock = clock
        self._under_way: dict[int, _Waiting] = {}
        self._number = 0
        self._by_peer: Counter[str] = Counter()
        self._bytes = 0
        self._asking: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        self._unbounded = False
        self._news = News(say)
        self.totals = Totals()

    @property
    def bytes(self) -> int:
        """How much waits."""
        return self._bytes

    @property
    def messages(self) -> int:
        """How many wait."""
        return len(self._under_way)

    @property
    def waits_seconds(self) -> float:
        """For how long the oldest of them waits."""
        # Numbers only grow, and a dict keeps its order, so the first is the oldest; a retry stays
        # in place.
        oldest = next(iter(self._under_way.values()), None)
        return 0.0 if oldest is None else self._clock() - oldest.since

    def has_room(self, peer: str, size: int) -> bool:
        """Whether so many bytes more may wait."""
        taken, theirs = self._bytes, self._by_peer[peer]
        fits = taken == 0 or taken + size <= self._limit
        return self._unbounded or (
            fits and (theirs == 0 or theirs + size <= self._limit // PEER_SHARE)
        )

    async def room(self, peer: str, size: int) -> None:
        """Wait until there is room. What is posted next may take it."""
        while not self.has_room(peer, size):
            asking = asyncio.get_running_loop().create_future()
            entry = (peer, size, asking)
            self._asking.append(entry)
            try:
                await asking
            finally:
                if entry in self._asking:  # who waits no longer, such as at a request's end
                    self._asking.remove(entry)

    def post(
        self,
        message: TopicMessage,
        peer: str,
        settled: Callable[[SendOutcome, str], None] | None = None,
    ) -> None:
        """Send it, again and again if need be, until it is kept or never will be."""
        self._number += 1
        self._under_way[self._number] = _Waiting(message, peer, self._clock(), settled)
        self._bytes += message.size
        self._by_peer[peer] += message.size
        self._send(self._number)

    def lift_bound(self) -> None:
        """For the end: what was read is taken, however much waits."""
        self._unbounded = True
        self._wake()

    async def empty(self, seconds: float) -> bool:
        """Wait so long for all to be kept; whether they are."""
        end = self._clock() + seconds
        while self._under_way and self._clock() < end:
            await asyncio.sleep(0.02)
        return not self._under_way

    def unsent(self) -> Iterator[TopicMessage]:
        """What waits, oldest first."""
        return (waiting.message for waiting in self._under_way.values())

    def _send(self, number: int) -> None:
        if (waiting := self._under_way.get(number)) is not None:
            self._sink.send(waiting.message, partial(self._done, number))

    def _done(self, number: int, outcome: SendOutcome, why: str) -> None:
        waiting = self._under_way.get(number)
        if waiting is None:
            return
        message = waiting.message
        if outcome is SendOutcome.AGAIN:
            self.totals.retried += 1
            self._news.tell(f"listen: {message.topic} takes nothing ({why}); trying on")
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._send, number)
            return
        del self._under_way[number]
        self._bytes -= message.size
        self._by_peer[waiting.peer] -= message.size
        # Or there would be a counter for each address that ever sent something.
        if self._by_peer[waiting.peer] <= 0:
            del self._by_peer[waiting.peer]
        if outcome is SendOutcome.KEPT:
            self.totals.messages[message.topic] += 1
            self.totals.bytes += len(message.value)
            self._news.over()
        else:
            self.totals.never += 1
            self._keep(message, why)
        if waiting.settled is not None:
            waiting.settled(outcome, why)
        self._wake()

    def _wake(self) -> None:
        """Let those go on for whom there is room now, the longest waiting first."""
        # What they post is not counted yet, so each is let on for what it asked alone.
        granted = 0
        for entry in list(self._asking):
            if self._bytes + granted >= self._limit and not self._unbounded:
                break
            peer, size, asking = entry
            if asking.done() or self.has_room(peer, size + granted):
                self._asking.remove(entry)
                if not asking.done():
                    asking.set_result(None)
                    granted += size
