"""A micro-batch of a job: its identity, what it decided before it ran, what it wrote.

Its decisions lie in `<checkpoints>/<job>/batches/` (`infra.checkpoint.batch_decisions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from infra.checkpoint.batch_decisions import (
    FORMER_DIGESTS,
    decided,
    decisions_file,
    write_decision,
)
from infra.process.batch_telemetry import BatchRecord
from infra.process.clock import clock
from infra.streaming.progress import Pulse


@dataclass
class Batch:
    """One micro-batch: its identity, what it decided, and what it has written so far."""

    job: str
    query_id: str
    batch_id: int
    digest: str
    folder: Path
    look_back: bool
    started_at: datetime
    offsets: str
    decisions: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    commits: list[tuple[str, float, float]] = field(default_factory=list)
    """Table, beginning and end of each commit, epoch seconds."""
    replayed: bool = False
    # Handing on, as to the alerts' topic, is no part of the batch: tables are committed whatever
    # Kafka does, and what is held back goes out with a later batch.
    held_back: str = ""  # why what is in the tables could not be handed on
    noted: dict[str, Any] = field(default_factory=dict)
    """What its commits carry besides the marker's own fields."""
    due_after: tuple[float, ...] = ()
    """In how many seconds what it leaves waiting needs time to have moved on (ticks)."""
    pulse: Pulse = field(default_factory=Pulse)
    """What whoever watches the job sees of it."""
    _unwritten: list[str] | None = None
    """Decisions that are written down later, where that is so."""

    def is_of(self, digest: str) -> bool:
        """Whether its offsets have that digest, or had it in a release before this one."""
        return digest == self.digest or digest in self.decisions.get(FORMER_DIGESTS, ())

    def will_commit(self, paths: Iterable[str]) -> None:
        """Say which tables each batch of the job commits to: who reads several of them is woken
        once the last is in (`infra.runtime.waker`)."""
        self.pulse.writes = self.pulse.coming = frozenset(paths)

    @property
    def marker(self) -> dict[str, Any]:
        """What each commit of this batch carries, so that a retry finds it."""
        return {
            **self.noted,
            "job": self.job,
            "query": self.query_id,
            "batch": self.batch_id,
            "digest": self.digest,
        }

    @property
    def metadata(self) -> str:
        """The marker as a commit has it in `userMetadata`."""
        return json.dumps(self.marker, sort_keys=True)

    def decide(self, name: str, choose: Callable[[], Any]) -> Any:
        """The value `choose` gave when this batch first ran, also when it runs again.

        A retry must write the same rows, so whatever depends on the clock, on
        another table's newest version or on the rules in force is kept (as
        JSON) beside the checkpoint before it is used.
        """
        if name not in self.decisions:
            self.decisions[name] = choose()
            if self._unwritten is None:
                write_decision(self.folder, self.batch_id, self.decisions)
            else:
                self._unwritten.append(name)
        return self.decisions[name]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is decided inside is written down together, as it ends: each time is a wait for the
        disk. Nothing that depends on it may be done inside."""
        self._unwritten = []
        try:
            yield
            if self._unwritten:
                write_decision(self.folder, self.batch_id, self.decisions)
        finally:
            self._unwritten = None

    def load(self) -> Batch:
        """Read the decisions of an earlier attempt, if there was one."""
        if decisions_file(self.folder, self.batch_id).exists():
            self.decisions = decided(self.folder, self.batch_id)
        return self

    def record(self, error: str | None = None) -> BatchRecord:
        """What became of this attempt, for telemetry; `error`: the kind of what ended it."""
        began, now = self.started_at.timestamp(), clock.time()
        return BatchRecord(self.job, self.query_id, self.batch_id, began, now, dict(self.counts),
                           dict(self.rows), self.replayed, tuple(self.commits), error)  # fmt: skip

    def ledger_row(self) -> dict[str, Any]:
        """The batch as a row of `ops.ledger`."""
        return {
            "job": self.job,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "started_at": self.started_at.isoformat(),
            "finished_at": clock.now().isoformat(),
            "offsets": self.offsets,
            "rows_read": self.counts.get("read"),
            "rows_written": self.rows,
            "rows_dead": self.counts.get("dead"),
            "rows_late": self.counts.get("late"),
            "versions": self.versions,
            "pack": self.decisions.get("pack"),
            "decisions": json.dumps(self.decisions),
            "replayed": self.replayed,
        }


Work = Callable[[DataFrame, Batch], None]
