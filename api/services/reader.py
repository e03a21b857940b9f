"""The API's own questions: an in-process DuckDB over the lake, a new snapshot each time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import duckdb

from alerts.domain.tenant_rows import rows_of, views_of
from alerts.tables import ALERT
from api.asking import current_request
from api.services.alert_index import INDEX, AlertIndex
from api.services.searches.kept_rows import KEPT_TABLE, KeptPart, KeptRows
from api.services.searches.search_threads import (
    InFlight,
    SearchThreads,
    at_low_priority,
    interrupted,
)
from api.sql.worker_line import Ended, HungUp
from api.tenant_views import refused_to_tenants
from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, missing_sentence, open_engine
from infra.delta.plain_files import Span
from infra.delta.view_refresh import NearFiles, Views, inlined_views
from infra.errors import NoLakeYet, Retryable, Usage
from infra.storage.paths import bucketed, there
from infra.storage.put_back_mark import put_back_at

_SECONDS = 15.0
"""Longest question of an endpoint but for those about events, which take turns."""
_EVENTS = frozenset({"silver.event", "silver.events", "bronze.record"})
"""Who asks these reads many files."""

FAR_SECONDS = 60.0
"""How often all tables of a bucket are looked at for probes, and whether files were put back: each
is a request that costs money."""
NEAR_SECONDS = 1.0
"""The same of a folder: probes need no token, so many of them must cost no more than one."""

NOT_OURS = "cursor: not one of ours; take 'next' of the page before as it is"

_FIRST_FILES = 16
_MORE_FILES = 8
"""So many files are read for the newest rows at first; where they do not do, so many times more."""

ReaderRow = dict[str, Any]
_Versions = tuple[tuple[int, float], ...] | None

_MOST_KEPT = 128
_MOST_ROWS_KEPT = 1_000
"""Rows of an answer; what has more is no page, and is not kept."""


@dataclass(frozen=True)
class NewestFirst:
    """That a query gives rows by falling time, and only so many of them."""

    table: str
    """Whose files are read from the newest on; no row of another time may come of others."""
    time: str
    """The column of the answer that has the time."""
    rows: int

    def ended(self, rows: Sequence[ReaderRow], rest: datetime | None) -> bool:
        """Whether these are all, where nothing in the files not read is after `rest`."""
        if rest is None or len(rows) < self.rows:
            return False
        last: datetime = rows[self.rows - 1][self.time]
        return last > rest


@dataclass(frozen=True)
class _Question:
    """A statement as it is put to an engine."""

    sql: str
    params: Mapping[str, Any] | None
    seconds: float
    newest: NewestFirst | None
    narrow: bool


@dataclass(frozen=True)
class _Engine:
    """What a question is put to, as the tables are now."""

    cursor: duckdb.DuckDBPyConnection
    versions: _Versions
    near: Mapping[str, NearFiles]


class Reader:
    """Answers SQL over the tables and views by name; safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        tenants: Sequence[str] | None = None,
        threads: SearchThreads | None = None,
    ) -> None:
        """`tenants`: all whose rows are there to be asked; None: every row.

        `threads`: those of the other readers of this process; None: it has its own.
        """
        self.tenants = tenants
        self.threads = threads or SearchThreads(settings.api)
        self._event_seconds = settings.api.statement_seconds
        self._root = settings.lake_root
        self._memory = settings.api.statement_memory
        self._wanted = definitions(settings.lake_root)
        if tenants is not None:
            self._wanted = views_of(tenants, self._wanted)
        self._names = [definition.name for definition in self._wanted]
        # Kept since the start: a lake that was swapped beneath a running API has other ids.
        self._ids: dict[str, str] = {}
        self._ready_until = -math.inf
        self._views: Views | None = None
        self._put_back: float | None = None
        self._put_back_until = -math.inf
        self._index = self._new_index()
        self._lock = threading.Lock()
        self._kept = _KeptAnswers()
        self._kept_rows = KeptRows()
        self._in_flight = InFlight()

    def rows(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        *,
        needs: Sequence[str],
        seconds: float | None = None,
        kept: bool = False,
        within: Mapping[str, Span] | None = None,
        newest: NewestFirst | None = None,
        narrow: bool = False,
    ) -> list[ReaderRow]:
        """The rows of a query as dictionaries, times aware in UTC.

        `needs`: tables and views it reads, or `INDEX`. `kept`: as it was answered before, where
        none of these has another version since; for what many pages ask. Questions about events
        take turns (`api.services.searches.search_threads`), and who asks what is being answered
        has that answer. `within`: of tables, the column and the two instants between which lies
        what it asks of them; files of other times are not opened. `newest`: it gives its newest
        rows alone, so files are read from the newest on, until no row of another one can be among
        them. `narrow`: it asks of events what `api.services.searches.kept_rows` keeps. Raises
        `Retryable` when a table is not there yet or the time is up, `Busy` when its turn does not
        come, `HungUp` when the last who waits for it has hung up, `NotForTenants` for one that
        cannot be limited to `tenants`.
        """
        if self.tenants is not None:
            for name in needs:
                if name not in (*self._names, INDEX):
                    raise refused_to_tenants(name)
        engine = self._engine(needs, within or {})
        key = (sql, repr(params))
        with closing(engine.cursor):
            answer = self._kept.of(key, engine.versions) if kept else None
            if answer is not None:
                return answer
            # What is kept is asked by pages that everybody begins with: it waits for no search.
            long = not kept and not _EVENTS.isdisjoint(needs)
            seconds = seconds or (self._event_seconds if long else _SECONDS)
            question = _Question(sql, params, seconds, newest, narrow)

            def ask(ended: Ended) -> list[ReaderRow]:
                work = partial(self._answer, engine, question, ended)
                return self.threads.run(work, ended) if long else work()

            if engine.versions is None:
                return ask(current_request().gone)
            # Of these versions: who asks after a commit gets no answer from before it.
            rows = self._in_flight.answer((*key, engine.versions), ask)
        if kept:
            self._kept.keep(key, engine.versions, rows)
        # Whoever asks may write into its rows.
        return [dict(row) for row in rows]

    def _new_index(self) -> AlertIndex:
        return AlertIndex(self._root, "TRUE" if self.tenants is None else rows_of(self.tenants))

    def _near_rows(
        self, engine: _Engine, question: _Question, ended: Ended
    ) -> list[ReaderRow] | None:
        """The rows, read from the files that the log names; None where Delta's extension has to."""
        end = time.monotonic() + question.seconds
        rows: list[ReaderRow] = []
        try:
            kept = {}
            # Not for each tenant: what is kept takes memory.
            if question.narrow and self.tenants is None and KEPT_TABLE in engine.near:
                kept = {KEPT_TABLE: self._kept_rows.part(engine.cursor, engine.near[KEPT_TABLE])}
            for tables, rest in _steps(engine.near, kept, question.newest):
                statement = inlined_views(question.sql, self._wanted, tables)
                # A statement may name the scan of a table, since its view has no names of files.
                for files in engine.near.values():
                    statement = statement.replace(files.table.scan, files.scan())
                rows = self._run(engine.cursor, statement, question, end, ended)
                if question.newest and question.newest.ended(rows, rest):
                    break
        except duckdb.Error:
            # A file that is not as the others: the extension knows what it means, or says what is
            # wrong with it.
            return None
        return rows

    def _answer(self, engine: _Engine, asked: _Question, ended: Ended) -> list[ReaderRow]:
        if engine.near:
            rows = self._near_rows(engine, asked, ended)
            if rows is not None:
                return rows
        end = time.monotonic() + asked.seconds
        try:
            return self._run(engine.cursor, asked.sql, asked, end, ended)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise Retryable(f"the lake cannot be read: {str(error).splitlines()[0]}") from None

    @staticmethod
    def _run(
        cursor: duckdb.DuckDBPyConnection, sql: str, asked: _Question, end: float, ended: Ended
    ) -> list[ReaderRow]:
        """What `sql` gives, which asks the question, until `end` by the monotonic clock."""
        if ended.is_set():
            raise HungUp
        try:
            with interrupted(cursor, end, ended):
                result = cursor.execute(sql, dict(asked.params or {}))
                names = [str(column[0]) for column in result.description or []]
                rows = result.fetchall()
            return [dict(zip(names, map(_aware, row), strict=True)) for row in rows]
        except (duckdb.InterruptException, duckdb.InvalidInputException) as error:
            # Interrupted between two batches of rows, DuckDB says so within the other error.
            if "interrupt" not in str(error).lower():
                raise
            if ended.is_set():
                raise HungUp from None
            raise Retryable(
                f"the lake did not answer within {asked.seconds:g} s; narrow the question by time"
            ) from None

    def require_ready(self) -> None:
        """Raises `Retryable` unless all tables and views can be read, and are those of before."""
        with self._lock:
            if time.monotonic() < self._ready_until:
                return
            self._require_lake()
            views = self._open()
            self._require(views, self._names)
            self._require_same(views)
            seconds = FAR_SECONDS if bucketed(self._root) else NEAR_SECONDS
            self._ready_until = time.monotonic() + seconds

    def _require(self, views: Views, names: Sequence[str]) -> None:
        try:
            lacking = views.lacking(names)
        except OSError as error:
            raise Retryable(f"the lake cannot be read: {error}") from None
        if lacking:
            raise Retryable(missing_sentence(lacking))

    def _require_same(self, views: Views) -> None:
        try:
            results = {
                name: identity for name in views.tables if (identity := views.identity(name))
            }
        except (OSError, ValueError) as error:
            raise Retryable(f"the lake cannot be read: {error}") from None
        other = [
            name
            for name, identity in results.items()
            if self._ids.setdefault(name, identity) != identity
        ]
        if other:
            raise Retryable(
                "another lake was put in the place of the one this API began with "
                f"(by the ids of {', '.join(sorted(other))}); put that one back, or start the API "
                "again on this one"
            )

    def close(self) -> None:
        """Let go of the engine."""
        with self._lock:
            if self._views is not None:
                self._views.engine.close()
                self._views = None
                self._index = self._new_index()
                self._kept = _KeptAnswers()
                self._kept_rows = KeptRows()

    def _engine(self, needs: Sequence[str], within: Mapping[str, Span]) -> _Engine:
        with self._lock:
            views = self._open()
            tables = [ALERT.name if name == INDEX else name for name in needs]
            if not views.made(tables):
                self._require_lake()  # not with each question: in a bucket it costs two requests
            self._require(views, tables)
            put_back = self._look_at_put_back(views)
            if INDEX in needs:
                self._index.renew(views.engine)
            # A cursor for each question: cursors run side by side, a connection answers one at a
            # time.
            # Their versions from before the question: what is committed meanwhile is asked again.
            versions = views.versions(tables)
            if versions is not None:
                versions = (*versions, (-1, put_back))
            return _Engine(views.engine.cursor(), versions, views.near(within) if within else {})

    def _look_at_put_back(self, views: Views) -> float:
        """When files were last put back; what was read of them before is forgotten."""
        if self._put_back is not None and time.monotonic() < self._put_back_until:
            return self._put_back
        # No commit tells of it.
        instant = put_back_at(self._root)
        if bucketed(self._root):
            self._put_back_until = time.monotonic() + FAR_SECONDS
        if self._put_back not in (None, instant):
            self._index = self._new_index()
            with closing(views.engine.cursor()) as cursor:
                self._kept_rows.forget(cursor)
        self._put_back = instant
        return instant

    def _open(self) -> Views:
        if self._views is None:
            # One beside those that ask: the stream on the same machine must keep its cores.
            threads = self.threads.at_once + 1
            engine = at_low_priority(partial(open_engine, memory=self._memory, threads=threads))
            self._views = Views(engine, self._wanted)
        return self._views

    def _require_lake(self) -> None:
        if not there(self._root):
            raise NoLakeYet(f"{self._root}: there is no lake here; start the jobs or set 'lake'")


