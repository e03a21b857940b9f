"""What this server is and takes, by the numbers of Flight SQL (SqlInfo) and of ODBC (types)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from api.sql.text_bounds import MAX_CHARS
from infra.config.settings import Settings

_READ_ONLY, _TIMEOUT, _CONVERT = 3, 100, 517

_FACTS: Mapping[int, str | bool | int | list[str]] = {
    0: "Headgate",  # FLIGHT_SQL_SERVER_NAME
    1: "1",  # ..._VERSION
    2: pa.__version__,  # ..._ARROW_VERSION
    _READ_ONLY: True,
    4: True,  # ..._SQL
    5: False,  # ..._SUBSTRAIT
    8: 0,  # ..._TRANSACTION: none
    9: True,  # ..._CANCEL: by ending the call
    10: False,  # ..._BULK_INGESTION
    101: 0,  # ..._TRANSACTION_TIMEOUT
    500: False, 501: False, 502: False,  # SQL_DDL_CATALOG, _SCHEMA, _TABLE
    503: 1,  # SQL_IDENTIFIER_CASE: names are compared without case
    504: "`",  # SQL_IDENTIFIER_QUOTE_CHAR
    505: 1,  # SQL_QUOTED_IDENTIFIER_CASE
    506: True,  # SQL_ALL_TABLES_ARE_SELECTABLE
    507: 1,  # SQL_NULL_ORDERING: nulls sort low, as in Spark
    508: [],  # SQL_KEYWORDS beyond the standard's
    509: ["abs", "ceil", "floor"],  # SQL_NUMERIC_FUNCTIONS
    510: ["concat", "left", "length", "lower", "replace", "right", "substring", "trim", "upper"],
    511: ["coalesce", "nullif"],  # SQL_SYSTEM_FUNCTIONS
    512: ["current_timestamp", "date_trunc", "day", "hour", "minute", "month", "now", "second",
          "year"],  # SQL_DATETIME_FUNCTIONS
    513: "\\",  # SQL_SEARCH_STRING_ESCAPE
    514: "",  # SQL_EXTRA_NAME_CHARACTERS
    _CONVERT: [],  # SQL_SUPPORTS_CONVERT: no types are named
    515: True, 516: True,  # SQL_SUPPORTS_COLUMN_ALIASING, SQL_NULL_PLUS_NULL_IS_NULL
    518: True, 519: False,  # SQL_SUPPORTS_(DIFFERENT_)TABLE_CORRELATION_NAMES
    520: True, 521: True,  # SQL_SUPPORTS_EXPRESSIONS_IN_ORDER_BY, _ORDER_BY_UNRELATED
    522: 2,  # SQL_SUPPORTED_GROUP_BY: beyond the select list
    523: False, 524: True,  # SQL_SUPPORTS_LIKE_ESCAPE_CLAUSE, _NON_NULLABLE_COLUMNS
    525: 1, 526: 1,  # SQL_SUPPORTED_GRAMMAR: minimum; SQL_ANSI92_SUPPORTED_LEVEL: entry
    527: False,  # SQL_SUPPORTS_INTEGRITY_ENHANCEMENT_FACILITY
    528: 2,  # SQL_OUTER_JOINS_SUPPORT_LEVEL: full
    529: "schema", 530: "procedure", 531: "catalog", 532: True,  # terms; SQL_CATALOG_AT_START
    533: 0, 534: 0, 535: 0,  # SQL_SCHEMAS_, SQL_CATALOGS_SUPPORTED_ACTIONS, positioned commands
    536: False, 537: False,  # SQL_SELECT_FOR_UPDATE_SUPPORTED, SQL_STORED_PROCEDURES_SUPPORTED
    538: 15, 539: True, 540: 3,  # subqueries of each kind, correlated ones, UNION and UNION ALL
    557: MAX_CHARS,  # SQL_MAX_STATEMENT_LENGTH
    556: False,  # SQL_MAX_ROW_SIZE_INCLUDES_BLOBS
    562: 0, 563: False, 564: 0,  # no transactions, no isolation
    565: False, 566: True,  # what DDL does to transactions
    567: 1,  # SQL_SUPPORTED_RESULT_SET_TYPES: forward only
    572: False, 573: False, 574: False, 575: False, 576: False,  # batches, savepoints and the like
} | dict.fromkeys((*range(541, 556), *range(558, 562)), 0)  # fmt: skip
"""By number; sizes are 0 where there is none of their own."""

_VALUES = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_INFO = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUES, False)])
_BIGINT, _BITMASK, _MAP = 2, 3, 5
_LARGE = range(541, 563)
"""Facts that are sizes, which the protocol sends as 64 bits."""


def sql_info(settings: Settings, numbers: Collection[int]) -> pa.Table:
    """These facts of the server, all without `numbers`; a number without a fact has no row."""
    facts = dict(_FACTS) | {_TIMEOUT: int(settings.api.statement_seconds * 1000)}
    chosen = {number: facts[number] for number in sorted(facts) if not numbers or number in numbers}
    children: list[list[Any]] = [[] for _ in range(_VALUES.num_fields)]
    kinds, places = [], []
    for number, fact in chosen.items():
        kind = _kind(number, fact)
        kinds.append(kind)
        places.append(len(children[kind]))
        children[kind].append(fact)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(places, pa.int32()),
        [pa.array(child, _VALUES.field(place).type) for place, child in enumerate(children)],
        [_VALUES.field(place).name for place in range(_VALUES.num_fields)],
    )
    return pa.Table.from_arrays([pa.array(list(chosen), pa.uint32()), values], schema=_INFO)


def _kind(number: int, fact: Any) -> int:
    if number == _CONVERT:
        return _MAP
    by_type: Mapping[type, int] = {str: 0, bool: 1, list: 4}
    return by_type.get(type(fact), _BIGINT if number in _LARGE else _BITMASK)


_TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), False), pa.field("data_type", pa.int32(), False),
        pa.field("column_size", pa.int32()), pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), False))),
        pa.field("nullable", pa.int32(), False), pa.field("case_sensitive", pa.bool_(), False),
        pa.field("searchable", pa.int32(), False), pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), False), pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()), pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()), pa.field("sql_data_type", pa.int32(), False),
        pa.field("datetime_subcode", pa.int32()), pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)  # fmt: skip
_SQL_TYPES = (
    # Spark's name, ODBC's number, digits or characters, what a literal stands in, radix
    ("boolean", -7, 1, None, None), ("tinyint", -6, 3, None, 10), ("smallint", 5, 5, None, 10),
    ("int", 4, 10, None, 10), ("bigint", -5, 19, None, 10), ("float", 7, 24, None, 2),
    ("double", 8, 53, None, 2), ("decimal", 3, 38, None, 10), ("string", 12, None, "'", None),
    ("binary", -3, None, None, None), ("date", 91, 10, "'", None), ("timestamp", 93, 26, "'", None),
)  # fmt: skip


def type_info(data_type: int | None) -> pa.Table:
    """The types of columns, or that of a number of ODBC."""
    rows = [
        dict.fromkeys(_TYPE_INFO.names)
        | {"type_name": name, "data_type": number, "column_size": size, "literal_prefix": quote,
           "literal_suffix": quote, "nullable": 1, "case_sensitive": name == "string",
           "searchable": 3, "fixed_prec_scale": False, "sql_data_type": number,
           "num_prec_radix": radix, "local_type_name": name}
        for name, number, size, quote, radix in _SQL_TYPES
        if data_type in (None, number)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_TYPE_INFO)
