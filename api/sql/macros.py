"""DuckDB macros with Spark's meaning where DuckDB's own function differs.

They look at the type of their argument when the statement is bound: `typeof` is a constant then,
and the branches of other types go. These must bind all the same, which a cast does for any type and
most functions only for the text form. What has no equal calls `error`, so the statement is refused
instead of answered almost right.

What DuckDB does with a time that has a zone (truncate, take a part, cast to date or text) asks a
calendar for each row. In UTC, which is how sessions are set, whole units up to a week are whole
microseconds, and all else is the same of the time without a zone (`hg_utc`), five times as fast.
"""

from __future__ import annotations

from api.sql.time_spans import DAY_US, FIRST_MONDAY_US, SHIFT_US, span_start

_WHOLE = "('TINYINT','SMALLINT','INTEGER','BIGINT','HUGEINT','UBIGINT')"
_REAL = "('DOUBLE','FLOAT')"
_TIME = "'TIMESTAMP WITH TIME ZONE'"
_TEXT_NUMBER = r"'\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*'"
_TEXT_DATE = r"'\d{4}-\d\d-\d\d'"
_TEXT_TIME = r"'\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d:\d\d)?'"

TRUNCATED = {
    "SECOND": (1_000_000, 0),
    "MINUTE": (60_000_000, 0),
    "HOUR": (3_600_000_000, 0),
    "DAY": (DAY_US, 0),
    "WEEK": (7 * DAY_US, FIRST_MONDAY_US),
}
"""Units of `date_trunc` that have always the same length: microseconds, and where one of them
begins after 1970-01-01 (a Thursday; weeks begin on Monday)."""


def _refuse(what: str) -> str:
    return f"error('refused: {what}')"


def _long(otherwise: str, cast: str) -> str:
    return f"""CASE
      WHEN x IS NULL THEN NULL
      WHEN typeof(x) IN {_WHOLE} THEN {cast}(x AS BIGINT)
      WHEN typeof(x) IN {_REAL} THEN {cast}(trunc(TRY_CAST(x AS DOUBLE)) AS BIGINT)
      WHEN typeof(x) = 'VARCHAR' AND regexp_full_match(CAST(x AS VARCHAR), '\\s*[+-]?\\d+\\s*')
        THEN {cast}(trim(CAST(x AS VARCHAR)) AS BIGINT)
      ELSE {otherwise} END"""


