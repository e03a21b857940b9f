"""Lake, checkpoints and what waits in the spool, copied together and put back together.

They belong to one instant: a checkpoint older than its tables is refused at the next start,
one that is newer would leave rows out. So a backup is taken while no job runs, and each
file's digest is kept: what comes back is what was there, or nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.archive import ARCHIVE, READ
from infra.errors import Fatal, Usage
from infra.files import write_whole
from infra.jobs import Lock
from infra.location import HOME, Location, below, make, there, tree
from infra.offsets import checkpoint
from infra.settings import Settings

MANIFEST = "manifest.json"
FORM = 1
"""Changes when an older version could not restore what a newer one wrote."""
CHUNK = 4 * 1024 * 1024

Show = Callable[[int, int], None]
"""Hears how many bytes of how many are done."""


@dataclass(frozen=True)
class Part:
    """Something that is kept: its name in a backup and where it lies."""

    name: str
    path: Location


def parts(settings: Settings) -> tuple[Part, ...]:
    """What a backup holds. Settings, rules of your own and the broker's log are yours to keep."""
    home = settings.home.absolute()
    in_folder = settings.lake_side == settings.lake_root
    return (
        Part("lake", settings.lake_root),
        # Of one name: so a backup of a lake in a bucket becomes one in a folder, and back.
        *(() if in_folder else (Part("lake", settings.lake_side),)),
        Part("checkpoints", settings.checkpoint_root),
        Part("spool", home / "spool"),
        Part("redelivery.sqlite", home / "redelivery.sqlite"),
    )


