"""Tables whose files alone say what is in them, for DuckDB without its Delta extension.

Loading that takes longer than most questions of a person take to answer. What a log has beyond
files of the table's own columns (deleted rows, partitions, renamed columns, a checkpoint in
parts, too much to read here) makes a table one for the extension.

Source of the format: the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from infra.delta.column_types import ColumnType
from infra.delta.log_archive import LOG, from_on, single
from infra.storage.checksums import Damaged, json_lines, read_checked
from infra.storage.paths import Location

if TYPE_CHECKING:
    import duckdb

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MOST_COMMITS = 1_000
_MOST_FILES = 2_000
_MOST_CHECKPOINT_BYTES = 2 * 2**20
"""Above these the extension lists a table faster than Python."""
FEW_FILES = 8
"""To open so many takes no longer than to plan a statement for which of them it needs."""
_ANEW_SECONDS = 60.0
"""After so long a table that was not plain is looked at again."""

_NAMES_SEVERAL = frozenset("*?[]")
"""What DuckDB takes for a pattern in the name of a file."""

Span = tuple[str, datetime, datetime]
"""A column, and the first and last instant of it that are asked for."""


Bounds = Mapping[str, tuple[Any, Any]]
"""Of some columns the least and the greatest value that are asked for, None for no such bound:
times that are aware, whole numbers or texts. Rows that are null there are not asked for."""


class _Unusual(Exception):
    """The extension has to read this table."""


@dataclass(frozen=True)
class PlainFile:
    """A file of a plain table: where it lies, and what the log says of its contents."""

    name: str
    """As the log has it."""
    path: str
    stats: dict[str, Any]

    @property
    def rows(self) -> int:
        """How many it has, by its statistics; 0 where it has none."""
        return int(self.stats.get("numRecords", 0))

    def may_have(self, asked: Sequence[Bounds]) -> bool:
        """Whether a row may be in it that lies within one of these bounds."""
        return any(
            all(self._may_lie(column, *between) for column, between in bounds.items())
            for bounds in asked
        )

    def _may_lie(self, column: str, low: Any, high: Any) -> bool:
        if self.rows and self.stats.get("nullCount", {}).get(column) == self.rows:
            return False
        if isinstance(low, datetime) or isinstance(high, datetime):
            return _overlap(*self.span(column), low, high)
        return stats_allow(self.stats, column, low, high)

    def newest(self, column: str) -> datetime | None:
        """No time of it in a column is after this; None where its statistics do not say."""
        return self.span(column)[1]

    def nulls(self, column: str) -> int | None:
        """How many rows have none in a column; None where its statistics do not say."""
        nulls: int | None = self.stats.get("nullCount", {}).get(column)
        return nulls

    def span(self, column: str) -> tuple[datetime | None, datetime | None]:
        """Between which two all its times in a column are; None where statistics do not say."""
        # Kept: a question looks at each file, and to read a time costs more than to compare it.
        kept: dict[str, Any] = self.stats.setdefault("times", {})
        if column not in kept:
            kept[column] = _times(self.stats, column)
        times: tuple[datetime | None, datetime | None] = kept[column]
        return times


class _Listing:
    """What the actions of a log, oldest first, come to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.files: dict[str, PlainFile] = {}
        self.schema = ""

    def take(self, action: Mapping[str, Any]) -> None:
        """Raises `_Unusual` for what plain tables have not."""
        if add := action.get("add"):
            if add.get("deletionVector") or ":" in add["path"]:
                raise _Unusual
            # By the protocol a relative path is below the table; another stays as it is.
            path = str(self._folder / unquote(add["path"]))
            if _NAMES_SEVERAL & set(path):
                raise _Unusual
            stats = json.loads(add.get("stats") or "{}")
            self.files[add["path"]] = PlainFile(add["path"], path, stats)
        elif remove := action.get("remove"):
            self.files.pop(remove["path"], None)
        elif metadata := action.get("metaData"):
            if metadata.get("partitionColumns"):
                raise _Unusual
            self.schema = metadata["schemaString"]
        elif (protocol := action.get("protocol")) and protocol["minReaderVersion"] != 1:
            raise _Unusual

    def newest_first(self, most: int) -> list[PlainFile]:
        """All files; raises `_Unusual` for more than `most`."""
        if len(self.files) > most:
            raise _Unusual
        return list(self.files.values())[::-1]


