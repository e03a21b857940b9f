"""Which statements are answered in two steps, and what these are."""

from __future__ import annotations

import pytest

from api.sql.partials.split import TimeBound
from api.sql.translation import Translated, translated
from infra.delta.duckdb_views import Definition

EVENT = Definition(
    "silver.event", "", "/lake/silver/event",
    (("time", "TIMESTAMPTZ"), ("src_ip", "VARCHAR"), ("n", "BIGINT"), ("share", "DOUBLE")),
)  # fmt: skip
VIEWS = (
    Definition("silver.known", "SELECT * FROM silver.event WHERE src_ip IS NOT NULL", None),
    Definition("silver.large", "SELECT * FROM silver.known WHERE n > 9", None),
    Definition("silver.recent", "SELECT * FROM silver.event WHERE time > now()", None),
    Definition("silver.newest", "SELECT src_ip, max(n) AS n FROM silver.event GROUP BY 1", None),
    Definition("silver.short", "SELECT * EXCLUDE (n) FROM silver.event WHERE n > 9", None),
    Definition("silver.odd", "SELECT ~~ FROM", None),
    Definition("silver.pair", "SELECT a.* FROM silver.event a JOIN silver.event b USING (n)", None),
)


def _translated(sql: str, rows: dict[str, str] | None = None) -> Translated:
    known = (EVENT, *VIEWS)
    return translated(sql, frozenset(d.name for d in known), {}, 100, rows, known)


def test_a_histogram_is_counted_in_parts() -> None:
    split = _translated(
        "SELECT date_trunc('HOUR', time) AS h, count(*) AS n FROM silver.event "
        "WHERE time >= now() - INTERVAL 7 DAYS AND src_ip LIKE '10.%' GROUP BY h ORDER BY h"
    ).split
    assert split is not None
    assert split.table == "silver.event"
    (bound,) = split.bounds
    assert (bound.column, bound.sign) == ("time", ">=")
    assert split.partial == (
        'SELECT hg_trunc(hg_timestamp("time"), 3600000000, 0) AS "hg k0", COUNT(*) AS "hg a0" '
        'FROM "hg files" AS "event" WHERE ("src_ip" LIKE \'10.%\') GROUP BY 1'
    )
    assert split.merged == (
        'SELECT "hg k0", CAST(sum("hg a0") AS BIGINT) AS "hg a0" FROM "hg partials" GROUP BY 1'
    )
    assert split.final == (
        'SELECT "hg k0" AS "h", CAST(COALESCE(sum("hg a0"), 0) AS BIGINT) AS "n" '
        'FROM "hg partials" GROUP BY "hg k0" ORDER BY "h" NULLS FIRST LIMIT 101'
    )


def test_texts_and_numbers_of_keys_are_made_once_a_group() -> None:
    split = _translated(
        "SELECT CAST(to_date(time) AS STRING) AS d, unix_timestamp(date_trunc('DAY', time)) AS s, "
        "unix_timestamp(time) AS t, count(*) AS n FROM silver.event GROUP BY 1, 2, 3"
    ).split
    assert split is not None
    assert split.partial == (
        'SELECT hg_date("time") AS "hg k0", hg_trunc(hg_timestamp("time"), 86400000000, 0) AS '
        '"hg k1", hg_unix("time") AS "hg k2", COUNT(*) AS "hg a0" FROM "hg files" AS "event" '
        "GROUP BY 1, 2, 3"
    )
    assert split.final == (
        'SELECT hg_string("hg k0") AS "d", hg_unix("hg k1") AS "s", "hg k2" AS "t", '
        'CAST(COALESCE(sum("hg a0"), 0) AS BIGINT) AS "n" FROM "hg partials" '
        'GROUP BY hg_string("hg k0"), hg_unix("hg k1"), "hg k2" LIMIT 101'
    )


def test_times_may_stand_on_either_side_and_between() -> None:
    split = _translated(
        "SELECT count(*) FROM silver.event WHERE '2026-11-17' < time "
        "AND time BETWEEN '2026-11-16' AND '2026-11-18'"
    ).split
    assert split is not None
    assert split.bounds == (
        TimeBound("time", ">", "'2026-11-17'"),
        TimeBound("time", ">=", "'2026-11-16'"),
        TimeBound("time", "<=", "'2026-11-18'"),
    )
    assert "WHERE" not in split.partial


def test_a_view_that_shows_rows_as_they_are_is_its_table_and_a_condition() -> None:
    split = _translated("SELECT l.src_ip, count(*) AS n FROM silver.large l GROUP BY 1").split
    assert split is not None
    assert split.table == "silver.event"
    assert split.partial == (
        'SELECT "l"."src_ip" AS "hg k0", COUNT(*) AS "hg a0" FROM "hg files" AS "l" '
        'WHERE ("n" > 9) AND (NOT "src_ip" IS NULL) GROUP BY 1'
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT src_ip FROM silver.event",
        "SELECT DISTINCT src_ip FROM silver.event",
        "SELECT count(*) FROM silver.recent",
        "SELECT count(*) FROM silver.newest",
        "SELECT count(*) FROM silver.pair",
        "SELECT count(*) FROM silver.short",
        "SELECT count(*) FROM silver.odd",
        "SELECT count(*) FROM silver.event a JOIN silver.event b ON a.n = b.n",
        "SELECT count(*) FROM (SELECT * FROM silver.event)",
        "WITH e AS (SELECT * FROM silver.event) SELECT count(*) FROM e",
        "SELECT count(*) FROM silver.event UNION ALL SELECT count(*) FROM silver.event",
        "SELECT count(*) FROM silver.event WHERE src_ip IN (SELECT src_ip FROM silver.event)",
        "SELECT count(*) OVER () FROM silver.event",
        "SELECT n, count(*) FROM silver.event GROUP BY ROLLUP (n)",
        # What is asked of them cannot be made of parts.
        "SELECT median(n) FROM silver.event",
        "SELECT avg(n) FROM silver.event",
        "SELECT max_by(src_ip, n) FROM silver.event",
        "SELECT collect_set(src_ip) FROM silver.event",
        "SELECT count(DISTINCT src_ip, n) FROM silver.event",
        # Another moment, another answer.
        "SELECT count(*) FROM silver.event WHERE src_ip = '1.1.1.1' AND date_add(time, 1) > now()",
        "SELECT datediff(now(), time) AS d, count(*) FROM silver.event GROUP BY 1",
        # Engines differ in which of the two is meant.
        "SELECT n % 3 AS n, count(*) FROM silver.event GROUP BY n",
        "SELECT count(*) AS n FROM silver.event HAVING n > 3",
    ],
)
def test_other_statements_are_answered_in_one_step(sql: str) -> None:
    assert _translated(sql).split is None


def test_who_sees_some_rows_alone_is_answered_in_one_step() -> None:
    sql = "SELECT n, count(*) FROM silver.event GROUP BY 1"
    assert _translated(sql).split is not None
    assert _translated(sql, {"silver.event": "src_ip = '10.0.0.1'"}).split is None
