"""Tables whose files alone say what is in them, for DuckDB without its Delta extension.

Loading that takes longer than most questions of a person take to answer. What a log has beyond
files of the table's own columns (deleted rows, partitions, renamed columns, a checkpoint in
parts, too much to read here) makes a table one for the extension.

Source of the format: the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from infra.storage.checksums import Damaged, json_lines, sound
from infra.storage.paths import Location

if TYPE_CHECKING:
    import duckdb

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MOST_COMMITS = 1_000
_MOST_FILES = 2_000
_MOST_CHECKPOINT_BYTES = 2 * 2**20
"""Above these the extension lists a table faster than Python."""

_NAMES_SEVERAL = frozenset("*?[]")
"""What DuckDB takes for a pattern in the name of a file."""

Span = tuple[str, datetime, datetime]
"""A column, and the first and last instant of it that are asked for."""


class _Unusual(Exception):
    """The extension has to read this table."""


@dataclass(frozen=True)
class _File:
    path: str
    stats: dict[str, Any]


class PlainTables:
    """The plain tables of a lake, each as it was when it was first asked for."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._files: dict[Location, list[_File] | None] = {}

    def source(
        self, folder: Location, columns: Sequence[tuple[str, str]], span: Span | None
    ) -> str | None:
        """The table function that reads a table's rows, and `filename`; None: it is not plain.

        `columns`: names and DuckDB's types that its files must have. Of `span` all rows are read,
        of other times those that lie in the same files.
        """
        if folder not in self._files:
            self._files[folder] = None
            with suppress(_Unusual, Damaged, ValueError, KeyError, OSError):
                self._files[folder] = self._listed(folder, columns)
        files = self._files[folder]
        if not files:
            return None
        # The first is always read: it says which columns there are.
        others = [file for file in files[1:] if span is None or stats_allow(file.stats, *span)]
        return _scan([files[0], *others])

    def _listed(self, folder: Location, columns: Sequence[tuple[str, str]]) -> list[_File]:
        if not isinstance(folder, Path) or _NAMES_SEVERAL & set(str(folder)):
            raise _Unusual
        files: dict[str, _File] = {}
        schema = ""
        for action in self._actions(folder / _LOG):
            if add := action.get("add"):
                if add.get("deletionVector") or ":" in add["path"]:
                    raise _Unusual
                # By the protocol a relative path is below the table; another stays as it is.
                path = str(folder.absolute() / unquote(add["path"]))
                files[add["path"]] = _File(path, json.loads(add.get("stats") or "{}"))
            elif remove := action.get("remove"):
                files.pop(remove["path"], None)
            elif metadata := action.get("metaData"):
                if metadata.get("partitionColumns"):
                    raise _Unusual
                schema = metadata["schemaString"]
            elif (protocol := action.get("protocol")) and protocol["minReaderVersion"] != 1:
                raise _Unusual
        if len(files) > _MOST_FILES or any(_NAMES_SEVERAL & set(file) for file in files):
            raise _Unusual
        # The newest first: DuckDB takes the columns from it.
        listed = list(files.values())[::-1]
        if listed:
            self._require_whole(listed[0], _columns(schema), dict(columns))
        return listed

    def _require_whole(self, file: _File, logged: dict[str, str], known: dict[str, str]) -> None:
        """Of what the log has, this release and a file must say the same: a file's struct of fewer
        fields would take the others away from all files, in silence."""
        import duckdb

        shared = {name: kind for name, kind in known.items() if name in logged}
        if any(logged[name] != kind for name, kind in shared.items()):
            raise _Unusual
        typed = ", ".join(f"NULL::{kind} AS {_quoted(name)}" for name, kind in shared.items())
        try:
            if self._types(f"SELECT {typed}") != self._types(
                f"SELECT {', '.join(map(_quoted, shared))} FROM {_scan([file])}"
            ):
                raise _Unusual
        except duckdb.Error:
            raise _Unusual from None

    def _types(self, asked: str) -> list[Any]:
        return [row[:2] for row in self._connection.execute(f"DESCRIBE {asked}").fetchall()]

    def _actions(self, log: Path) -> Iterator[dict[str, Any]]:
        """What the newest checkpoint and the commits since tell, oldest first."""
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
        if checkpoint >= 0:
            yield from self._checkpoint(log / f"{checkpoint:020d}.checkpoint.parquet")
        for version in since:
            for line in json_lines(sound(log / f"{version:020d}.json")):
                # One action a line with its name in front: others are not parsed.
                if line.startswith(('{"add"', '{"remove"', '{"metaData"', '{"protocol"')):
                    yield json.loads(line)

    def _checkpoint(self, file: Path) -> Iterator[dict[str, Any]]:
        import duckdb

        if file.stat().st_size > _MOST_CHECKPOINT_BYTES:
            raise _Unusual
        asked = f"SELECT protocol, metaData, add FROM {_scan([_File(str(file), {})])}"
        try:
            rows = self._connection.execute(asked).fetchall()
        except duckdb.Error:
            raise _Unusual from None
        for row in rows:
            yield dict(zip(("protocol", "metaData", "add"), row, strict=True))


def stats_allow(stats: Mapping[str, Any], column: str, low: Any, high: Any) -> bool:
    """Whether a value of `[low, high]` may be in a file, by the statistics that a log has of it.

    Of a column without any it may. Times are aware.
    """
    least = stats.get("minValues", {}).get(column)
    most = stats.get("maxValues", {}).get(column)
    if isinstance(low, datetime):
        cut = timedelta(milliseconds=1)  # statistics cut times to the millisecond
        least = least and _instant(least)
        most = most and _instant(most) + cut
    return (least is None or least <= high) and (most is None or most >= low)


def _scan(files: Sequence[_File]) -> str:
    listed = ", ".join("'" + file.path.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], filename = true, hive_partitioning = false)"


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
