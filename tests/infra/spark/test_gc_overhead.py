"""A JVM that only collects garbage is noticed, and a busy one is not taken for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from infra.spark.gc_overhead import Heap
from infra.spark.internals import collect_garbage, collection_seconds


def noticed(share: Callable[[float], float], seconds: int) -> float | None:
    """When it is noticed, if each second that share of it goes into collections."""
    now, spent = 0.0, 0.0
    heap = Heap(lambda: spent, lambda: now)
    for _ in range(seconds * 2):
        if heap.exhausted():
            return now
        spent += 0.5 * share(now)
        now += 0.5
    return None


def test_a_minute_of_nothing_but_collections_is_noticed() -> None:
    assert noticed(lambda _: 0.95, 300) == pytest.approx(60, abs=5)
    late = noticed(lambda now: 0.95 if now >= 200 else 0.1, 600)
    assert late == pytest.approx(240, abs=10)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.55])
def test_a_busy_jvm_is_none(share: float) -> None:
    assert noticed(lambda _: share, 600) is None


def test_half_a_minute_of_collections_is_none() -> None:
    assert noticed(lambda now: 1.0 if 100 <= now < 125 else 0.2, 600) is None


def test_a_look_that_was_late_counts_the_time_it_was_late() -> None:
    """A JVM without memory answers slowly itself."""
    times = iter([0.0, 100.0, 170.0])
    spents = iter([0.0, 30.0, 99.0])
    heap = Heap(lambda: next(spents), lambda: next(times))
    assert [heap.exhausted() for _ in range(3)] == [False, False, True]


def test_sparks_jvm_tells_how_long_it_collected(spark: SparkSession) -> None:
    before = collection_seconds(spark)
    collect_garbage(spark)
    assert before < collection_seconds(spark) < before + 60
