"""Which refusals of DuckDB are left to Spark, and which are everybody's."""

from __future__ import annotations

import pytest

from api.sql.spark_guard import as_question
from api.sql.translation import translated
from api.sql.unequal import Unequal
from infra.errors import Usage

TABLES = ("silver.event",)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT round(2.5)",
        "SELECT 1.1 * 1.1",
        "SELECT approx_count_distinct(src_ip) FROM silver.event",
        "SELECT transform(array(1), x -> x + 1)",
        "SELECT rlike(src_ip, '(?=1)') FROM silver.event",
        "FROM silver.event |> SELECT source",
        "WITH RECURSIVE t(n) AS (SELECT 1) SELECT * FROM t",
        "SELECT percentile(class_uid, array(0.1, 0.9)) FROM silver.event",
    ],
)
def test_what_spark_may_answer_is_told_apart(sql: str) -> None:
    with pytest.raises(Unequal):
        translated(sql, TABLES, {}, 10)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT FROM WHERE",
        "SELECT 1; SELECT 2",
        "DROP TABLE silver.event",
        "SELECT * FROM silver.nothing",
        "SELECT :missing",
        "SELECT " + "(" * 200 + "1" + ")" * 200,
    ],
)
def test_what_no_engine_answers_starts_no_spark(sql: str) -> None:
    with pytest.raises(Usage) as refusal:
        translated(sql, TABLES, {}, 10)
    assert not isinstance(refusal.value, Unequal)


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT 1;", "SELECT 1 -- why", "SELECT 1 ;\n"])
def test_a_text_stands_inside_a_question_of_ours(sql: str) -> None:
    asked = as_question(sql)
    assert asked.startswith("SELECT * FROM (\n")
    assert asked.endswith("\n)")
    assert ";" not in asked
