"""A statement opens the files in which its rows may be, and answers as if it opened all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.sql.file_bounds import Planner
from api.sql.worker import LastingEngine
from tests.api.sql.visits import (
    BEGAN,
    FILES,
    VISIT,
    WHERE,
    WIDER,
    answer,
    asked,
    catalogue,
    opened,
    rows,
)
from tests.examples import examples
from tests.infra.by_hand import add, define


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    folder = lake / "silver" / "visit"
    define(folder, VISIT)
    for file in range(FILES):
        add(folder, VISIT, rows(file))
    return lake


@pytest.fixture(scope="module")
def narrowed(lake: Path) -> Iterator[LastingEngine]:
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr("infra.delta.view_refresh.FEW_FILES", 1)
        yield opened(lake)


@pytest.fixture(scope="module")
def whole(lake: Path) -> duckdb.DuckDBPyConnection:
    engine = opened(lake)
    # As the Delta extension reads it, with no file passed over but by itself.
    return engine.connection


def _files(engine: LastingEngine) -> int:
    """How many files the table is read from."""
    (sql,) = engine.connection.execute(
        "SELECT sql FROM duckdb_views() WHERE view_name = 'visit'"
    ).fetchall()[0]
    return len(re.findall(r"\.parquet'", sql))


@examples(50)
@given(WHERE, WHERE, st.sampled_from(["silver.visit", "silver.visits"]))
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
        by_all = whole.execute(asked(lake, sql)["sql"]).fetchall()
        assert [tuple(row) for row in answer(narrowed, lake, sql)] == by_all, sql


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
def test_files_beside_what_is_asked_are_notopened(
    lake: Path, narrowed: LastingEngine, where: str, files: int
) -> None:
    answer(narrowed, lake, f"SELECT count(*) FROM silver.visit WHERE {where}")
    # The first is among them in any case: it says which columns there are.
    assert _files(narrowed) == files


def test_bounds_of_a_table_that_is_named_twice_are_told_of_both_places(lake: Path) -> None:
    planner = Planner(catalogue(lake))
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
        add(folder, VISIT, rows(file))
    define(folder, WIDER)
    add(folder, WIDER, [{"n": 99, "time": BEGAN, "name": "ann", "share": 0.5, "site": "hq"}])
    engine = opened(tmp_path)
    sql = "SELECT site, count(*) FROM silver.visit WHERE time < '2026-11-17' GROUP BY 1 ORDER BY 1"
    assert answer(engine, tmp_path, sql) == [[None, 30], ["hq", 1]]
    with pytest.raises(duckdb.Error, match="division by zero"):
        answer(engine, tmp_path, "SELECT 1 / (n - 99) FROM silver.visit WHERE n = 99")


def test_an_engine_that_keeps_too_much_of_files_begins_anew(lake: Path) -> None:
    engine = opened(lake)
    sql = "SELECT count(*) FROM silver.visit"
    assert answer(engine, lake, sql) == [[FILES * 3]]
    before = engine.connection
    engine.tidy()
    assert engine.connection is before
    engine.most_cached = 1
    engine.tidy()
    assert engine.connection is not before
    assert answer(engine, lake, sql) == [[FILES * 3]]
