"""What is answered from kept partial aggregates is what all files would answer."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.sql.worker import LastingEngine, plain
from infra.delta.log_archive import LOG
from tests.api.sql.visits import BEGAN, NAMES, VISIT, WHERE, answer, asked, opened
from tests.examples import examples
from tests.infra.by_hand import add, commit, define

SEED = 20261129
HOURS = 72


def _visits(chance: random.Random, count: int = 5) -> list[dict[str, Any]]:
    """Rows of a file, most within two hours; few files have a row without a time."""
    first = chance.randrange(HOURS)
    return [
        {
            "n": chance.randrange(-5, 60),
            "time": BEGAN + timedelta(hours=first, minutes=chance.randrange(120)),
            "name": chance.choice([*NAMES, None]),
            "share": chance.choice([None, 0.25, 1.5]),
        }
        for _ in range(count)
    ]


def _active(folder: Path) -> list[str]:
    files: dict[str, None] = {}
    for log in sorted((folder / LOG).glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = None
            elif "remove" in action:
                files.pop(action["remove"]["path"])
    return list(files)


def _merge(folder: Path, chance: random.Random) -> None:
    """Two files become one of the same rows, as by `headgate compact`."""
    merged = chance.sample(_active(folder), 2)
    names = [str(folder / name) for name in merged]
    table = duckdb.execute(f"SELECT * FROM read_parquet({names})").to_arrow_table()
    add(folder, VISIT, table.to_pylist())
    commit(folder, *({"remove": {"path": name, "dataChange": False}} for name in merged))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    chance = random.Random(SEED)
    define(lake / "silver" / "visit", VISIT)
    for _ in range(24):
        add(lake / "silver" / "visit", VISIT, _visits(chance))
    return lake


@pytest.fixture(scope="module")
def engine(lake: Path) -> LastingEngine:
    engine = opened(lake)
    engine.kept.least_rows, engine.kept.most_pieces = 1, 2
    return engine


@pytest.fixture(scope="module")
def whole(lake: Path) -> duckdb.DuckDBPyConnection:
    """As the Delta extension reads it."""
    return opened(lake).connection


_KEYS = st.lists(
    st.sampled_from(
        [
            "name",
            "to_date(time)",
            "CAST(to_date(time) AS STRING)",
            "CAST(n AS STRING)",
            "unix_timestamp(date_trunc('DAY', time))",
            "date_trunc('HOUR', time)",
            "n % 3",
            "n IS NULL",
            "length(name)",
        ]
    ),
    max_size=2,
    unique=True,
)
_AGGREGATES = st.lists(
    st.sampled_from(
        ["count(*)", "count(name)", "sum(n)", "min(time)", "unix_timestamp(max(time))", "max(name)",
         "min(share)", "count(DISTINCT name)", "count(DISTINCT n)", "count_if(n > 3)", "median(n)",
         "bool_or(n > 50)", "bool_and(n > 0)", "count(*) FILTER (WHERE share > 1)", "avg(n)",
         "sum(share)", "sum(n) / count(*)", "CAST(count(*) AS STRING)",
         "max_by(n, time)", "1 + count(share)"]
    ),
    min_size=1,
    max_size=3,
    unique=True,
)  # fmt: skip
_HAVING = st.sampled_from(["", "", " HAVING count(*) > 4", " HAVING max(n) > 30 AND min(n) < 20"])


def _statement(keys: list[str], aggregates: list[str], where: str, having: str) -> str:
    columns = [f"{written} AS c{place}" for place, written in enumerate([*keys, *aggregates])]
    grouped = f" GROUP BY {', '.join(str(n + 1) for n in range(len(keys)))}" if keys else ""
    order = ", ".join(str(n + 1) for n in range(len(columns)))
    return (
        f"SELECT {', '.join(columns)} FROM silver.visit WHERE {where.format('')}"
        f"{grouped}{having} ORDER BY {order}"
    )


@examples(60, deadline=None)
@given(
    _KEYS,
    _AGGREGATES,
    WHERE,
    _HAVING,
    st.sampled_from(["silver.visit", "silver.visits"]),
    st.integers(0, 2**32),
)
def test_answers_stay_those_of_all_files_while_files_come_and_go(
    lake: Path,
    engine: LastingEngine,
    whole: duckdb.DuckDBPyConnection,
    keys: list[str],
    aggregates: list[str],
    where: str,
    having: str,
    table: str,
    seed: int,
) -> None:
    chance = random.Random(seed)
    folder = lake / "silver" / "visit"
    sql = _statement(keys, aggregates, where, having).replace("silver.visit", table)
    for change in (lambda: None, lambda: add(folder, VISIT, _visits(chance)),
                   lambda: _merge(folder, chance), lambda: None):  # fmt: skip
        change()
        by_all = whole.execute(asked(lake, sql)["sql"]).fetchall()
        assert answer(engine, lake, sql) == [[plain(value) for value in row] for row in by_all], sql


DAILY = "SELECT to_date(time) AS d, count(*) AS n FROM silver.visit {} GROUP BY 1 ORDER BY 1"


def _kept(engine: LastingEngine) -> list[str]:
    """The tables that are kept."""
    rows = engine.connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1")
    return [name for (name,) in rows.fetchall()]


def _days(tmp_path: Path) -> tuple[Path, LastingEngine]:
    """A lake of three days, four files and twelve rows each, and an engine that was asked nothing.

    It keeps partial aggregates of small tables too.
    """
    define(tmp_path / "silver" / "visit", VISIT)
    for file in range(12):
        _add_file(tmp_path, timedelta(hours=6 * file))
    engine = opened(tmp_path)
    engine.kept.least_rows = 1
    return tmp_path, engine


def _add_file(lake: Path, after: timedelta) -> None:
    rows = [
        {"n": n, "time": BEGAN + after + timedelta(hours=n), "name": f"name {n}", "share": None}
        for n in range(3)
    ]
    add(lake / "silver" / "visit", VISIT, rows)


def test_asked_again_only_new_files_are_counted(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    sql = DAILY.format("")
    assert [n for _, n in answer(engine, lake, sql)] == [12, 12, 12]
    before = _kept(engine)
    assert len(before) == 3
    assert [n for _, n in answer(engine, lake, sql)] == [12, 12, 12]
    assert _kept(engine) == before
    _add_file(lake, timedelta(hours=25))
    assert [n for _, n in answer(engine, lake, sql)] == [12, 15, 12]
    (new,) = set(_kept(engine)) - set(before)
    assert engine.connection.execute(f'SELECT "hg a0" FROM "{new}"').fetchall() == [(3,)]


def test_times_that_move_on_leave_what_is_kept_of_whole_days(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    sql = DAILY.format("WHERE time >= TIMESTAMP'2026-11-16 {}:00:00'")
    assert [n for _, n in answer(engine, lake, sql.format("01"))] == [11, 12, 12]
    before = _kept(engine)
    # Of the day on which they begin rows are left out, so it is counted each time.
    assert len(before) == 2
    for hour, first in (("07", 8), ("10", 6), ("20", 1)):
        assert [n for _, n in answer(engine, lake, sql.format(hour))] == [first, 12, 12]
        assert _kept(engine) == before


def test_merged_files_are_counted_anew(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    assert answer(engine, lake, DAILY.format(""))
    before = _kept(engine)
    _merge(lake / "silver" / "visit", random.Random(SEED))
    assert [n for _, n in answer(engine, lake, DAILY.format(""))] == [12, 12, 12]
    assert len(_kept(engine)) <= 4
    assert set(before) - set(_kept(engine))


def test_what_saves_too_little_is_not_kept(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    engine.kept.few = 1
    sql = "SELECT time, count(*) FROM silver.visit GROUP BY 1"
    assert len(answer(engine, lake, sql)) == 36
    assert _kept(engine) == []


def test_sums_that_depend_on_the_order_are_not_kept(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    assert answer(engine, lake, "SELECT sum(n), sum(share) FROM silver.visit") == [[36, None]]
    assert _kept(engine) == []
    assert answer(engine, lake, "SELECT sum(n + 1) FROM silver.visit") == [[72]]
    assert len(_kept(engine)) == 3


def test_of_a_small_table_nothing_is_kept(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    engine.kept.least_rows = 37
    assert answer(engine, lake, DAILY.format(""))
    assert _kept(engine) == []


def test_of_two_statements_the_one_not_asked_for_longer_makes_room(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    assert answer(engine, lake, DAILY.format(""))
    first = _kept(engine)
    # A little more than the next one takes by itself: numbers are wider than days.
    engine.kept.most_bytes = engine.kept.taken() * 4 // 3
    sql = "SELECT n, count(*) FROM silver.visit GROUP BY 1 ORDER BY 1"
    assert answer(engine, lake, sql) == [[0, 12], [1, 12], [2, 12]]
    assert len(_kept(engine)) == 3
    assert set(_kept(engine)).isdisjoint(first)


def test_what_takes_too_much_is_not_kept(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    engine.kept.most_bytes = 1
    assert [n for _, n in answer(engine, lake, DAILY.format(""))] == [12, 12, 12]
    assert _kept(engine) == []


def test_a_statement_that_fails_says_why_as_before(tmp_path: Path) -> None:
    lake, engine = _days(tmp_path)
    sql = "SELECT n, sum(1 / n) AS s FROM silver.visit GROUP BY 1"
    with pytest.raises(duckdb.Error, match="division by zero"):
        answer(engine, lake, sql)
    assert _kept(engine) == []
