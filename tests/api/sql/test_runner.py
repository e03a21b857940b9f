"""Statements: what is let in, and how what got in is bounded."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from api.sql.runner import Failed, Limit, Refused, Statements
from api.sql.worker import StatementRefused as WorkerRefused
from api.sql.worker import answer, engine, size_of
from infra.config.settings import load
from infra.delta.duckdb_views import definitions, needed
from infra.delta.plain_files import Bounds
from infra.errors import Usage
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.api.plain_desk import PlainDesk
from tests.api.story import EVENTS, insert

FOUR = (
    "WITH d AS (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4), "
    "e AS (SELECT a.x FROM d a, d b, d c, d f, d g, d h, d i), "
)
"""4 ** 7 = 16,384 rows to start a bomb with."""


@pytest.fixture(scope="module")
def statements(day: Lake) -> Iterator[Statements]:
    running = Statements(day.settings)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", "read_text"),
        ("SELECT read_text('/etc/passwd')", "read_text"),
        ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
        ("SELECT * FROM read_parquet('x')", "read_parquet"),
        ("SELECT * FROM delta_scan('/tmp')", "delta_scan"),
        ("SELECT * FROM sniff_csv('/etc/passwd')", "sniff_csv"),
        ("SELECT * FROM range(1000000)", "range"),
        ("SELECT * FROM glob('/*')", "not Spark SQL"),
        ("SELECT * FROM duckdb_settings()", "duckdb_settings"),
        ("SELECT * FROM '/etc/passwd'", "/etc/passwd"),
        ("SELECT * FROM `/etc/passwd`", "/etc/passwd"),
        ("SELECT * FROM csv.`/etc/passwd`", "csv./etc/passwd"),
        ("SELECT * FROM delta.`/tmp/x`", "delta./tmp/x"),
        ("SELECT * FROM information_schema.tables", "information_schema.tables"),
        ("SELECT * FROM main.duckdb_settings", "main.duckdb_settings"),
        ("SELECT * FROM system.main.duckdb_settings", "duckdb_settings"),
        ("SELECT * FROM pg_class", "pg_class"),
        ("SELECT getenv('HOME')", "getenv"),
        ("SELECT reflect('java.lang.System', 'exit', 1)", "reflect"),
        ("SELECT java_method('java.lang.Runtime', 'getRuntime')", "java_method"),
        ("SELECT TRANSFORM(src_ip) USING 'cat' FROM silver.event", "TRANSFORM"),
        ("SELECT hg_long('1')", "hg_long"),
        ("SELECT error('x')", "error"),
        ("SELECT current_user()", "current_user"),
        ("SELECT rand()", "rand"),
        ("COPY (SELECT 1) TO '/tmp/x'", "COPY"),
        ("ATTACH 'x.db' AS x", "not"),
        ("INSTALL httpfs", "SELECT"),
        ("LOAD httpfs", "not allowed"),
        ("PRAGMA version", "PRAGMA"),
        ("SET memory_limit = '99GB'", "SET"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("DESCRIBE silver.event", "DESCRIBE"),
        ("CALL pragma_version()", "not"),
        ("CREATE TABLE x AS SELECT 1", "CREATE"),
        ("INSERT INTO silver.event SELECT * FROM silver.event", "INSERT"),
        ("DELETE FROM silver.event", "DELETE"),
        ("DROP VIEW silver.events", "DROP"),
        ("SELECT 1; DROP VIEW silver.events", "one statement at a time; this holds 2"),
        ("SELECT 1; SELECT 2", "one statement at a time; this holds 2"),
        ("SELECT 1 /* ; */ ; -- \n SELECT 2", "one statement at a time; this holds 2"),
        ("", "one statement at a time; this holds 0"),
        ("-- nothing", "one statement at a time; this holds 0"),
        ("WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT * FROM r",
         "RECURSIVE"),
        ("SELECT /*+ BROADCAST(e) */ 1 FROM silver.event e", "HINT"),
        ("SELECT * FROM silver.event TABLESAMPLE (1 PERCENT)", "TABLE SAMPLE"),
        ("SELECT * FROM silver.event VERSION AS OF 0", "VERSION"),
        ("SELECT * FROM silver.nothing", "no table 'silver.nothing'; there are bronze.record"),
        ("SELECT explode(record_ids) FROM silver.event", "LATERAL VIEW explode"),
        ("SELECT 1.5 * duration FROM silver.event", "write 1.5D"),
        ("SELECT round(1.5D)", "round"),
        ("SELECT CAST(time AS FLOAT) FROM silver.event", "cast to FLOAT"),
        ("SELECT event_uid RLIKE '(?=x)' FROM silver.event", r"'\(\?='"),
        ("SELECT event_uid RLIKE user_name FROM silver.event", "written out"),
        ("SELECT record_ids[0] FROM silver.event", "a key written out"),
        ("SELECT time - received_at FROM silver.event", "interval"),
        ("SELECT coalesce(class_uid, time) FROM silver.event", "different types|Cannot mix"),
        ("SELECT CAST(duration / 3 AS STRING) FROM silver.event", "another text form"),
        ("SELECT * FROM silver.event LIMIT (SELECT 1)", "LIMIT"),
        ("SELECT :who", "no value for parameter :who"),
        ("SELECT ?", "parameters have names"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "nested too deeply"),
        ("SELECT " + "1+" * 20000 + "1", "parts; 20000 are the most|nested too deeply"),
        ("SELECT '" + "x" * 200_000 + "'", "100000 are the most"),
        ("SELECT " + "coalesce(" * 25 + "'y'" + ", 'x')" * 25, "too deep within each other"),
        ("SELECT year() FROM silver.event", "lacks an argument"),
        ("SELECT max_by(class_uid) FROM silver.event", "lacks an argument"),
        ("SELECT isnull() FROM silver.event", "lacks an argument"),
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused_by_name(
    sql: str, named: str, statements: Statements
) -> None:
    with pytest.raises((Refused, Failed), match=named):
        statements.run(sql)


def test_names_given_by_with_never_reach_the_engines_own_tables(statements: Statements) -> None:
    sql = "SELECT * FROM (WITH duckdb_settings AS (SELECT 1 AS x) SELECT * FROM duckdb_settings)"
    assert statements.run(sql).rows == [[1]]
    with pytest.raises(Failed):
        statements.run(f"{sql} JOIN duckdb_settings s ON s.name <> ''")


@pytest.mark.parametrize("name", ["current_schema", "current_catalog", "session_user", "rowid"])
def test_a_bare_name_is_a_column_never_the_engines_own_function(
    name: str, statements: Statements
) -> None:
    with pytest.raises((Refused, Failed), match=name):
        statements.run(f"SELECT {name} FROM silver.event")


def test_a_comment_hides_nothing(statements: Statements) -> None:
    answered = statements.run("SELECT 'a--b', /* FROM read_text('x') */ 1 -- ; DROP VIEW x")
    assert answered.rows == [["a--b", 1]]


def test_a_parameter_is_a_value_never_text_of_the_statement(statements: Statements) -> None:
    sql = "SELECT event_uid FROM silver.event WHERE src_ip = :ip"
    assert statements.run(sql, {"ip": "192.0.2.9"}).rows == [["e4:0"]]
    assert statements.run(sql, {"ip": "x' OR '1'='1"}).rows == []
    assert statements.run("SELECT :a, :b, :c", {"a": None, "b": True, "c": "it's \\ "}).rows == [
        [None, True, "it's \\ "]
    ]
    with pytest.raises(Refused, match="no parameter :other"):
        statements.run(sql, {"ip": "x", "other": 1})


def test_columns_have_spark_types_and_names(statements: Statements) -> None:
    answered = statements.run(
        "SELECT src_ip, count(*), max(time) AS t, sum(class_uid) AS s, collect_set(src_ip) AS c "
        "FROM silver.event GROUP BY src_ip"
    )
    assert [(c["name"], c["type"]) for c in answered.columns] == [
        ("src_ip", "string"),
        ("COUNT(*)", "bigint"),
        ("t", "timestamp"),
        ("s", "bigint"),
        ("c", "array<string>"),
    ]


def test_more_rows_than_the_limit_are_cut_and_marked(statements: Statements) -> None:
    sql = f"{FOUR} f AS (SELECT 1) SELECT x FROM e"
    cut = statements.run(sql)
    assert (len(cut.rows), cut.truncated, cut.truncated_by) == (50, True, "rows")
    whole = statements.run(f"{sql} LIMIT 50")
    assert (len(whole.rows), whole.truncated) == (50, False)
    assert len(statements.run(sql, max_rows=3).rows) == 3
    assert len(statements.run(sql, max_rows=10**9).rows) == 50


def test_a_huge_cell_is_left_out_and_marked(statements: Statements) -> None:
    sql = f"SELECT concat(class_name, '{'x' * 90_000}') AS big FROM silver.event"
    cut = statements.run(sql)
    assert len(cut.rows) == 2
    assert cut.truncated_by == "bytes"
    assert len(json.dumps(cut.rows)) <= 200_000


@pytest.mark.full
def test_a_bomb_of_time_is_stopped_and_the_next_statement_answered(statements: Statements) -> None:
    began = time.monotonic()
    with pytest.raises(Limit, match="stopped after 4 s"):
        statements.run(
            f"{FOUR} f AS (SELECT 1) SELECT count(*) FROM e a, e b, e c WHERE a.x + b.x * c.x = -1"
        )
    assert time.monotonic() - began < 8
    assert statements.run("SELECT 1").rows == [[1]]


def test_a_bomb_of_memory_is_stopped_and_the_next_statement_answered(
    statements: Statements,
) -> None:
    with pytest.raises(Limit, match=r"memory|stopped after"):
        statements.run(
            f"{FOUR} f AS (SELECT concat(a.x, '-', b.x) AS k, row_number() OVER "
            "(PARTITION BY a.x ORDER BY b.x) AS n FROM e a, e b) "
            "SELECT k, n, count(*) FROM f GROUP BY k, n ORDER BY n"
        )
    assert statements.run("SELECT 1").rows == [[1]]


@pytest.mark.full
def test_a_worker_that_was_killed_is_replaced(day: Lake) -> None:
    running = Statements(day.settings)
    try:
        for _ in range(3):
            running.run("SELECT 1")
            for process in running.processes:
                os.kill(process, signal.SIGKILL)
            while running.processes:
                time.sleep(0.01)
        assert running.run("SELECT 2").rows == [[2]]
    finally:
        running.close()


@pytest.mark.full
def test_closing_leaves_no_process_behind(day: Lake) -> None:
    running = Statements(day.settings)
    with ThreadPoolExecutor(2) as both:
        list(both.map(running.run, ["SELECT 1", "SELECT 2"]))
    started = running.processes
    running.close()
    assert started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_table_that_is_not_there_yet_is_named_and_found_once_it_is(
    lake: Lake, tmp_path: Path
) -> None:
    folder = lake.settings.lake_root / "gold" / "alert"
    away = folder.rename(tmp_path / "away")
    running = Statements(lake.settings)
    try:
        with pytest.raises(Refused, match=r"gold.alert \(it is made when its first job starts"):
            running.run("SELECT * FROM gold.alert")
        away.rename(folder)
        assert running.run("SELECT * FROM gold.alert").rows == []
        assert running.run("SELECT * FROM gold.alert_current").rows == []
    finally:
        running.close()


def test_a_new_commit_is_seen_by_the_next_statement(lake: Lake) -> None:
    running = Statements(lake.settings)
    try:
        sql = "SELECT count(*) AS n FROM silver.event"
        assert running.run(sql).rows == [[0]]
        insert(lake, EVENT, EVENTS[:2])
        assert running.run(sql).rows == [[2]]
    finally:
        running.close()


@pytest.mark.full
def _whole(table: str) -> list[Bounds]:
    """All rows of each table are asked for."""
    return [{}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "ATTACH '/tmp/x.db'",
        "COPY (SELECT 1) TO '/tmp/headgate-x.csv'",
        "SET memory_limit = '9GB'",
        "RESET enable_external_access",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_the_engine_itself_is_shut_in_behind_the_list(sql: str, plain: bool, day: Lake) -> None:
    root = day.settings.lake_root
    known = definitions(root)
    wanted = needed(["silver.event"], known) if plain else known
    connection, _ = engine(str(root), wanted, "300MB", asked=_whole if plain else None)
    with pytest.raises((WorkerRefused, duckdb.Error)):
        answer(connection, sql, 10, 10_000)
    assert answer(connection, "SELECT count(*) FROM silver.event", 10, 10_000)["rows"] == [[8]]


def test_a_copy_into_the_lake_is_refused_as_no_select(day: Lake) -> None:
    root = day.settings.lake_root
    connection, _ = engine(str(root), definitions(root), "300MB")
    target = root / "planted.csv"
    with pytest.raises(WorkerRefused, match="only one SELECT"):
        answer(connection, f"COPY (SELECT 1) TO '{target}'", 10, 10_000)
    assert not target.exists()


@pytest.mark.full
def test_a_process_for_one_statement_answers_as_those_that_last_do(
    day: Lake, statements: Statements
) -> None:
    once = Statements(day.settings, workers=1, once=True)
    try:
        for sql in (
            "SELECT 1 AS n",
            "SELECT class_name, count(*) AS n FROM silver.events GROUP BY 1 ORDER BY 1",
            "SELECT * FROM silver.event ORDER BY event_uid",
            "SELECT alert_id, level FROM gold.alert_current ORDER BY 1",
        ):
            lasting, single = statements.run(sql), once.run(sql)
            assert single.rows == lasting.rows, sql
            assert single.columns == lasting.columns, sql
        for sql in ("SELECT 1 % 0", "SELECT CAST(class_name AS INT) FROM silver.events"):
            with pytest.raises((Failed, Refused)) as lasting_error:
                statements.run(sql)
            with pytest.raises(lasting_error.type, match=re.escape(str(lasting_error.value))):
                once.run(sql)
        with pytest.raises(Refused, match="read_text"):
            once.run("SELECT read_text('/etc/passwd')")
    finally:
        once.close()


def test_a_statement_about_plain_tables_loads_no_extension(tmp_path: Path) -> None:
    root = PlainDesk(tmp_path, devices=6).settings.lake_root
    connection, views = engine(
        str(root), needed(["gold.alert"], definitions(root)), "300MB", asked=_whole
    )
    # What the extension brings: the list of extensions itself is shut off.
    asked = "SELECT count(*) FROM duckdb_functions() WHERE function_name = 'delta_scan'"
    assert connection.execute(asked).fetchall() == [(0,)]
    assert views.lacking(["gold.alert"]) == {}
    assert answer(connection, "SELECT count(*) FROM gold.alert", 10, 10_000)["rows"] == [[6]]


def test_the_worker_knows_no_secret(day: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_API__TOKEN", "very-secret")
    running = Statements(day.settings)
    try:
        running.run("SELECT 1")
        environment = Path(f"/proc/{running.processes[0]}/environ").read_bytes()
    finally:
        running.close()
    assert b"very-secret" not in environment
    assert b"PYTHONPATH" in environment


def test_sizes_are_read_and_nonsense_is_named() -> None:
    assert size_of("512MB") == 512_000_000
    assert size_of("1GiB") == 2**30
    with pytest.raises(ValueError, match="'much'"):
        size_of("much")


def test_an_unreadable_lake_is_said_not_thrown(tmp_path: Path) -> None:
    running = Statements(load(home=tmp_path))
    try:
        with pytest.raises(Usage, match="not in the lake"):
            running.run("SELECT * FROM gold.alert")
    finally:
        running.close()
