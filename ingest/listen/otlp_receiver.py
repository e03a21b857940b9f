"""What OTLP over HTTP and over gRPC share: who may send, how much, and when it is answered."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from infra.config.secrets import of_file
from infra.config.settings import Settings
from infra.config.tenants import feed_of
from infra.errors import Fatal
from infra.kafka.client import topic_of
from ingest.listen.intake import Origin, SyslogIntake
from ingest.listen.otlp_records import Bounds, Packed
from ingest.listen.sink import SendOutcome, TopicMessage

RETRY_SECONDS = 2
_ROOM_SECONDS = 1.0
_DECODING_AT_ONCE = 2
_ROOM_LEFT = 64 * 1024
"""Of the largest message, what is left for its headers."""


class RetryLater(Exception):
    """Not taken now; the same request may be later. `slow`: Kafka is, rather than that too many
    send at once."""

    def __init__(self, why: str, *, slow: bool) -> None:
        super().__init__(why)
        self.slow = slow


class OtlpKeys:
    """The bearer tokens of the settings. Without one anybody may send."""

    def __init__(self, settings: Settings) -> None:
        self._digests: list[tuple[str, bytes]] = []
        self.tenants = {key.name: key.tenant for key in settings.listen.otlp.keys}
        for key in settings.listen.otlp.keys:
            token = of_file(key.token_file, f"listen.otlp.keys '{key.name}': token_file")
            digest = _digest(token)
            if any(digest == token_digest for _, token_digest in self._digests):
                raise Fatal(f"listen.otlp.keys '{key.name}': another key has the same token")
            self._digests.append((key.name, digest))

    def caller(self, authorization: str | None) -> str | None:
        """Whose token the header `authorization` carries, `""` where none is asked for; None:
        nobody's."""
        if not self._digests:
            return ""
        kind, _, token = (authorization or "").partition(" ")
        digest = _digest(token.strip()) if kind.lower() == "bearer" else b""
        # All are compared, so that the time taken does not tell which key came near.
        names = [
            name
            for name, token_digest in self._digests
            if hmac.compare_digest(token_digest, digest)
        ]
        return names[0] if names else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@dataclass
class _Answer:
    """Waits until each message of a request is settled."""

    packed: Packed
    settled: asyncio.Future[None]
    open: int = 0

    def settle(self, records: int, outcome: SendOutcome, why: str) -> None:
        """One of them is."""
        self.open -= 1
        if outcome is SendOutcome.NEVER:
            self.packed.reject(records, f"Kafka refused a message: {why}")
        if self.open == 0 and not self.settled.done():
            self.settled.set_result(None)


class OtlpReceiver:
    """Takes requests to the outbox, and answers when Kafka has them."""

    def __init__(self, settings: Settings, intake: SyslogIntake) -> None:
        self._options = settings.listen.otlp
        self._kafka = settings.kafka
        self._intake = intake
        self._decoding = asyncio.Semaphore(_DECODING_AT_ONCE)
        self.keys = OtlpKeys(settings)
        self.bounds = Bounds(
            records=self._options.request_records,
            message_bytes=settings.kafka.max_message_bytes - _ROOM_LEFT,
            source=self._options.source,
            services=self._options.services,
        )

    def refuse(self, why: str, who: str) -> None:
        """Count a request that is not taken."""
        self._intake.turn_away(why, f"an OTLP request from {who}")

    async def take(
        self, body: bytes, read: Callable[[bytes, Bounds], Packed], origin: Origin, key: str
    ) -> Packed:
        """Read the request and hand it to Kafka; when this returns, Kafka has all that `Packed`
        does not call rejected.

        Raises `RetryLater`, and what `read` raises.
        """
        outbox = self._intake.outbox
        if outbox.waits_seconds > self._options.answer_seconds:
            # Else each new try of the same request would wait here once more.
            raise self._busy("Kafka does not answer", origin, slow=True)
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                await self._decoding.acquire()
        except TimeoutError:
            raise self._busy("too many requests at once", origin, slow=False) from None
        try:
            # In a thread: a large request must not keep the other doors waiting.
            packed = await asyncio.to_thread(read, body, self.bounds)
            answer = await self._post(packed, origin, key)
        finally:
            self._decoding.release()
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                await answer.settled
        except TimeoutError:
            raise self._busy("Kafka did not answer in time", origin, slow=True) from None
        return packed

    async def _post(self, packed: Packed, origin: Origin, key: str) -> _Answer:
        headers = (*origin.headers, ("key", key.encode())) if key else origin.headers
        tenant = self.keys.tenants.get(key)
        messages = [
            (TopicMessage(topic_of(feed_of(source, tenant), self._kafka), value, headers), records)
            for source, value, records in packed.messages
        ]
        outbox = self._intake.outbox
        size = sum(message.size for message, _ in messages)
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                await outbox.room(origin.address, size)
        except TimeoutError:
            raise self._busy("no room while Kafka is slow", origin, slow=True) from None
        answer = _Answer(packed, asyncio.get_running_loop().create_future(), len(messages))
        for message, records in messages:
            outbox.post(message, origin.address, partial(answer.settle, records))
        if not messages:
            answer.settled.set_result(None)
        return answer

    def _busy(self, why: str, origin: Origin, *, slow: bool) -> RetryLater:
        self.refuse(why, origin.address)
        return RetryLater(why, slow=slow)
