"""The same statement gives the same rows in Spark and in DuckDB, over the same Delta files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from api.sql.runner import Failed, Refused, Statements
from api.sql.worker import plain
from infra.streaming.lake import Lake
from tests.full import rest_full

EQUAL = (
    "SELECT src_ip, count(*) AS n FROM silver.event GROUP BY src_ip ORDER BY src_ip",
    "SELECT src_ip FROM silver.event ORDER BY src_ip DESC, event_uid",
    "SELECT DISTINCT user_name FROM silver.events ORDER BY user_name ASC NULLS LAST",
    "SELECT duration / 2, duration % 4, duration DIV 2, -duration, abs(duration) "
    "FROM silver.event WHERE duration IS NOT NULL ORDER BY event_uid",
    "SELECT time, date_trunc('hour', time), hour(time), minute(time), second(time), day(time), "
    "month(time), year(time), dayofweek(time) FROM silver.event ORDER BY event_uid",
    "SELECT to_date(time), date_add(time, 3), date_sub(time, 3), datediff(time, '2026-11-01'), "
    "CAST(time AS DATE), unix_timestamp(time) FROM silver.event ORDER BY event_uid",
    "SELECT date_trunc('WEEK', time), date_trunc('MONTH', to_date(time)), "
    "time - INTERVAL 90 MINUTES, time + INTERVAL 1 MONTH FROM silver.event ORDER BY event_uid",
    "SELECT CAST(time AS STRING), CAST(class_uid AS STRING), CAST(is_remote AS STRING) "
    "FROM silver.event ORDER BY event_uid",
    "SELECT event_uid FROM silver.event WHERE time >= '2026-11-20 12:45:00' "
    "AND time < TIMESTAMP '2026-11-20 13:01:00' ORDER BY time",
    "SELECT CAST('12' AS INT), CAST(' 7' AS BIGINT), CAST(2.9D AS INT), CAST(-2.9D AS BIGINT), "
    "try_cast('x' AS INT), CAST('1.5e3' AS DOUBLE), floor(-2.5D), ceil(2.1D)",
    "SELECT event_uid FROM silver.event WHERE to_date(time) = '2026-11-20' "
    "AND CAST(time AS DATE) >= DATE'2026-11-19' AND to_date(time) < date_add(time, 1) "
    "AND date(time) BETWEEN '2026-11-20' AND date_add('2026-11-20', 1) "
    "AND NOT (to_date(time) > '2026-11-20') ORDER BY event_uid",
    "SELECT concat('a', user_name, 'b'), 'x' || class_uid, concat_ws('-', src_ip, user_name), "
    "coalesce(user_name, 'nobody') FROM silver.event ORDER BY event_uid",
    "SELECT lower(class_name), upper(class_name), length(class_name), left(class_name, 3), "
    "right(class_name, 2), substring(class_name, 2, 4), instr(class_name, 't'), "
    "replace(class_name, 'A', '#'), trim('  x '), startswith(class_name, 'A'), "
    "endswith(class_name, 'y'), contains(class_name, 'Act') FROM silver.event ORDER BY event_uid",
    "SELECT event_uid FROM silver.event WHERE message LIKE 'Failed%_oot' "
    "OR message ILIKE 'a X7%' OR message LIKE '%100\\\\%%' OR message LIKE '_' ORDER BY event_uid",
    "SELECT event_uid FROM silver.event WHERE src_ip RLIKE '^10\\\\.\\\\d+\\\\.[0-9.]+$' "
    "ORDER BY event_uid",
    "SELECT 'a\\nb' RLIKE 'a.b', 'a\\rb' RLIKE 'a.b', 'ab\\n' RLIKE 'b$', 'ab\\n\\n' RLIKE 'b$', "
    "'a b' RLIKE '\\\\s', 'x-y' RLIKE '[\\\\w-]+-(?:y|z){1,2}', 'é' RLIKE '\\\\w', "
    "'a\\u000bb' RLIKE 'a\\\\sb', '[' RLIKE '[\\\\[]'",
    "SELECT CASE WHEN status_id = 2 THEN 'failed' WHEN status_id = 1 THEN 'ok' END AS s, "
    "if(src_ip IS NULL, 0, 1), nullif(class_uid, 3002), greatest(class_uid, NULL, 4000), "
    "least(class_uid, 4000) FROM silver.event ORDER BY event_uid",
    "SELECT user_name <=> NULL, user_name IS DISTINCT FROM 'root', isnull(mac), "
    "NOT (status_id = 2) FROM silver.event ORDER BY event_uid",
    "SELECT max_by(mac, rev), min_by(mac, rev) FROM silver.dhcp_segment WHERE rev <= 2",
    "SELECT percentile(class_uid, 0.25), median(duration), avg(class_uid), sum(class_uid), "
    "count_if(status_id = 2), count(DISTINCT src_ip), count(DISTINCT src_ip, user_name), "
    "bool_or(is_remote), bool_and(is_remote) FROM silver.event",
    "SELECT count(*) FILTER (WHERE status_id = 2) FROM silver.event HAVING count(*) > 1",
    "SELECT event_uid, row_number() OVER (PARTITION BY src_ip ORDER BY time DESC) AS r, "
    "lag(event_uid) OVER (ORDER BY time, event_uid) AS l, "
    "sum(class_uid) OVER (ORDER BY event_uid ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s "
    "FROM silver.event ORDER BY event_uid",
    "SELECT e.event_uid, r FROM silver.event e LATERAL VIEW explode(record_ids) x AS r ORDER BY r",
    "SELECT size(record_ids), array_contains(record_ids, 'e1'), record_ids FROM silver.event "
    "ORDER BY event_uid",
    "SELECT query.hostname, query FROM silver.dns_activity",
    "SELECT rows_written['silver.event'], rows_written['nothing'] FROM ops.ledger ORDER BY job",
    "SELECT get_json_object(unmapped, '$.a.b[0]'), get_json_object(unmapped, '$.a.b[1]'), "
    "get_json_object(unmapped, '$.t'), get_json_object(unmapped, '$.none'), "
    "get_json_object('{broken', '$.a') FROM silver.event ORDER BY event_uid",
    "WITH f AS (SELECT src_ip, count(*) AS n FROM silver.authentication GROUP BY src_ip) "
    "SELECT f.src_ip, n, d.mac FROM f LEFT JOIN silver.dhcp_session d ON d.ip = f.src_ip "
    "ORDER BY f.src_ip, d.mac",
    "SELECT event_uid FROM silver.event e LEFT SEMI JOIN gold.finding f "
    "ON e.event_uid = f.event_uid ORDER BY event_uid",
    "SELECT event_uid FROM silver.event WHERE event_uid NOT IN "
    "(SELECT event_uid FROM gold.finding) AND EXISTS (SELECT 1 FROM ops.ledger) ORDER BY 1",
    "SELECT src_ip FROM silver.event UNION SELECT ip FROM silver.dhcp_segment ORDER BY src_ip",
    "SELECT src_ip FROM silver.event EXCEPT SELECT ip FROM silver.dhcp_segment ORDER BY src_ip",
    "SELECT class_uid, source, count(*) FROM silver.event GROUP BY ROLLUP (class_uid, source) "
    "ORDER BY class_uid, source",
    "SELECT * FROM silver.dhcp_session ORDER BY session_id",
    "SELECT alert_id, revision, entity_value FROM gold.alert_current ORDER BY alert_id",
    "SELECT finding_id, rev, holder FROM gold.attribution_current ORDER BY finding_id",
    "SELECT event_uid FROM silver.event ORDER BY event_uid LIMIT 3 OFFSET 2",
    "SELECT raw FROM bronze.record ORDER BY record_id LIMIT 1",
    "SELECT 1 IN (1, NULL), 2 IN (1, NULL), class_uid BETWEEN 3000 AND 3999.5 FROM silver.event "
    "ORDER BY event_uid",
)
"""What is proven equal; docs/reference/api.md points here."""

FAILS_ALIKE = (
    "SELECT 1 / 0",
    "SELECT 5 % 0",
    "SELECT 5 DIV 0",
    "SELECT CAST('x' AS INT)",
    "SELECT CAST('99999999999' AS INT)",
    "SELECT CAST('soon' AS TIMESTAMP)",
    "SELECT class_uid * 2147483647 FROM silver.event",
)


@pytest.fixture(scope="module")
def statements(day: Lake) -> Iterator[Statements]:
    running = Statements(day.settings)
    yield running
    running.close()


@pytest.fixture(scope="module")
def named(day: Lake) -> Lake:
    return day.register()


def _row(row: Any) -> list[Any]:
    return [_spark_plain(value) for value in row]


def _spark_plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: _spark_plain(item) for name, item in value.asDict().items()}
    if isinstance(value, list):
        return [_spark_plain(item) for item in value]
    if isinstance(value, datetime):
        # Spark hands out naive times of the machine's zone.
        value = value.astimezone(UTC)
    return plain(value)


@pytest.mark.parametrize("sql", rest_full(lambda sql: EQUAL.index(sql) % 6 == 0, EQUAL))
def test_spark_and_duckdb_give_equal_rows(sql: str, named: Lake, statements: Statements) -> None:
    answer = statements.run(sql)
    assert answer.rows == [_row(row) for row in named.spark.sql(sql).collect()]
    assert answer.rows, "an empty answer proves nothing"


def test_collect_set_gives_the_same_set(named: Lake, statements: Statements) -> None:
    sql = "SELECT source, collect_set(src_ip) FROM silver.event GROUP BY source ORDER BY source"
    ours = [[source, set(found)] for source, found in statements.run(sql).rows]
    # Spark says nothing of the order inside a set.
    assert ours == [[source, set(found)] for source, found in named.spark.sql(sql).collect()]
    assert ["_heartbeat", set()] in ours


@pytest.mark.parametrize("sql", FAILS_ALIKE)
def test_what_fails_in_spark_fails_in_duckdb(sql: str, named: Lake, statements: Statements) -> None:
    with pytest.raises(Exception, match=r"\[[A-Z_.]+\]"):
        named.spark.sql(sql).collect()
    with pytest.raises((Failed, Refused)):
        statements.run(sql)
