"""The tables and views of an engine that lives long: made anew once a table has changed.

A view has the columns that its table had when it was made. Whether it got others is looked up
with each question, in the commits since the one before: where there are none that costs two looks
at a file, or one request in a bucket. No log is listed for it, however long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import duckdb

from infra.delta.duckdb_views import Definition, needed, refresh
from infra.delta.log_archive import LOG, from_on, single, singles
from infra.delta.plain_files import (
    FEW_FILES,
    Bounds,
    FollowedTables,
    PlainFile,
    Span,
    plain_scan,
    read_for,
)
from infra.storage.paths import Location, location, texts

_MOST = 200
"""So many commits are read for changes of a table; after more its views are made anew anyway."""

_Mark = tuple[int, float]
"""A commit, and when it was written."""


def inlined_views(sql: str, catalogue: Sequence[Definition], tables: Mapping[str, str]) -> str:
    """A statement with subqueries in the places of `tables`, and of the views that rest on them.

    They stand where it names them, so it must name them nowhere else, as before a column.
    """
    # Views rest on what is before them, so from the last on.
    views = [view for view in reversed(catalogue) if view.folder is None]
    for name, query in [*((view.name, view.sql) for view in views), *tables.items()]:
        # A view's own tables are looked for only where it is named: that takes longer.
        if name in sql and not tables.keys().isdisjoint(d.name for d in needed([name], catalogue)):
            sql = re.sub(rf"\b{re.escape(name)}\b", f"({query})".replace("\\", r"\\"), sql)
    return sql


@dataclass(frozen=True)
class NearFiles:
    """The files of a plain table in which rows of a span may be, as it was when it was asked."""

    table: Definition
    columns: Collection[str]
    """What the table has."""
    time: str
    """The column of the span."""
    first: PlainFile
    """Read with whichever others, since it says which columns there are."""
    files: Sequence[PlainFile]
    listed: Sequence[PlainFile]
    """All files of the table, the last committed first."""

    def newest_first(self) -> list[tuple[PlainFile, datetime | None]]:
        """Files, each with the time that none of its rows is after, from the newest down.

        Those whose statistics do not tell are first, with None.
        """
        times = [(file, file.newest(self.time)) for file in self.files]
        unknown = [pair for pair in times if pair[1] is None]
        timed = [(file, newest) for file, newest in times if newest is not None]
        return [*unknown, *sorted(timed, key=lambda pair: pair[1], reverse=True)]

    def scan(self, files: Sequence[PlainFile] | None = None) -> str:
        """The table function that reads these files and the first; None: all here."""
        chosen = self.files if files is None else files
        return plain_scan([self.first, *(file for file in chosen if file is not self.first)])

    def subquery(self, files: Sequence[PlainFile] | None = None, *, named: bool = False) -> str:
        """The table with the rows of these files, and maybe the first; None: of all here.

        `named`: with the column `filename`.
        """
        table = replace(self.table, plain=self.scan(files))
        if named:
            table = replace(table, columns=(*table.columns, ("filename", "VARCHAR")))
        return table.select({*self.columns, "filename"})

    def exactly(self, files: Sequence[PlainFile]) -> str:
        """The table with the rows of these files alone."""
        rows = f"SELECT * EXCLUDE (filename) FROM ({self.subquery(files, named=True)})"
        if self.first in files:
            return f"SELECT * FROM ({rows})"
        path = self.first.path.replace("'", "''")
        return f"SELECT * FROM ({rows} WHERE filename <> '{path}')"


class Views:
    """What an engine has of a lake. Not safe to share between threads."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, catalogue: Iterable[Definition]) -> None:
        self.engine = engine
        self._catalogue = tuple(catalogue)
        self._folders = {
            definition.name: location(definition.folder)
            for definition in self._catalogue
            if definition.folder is not None
        }
        self._rests_on = {
            definition.name: frozenset(
                below.name for below in needed([definition.name], self._catalogue)
            )
            for definition in self._catalogue
        }
        self._followed = FollowedTables(engine)
        self._marks: dict[str, _Mark] = {}
        self._ids: dict[str, str] = {}
        self._narrowed: set[str] = set()
        self._left = {definition.name: "" for definition in self._catalogue}

    @property
    def tables(self) -> Collection[str]:
        """The names of all tables."""
        return self._folders.keys()

    def made(self, names: Iterable[str]) -> bool:
        """Whether all of these are there, as far as was known."""
        return self._left.keys().isdisjoint(names)

    def lacking(self, names: Collection[str]) -> dict[str, str]:
        """Make what is missing of these or has changed; name and reason of what cannot be."""
        rested_on = self._below(names)
        moved = {
            definition.name
            for definition in self._catalogue
            if definition.name in rested_on and self._moved(definition)
        }
        for name, below in self._rests_on.items():
            if not moved.isdisjoint(below):
                self._left[name] = ""
        self._make(
            [
                definition
                for definition in self._catalogue
                if definition.name in rested_on & self._left.keys()
            ]
        )
        return {name: self._left[name] for name in names if name in self._left}

    def versions(self, names: Iterable[str]) -> tuple[_Mark, ...] | None:
        """Which version each table below these was found in; None where one is not known."""
        below = self._below(names)
        tables = sorted(below & self._folders.keys())
        if not self._marks.keys() >= set(tables):
            return None
        return tuple(self._marks[name] for name in tables)

    def whole(self, name: str) -> NearFiles | None:
        """All files of a table, None where these alone do not say what is in it."""
        table = next((d for d in self._catalogue if d.name == name), None)
        folder = self._folders.get(name)
        if table is None or folder is None or table.version is not None:
            return None
        listed = self._followed.followed(folder, table.columns)
        if listed is None:
            return None
        files, columns = listed
        return NearFiles(table, columns, "", files[0], files, files)

    def near(self, within: Mapping[str, Span]) -> dict[str, NearFiles]:
        """Of tables whose files alone say what is in them, the files where a span may be."""
        results = {}
        for name, (time, *ends) in within.items():
            if (whole := self.whole(name)) is not None:
                asked = [{time: (ends[0], ends[1])}]
                files = [file for file in whole.listed if file.may_have(asked)]
                results[name] = replace(whole, time=time, files=files)
        return results

    def narrow(self, names: Iterable[str], asked: Callable[[str], Sequence[Bounds]]) -> None:
        """Let the tables below these be read by those of their files alone in which rows may be
        that are asked for, until `widen`.

        `asked`: of a table, between which bounds these rows lie. A file that is not as the others
        fails the statement; with the tables widened the Delta extension reads it.
        """
        below = self._below(names)
        for table in self._catalogue:
            folder = self._folders.get(table.name)
            if table.name not in below or folder is None or table.version is not None:
                continue
            listed = self._followed.followed(folder, table.columns)
            if listed is None:
                self.widen([table.name])
                continue
            files, columns = listed
            scan = plain_scan(read_for(files, partial(asked, table.name), FEW_FILES))
            select = replace(table, plain=scan).select({*columns, "filename"})
            self._narrowed.add(table.name)
            self.engine.execute(f"CREATE OR REPLACE VIEW {table.name} AS {select}")

    def widen(self, names: Collection[str] | None = None) -> bool:
        """Read these tables, or all, again as they are; False where that is what was done."""
        widened = self._narrowed & (self._narrowed if names is None else set(names))
        self._narrowed -= widened
        self._left |= refresh(self.engine, [d for d in self._catalogue if d.name in widened])
        return bool(widened)

    def identity(self, name: str) -> str:
        """The id of a table that was made, as its log has it; empty where that does not tell."""
        from infra.delta.log_reader import (
            metadata_of,  # late: only who asks needs what reads checkpoints
        )

        if name not in self._ids:
            self._ids[name] = str((metadata_of(self._folders[name]) or {}).get("id", ""))
        return self._ids[name]

    def _below(self, names: Iterable[str]) -> frozenset[str]:
        """These tables and views, and those that they rest on."""
        return frozenset[str]().union(*(self._rests_on.get(name, ()) for name in names))

    def _make(self, views: Collection[Definition]) -> None:
        for definition in views:
            if definition.folder is not None and definition.version is None:
                # Before it is made: what is committed meanwhile is looked at once more.
                self._mark(definition.name)
        failed = refresh(self.engine, views) if views else {}
        for definition in views:
            del self._left[definition.name]
        self._left |= failed

    def _mark(self, name: str) -> None:
        log = self._folders[name] / LOG
        newest = max(singles(log), default=None)
        if newest is not None and (later_commits := from_on(log, newest)):
            self._marks[name] = later_commits[-1]

    def _moved(self, table: Definition) -> bool:
        """Whether a table may have other columns than when its view was made, or be another one."""
        mark = self._marks.get(table.name)
        if mark is None:
            return False
        log = self._folders[table.name] / LOG
        try:
            later_commits = from_on(log, mark[0])
            if (
                # With its time: a table made anew has the same versions, written later.
                later_commits[:1] == [mark]
                and len(later_commits) <= _MOST
                and not _redefined(log, later_commits[1:])
            ):
                self._marks[table.name] = later_commits[-1]
                return False
        except FileNotFoundError:
            pass  # it left the log while it was looked for
        del self._marks[table.name]
        # A table that was made anew has another id.
        self._ids.pop(table.name, None)
        return True


def _redefined(log: Location, commits: Iterable[_Mark]) -> bool:
    result = texts([single(log, version) for version, _ in commits])
    # Delta writes one action a line, and `metaData` only where schema or properties change.
    return any('\n{"metaData"' in f"\n{text}" for text in result)
