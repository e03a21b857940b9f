"""What one look for blind rules leaves to the next, apart from what looks: who only reads it needs
no engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infra.storage.state_file import InstantText, JsonLayout, StateFile

if TYPE_CHECKING:
    from infra.config.settings import Settings


class CoverageReport(msgspec.Struct):
    """A cause that an alert was made of."""

    title: str
    level: str
    since: str
    rules: list[str]
    source: str | None = None
    """The source that is silent; None where it is a field that went."""


class CoverageState(msgspec.Struct):
    """What one look leaves to the next, in `<home>/blind/state.json`."""

    until: InstantText | None = None
    habits: list[dict[str, Any]] = []
    feeds: dict[str, str] = {}
    """When a source and class were last heard, by `source|class`."""
    told: dict[str, CoverageReport] = {}
    closing: dict[str, str] = {}
    """Causes that ended and whose alert is still to be closed, and when they did."""
    blind: dict[str, dict[str, str]] = {}
    """Rules that are blind or partly so: state, since, reason; what `rules list` shows."""

    @classmethod
    def load(cls, folder: Path) -> CoverageState:
        """What the last look left; nothing before the first."""
        return _file(folder).read() or cls()

    def save(self, folder: Path) -> None:
        """Leave it to the next look."""
        _file(folder).write(self)


def _file(folder: Path) -> StateFile[CoverageState]:
    remedy = "remove it: the next look begins as the first one did, and learns anew"
    return StateFile(folder / "state.json", CoverageState, remedy, layout=JsonLayout.COMPACT)


def coverage_folder(settings: Settings) -> Path:
    """Where looks keep what they need."""
    return settings.home.absolute() / "blind"
