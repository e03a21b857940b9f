"""Where messages go: what a sink promises."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol


class TopicMessage(NamedTuple):
    """What goes to a topic: bytes as they came, and headers that say where from."""

    topic: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Bytes it takes while it waits, roughly."""
        return len(self.value) + sum(len(value) + 16 for _, value in self.headers) + 256


class SendOutcome(Enum):
    """What became of a message that a sink was given."""

    KEPT = "kept"
    """Every copy that the topic asks for is written."""
    AGAIN = "again"
    """Not kept; the same message may be later."""
    NEVER = "never"
    """Not kept, and never will be, such as one that is too large for its topic."""


Settle = Callable[[SendOutcome, str], None]
"""Called once for each message, in the event loop's thread, with the reason if there is one."""


class Sink(Protocol):
    """Takes messages, and says later what became of each."""

    def send(self, message: TopicMessage, done: Settle) -> None:
        """Begin to send. Never waits; what cannot be sent now is `AGAIN`."""

    def close(self) -> None:
        """Take nothing more."""
