"""Tables read by the list of their files: the same rows as the Delta extension reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.delta.duckdb_views import AskedViews, Definition, connect, open_engine
from infra.delta.plain_files import FollowedTables, PlainTables, Span
from infra.errors import Retryable

COLUMNS = (
    ("n", "BIGINT"),
    ("time", "TIMESTAMPTZ"),
    ("who", 'STRUCT("name" VARCHAR, "age" INTEGER)'),
)
WHO = "{'name': 'a', 'age': 1}"

_FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    {"name": "time", "type": "timestamp", "nullable": True, "metadata": {}},
    {
        "name": "who",
        "type": {
            "type": "struct",
            "fields": [
                {"name": "name", "type": "string", "nullable": True, "metadata": {}},
                {"name": "age", "type": "integer", "nullable": True, "metadata": {}},
            ],
        },
        "nullable": True,
        "metadata": {},
    },
]


class Written:
    """A table written by hand, commit by commit."""

    def __init__(self, folder: Path, engine: duckdb.DuckDBPyConnection) -> None:
        self.folder = folder
        self.engine = engine
        self.version = 0
        (folder / "_delta_log").mkdir(parents=True)

    def begin(self, protocol: dict[str, Any] | None = None, **metadata: Any) -> None:
        schema = {"type": "struct", "fields": _FIELDS}
        self.commit(
            {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "t",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": [],
                    "configuration": {},
                    **metadata,
                }
            },
        )

    def commit(self, *actions: dict[str, Any]) -> None:
        text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        (self.folder / "_delta_log" / f"{self.version:020d}.json").write_text(text)
        self.version += 1

    def add(self, n: int, who: str | None = WHO, **more: Any) -> dict[str, Any]:
        """A file of one row, of the hour `n` of a day."""
        file = self.folder / f"{n}.parquet"
        instant = f"2026-11-20T{n:02d}:00:00.000Z"
        known = "" if who is None else f", {who} AS who"
        self.engine.execute(
            f"COPY (SELECT {n}::BIGINT AS n, TIMESTAMPTZ '{instant}' AS time{known}) "
            f"TO '{file}' (FORMAT parquet)"
        )
        values = {"time": instant}
        stats = {"numRecords": 1, "minValues": values, "maxValues": values}
        entry = {
            "path": file.name,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        return {"add": entry | more}

    def source(self, span: Span | None = None) -> str | None:
        asked = None if span is None else lambda: [{span[0]: span[1:]}]
        return PlainTables(self.engine).source(self.folder, COLUMNS, asked)

    def rows(self, source: str) -> list[Any]:
        return self.engine.execute(f"SELECT n, time, who FROM {source} ORDER BY n").fetchall()

    @property
    def by_delta(self) -> list[Any]:
        return self.rows(f"delta_scan('{self.folder}')")


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    return open_engine(memory="256MB", threads=1)


@pytest.fixture
def table(tmp_path: Path, engine: duckdb.DuckDBPyConnection) -> Written:
    return Written(tmp_path / "silver" / "t", engine)


@pytest.fixture
def asked(table: Written, monkeypatch: pytest.MonkeyPatch) -> AskedViews:
    known = (Definition("silver.t", "", str(table.folder), COLUMNS),)
    monkeypatch.setattr("infra.delta.duckdb_views.definitions", lambda root: known)
    return AskedViews(table.folder.parent, memory="256MB", threads=1)


def loaded(asked: AskedViews) -> list[Any]:
    sql = "SELECT extension_name FROM duckdb_extensions() WHERE loaded AND extension_name = 'delta'"
    return asked.connection.execute(sql).fetchall()


def test_what_is_needed_and_not_there_yet_is_named(
    table: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = table.folder.with_name("u")
    known = (
        Definition("silver.t", "", str(table.folder), COLUMNS),
        Definition("silver.u", "", str(folder), COLUMNS),
        Definition("silver.both", "SELECT * FROM silver.t UNION ALL SELECT * FROM silver.u", None),
    )
    monkeypatch.setattr("infra.delta.duckdb_views.definitions", lambda root: known)
    table.begin()
    table.commit(table.add(1))
    with AskedViews(table.folder.parent, needs=["silver.t"], memory="256MB", threads=1) as views:
        assert views.rows("SELECT n FROM silver.t WHERE n = $n", {"n": 1}) == [{"n": 1}]
        assert set(views.lacking(["silver.t", "silver.u", "silver.both"])) == {
            "silver.u",
            "silver.both",
        }
    with pytest.raises(Retryable, match=r"silver.u \(it is made when its first job starts"):
        AskedViews(table.folder.parent, needs=["silver.u"])
    with pytest.raises(Retryable, match=r"silver.both \(a table it rests on is missing\)"):
        AskedViews(table.folder.parent, needs=["silver.both"])
    assert not folder.exists()


def test_a_connection_for_some_tables_has_what_they_rest_on_and_no_others(
    table: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = table.folder.parent
    known = (
        Definition("silver.t", "", str(table.folder), COLUMNS),
        Definition("silver.u", "", str(table.folder), COLUMNS),
        Definition("silver.gone", "", str(root / "gone"), COLUMNS),
        Definition("silver.few", "SELECT * FROM silver.t WHERE n < 2", None),
    )
    monkeypatch.setattr("infra.delta.duckdb_views.definitions", lambda root: known)
    table.begin()
    table.commit(table.add(1))

    def views(*needs: str, only: tuple[str, ...] | None) -> set[str]:
        with connect(root, needs=needs, only=only, memory="256MB", threads=1) as connection:
            sql = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'silver'"
            return {name for (name,) in connection.execute(sql).fetchall()}

    assert views("silver.few", only=()) == {"few", "t"}
    assert views("silver.t", only=("silver.u", "silver.gone")) == {"t", "u"}
    assert views("silver.t", only=None) == {"few", "t", "u"}
    with pytest.raises(Retryable, match=r"silver.gone \(it is made when its first job starts"):
        views("silver.gone", only=())


def test_a_plain_table_has_the_rows_that_delta_has(table: Written) -> None:
    table.begin()
    first = table.add(1)
    table.commit(first)
    table.commit(table.add(2), table.add(3))
    table.commit({"remove": {"path": first["add"]["path"], "dataChange": True}})
    source = table.source()
    assert source is not None
    assert table.rows(source) == table.by_delta
    assert [row[0] for row in table.by_delta] == [2, 3]


def test_files_of_other_times_are_not_read(table: Written) -> None:
    table.begin()
    for n in range(1, 5):
        table.commit(table.add(n))
    two = datetime(2026, 11, 20, 2, tzinfo=UTC)
    source = table.source(("time", two, two))
    assert source is not None
    # The newest is read with them: it says which columns there are.
    assert [row[0] for row in table.rows(source)] == [2, 4]


def test_a_checkpoint_stands_for_what_was_before(table: Written) -> None:
    table.begin()
    table.commit(table.add(1))
    log = table.folder / "_delta_log"
    actions = [json.loads(line) for file in sorted(log.iterdir()) for line in file.open()]
    # Parquet has no struct without fields.
    for empty in ("format", "configuration"):
        del actions[1]["metaData"][empty]
    del actions[2]["add"]["partitionValues"]
    rows = [{name: a.get(name) for name in ("protocol", "metaData", "add")} for a in actions]
    pq.write_table(pa.Table.from_pylist(rows), log / f"{1:020d}.checkpoint.parquet")
    for file in log.glob("*.json"):
        file.unlink()
    table.commit(table.add(2))
    source = table.source()
    assert source is not None
    assert [row[0] for row in table.rows(source)] == [1, 2]


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        ({"partitionColumns": ["n"]}, {}),
        ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {}),
        ({}, {"deletionVector": {"storageType": "u", "cardinality": 1}}),
        ({}, {"path": "file:///elsewhere/1.parquet"}),
        ({}, {"path": "1*.parquet"}),
    ],
)
def test_what_is_unusual_is_left_to_the_extension(
    table: Written, begin: dict[str, Any], more: dict[str, Any]
) -> None:
    table.begin(**begin)
    table.commit(table.add(1, **more))
    assert table.source() is None


def test_a_hole_in_the_log_is_left_to_the_extension(table: Written) -> None:
    table.begin()
    table.commit(table.add(1))
    table.commit(table.add(2))
    assert table.source() is not None
    (table.folder / "_delta_log" / f"{1:020d}.json").unlink()
    assert table.source() is None


def test_a_newest_file_of_fewer_fields_is_left_to_the_extension(table: Written) -> None:
    table.begin()
    table.commit(table.add(1))
    table.commit(table.add(2, who="{'name': 'b'}"))
    assert table.source() is None
    assert [row[2] for row in table.by_delta] == [
        {"name": "a", "age": 1},
        {"name": "b", "age": None},
    ]


def test_a_statement_names_a_plain_table_and_its_files_without_the_extension(
    table: Written, asked: AskedViews
) -> None:
    table.begin()
    for n in (1, 2):
        table.commit(table.add(n))
    two = datetime(2026, 11, 20, 2, tzinfo=UTC)
    within = {"silver.t": ("time", two, two)}
    narrow = asked.execute("SELECT n FROM silver.t WHERE time = $at", {"at": two}, within)
    assert narrow.fetchall() == [(2,)]
    # What was narrowed for one statement is whole for the next.
    assert asked.execute("SELECT count(*) FROM silver.t", {}).fetchall() == [(2,)]
    files = asked.execute(f"SELECT filename FROM delta_scan('{table.folder}') ORDER BY 1", {})
    assert [Path(name).name for (name,) in files.fetchall()] == ["1.parquet", "2.parquet"]
    assert loaded(asked) == []


def test_an_older_file_without_a_column_is_read_as_delta_reads_it(
    table: Written, asked: AskedViews
) -> None:
    table.begin()
    table.commit(table.add(1, who=None), table.add(2, who="{'name': 'b'}"))
    table.commit(table.add(3))
    rows = asked.execute("SELECT n, time, who FROM silver.t ORDER BY n", {}).fetchall()
    assert rows == table.by_delta
    assert [row[2] for row in rows] == [None, {"name": "b", "age": None}, {"name": "a", "age": 1}]
    assert loaded(asked) == [("delta",)]


class Followed(Written):
    """The same, asked again and again by an engine that lives long."""

    def __init__(self, folder: Path, engine: duckdb.DuckDBPyConnection) -> None:
        super().__init__(folder, engine)
        self.tables = FollowedTables(engine)

    def files(self) -> list[str] | None:
        followed = self.tables.followed(self.folder, COLUMNS)
        return None if followed is None else sorted(file.name for file in followed[0])


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with open_engine(memory="256MB", threads=1) as engine:
        yield Followed(tmp_path / "t", engine)


def test_a_followed_table_has_what_was_committed_since(followed: Followed) -> None:
    followed.begin()
    followed.commit(followed.add(1))
    assert followed.files() == ["1.parquet"]
    followed.commit(followed.add(2), followed.add(3))
    followed.commit({"remove": {"path": "1.parquet", "dataChange": True}})
    assert followed.files() == ["2.parquet", "3.parquet"]


def test_a_followed_table_that_is_made_anew_is_read_anew(followed: Followed) -> None:
    followed.begin()
    followed.commit(followed.add(1))
    assert followed.files() == ["1.parquet"]
    log = followed.folder / "_delta_log"
    followed.version = 1
    followed.commit(followed.add(2))
    os.utime(log / f"{1:020d}.json", (0, 0))
    assert followed.files() == ["2.parquet"]


def test_a_followed_table_with_deleted_rows_is_left_to_the_extension(followed: Followed) -> None:
    followed.begin()
    followed.commit(followed.add(1))
    assert followed.files() == ["1.parquet"]
    followed.commit(followed.add(2, deletionVector={"storageType": "u", "cardinality": 1}))
    assert followed.files() is None
