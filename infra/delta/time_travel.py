"""Tables as they were: which version a table had at an instant, and whether it can still be read.

A version is there as long as the log tells its files and none of them was deleted. What maintenance
promises of that is `maintenance.keep_hours`; here it is looked at, not reckoned.
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from infra.delta.log_archive import (
    ARCHIVE,
    LOG,
    READ,
    archived,
    checkpoint_file,
    modified,
    single,
    singles,
)
from infra.delta.log_archive import archived_text as archived_text
from infra.delta.log_reader import checkpoints, commit_text, live_versions, versions
from infra.errors import Usage
from infra.storage.atomic_files import write_each, write_whole
from infra.storage.paths import Location, file_sizes

if TYPE_CHECKING:
    import duckdb

SingleVersion = Callable[[], AbstractContextManager[None]]
"""How to be the only writer of a table for a while."""


def version_at(name: str, table: Location, at: datetime) -> int:
    """The newest version of a table that was committed up to `at`, an instant with a zone.

    By the times in the commits themselves, which a copy of the files keeps. Raises `Usage` with
    a sentence when there was no such table then, or when the log no longer tells.
    """
    kept = versions(table)
    when = Committed(table)
    position = bisect_right(kept, at, key=when.of)
    if position == 0:
        first = when.of(kept[0]).isoformat(timespec="seconds") if kept else "never"
        if kept and kept[0] == 0:
            raise Usage(
                f"{name}: there was no such table at {_instant_text(at)}; it was made at {first}"
            )
        raise Usage(
            f"{name}: its history at {_instant_text(at)} is no longer kept; it begins at {first}"
        )
    version = kept[position - 1]
    if not _ascending(kept, position, at, when):
        raise Usage(
            f"{name}: which version it had at {_instant_text(at)} is not known: later ones "
            "have earlier times, as after a clock was set back. Ask for an instant "
            "further from then"
        )
    checkpoint_versions = sorted({*checkpoints(table / LOG), *checkpoints(table / ARCHIVE)})
    if not _files_known(kept[:position], checkpoint_versions):
        raise Usage(
            f"{name}: its history at {_instant_text(at)} (version {version}) is no longer kept: "
            "the log lacks what came before"
        )
    return version


def _ascending(kept: Sequence[int], position: int, at: datetime, when: Committed) -> bool:
    """Whether what follows was committed after `at`, as far as a look here and there tells."""
    # At growing distances: each look opens a file, and a clock that was set back shows soon after.
    steps = (position + 2**step - 1 for step in range(len(kept).bit_length() + 1))
    return all(
        when.of(kept[part]) > at for part in (*steps, len(kept) - 1) if position <= part < len(kept)
    )


def require_files(
    engine: duckdb.DuckDBPyConnection, name: str, table: Location, version: int, at: datetime
) -> None:
    """Raises `Usage` when files of a version were deleted since."""
    listed = _names(engine, table, version)
    if isinstance(table, Path):
        gone = sum(not (table / file).exists() for file in listed)
    else:
        # One listing, where asking for each file would be a request each.
        gone = len(set(listed) - file_sizes(table, ".parquet").keys())
    if gone:
        raise Usage(
            f"{name}: as it was at {_instant_text(at)} (version {version}) it can no longer be "
            f"read: {gone} of its {len(listed)} files were deleted since. Maintenance keeps what "
            "left a table for maintenance.keep_hours; ask for a later instant"
        )


def instant_of_version(table: Location, version: int) -> bool:
    """Whether the log alone tells a version, so that any reader of Delta can read it."""
    log = table / LOG
    start = max(
        (checkpoint for checkpoint in checkpoints(log) if checkpoint <= version), default=-1
    )
    # As many commits as there are versions since the checkpoint: none of them is missing.
    return version - start == sum(start < checkpoint <= version for checkpoint in singles(log))


def readable_version(
    engine: duckdb.DuckDBPyConnection,
    table: Location,
    version: int,
    alone: SingleVersion,
    under: Path | None = None,
) -> Location:
    """The folder in which a version of a table can be read: its own, or one made below `under`.

    None: below the table's archive.

    That has a log made of the archive, and links to the files that were part of the table then, as
    far as they are still there. In a bucket, where there are no links, it is the log itself, which
    is lent what left it while `alone` keeps other writers away. Raises `FileNotFoundError` when the
    archive does not reach back.
    """
    if instant_of_version(table, version):
        return table
    if not isinstance(table, Path):
        # No log of its own in a folder: of files elsewhere, which Delta's format allows it to name,
        # DuckDB takes the names for such below the table.
        with alone():
            if not instant_of_version(table, version):
                lend(table, version)
            if not instant_of_version(table, version):
                raise FileNotFoundError(str(table))
        return table
    under = under or table / ARCHIVE / READ
    into = under / str(version)
    if not into.is_dir():
        under.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=".", dir=under))
        try:
            _make(engine, table, version, unfinished)
            # Made beside it and renamed when whole: another process sees all of it or nothing.
            unfinished.replace(into)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            if not into.is_dir():  # of another process that was quicker
                raise
    return into


def _make(engine: duckdb.DuckDBPyConnection, table: Path, version: int, into: Path) -> None:
    log = into / LOG
    log.mkdir()
    places: dict[int, Path] = {
        place: position
        for position in (table / ARCHIVE, table / LOG)
        for place in checkpoints(position)
    }
    start = max((place for place in places if place <= version), default=-1)
    if start >= 0:
        (log / checkpoint_file(log, start).name).symlink_to(
            (places[start] / checkpoint_file(log, start).name).absolute()
        )
    for place in range(max(start, 0), version + 1):
        single(log, place).write_text(commit_text(table, place), "utf-8")
    # The log names deletion vectors in a code of its own, so all of them are linked.
    vectors = [file.name for file in table.glob("deletion_vector_*.bin")]
    for name in (*_names(engine, into, version), *vectors):
        if (table / name).exists():
            (into / name).symlink_to((table / name).absolute())


def _names(engine: duckdb.DuckDBPyConnection, folder: Location, version: int) -> list[str]:
    """The files that make a version of the table in a folder."""
    listed = engine.execute(
        "SELECT data_file FROM delta_list_files($folder, version => $version)",
        {"folder": str(folder), "version": version},
    ).fetchall()
    return [file.rpartition("/")[2] for (file,) in listed]


def bring_back(table: Location, version: int) -> int:
    """Put commits from a version on, and the checkpoint before it, back into the log; how many.

    For a job that was away without a checkpoint that would have held them, as before
    `headgate rebuild sessions`. The caller is alone with the table.
    """
    log, archive, there = table / LOG, table / ARCHIVE, live_versions(table)
    start = max((number for number in checkpoints(archive) if number <= version), default=version)
    gone = [number for number in archived(table) if there and start <= number < there[0]]
    for number in reversed(gone):  # what is there has no hole, whenever this ends
        write_whole(single(log, number), archived_text(table, number))
    if checkpoint_file(archive, start).exists():
        write_whole(checkpoint_file(log, start), checkpoint_file(archive, start).read_bytes())
    return len(gone)


def lend(table: Location, version: int) -> None:
    """Put back into the log of a table what tells one version, for those who read that.

    That is at most some thousand commits and the checkpoint before them, however long ago; what
    came next stays in the archive. Jobs take it out again after `maintenance.log_minutes`
    (`infra.streaming.log_retention`). The caller is alone with the table.
    """
    log, archive = table / LOG, table / ARCHIVE
    start = max((index for index in checkpoints(archive) if index <= version), default=-1)
    here, gone = set(singles(log)), set(archived(table))
    lent = [
        index for index in range(max(start, 0), version + 1) if index in gone and index not in here
    ]
    write_each({single(log, index): archived_text(table, index) for index in lent})
    if start >= 0:
        write_whole(checkpoint_file(log, start), checkpoint_file(archive, start).read_bytes())


class Committed:
    """When the commits of a table were made, each read once."""

    def __init__(self, table: Location) -> None:
        self._table = table
        self._times: dict[int, datetime] = {}

    def of(self, version: int) -> datetime:
        """When a version was committed, UTC. Raises `FileNotFoundError` when its file is gone."""
        if version not in self._times:
            # Delta writes it first; where others do not, the file's own time stands in.
            first = commit_text(self._table, version).partition("\n")[0]
            millis = (json.loads(first or "{}").get("commitInfo") or {}).get("timestamp")
            if millis is None:
                millis = modified(self._table, version) * 1000
            self._times[version] = datetime.fromtimestamp(millis / 1000, UTC)
        return self._times[version]


def _files_known(kept: Sequence[int], checkpoint_versions: Sequence[int]) -> bool:
    """Whether the log tells the files of the last of `kept`: from its beginning or a checkpoint."""
    start = max((number for number in checkpoint_versions if number <= kept[-1]), default=-1)
    return len(kept) >= 1 and kept[-1] - start <= sum(number > start for number in kept)


def _instant_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
