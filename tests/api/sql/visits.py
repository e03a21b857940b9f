"""A small table of visits in many files, and random conditions over it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as T

from api.sql.translation import translated
from api.sql.worker import LastingEngine
from infra.delta.duckdb_views import Definition
from infra.delta.plain_files import duck_type
from infra.delta.schema import Column, Table

BEGAN = datetime(2026, 11, 16, tzinfo=UTC)
NAMES = ("ann", "bob", "o'neil", "x' AND n>='0", "zoë", "a" * 40)
VISIT = Table(
    "silver.visit",
    "visits",
    (
        Column("n", T.LongType(), "a number"),
        Column("time", T.TimestampType(), "when"),
        Column("name", T.StringType(), "who", False),
        Column("share", T.DoubleType(), "a part", False),
    ),
    stats=("n", "time", "name", "share"),
)
WIDER = Table(
    VISIT.name, VISIT.doc, (*VISIT.columns, Column("site", T.StringType(), "where", False))
)
FILES = 24


def catalogue(lake: Path) -> list[Definition]:
    columns = tuple((column.name, duck_type(column.type)) for column in WIDER.columns)
    return [
        Definition("silver.visit", "", str(lake / "silver" / "visit"), columns),
        Definition("silver.visits", "SELECT * FROM silver.visit WHERE n >= 0", None),
    ]


def rows(file: int) -> list[dict[str, Any]]:
    """Of one file: two hours each, and every fifth has no names."""
    return [
        {
            "n": file * 3 + row - 5,
            "time": BEGAN + timedelta(hours=2 * file, minutes=row * 40),
            "name": None if file % 5 == 4 else NAMES[(file + row) % len(NAMES)],
            "share": file / 7,
        }
        for row in range(3)
    ]


def opened(lake: Path) -> LastingEngine:
    return LastingEngine({"lake_root": str(lake), "memory": "300MB"}, catalogue(lake), [])


def asked(lake: Path, sql: str) -> dict[str, Any]:
    known = catalogue(lake)
    translation = translated(sql, frozenset(d.name for d in known), None, 1_000, None, known)
    return {
        "sql": translation.sql,
        "tables": translation.tables,
        "split": translation.split,
        "max_rows": 1_000,
        "max_bytes": 10**6,
    }


def answer(engine: LastingEngine, lake: Path, sql: str) -> Sequence[Any]:
    answered: Sequence[Any] = engine.answer(asked(lake, sql), lambda progress: None)["rows"]
    return answered


_TIMES = st.builds(
    lambda hours: f"'{BEGAN + timedelta(minutes=hours * 20):%Y-%m-%d %H:%M:%S}'",
    st.integers(-10, FILES * 6 + 10),
)
_DAYS = st.sampled_from(
    ["'2026-11-15'", "DATE'2026-11-16'", "'2026-11-17'", "to_date('2026-11-18')"]
)
_TEXTS = st.sampled_from([f"'{name}'".replace("o'n", "o\\'n").replace("x' A", "x\\' A")
                          .replace("n>='0", "n>=\\'0") for name in NAMES])  # fmt: skip
_SIGNS = st.sampled_from(["=", "<", ">", "<=", ">=", "<>"])
_COMPARED = st.one_of(
    st.builds("{}time {} {}".format, st.just("{0}"), _SIGNS, _TIMES),
    st.builds("to_date({}time) {} {}".format, st.just("{0}"), _SIGNS, _DAYS),
    st.builds("to_date({}time) BETWEEN {} AND {}".format, st.just("{0}"), _DAYS, _DAYS),
    st.builds("{}n {} {}".format, st.just("{0}"), _SIGNS, st.integers(-6, FILES * 3)),
    st.builds("{}name {} {}".format, st.just("{0}"), _SIGNS, _TEXTS),
    st.builds("{}name IN ({}, {})".format, st.just("{0}"), _TEXTS, _TEXTS),
    st.builds("{}share {} {}".format, st.just("{0}"), _SIGNS, st.sampled_from(["1", "0.5D"])),
    st.sampled_from(["{0}name IS NULL", "{0}name <=> NULL", "{0}name LIKE 'a%'"]),
)
WHERE = st.recursive(
    _COMPARED,
    lambda below: st.one_of(
        st.builds("({} AND {})".format, below, below),
        st.builds("({} OR {})".format, below, below),
        st.builds("(NOT {})".format, below),
    ),
    max_leaves=5,
)
