"""Cores by job: the CPU time that batches left in the ledger, as a share of an interval.

Counted are a driver's processes: Python, JVM and Python workers. What several batches used at once
is split evenly among them (`infra.streaming.cpu_meter`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reporting.document.text import number, share

BETWEEN_BATCHES = "(between batches)"
"""What drivers used while no batch ran: their start, asking for new data, planning."""

_Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Cores:
    """What the drivers took in `span` seconds; `seconds` None: no batch told."""

    jobs: _Rows
    span: float

    @property
    def batches(self) -> int:
        """All batches, also those that told nothing."""
        return sum(row["batches"] for row in self.jobs)

    @property
    def measured(self) -> int:
        """Batches that told their CPU time."""
        return sum(row["measured"] for row in self.jobs)

    @property
    def between(self) -> float:
        """CPU seconds without a batch."""
        return sum(row["between_batches"] or 0.0 for row in self.jobs)

    @property
    def seconds(self) -> float | None:
        """CPU seconds of all, with those between batches."""
        if not self.measured:
            return None
        return sum(row["cpu"] or 0.0 for row in self.jobs) + self.between

    @property
    def hours(self) -> float | None:
        """Core-hours."""
        return None if self.seconds is None else self.seconds / 3600

    @property
    def average(self) -> float | None:
        """How many cores that is, over the whole span."""
        return None if self.seconds is None else self.seconds / self.span

    def comparable(self, before: Cores) -> bool:
        """Whether all batches of both periods told theirs: else a rise may be but a better look."""
        return all(c.measured == c.batches > 0 for c in (self, before))

    def by_job(self, before: Cores) -> list[dict[str, Any]]:
        """A row a job, the costliest first, then what was used between batches.

        `before` of a row: its core-hours of the period before, None where that says nothing.
        """
        compared = self.comparable(before)
        earlier = {row["job"]: row["cpu"] for row in before.jobs} | {
            BETWEEN_BATCHES: before.between
        }
        rows = [
            {"job": row["job"], "cpu": row["cpu"], "shared": (row["shared"] or 0.0) / row["cpu"]}
            for row in self.jobs
            if row["cpu"]
        ]
        rows.sort(key=lambda row: -row["cpu"])
        if self.between:
            rows.append({"job": BETWEEN_BATCHES, "cpu": self.between, "shared": None})
        whole = self.seconds or 1.0
        return [
            {
                "job": row["job"],
                "cores": row["cpu"] / self.span,
                "core_hours": row["cpu"] / 3600,
                "before": (earlier.get(row["job"]) or 0.0) / 3600 if compared else None,
                "share": row["cpu"] / whole,
                "shared": row["shared"],
            }
            for row in rows
        ]

    def note(self) -> str:
        """What the figures leave out and how far they are exact, in sentences."""
        sentences = [
            "Counted are the drivers' processes: Python, JVM and Python workers. Not counted: "
            "maintenance and other commands, API, listeners and broker."
        ]
        shared = sum(row["shared"] or 0.0 for row in self.jobs)
        if shared and self.seconds:
            sentences.append(
                f"{share(shared / self.seconds)} of it was used while batches of several jobs ran "
                "at once, and is split evenly among them."
            )
        if missing := self.batches - self.measured:
            sentences.append(
                f"{number(missing)} of {number(self.batches)} batches have no CPU time (an earlier "
                "release, a cluster, or a system without /proc): all figures are too low by these."
            )
        return " ".join(sentences)
