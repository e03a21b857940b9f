"""A statement opens the files in which its rows may be, and answers as if it opened all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from api.sql.file_bounds import Planner
from api.sql.translation import translated
from api.sql.worker import LastingEngine
from infra.delta.duckdb_views import Definition
from infra.delta.plain_files import duck_type
from infra.delta.schema import Column, Table
from tests.examples import examples
from tests.infra.by_hand import add, define

BEGAN = datetime(2026, 11, 16, tzinfo=UTC)
NAMES = ("ann", "bob", "o'neil", "x' AND n>='0", "zoë", "a" * 40)
VISIT = Table(
    "silver.visit",
    "visits",
    (
        Column("n", T.LongType(), "a number"),
        Column("time", T.TimestampType(), "when"),
        Column("name", T.StringType(), "who", False),
        Column("share", T.DoubleType(), "a part", False),
    ),
    stats=("n", "time", "name", "share"),
)
WIDER = Table(
    VISIT.name, VISIT.doc, (*VISIT.columns, Column("site", T.StringType(), "where", False))
)
FILES = 24


def _catalogue(lake: Path) -> list[Definition]:
    columns = tuple((column.name, duck_type(column.type)) for column in WIDER.columns)
    return [
        Definition("silver.visit", "", str(lake / "silver" / "visit"), columns),
        Definition("silver.visits", "SELECT * FROM silver.visit WHERE n >= 0", None),
    ]


def _rows(file: int) -> list[dict[str, Any]]:
    """Of one file: two hours each, and every fifth has no names."""
    return [
        {
            "n": file * 3 + row - 5,
            "time": BEGAN + timedelta(hours=2 * file, minutes=row * 40),
            "name": None if file % 5 == 4 else NAMES[(file + row) % len(NAMES)],
            "share": file / 7,
        }
        for row in range(3)
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    folder = lake / "silver" / "visit"
    define(folder, VISIT)
    for file in range(FILES):
        add(folder, VISIT, _rows(file))
    return lake


def _opened(lake: Path) -> LastingEngine:
    return LastingEngine({"lake_root": str(lake), "memory": "300MB"}, _catalogue(lake), [])


@pytest.fixture(scope="module")
def narrowed(lake: Path) -> Iterator[LastingEngine]:
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr("infra.delta.view_refresh.FEW_FILES", 1)
        yield _opened(lake)


@pytest.fixture(scope="module")
def whole(lake: Path) -> duckdb.DuckDBPyConnection:
    engine = _opened(lake)
    # As the Delta extension reads it, with no file passed over but by itself.
    return engine.connection


def _asked(lake: Path, sql: str) -> dict[str, Any]:
    known = _catalogue(lake)
    translation = translated(sql, frozenset(d.name for d in known), None, 1_000, None, known)
    return {
        "sql": translation.sql,
        "tables": translation.tables,
        "max_rows": 1_000,
        "max_bytes": 10**6,
    }


def _answer(engine: LastingEngine, lake: Path, sql: str) -> Sequence[Any]:
    rows: Sequence[Any] = engine.answer(_asked(lake, sql), lambda progress: None)["rows"]
    return rows


def _files(engine: LastingEngine) -> int:
    """How many files the table is read from."""
    (sql,) = engine.connection.execute(
        "SELECT sql FROM duckdb_views() WHERE view_name = 'visit'"
    ).fetchall()[0]
    return len(re.findall(r"\.parquet'", sql))


_TIMES = st.builds(
    lambda hours: f"'{BEGAN + timedelta(minutes=hours * 20):%Y-%m-%d %H:%M:%S}'",
    st.integers(-10, FILES * 6 + 10),
)
_DAYS = st.sampled_from(
    ["'2026-11-15'", "DATE'2026-11-16'", "'2026-11-17'", "to_date('2026-11-18')"]
)
_TEXTS = st.sampled_from([f"'{name}'".replace("o'n", "o\\'n").replace("x' A", "x\\' A")
                          .replace("n>='0", "n>=\\'0") for name in NAMES])  # fmt: skip
_SIGNS = st.sampled_from(["=", "<", ">", "<=", ">=", "<>"])
_COMPARED = st.one_of(
    st.builds("{}time {} {}".format, st.just("{0}"), _SIGNS, _TIMES),
    st.builds("to_date({}time) {} {}".format, st.just("{0}"), _SIGNS, _DAYS),
    st.builds("to_date({}time) BETWEEN {} AND {}".format, st.just("{0}"), _DAYS, _DAYS),
    st.builds("{}n {} {}".format, st.just("{0}"), _SIGNS, st.integers(-6, FILES * 3)),
    st.builds("{}name {} {}".format, st.just("{0}"), _SIGNS, _TEXTS),
    st.builds("{}name IN ({}, {})".format, st.just("{0}"), _TEXTS, _TEXTS),
    st.builds("{}share {} {}".format, st.just("{0}"), _SIGNS, st.sampled_from(["1", "0.5D"])),
    st.sampled_from(["{0}name IS NULL", "{0}name <=> NULL", "{0}name LIKE 'a%'"]),
)
_WHERE = st.recursive(
    _COMPARED,
    lambda below: st.one_of(
        st.builds("({} AND {})".format, below, below),
        st.builds("({} OR {})".format, below, below),
        st.builds("(NOT {})".format, below),
    ),
    max_leaves=5,
)


@examples(50)
@given(_WHERE, _WHERE, st.sampled_from(["silver.visit", "silver.visits"]))
def test_answers_are_those_of_all_files(
    lake: Path,
    narrowed: LastingEngine,
    whole: duckdb.DuckDBPyConnection,
    one: str,
    other: str,
    table: str,
) -> None:
    statements = (
        f"SELECT n FROM {table} WHERE {one.format('')} ORDER BY n",
        f"SELECT count(*) FROM (SELECT time, name, n, share FROM {table} WHERE {one.format('')}) "
        f"WHERE {other.format('')}",
        f"SELECT a.n, b.n FROM {table} a LEFT JOIN silver.visit b ON a.name = b.name "
        f"AND {one.format('b.')} WHERE {other.format('a.')} ORDER BY 1, 2 LIMIT 50",
        f"SELECT n FROM silver.visit WHERE {one.format('')} UNION ALL "
        f"SELECT n FROM {table} WHERE name IN (SELECT name FROM {table} WHERE {other.format('')}) "
        "ORDER BY n",
    )
    for sql in statements:
        by_all = whole.execute(_asked(lake, sql)["sql"]).fetchall()
        assert [tuple(row) for row in _answer(narrowed, lake, sql)] == by_all, sql


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("time >= '2026-11-17' AND time < '2026-11-17 04:00:00'", 4),
        ("to_date(time) = '2026-11-16'", 14),
        ("time > current_timestamp() + INTERVAL 1 DAY", 1),
        ("n = 3", 2),
        ("name < 'a'", 1),
        ("name < 'c' AND n > 40", 7),
        ("time < '2026-11-16 02:00:00' OR n = 50", FILES),
        ("unix_timestamp(time) > 1795945128", FILES),
    ],
)
def test_files_beside_what_is_asked_are_not_opened(
    lake: Path, narrowed: LastingEngine, where: str, files: int
) -> None:
    _answer(narrowed, lake, f"SELECT count(*) FROM silver.visit WHERE {where}")
    # The first is among them in any case: it says which columns there are.
    assert _files(narrowed) == files


def test_bounds_of_a_table_that_is_named_twice_are_told_of_both_places(lake: Path) -> None:
    planner = Planner(_catalogue(lake))
    sql = (
        "SELECT count(*) FROM silver.visit a JOIN silver.visits b USING (n) "
        "WHERE a.time > TIMESTAMPTZ '2026-11-17 00:00:00Z' AND b.name = 'ann' AND b.n < 9"
    )
    bounds = planner.bounds(sql, ["silver.visit", "silver.visits"])["silver.visit"]
    after = (datetime(2026, 11, 17, tzinfo=UTC), None)
    assert len(bounds) == 2
    assert {"n": (0, 9), "name": ("ann", "ann")} in bounds
    assert after in [between.get("time") for between in bounds]
    assert planner.bounds("SELECT nonsense(", ["silver.visit"]) == {}


def test_files_of_an_earlier_release_are_answered_by_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "silver" / "visit"
    define(folder, VISIT)
    for file in range(10):
        add(folder, VISIT, _rows(file))
    define(folder, WIDER)
    add(folder, WIDER, [{"n": 99, "time": BEGAN, "name": "ann", "share": 0.5, "site": "hq"}])
    engine = _opened(tmp_path)
    sql = "SELECT site, count(*) FROM silver.visit WHERE time < '2026-11-17' GROUP BY 1 ORDER BY 1"
    assert _answer(engine, tmp_path, sql) == [[None, 30], ["hq", 1]]
    with pytest.raises(duckdb.Error, match="division by zero"):
        _answer(engine, tmp_path, "SELECT 1 / (n - 99) FROM silver.visit WHERE n = 99")


def test_an_engine_that_keeps_too_much_of_files_begins_anew(lake: Path) -> None:
    engine = _opened(lake)
    sql = "SELECT count(*) FROM silver.visit"
    assert _answer(engine, lake, sql) == [[FILES * 3]]
    before = engine.connection
    engine.tidy()
    assert engine.connection is before
    engine.most_cached = 1
    engine.tidy()
    assert engine.connection is not before
    assert _answer(engine, lake, sql) == [[FILES * 3]]
