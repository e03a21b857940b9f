"""Somebody optimizes, deletes and merges while a job reads and writes the same tables."""

from __future__ import annotations

import random

import pytest
from delta.tables import DeltaTable

from infra.delta.schema import Table
from infra.streaming.lake import Lake
from tests.faults.test_damage import FIRST, NUMBER, arrive, first
from tests.recovery import judge

SEED = 20261122


def optimize(lake: Lake, table: Table) -> None:
    """Small files become one."""
    DeltaTable.forPath(lake.spark, lake.path(table)).optimize().executeCompaction()


def delete(lake: Lake, table: Table) -> None:
    """Rows that were read already are taken out."""
    DeltaTable.forPath(lake.spark, lake.path(table)).delete("n % 7 = 3")


def merge(lake: Lake, table: Table) -> None:
    """Rows are written again as they are, under the same keys."""
    same = lake.read(table).distinct().alias("s")
    into = DeltaTable.forPath(lake.spark, lake.path(table)).alias("t")
    into.merge(same, "t.n = s.n").whenMatchedUpdateAll().execute()


@pytest.mark.full
def test_a_stream_passes_over_what_others_rewrite(lake: Lake) -> None:
    chance = random.Random(SEED)
    lake.ensure(NUMBER, FIRST)
    acts = [optimize, delete, merge, optimize]
    chance.shuffle(acts)
    arrived: set[int] = set()
    for number, act in enumerate(acts):
        fresh = tuple(range(number * 10, number * 10 + 12))
        arrive(lake, fresh)
        arrived |= set(fresh)
        if chance.random() < 0.5:  # what the job has yet to read stays in an append of its own
            first(lake)
            with lake.alone(NUMBER):
                act(lake, NUMBER)
        with lake.alone(FIRST):
            if act is not delete:
                act(lake, FIRST)
        first(lake)
    assert judge.column(lake.folder(FIRST), "n") == sorted(arrived)
