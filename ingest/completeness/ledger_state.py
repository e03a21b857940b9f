"""What a check of the ledger (`reporting.ledger.check`) leaves to the next one, and to /metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.config.settings import Settings
from infra.storage.state_file import JsonLayout, StateFile

_REMEDY = "remove it: the next check looks at all of bronze, as the first one did"

RepeatedStretch = tuple[str, int, str, int, int, Literal["all", "none"]]
"""A stretch, as the state keeps it."""


@dataclass
class LedgerCheckState:
    """What a check leaves to the next one and to /metrics, in `<home>/ledger/check.json`."""

    at: str | None = None
    """When the last one began, ISO text."""
    passed: bool = True
    missing: int = 0
    repeated: int = 0
    unaccounted: int = 0
    expiring: int = 0
    lost: int = 0
    """Gaps that nobody has accepted."""
    through: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By topic and partition: what its records are named by, and up to which offset it is looked
    at."""
    again: list[RepeatedStretch] = field(default_factory=list)
    """Stretches in which something was missing or stood twice."""
    finished: str | None = None
    """Up to which arrival all was in bronze then."""
    hours: list[str] = field(default_factory=list)
    """Hours of arrival in which records were unaccounted, or were still being written."""

    @classmethod
    def load(cls, folder: Path) -> LedgerCheckState:
        """What the last check left; nothing before the first."""
        return _file(folder).read() or cls()

    def save(self, folder: Path) -> None:
        """Leave it to the next one."""
        _file(folder).write(self)


def _file(folder: Path) -> StateFile[LedgerCheckState]:
    return StateFile(folder / "check.json", LedgerCheckState, _REMEDY, layout=JsonLayout.SORTED)


def ledger_check_folder(settings: Settings) -> Path:
    """Where checks keep what they need."""
    return settings.home.absolute() / "ledger"