class PlainTables:
    """The plain tables of a lake, each as it was when it was first asked for."""

    _most_files = _MOST_FILES
    _most_checkpoint_bytes = _MOST_CHECKPOINT_BYTES

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._files: dict[Location, list[PlainFile] | None] = {}

    def source(
        self,
        folder: Location,
        columns: Sequence[tuple[str, str]],
        asked: Callable[[], Sequence[Bounds]] | None = None,
        few: int = 0,
    ) -> str | None:
        """The table function that reads a table's rows, and `filename`; None: it is not plain.

        `columns`: names and DuckDB's types that its files must have. All rows within one of the
        bounds that `asked` gives are read, of others those that lie in the same files; it is not
        called for a table of at most `few` files, which is read whole.
        """
        if folder not in self._files:
            self._files[folder] = None
            with suppress(_Unusual, Damaged, ValueError, KeyError, OSError):
                self._files[folder] = self._listed(folder, columns)
        files = self._files[folder]
        if not files:
            return None
        return plain_scan(files if asked is None else read_for(files, asked, few))

    def _listed(self, folder: Location, columns: Sequence[tuple[str, str]]) -> list[PlainFile]:
        listing, _ = self._read(folder)
        # The newest first: DuckDB takes the columns from it.
        listed = listing.newest_first(self._most_files)
        if listed:
            self._require_whole(listed[0], _columns(listing.schema), dict(columns))
        return listed

    def _read(self, folder: Location) -> tuple[_Listing, int]:
        """A table by its log, and the version that is."""
        if not isinstance(folder, Path):
            raise _Unusual
        listing = _Listing(folder)
        log = folder / LOG
        checkpoint, since = self._versions(log)
        if checkpoint >= 0:
            for action in self._checkpoint(log / f"{checkpoint:020d}.checkpoint.parquet"):
                listing.take(action)
        for version in since:
            for action in _commit(log, version):
                listing.take(action)
        return listing, max(checkpoint, *since, -1)

    def _require_whole(
        self, file: PlainFile, logged: dict[str, str], stored: dict[str, str]
    ) -> None:
        """Of what the log has, this release and a file must say the same: a file's struct of fewer
        fields would take the others away from all files, in silence."""
        import duckdb

        shared = {name: kind for name, kind in stored.items() if name in logged}
        if any(logged[name] != kind for name, kind in shared.items()):
            raise _Unusual
        typed = ", ".join(f"NULL::{kind} AS {_quoted(name)}" for name, kind in shared.items())
        try:
            if self._types(f"SELECT {typed}") != self._types(
                f"SELECT {', '.join(map(_quoted, shared))} FROM {plain_scan([file])}"
            ):
                raise _Unusual
        except duckdb.Error:
            raise _Unusual from None

    def _types(self, select: str) -> list[Any]:
        return [row[:2] for row in self._connection.execute(f"DESCRIBE {select}").fetchall()]

    @staticmethod
    def _versions(log: Path) -> tuple[int, list[int]]:
        """The newest checkpoint, -1 for none, and the commits since, ascending."""
        names = [file.name for file in log.iterdir()]
        versions = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
        checkpoint = max(
            (int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1
        )
        since = [version for version in versions if version > checkpoint]
        newest = max(checkpoint, versions[-1] if versions else -1)
        # A hole: commits left for the archive, or the checkpoint is of a form not known here.
        if since != list(range(checkpoint + 1, newest + 1)) or len(since) > _MOST_COMMITS:
            raise _Unusual
        return checkpoint, since

    def _checkpoint(self, file: Path) -> Iterator[dict[str, Any]]:
        import duckdb

        if file.stat().st_size > self._most_checkpoint_bytes:
            raise _Unusual
        scan = plain_scan([PlainFile(file.name, str(file), {})])
        sql = f"SELECT protocol, metaData, add FROM {scan}"
        try:
            rows = self._connection.execute(sql).fetchall()
        except duckdb.Error:
            raise _Unusual from None
        for row in rows:
            yield dict(zip(("protocol", "metaData", "add"), row, strict=True))


def read_for(
    files: Sequence[PlainFile], asked: Callable[[], Sequence[Bounds]], few: int
) -> Sequence[PlainFile]:
    """The first of a table's files, which says which columns there are, and those others in which
    rows within one of the bounds may be. What lies in at most `few` files is read whole."""
    if len(files) <= few:
        return files
    bounds = asked()
    return [files[0], *(file for file in files[1:] if file.may_have(bounds))]


class FollowedTables(PlainTables):
    """The same for an engine that lives long: each table as its log is when it is asked for.

    What was read of a log is kept, so that only the commits since are read. Not safe to share
    between threads.
    """

    _most_files = 20_000
    _most_checkpoint_bytes = 32 * 2**20

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(connection)
        self._tables: dict[Location, _Followed] = {}
        self._unusual: dict[Location, float] = {}

    def followed(
        self, folder: Location, columns: Sequence[tuple[str, str]]
    ) -> tuple[list[PlainFile], frozenset[str]] | None:
        """The files of a table and the names of the columns it has; None: it is not plain.

        The first is to be read with whichever others: it says which columns there are.
        """
        if time.monotonic() < self._unusual.get(folder, -math.inf):
            return None
        try:
            return self._whole(self._followed(folder), columns)
        except (_Unusual, Damaged, ValueError, KeyError, OSError):
            self._tables.pop(folder, None)
            # To read a long log for nothing with each question would cost more than it may save.
            self._unusual[folder] = time.monotonic() + _ANEW_SECONDS
            return None

    def _followed(self, folder: Location) -> _Followed:
        followed = self._tables.get(folder)
        if followed is None or not followed.renewed():
            listing, version = self._read(folder)
            mark = from_on(folder / LOG, version)[:1]
            if not mark:
                raise _Unusual
            followed = self._tables[folder] = _Followed(folder / LOG, listing, mark[0])
        return followed

    def _whole(
        self, followed: _Followed, columns: Sequence[tuple[str, str]]
    ) -> tuple[list[PlainFile], frozenset[str]] | None:
        listing = followed.listing
        listed = listing.newest_first(self._most_files)
        if not listed:
            return None
        if followed.schema != listing.schema:
            followed.schema, followed.columns = listing.schema, _columns(listing.schema)
            followed.first = None
        # A file that was looked at stays the first as long as the table has it.
        if followed.first is None or listing.files.get(followed.first.name) is not followed.first:
            self._require_whole(listed[0], followed.columns, dict(columns))
            followed.first = listed[0]
        others = (file for file in listed if file is not followed.first)
        return [followed.first, *others], frozenset(followed.columns)


class _Followed:
    """A log as far as it was read."""

    def __init__(self, log: Location, listing: _Listing, mark: tuple[int, float]) -> None:
        self.listing = listing
        self.schema = ""
        self.columns: dict[str, str] = {}
        self.first: PlainFile | None = None
        self._log = log
        self._mark = mark

    def renewed(self) -> bool:
        """Read the commits since; False when the log is another one, or went too far."""
        later = from_on(self._log, self._mark[0])
        # With its time: a table made anew has the same versions, written later.
        if later[:1] != [self._mark] or len(later) > _MOST_COMMITS:
            return False
        for mark in later[1:]:
            for action in _commit(self._log, mark[0]):
                self.listing.take(action)
            self._mark = mark
        return True


def stats_allow(stats: Mapping[str, Any], column: str, low: Any, high: Any) -> bool:
    """Whether a value of `[low, high]` may be in a file, by the statistics that a log has of it.

    Of a column without any it may. Times are aware.
    """
    if isinstance(low, datetime):
        return _overlap(*_times(stats, column), low, high)
    least = stats.get("minValues", {}).get(column)
    most = stats.get("maxValues", {}).get(column)
    return _overlap(least, most, low, high)


def _overlap(least: Any, most: Any, low: Any, high: Any) -> bool:
    """Whether two spans meet; None: an end that is open, or not known."""
    return (least is None or high is None or least <= high) and (
        most is None or low is None or most >= low
    )


def _times(stats: Mapping[str, Any], column: str) -> tuple[datetime | None, datetime | None]:
    least = stats.get("minValues", {}).get(column)
    most = stats.get("maxValues", {}).get(column)
    cut = timedelta(milliseconds=1)  # statistics cut times to the millisecond
    return _instant(least) if least else None, _instant(most) + cut if most else None


def plain_scan(files: Sequence[PlainFile]) -> str:
    """The table function that reads these files, and `filename`; columns are the first one's."""
    listed = ", ".join("'" + file.path.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], filename = true, hive_partitioning = false)"


