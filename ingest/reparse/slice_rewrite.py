"""One slice of silver.event, read again from bronze and put in the place of what is there.

A slice is the rows of one source that were received in a span. Their records are parsed
again; only rows that come out differently are replaced, and only files that hold such
rows are written anew, without them. All of it becomes true in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from infra.delta.data_files import ActiveFile
from infra.delta.duckdb_views import open_engine, reach
from infra.delta.parquet_writer import DataFile, FileWriter, Target, arrow_schema
from infra.delta.plain_files import duck_type
from infra.delta.schema import Table
from infra.delta.transaction import Moved, active_files
from infra.storage.paths import delete
from infra.streaming.lake import Lake
from ingest.parsing.arrow_parser import Parser, records_of
from ingest.parsing.source import JoiningSource, ParseSettings, Record, sources
from ingest.pipeline.batch_pass import mark_duplicates, slices
from ingest.reparse.recount import AHEAD, Recounts
from ingest.tables import EVENT, RECORD

FILE_ROWS = 500_000
"""Rows that one new file holds at most."""
_AT_ONCE = 2_000
_APART = timedelta(days=1)
"""Records of one event came within such a span of each other."""


@dataclass(frozen=True)
class RewriteSpan:
    """Rows of one source, received in `[since, until)`."""

    source: str
    since: datetime
    until: datetime


@dataclass
class Counts:
    """What became of records and rows; `changed` rows have other values under the same event_uid,
    `added` and `removed` ones an event_uid that was not there, or is no more."""

    records: int = 0
    missing: int = 0
    same: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0
    dead_before: int = 0
    dead_after: int = 0
    commits: int = 0

    def add(self, other: Counts) -> None:
        """Count what another slice came to as well."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Slice:
    """One slice, as it is in the lake's newest version."""

    def __init__(
        self,
        lake: Lake,
        parsing: ParseSettings,
        span: RewriteSpan,
        folder: Path,
        recounts: Recounts | None = None,
    ) -> None:
        """`folder`: where rows may wait that were parsed and not compared yet.

        `recounts`: is asked for the hours whose rows change; None: one of its own.
        """
        self._lake = lake
        self._recounts = recounts or Recounts(lake, "reparse")
        self._parser = Parser(parsing)
        self._span = span
        self._folder = folder
        self._joins = isinstance(sources().get(span.source), JoiningSource)
        self._engine = open_engine(memory=lake.settings.api.statement_memory, threads=1)
        reach(self._engine, lake.folder(EVENT))
        self._held: list[ActiveFile] = []
        self.counts = Counts()

    def rewrite(self, prefix: str, note: str, *, dry: bool) -> Counts:
        """Replace what comes out differently; with `dry` only count it.

        Raises `Moved` when somebody else replaced the same files meanwhile: then nothing
        has happened, and the slice can be done again.
        """
        try:
            self._look()
            new = self._parse()
            self._compare(new)
            if not dry and self._differs():
                self._replace(prefix, note)
                self.counts.commits = 1
        finally:
            self._engine.close()
        return self.counts

    # -- what is there -------------------------------------------------------------------------

    def _look(self) -> None:
        """Tables `held` (the slice's rows, each with its file) and `wanted` (their records)."""
        span = self._span
        self._held = self._files(EVENT, span.since, span.until)
        self._engine.execute(
            f"CREATE TABLE held AS SELECT event_uid, record_ids, duplicate_of, "
            f"dead_letter_reason IS NOT NULL AS dead, filename FROM ({self._scan(self._held)}) "
            "WHERE source = $source AND received_at >= $since AND received_at < $until",
            self._which,
        )
        self._engine.execute(
            "CREATE TABLE wanted AS SELECT DISTINCT unnest(record_ids) AS record_id FROM held"
        )

    @property
    def _which(self) -> dict[str, object]:
        span = self._span
        return {"source": span.source, "since": span.since, "until": span.until}

    def _files(self, table: Table, low: datetime, high: datetime) -> list[ActiveFile]:
        source = self._span.source
        return [
            file
            for file in active_files(self._lake.spark, self._lake.path(table))
            if file.may_hold("received_at", low, high) and file.may_hold("source", source, source)
        ]

    def _scan(self, files: Sequence[ActiveFile], table: Table = EVENT) -> str:
        """A query for the rows of some files of a table, with their `filename`.

        Files are named, not found by DuckDB from the log: their statistics tell us which, and
        what we replace must be what we read. Only deleted rows need its reader of Delta.
        """
        folder = self._lake.folder(table)
        plain = [str(folder / file.name) for file in files if not file.has_deletions]
        cut = [str(folder / file.name) for file in files if file.has_deletions]
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        parts = []
        if plain:
            read = f"read_parquet({_list(plain)}, union_by_name = true, hive_partitioning = false)"
            # Files of an earlier release lack the columns that came since.
            described = self._engine.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
            there = {name for name, *_ in described}
            held = [
                name if column.name in there else f"NULL::{duck_type(column.type)} AS {name}"
                for column in table.columns
                for name in [_quoted(column.name)]
            ]
            parts.append(f"SELECT {', '.join(held)}, filename FROM {read}")
        if cut:
            read = f"delta_scan({_text(str(folder))})"
            parts.append(f"SELECT {columns}, filename FROM {read} WHERE filename IN {_list(cut)}")
        if not parts:
            name = f"no_{table.path.replace('/', '_')}"
            self._engine.register("nothing", arrow_schema(table).empty_table())
            self._engine.execute(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM nothing")
            parts.append(f"SELECT {columns}, '' AS filename FROM {name}")
        return " UNION ALL ".join(parts)

    # -- what it is now ------------------------------------------------------------------------

    def _parse(self) -> Path | None:
        """A file with the rows that the records give today; table `present` names the records."""
        self._engine.execute("CREATE TABLE present (record_id TEXT)")
        # Which delivery came first is not decided anew: the memory of keys is bounded.
        repeats = dict(
            self._engine.execute(
                "SELECT event_uid, duplicate_of FROM held WHERE duplicate_of IS NOT NULL"
            ).fetchall()
        )
        target = Target.of(EVENT, self._folder, "parsed-")
        writer = FileWriter(target)
        for events in self._joined() if self._joins else self._single():
            writer.write(mark_duplicates(events, repeats))
        file = writer.close()
        return None if file is None else self._folder / file.name

    def _records(self) -> Iterator[pa.RecordBatch]:
        """The slice's records, those that bronze still has."""
        # A record of a joined event may have come in another slice than its first one.
        apart = _APART if self._joins else timedelta(0)
        low, high = self._span.since - apart, self._span.until + apart
        scan = self._scan(self._files(RECORD, low, high), RECORD)
        schema = arrow_schema(RECORD)
        reader = self._engine.cursor().execute(
            f"SELECT {', '.join(_quoted(name) for name in schema.names)} FROM ({scan}) "
            "WHERE record_id IN (SELECT record_id FROM wanted) "
            "AND received_at >= $low AND received_at <= $high "
            'ORDER BY received_at, partition, "offset", record_id',
            {"low": low, "high": high},
        )
        for batch in reader.fetch_record_batch(_AT_ONCE):
            records = pa.Table.from_batches([batch]).cast(schema).combine_chunks()
            for to_batch in records.to_batches():
                self._engine.register("found", pa.Table.from_batches([to_batch]))
                self._engine.execute("INSERT INTO present SELECT record_id FROM found")
                self.counts.records += to_batch.num_rows
                yield to_batch

    def _single(self) -> Iterator[pa.RecordBatch]:
        for records in slices(self._records()):
            yield from self._parser(records)

    def _joined(self) -> Iterator[pa.RecordBatch]:
        """Events of several records, from the records they were read from before.

        What was one event stays one, whichever batches its records came in; what could
        not be read is joined as if it had come in one batch. An event of which bronze has
        lost a record stays as it is.
        """
        records: dict[str, Record] = {}
        for batch in self._records():
            records |= {record.record_id: record for record in records_of(batch)}
        rows = self._engine.execute("SELECT record_ids, dead FROM held").fetchall()
        together = dict.fromkeys(tuple(ids) for ids, dead in rows if not dead)
        read = {record for ids in together for record in ids}
        dead = [record for uid, record in records.items() if uid not in read]
        groups = [
            [records[record] for record in ids] for ids in together if records.keys() >= set(ids)
        ]
        for start in range(0, len(groups), _AT_ONCE):
            yield from self._parser.groups(groups[start : start + _AT_ONCE])
        yield from self._parser.groups([dead] if dead else [])

    # -- the difference ------------------------------------------------------------------------

    def _compare(self, new: Path | None) -> None:
        """Tables `dropped` (event_uids whose rows go) and `fresh` (rows that come)."""
        run, columns = self._engine.execute, self._columns
        run(
            "CREATE TABLE kept AS SELECT DISTINCT event_uid FROM "
            "(SELECT event_uid, unnest(record_ids) AS record_id FROM held) "
            "WHERE record_id NOT IN (SELECT record_id FROM present)"
        )
        before = (
            f"SELECT {columns} FROM ({self._scan(self._held)}) "
            "WHERE source = $source AND received_at >= $since AND received_at < $until "
            "AND event_uid NOT IN (SELECT event_uid FROM kept)"
        )
        after = f"SELECT {columns} FROM read_parquet({_list([str(new)])})"
        if new is None:
            after = f"SELECT {columns} FROM ({self._scan([])})"
        # EXCEPT takes nulls for equal, also inside of structs and lists.
        run(f"CREATE TABLE fresh AS {after} EXCEPT {before}", self._which)
        run(
            f"CREATE TABLE dropped AS SELECT DISTINCT event_uid FROM ({before} EXCEPT {after})",
            self._which,
        )
        self._count(after)

    def _count(self, after: str) -> None:
        counts = self.counts
        counts.missing = self._number(
            "SELECT count(*) FROM wanted WHERE record_id NOT IN (SELECT record_id FROM present)"
        )
        both = "SELECT event_uid FROM dropped INTERSECT SELECT event_uid FROM fresh"
        counts.changed = self._number(f"SELECT count(*) FROM ({both})")
        counts.added = self._number("SELECT count(*) FROM fresh") - counts.changed
        dropped = self._number("SELECT count(*) FROM dropped")
        counts.removed = dropped - counts.changed
        counts.same = self._number("SELECT count(*) FROM held") - dropped
        counts.dead_before = self._number("SELECT count(*) FROM held WHERE dead")
        lost = self._number(
            "SELECT count(*) FROM held WHERE dead AND event_uid IN (SELECT event_uid FROM kept)"
        )
        counts.dead_after = lost + self._number(f"SELECT count(dead_letter_reason) FROM ({after})")

    def _number(self, sql: str) -> int:
        row = self._engine.execute(sql).fetchone()
        return int(row[0]) if row else 0

    def _differs(self) -> bool:
        return bool(self.counts.changed or self.counts.added or self.counts.removed)

    # -- and its commit ------------------------------------------------------------------------

    def _replace(self, prefix: str, note: str) -> None:
        folder = self._lake.folder(EVENT)
        names = self._engine.execute(
            "SELECT DISTINCT filename FROM held WHERE event_uid IN (SELECT event_uid FROM dropped)"
        ).fetchall()
        holding = {name for (name,) in names}
        removed = [file for file in self._held if str(folder / file.name) in holding]
        with _written(Target.of(EVENT, folder, prefix)) as out:
            for file in removed:
                out.take(
                    self._engine,
                    f"SELECT {self._columns} FROM ({self._scan([file])}) "
                    "WHERE event_uid NOT IN (SELECT event_uid FROM dropped)",
                )
            out.take(self._engine, f"SELECT {self._columns} FROM fresh")
            out.close()
        # Before the commit: asked for in vain costs a count, forgotten leaves a wrong one.
        self._recounts.ask(self._hours())
        try:
            self._lake.replace(EVENT, removed, out.files, note)
        except Moved:
            # The only end that says that nothing was committed. After any other the files may be
            # part of the table: the next run looks in the log before it takes them away.
            out.discard()
            raise

    def _hours(self) -> Iterator[tuple[datetime, datetime]]:
        """Hours in which rows that go or come arrived, each with the hours in which they count."""
        minutes = AHEAD // timedelta(minutes=1)
        yield from self._engine.execute(
            "SELECT DISTINCT date_trunc('hour', received_at), "
            f"date_trunc('hour', least(\"time\", received_at + INTERVAL {minutes} MINUTE)) FROM ("
            f'SELECT received_at, "time" FROM ({self._scan(self._held)}) '
            "WHERE event_uid IN (SELECT event_uid FROM dropped) "
            'UNION ALL SELECT received_at, "time" FROM fresh)'
        ).fetchall()

    @property
    def _columns(self) -> str:
        return ", ".join(_quoted(column.name) for column in EVENT.columns)


class _Out:
    """New files of a table, none with more than `FILE_ROWS` rows or so."""

    def __init__(self, target: Target) -> None:
        self.files: list[DataFile] = []
        self._target = target
        self._writer: FileWriter | None = None
        self._rows = 0

    def take(self, engine: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Write the rows of a query."""
        for batch in engine.cursor().execute(sql).fetch_record_batch(_AT_ONCE):
            if self._writer is None:
                self._writer = FileWriter(self._target)
            self._writer.write(batch)
            self._rows += batch.num_rows
            if self._rows >= FILE_ROWS:
                self.close()

    def close(self) -> None:
        """End the file that is being written."""
        if self._writer is not None:
            file = self._writer.close()
            self.files += [file] if file else []
        self._writer, self._rows = None, 0

    def discard(self) -> None:
        """Take away all that was written."""
        if self._writer is not None:
            self._writer.discard()
        delete(self._target.folder / file.name for file in self.files)


@contextmanager
def _written(target: Target) -> Iterator[_Out]:
    out = _Out(target)
    try:
        yield out
    except BaseException:
        out.discard()
        raise


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
