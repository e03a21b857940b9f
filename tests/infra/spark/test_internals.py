"""What we use of Spark and Delta beyond their interface is there, and does what it is used for.

On another Spark the test that fails names the function of `infra.spark.internals` to look at.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.spark import internals
from infra.spark.session import ALERTING
from tests.wait import until


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> str:
    """A Delta table of one column, in two commits of one file each."""
    path = str(tmp_path / "numbers")
    for first in (0, 5):
        rows = spark.range(first, first + 5, 1, 1)
        rows.write.format("delta").mode("append").save(path)
    return path


def test_java(spark: SparkSession) -> None:
    assert internals.java(spark, "java.lang.Math").max(3, 4) == 4


def test_items(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS a, 2 AS b")
    output = rows._jdf.queryExecution().analyzed().output()
    assert [column.name() for column in internals.items(output)] == ["a", "b"]


def test_has_context_and_has_gateway(spark: SparkSession) -> None:
    assert internals.has_context()
    assert internals.has_gateway()


def test_jvm_process(spark: SparkSession) -> None:
    process = internals.jvm_process()
    assert process is not None
    assert process.poll() is None


def test_collect_garbage_and_collection_seconds(spark: SparkSession) -> None:
    before = internals.collection_seconds(spark)
    internals.collect_garbage(spark)
    assert internals.collection_seconds(spark) > before


def test_heap_use(spark: SparkSession) -> None:
    heap = internals.heap_use(spark)
    assert 0 < heap.used <= heap.committed
    assert 0 < heap.after_collection <= heap.committed


def test_pool_share(spark: SparkSession) -> None:
    assert internals.pool_share(spark, ALERTING)[0] == "FAIR"


def test_query_control_limits_files_and_spaces_batches(
    spark: SparkSession, numbers: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(numbers)
    sizes: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    try:
        until(lambda: bool(sizes))
        control = internals.QueryControl(spark, query)
        control.limit_files([2])
        control.space_batches(0)
        trigger = query._jsq.streamingQuery().triggerExecutor()
        interval = trigger.getClass().getDeclaredField("intervalMs")
        interval.setAccessible(True)
        assert interval.getLong(trigger) == 0
        limits = query._jsq.streamingQuery().uniqueSources().values().head()
        assert limits.maxFiles() == 2
    finally:
        query.stop()
    assert sizes[0] == 5


@pytest.mark.full
def test_query_control_wakes_a_query_that_rests(
    spark: SparkSession, numbers: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(numbers)
    sizes: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    control = internals.QueryControl(spark, query)
    until(control.rest_until_woken)
    try:
        until(lambda: len(sizes) == 1)
        # It may still be in the batch: a call then is not lost.
        control.wake()
        until(lambda: len(sizes) == 2)
    finally:
        # Its wait ends when it is stopped, or this would last as long as Spark has patience.
        query.stop()
    assert not query.isActive


@pytest.mark.full
def test_query_control_leaves_sources_out_of_a_batch(
    spark: SparkSession, numbers: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    spark.range(3).write.format("delta").save(other)
    first, second = (spark.readStream.format("delta").load(path) for path in (numbers, other))
    sizes: list[int] = []
    query = (
        first.unionByName(second)
        .writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    control = internals.QueryControl(spark, query)
    until(control.rest_until_woken)
    try:
        until(lambda: len(sizes) == 1)
        for path in (numbers, other):
            spark.range(0, 7, 1, 1).write.format("delta").mode("append").save(path)
        control.leave_out([1])
        control.wake()
        until(lambda: len(sizes) == 2)
        control.leave_out([])
        control.limit_files([1, 1])
        control.wake()
        until(lambda: len(sizes) == 3)
    finally:
        query.stop()
    assert sizes[1:] == [7, 7], "what is left out comes with a later batch"


def test_collected_rows(spark: SparkSession) -> None:
    rows = spark.range(0, 5, 1, 2).select("id", F.when(F.col("id") > 3, "x").alias("text"))
    expected = [row.asDict() for row in rows.collect()]
    assert internals.collected_rows(rows) == expected
    assert internals.collected_rows(rows.where("id < 0")) == []
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        internals.collected_rows(rows.select(F.expr("1 / (id - id) AS none")))


def test_forget_where_settings_came_from(spark: SparkSession) -> None:
    settings, name = spark.sparkContext._jsc.hadoopConfiguration(), "headgate.test"
    settings.set(name, "7")
    try:
        assert settings.getPropertySources(name)
        internals.forget_where_settings_came_from(spark)
        assert not settings.getPropertySources(name)
        assert settings.get(name) == "7"
    finally:
        settings.unset(name)


def test_streamed_paths(spark: SparkSession, numbers: str) -> None:
    table = spark.readStream.format("delta").load(numbers)
    clock = spark.readStream.format("rate").load().select(F.col("value").alias("id"))
    assert internals.streamed_paths(table.unionByName(clock)) == [numbers, None]


def node_of(spark: SparkSession, sql: str, name: str) -> internals.PlanNode:
    plan = internals.analyzed_plan(spark.sql(sql))
    return next(node for node in plan.walk() if node.name == name)


def test_plan_node_tells_conditions_and_columns(spark: SparkSession) -> None:
    asked = node_of(spark, "SELECT * FROM range(9) WHERE id > 3 AND id < 5", "Filter")
    assert asked.condition.name == "And"
    assert [part.name for part in asked.condition.children] == ["GreaterThan", "LessThan"]
    assert asked.condition.referenced_ids == asked.output_ids
    assert asked.condition.children[0].sql.endswith("> CAST(3 AS BIGINT))")
    assert not asked.has_subqueries


def test_plan_node_tells_groups_and_functions(spark: SparkSession) -> None:
    grouped = node_of(spark, "SELECT id, count(*) FROM range(9) GROUP BY id", "Aggregate")
    assert [node.column for node in grouped.grouping] == ["id"]
    asked = node_of(spark, "SELECT rand() AS r, upper('a') AS u", "Project")
    random, upper = (expression.children[0] for expression in asked.expressions)
    assert (random.deterministic, upper.deterministic) == (False, True)
    assert upper.function == "upper"
    assert upper.class_name == "org.apache.spark.sql.catalyst.expressions.Upper"


def test_plan_node_tells_subqueries(spark: SparkSession) -> None:
    sql = "SELECT * FROM range(9) WHERE id = (SELECT max(id) FROM range(3))"
    assert node_of(spark, sql, "Filter").has_subqueries


def test_remote_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.log").write_bytes(b"12345")
    (file,) = internals.remote_files(spark, f"file://{tmp_path}")
    assert (file.name, file.size) == ("a.log", 5)
    assert file.path.endswith(f"{tmp_path}/deep/a.log")
    assert file.modified_ms == (tmp_path / "deep" / "a.log").stat().st_mtime_ns // 10**6


def test_delta_log_and_delta_listing_begins(spark: SparkSession, numbers: str) -> None:
    newest = f"{numbers}/_delta_log/{1:020d}.json"
    assert internals.delta_log(spark, numbers).dataPath().toString().endswith(numbers)
    assert internals.delta_listing_begins(spark, numbers, newest)


def test_checkpoint_table_and_forget_tables(spark: SparkSession, numbers: str) -> None:
    internals.checkpoint_table(spark, numbers)
    internals.forget_tables(spark)
    assert list(Path(numbers, "_delta_log").glob("*.checkpoint*.parquet"))


def test_delta_transaction_commits_actions(spark: SparkSession, numbers: str) -> None:
    transaction = internals.DeltaTransaction(spark, numbers)
    add = json.loads(transaction.active_files()[0])
    assert transaction.active_files("false") == []
    fields = {name: add[name] for name in ("path", "partitionValues", "size")}
    remove = {"remove": fields | {"deletionTimestamp": 1, "dataChange": True}}
    assert transaction.commit([json.dumps(remove)], "a note", overwrite=True) == 2
    assert len(internals.DeltaTransaction(spark, numbers).active_files()) == 1
    commit = Path(numbers, "_delta_log", f"{2:020d}.json").read_text().splitlines()
    info = next(line["commitInfo"] for line in map(json.loads, commit) if "commitInfo" in line)
    assert info["userMetadata"] == "a note"


def test_files_at(spark: SparkSession, numbers: str) -> None:
    assert [len(internals.files_at(spark, numbers, version)) for version in (0, 1)] == [1, 2]


def test_functions_of_and_keep_functions(spark: SparkSession) -> None:
    apart = spark.newSession()
    values, tables = internals.functions_of(apart)
    assert {"round", "reflect"} <= values
    assert {"range", "explode"} <= tables
    internals.keep_functions(apart, values - {"reflect"}, tables - {"range"})
    assert internals.functions_of(apart) == (values - {"reflect"}, tables - {"range"})
    assert internals.functions_of(spark) == (values, tables)
    with pytest.raises(AnalysisException, match="reflect"):
        apart.sql("SELECT reflect('java.lang.System', 'lineSeparator')")


def test_a_plan_node_tells_of_views_subqueries_and_streams(spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE VIEW default.one AS SELECT 1 AS x")
    try:
        plan = internals.analyzed_plan(spark.sql("SELECT (SELECT max(x) FROM default.one) AS y"))
    finally:
        spark.sql("DROP VIEW default.one")
    asked = [query for node in plan.walk() for query in node.subqueries]
    seen = [node for query in asked for node in query.walk()]
    assert [node.view for node in seen if node.class_name.endswith(".View")] == ["default.one"]
    assert not plan.streaming
    assert internals.analyzed_plan(spark.readStream.format("rate").load()).streaming
