"""Statements that Spark answers: whole Spark SQL, within the same bounds as those of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from api.app import create_app
from api.sql.runner import Failed, Limit, Refused, Statements
from api.sql.spark_functions import FUNCTIONS, TABLE_FUNCTIONS
from infra.config.settings import Settings
from infra.spark.internals import functions_of
from infra.streaming.lake import Lake
from tests.api.conftest import TOKEN
from tests.wait import until

pytestmark = pytest.mark.full
"""A Spark of its own is begun: what is said of each engine in few words, `test_runner` tries."""

KEPT_OUT = {
    "current_user", "from_avro", "from_protobuf", "from_xml", "input_file_block_length",
    "input_file_block_start", "input_file_name", "java_method", "reflect", "schema_of_avro",
    "schema_of_xml", "session_user", "to_avro", "to_protobuf", "to_xml", "try_reflect", "user",
    "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long",
    "xpath_number", "xpath_short", "xpath_string",
}  # fmt: skip


def _with_spark(day: Lake, **changed: object) -> Settings:
    # The story's few seconds are meant for DuckDB.
    limits = {"spark_engine": True, "statement_seconds": 120.0} | changed
    api = day.settings.api.model_copy(update=limits)
    return day.settings.model_copy(update={"api": api})


@pytest.fixture(scope="module")
def statements(day: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Statements]:
    running = Statements(_with_spark(day), results=tmp_path_factory.mktemp("results"))
    yield running
    running.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT round(2.5), bround(2.5), 1.1 * 1.1",
        "SELECT approx_count_distinct(event_uid) > 0 FROM silver.event",
        "SELECT regexp_extract(concat(activity_name, ' x'), '\\\\b(\\\\w+)', 1) FROM silver.event",
        "SELECT transform(array(1, 2), x -> x + 1), filter(array(1, NULL), x -> x IS NOT NULL)",
        "SELECT from_json('{\"a\": [1]}', 'a array<int>').a[0]",
        "FROM silver.event |> AGGREGATE count(*) AS n GROUP BY source |> ORDER BY n DESC, source",
        "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 4) "
        "SELECT * FROM t",
        "SELECT * FROM (SELECT source FROM silver.event) PIVOT (count(*) FOR source IN ('sshd'))",
        "SELECT map('a', 1, 'b', 2), named_struct('x', array(1.5D)), X'00ff', DATE'2026-11-01'",
    ],
)
def test_spark_answers_what_duckdb_does_not_know(
    sql: str, statements: Statements, day: Lake
) -> None:
    with pytest.raises(Refused):
        statements.run(sql)
    answer = statements.run(sql, engine="auto")
    assert answer.engine == "spark"
    assert answer.engine_reason.startswith("DuckDB may answer otherwise than Spark: ")
    there = day.register().spark.sql(sql)
    assert [column["name"] for column in answer.columns] == there.columns
    assert len(answer.rows) == there.count()


def test_both_engines_write_an_answer_alike(statements: Statements) -> None:
    sql = (
        "SELECT event_uid, time, source, class_uid, src_ip, observables FROM silver.event "
        "ORDER BY event_uid"
    )
    duck, spark = statements.run(sql), statements.run(sql, engine="spark")
    assert (duck.engine, spark.engine, spark.engine_reason) == (
        "duckdb",
        "spark",
        "it was asked for",
    )
    assert spark.columns == duck.columns
    assert spark.rows == duck.rows
    assert duck.rows


def test_values_are_written_as_json_has_them(statements: Statements) -> None:
    sql = (
        "SELECT map('a', 1), named_struct('x', array(1.5D)), X'00ff', DATE'2026-11-01', "
        "'NaN'::double, TIMESTAMP'2026-11-01 00:00:00Z', 12.50BD, NULL"
    )
    assert statements.run(sql, engine="spark").rows == [
        [{"a": 1}, {"x": [1.5]}, "AP8=", "2026-11-01", "NaN", "2026-11-01T00:00:00Z", "12.50", None]
    ]


def test_parameters_are_values_and_never_text(statements: Statements) -> None:
    sql = "SELECT round(:n), :text || ''"
    run = statements.run(sql, {"n": 1.5, "text": "' OR 1 = 1 --"}, engine="auto")
    assert run.rows == [[2.0, "' OR 1 = 1 --"]]
    with pytest.raises(Refused, match="no parameter :other"):
        statements.run("SELECT round(1.5)", {"other": 1}, engine="spark")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT reflect('java.lang.System', 'getProperty', 'user.home')", "reflect"),
        ("SELECT builtin.java_method('java.lang.System', 'getenv')", "java_method"),
        ("SELECT round(1.5), current_user()", "current_user"),
        ("SELECT input_file_name() FROM silver.event", "input_file_name"),
        ("SELECT * FROM text.`/etc/passwd`", "/etc/passwd"),
        ("SELECT * FROM delta.`/tmp/x`", "/tmp/x"),
        ("SELECT * FROM table_changes_by_path('/tmp/x', 0)", "table_changes_by_path"),
        ("SELECT * FROM lake_silver.event", "event"),
        ("SELECT * FROM IDENTIFIER('lake_silver.' || 'event_files')", "tables by name"),
        ("SELECT (SELECT max(event_uid) FROM lake_silver.event_files)", "tables by name"),
        ("WITH a AS (SELECT * FROM lake_silver.event) SELECT count(*) FROM a", "event"),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM lake_silver.event)", "event"),
        ("SELECT * FROM STREAM silver.event", "STREAM|stream"),
        ("DROP TABLE silver.event", "PARSE_SYNTAX_ERROR"),
        ("SHOW TABLES", "`SHOW` cannot be found"),
        ("SET", "`SET` cannot be found"),
        ("SELECT 1) UNION ALL (SELECT 2); DROP VIEW silver.event; SELECT (1", "PARSE_SYNTAX_ERROR"),
        ("BEGIN SELECT 1; END", "PARSE_SYNTAX_ERROR"),
        ("EXECUTE IMMEDIATE 'SELECT 1'", "PARSE_SYNTAX_ERROR"),
        ("INSERT INTO silver.event SELECT * FROM silver.event", "PARSE_SYNTAX_ERROR"),
        ("SELECT variant_get(parse_json('1'), '$')", "cast it to a string"),
        ("SELECT * FROM silver.nothing", "silver`.`nothing"),
    ],
)
def test_spark_reads_tables_by_name_and_nothing_else(
    sql: str, named: str, statements: Statements
) -> None:
    # Once, so that there is something under the names that a statement may not have.
    assert statements.run("SELECT count(*) FROM silver.event", engine="spark").rows != [[0]]
    with pytest.raises((Refused, Failed), match=named) as refusal:
        statements.run(sql, engine="spark")
    assert "pos " not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_limited_caller_sees_its_tables_and_sources(statements: Statements) -> None:
    sql = "SELECT source, round(count(*)) FROM silver.event GROUP BY source ORDER BY source"
    everything = statements.run(sql, engine="auto").rows
    assert len(everything) > 1
    one = everything[0][0]
    mine = {"silver.event": f"source = '{one}'"}
    assert statements.run(sql, engine="auto", rows=mine).rows == everything[:1]
    assert statements.run(sql, engine="auto").rows == everything
    assert statements.run(sql, engine="auto", rows={"silver.event": "FALSE"}).rows == []
    with pytest.raises(Failed, match="what it failed on is not told"):
        statements.run(
            "SELECT CAST(event_uid AS INT) FROM silver.event",
            engine="spark",
            rows=mine,
        )
    nobodys = {"silver.event": f"source = '{one}' AND tenant_uid = 'acme'"}
    assert statements.run(sql, engine="spark", rows=nobodys).rows == []
    with pytest.raises(Refused, match="cannot be found"):  # no row of it is one tenant's
        statements.run("SELECT * FROM ops.audit", engine="spark", rows=nobodys)
    with pytest.raises(Refused, match=r"no table 'silver\.event' that you may read"):
        statements.run(sql, engine="spark", tables=["gold.alert"])
    inside = "SELECT round(1.5) WHERE EXISTS (SELECT 1 FROM silver.authentication)"
    with pytest.raises(Refused, match=r"no table 'silver\.authentication' that you may read"):
        statements.run(inside, engine="spark", tables=["silver.event"])
    # A view is read as one name, whatever lies below it.
    assert statements.run(
        "SELECT count(*) FROM silver.authentication",
        engine="spark",
        tables=["silver.authentication"],
    ).rows


def test_limits_hold_and_say_so(statements: Statements) -> None:
    cut = statements.run("SELECT id, round(1.5) FROM range(100)", max_rows=7, engine="auto")
    assert (len(cut.rows), cut.truncated_by) == (7, "rows")
    most = statements._limits.statement_bytes
    wide = statements.run(f"SELECT repeat('x', {most // 4}) FROM range(9)", engine="spark")
    assert (len(wide.rows), wide.truncated_by) == (3, "bytes")
    with pytest.raises(Failed, match="DIVIDE_BY_ZERO"):
        statements.run("SELECT round(1 / 0)", engine="auto")


def test_too_much_memory_ends_the_session_and_no_more(statements: Statements) -> None:
    with pytest.raises(Limit, match="1g of memory"):
        statements.run("SELECT size(sequence(1, 400000000))", engine="spark")
    assert statements.run("SELECT round(1.5)", engine="auto").rows == [["2"]]


def test_an_answer_is_written_whole_into_a_file(statements: Statements, day: Lake) -> None:
    into = Path(str(statements._all[0]._setup["results"])) / "result.parquet"
    told: list[float] = []
    sql = "SELECT event_uid, time, round(1.5) AS r FROM silver.event ORDER BY event_uid DESC"
    done = statements.write(sql, {}, into, engine="auto", tell=told.append)
    there = pq.read_table(into)
    assert done.engine == "spark"
    assert done.rows == there.num_rows > 0
    assert there["event_uid"].to_pylist() == sorted(there["event_uid"].to_pylist(), reverse=True)
    assert there.schema.field("time").type == pa.timestamp("us", tz="UTC")
    assert [path.name for path in into.parent.iterdir()] == ["result.parquet"]


def test_arrow_has_the_same_columns_with_and_without_rows(statements: Statements) -> None:
    sql = "SELECT round(1.5) AS r, map('a', 1) AS m"
    shape = statements.arrow(sql, shape=True, engine="auto")
    rows = statements.arrow(sql, engine="auto")
    assert (shape.rows, rows.rows, rows.engine) == (0, 1, "spark")
    assert pa.ipc.open_stream(shape.stream).schema == pa.ipc.open_stream(rows.stream).schema


def test_the_past_is_read_by_duckdb_alone(statements: Statements) -> None:
    now = datetime.now(UTC)
    with pytest.raises(Refused, match="function round is not known"):
        statements.run("SELECT round(1.5) FROM silver.event", as_of=now, engine="auto")
    with pytest.raises(Refused, match="leave out as_of"):
        statements.run("SELECT 1 FROM silver.event", as_of=now, engine="spark")


def test_spark_begins_with_the_first_question_and_ends_when_idle(day: Lake) -> None:
    running = Statements(_with_spark(day, spark_engine_idle_seconds=1.0))
    try:
        running.run("SELECT 1", engine="auto")
        without = set(running.processes)
        assert running.run("SELECT round(1.5)", engine="auto").engine == "spark"
        (spark,) = set(running.processes) - without
        until(lambda: set(running.processes) == without)
        # The JVM below it as well.
        until(lambda: not _of_session(spark))
        assert running.run("SELECT round(2.5)", engine="auto").rows == [["3"]]
    finally:
        running.close()


def _of_session(leader: int) -> list[int]:
    """Processes that live in the session that a process led."""
    living = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(session) == leader and state != "Z":
                living.append(int(entry.name))
    return living


def test_a_setting_switches_it_off(day: Lake) -> None:
    running = Statements(_with_spark(day, spark_engine=False))
    try:
        with pytest.raises(Refused, match="function round is not known"):
            running.run("SELECT round(1.5)", engine="auto")
        with pytest.raises(Refused, match=r"api\.spark_engine is false"):
            running.run("SELECT 1", engine="spark")
    finally:
        running.close()


def test_each_function_of_this_spark_is_listed_or_kept_out_on_purpose(spark: SparkSession) -> None:
    for names, listed in zip(functions_of(spark), (FUNCTIONS, TABLE_FUNCTIONS), strict=True):
        assert listed <= names
        left_out = {"python_worker_logs", "table_changes", "table_changes_by_path"} | KEPT_OUT
        assert names - listed <= left_out, "look at what each does, and list it or keep it out"


def test_it_answers_over_rest_and_as_a_job(day: Lake) -> None:
    settings = _with_spark(day)
    with TestClient(create_app(settings)) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        asked = {"sql": "SELECT round(2.5) AS r"}
        began = client.post("/api/v1/statements", json=asked)
        if began.status_code == 202:  # Spark took longer to start than one waits
            assert until(lambda: _ended(client, began.json()["id"]), what="Spark")
        inline = client.post("/api/v1/statements", json=asked, headers={"Prefer": "wait=20"}).json()
        assert (inline["rows"], inline["engine"]) == ([["3"]], "spark")
        why = "DuckDB may answer otherwise than Spark: function round is not known to answer alike"
        assert inline["engine_reason"] == why
        refused = client.post("/api/v1/statements", json=asked | {"engine": "duckdb"})
        assert refused.status_code == 422
        name = client.post("/api/v1/search/jobs", json=asked).json()["id"]
        job = until(lambda: _ended(client, name), what="the job")
        assert (job["state"], job["engine"], job["rows"]) == ("done", "spark", 1)
        page = client.get(f"/api/v1/search/jobs/{name}/results").json()
        assert page["rows"] == [["3"]]


def _ended(client: TestClient, name: str) -> dict[str, Any] | None:
    job: dict[str, Any] = client.get(f"/api/v1/search/jobs/{name}").json()
    return None if job["state"] in ("queued", "running") else job
