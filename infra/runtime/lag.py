"""What waits for the jobs, looked up by the driver itself: at the broker and in the tables' logs.

A query tells with each batch what it left. One that hangs, pauses or was given up tells nothing,
and just then it matters. So the checkpoint is held against what is there, in a thread of its own:
a broker that hangs holds nobody up.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.checkpoint.offset_log import numbers, offset_lines
from infra.config.settings import Settings
from infra.delta.log_archive import LOG
from infra.delta.log_reader import table_id
from infra.storage.paths import Location, tables_below
from infra.streaming.kafka_offsets import OffsetReader, offsets_of, untaken
from infra.streaming.progress import first_unread, left_in

READS_KAFKA = "ingest"

EVERY_SECONDS = 10.0
ANSWER_SECONDS = 5.0
"""So long the broker may take to answer; meanwhile the other jobs wait for their numbers."""
KEPT_SECONDS = 30.0
"""A number that could not be had again for so long is no longer told."""


@dataclass(frozen=True)
class Waits:
    """Input of a job that is there and that no batch which is in has taken."""

    messages: int | None = None
    """In Kafka, ticks aside; None where the job reads none, or nobody knows."""
    commits: int | None = None
    """Of Delta tables; None where the job reads none, or nobody knows."""
    oldest: float | None = None
    """When the first of these commits was made, seconds since 1970; None: there is none."""
    asked_at: float = 0.0
    """Since 1970: what came before that and was not taken is counted."""
    looked: float = 0.0
    """When this was found, in seconds that only count on."""


class LagReader:
    """Looks every few seconds, once it was started, for each job that was asked about."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = OffsetReader(settings.kafka, ANSWER_SECONDS)
        self._waits: dict[str, Waits] = {}
        self._logs: dict[str, Location] = {}
        """Logs of tables by the table's id."""
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)

    def start(self) -> LagReader:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End; a question that is under way is left to itself."""
        self._stopped = True
        self._wake.set()

    def of(self, job: str) -> Waits:
        """What was found lately; nothing is known where that is too long ago. Does not wait."""
        if job not in self._waits:
            self._waits[job] = Waits()
            self._wake.set()
        result = self._waits[job]
        return result if time.monotonic() - result.looked <= KEPT_SECONDS else Waits()

    def _run(self) -> None:
        while not self._stopped:
            # A copy: `of` adds jobs from another thread.
            for job in list(self._waits):
                try:
                    self._waits[job] = self.look(job)
                except Exception:  # a broker or store that is away, a damaged file: the job says so
                    continue
            self._wake.wait(EVERY_SECONDS)
            self._wake.clear()

    def look(self, job: str) -> Waits:
        """Look now. Raises what the broker or a file gives reason to."""
        asked_at = time.time()
        spark = self._settings.checkpoint_root / job / "spark"
        done = max(numbers(spark / "commits"), default=None)
        file = None if done is None else spark / "offsets" / str(done)
        messages = self._messages(file) if job == READS_KAFKA else None
        left = [left_in(log, first) for log, first in self._read(file)]
        return Waits(
            messages=messages,
            commits=sum(count for count, _ in left) if left else None,
            oldest=min((position for _, position in left if position is not None), default=None),
            asked_at=asked_at,
            looked=time.monotonic(),
        )

    def _messages(self, file: Path | None) -> int:
        kafka = self._settings.kafka
        taken = {} if file is None else offsets_of(file)
        raw = self._broker.partitions(kafka.topic_prefix)
        return untaken(
            taken, self._broker.held(place for place in raw if place[0] != kafka.tick_topic)
        )

    def _read(self, file: Path | None) -> Iterator[tuple[Location, int]]:
        """Of each Delta table that a job reads its log, and the first version it has to take."""
        for line in [] if file is None else offset_lines(file):
            place = json.loads(line) if line.startswith("{") else {}
            log = self._log(str(place["reservoirId"])) if "reservoirId" in place else None
            if log is not None:
                yield log, first_unread(place)

    def _log(self, identity: str) -> Location | None:
        if identity not in self._logs:
            # Looked up only for a table that is new: in a bucket each look is a request.
            below = tables_below(self._settings.lake_root)
            self._logs |= {table_id(folder): folder / LOG for folder in below}
        return self._logs.get(identity)
