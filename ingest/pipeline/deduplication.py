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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T

from infra.delta.parquet_writer import DataFile, Target, arrow_schema
from infra.delta.schema import TENANT, Column, Table
from infra.errors import Usage
from infra.storage.paths import delete
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from ingest.parsing.source import lookup
from ingest.pipeline.batch_pass import Find, Stage

# Bounded by number and by age: disk stays bounded whatever a source sends.
KEPT_KEYS = 2_000_000
KEPT_MICROS = 7 * 86400 * 1_000_000
"""The memory has two generations of half this size each; when one is full the older one goes."""

SEEN = Table(
    name="redelivery.key",
    doc="Keys of a batch's events, on their way from the workers to the driver.",
    columns=(
        Column("key", T.LongType(), "what makes the event the same"),
        Column("live_key", T.LongType(), "of an import: the key it has as a live event", False),
        Column("event_uid", T.StringType(), "the event"),
        Column("at", T.LongType(), "when it was received, microseconds since 1970"),
    ),
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS generation_0 (key INTEGER PRIMARY KEY, uid TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS generation_1 (key INTEGER PRIMARY KEY, uid TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS state (
  one INTEGER PRIMARY KEY CHECK (one = 1), current INTEGER NOT NULL,
  keys INTEGER NOT NULL, since INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pending (
  job TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, file TEXT NOT NULL
);
"""

_Row = tuple[int, int | None, str, int]
"""A row of `SEEN`."""


class Redelivery:
    """What one batch needs to recognise second deliveries."""

    def __init__(self, lake: Lake, run: Batch, *, committed: bool) -> None:
        """`committed`: silver holds this batch already, as after a crash."""
        self._folder = run.folder / "keys"
        self._file = lake.settings.home.absolute() / "redelivery.sqlite"
        self._owner = (run.job, run.query_id)
        self._batch = run.batch_id
        self._fresh: list[_Row] = []
        self._names: list[str] = []
        if run.look_back and self._file.exists():
            # A crash may fall between the commit and the note of its keys; the key files tell
            # which.
            self._settle(self._batch if committed else self._batch - 1)
        if run.look_back:
            self._clear(self._folder.glob("*"))

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
        self._names = [file.name for file in files if file.table == SEEN.name]
        if not self._names:
            return {}
        rows = self._rows(self._names)
        with self._open() as memory:
            # Remembered only in `keep`: a batch that fails would else find its own events repeated.
            self._fresh, repeated = _sorted_out(rows, _known(memory, rows))
            memory.executemany(
                "INSERT INTO pending VALUES (?, ?, ?, ?)",
                [(*self._owner, self._batch, name) for name in self._names],
            )
        return repeated

    def drop(self, files: Sequence[DataFile]) -> None:
        """Take away key files that nobody asks for."""
        self._clear(self._folder / file.name for file in files if file.table == SEEN.name)

    def keep(self) -> None:
        """The batch is committed: from now on its keys are known."""
        if self._names:
            with self._open() as memory:
                _remember(memory, self._fresh)
                self._forget(memory)
            # Behind the memory's commit: until then a crash can only be made good from these files.
            self._clear(self._folder / name for name in self._names)

    def _settle(self, up_to: int) -> None:
        """What an earlier run left: keys of batches that are in count, of others do not."""
        with self._open() as memory:
            which = "SELECT file FROM pending WHERE job = ? AND query = ? AND batch <= ?"
            names = [name for (name,) in memory.execute(which, (*self._owner, up_to))]
            # Power loss can bring back a note whose files are gone: that costs marks, no events.
            rows = self._rows(name for name in names if (self._folder / name).exists())
            _remember(memory, _sorted_out(rows, _known(memory, rows))[0])
            self._forget(memory)

    def _forget(self, memory: sqlite3.Connection) -> None:
        """Nothing of this job is pending any more, nor of a checkpoint it had before."""
        memory.execute("DELETE FROM pending WHERE job = ?", self._owner[:1])

    def _rows(self, names: Iterable[str]) -> list[_Row]:
        """The keys in some files, in the order of receipt."""
        tables = [pq.read_table(self._folder / name, schema=arrow_schema(SEEN)) for name in names]
        if not tables:
            return []
        # A fixed order, so that a batch tried again names the same event as the first delivery.
        ordered = pa.concat_tables(tables).sort_by(
            [("at", "ascending"), ("event_uid", "ascending")]
        )
        columns = [ordered.column(column.name).to_pylist() for column in SEEN.columns]
        return list(zip(*columns, strict=True))

    @staticmethod
    def _clear(paths: Iterable[Path]) -> None:
        for path in list(paths):
            path.unlink(missing_ok=True)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The memory, in one transaction; other jobs wait for it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as memory:
            memory.execute("PRAGMA journal_mode = WAL")
            # Power loss may cost the newest keys, which costs marks and no events.
            memory.execute("PRAGMA synchronous = NORMAL")
            memory.executescript(_SCHEMA)
            # The lock of a writer from the start: two readers that both want to write would
            # deadlock.
            memory.execute("BEGIN IMMEDIATE")
            try:
                yield memory
            except BaseException:
                memory.execute("ROLLBACK")
                raise
            memory.execute("COMMIT")


def _known(memory: sqlite3.Connection, rows: Sequence[_Row]) -> dict[int, str]:
    """The keys that were seen before, with the first event of each."""
    # In the order of the table, which is several times faster than at random.
    keys = sorted({key for row in rows for key in row[:2] if key is not None})
    memory.execute("CREATE TEMP TABLE asked (key INTEGER PRIMARY KEY)")
    memory.executemany("INSERT INTO asked VALUES (?)", zip(keys, strict=True))
    results: dict[int, str] = {}
    for table in ("generation_0", "generation_1"):
        results |= dict(memory.execute(f"SELECT key, uid FROM asked JOIN {table} USING (key)"))
    return results


def _sorted_out(rows: Sequence[_Row], first: dict[int, str]) -> tuple[list[_Row], dict[str, str]]:
    """The rows whose key is new, and the others' event_uid to that of the first delivery.

    `first`: what is known; it learns the new ones.
    """
    fresh: list[_Row] = []
    repeated: dict[str, str] = {}
    for row in rows:
        key, live_key, uid, _ = row
        # An import may repeat what came live, so it is asked for under both keys.
        before = first.get(key) if live_key is None else first.get(live_key, first.get(key))
        if before is None:
            first[key] = uid
            fresh.append(row)
        # The same event_uid is the batch itself, done again after a crash, and no second delivery.
        elif before != uid:
            repeated[uid] = before
    return fresh, repeated


def _remember(memory: sqlite3.Connection, rows: Sequence[_Row]) -> None:
    """Add keys; where a generation is full, the older one makes room."""
    if not rows:
        return
    newest = rows[-1][3]
    memory.execute("INSERT OR IGNORE INTO state VALUES (1, 0, 0, ?)", (newest,))
    current, had, since = memory.execute("SELECT current, keys, since FROM state").fetchone()
    if had >= KEPT_KEYS // 2 or newest - since > KEPT_MICROS // 2:
        current, had, since = 1 - current, 0, newest
        # Dropping a whole generation costs nothing per key, as finding the oldest would.
        memory.execute(f"DELETE FROM generation_{current}")
    memory.executemany(
        f"INSERT OR IGNORE INTO generation_{current} VALUES (?, ?)",
        # In the order of the primary key, so that SQLite touches each page once.
        sorted((key, uid) for key, _, uid, _ in rows),
    )
    state = (current, had + len(rows), since)
    memory.execute("UPDATE state SET current = ?, keys = ?, since = ?", state)


# -- in the workers ----------------------------------------------------------------------------


def keys() -> Find:
    """What a stage begins with: events to the rows of `SEEN`."""
    return _find


def _find(events: pa.RecordBatch) -> list[pa.RecordBatch]:
    record_batches = []
    for source in events.column("source").unique().to_pylist():
        columns = _columns_of(source)
        if columns:
            of_source = pc.equal(events.column("source"), source)
            # A dead letter has no fields of its own: two of them would look the same.
            readable = events.column("dead_letter_reason").is_null()
            # Of the columns asked for alone: an event has some three hundred leaves.
            key_columns = events.select(
                list(dict.fromkeys((*_EVERY, *(c.split(".")[0] for c in columns))))
            )
            named = key_columns.filter(pc.and_(of_source, readable))
            record_batches.append(_keys(named, source, columns))
    return record_batches


_EVERY = ("event_uid", "mode", "received_at", TENANT.name)


@cache
def _columns_of(source: str) -> tuple[str, ...]:
    """The columns that make an event of `source` the same; none: it is delivered once."""
    try:
        return lookup(source).redelivery
    except Usage:
        return ()


def _keys(events: pa.RecordBatch, source: str, columns: Sequence[str]) -> pa.RecordBatch:
    values = [_texts(events, column) for column in columns]
    # Lengths keep ("a", "bc") and ("ab", "c") apart. Null where one of them is.
    lengths = [pc.cast(pc.binary_length(value), pa.string()) for value in values]
    parts = [part for pair in zip(lengths, values, strict=True) for part in pair]
    joined = pc.binary_join_element_wise(*parts, ":")
    named = joined.is_valid()
    texts = joined.filter(named).to_pylist()
    owners = events.column(TENANT.name).filter(named)
    if owners.null_count < len(owners):
        # Else one tenant could hide another's event by sending one that looks the same.
        texts = [
            text if owner is None else f"{owner}|{text}"
            for text, owner in zip(texts, owners.to_pylist(), strict=True)
        ]
    modes = events.column("mode").filter(named).to_pylist()
    live = [_key(f"{source}|{text}") for text in texts]
    # A live event must not pass for the second delivery of one that only was imported.
    imported = [mode == "import" for mode in modes]
    arrays = [
        [
            _key(f"{source}|import|{text}") if is_import else key
            for key, text, is_import in zip(live, texts, imported, strict=True)
        ],
        [key if is_import else None for key, is_import in zip(live, imported, strict=True)],
        events.column("event_uid").filter(named),
        events.column("received_at").filter(named).cast(pa.int64()),
    ]
    schema = arrow_schema(SEEN)
    return pa.RecordBatch.from_arrays(
        [
            array if isinstance(array, pa.Array) else pa.array(array, field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )


def _key(text: str) -> int:
    # Eight bytes fit SQLite's integer key. Not Python's `hash`, which differs in each process.
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _texts(events: pa.RecordBatch, path: str) -> pa.Array:
    name, *inside = path.split(".")
    array = events.column(name)
    for step in inside:
        array = pc.struct_field(array, step)
    if pa.types.is_timestamp(array.type):
        # As a number: text of a time depends on its zone and resolution.
        array = array.cast(pa.int64())
    return array.cast(pa.string())


def discard(lake: Lake, tables: Sequence[Table], files: Sequence[DataFile]) -> None:
    """Take away files of an attempt that will not be committed."""
    folders = {table.name: lake.folder(table) for table in tables}
    delete(folders[file.table] / file.name for file in files if file.table in folders)
