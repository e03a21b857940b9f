"""What retention has taken out of a table, at most: noted beside it before the rows go.

The settings tell what is taken out from now on. What is gone already they do not tell once a
retention was lengthened; and who takes rows that are gone for rows that never were counts wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.errors import Fatal
from infra.files import write_whole
from infra.location import Location
from infra.settings import Settings
from infra.tables import Table, path_of

NOTE = "_expired"


@dataclass(frozen=True)
class Applied:
    """Rows that arrived before these times may be gone: of every source, and of single ones."""

    every: datetime | None = None
    sources: Mapping[str, datetime] = field(default_factory=dict)

    def of(self, source: str) -> datetime | None:
        """What arrived of a source before it may be gone; None: nothing of it was taken out."""
        return max((at for at in (self.every, self.sources.get(source)) if at), default=None)

    @property
    def latest(self) -> datetime | None:
        """From then on everything is there, whatever its source."""
        return max((at for at in (self.every, *self.sources.values()) if at), default=None)

    def further(self, other: Applied) -> Applied:
        """The later of each of two."""
        names = {*self.sources, *other.sources}
        every = max((at for at in (self.every, other.every) if at), default=None)
        both = ((name, (self.sources.get(name), other.sources.get(name))) for name in names)
        return Applied(every, {name: max(at for at in ats if at) for name, ats in both})


def furthest(settings: Settings, table: str) -> Applied:
    """Of a table by its name, the furthest that upkeep ever went. Raises `Fatal` when the note of
    it is damaged."""
    return told(settings.lake_root / path_of(table))


def told(folder: Location) -> Applied:
    """The same by the table's folder."""
    file = folder / NOTE
    try:
        found = json.loads(file.read_text("utf-8"))
        return Applied(
            datetime.fromisoformat(found["every"]) if found["every"] else None,
            {name: datetime.fromisoformat(at) for name, at in found["sources"].items()},
        )
    except FileNotFoundError:
        return Applied()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Fatal(
            f"{file} is damaged ({error}); it tells what retention took out: put it back from a "
            "backup, or remove it, whereupon hours that were emptied may be counted anew as empty"
        ) from None


def complete_since(settings: Settings, table: Table, now: datetime) -> datetime | None:
    """From then on all that arrived is in a table, whatever its source; None: it always was.

    By the settings, and by what was taken out while they said otherwise.
    """
    retention, gone = settings.retention, furthest(settings, table.name).latest
    days = [getattr(retention, table.expires), *retention.sources.values()] if table.expires else []
    limits = [now - timedelta(days=min(kept))] if (kept := [one for one in days if one]) else []
    return max([*limits, gone] if gone else limits, default=None)


def note(folder: Location, limits: Applied) -> None:
    """Write down that rows before `limits` are about to go."""
    before = told(folder)
    now = before.further(limits)
    if now == before:
        return
    sources = {name: at.isoformat() for name, at in sorted(now.sources.items())}
    every = now.every.isoformat() if now.every else None
    write_whole(folder / NOTE, json.dumps({"every": every, "sources": sources}))
