"""Bounds in a file's statistics hide no row."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from infra.delta.parquet_writer import (
    STRING_PREFIX,
    FileWriter,
    RowGroups,
    Target,
    upper_bound,
)
from ingest.tables import EVENT, RECORD

LAST = "\U0010ffff"


@given(st.text(st.sampled_from(["a", "\u00e9", LAST]), min_size=STRING_PREFIX + 1, max_size=80))
def test_no_text_lies_above_the_bound_of_the_highest(text: str) -> None:
    bound = upper_bound(text)
    assert bound is None or bound.encode() >= text.encode()


@pytest.mark.parametrize("rest", [LAST, LAST + "x", LAST * 3])
def test_a_text_that_goes_on_with_the_last_character_has_no_bound(rest: str) -> None:
    assert upper_bound("a" * STRING_PREFIX + rest) is None
    assert upper_bound("a" * STRING_PREFIX + "b" + rest) == "a" * STRING_PREFIX + LAST


_TEXTS = st.sampled_from(
    ["", "a", "\u00e9" * 40, "x" * 33, "\U0010ffff" * 40, "z\ud7ff"]
) | st.text(max_size=40)
_TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
_ROWS = st.lists(
    st.tuples(
        st.none() | _TEXTS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | _TIMES,
        st.none() | st.floats(),
    ),
    max_size=6,
)


@given(st.lists(_ROWS, max_size=4), st.integers(1, 5), st.booleans())
def test_statistics_leave_out_no_row_of_any_batch(
    batches: list[Any], group_rows: int, inside: bool
) -> None:
    """A reader passes over a file whose bounds lie beside what it seeks."""
    kinds = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"), pa.float64())
    schema = pa.schema(list(zip("abcd", kinds, strict=True)))
    with TemporaryDirectory() as folder:
        groups = RowGroups(group_rows, 2**20, statistics=inside)
        target = Target("t", Path(folder), "t-", schema, tuple("abcd"), groups=groups)
        writer = FileWriter(target)
        for rows in batches:
            values = zip(*[(None,) * 4, *rows], strict=True)
            columns = [pa.array(list(each), kind) for each, kind in zip(values, kinds, strict=True)]
            # Part of a longer batch, as most are.
            writer.write(pa.RecordBatch.from_arrays(columns, schema=schema).slice(1))
        told = writer.close()
        every = [row for rows in batches for row in rows]
        if told is None:
            assert not every
            return
        assert pq.read_table(Path(folder) / told.name).num_rows == told.rows == len(every)
    stats = json.loads(told.stats)
    low, high = stats["minValues"], stats["maxValues"]
    for name, values in zip("abcd", zip(*every, strict=True), strict=True):
        there = [value for value in values if value is not None]
        assert stats["nullCount"][name] == len(every) - len(there)
        # Not a number is beside every bound.
        assert (name in low) == (bool(there) and name != "d")
    for row in every:
        for name, value in zip("abc", row, strict=False):
            if value is None:
                continue
            if isinstance(value, datetime):
                assert datetime.fromisoformat(low[name]) <= value
                # Readers allow for the millisecond that is cut off.
                assert value - datetime.fromisoformat(high[name]) < timedelta(milliseconds=1)
            elif isinstance(value, str):
                assert low[name].encode() <= value.encode()
                assert name not in high or value.encode() <= high[name].encode()
            else:
                assert low[name] <= value <= high[name]


def test_a_tables_files_are_compressed_as_it_is_declared(tmp_path: Path) -> None:
    """Raw bytes take most of bronze and are seldom read; so do long texts of silver."""
    for table, column, others in ((RECORD, "raw", "ZSTD"), (EVENT, "unmapped", "SNAPPY")):
        target = Target.of(table, tmp_path, table.name)
        writer = FileWriter(target)
        whole = pa.Table.from_pylist([{column: f"line {n}"} for n in range(500)])
        rows = whole.select([column]).to_batches()[0]
        writer.write(rows)
        file = writer.close()
        assert file is not None
        path = tmp_path / file.name
        group = pq.read_metadata(path).row_group(0)
        used: dict[str, set[str]] = {}
        for leaf in map(group.column, range(group.num_columns)):
            used.setdefault(leaf.path_in_schema.split(".", 1)[0], set()).add(leaf.compression)
        zstd = {column, *table.zstd}
        assert used == {name: {"ZSTD" if name in zstd else others} for name in target.schema.names}
        read = pq.read_table(path, schema=target.schema).column(column).cast(pa.string())
        assert read.to_pylist() == whole.column(column).to_pylist()


def test_times_written_as_differences_are_read_alike_by_all_who_read_the_lake(
    tmp_path: Path, spark: SparkSession
) -> None:
    first = datetime(2026, 11, 16, tzinfo=UTC)
    times = [first + timedelta(microseconds=n * n) for n in range(400)]
    times += [datetime(1, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, tzinfo=UTC), first]
    rows = pa.table({"n": range(len(times)), "t": pa.array(times, pa.timestamp("us", tz="UTC"))})
    target = Target("t", tmp_path, "t-", rows.schema, ("t",))
    writer = FileWriter(target)
    writer.write(rows.to_batches()[0])
    file = writer.close()
    assert file is not None
    path = str(tmp_path / file.name)
    n, t = map(pq.read_metadata(path).row_group(0).column, (0, 1))
    assert "DELTA_BINARY_PACKED" in t.encodings
    assert "DELTA_BINARY_PACKED" not in n.encodings
    assert pq.read_table(path)["t"].to_pylist() == times
    # As numbers: neither Spark's nor DuckDB's Python side has all of these years.
    micros = rows["t"].cast(pa.int64()).to_pylist()
    sql = f"SELECT epoch_us(t) FROM read_parquet('{path}') ORDER BY n"
    assert [value for (value,) in duckdb.execute(sql).fetchall()] == micros
    read = spark.read.parquet(path).orderBy("n").selectExpr("unix_micros(t) AS t").collect()
    assert [row["t"] for row in read] == micros
