"""What a shipper delivers twice: kept, and marked with the event_uid of its first delivery.

A source says which columns make an event the same (`Source.redelivery`). Workers
write the keys of a batch's events beside its files; before these are committed the
driver looks the keys up among those of earlier batches. Hardly ever is one found: then
the batch is written once more, with its marks. The memory of keys is a file of
bounded size; what fell out of it is not recognised, which costs a mark and no event.

A key counts as seen once its batch is committed. So a batch that is tried again
marks what it marked before, and one that never comes to a commit marks nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T

from infra.errors import Usage
from infra.jobs import Batch
from infra.lake import Lake
from infra.parquet import DataFile, Target, arrow_schema
from infra.tables import Column, Table
from ingest.source import lookup
from ingest.write import Find, Stage

KEPT_KEYS = 2_000_000
KEPT_MICROS = 7 * 86400 * 1_000_000
"""The memory holds at most so many keys, none much older than this before the newest."""

FORGET_AT_ONCE = 50_000
KEY_BYTES = 16

SEEN = Table(
    name="redelivery.key",
    doc="Keys of a batch's events, on their way from the workers to the driver.",
    columns=(
        Column("key", T.BinaryType(), "what makes the event the same"),
        Column("live_key", T.BinaryType(), "of an import: the key it has as a live event", False),
        Column("event_uid", T.StringType(), "the event"),
        Column("at", T.LongType(), "when it was received, microseconds since 1970"),
    ),
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, uid TEXT NOT NULL, at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pending (
  job TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL,
  key BLOB NOT NULL, uid TEXT NOT NULL, at INTEGER NOT NULL
);
"""


