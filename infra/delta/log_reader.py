"""Reading a Delta table's log without Spark: markers, versions, the files of a commit.

A commit that left the log for the archive (`infra.streaming.log_retention`) is read from there.

Source of the format: the Delta transaction log protocol, "Delta Log Entries"
and "Commit Provenance Information".
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from infra.delta import log_archive
from infra.delta.log_archive import LOG
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole
from infra.storage.checksums import Damaged, damaged, objects, read_checked
from infra.storage.paths import Location, list_folder, to_read

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass(frozen=True)
class Commit:
    """One commit: its version, who made it, and what it added."""

    version: int
    user_metadata: str | None
    operation: str | None
    rows: int
    bytes: int
    """Of the files added."""
    at: float
    """When it was made, seconds since 1970 by the clock of who made it; 0 where it does not say."""
    adds: tuple[str, ...]
    changes_data: bool
    replaces: bool
    """Whether it takes files out of the table."""
    stats: tuple[dict[str, Any], ...]
    """Of each file added, what the log says of its contents; empty where it says nothing."""
    digest: str
    """What tells it from another commit of its version, as after a restore."""

    @property
    def appends(self) -> bool:
        """Whether a stream gets rows from it: not from one that puts files in others' place."""
        return self.changes_data and bool(self.adds) and not self.replaces

    @property
    def marker(self) -> dict[str, Any] | None:
        """Our marker, if the commit carries one."""
        try:
            decoded = json.loads(self.user_metadata or "null")
        except ValueError:
            return None
        return decoded if isinstance(decoded, dict) and "job" in decoded else None


def live_versions(table: Location) -> list[int]:
    """Versions whose commits are in the log, ascending and without a hole.

    What is before a hole was leaving for the archive while the folder was read.
    """
    singles = log_archive.singles(table / LOG)
    begins = (
        index
        for index in range(len(singles) - 1, 0, -1)
        if singles[index - 1] != singles[index] - 1
    )
    return singles[next(begins, 0) :]


def versions(table: Location, since: int = 0) -> list[int]:
    """Versions from `since` on whose commits can still be read, ascending."""
    live = live_versions(table)
    if live and live[0] > since:
        before = log_archive.archived(table)
        live = [*before[: bisect_left(before, live[0])], *live]
    return live[bisect_left(live, since) :]


def checkpoints(log: Location) -> list[int]:
    """Versions of which a log, or the archive, lists all that makes the table, ascending."""
    numbered = (_CHECKPOINT.fullmatch(file.name) for file in list_folder(log))
    return sorted(int(named[1]) for named in numbered if named)


def commit_text(table: Location, version: int) -> str:
    """A commit as it was written. Raises `FileNotFoundError` when it is gone, `Fatal` when it is
    damaged."""
    file = log_archive.single(table / LOG, version)
    try:
        try:
            return read_checked(file)
        except FileNotFoundError:
            # Commits move from the log to the archive only, so a look in this order misses none.
            file = log_archive.single(table / log_archive.ARCHIVE, version)
            return log_archive.archived_text(table, version)
    except Damaged as error:
        raise _damaged(file, error) from None


def commit(table: Location, version: int) -> Commit:
    """Read one commit; raises `FileNotFoundError` when it is gone, `Fatal` when it is damaged."""
    try:
        as_text = commit_text(table, version)
        actions = objects(as_text)
    except Damaged as error:
        raise _damaged(log_archive.single(table / LOG, version), error) from None
    info: dict[str, Any] = {}
    adds: list[str] = []
    size = 0
    changes = replaces = False
    stats: list[dict[str, Any]] = []
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "remove" in action:
            replaces = True
        elif "add" in action:
            # The protocol has paths as URIs, and statistics as JSON within a JSON text.
            adds.append(unquote(action["add"]["path"]))
            size += int(action["add"].get("size", 0))
            stats.append(json.loads(action["add"].get("stats") or "{}"))
            # Compaction writes `dataChange` false: the rows are the same, and streams skip them.
            changes = changes or action["add"].get("dataChange", True)
    return Commit(
        version=version,
        user_metadata=info.get("userMetadata"),
        operation=info.get("operation"),
        rows=sum(each.get("numRecords", 0) for each in stats),
        bytes=size,
        at=float(info.get("timestamp", 0)) / 1000,
        adds=tuple(adds),
        changes_data=changes,
        replaces=replaces,
        stats=tuple(stats),
        digest=hashlib.sha256(as_text.encode()).hexdigest()[:16],
    )


def _damaged(file: Location, error: Damaged) -> Fatal:
    return damaged(file, error, "restore lake and checkpoints of one backup")


def newest_first(table: Location) -> Iterator[Commit]:
    """Commits from the newest down, as far as they are kept."""
    there = live_versions(table)
    for version in reversed(there):
        # One that is gone since went into the archive, or for good.
        with suppress(FileNotFoundError):
            yield commit(table, version)
    for version in reversed(log_archive.archived(table)):
        if not there or version < there[0]:
            with suppress(FileNotFoundError):
                yield commit(table, version)


def oldest_version(table: Location) -> int:
    """The oldest version whose commit can be read, -1 when there is no table."""
    return min((*log_archive.archived(table)[:1], *live_versions(table)[:1]), default=-1)


def newest_version(table: Location) -> int:
    """Newest version, -1 when there is no table."""
    return max(live_versions(table), default=-1)


def metadata_of(table: Location) -> dict[str, Any] | None:
    """The newest `metaData` of a table: its schema, properties and id; None where none is found.

    From the commits since the newest checkpoint, else from that checkpoint.
    """
    log = table / LOG
    checkpoint = max(checkpoints(log), default=-1)
    for version in reversed(log_archive.singles(log)):
        if version <= checkpoint:
            break
        for line in log_archive.single(log, version).read_text("utf-8").splitlines():
            # One action a line with its name in front: parsing every line would cost much more.
            if line.startswith('{"metaData"'):
                table_metadata: dict[str, Any] = json.loads(line)["metaData"]
                return table_metadata
    if checkpoint < 0:
        return None
    # Late: what only asks the lake needs no Arrow, whose import takes longer than its question.
    import pyarrow.parquet as pq

    file = to_read(log_archive.checkpoint_file(log, checkpoint))
    rows = pq.read_table(file, columns=["metaData"])
    return next((row for row in rows["metaData"].to_pylist() if row is not None), None)


def table_id(table: Location) -> str:
    """Identity of a Delta table, so that a lake made anew is not taken for the old one.

    Kept beside the data: looking for it in the log takes as long as the log is. Raises `Fatal`
    when that has neither its first commit nor a checkpoint.
    """
    kept = table / "_identity"
    if kept.exists():
        return kept.read_text("utf-8").strip()
    table_metadata = metadata_of(table)
    if table_metadata is None:
        raise Fatal(f"{table}: version 0 of its log is gone; its identity is not known")
    identity = str(table_metadata["id"])
    write_whole(kept, identity)
    return identity
