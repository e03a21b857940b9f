"""Which request a question is part of, however far below its route the question is asked."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass
class Asking:
    """A request: of whom, once that is known, when it came, and how many turns its questions had.

    One object for all threads that work on it: what a thread sets in its own context, the others
    do not see.
    """

    who: str | None = None
    came: float = field(default_factory=time.monotonic)
    turns: int = 0


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


def asking() -> Asking:
    """The request that is worked on; outside of one, such as in a command, a new one each time."""
    return _asking.get() or Asking()


def asked_by(name: str) -> None:
    """Note who asks."""
    asking().who = name


def begin_request(who: str | None = None) -> Asking:
    """A new request, which all that is asked from now on in this context is part of."""
    request = Asking(who)
    _asking.set(request)
    return request


class KnownRequests:
    """Begins an `Asking` with each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not reset: it ends with the request's own task.
        begin_request()
        await self._app(scope, receive, send)
