"""Keeping what checks came to: rows of ops.quality, and what the next run must know."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import Retryable
from infra.storage.state_file import InstantText, JsonLayout, StateFile
from infra.streaming.outbox import put_row

if TYPE_CHECKING:
    import duckdb

    from infra.config.settings import Settings
    from ingest.quality.outcome import Outcome

HISTORY = """
SELECT run_at, suite, expectation, passed, checked, unexpected, examples
FROM ops.quality
WHERE ($since IS NULL OR run_at >= $since) AND ($until IS NULL OR run_at < $until)
  AND (NOT $failed OR NOT passed)
ORDER BY run_at DESC, passed, suite, expectation LIMIT $most
"""


_REMEDY = "remove it: the next run begins as the first one did, and tells again what fails"


@dataclass
class QualityState:
    """What one run leaves to the next, in `<home>/quality/state.json`."""

    until: InstantText | None = None
    """Up to where rows were checked, ISO text."""
    failing: dict[str, str] = field(default_factory=dict)
    """Expectations that failed when last checked, and the run they first did."""
    silent: dict[str, str] = field(default_factory=dict)
    """Sources that were named silent, and since when they are."""
    told: dict[str, list[str]] = field(default_factory=dict)
    """Of the last 30 days, as of when a silence of each source was told."""

    @classmethod
    def load(cls, folder: Path) -> QualityState:
        """What the last run left; nothing before the first."""
        return _file(folder).read() or cls()

    def save(self, folder: Path) -> None:
        """Leave it to the next run."""
        _file(folder).write(self)


def _file(folder: Path) -> StateFile[QualityState]:
    return StateFile(folder / "state.json", QualityState, _REMEDY, layout=JsonLayout.SORTED)


def quality_folder(settings: Settings) -> Path:
    """Where runs keep what they need."""
    return settings.home.absolute() / "quality"


def spool_of(settings: Settings, table: str) -> Path:
    """Where rows wait for the driver, who folds them into `ops.<table>`."""
    return settings.home.absolute() / "spool" / table


@contextmanager
def quality_lock(folder: Path) -> Iterator[None]:
    """The only run; raises `Retryable` when there is another."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            # A lock of the system's goes with its process; a file by its presence would outlive a
            # crash.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Retryable("another quality run is under way; wait until it ends") from None
        yield


def write_outcomes(settings: Settings, outcomes: Sequence[Outcome], run_at: datetime) -> None:
    """Leave the outcomes of a run for ops.quality."""
    spool = spool_of(settings, "quality")
    for number, outcome in enumerate(outcomes):
        row: dict[str, Any] = {
            "run_at": run_at.isoformat(),
            "suite": outcome.suite,
            "expectation": outcome.expectation,
            "passed": outcome.passed,
            "checked": outcome.checked,
            "unexpected": outcome.unexpected,
            "examples": outcome.examples or None,
            "since": outcome.since.isoformat() if outcome.since else None,
            "until": outcome.until.isoformat() if outcome.until else None,
        }
        put_row(spool, f"{run_at:%Y%m%dT%H%M%S%f}-{number}", row)


def outcome_history(
    connection: duckdb.DuckDBPyConnection,
    since: datetime | None,
    until: datetime | None,
    *,
    failed: bool = False,
    most: int = 1_000,
) -> list[dict[str, Any]]:
    """Outcomes of runs in `[since, until)`, the newest run first, its failures before the rest."""
    bounds = {"since": since, "until": until, "failed": failed, "most": most}
    result = connection.execute(HISTORY, bounds)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
