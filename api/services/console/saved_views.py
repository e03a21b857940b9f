"""Views of the alerts that people keep: a name, and the filter as the page's address has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from api.services.act_store import StateFolder
from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.state_file import StateFile

MOST_VIEWS = 40
"""Views of one person: more would be no shorter way to what they want."""
LONGEST_NAME = 60
_LONGEST_QUERY = 2_000


@dataclass(frozen=True)
class _ViewsOfAll:
    views: dict[str, dict[str, str]] = field(default_factory=dict)
    """By person, by name: the query of an address."""


class SavedViews:
    """The views of a home, each its owner's alone; a file that processes share."""

    def __init__(self, settings: Settings) -> None:
        self._file = StateFile(
            settings.home.absolute() / "views.json",
            _ViewsOfAll,
            "put it back from a backup, or remove it and save the views anew",
        )
        self._lock = StateFolder(settings, "views", timedelta(days=1))

    def views_of(self, who: str) -> dict[str, str]:
        """The views of a person, by name in the order of the alphabet."""
        return dict(sorted(self._read().get(who, {}).items(), key=lambda view: view[0].lower()))

    def keep_view(self, who: str, name: str, query: str) -> None:
        """Keep one, in the place of one of that name; raises `Usage`."""
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise Usage(f"name '{name[:80]}': 1 to {LONGEST_NAME} characters that can be printed")
        if len(query) > _LONGEST_QUERY:
            raise Usage(f"the filter has more than {_LONGEST_QUERY} characters")
        with self._lock.alone():
            known = self._read()
            mine = known.get(who, {})
            if len(mine) >= MOST_VIEWS and name not in mine:
                raise Usage(f"{MOST_VIEWS} views are kept; remove one first")
            self._file.write(_ViewsOfAll(known | {who: mine | {name: query}}))

    def remove_view(self, who: str, name: str) -> None:
        """Forget one; there need not be one of that name."""
        with self._lock.alone():
            known = self._read()
            left = {k: v for k, v in known.get(who, {}).items() if k != name}
            self._file.write(_ViewsOfAll(known | {who: left}))

    def _read(self) -> dict[str, dict[str, str]]:
        return (self._file.read() or _ViewsOfAll()).views
