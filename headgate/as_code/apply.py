"""Making changes as one: written down before the first, and finished by whoever comes next.

Rules, lists and switches wait for one pointer to the compiled pack. A driver that starts between a
killed apply and the one that finishes it compiles what is there by then.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from alerts.rulebook.rule_store import recompile
from headgate.as_code.kinds.every import COMPILED, CONFIG_KINDS, kind_named
from headgate.as_code.kinds.kind import FolderReading
from headgate.as_code.state import ConfigChange, field_changes
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.process.os_user import acting_user
from infra.storage.file_lock import ExclusiveLock
from infra.storage.state_file import StateFile
from infra.streaming.outbox import put_row

Reached = Callable[[str], None]
"""Is called before each step with its name; a test ends the process there."""


class ApplyJournal(msgspec.Struct, frozen=True):
    """What an apply is about to do: all of it, so that the folder is not needed again."""

    apply_id: str
    who: str
    started_at: datetime
    folder: str
    changes: tuple[ConfigChange, ...]

    @property
    def sentence(self) -> str:
        """What it is, for people."""
        when = self.started_at.isoformat(timespec="seconds")
        return f"apply of {self.folder} by {self.who}, {when}, {len(self.changes)} changes"


@contextmanager
def one_apply(settings: Settings) -> Iterator[None]:
    """One apply at a time; raises `Taken` for a second."""
    lock = ExclusiveLock(
        _folder(settings) / "lock", lambda pid: f"process {pid} applies a folder; wait for its end"
    )
    try:
        yield
    finally:
        lock.release()


def unfinished_apply(settings: Settings) -> ApplyJournal | None:
    """The apply that ended midway; None where none did."""
    return _journal(settings).read()


def begin_apply(
    settings: Settings,
    reading: FolderReading,
    changes: Sequence[ConfigChange],
    folder: Path,
    reached: Reached,
) -> None:
    """Make changes to what is in force. Ends it midway, they are made by `finish_apply`."""
    apply_id = uuid.uuid4().hex
    # Staged before the journal names it: what a journal tells of is there in full.
    reached("stage")
    staged = _staged(settings, apply_id)
    staged.mkdir(parents=True)
    for change in changes:
        stage = kind_named(change.kind).stage
        if stage is not None:
            stage(reading, change, staged)
    reached("journal")
    now = datetime.now(UTC)
    _journal(settings).write(
        ApplyJournal(apply_id, acting_user(), now, str(folder.absolute()), tuple(changes))
    )
    finish_apply(settings, reached)


def finish_apply(settings: Settings, reached: Reached) -> ApplyJournal | None:
    """Make all changes of the journal, those that were made once more, which changes nothing."""
    journal = unfinished_apply(settings)
    if journal is None:
        _sweep(settings)
        return None
    # What is compiled first: rules, lists and switches come into force together, by one pointer.
    _put_all(settings, journal, [k.name for k in CONFIG_KINDS if k.name in COMPILED], reached)
    if any(change.kind in COMPILED for change in journal.changes):
        reached("compile")
        recompile(settings)
    _put_all(settings, journal, [k.name for k in CONFIG_KINDS if k.name not in COMPILED], reached)
    # Last, so that no act is told of that was not done; a rerun tells of all once more.
    for number, change in enumerate(journal.changes):
        reached(f"audit {change.kind} {change.name}")
        _audit(settings, journal, number, change)
    reached("done")
    _journal(settings).remove()
    _sweep(settings)
    return journal


def _put_all(
    settings: Settings, journal: ApplyJournal, kinds: Sequence[str], reached: Reached
) -> None:
    staged = str(_staged(settings, journal.apply_id))
    for name in kinds:
        kind = kind_named(name)
        changes = [change for change in journal.changes if change.kind == name]
        if changes and kind.is_by_hand:
            raise Fatal(f"{name} {changes[0].name}: {kind.by_hand}")
        if changes and kind.put_all is not None:
            reached(f"{name} {len(changes)}")
            kind.put_all(settings, changes, staged)
        if kind.put is None:
            continue
        for change in changes:
            reached(f"{name} {change.name}")
            kind.put(settings, change, staged)


def _audit(settings: Settings, journal: ApplyJournal, number: int, change: ConfigChange) -> None:
    fields = field_changes(change, kind_named(change.kind).described)
    detail = {"folder": journal.folder, "fields": [field.field for field in fields][:100]}
    put_row(
        settings.home.absolute() / "spool" / "audit",
        # The same name when it is tried again: the row replaces the one that waits.
        f"config-{journal.apply_id}-{number}",
        {
            "at": journal.started_at.isoformat(),
            "who": journal.who,
            "act": f"config.{change.action}",
            "target": f"{change.kind} {change.name}",
            "detail": msgspec.json.encode(detail).decode(),
            "outcome": "ok",
        },
    )


def _journal(settings: Settings) -> StateFile[ApplyJournal]:
    return StateFile(
        _folder(settings) / "journal.json",
        ApplyJournal,
        "it named an apply that ended midway; remove it, and apply the folder again",
    )


def _folder(settings: Settings) -> Path:
    return settings.home.absolute() / "apply"


def _staged(settings: Settings, apply_id: str) -> Path:
    return _folder(settings) / apply_id


def _sweep(settings: Settings) -> None:
    """Remove what an apply kept for itself; one that ended before its journal left it behind."""
    for folder in _folder(settings).glob("*/"):
        shutil.rmtree(folder)