def backup(settings: Settings, folder: Path, show: Show = lambda done, total: None) -> Path:
    """Copy everything into a new folder below `folder`, named by the time; that folder.

    Raises `Fatal` while a job runs, or when there is no lake.
    """
    if not there(settings.lake_root):
        raise Fatal(f"{settings.lake_root}: there is no lake here to back up")
    inside = [part for part in parts(settings) if _inside(folder, part.path)]
    if inside:
        raise Usage(f"{folder}: lies inside {inside[0].path}, which is to be copied")
    with _quiet(settings):
        at = datetime.now(UTC)
        made = folder.absolute() / f"headgate-{at:%Y%m%dT%H%M%SZ}"
        if made.exists():
            raise Usage(f"{made}: is there already")
        partial = made.with_name(f".{made.name}")
        manifest = {"form": FORM, "at": at.isoformat(), "kafka": _places(settings)}
        try:
            manifest["files"] = _copied(parts(settings), partial, show)
            write_whole(partial / MANIFEST, json.dumps(manifest, indent=1))
            partial.rename(made)  # whole from here on
        except OSError as error:
            raise Fatal(f"{made}: no backup was made: {error}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return made


@contextmanager
def _quiet(settings: Settings) -> Iterator[None]:
    """While inside, no job of ours can run; raises `Fatal` when one does."""
    with ExitStack() as held:
        for folder in sorted(settings.checkpoint_root.glob("*")):
            if (folder / "lock").exists():
                held.callback(Lock(folder, folder.name).release)
        yield


def _places(settings: Settings) -> dict[str, Any]:
    """Where job ingest stood in Kafka, and the ids of the topics: what a person may ask later."""
    at = checkpoint(settings.checkpoint_root / "ingest")
    offsets = {f"{topic}:{partition}": end for (topic, partition), end in at.offsets.items()}
    return {"offsets": offsets, "topic_ids": dict(at.ids)}


def _copied(wanted: tuple[Part, ...], to: Path, show: Show) -> dict[str, dict[str, Any]]:
    pairs = [
        (
            source,
            f"{part.name}/{below(part.path, source)}" if part.path.is_dir() else part.name,
        )
        for part in wanted
        for source in _files(part.path)
    ]
    total, done = sum(source.stat().st_size for source, _ in pairs), 0
    found = {}
    for source, name in pairs:
        digest, size = _copy(source, to / name)
        found[name] = {"sha256": digest, "bytes": size}
        done += size
        show(done, total)
    return found


def _inside(folder: Path, path: Location) -> bool:
    return isinstance(path, Path) and folder.absolute().is_relative_to(path)


def _files(path: Location) -> list[Location]:
    if path.is_file():
        return [path]
    return [
        file
        for file in tree(path)
        # Former versions that were made readable are links to files that are copied anyway.
        if file.name != "lock"
        and f"/{ARCHIVE}/{READ}/" not in str(file)
        # In a bucket it names the home, which has it too and may be another one later.
        and (isinstance(file, Path) or file != path / HOME)
    ]


def _copy(source: Location, target: Location) -> tuple[str, int]:
    """Copy a file; its SHA-256 and its bytes. Times stay where both are files of this machine."""
    make(target.parent)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("wb") as write:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            write.write(chunk)
        if isinstance(target, Path):
            write.flush()
            os.fsync(write.fileno())
    if isinstance(source, Path) and isinstance(target, Path):
        shutil.copystat(source, target)
    return digest.hexdigest(), size


def restore(settings: Settings, made: Path, show: Show = lambda done, total: None) -> int:
    """Put a backup's files where the settings want them; how many.

    Everything is copied beside its place and compared with the manifest first, what goes into a
    bucket in the last step of all; raises `Fatal`, and leaves nothing, when a file is missing or
    another one, `Usage` when something lies where the backup belongs.
    """
    wanted = parts(settings)
    manifest = _manifest(made, wanted)
    for part in wanted:
        if part.path.exists() and (part.path.is_file() or any(_files(part.path))):
            raise Usage(f"{part.path}: something is there; restore onto an empty home")
    total, done = sum(one["bytes"] for one in manifest["files"].values()), 0
    waiting = {part: _beside(settings, part) for part in wanted}
    _clear(waiting.values())  # of a restore that was killed: none of it belongs to this one
    try:
        for name, told in manifest["files"].items():
            part, rest = _part_of(name, wanted)
            beside = waiting[part] / rest if rest else waiting[part]
            _check(made / name, _copy_of(made / name, beside), told)
            done += told["bytes"]
            show(done, total)
        for part in wanted:
            if waiting[part].exists():
                _take(waiting[part], part.path)
    except OSError as error:
        raise Fatal(f"{made}: cannot be restored: {error}") from None
    finally:
        _clear(waiting.values())
    return len(manifest["files"])


def _clear(waiting: Iterable[Path]) -> None:
    for beside in waiting:
        shutil.rmtree(beside, ignore_errors=True) if beside.is_dir() else beside.unlink(True)


def _manifest(made: Path, wanted: Iterable[Part]) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((made / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        raise Usage(f"{made}: is no backup of ours (no readable {MANIFEST} in it)") from None
    if manifest.get("form") != FORM:
        raise Fatal(f"{made}: has form {manifest.get('form')}, this version restores form {FORM}")
    known = {part.name for part in wanted}
    for name in manifest["files"]:
        if name.partition("/")[0] not in known or ".." in Path(name).parts:
            raise Fatal(f"{made / MANIFEST}: names '{name}', which is no part of a backup")
    return manifest


def _copy_of(source: Path, target: Path) -> str | None:
    try:
        return _copy(source, target)[0]
    except FileNotFoundError:
        return None


def _check(file: Path, digest: str | None, told: dict[str, Any]) -> None:
    if digest is None:
        raise Fatal(f"{file}: is missing in the backup; nothing was restored")
    if digest != told["sha256"]:
        raise Fatal(f"{file}: is not what was backed up (its digest differs); nothing was restored")


def _part_of(name: str, wanted: Iterable[Part]) -> tuple[Part, str]:
    """Which part a file of a backup belongs to, and its name below that part's path.

    What lies beside the tables, in folders that begin with `_`, is no part of a bucket.
    """
    head, _, rest = name.partition("/")
    found = [part for part in wanted if part.name == head]
    return found[-1 if rest.startswith("_") else 0], rest


def _beside(settings: Settings, part: Part) -> Path:
    where = part.path if isinstance(part.path, Path) else settings.home.absolute() / "bucket"
    return where.with_name(f".{where.name}.restoring")


def _take(beside: Path, place: Location) -> None:
    if not isinstance(place, Path):
        for file in tree(beside):
            _copy(file, place / below(beside, file))
        return
    if place.is_dir():
        shutil.rmtree(place)  # empty folders only: `restore` has looked
    beside.rename(place)
