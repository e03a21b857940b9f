"""Finds files in folders and decides what becomes of each: the rows of ops.file.

Spark's own file source passes over files that are older than others, knows a file by
its path alone, and takes what is still being written; see decision 0007.
"""

from __future__ import annotations

import glob
import hashlib
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from infra.config.settings import FolderSettings
from infra.errors import Usage
from infra.spark.internals import remote_files
from infra.streaming.lake import Lake
from ingest.parsing.source import lookup
from ingest.pipeline.unreadable_files import RENAMED, TAKEN, UNREAD, lost
from ingest.tables_quality import LANDED

GROUP_FILES = 500
_GROUP_BYTES = 64 * 1024 * 1024
"""Files taken together, which make one batch, have at most this many bytes, or are one."""

TELL_AGAIN = timedelta(hours=1)
"""A file that goes on growing after it was taken is named this often."""

READ_AGAIN = timedelta(hours=1)
"""A file that could not be read, and is there as it was, is taken again after this long."""

SLOW_SECONDS = 60.0
"""A file that is not finished for so long is named."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK = 1024 * 1024


class _SeenFile(NamedTuple):
    """A file as a listing shows it; `modified` is in microseconds since 1970."""

    path: str
    size: int
    modified: int

    @property
    def modified_at(self) -> datetime:
        """The same as a time."""
        return _EPOCH + timedelta(microseconds=self.modified)


class FolderScan(NamedTuple):
    """What one look into the folders came to."""

    taken: int
    known: int
    refused: int
    waiting: tuple[str, ...]
    bytes: int


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's file system, not of an object store."""
    return "://" not in path or path.startswith("file://")


def listing(spark: SparkSession, *patterns: str) -> Iterator[_SeenFile]:
    """The files that folders or patterns name, at any depth below a folder.

    Names that begin with a dot are of those who are still writing; empty files are
    not there yet. Neither is listed.
    """
    for pattern in patterns:
        yield from _local(pattern) if is_local(pattern) else _remote(spark, pattern)


