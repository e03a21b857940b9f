"""What became of each batch, for whoever wants to hear it; nobody does unless settings say so.

Loads neither Protobuf nor an HTTP client: each job notes its batches here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BatchRecord:
    """One attempt at a batch; times are seconds since 1970. `error`: what kind ended it, if any."""

    job: str
    query_id: str
    batch_id: int
    began: float
    ended: float
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows `read`, `dead` and `late`, as far as the job counts them."""
    rows_written: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    commits: Sequence[tuple[str, float, float]] = ()
    """Table, beginning and end of each commit."""
    error: str | None = None


_hear: Callable[[BatchRecord], None] | None = None


def hear_batches(hear: Callable[[BatchRecord], None] | None) -> None:
    """Let `hear` have each batch of this process from now on; it must not wait. None: nobody."""
    global _hear  # one driver a process
    _hear = hear


def batch_ended(record: BatchRecord) -> None:
    """Hand a batch on."""
    if _hear is not None:
        _hear(record)
