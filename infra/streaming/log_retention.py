"""A short Delta log: commits that everybody has read go into the archive
(`infra.delta.log_archive`).

Delta lists the whole folder of a log with every commit, batch and query, and that costs some
20 us a file: with a commit every two seconds, a log of a day would cost each batch seconds
(bench `files`). What stays is what streams have yet to read, and the last minutes for readers
that are at work; from a checkpoint on, as Delta's own clean-up leaves it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from infra.checkpoint.offset_log import numbers, read_up_to
from infra.config.settings import Settings
from infra.delta.log_archive import (
    ARCHIVE,
    LOG,
    READ,
    archive_packs,
    archived,
    checkpoint_file,
    single,
    singles,
)
from infra.delta.log_reader import checkpoints, live_versions, newest_version, table_id
from infra.storage.atomic_files import write_whole
from infra.storage.paths import Location, delete, make, texts
from infra.storage.paths import move as move_files

PACK = 1000
"""Commits in a pack; and between the checkpoints that the archive keeps."""

MOST_COMMITS = 5_000
"""Commits that leave a log at once: a batch waits for it, and an earlier release left long logs."""

READ_SECONDS = 86_400
"""How long a former version that was made readable stays so."""

_KEPT_SECONDS = 30 * 86_400
"""How long commits stay in the archive, as long as Delta would have kept them in the log."""


def retire(settings: Settings, table: Location) -> int:
    """Move what nobody has yet to read out of a table's log; how many commits.

    The caller is alone with the table.
    """
    identity, before = table_id(table), time.time() - settings.maintenance.log_minutes * 60
    first_versions = [first_versions_asked(folder) for folder in settings.checkpoint_root.glob("*")]
    # By the table's id, not its folder: a table made anew there has other versions.
    floors = [versions[identity] for versions in first_versions if identity in versions]
    return archive_commits(table, min(floors, default=newest_version(table)), before)


def archive_commits(table: Location, first_needed: int, before: float) -> int:
    """Move commits below version `first_needed` that were made before a time (seconds since 1970).

    The log goes on from a checkpoint that is itself old enough, so that all that may still be
    asked for can be told from it.
    """
    log, archive = table / LOG, table / ARCHIVE
    usable = [
        checkpoint
        for checkpoint in checkpoints(log)
        if checkpoint <= first_needed
        and single(log, checkpoint).exists()
        and _written(single(log, checkpoint)) <= before
    ]
    # -1 where no checkpoint can be begun from: then nothing is below, and the log stays whole.
    cut = max(usable, default=-1)
    # A log must begin with a checkpoint, or no reader can tell what made the table before.
    below = [version for version in singles(log) if version < cut]
    if not below:
        return 0
    archived_versions = set(archived(table))
    back = _taken_back(
        log, [checkpoint for checkpoint in below if checkpoint in archived_versions], before
    )
    gone = [
        version
        for version in live_versions(table)
        if version < cut and version not in archived_versions
    ][:MOST_COMMITS]
    if gone:
        make(archive)
        # The oldest first: what is left has no hole, whenever this ends.
        move_files([(single(log, checkpoint), single(archive, checkpoint)) for checkpoint in gone])
    if gone or back:
        delete(
            log / beside
            for name in (f"{version:020d}" for version in (*back, *gone))
            # Checksum files: Hadoop's of the commit, Delta's of the version, Hadoop's of that.
            for beside in (f".{name}.json.crc", f"{name}.crc", f".{name}.crc.crc")
        )
        _move_checkpoints(log, archive, min([cut, *live_versions(table)[:1]]), before)
    if gone:
        _pack(table)
    return len(gone) + len(back)


def _taken_back(log: Location, lent: Sequence[int], before: float) -> Sequence[int]:
    """Delete from a log what the archive has as well, once those it was put there for are done."""
    # The first and the last stand for all, as they are lent together.
    if not lent or any(_written(single(log, number)) > before for number in (lent[0], lent[-1])):
        return ()
    delete(single(log, number) for number in lent)
    return lent


def _move_checkpoints(log: Location, archive: Location, cut: int, before: float) -> None:
    newest = max(checkpoints(archive), default=-PACK)
    for version in checkpoints(log):
        if version >= cut:
            return
        file = checkpoint_file(log, version)
        if _written(file) > before:
            continue  # lent to a reader: one of ours would be older than that at the cut
        # The archive keeps one in a thousand; the other checkpoints only repeat what commits say.
        if version - newest >= PACK:
            move_files([(file, checkpoint_file(archive, version))])
            newest = version
        delete([file, log / f".{file.name}.crc"])


def _pack(table: Location) -> None:
    """Make one file of each thousand that is whole."""
    archive = table / ARCHIVE
    waiting = singles(archive)
    for start in sorted({version // PACK * PACK for version in waiting}):
        part = [version for version in waiting if start <= version < start + PACK]
        # A pack's name promises every version between its two ends, so a part with a hole waits.
        whole = part[-1] == start + PACK - 1 and part[-1] - part[0] == len(part) - 1
        if not whole:
            continue
        singly = [single(archive, version_row) for version_row in part]
        lines = [
            json.dumps({"version": version_row, "commit": text})
            for version_row, text in zip(part, texts(singly), strict=True)
        ]
        file = archive / f"{part[0]:020d}-{part[-1]:020d}.commits.gz"
        write_whole(file, gzip.compress("\n".join(lines).encode("utf-8")))
        # Only with the pack whole on disk: a reader looks for the file first, then for the pack.
        delete(singly)


def forget_archived(table: Location, now: float, kept: float = _KEPT_SECONDS) -> int:
    """Delete what left the log too long ago; how many files. The rest begins with a checkpoint."""
    archive = table / ARCHIVE
    for folder in (archive / READ).glob("*") if isinstance(archive, Path) else ():
        if _written(folder) < now - READ_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
    old = [
        number
        for number in checkpoints(archive)
        if _written(checkpoint_file(archive, number)) < now - kept
    ]
    first = max(old, default=-1)
    gone = [file for _, last, file in archive_packs(table) if last < first]
    gone += [single(archive, number) for number in singles(archive) if number < first]
    gone += [checkpoint_file(archive, number) for number in old if number < first]
    delete(gone)
    return len(gone)


def _written(file: Location) -> float:
    return file.stat().st_mtime


def unread_by(settings: Settings, identity: str) -> Iterator[tuple[str, int]]:
    """Each job that reads a table, by the table's id, and the first version it has not read."""
    for folder in sorted(settings.checkpoint_root.glob("*")):
        batch = _done(folder)
        if batch is not None:
            for name, version in read_up_to(_offsets(folder, batch)):
                if name == identity:
                    yield folder.name, version


def first_versions_asked(folder: Path) -> dict[str, int]:
    """Of each table that a job reads, by its id, the first version it asks the log for at a start.

    Spark then lists its last batch once more, also one that was done. `folder`: the job's
    checkpoint. Raises `OSError` or `ValueError` where that is damaged.
    """
    batch = _done(folder)
    if batch is None:
        return {}
    as_list = list(read_up_to(_offsets(folder, batch)))
    with suppress(FileNotFoundError):
        as_list += read_up_to(_offsets(folder, batch - 1))
    return {
        name: min(position for other, position in as_list if other == name) for name, _ in as_list
    }


def _done(folder: Path) -> int | None:
    """The newest batch that a job has ended; before the first, the one that was planned."""
    done = max(numbers(folder / "spark" / "commits"), default=None)
    return min(numbers(folder / "spark" / "offsets"), default=None) if done is None else done


def _offsets(folder: Path, batch: int) -> Path:
    return folder / "spark" / "offsets" / str(batch)