MACROS = (
    "hg_kind(t) AS CASE WHEN t = '\"NULL\"' THEN NULL "
    f"WHEN t IN {_WHOLE} OR t IN {_REAL} THEN 'number' ELSE t END",
    "hg_utc(x) AS make_timestamp(epoch_us(x))",
    "hg_alike(kinds, x) AS CASE WHEN len(list_distinct(kinds)) > 1 THEN "
    + _refuse("values of different types meet in one expression; cast them to one type")
    + " ELSE x END",
    "hg_div(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL "
    "WHEN typeof(a) LIKE 'DECIMAL%' OR typeof(b) LIKE 'DECIMAL%' THEN "
    + _refuse("division of decimals; write 1.5D for a double")
    + " WHEN b = 0 THEN error('division by zero') ELSE a / b END",
    f"hg_mod(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL WHEN typeof(a) NOT IN {_WHOLE} "
    f"OR typeof(b) NOT IN {_WHOLE} THEN {_refuse('% of other than whole numbers')} "
    "WHEN b = 0 THEN error('division by zero') ELSE a % b END",
    f"hg_idiv(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL WHEN typeof(a) NOT IN {_WHOLE} "
    f"OR typeof(b) NOT IN {_WHOLE} THEN {_refuse('div of other than whole numbers')} "
    "WHEN b = 0 THEN error('division by zero') ELSE CAST(a // b AS BIGINT) END",
    f"hg_long(x) AS {_long(_refuse('the value is not a whole number; use try_cast'), 'CAST')}",
    f"hg_try_long(x) AS {_long('NULL', 'TRY_CAST')}",
    f"""hg_double(x) AS CASE WHEN x IS NULL THEN NULL
      WHEN typeof(x) IN {_WHOLE} OR typeof(x) IN {_REAL} THEN CAST(x AS DOUBLE)
      WHEN typeof(x) LIKE 'DECIMAL%'
        OR (typeof(x) = 'VARCHAR' AND regexp_full_match(CAST(x AS VARCHAR), {_TEXT_NUMBER}))
      THEN CAST(trim(CAST(x AS VARCHAR)) AS DOUBLE)
      ELSE {_refuse("the value is not a number")} END""",
    f"""hg_string(x) AS CASE WHEN x IS NULL THEN NULL
      WHEN typeof(x) IN {_WHOLE} OR typeof(x) IN ('VARCHAR','BOOLEAN','DATE')
      THEN CAST(x AS VARCHAR)
      WHEN typeof(x) = {_TIME} THEN CAST(hg_utc(TRY_CAST(x AS TIMESTAMPTZ)) AS VARCHAR)
      ELSE {_refuse("this type has another text form in Spark")} END""",
    f"""hg_timestamp(x) AS CASE WHEN x IS NULL THEN NULL
      WHEN typeof(x) IN ({_TIME}, 'DATE') THEN CAST(x AS TIMESTAMPTZ)
      WHEN typeof(x) = 'VARCHAR' AND regexp_full_match(CAST(x AS VARCHAR), {_TEXT_TIME})
      THEN CAST(CAST(x AS VARCHAR) AS TIMESTAMPTZ)
      ELSE {_refuse("the value is no time; write YYYY-MM-DD hh:mm:ss")} END""",
    f"""hg_date(x) AS CASE WHEN x IS NULL THEN NULL
      WHEN typeof(x) = {_TIME} THEN CAST(hg_utc(TRY_CAST(x AS TIMESTAMPTZ)) AS DATE)
      WHEN typeof(x) = 'DATE' THEN CAST(x AS DATE)
      WHEN typeof(x) = 'VARCHAR' AND regexp_full_match(CAST(x AS VARCHAR), {_TEXT_DATE})
      THEN CAST(CAST(CAST(x AS VARCHAR) AS TIMESTAMPTZ) AS DATE)
      ELSE {_refuse("the value is no date; write YYYY-MM-DD")} END""",
    # Of a time alone, so that after binding nothing is left but a comparison of a column.
    f"hg_from(x, day) AS CASE WHEN typeof(x) = {_TIME} "
    "THEN TRY_CAST(x AS TIMESTAMPTZ) >= hg_timestamp(day) ELSE TRUE END",
    f"hg_until(x, day) AS CASE WHEN typeof(x) = {_TIME} "
    "THEN TRY_CAST(x AS TIMESTAMPTZ) < hg_timestamp(day) + INTERVAL 1 DAY ELSE TRUE END",
    f"""hg_unix(x) AS CASE WHEN x IS NULL THEN NULL WHEN typeof(x) = {_TIME}
      THEN (epoch_us(TRY_CAST(x AS TIMESTAMPTZ)) + {SHIFT_US}) // 1000000 - {SHIFT_US // 1_000_000}
      ELSE {_refuse("unix_timestamp of other than a timestamp")} END""",
    f"hg_trunc(x, us, first) AS {span_start('x', 'us', 'first')}",
    "hg_trunc_by_date(x, unit) AS "
    "make_timestamptz(epoch_us(CAST(date_trunc(unit, hg_utc(x)) AS TIMESTAMP)))",
    "hg_contains(a, v) AS CASE WHEN a IS NULL OR v IS NULL THEN NULL "
    "WHEN list_contains(a, v) THEN TRUE WHEN len(a) <> list_count(a) THEN NULL ELSE FALSE END",
    f"""hg_json(j, p) AS CASE WHEN j IS NULL OR NOT json_valid(j) THEN NULL
      WHEN json_type(j, p) IS NULL OR json_type(j, p) = 'NULL' THEN NULL
      WHEN json_type(j, p) IN ('VARCHAR','BOOLEAN','BIGINT','UBIGINT')
      THEN json_extract_string(j, p)
      ELSE {_refuse("get_json_object of other than text, whole numbers and booleans")} END""",
)


def macro_statements() -> tuple[str, ...]:
    """What makes the macros in a fresh DuckDB."""
    return tuple(f"CREATE MACRO {macro}" for macro in MACROS)