class _KeptAnswers:
    """Answers by question, each good for the versions of the tables that it was read from."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], tuple[_Versions, list[ReaderRow]]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def of(self, question: tuple[str, str], versions: _Versions) -> list[ReaderRow] | None:
        with self._lock:
            known = self._answers.get(question)
            if known is None or versions is None or known[0] != versions:
                return None
            self._answers.move_to_end(question)
        # Whoever asks may write into its rows.
        return [dict(row) for row in known[1]]

    def keep(self, question: tuple[str, str], versions: _Versions, rows: list[ReaderRow]) -> None:
        if versions is None or len(rows) > _MOST_ROWS_KEPT:
            return
        with self._lock:
            self._answers[question] = versions, [dict(row) for row in rows]
            self._answers.move_to_end(question)
            if len(self._answers) > _MOST_KEPT:
                self._answers.popitem(last=False)


def _steps(
    near: Mapping[str, NearFiles], kept: Mapping[str, KeptPart], newest: NewestFirst | None
) -> Iterator[tuple[dict[str, str], datetime | None]]:
    """Subqueries by table, over more and more files, and what is the latest time of the others."""
    parts = {name: kept.get(name, KeptPart("", frozenset())) for name in near}
    whole = {name: parts[name].subquery(files) for name, files in near.items()}
    if newest and newest.table in near:
        files, part = near[newest.table], parts[newest.table]
        listed = [pair for pair in files.newest_first() if pair[0].path not in part.paths]
        size = _FIRST_FILES
        while size < len(listed):
            some = part.subquery(files, [file for file, _ in listed[:size]])
            yield whole | {newest.table: some}, listed[size][1]
            size *= _MORE_FILES
    yield whole, None


def _aware(value: Any) -> Any:
    """Times in plain UTC, also inside structs and lists."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {key: _aware(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_aware(item) for item in value]
    return value