def _local(pattern: str) -> Iterator[_SeenFile]:
    pattern = os.path.abspath(pattern.removeprefix("file://"))
    below = os.path.join(glob.escape(pattern), "**", "*") if os.path.isdir(pattern) else pattern
    names = iter((pattern,)) if os.path.isfile(pattern) else glob.iglob(below, recursive=True)
    # The order of a folder is the file system's; sorted, a second look decides the same.
    for name in sorted(names):
        try:
            status = os.stat(name)
        except OSError:
            continue  # gone since it was listed, or a link to nothing
        if stat.S_ISREG(status.st_mode) and status.st_size:
            yield _SeenFile(name, status.st_size, status.st_mtime_ns // 1000)


def _remote(spark: SparkSession, pattern: str) -> Iterator[_SeenFile]:
    for file in remote_files(spark, pattern):
        if file.size and not file.name.startswith("."):
            yield _SeenFile(file.path, file.size, file.modified_ms * 1000)


def _digest(path: str, size: int | None = None) -> str:
    """SHA-256 of a local file, or of its first `size` bytes."""
    content = hashlib.sha256()
    with open(path, "rb") as file:
        # Only what was there when it was opened: a file that grows would never end.
        left = os.fstat(file.fileno()).st_size if size is None else size
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            content.update(chunk)
            left -= len(chunk)
    return content.hexdigest()


class Scanner:
    """Looks into folders for one job and writes what it decides to ops.file."""

    def __init__(
        self,
        lake: Lake,
        job: str,
        folders: Mapping[str, FolderSettings],
        tell: Callable[[str], None],
    ) -> None:
        for folder in folders.values():
            lookup(folder.source)
        self._lake = lake
        self._job = job
        self._folders = dict(folders)
        self._tell = tell
        self._known = self._seen()
        self._again: dict[int, float] = {}
        self._waiting: dict[str, tuple[_SeenFile, float, float]] = {}
        self._named: set[str] = set()
        self._changed: list[str] = []

    def _seen(self) -> dict[int, int]:
        """Files as they were when they were last decided, without contents that are to be taken
        again. Hashes, not names: a folder may hold a million files."""
        files = self._lake.read(LANDED)
        seen = F.struct("size", F.unix_micros("modified_at"))
        newest = [F.max_by(seen, "found_at").alias("seen")]
        newest += [F.max_by(name, "found_at").alias(name) for name in ("hash", "state")]
        rows = files.groupBy("path").agg(*newest).where(F.col("state") != UNREAD)
        renamed = lost(files).withColumn("state", F.lit(RENAMED))
        rows = rows.join(renamed, ["hash", "state"], "left_anti").select("path", "seen")
        return {hash(row[0]): hash(tuple(row[1])) for row in rows.toLocalIterator()}

    def look_again(self, unread: Sequence[Mapping[str, Any]]) -> None:
        """Contents of which nothing was read are taken again: elsewhere with the next look, at
        their places when they have changed, or after `READ_AGAIN`."""
        if not unread:
            return
        self._known = self._seen()
        for entry in unread:
            modified = (entry["modified_at"].astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
            self._known[hash(entry["path"])] = hash((entry["size"], modified))
            self._again[hash(entry["path"])] = time.monotonic() + READ_AGAIN.total_seconds()

    def look(self, step: Callable[[int], None] = lambda _: None) -> FolderScan:
        """Decide about every file that is new; `step` hears how many bytes were looked at."""
        total = FolderScan(0, 0, 0, (), 0)
        self._changed = []
        for name, folder in self._folders.items():
            ready = self._ready(folder)
            for group in _groups(ready):
                rows = self._decide(name, folder, group)
                states = [row["state"] for row in rows]
                total = FolderScan(
                    total.taken + states.count("taken"),
                    total.known + len(group) - len(rows) + states.count("renamed"),
                    total.refused + states.count("refused"),
                    (),
                    total.bytes + sum(row["size"] for row in rows if row["state"] == "taken"),
                )
                step(sum(piece.size for piece in group))
        return total._replace(waiting=(*self._waiting, *self._changed))

    def _ready(self, folder: FolderSettings) -> Iterator[_SeenFile]:
        """Files that are new or changed, and finished."""
        listed: set[int] = set()
        for candidate in listing(self._lake.spark, *folder.paths):
            # Patterns may overlap, and one with two ** names a file more than once.
            if hash(candidate.path) in listed or not self._is_text(candidate.path):
                continue
            listed.add(hash(candidate.path))
            if self._is_known(candidate):
                continue
            if self._is_finished(candidate, folder.min_file_age_seconds):
                self._waiting.pop(candidate.path, None)
                yield candidate

    def _is_known(self, file: _SeenFile) -> bool:
        """Whether it was decided about as it is now, and not to be looked at again."""
        path = hash(file.path)
        if self._again.get(path, math.inf) < time.monotonic():
            del self._again[path]
            return False
        return self._known.get(path) == hash((file.size, file.modified))

    def _is_text(self, path: str) -> bool:
        """Whether a name can be written down; one that cannot is told."""
        try:
            path.encode()
        except UnicodeEncodeError:
            if path not in self._named:
                self._named.add(path)
                self._tell(f"{path!r}: its name is not UTF-8; it is not read until it is renamed")
            return False
        return True

    def _is_finished(self, file: _SeenFile, settle: float) -> bool:
        """Not written to for `settle` seconds, by its own time or, where that lies, by ours."""
        now = time.monotonic()
        # By the file's own time a file that has long been there is taken with the first look.
        if 0 <= settle <= time.time() - file.modified / 1e6:
            return True
        last, since, first = self._waiting.get(file.path, (None, now, now))
        # A copy that keeps the old time of its file still grows: so size and time must rest.
        if last != file:
            since = now
        self._waiting[file.path] = (file, since, first)
        if now - since >= settle:
            return True
        if now - first > SLOW_SECONDS and file.path not in self._named:
            self._named.add(file.path)
            self._tell(
                f"{file.path}: still grows ({file.size} bytes now); it is read when it is "
                f"finished, {settle:g} s after the last change"
            )
        return False

    def _decide(
        self, name: str, folder: FolderSettings, group: Sequence[_SeenFile]
    ) -> list[dict[str, Any]]:
        hashes = self._hashes(group)
        rows = []
        # Looking and writing must be one step, or two jobs could take the same content.
        with self._lake.alone(LANDED):
            before = _Before.of(self._lake, group, hashes)
            for candidate in group:
                if candidate.path not in hashes:
                    self._changed.append(candidate.path)  # while it was looked at: next time
                    continue
                verdict = before.verdict(candidate, hashes[candidate.path])
                if verdict is not None:
                    rows.append(
                        self._row(name, folder, candidate, hashes[candidate.path], *verdict)
                    )
            if rows:
                named = [tuple(row[column.name] for column in LANDED.columns) for row in rows]
                frame = self._lake.spark.createDataFrame(named, LANDED.schema).coalesce(1)
                frame.write.format("delta").mode("append").save(self._lake.path(LANDED))
        for candidate in group:
            if candidate.path in hashes:
                # Also of files that got no row: they are not hashed again at every look.
                self._known[hash(candidate.path)] = hash((candidate.size, candidate.modified))
        for row in rows:
            if row["state"] == "refused":
                self._tell(f"{row['path']}: {row['reason']}")
        return rows

    def _row(
        self,
        name: str,
        folder: FolderSettings,
        file: _SeenFile,
        content: str,
        state: str,
        reason: str | None,
    ) -> dict[str, Any]:
        return {
            "found_at": datetime.now(UTC),
            "job": self._job,
            "folder": name,
            "path": file.path,
            "size": file.size,
            "modified_at": file.modified_at,
            "hash": content,
            "state": state,
            "reason": reason,
            "source": folder.source,
            "mode": folder.mode,
            "tz": folder.tz,
            "host": folder.host,
            "tenant_uid": folder.tenant,
        }

    def _hashes(self, group: Sequence[_SeenFile]) -> dict[str, str]:
        """Hashes by path, without files that changed meanwhile or cannot be read."""
        if not is_local(group[0].path):
            spark = self._lake.spark
            paths = [escaped_path(candidate.path) for candidate in group]
            content = spark.read.format("binaryFile").load(paths)
            rows = content.select("path", F.sha2("content", 256).alias("hash")).collect()
            return {row["path"]: row["hash"] for row in rows}
        hashes: dict[str, str] = {}
        for candidate in group:
            try:
                content_hash = _digest(candidate.path)
                # Written to while it was hashed: then the hash belongs to no state the file ever
                # had.
                after = os.stat(candidate.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                if candidate.path not in self._named:
                    self._named.add(candidate.path)
                    self._tell(f"{candidate.path}: cannot be read ({error.strerror})")
                continue
            if (after.st_size, after.st_mtime_ns // 1000) == (candidate.size, candidate.modified):
                hashes[candidate.path] = content_hash
        return hashes


def escaped_path(path: str) -> str:
    """A path that Hadoop does not take for a pattern."""
    return "".join(f"\\{letter}" if letter in "\\{}[]*?," else letter for letter in path)


def _groups(ready: Iterator[_SeenFile]) -> Iterator[list[_SeenFile]]:
    group: list[_SeenFile] = []
    size = 0
    for candidate in ready:
        if group and (len(group) >= GROUP_FILES or size + candidate.size > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(candidate)
        size += candidate.size
    if group:
        yield group


class _Before(NamedTuple):
    """What ops.file says of some files: a path's newest row, its last taken one; by content."""

    newest: dict[str, Row]
    taken: dict[str, Row]
    content: dict[str, Row]

    @classmethod
    def of(cls, lake: Lake, group: Sequence[_SeenFile], hashes: Mapping[str, str]) -> _Before:
        """Asks the table once for a group."""
        paths = [candidate.path for candidate in group]
        rows = (
            lake.read(LANDED)
            .where(F.col("path").isin(paths) | F.col("hash").isin(list(hashes.values())))
            # The later row wins below, as dictionaries keep the last value of a key.
            .orderBy("found_at")
            .collect()
        )
        last = {(r["path"], r["hash"]): r["state"] for r in rows if r["state"] in (TAKEN, UNREAD)}
        read = {content for (_, content), state in last.items() if state == TAKEN}
        unread = {content for _, content in last} - read
        taken = [
            row
            for row in rows
            if (row["state"] == TAKEN and last[row["path"], row["hash"]] == TAKEN)
            or (row["state"] == RENAMED and row["hash"] not in unread)
        ]
        return cls(
            {row["path"]: row for row in rows},
            {row["path"]: row for row in taken},
            {row["hash"]: row for row in taken},
        )

    def verdict(self, file: _SeenFile, content: str) -> tuple[str, str | None] | None:
        """What becomes of a file, and why; None: nothing, it is known."""
        last = self.taken.get(file.path)
        if last is not None and last["hash"] == content:
            return None
        other = self.content.get(content)
        # The same content where the old path has it no more was moved, as a rotation does.
        if other is not None and is_local(other["path"]) and not _holds(other):
            return "renamed", f"taken as {other['path']}"
        # The same beginning and more behind it: somebody still writes to it.
        if last is not None and file.size > last["size"] and is_local(file.path):
            try:
                grown = _digest(file.path, last["size"]) == last["hash"]
            except OSError:
                return None
            if grown:
                return self._grown(file, last)
        return "taken", None

    def _grown(self, file: _SeenFile, last: Row) -> tuple[str, str] | None:
        newest = self.newest[file.path]
        if newest["state"] == "refused" and (
            newest["size"] == file.size
            or newest["found_at"].astimezone(UTC) > datetime.now(UTC) - TELL_AGAIN
        ):
            return None
        return "refused", (
            f"still grows: {last['size']} bytes when it was taken, {file.size} now; what was "
            "added is not read. Only finished files belong here; send a log that grows through "
            "Kafka"
        )


def _holds(row: Row) -> bool:
    """Whether a path still holds what was taken there; if not, that was moved."""
    path = Path(row["path"])
    try:
        # The size first: most files that differ are told without reading them.
        return path.stat().st_size == row["size"] and _digest(row["path"]) == str(row["hash"])
    except OSError:
        return False


def require_some(lake: Lake, folders: Mapping[str, FolderSettings]) -> None:
    """Raises `Usage` naming a pattern that no file matches."""
    for pattern in (path for folder in folders.values() for path in folder.paths):
        if next(listing(lake.spark, pattern), None) is None:
            raise Usage(f"{pattern}: no file with anything in it")
