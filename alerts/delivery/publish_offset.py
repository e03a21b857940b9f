"""Up to which version gold.alert is published: what a topic and a file say of it.

The broker has the place in the transaction with what was sent, so that one counts. The file lies
in job `alert`'s checkpoint and is written when a transaction is through: it goes into a backup,
and is what there is when the broker was lost. Both name the commit besides its number, for a
lake from a backup gives the numbers once more. What waits behind a damaged revision is part of the
place (decision 0040): what is behind it went out, but for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from infra.config.settings import Settings
from infra.delta.log_reader import commit, newest_version, table_id, versions
from infra.errors import Fatal
from infra.storage.paths import Location
from infra.storage.state_file import StateFile

SET = (
    "'headgate alerts published --now' lets only new ones go out, '--up-to VERSION' those behind "
    "a version (-1: all)"
)


@dataclass(frozen=True)
class PublishOffset:
    """The newest version that is published, -1 for none."""

    version: int
    commit: str | None = None
    """What tells its commit from another one of this number; None: not known."""
    compared: bool = False
    """Whether the lake came from a backup, beside a broker that had heard more: what goes out is
    compared with that (`alerts.lifecycle.republish_guard`)."""

    def is_of(self, table: Location) -> bool:
        """Whether the table has that commit, as far as can be told."""
        there = _digest(table, self.version)
        return self.version <= newest_version(table) and (
            # An older release noted no commit, and a cleaned log has none: then the number must do.
            None in (self.commit, there) or self.commit == there
        )

    def text(self, **more: Any) -> str:
        """As it is written down."""
        return json.dumps(self.facts(**more))

    def facts(self, **more: Any) -> dict[str, Any]:
        """The same, as a dictionary."""
        own = {"version": self.version, "commit": self.commit}
        return more | own | ({"compared": True} if self.compared else {})


@dataclass(frozen=True)
class HeldAlert:
    """Revisions of an alert that wait since a damaged one could not go out: `first` to `last`.

    `version`: of gold.alert, which brought the damaged one; `why`: what is wrong with it, empty
    while those behind it are going out.
    """

    first: int
    last: int
    version: int
    why: str


@dataclass(frozen=True)
class AlertOffset(PublishOffset):
    """Up to where gold.alert is published, but for the revisions that are held back, by alert."""

    held: Mapping[str, HeldAlert] = field(default_factory=dict)

    def facts(self, **more: Any) -> dict[str, Any]:
        """The same, as a dictionary."""
        held = {"held": msgspec.to_builtins(self.held)} if self.held else {}
        return super().facts(**more) | held


def of(table: Location, version: int, *, compared: bool = False) -> PublishOffset:
    """The place behind a version of a table."""
    return PublishOffset(version, _digest(table, version), compared)


def alerts_up_to(
    table: Location, version: int, held: Mapping[str, HeldAlert], *, compared: bool = False
) -> AlertOffset:
    """The place behind a version of gold.alert."""
    return AlertOffset(version, _digest(table, version), compared, held)


def read_marker(fields: dict[str, Any]) -> AlertOffset:
    """What `AlertOffset.text` wrote, or an earlier release, which knew the version alone."""
    held = msgspec.convert(fields.get("held") or {}, dict[str, HeldAlert])
    return AlertOffset(
        int(fields["version"]), fields.get("commit"), bool(fields.get("compared")), held
    )


def _digest(table: Location, version: int) -> str | None:
    """What tells a version's commit from another one of its number; None: it cannot be read."""
    try:
        return None if version < 0 else commit(table, version).digest
    except (FileNotFoundError, Fatal):
        return None


def publish_offset_file(settings: Settings) -> Path:
    """The file that keeps the place."""
    return settings.checkpoint_root / "alert" / "published.json"


def read_publish_offset(settings: Settings, table: Location) -> AlertOffset | None:
    """The place that the file keeps; None: there is none for this table. Raises `Fatal` for a
    damaged one."""
    kept = _file(settings).read()
    if kept is None or kept.table != table_id(table):
        return None
    return AlertOffset(kept.version, kept.commit, kept.compared is True, kept.held or {})


def write_publish_offset(settings: Settings, table: Location, place: AlertOffset) -> None:
    """Write the place into the file."""
    compared, held = place.compared or msgspec.UNSET, dict(place.held) or msgspec.UNSET
    _file(settings).write(_Kept(table_id(table), place.version, place.commit, compared, held))


class _Kept(msgspec.Struct, frozen=True):
    """A place as its file has it."""

    table: str | None
    version: int
    commit: str | None = None
    compared: bool | msgspec.UnsetType = msgspec.UNSET
    # An earlier release refuses a file with it, and so does not pass over what is held back.
    held: dict[str, HeldAlert] | msgspec.UnsetType = msgspec.UNSET


def _file(settings: Settings) -> StateFile[_Kept]:
    return StateFile(publish_offset_file(settings), _Kept, f"remove it; then {SET}")


def has_rows(table: Location, version: int) -> bool:
    """Whether rows were added to a table up to a version, as far as its log does not deny it."""
    there = [number for number in versions(table) if number <= version]
    # A log that does not begin at 0 was cleaned; what stood there may well have told something.
    return there[:1] not in ([], [0]) or any(commit(table, number).adds for number in there)
