"""Findings read column by column are those that pyarrow reads value by value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtest.run import attributed_schema
from alerts.matching.arrow_values import row_dictionaries

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Any value of a type, or none."""
    if pa.types.is_struct(kind):
        value: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {field.name: values_of(field.type) for field in kind}
        )
    elif pa.types.is_map(kind):
        pairs = st.tuples(st.text(max_size=3), values_of(kind.item_type))
        value = st.lists(pairs, max_size=2, unique_by=lambda pair: pair[0])
    elif pa.types.is_list(kind):
        value = st.lists(values_of(kind.value_type), max_size=2)
    elif pa.types.is_timestamp(kind):
        value = st.integers(-(10**15), 10**15).map(lambda us: NOON + timedelta(microseconds=us))
    elif pa.types.is_boolean(kind):
        value = st.booleans()
    elif pa.types.is_floating(kind):
        value = st.floats(allow_nan=False, width=32)
    elif pa.types.is_integer(kind):
        value = st.integers(-(2**31), 2**31 - 1)
    else:
        value = st.text(max_size=4)
    return st.none() | value


SCHEMA = attributed_schema()


@given(
    data=st.data(),
    filled=st.sets(st.sampled_from(SCHEMA.names)),
    start=st.integers(0, 2),
)
def test_rows_are_those_of_pyarrow(data: st.DataObject, filled: set[str], start: int) -> None:
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: values_of(SCHEMA.field(name).type) for name in filled}),
            max_size=4,
        )
    )
    # A part of a longer batch has its values behind its beginning.
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).slice(start)
    assert row_dictionaries(batch) == batch.to_pylist()
