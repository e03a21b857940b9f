"""The columns of events that searches ask for, of small files, kept in the engine's memory.

A stream commits a small file every second or so. To open one costs more than to look through its
rows, since it tells of some three hundred columns first; and what is asked most is the last hour.
Files never change, so what was read of one is true as long as the table has it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from infra.delta.plain_files import PlainFile
from infra.delta.view_refresh import NearFiles
from infra.spark.sql_text import sql_text

KEPT_TABLE = "silver.event"
_MOST_ROWS = 600_000
"""Of the newest small files; a row takes some 220 bytes, and a tenth of it once it is packed."""
_SMALL_ROWS = 20_000
"""Larger files are read where they lie."""
_AT_ONCE = 64
"""So many files are read for one question; the others of its time where they lie."""
_PACKED_ROWS = 120_000

_PLAIN = (
    "event_uid", "dead_letter_reason", "duplicate_of", "source", "time", "scope", "src_ip",
    "dst_ip", "user_name", "host_name", "mac", "class_uid", "class_name", "activity_name", "status",
    "status_id", "severity", "message", "app_name", "status_code",
    "tenant_uid",
)  # fmt: skip
KEPT_COLUMNS: Mapping[str, str] = {
    **{name: name for name in _PLAIN},
    "query": "{'hostname': query.hostname, 'type': query.type}",
    "http_request": "{'http_method': http_request.http_method, 'url':"
    " {'url_string': http_request.url.url_string, 'hostname': http_request.url.hostname}}",
    "src_endpoint": "{'port': src_endpoint.port, 'hostname': src_endpoint.hostname}",
    "dst_endpoint": "{'port': dst_endpoint.port}",
    "process": "{'name': process.name, 'cmd_line': process.cmd_line}",
    "file": "{'path': file.path}",
    "traffic": "{'bytes': traffic.bytes}",
    "actor": "{'user': {'name': actor.user.name}}",
}
"""What is kept, by name: all that searches and timelines ask of events."""


@dataclass(frozen=True)
class KeptPart:
    """Rows of some files of a table, as a query has them; empty where none are kept."""

    sql: str
    paths: frozenset[str]

    def subquery(self, near: NearFiles, files: Sequence[PlainFile] | None = None) -> str:
        """These rows, and those of the other files here, or of `files` alone of them."""
        others = [
            file for file in (near.files if files is None else files) if file.path not in self.paths
        ]
        if not self.sql:
            return near.subquery(others)
        if not others:
            return self.sql
        read = f"SELECT {_selected()} FROM ({near.subquery(others, named=True)})"
        if near.first not in others:
            # It says which columns there are; its rows are kept, or not asked for.
            read += f" WHERE filename <> {sql_text(near.first.path)}"
        return f"{self.sql} UNION ALL {read}"


class KeptRows:
    """What is kept in one engine; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._generation = 0
        self._unpacked = 0

    def part(self, cursor: duckdb.DuckDBPyConnection, near: NearFiles) -> KeptPart:
        """Keep what is missing of the time asked for, if it is new enough, and give what is there.

        Raises what DuckDB raises for files that are not as the others.
        """
        with self._lock:
            recent = _recent(near.listed)
            missing = [
                file
                for file in near.files
                if file.path in recent and file.path not in self._numbers
            ][:_AT_ONCE]
            if sum(self._sizes.values()) + _rows(missing) > _MOST_ROWS * 3 // 2:
                self._drop(cursor)
            if missing:
                self._load(cursor, near, missing)
            there = {file.path for file in near.listed}
            paths = frozenset(self._numbers.keys() & there)
            if not paths:
                return KeptPart("", paths)
            # No row that another question brings in meanwhile: it may stand in a former file too.
            last = max(self._numbers.values())
            sql = f"SELECT {', '.join(KEPT_COLUMNS)} FROM {self._table} WHERE _file <= {last}"
            gone = [str(number) for path, number in self._numbers.items() if path not in there]
            return KeptPart(f"{sql} AND _file NOT IN ({', '.join(gone)})" if gone else sql, paths)

    def forget(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Let go of all that is kept: a file may have other rows than it had."""
        with self._lock:
            if self._numbers:
                self._drop(cursor)

    @property
    def _table(self) -> str:
        return f"kept.main.event_{self._generation}"

    def _load(
        self, cursor: duckdb.DuckDBPyConnection, near: NearFiles, files: Sequence[PlainFile]
    ) -> None:
        base = max(self._numbers.values(), default=0)
        numbered = "CAST($base + list_position($paths, filename) AS INTEGER) AS _file"
        rows = (
            f"SELECT {numbered}, {_selected()} FROM ({near.subquery(files, named=True)})"
            " WHERE list_contains($paths, filename)"
        )
        params = {"base": base, "paths": [file.path for file in files]}
        if self._numbers:
            cursor.execute(f"INSERT INTO {self._table} {rows}", params)
        else:
            # In memory, and packed there.
            cursor.execute("ATTACH IF NOT EXISTS ':memory:' AS kept (COMPRESS)")
            cursor.execute(f"CREATE OR REPLACE TABLE {self._table} AS {rows}", params)
        for number, file in enumerate(files, base + 1):
            self._numbers[file.path] = number
            self._sizes[file.path] = file.rows
        self._unpacked += _rows(files)
        if self._unpacked >= _PACKED_ROWS:
            self._unpacked = 0
            # Not while another question reads: the next one packs.
            with suppress(duckdb.Error):
                cursor.execute("CHECKPOINT kept")

    def _drop(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Begin anew: most of what is kept is of files that became one, or is old."""
        cursor.execute(f"DROP TABLE IF EXISTS {self._table}")
        self._generation += 1
        self._numbers, self._sizes = {}, {}


def _recent(listed: Sequence[PlainFile]) -> set[str]:
    """The newest small files, up to `_MOST_ROWS`."""
    paths: set[str] = set()
    rows = 0
    for file in listed:
        if not 0 < file.rows <= _SMALL_ROWS:
            continue
        rows += file.rows
        if rows > _MOST_ROWS:
            break
        paths.add(file.path)
    return paths


def _rows(files: Sequence[PlainFile]) -> int:
    return sum(file.rows for file in files)


def _selected() -> str:
    return ", ".join(f"{sql} AS {name}" for name, sql in KEPT_COLUMNS.items())
