"""What retention has taken out of a table, at most: noted beside it before the rows go.

The settings tell what is taken out from now on. What is gone already they do not tell once a
retention was lengthened; and who takes rows that are gone for rows that never were counts wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.config.settings import RetentionSettings, Settings
from infra.errors import Usage
from infra.storage.paths import Location, path_of
from infra.storage.state_file import StateFile

if TYPE_CHECKING:
    from infra.delta.schema import Table

_NOTE = "_expired"
_REMEDY = (
    "it tells what retention took out: put it back from a backup, or remove it, whereupon hours "
    "that were emptied may be counted anew as empty"
)
BY_SOURCE = ("bronze_days", "silver_days")
"""Settings of layers whose sources may have a retention of their own."""
NEVER = datetime.min.replace(tzinfo=UTC)
"""Nothing arrived before it: of a source that is kept, where its family has days of its own."""
# Filled from above: sources are known to a package that this one must not import.
_LOOKUPS: list[Callable[[str], object]] = []


@dataclass(frozen=True)
class Applied:
    """Rows that arrived before these times may be gone: of every source, and of single ones.

    `sources`: by name or family. `zeek` is also that of `zeek:conn`, if this has none of its own.
    """

    every: datetime | None = None
    sources: Mapping[str, datetime] = field(default_factory=dict)

    def of(self, source: str) -> datetime | None:
        """What arrived of a source before it may be gone; None: nothing of it was taken out."""
        return _latest(self.every, self.own(source))

    def own(self, source: str) -> datetime | None:
        """The same by what is said of the source, or else of its family, alone."""
        return self.sources.get(source) or self.sources.get(source.partition(":")[0])

    @property
    def latest(self) -> datetime | None:
        """From then on everything is there, whatever its source."""
        return _latest(self.every, *self.sources.values())

    def further(self, other: Applied) -> Applied:
        """The later of each of two."""
        names = {*self.sources, *other.sources}
        both = {name: (self.own(name), other.own(name)) for name in names}
        return Applied(
            _latest(self.every, other.every),
            {name: _latest(*ats) or NEVER for name, ats in both.items()},
        )


def _latest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time and time != NEVER), default=None)


def retention_limits(retention: RetentionSettings, table: Table, now: datetime) -> Applied:
    """Before when rows of a table go by the settings, in days; 0 keeps for ever, and of a source
    as long as its layer."""
    if table.expires is None:
        return Applied()
    days = getattr(retention, table.expires)
    of_a_source = any(column.name == "source" for column in table.columns)
    single = retention.sources if of_a_source and table.expires in BY_SOURCE else {}
    return Applied(
        now - timedelta(days=days) if days else None,
        {name: now - timedelta(days=days) if days else NEVER for name, days in single.items()},
    )


def require_sources(settings: Settings) -> None:
    """Raises `Usage` for settings of what is no source.

    A retention would keep what is to go, and a zone would leave times in UTC, both in silence.
    """
    named: dict[str, Iterable[str]] = {
        "retention.sources": settings.retention.sources,
        "sources": settings.sources,
    }
    if not any(named.values()):  # loading all parsers takes a while
        return
    for where, names in named.items():
        for name in names:
            try:
                for lookup in _LOOKUPS:
                    lookup(name)
            except Usage as error:
                raise Usage(f"{where}: {error}") from None


def register_source_lookup(lookup: Callable[[str], object]) -> None:
    """Make known what raises `Usage` for a name that is no source."""
    if lookup not in _LOOKUPS:
        _LOOKUPS.append(lookup)


def furthest(settings: Settings, table: str) -> Applied:
    """Of a table by its name, the furthest that maintenance ever went.

    Raises `Fatal` when the note of it is damaged.
    """
    return retention_applied(settings.lake_root / path_of(table))


def retention_applied(folder: Location) -> Applied:
    """The same by the table's folder."""
    file = _file(folder)
    if (written := file.read()) is None:
        return Applied()
    try:
        return Applied(
            datetime.fromisoformat(written.every) if written.every else None,
            {name: datetime.fromisoformat(source) for name, source in written.sources.items()},
        )
    except ValueError as error:
        raise file.damaged(error) from None


def complete_since(settings: Settings, table: Table, now: datetime) -> datetime | None:
    """From then on all that arrived is in a table, whatever its source; None: it always was.

    By the settings, and by what was taken out while they said otherwise.
    """
    return (
        retention_limits(settings.retention, table, now)
        .further(furthest(settings, table.name))
        .latest
    )


def note_retention(folder: Location, limits: Applied) -> None:
    """Write down that rows before `limits` are about to go."""
    before = retention_applied(folder)
    # Only ever further: a retention that was lengthened brings no row back.
    now = before.further(limits)
    if now == before:
        return
    sources = {name: instant.isoformat() for name, instant in sorted(now.sources.items())}
    every = now.every.isoformat() if now.every else None
    _file(folder).write(_Written(every, sources))


@dataclass(frozen=True)
class _Written:
    """`Applied` as its file has it, times as ISO text."""

    every: str | None
    sources: dict[str, str]


def _file(folder: Location) -> StateFile[_Written]:
    return StateFile(folder / _NOTE, _Written, _REMEDY, newer_keys=True)
