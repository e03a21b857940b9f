"""Which request a question is part of, however far below its route the question is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.sql.worker_line import Cancelled


@dataclass
class Asking:
    """A request: of whom, once that is known, when it came, how many turns its questions had, and
    whether its caller has `gone`, which is known of those that only look (GET, HEAD).

    One object for all threads that work on it: what a thread sets in its own context, the others
    do not see.
    """

    who: str | None = None
    came: float = field(default_factory=time.monotonic)
    turns: int = 0
    gone: threading.Event = field(default_factory=threading.Event)


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


def current_request() -> Asking:
    """The request that is worked on; outside of one, such as in a command, a new one each time."""
    return _asking.get() or Asking()


def note_caller(name: str) -> None:
    """Note who asks."""
    current_request().who = name


def begin_request(who: str | None = None) -> Asking:
    """A new request, which all that is asked from now on in this context is part of."""
    request = Asking(who)
    _asking.set(request)
    return request


class KnownRequests:
    """Begins an `Asking` with each request, and notes when who only looks has hung up."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not reset: it ends with the request's own task.
        request = begin_request()
        # An act is not broken off in the middle: what it began is done whoever waits for it.
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        line = _Watched(receive, request.gone)
        watching = asyncio.create_task(line.watch())
        try:
            await self._app(scope, line.receive, send)
        except Exception as error:
            # An answer that had begun breaks off; that nobody hears it is no fault.
            if not (request.gone.is_set() and _cancelled(error)):
                raise
        finally:
            watching.cancel()


def _cancelled(error: Exception) -> bool:
    return isinstance(error, Cancelled) or isinstance(error.__cause__, Cancelled)


class _Watched:
    """What comes of a caller, read ahead: that one hung up is learnt only by reading."""

    def __init__(self, receive: Receive, gone: threading.Event) -> None:
        self._receive = receive
        self._gone = gone
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._ahead = True

    async def watch(self) -> None:
        """Read until the caller is gone; a body in parts is left to who bounds it."""
        while self._ahead:
            message = await self._receive()
            left = message["type"] == "http.disconnect"
            if left:
                self._gone.set()
            self._ahead = not (left or message.get("more_body", False))
            self._messages.put_nowait(message)

    async def receive(self) -> Message:
        """The next message, as ASGI has it."""
        if not self._ahead and self._messages.empty():
            return await self._receive()
        message = await self._messages.get()
        if message["type"] == "http.disconnect":
            self._messages.put_nowait(message)  # whoever asks is told
        return message
