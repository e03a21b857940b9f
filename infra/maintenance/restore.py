"""A backup put in the place of a home, or beside it, in steps that a crash may interrupt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError, Usage
from infra.maintenance.backup import (
    BESIDE_DATABASE,
    BROKER,
    CHECKED,
    FORM,
    MANIFEST,
    READABLE,
    BackupPart,
    Show,
    backup_parts,
    copy_file,
    digest_of_file,
    files_in,
    has_broker,
)
from infra.storage.paths import FRESH, Location, delete
from infra.streaming.job_lock import LOCK_NAME


def restore(settings: Settings, made: Path, show: Show = lambda done, total: None) -> int:
    """Put a backup's files where the settings want them; how many.

    Every file is compared with the manifest before the first is put in place: that of a folder
    as it is copied, to wait inside it; that of a bucket where it lies, and once more on its way.
    Raises `Fatal`, and leaves nothing or names what is left, when one is missing or another one,
    or cannot be put in place; `Usage` when something lies where the backup belongs.
    """
    parts = backup_parts(settings)
    manifest = read_manifest(made, parts)
    for part in parts:
        if part.name == BROKER and not has_broker(manifest):
            continue  # one may have been made for this home already
        if (something := _something(part)) is not None:
            raise Usage(f"{something}: something is there; restore onto an empty home")
    steps = _Steps()
    try:
        # It says how far the lake that was here is looked at; of this one nothing is yet.
        (settings.home.absolute() / CHECKED).unlink(missing_ok=True)
        _Restore(made, manifest["files"], parts, steps, show).run()
    except BaseException as error:
        # After a Ctrl-C as well, which is no `Exception`.
        left = ", ".join(str(location) for location in steps.undo())
        if not left and not isinstance(error, (OSError, Fatal)):
            raise
        described = isinstance(error, HeadgateError)
        message = (
            str(error) if described else f"{made}: cannot be restored: {str(error) or repr(error)}"
        )
        rest = f"what was put there could not be taken back, delete it: {left}"
        raise Fatal(f"{message}; {rest if left else 'nothing was restored'}") from None
    return len(manifest["files"])


class _Steps:
    """What a restore has done so far, and how it is undone."""

    def __init__(self) -> None:
        self._taken: list[tuple[Location, Callable[[], object]]] = []

    def add(self, what: Location, undo: Callable[[], object]) -> None:
        """Note a step."""
        self._taken.append((what, undo))

    def undo(self) -> list[Location]:
        """Undo all, the last one first; of what that failed."""
        left = []
        while self._taken:
            what, undo = self._taken.pop()
            try:
                undo()
            except Exception:  # whatever is said of this one: the others can be undone
                left.append(what)
        return left


class _Restore:
    """One restore, onto places that are empty."""

    def __init__(
        self,
        made: Path,
        files: dict[str, dict[str, Any]],
        parts: tuple[BackupPart, ...],
        steps: _Steps,
        show: Show,
    ) -> None:
        self._made = made
        self._files = files
        self._parts = parts
        self._steps = steps
        self._show = show
        self._far: dict[str, Location] = {}
        """Files that go into a bucket, and where."""
        self._near: dict[str, Path] = {}
        """The other ones, and where they wait."""
        self._used: dict[BackupPart, Path] = {}
        """Where each part waits that has files of these."""
        for name in files:
            part, rest = _part_of(name, parts)
            if part.stage is None:
                self._far[name] = part.place / rest
            else:
                self._near[name], self._used[part] = part.stage / rest, part.stage
        # What goes into a bucket is read twice.
        self._total = sum(files[name]["bytes"] for name in (*files, *self._far))
        self._done = 0

    def run(self) -> None:
        """Compare everything, then put it in place."""
        for part in self._parts:
            _remove(part.stage)  # of a restore that was killed: none of it belongs to this one
        for part, stage in self._used.items():
            self._make_room(part, stage)
        for name in self._far:
            self._take(name, None)
        for name, waiting in self._near.items():
            self._take(name, waiting)
        self._send()  # takes long, so it comes before what is a matter of an instant
        for part, stage in self._used.items():
            self._put(part, stage)
        for stage in self._used.values():
            _remove(stage)

    def _make_room(self, part: BackupPart, stage: Path) -> None:
        """A place to wait in, and nothing in the way of what will."""
        folder = stage.parent
        for parent in reversed(
            [parent for parent in (folder, *folder.parents) if not parent.exists()]
        ):
            parent.mkdir()
            self._steps.add(parent, partial(_remove_empty, parent))
        self._steps.add(stage, partial(_remove, stage))
        if not part.file:
            _without_folders(folder, kept=(FRESH, LOCK_NAME))
            stage.mkdir()

    def _take(self, name: str, target: Location | None) -> None:
        """Compare a file with what the manifest says, and copy it."""
        file, message = self._made / name, self._files[name]
        if not file.is_file():
            raise Fatal(f"{file}: is missing in the backup")
        digest = digest_of_file(file) if target is None else copy_file(file, target)[0]
        if digest != message["sha256"]:
            raise Fatal(f"{file}: is not what was backed up (its digest differs)")
        self._done += message["bytes"]
        self._show(self._done, self._total)

    def _send(self) -> None:
        """Copy what belongs into a bucket."""
        sent: list[Location] = []
        for place in [part.place for part in self._parts if part.stage is None]:
            self._steps.add(place, partial(delete, sent))
        for name, target in self._far.items():
            sent.append(target)
            self._take(name, target)

    def _put(self, part: BackupPart, stage: Path) -> None:
        """Put what waits in its place: by names within a folder, as that may be a mount point."""
        for waiting in [stage] if part.file else sorted(stage.iterdir()):
            name = part.place.name if part.file else waiting.name
            there = waiting.rename(stage.with_name(name))
            self._steps.add(there, partial(there.rename, waiting))


def _something(part: BackupPart) -> Location | None:
    """What lies in a place: a file that a backup would hold, or a link, which would be lost."""
    place = part.place
    if part.file and isinstance(place, Path):
        # SQLite would take what lies beside it for a part of the database that comes.
        beside = (place.with_name(place.name + end) for end in BESIDE_DATABASE)
        return next((path for path in (place, *beside) if path.exists()), None)
    if not place.exists():
        return None
    files = files_in(place)
    if not files and isinstance(place, Path):
        files = [path for path in place.rglob("*") if path.is_symlink()]
    return files[0] if files else None


def _remove(path: Path | None) -> None:
    if path is not None and path.is_dir():
        shutil.rmtree(path)
    elif path is not None:
        path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # another one's, who came meanwhile
        folder.rmdir()


def _without_folders(folder: Path, kept: Sequence[str] = ()) -> None:
    """Delete the empty folders in a folder, and locks. Raises `OSError` for a mount point."""
    for path in folder.iterdir():
        if path.name == LOCK_NAME and path.name not in kept:
            path.unlink()
        elif path.name not in kept:
            _without_folders(path)
            path.rmdir()


def read_manifest(made: Path, parts: Iterable[BackupPart]) -> dict[str, Any]:
    """What a backup says of itself; raises `Usage` for none, `Fatal` for one of another form."""
    try:
        manifest: dict[str, Any] = json.loads((made / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        raise Usage(f"{made}: is no backup of ours (no readable {MANIFEST} in it)") from None
    if manifest.get("form") not in READABLE:
        raise Fatal(f"{made}: has form {manifest.get('form')}, this version restores up to {FORM}")
    is_file = {part.name: part.file for part in parts}
    for name in manifest["files"]:
        head, _, rest = name.partition("/")
        # Whoever can write a manifest must not choose where files of a restore go.
        away = rest.startswith("/") or ".." in Path(name).parts
        if away or is_file.get(head) != (not rest):
            raise Fatal(f"{made / MANIFEST}: names '{name}', which is no part of a backup")
    return manifest


def _part_of(name: str, candidates: Iterable[BackupPart]) -> tuple[BackupPart, str]:
    """Which part a file of a backup belongs to, and its name below that part's path.

    What lies beside the tables, in folders that begin with `_`, is no part of a bucket.
    """
    head, _, rest = name.partition("/")
    parts = [part for part in candidates if part.name == head]
    return parts[-1 if rest.startswith("_") else 0], rest