def _commit(log: Location, version: int) -> Iterator[dict[str, Any]]:
    for line in json_lines(read_checked(single(log, version))):
        # One action a line with its name in front: others are not parsed.
        if line.startswith(('{"add"', '{"remove"', '{"metaData"', '{"protocol"')):
            yield json.loads(line)


def _columns(schema: str) -> dict[str, str]:
    """The columns of a schema as the log writes it, with DuckDB's types."""
    return {field["name"]: duck_type_of(field["type"]) for field in json.loads(schema)["fields"]}


_DUCK = {
    "string": "VARCHAR",
    "integer": "INTEGER",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "double": "DOUBLE",
    "float": "FLOAT",
    "timestamp": "TIMESTAMPTZ",
    "date": "DATE",
    "binary": "BLOB",
}


def duck_type(kind: ColumnType) -> str:
    """A type as DuckDB calls it."""
    return duck_type_of(kind.jsonValue())


def duck_type_of(kind: Any) -> str:
    """A type as a table's log writes it, as DuckDB calls it; `KeyError` for one we do not use."""
    if isinstance(kind, str):
        return _DUCK[kind]
    if kind["type"] == "array":
        return f"{duck_type_of(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({duck_type_of(kind['keyType'])}, {duck_type_of(kind['valueType'])})"
    inside = [f"{_quoted(field['name'])} {duck_type_of(field['type'])}" for field in kind["fields"]]
    return f"STRUCT({', '.join(inside)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