class Redelivery:
    """What one batch needs to recognise second deliveries."""

    def __init__(self, lake: Lake, run: Batch, *, committed: bool) -> None:
        """`committed`: silver holds this batch already, as after a crash."""
        self._folder = run.folder / "keys"
        self._file = lake.settings.home.absolute() / "redelivery.sqlite"
        self._owner = (run.job, run.query_id)
        self._batch = run.batch_id
        self._pending = False
        if run.look_back:
            for leftover in self._folder.glob("*"):
                leftover.unlink(missing_ok=True)
            if self._file.exists():
                self._settle(committed)

    @property
    def stage(self) -> Stage:
        """Workers write the keys as if they were rows of a table."""
        return Stage(SEEN, keys)

    def target(self) -> Target:
        """Where they write them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return Target.of(SEEN, self._folder, f"{self._batch}-")

    def repeats(self, files: Sequence[DataFile]) -> dict[str, str]:
        """The batch's events that were delivered before: event_uid to that of the first one.

        Within a batch the first is the one that was received first.
        """
        found = self._read(files)
        if found.num_rows == 0:
            return {}
        ordered = found.sort_by([("at", "ascending"), ("event_uid", "ascending")]).to_pydict()
        rows = list(
            zip(
                ordered["key"],
                ordered["live_key"],
                ordered["event_uid"],
                ordered["at"],
                strict=True,
            )
        )
        asked = {key for row in rows for key in row[:2] if key is not None}
        with self._open() as memory:
            first = _known(memory, asked)
            fresh = []
            repeated: dict[str, str] = {}
            for key, live_key, uid, at in rows:
                before = first.get(live_key) or first.get(key)
                if before is None:
                    first[key] = uid
                    fresh.append((*self._owner, self._batch, key, uid, at))
                elif before != uid:
                    repeated[uid] = before
            memory.executemany("INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)", fresh)
        self._pending = bool(fresh)
        return repeated

    def drop(self, files: Sequence[DataFile]) -> None:
        """Take away key files that nobody asks any more."""
        for file in files:
            if file.table == SEEN.name:
                (self._folder / file.name).unlink(missing_ok=True)

    def keep(self) -> None:
        """The batch is committed: from now on its keys are known."""
        if self._pending:
            with self._open() as memory:
                self._promote(memory, self._batch)

    def _read(self, files: Sequence[DataFile]) -> pa.Table:
        paths = [self._folder / file.name for file in files if file.table == SEEN.name]
        tables = [pq.read_table(path, schema=arrow_schema(SEEN)) for path in paths]
        self.drop(files)
        return pa.concat_tables(tables) if tables else arrow_schema(SEEN).empty_table()

    def _settle(self, committed: bool) -> None:
        """What an earlier run left: keys of batches that are in count, of others do not."""
        with self._open() as memory:
            self._promote(memory, self._batch if committed else self._batch - 1)
            memory.execute("DELETE FROM pending WHERE job = ? AND query = ?", self._owner)
            memory.execute(  # of a checkpoint that is no more
                "DELETE FROM pending WHERE job = ? AND query <> ?", self._owner
            )

    def _promote(self, memory: sqlite3.Connection, up_to: int) -> None:
        which = "FROM pending WHERE job = ? AND query = ? AND batch <= ?"
        whose = (*self._owner, up_to)
        memory.execute(
            f"INSERT OR IGNORE INTO seen (key, uid, at) SELECT key, uid, at {which}", whose
        )
        memory.execute(f"DELETE {which}", whose)
        newest, at = memory.execute("SELECT max(id), max(at) FROM seen").fetchone()
        if newest is not None:
            oldest = "SELECT id FROM seen ORDER BY id LIMIT ?"
            memory.execute("DELETE FROM seen WHERE id <= ?", (newest - KEPT_KEYS,))
            memory.execute(
                f"DELETE FROM seen WHERE id IN ({oldest}) AND at < ?",
                (FORGET_AT_ONCE, at - KEPT_MICROS),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The memory, in one transaction; other jobs wait for it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as memory:
            memory.execute("PRAGMA journal_mode = WAL")
            memory.execute("PRAGMA synchronous = NORMAL")
            memory.executescript(_SCHEMA)
            memory.execute("BEGIN IMMEDIATE")
            try:
                yield memory
            except BaseException:
                memory.execute("ROLLBACK")
                raise
            memory.execute("COMMIT")


def _known(memory: sqlite3.Connection, asked: set[bytes]) -> dict[bytes, str]:
    """The keys that were seen before, with the first event of each."""
    memory.execute("CREATE TEMP TABLE IF NOT EXISTS asked (key BLOB PRIMARY KEY)")
    memory.execute("DELETE FROM asked")
    memory.executemany("INSERT INTO asked VALUES (?)", ((key,) for key in asked))
    return dict(memory.execute("SELECT seen.key, seen.uid FROM asked JOIN seen USING (key)"))


# -- in the workers ----------------------------------------------------------------------------


def keys() -> Find:
    """What a stage begins with: events to the rows of `SEEN`."""
    return _find


def _find(events: pa.RecordBatch) -> list[pa.RecordBatch]:
    found = []
    for source in events.column("source").unique().to_pylist():
        columns = columns_of(source)
        if columns:
            of_source = pc.equal(events.column("source"), source)
            readable = events.column("dead_letter_reason").is_null()
            found.append(_keys(events.filter(pc.and_(of_source, readable)), source, columns))
    return found


@cache
def columns_of(source: str) -> tuple[str, ...]:
    """The columns that make an event of `source` the same; none: it is delivered once."""
    try:
        return lookup(source).redelivery
    except Usage:
        return ()


def _keys(events: pa.RecordBatch, source: str, columns: Sequence[str]) -> pa.RecordBatch:
    values = [_texts(events, column) for column in columns]
    times = events.column("received_at").cast(pa.int64()).to_pylist()
    uids, modes = events.column("event_uid").to_pylist(), events.column("mode").to_pylist()
    rows = []
    for uid, mode, at, *parts in zip(uids, modes, times, *values, strict=True):
        if None in parts:
            continue
        live = _key(source, "", parts)
        # A live event must not pass for the second delivery of one that only was imported.
        rows.append(
            (_key(source, mode, parts), live, uid, at)
            if mode == "import"
            else (live, None, uid, at)
        )
    schema = arrow_schema(SEEN)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _key(source: str, mode: str, parts: Sequence[str]) -> bytes:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    text = "".join(f"{len(part)}:{part}" for part in (source, mode, *parts))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def _texts(events: pa.RecordBatch, path: str) -> list[str | None]:
    name, *inside = path.split(".")
    array = events.column(name)
    for step in inside:
        array = pc.struct_field(array, step)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def discard(lake: Lake, tables: Sequence[Table], files: Sequence[DataFile]) -> None:
    """Take away files of an attempt that will not be committed."""
    folders: dict[str, Path] = {table.name: lake.folder(table) for table in tables}
    for file in files:
        if file.table in folders:
            (folders[file.table] / file.name).unlink(missing_ok=True)
