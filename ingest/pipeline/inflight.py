"""Batches of files under way, so that `ingest` does not say it is further than they are.

Ingest's heartbeat moves the time of all who wait (see decision 0004). What job
`files` is writing carries the instant at which its batch began; until it is in,
the heartbeat stays below that instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from infra.checkpoint.batch_decisions import decided
from infra.checkpoint.offset_log import numbers
from infra.storage.atomic_files import write_whole

_LONGEST = timedelta(seconds=30)
"""A batch that takes longer, or whose process died, holds nobody up: its findings come late."""

_MARGIN = timedelta(milliseconds=1)

_JOBS = ("files", "import")


@contextmanager
def in_flight(folder: Path, job: str, at: datetime) -> Iterator[None]:
    """While inside, heartbeats stay below `at`."""
    mark = folder / job
    write_whole(mark, at.isoformat())
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def oldest_in_flight(folder: Path, finished: str | None) -> str | None:
    """How far the input is finished, files under way included. Both are ISO texts, UTC."""
    if finished is None:
        return None
    instant = datetime.fromisoformat(finished)
    least = instant
    # Files being written have a name with a dot in front.
    for mark in folder.glob("[!.]*") if folder.is_dir() else ():
        # A mark may go between the listing and the reading: its batch is in.
        with suppress(OSError, ValueError):
            position = datetime.fromisoformat(mark.read_text("utf-8"))
            if instant - position < _LONGEST:
                least = min(least, position - _MARGIN)
    return least.isoformat()


def batches_under_way(checkpoints: Path) -> list[datetime]:
    """When batches of files that are not in began: their records have arrived then. One whose
    process died counts until it is taken up again."""
    instants = []
    for job in _JOBS:
        begun = max(numbers(checkpoints / job / "batches", ".json"), default=None)
        message = {} if begun is None else decided(checkpoints / job, begun)
        if "received_at" in message and "in_ledger" not in message:
            instants.append(datetime.fromisoformat(message["received_at"]))
    return instants