def cursor_of(question: Mapping[str, Any], *place: str) -> str:
    """An opaque cursor: the place of the last row, and which question it belongs to."""
    text = json.dumps([_digest(question), *place])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def reader_cursor(cursor: str, question: Mapping[str, Any], parts: int) -> list[str]:
    """The place in a cursor; raises `Usage` when it is not one of this question."""
    try:
        # The padding was cut off, since `=` has a meaning in a query string.
        padded = cursor + "=" * (-len(cursor) % 4)
        decoded = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        decoded = None
    if (
        not isinstance(decoded, list)
        or len(decoded) != parts + 1
        or not all(isinstance(part, str) for part in decoded)
    ):
        raise Usage(NOT_OURS)
    # With other filters the place would lie among rows that the first question never gave.
    if decoded[0] != _digest(question):
        raise Usage("cursor: belongs to another question; start again without it")
    return [str(part) for part in decoded[1:]]


def numbered_place(text: str | None) -> int:
    """The place in a list that a cursor numbers, from 0; raises `Usage` where it is no number."""
    # Not `isdigit`: a superscript two would pass, which `int` does not read.
    # No list has a thousand million rows, and `int` refuses text of some thousand digits.
    if text is not None and not (text.isdecimal() and len(text) <= 9):
        raise Usage(NOT_OURS)
    return int(text or 0)


def _digest(question: Mapping[str, Any]) -> str:
    # Sorted: the order in which parameters were given is no part of the question.
    text = json.dumps(question, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def parse_instant(text: str) -> datetime:
    """A time in a cursor; raises `Usage` when it is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise Usage("cursor: not one of ours; take 'next' of the page before as it is") from None
