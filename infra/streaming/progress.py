"""How far a job is: what its query says of itself, as plain numbers.

Source of the form: Structured Streaming Programming Guide, "Monitoring Streaming
Queries"; offsets as Spark's Kafka source and Delta's streaming source write them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from infra.delta.log_archive import single
from infra.storage.paths import Location, location, since

# Spark names the source by a URI of its path, with one leading slash or three.
_DELTA = re.compile(r"DeltaSource\[(?:file:/*(?=/))?(.+)\]")


@dataclass
class Pulse:
    """What a job's batches leave behind for whoever watches; written by the batch's thread."""

    batch: int | None = None
    """The batch last begun."""
    offsets: str = ""
    """Its offsets, as the checkpoint has them."""
    done: int | None = None
    """The batch last finished by us (Spark's own commit follows)."""
    done_at: float | None = None
    """When, epoch seconds."""
    rows: int | None = None
    """Rows it read."""
    bytes: int = 0
    """Bytes of raw data among them, where the job counts them."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Rows it wrote, by table."""
    cap: int | None = None
    """Most rows a batch takes now, where that is set while it runs
    (`infra.streaming.admission`)."""
    regime: Literal["steady", "behind"] | None = None
    """The same for the regime."""
    finished: str | None = None
    """Up to when all input is in, as the batch claims it (ISO text), if its job claims that."""
    held_back: str = ""
    """Why what its batches wrote could not be handed on, as alerts to their topic."""
    held_since: float | None = None
    """Since when, epoch seconds."""
    writes: frozenset[str] = frozenset()
    """Paths of the tables that each of its batches commits to, where its job says so."""
    coming: frozenset[str] = frozenset()
    """Those of them that the batch under way has yet to commit to."""
    due: set[int] = field(default_factory=set)
    """When time must have moved on for what its batches left waiting, in steady seconds."""

    def expect(self, seconds: Iterable[float]) -> None:
        """Something is due in so many seconds from now."""
        now = time.monotonic()
        # A new set: another thread goes through the old one.
        self.due = self.due | {round(now + each) for each in seconds}

    def is_due(self, now: float, span: float) -> bool:
        """Whether something is due, or was in the last `span` seconds; forgets what is over."""
        over = {each for each in self.due if each < now - span}
        if over:
            self.due = self.due - over
        return any(each <= now for each in self.due)

    def ended(self, batch: int, now: float, held_back: str = "") -> None:
        """A batch is in; `held_back`: why what is in the tables could not be handed on."""
        self.done, self.done_at, self.held_back = batch, now, held_back
        self.held_since = (self.held_since or now) if held_back else None

    @property
    def under_way(self) -> bool:
        """Whether a batch was begun and is not in."""
        return self.batch is not None and self.batch != self.done


@dataclass(frozen=True)
class Unread:
    """Input that is there and not yet worked off."""

    messages: int | None = None
    """In Kafka; None where the job reads none."""
    commits: int | None = None
    """Of Delta tables; None where the job reads none."""
    seconds: float | None = None
    """Age of the oldest unread commit; 0 where there is none."""


@dataclass(frozen=True)
class _State:
    """What a job remembers between batches, over its operators."""

    rows: int
    bytes: int
    dropped: int
    """Rows of the last batch that came later than the watermark."""


def state(progress: Mapping[str, Any]) -> _State:
    """State of all stateful operators of a progress."""
    operators = progress.get("stateOperators") or []
    return _State(
        rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
        dropped=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
    )


def watermark(progress: Mapping[str, Any]) -> datetime | None:
    """Up to when the job takes its input as complete; None before it has a watermark."""
    text = (progress.get("eventTime") or {}).get("watermark")
    instant = datetime.fromisoformat(text) if text else None
    # Spark shows the start of 1970 as long as a query has no watermark.
    return instant if instant is not None and instant.timestamp() > 0 else None


def durations(progress: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a batch's phases: planning, offsets, work, commits."""
    return {name: ms / 1000 for name, ms in (progress.get("durationMs") or {}).items()}


def unread(progress: Mapping[str, Any], now: float | None = None) -> Unread:
    """What the progress's query has not yet taken, the batch under way included."""
    sources = progress.get("sources") or []
    messages = [_messages(source) for source in sources if "Kafka" in source.get("description", "")]
    behind = [commits for source in sources if (commits := _commits(source)) is not None]
    oldest = min((position for _, position in behind if position is not None), default=None)
    moment = time.time() if now is None else now
    return Unread(
        messages=sum(messages) if messages else None,
        commits=sum(count for count, _ in behind) if behind else None,
        seconds=(max(0.0, moment - oldest) if oldest else 0.0) if behind else None,
    )


def partition_offsets(
    offset: Mapping[str, Mapping[str, int]] | None,
) -> Iterator[tuple[str, int, int]]:
    """`(topic, partition, offset)` of a Kafka source's offset."""
    for topic, partitions in (offset or {}).items():
        for partition, position in partitions.items():
            yield topic, int(partition), position


def _messages(source: Mapping[str, Any]) -> int:
    done = {
        (topic, part): position
        for topic, part, position in partition_offsets(source.get("endOffset"))
    }
    latest = source.get("latestOffset")
    return sum(
        max(0, position - done.get((topic, part), 0))
        for topic, part, position in partition_offsets(latest)
    )


def _commits(source: Mapping[str, Any]) -> tuple[int, float | None] | None:
    """Unread commits of a Delta source, and when the first was made; None for other sources."""
    named = _DELTA.match(source.get("description", ""))
    end = source.get("endOffset")
    if named is None or not isinstance(end, Mapping):
        return None
    return left_in(location(named.group(1)) / "_delta_log", first_unread(end))


def first_unread(offset: Mapping[str, Any]) -> int:
    """The first version of a table that a Delta source's offset leaves to be read."""
    return int(offset["reservoirVersion"]) + (0 if int(offset.get("index", -1)) < 0 else 1)


def left_in(log: Location, first: int) -> tuple[int, float | None]:
    """Commits of a log from version `first` on, and when the first of them was made."""
    if not isinstance(log, Path):  # one request tells both
        waiting = [
            st_mtime
            for name, st_mtime in since(log, single(log, first).name)
            if name.endswith(".json")
        ]
        return len(waiting), min(waiting, default=None)
    try:
        st_mtime = single(log, first).stat().st_mtime
    except FileNotFoundError:
        return 0, None
    return newest_from(log, first) - first + 1, st_mtime


def newest_from(log: Path, version: int) -> int:
    """The newest version of a log that has `version`, without listing its folder: logs are long."""
    step = 1
    # Ever longer steps, then back by halves: a log without holes of n commits takes about 2 log2(n)
    # looks, a listing n entries.
    while single(log, version + step).exists():
        version, step = version + step, step * 2
    while step > 1:
        step //= 2
        if single(log, version + step).exists():
            version += step
    return version
