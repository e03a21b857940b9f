"""Holes and repeats of offsets: what bronze has, told by plain DuckDB over rows of our own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.delta.duckdb_views import open_engine
from ingest.completeness.offset_ranges import (
    BLOCK,
    CountedStretch,
    Stretch,
    count_ranges,
    merged_ranges,
    offset_count,
    without,
)
from tests.examples import examples
from tests.lines_run import lines_run

AT = datetime(2026, 11, 20, tzinfo=UTC)
Span = tuple[int, int]
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda one: (one[0], sum(one)))
)


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    return open_engine(memory="200MB", threads=1)


def bronze(offsets: Sequence[int], named: str = "id", days: int = 0) -> duckdb.DuckDBPyConnection:
    connection = _engine()
    connection.execute("CREATE SCHEMA IF NOT EXISTS bronze")
    connection.execute(
        "CREATE OR REPLACE TABLE bronze.record (record_id VARCHAR, topic VARCHAR, "
        '"partition" INTEGER, "offset" BIGINT, received_at TIMESTAMPTZ)'
    )
    more(connection, offsets, named, days)
    return connection


def more(
    connection: duckdb.DuckDBPyConnection, offsets: Sequence[int], named: str, days: int = 0
) -> None:
    if offsets:
        connection.executemany(
            "INSERT INTO bronze.record VALUES (?, 'logs.a', 0, ?, ?)",
            [(f"{named}:0:{one}", one, AT - timedelta(days=days)) for one in offsets],
        )


def found(connection: duckdb.DuckDBPyConnection, *stretch: Stretch) -> CountedStretch:
    (one, *_) = count_ranges(connection, stretch, AT - timedelta(hours=1))
    return one


def a(first: int, end: int, **more: str) -> Stretch:
    return Stretch("logs.a", 0, "id", first, end, **more)  # type: ignore[arg-type]


@examples(40)
@given(
    held=st.lists(st.integers(0, 40), max_size=30), first=st.integers(0, 40), end=st.integers(1, 40)
)
def test_what_is_missing_and_what_stands_twice_is_told_exactly(
    held: list[int], first: int, end: int
) -> None:
    # Over the border of two blocks.
    base = BLOCK - 20
    if first >= end:
        return
    one = found(bronze([base + at for at in held]), a(base + first, base + end))
    missing = {at for span in one.holes for at in range(*span)}
    assert missing == {base + at for at in range(first, end)} - {base + at for at in held}
    assert one.records == len({at for at in held if first <= at < end})
    assert all(left[1] < right[0] for left, right in zip(one.holes, one.holes[1:], strict=False))
    inside = [at for at in held if at < end]
    assert sum(one.twice.values()) == len(inside) - len({*inside})


def test_records_of_long_ago_are_found_where_they_seem_to_be_missing() -> None:
    connection = bronze([0, 1, 2])
    more(connection, [3, 4], "id", days=40)
    assert found(connection, a(0, 6)).holes == ((5, 6),)


@pytest.mark.parametrize("hole", [None, 120])
def test_rows_before_the_stretch_that_were_written_again_are_told_beside_a_hole(
    hole: int | None,
) -> None:
    connection = bronze([at for at in range(150) if at != hole])
    more(connection, range(50, 100), "id")
    one = found(connection, a(100, 150))
    assert (one.twice, one.holes) == ({0: 50}, () if hole is None else ((hole, hole + 1),))


def test_whole_blocks_may_be_missing_and_a_beginning_is_no_hole_where_it_may_begin() -> None:
    connection = bronze([5, 3 * BLOCK])
    end = 3 * BLOCK + 1
    assert found(connection, a(0, end)).holes == ((0, 5), (6, 3 * BLOCK))
    assert found(connection, a(0, end, holes="inside")).holes == ((6, 3 * BLOCK),)
    assert found(connection, a(0, end, holes="none")).holes == ()
    assert found(bronze([]), a(4, 4)).holes == ()


def test_a_topic_made_anew_has_offsets_of_its_own() -> None:
    connection = bronze([0, 1, 2], "old")
    more(connection, [0, 2], "id")
    assert found(connection, a(0, 3)).holes == ((1, 2),)
    assert found(connection, a(0, 3, before="old")).holes == ()
    assert found(connection, a(0, 3)).twice == {}


@given(SPANS, SPANS)
def test_what_is_left_of_holes_is_what_nothing_explains(
    holes: list[Span], known: list[Span]
) -> None:
    def points(spans: Sequence[Span]) -> set[int]:
        return {at for span in spans for at in range(*span)}

    apart = sorted((at, at + 1) for at in points(holes))
    left = without(apart, known)
    assert points(left) == points(holes) - points(known)
    assert offset_count(left) == len(points(left))


def test_many_holes_beside_many_known_ones_cost_no_square_of_them() -> None:
    few, many = ([(at, at + 1) for at in range(0, 4 * count, 4)] for count in (200, 800))
    cost = lines_run(lambda: without(many, many[1:]))
    assert cost < 8 * lines_run(lambda: without(few, few[1:]))
    assert without(many, many[1:]) == many[:1]


@given(SPANS, st.integers(1, 9))
def test_spans_that_are_many_are_gathered_into_few(spans: list[Span], most: int) -> None:
    points = {at for span in spans for at in range(*span)}
    apart = sorted((at, at + 1) for at in points)
    few = merged_ranges(apart, most)
    assert len(few) == min(most, len(apart))
    assert without(apart, few) == []
    assert all(one[1] <= later[0] for one, later in pairwise(few))
