"""Statements over Flight SQL: Arrow answers, bounded and noted as those over REST."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest

from api.services.quotas import Quotas, QuotaUsedUp
from tests.api.flight.flight_desk import FlightDesk
from tests.api.sql.test_text_bounds import LONG
from tests.full import rest_full

Refusal = adbc_driver_manager.Error
SIX = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(6))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightDesk]:
    running = FlightDesk(
        tmp_path_factory.mktemp("flight"), statement_rows=5, statement_bytes=20_000
    )
    yield running
    running.close()


def test_an_answer_has_arrow_s_types_and_names_the_engine(desk: FlightDesk) -> None:
    with desk.adbc() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) AS n, sum(revision) AS s, min(event_time) AS t, "
            "collect_set(activity) AS a, 1.5D AS d FROM gold.alert"
        )
        table = cursor.fetch_arrow_table()
    assert table.schema.types == [
        pa.int64(), pa.int64(), pa.timestamp("us", "UTC"), pa.list_(pa.string()),
        pa.float64(),
    ]  # fmt: skip
    assert table["n"].to_pylist() == [3]
    assert table["t"][0].as_py() < datetime.now(UTC)
    bare = desk.bare("CommandStatementQuery", query="SELECT 1 AS x")
    assert bare.schema.metadata[b"headgate.engine"] == b"duckdb"


def test_a_second_column_of_a_name_keeps_its_place(desk: FlightDesk) -> None:
    assert desk.rows("SELECT 1 AS x, 2 AS x") == [{"x": 1, "x_1": 2}]
    (row,) = desk.rows("SELECT sum(1) AS s, sum(2) AS s")
    assert list(row.values()) == [1, 2]


@pytest.mark.parametrize(
    ("sql", "sentence"),
    rest_full(
        # Spark is asked about a function that is not on DuckDB's list, and takes long to begin.
        lambda case: "read_text" not in case[0],
        [
            ("DROP TABLE gold.alert", "DROP is not allowed; a statement is a SELECT"),
            ("DELETE FROM gold.alert", "DELETE is not allowed"),
            ("SELECT * FROM read_text('/etc/passwd')", "read_text"),
            ("SELECT nothing FROM gold.alert", '"nothing" not found'),
            ("SELECT * FROM gold.nothing", "no table 'gold.nothing'"),
            ("SELECT x / 0 AS y FROM (SELECT 1 AS x)", "division by zero"),
            ("SELECT ?", "parameters are not taken here; write the values into the statement"),
        ],
    ),
)
def test_a_refusal_is_a_sentence_and_tells_nothing_of_the_machine(
    desk: FlightDesk, sql: str, sentence: str
) -> None:
    with pytest.raises(Refusal) as refused:
        desk.rows(sql)
    assert sentence in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert ".py" not in str(refused.value)


def test_an_answer_beyond_a_limit_is_refused_and_never_cut(desk: FlightDesk) -> None:
    assert len(desk.rows(f"{SIX} LIMIT 5")) == 5
    with pytest.raises(Refusal, match=r"more than 5 rows \(api.statement_rows\).*write LIMIT"):
        desk.rows(SIX)
    with pytest.raises(Refusal, match=r"more than 20,000 bytes \(api.statement_bytes\)"):
        desk.rows(f"SELECT repeat_of FROM (SELECT '{'x' * 30_000}' AS repeat_of)")


def test_each_statement_is_noted_with_whose_key_it_was(desk: FlightDesk) -> None:
    token, before = desk.key("noted"), len(desk.audited())
    desk.rows("SELECT level FROM gold.alert", token)
    with pytest.raises(Refusal):
        desk.rows("SHOW TABLES", token)
    with pytest.raises(Refusal):
        desk.rows(SIX, token)
    good, refused, cut = desk.audited()[before:]
    assert {act["who"] for act in (good, refused, cut)} == {"noted"}
    assert good["outcome"] == "ok"
    assert good["detail"] == {
        "sql": "SELECT level FROM gold.alert", "over": "flight", "rows": 3,
    }  # fmt: skip
    assert refused["outcome"] == "refused"
    assert cut["outcome"] == "failed"
    assert "more than 5 rows" in cut["detail"]["said"]


def test_a_cursor_that_is_cancelled_ends_its_statement(desk: FlightDesk) -> None:
    before = len(desk.audited())
    with desk.adbc(desk.key("leaver")) as connection, connection.cursor() as cursor:
        leaving = threading.Thread(target=_cancel_once_begun, args=(desk, cursor))
        leaving.start()
        with pytest.raises(Refusal):
            _asked(cursor, LONG)
        leaving.join()
    _until(lambda: len(desk.audited()) > before)
    assert "hung up" in desk.audited()[-1]["detail"]["said"]


@pytest.mark.full
def test_a_key_s_statements_wait_for_each_other_and_two_keys_run_side_by_side(
    desk: FlightDesk,
) -> None:
    first, second = desk.key("first"), desk.key("second")
    with desk.adbc(first) as connection, connection.cursor() as cursor:
        running = threading.Thread(target=_swallowed, args=(cursor, LONG))
        running.start()
        _until(lambda: _begun(desk))
        with pytest.raises(QuotaUsedUp):
            _enter(desk.app.state.services.quotas, "first")
        assert desk.rows("SELECT 1 AS x", second) == [{"x": 1}]
        waiting = ThreadPoolExecutor(1).submit(desk.rows, "SELECT 2 AS x", first)
        cursor.adbc_cancel()
        running.join()
        assert waiting.result() == [{"x": 2}]


def test_the_seconds_of_a_key_are_those_of_rest(desk: FlightDesk) -> None:
    token, quotas = desk.key("spent"), desk.app.state.services.quotas
    limit = desk.settings.api.statement_seconds_per_hour
    quotas._filled(quotas._seconds, "spent", limit, 3600).left = -10
    with pytest.raises(Refusal, match=r"ran for 1800 s within the hour.*again in \d+ s"):
        desk.rows("SELECT 1 AS x", token)


def test_streams_of_one_connection_are_read_in_any_order(desk: FlightDesk) -> None:
    with desk.adbc() as connection, connection.cursor() as one, connection.cursor() as two:
        one.execute(f"{SIX} LIMIT 4")
        two.execute("SELECT 9 AS n")
        assert two.fetchall() == [(9,)]
        assert one.fetchone() == (0,)
        assert len(one.fetchall()) == 3


def test_what_writes_is_refused_by_its_name(desk: FlightDesk) -> None:
    with desk.adbc() as connection, connection.cursor() as cursor:
        with pytest.raises(Refusal, match="CommandStatementIngest is not taken"):
            cursor.adbc_ingest("gold.alert", pa.table({"n": [1]}))
        with pytest.raises(Refusal, match="INSERT is not allowed"):
            cursor.executemany("INSERT INTO gold.alert VALUES (?)", [(1,)])
        with pytest.raises(Refusal, match="CreatePreparedSubstraitPlan is not taken"):
            cursor.execute(b"plan")
    with pytest.raises(Exception, match="BeginTransaction is not taken"):
        desk.action("BeginTransaction", b"")
    with pytest.raises(Exception, match="transactions are not taken"):
        desk.bare("CommandStatementQuery", query="SELECT 1", transaction_id=b"x")


def test_a_prepared_statement_is_run_again_and_closed(desk: FlightDesk) -> None:
    with desk.adbc() as connection, connection.cursor() as cursor:
        cursor.adbc_prepare("SELECT level FROM gold.alert")
        cursor.execute("SELECT level FROM gold.alert")
        assert len(cursor.fetchall()) == 3
        cursor.execute("SELECT level FROM gold.alert")
        assert len(cursor.fetchall()) == 3


@pytest.mark.full
def test_a_tool_of_sqlalchemy_lists_and_reads_the_tables(desk: FlightDesk) -> None:
    import flightsql.sqlalchemy  # noqa: F401  # registers its dialect
    from sqlalchemy import MetaData, Table, create_engine, func, inspect, select

    engine = create_engine(
        f"datafusion+flightsql://127.0.0.1:{desk.port}?insecure=True&token={'t' * 32}"
    )
    assert set(inspect(engine).get_schema_names()) == {"bronze", "silver", "gold", "ops"}
    assert "alert" in inspect(engine).get_table_names(schema="gold")
    alert = Table("alert", MetaData(schema="gold"), autoload_with=engine)
    with engine.connect() as connection:
        counted = select(func.count()).select_from(alert).where(alert.c.revision == 1)
        assert connection.execute(counted).fetchall() == [(3,)]


def _enter(quotas: Quotas, name: str) -> None:
    with quotas.statement(name, 1, 1800):
        raise AssertionError


def _cancel_once_begun(desk: FlightDesk, cursor: Any) -> None:
    _until(lambda: _begun(desk))
    cursor.adbc_cancel()


def _begun(desk: FlightDesk) -> list[Path]:
    return list((desk.settings.home / "spool" / "audit").glob(".*.begun"))


def _swallowed(cursor: Any, sql: str) -> None:
    with pytest.raises(Refusal):
        _asked(cursor, sql)


def _asked(cursor: Any, sql: str) -> list[Any]:
    cursor.execute(sql)
    rows: list[Any] = cursor.fetchall()
    return rows


def _until(ready: object) -> None:
    assert callable(ready)
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)
