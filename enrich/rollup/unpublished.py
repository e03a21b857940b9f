"""Hours counted anew that the topic `rollups` has not been told yet, by job or by command.

A file each, written before the counts are committed and once more after, so that neither a kill
nor a job that looks in between loses them; the job sends what the table says of them then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from infra.config.settings import Settings
from infra.storage.state_file import StateFile

NOTED, TELLING = ".json", ".telling"

RollupHour = tuple[str, datetime]
"""A part of the counts (`enrich.rollup.reconcile.CountClock.name`) and an hour of it."""


class UnpublishedHours:
    """What one recount is about to change."""

    def __init__(self, settings: Settings, hours: Iterable[RollupHour]) -> None:
        self._file = _file(_folder(settings) / f"{uuid.uuid4().hex}{NOTED}")
        self._hours = [(part, round(instant.timestamp())) for part, instant in hours]
        self._wanted = bool(settings.kafka.rollups_topic)

    def note(self) -> None:
        """Write it down; nothing where there is no topic."""
        if self._wanted:
            self._file.write(self._hours)


def unpublished_hours(settings: Settings) -> Iterator[tuple[Path, list[RollupHour]]]:
    """Files, and the hours in each; to be removed by who has told them.

    Each under another name first: what is noted once more while it is told stays for the next time.
    """
    # Hidden ones are still being written (`infra.storage.atomic_files`).
    for file in _folder(settings).glob(f"[!.]*{NOTED}"):
        file.replace(file.with_suffix(TELLING))
    for file in sorted(_folder(settings).glob(f"[!.]*{TELLING}")):
        hours = _file(file).read() or []
        yield file, [(part, datetime.fromtimestamp(instant, UTC)) for part, instant in hours]


def _file(path: Path) -> StateFile[list[tuple[str, int]]]:
    remedy = "remove it; 'headgate rollup recount' of the span sends what changed once more"
    return StateFile(path, list[tuple[str, int]], remedy)


def _folder(settings: Settings) -> Path:
    return settings.checkpoint_root / "rollup" / "untold"
