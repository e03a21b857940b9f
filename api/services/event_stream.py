"""The feed of alerts and the progress of jobs as server-sent events (HTML Living Standard, 9.2)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from alerts.delivery.feed import FeedCursor
from api import models
from api.services.triage import NoSuchAct
from infra.errors import HeadgateError, Retryable

STREAM_PAGE = 200
MOST_STREAMS = 50
"""Open at a time: each asks the lake every other second."""

_POLL_SECONDS = 2.0
BEAT_SECONDS = 15.0
"""A comment that often keeps proxies from ending a connection on which nothing happens."""


class Streams:
    """How many are open, and whether the server ends."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = False

    def require_room(self) -> None:
        """Raises `Retryable` where as many are open as may be."""
        if self.open >= MOST_STREAMS:
            raise Retryable(f"{MOST_STREAMS} streams are open, which is the most")

    def close(self) -> None:
        """Let every stream end at its next look."""
        self.closing = True


async def event_stream(
    page: Callable[[str], models.FeedPage],
    cursor: str,
    lake: str,
    gone: Callable[[], Awaitable[bool]],
    streams: Streams,
) -> AsyncIterator[str]:
    """Events behind `cursor` as they come, until the reader is `gone`.

    A lake that cannot be read now is waited for; what it then has is sent, so nothing is missed.
    """
    streams.open += 1
    beat = time.monotonic()
    try:
        # The first bytes at once: some proxies and browsers wait for them before they open the
        # stream.
        yield f": alerts as they come\nretry: {int(_POLL_SECONDS * 1000)}\n\n"
        # A reader that left is noticed only by asking; sending to it may succeed for a while.
        while not streams.closing and not await gone():
            try:
                # The lake is read by blocking calls, which would hold up every other request.
                fresh = await run_in_threadpool(page, cursor)
            except HeadgateError as error:
                yield f": {' '.join(str(error).split())}\n\n"
                await asyncio.sleep(_POLL_SECONDS)
                continue
            for item in fresh.items:
                beat = time.monotonic()
                place = FeedCursor(int(item.sequence), item.alert_id, item.revision)
                # JSON has no line breaks, so an event is one line of data.
                data = item.model_dump_json()
                # A browser sends the last id back when it reconnects, so the stream goes on from
                # there.
                yield f"event: alert\nid: {place.cursor(lake)}\ndata: {data}\n\n"
            if time.monotonic() - beat > BEAT_SECONDS:
                yield ": still here\n\n"
                beat = time.monotonic()
            cursor = fresh.next
            # Behind a backlog it asks again at once.
            if not fresh.more:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        streams.open -= 1


PROGRESS_SECONDS = 0.5
"""Between two looks at a job: it writes its progress about once a second."""

OVER = frozenset({"done", "failed", "cancelled"})
"""States in which nothing comes any more."""


def progress_id(job: BaseModel) -> str:
    """Names what a job looks like now: who saw it need not see it again."""
    return hashlib.sha256(job.model_dump_json().encode()).hexdigest()[:16]


async def progress_stream(
    look: Callable[[], BaseModel],
    seen: str | None,
    gone: Callable[[], Awaitable[bool]],
    streams: Streams,
) -> AsyncIterator[str]:
    """A job each time it looks otherwise than at `seen`, until it is over or the reader `gone`.

    Events are called `progress`, the last one `end`. A job that is removed meanwhile ends with
    `removed` and why.
    """
    streams.open += 1
    beat = time.monotonic()
    try:
        yield f": the job as it goes on\nretry: {int(_POLL_SECONDS * 1000)}\n\n"
        while not streams.closing and not await gone():
            try:
                job = await run_in_threadpool(look)
            except NoSuchAct as error:
                yield f"event: removed\ndata: {' '.join(str(error).split())}\n\n"
                return
            except HeadgateError as error:
                yield f": {' '.join(str(error).split())}\n\n"
                await asyncio.sleep(PROGRESS_SECONDS)
                continue
            over = getattr(job, "state", None) in OVER
            if (name := progress_id(job)) != seen:
                beat, seen = time.monotonic(), name
                kind = "end" if over else "progress"
                yield f"event: {kind}\nid: {name}\ndata: {job.model_dump_json()}\n\n"
            if over:
                return
            if time.monotonic() - beat > BEAT_SECONDS:
                yield ": still here\n\n"
                beat = time.monotonic()
            await asyncio.sleep(PROGRESS_SECONDS)
    finally:
        streams.open -= 1
