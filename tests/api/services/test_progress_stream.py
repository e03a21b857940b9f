"""The progress of a job as events: each look of it once, and an end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from api.services import event_stream
from api.services.event_stream import Streams, progress_id, progress_stream
from api.services.triage import NoSuchAct
from infra.errors import Retryable
from tests.event_loop import run_apart


class Job(BaseModel):
    """As much of a job as a stream looks at."""

    state: str
    progress: float = 0.0


def told(looks: list[Job | Exception], seen: str | None = None) -> list[str]:
    """What a reader gets of a job that looks like each of `looks` in turn."""
    coming: Iterator[Job | Exception] = iter(looks)

    def look() -> Job:
        now = next(coming)
        if isinstance(now, Exception):
            raise now
        return now

    async def here() -> bool:
        return False

    async def read() -> list[str]:
        return [text async for text in progress_stream(look, seen, here, streams)]

    streams = Streams()
    events = run_apart(read())
    assert streams.open == 0
    return events[1:]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PROGRESS_SECONDS", 0.0)


def test_each_look_comes_once_and_the_stream_ends_with_the_job() -> None:
    half, done = Job(state="running", progress=50.0), Job(state="done", progress=100.0)
    events = told([Job(state="queued"), half, half, done])
    assert [event.split("\n")[0] for event in events] == [
        "event: progress",
        "event: progress",
        "event: end",
    ]
    assert events[1] == (
        f'event: progress\nid: {progress_id(half)}\ndata: {{"state":"running","progress":50.0}}\n\n'
    )


def test_who_was_away_gets_only_what_is_new() -> None:
    half, failed = Job(state="running", progress=50.0), Job(state="failed")
    (event,) = told([half, failed], seen=progress_id(half))
    assert event.startswith("event: end\n")


def test_a_job_that_is_removed_ends_the_stream_and_one_that_cannot_be_read_does_not() -> None:
    looks = [Retryable("the disk\nis full"), Job(state="running"), NoSuchAct("no job 'a'")]
    assert told(looks)[0] == ": the disk is full\n\n"
    assert told(looks)[-1] == "event: removed\ndata: no job 'a'\n\n"
