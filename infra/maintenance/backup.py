"""Lake, checkpoints and what waits for others, copied together and put back together.

They belong to one instant: a checkpoint older than its tables is refused at the next start,
one that is newer would leave rows out. So a backup is taken while no job runs, and each
file's digest is kept: what comes back is what was there, or nothing. A broker of one's own has
its own replication; one whose folder lies in the home, as the demo's, is copied when it rests.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.delta.log_archive import ARCHIVE, READ
from infra.errors import Fatal, NoLakeHere, Retryable, Usage
from infra.kafka.client import require_broker
from infra.storage.atomic_files import write_whole
from infra.storage.file_lock import ExclusiveLock, Taken
from infra.storage.paths import HOME, Location, below, make, there, tree
from infra.streaming.job_lock import LOCK_NAME, already_runs
from infra.streaming.kafka_offsets import OffsetReader, backlog, kafka_checkpoint

MANIFEST = "manifest.json"
FORM = 2
"""Changes when an older version could not restore what a newer one wrote."""
READABLE = (1, FORM)
"""Forms that this version restores; in 1 neither webhooks nor certificates were kept."""
_CHUNK = 4 * 1024 * 1024
BESIDE_DATABASE = ("-wal", "-shm", "-journal")
"""Ends of the names of what SQLite keeps beside a database that is in use."""
ASKED_SECONDS = 5.0
"""So long a broker may take to say what is unread."""

STAGE = ".restoring"
"""Below a place, so that it is of the same file system: what a restore is about to put there."""

Show = Callable[[int, int], None]
"""Hears how many bytes of how many are done."""


@dataclass(frozen=True)
class BackupPart:
    """Something that is kept: its name in a backup and where it lies."""

    name: str
    path: Location
    file: bool = False
    """Whether it is a single file, a database of SQLite; else a folder, or a prefix in a bucket."""

    @cached_property
    def place(self) -> Location:
        """Where it lies, also where a link names it."""
        return self.path.resolve() if isinstance(self.path, Path) else self.path

    @cached_property
    def stage(self) -> Path | None:
        """Where its files wait for the others of a restore; None for a bucket."""
        if not isinstance(place := self.place, Path):
            return None
        return place.with_name(f".{place.name}{STAGE}") if self.file else place / STAGE


def backup_parts(settings: Settings) -> tuple[BackupPart, ...]:
    """What a backup holds. Settings and rules of your own are yours to keep."""
    home = settings.home.absolute()
    in_folder = settings.lake_side == settings.lake_root
    return (
        BackupPart("lake", settings.lake_root),
        # Of one name: so a backup of a lake in a bucket becomes one in a folder, and back.
        *(() if in_folder else (BackupPart("lake", settings.lake_side),)),
        BackupPart("checkpoints", settings.checkpoint_root),
        BackupPart("spool", home / "spool"),
        BackupPart("erasures", home / "erasures"),
        BackupPart("redelivery.sqlite", home / "redelivery.sqlite", file=True),
        BackupPart("webhooks.sqlite", home / "webhooks.sqlite", file=True),
        BackupPart(BROKER, home / BROKER),
    )


BROKER = "kafka"
"""The folder of a broker that the home has for itself (`infra.kafka.client.Broker`), and that
part."""
CHECKED = "ledger/check.json"
"""What a check of the ledger leaves to the next one (`ingest.completeness.ledger_state`)."""
KAFKAS_LOCK = ".lock"
"""Held by a broker that runs, in the folder of its log. Who opened it again would lose it."""


def backup(settings: Settings, folder: Path, show: Show = lambda done, total: None) -> Path:
    """Copy everything into a new folder below `folder`, named by the time; that folder.

    No job begins meanwhile. Raises `Fatal` while one runs, or when there is no lake.
    """
    if not there(settings.lake_root):
        raise NoLakeHere(f"{settings.lake_root}: there is no lake here to back up")
    inside = [part for part in backup_parts(settings) if _inside(folder, part.path)]
    if inside:
        raise Usage(f"{folder}: lies inside {inside[0].path}, which is to be copied")
    with _quiet(settings):
        instant = datetime.now(UTC)
        made = folder.absolute() / f"headgate-{instant:%Y%m%dT%H%M%SZ}"
        if made.exists():
            raise Usage(f"{made}: is there already")
        # Another name until it is whole: what has the name of a backup can be restored.
        partial = made.with_name(f".{made.name}")
        manifest = {"form": FORM, "at": instant.isoformat(), "kafka": _places(settings)}
        try:
            with _resting(settings) as parts:
                manifest["files"] = _copied(parts, partial, show)
            write_whole(partial / MANIFEST, json.dumps(manifest, indent=1))
            partial.rename(made)  # whole from here on
        except OSError as error:
            raise Fatal(f"{made}: no backup was made: {error}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return made


@contextmanager
def _resting(settings: Settings) -> Iterator[tuple[BackupPart, ...]]:
    """What can be copied now: without the home's broker where it runs. It does not begin inside."""
    parts = backup_parts(settings)
    own = next(part for part in parts if part.name == BROKER)
    lock = own.path / "log" / KAFKAS_LOCK
    if not isinstance(lock, Path) or not lock.parent.is_dir():
        yield tuple(part for part in parts if part != own)
        return
    with lock.open("a+b") as held:  # made where it is missing, so that none begins inside
        _leave(lock)
        try:
            # Not `flock`: Kafka's lock is Java's, a POSIX lock, which a `flock` does not see.
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            parts = tuple(part for part in parts if part != own)
        yield parts


def has_broker(manifest: dict[str, Any]) -> bool:
    return any(name.startswith(f"{BROKER}/") for name in manifest["files"])


def left_at(made: Path) -> str | None:
    """What a backup does not hold, in a sentence; None: nothing that is known of."""
    manifest = json.loads((made / MANIFEST).read_text("utf-8"))
    if has_broker(manifest) or not manifest["kafka"]["offsets"]:
        return None
    unread = manifest["kafka"]["unread"]
    if unread is None:
        return "the broker did not say how much is not read yet; that is only in the broker"
    return f"{unread:,} messages are not read yet; they are only in the broker" if unread else None


@contextmanager
def _quiet(settings: Settings) -> Iterator[None]:
    """While inside, no job of ours can begin; raises `Taken` when one runs."""
    root = settings.checkpoint_root
    try:
        alone = ExclusiveLock(root / LOCK_NAME, lambda holder: f"{root}: {_AT_WORK}")
    except Taken:
        for lock in sorted(root.glob(f"*/{LOCK_NAME}")):
            job = lock.parent.name
            ExclusiveLock(lock, already_runs(lock.parent, job)).release()  # says which one it is
        raise
    try:
        _leave(root / LOCK_NAME)
        yield
    finally:
        alone.release()


_AT_WORK = "a driver, a job or another backup is at work on this home; stop it, or wait for it"


def _leave(lock: Path) -> None:
    """Let the jobs have a lock file that root was the first to make."""
    if os.geteuid() == 0:
        owner = lock.parent.stat()
        os.chown(lock, owner.st_uid, owner.st_gid)


def _places(settings: Settings) -> dict[str, Any]:
    """Where job ingest stood in Kafka, and the ids of the topics: what a person may ask later.

    `unread`: how many messages it had yet to read; None where the broker does not say.
    """
    checkpoint_folder = kafka_checkpoint(settings.checkpoint_root / "ingest")
    offsets = {
        f"{topic}:{partition}": end for (topic, partition), end in checkpoint_folder.offsets.items()
    }
    unread = None
    with suppress(Retryable, Fatal):
        if checkpoint_folder.done is not None:
            require_broker(settings.kafka, ASKED_SECONDS)
            kafka = settings.kafka
            unread = backlog(checkpoint_folder, OffsetReader(kafka), kafka, but=(kafka.tick_topic,))
    return {"offsets": offsets, "topic_ids": dict(checkpoint_folder.ids), "unread": unread}


def _copied(parts: tuple[BackupPart, ...], to: Path, show: Show) -> dict[str, dict[str, Any]]:
    pairs = [
        (
            source,
            f"{part.name}/{below(part.path, source)}" if part.path.is_dir() else part.name,
        )
        for part in parts
        for source in files_in(part.path)
    ]
    total, done = sum(source.stat().st_size for source, _ in pairs), 0
    results = {}
    databases = {part.path for part in parts if part.file}
    for source, name in pairs:
        copy = _copy_database if source in databases else copy_file
        digest, size = copy(source, to / name)
        results[name] = {"sha256": digest, "bytes": size}
        done += size
        show(done, total)
    return results


def _inside(folder: Path, path: Location) -> bool:
    return isinstance(path, Path) and folder.resolve().is_relative_to(path.resolve())


def files_in(path: Location) -> list[Location]:
    if path.is_file():
        return [path]
    return [
        file
        for file in tree(path)
        # Former versions that were made readable are links to files that are copied anyway.
        if file.name not in (LOCK_NAME, KAFKAS_LOCK)
        and below(path, file).partition("/")[0] != STAGE
        and f"/{ARCHIVE}/{READ}/" not in str(file)
        # In a bucket it names the home, which has it too and may be another one later.
        and (isinstance(file, Path) or file != path / HOME)
    ]


def copy_file(source: Location, target: Location) -> tuple[str, int]:
    """Copy a file; its SHA-256 and its bytes. Times stay where both are files of this machine."""
    make(target.parent)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("wb") as write:
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            write.write(chunk)
        # A backup that was told of has to outlast a power cut.
        if isinstance(target, Path):
            write.flush()
            os.fsync(write.fileno())
    if isinstance(source, Path) and isinstance(target, Path):
        shutil.copystat(source, target)
    return digest.hexdigest(), size


def _copy_database(source: Location, target: Location) -> tuple[str, int]:
    """Copy a database whole, also what was committed and lies beside it still, as after a kill."""
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    make(target.parent)
    try:
        with (
            closing(sqlite3.connect(source, timeout=60)) as live,
            closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # nothing beside the copy
    except sqlite3.Error as error:
        raise Fatal(f"{source}: cannot be copied ({error}); no backup was made") from None
    with target.open("rb+") as written:
        os.fsync(written.fileno())
    shutil.copystat(source, target)
    return digest_of_file(target), target.stat().st_size


def digest_of_file(file: Path) -> str:
    with file.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()
