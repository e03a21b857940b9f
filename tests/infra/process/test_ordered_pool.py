"""Batches worked on by several processes give what one process gives, in the same order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import Fatal
from infra.process.ordered_pool import map_in_order


def text(batch: list[int]) -> bytes:
    return b"".join(b"%d\n" % number for number in batch)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=9))
def test_results_are_those_of_one_process_in_order(batches: list[list[int]]) -> None:
    expected = [text(batch) for batch in batches]
    assert list(map_in_order(text, iter(batches), cores=2)) == expected
    assert list(map_in_order(text, iter(batches), cores=1)) == expected


def test_little_is_read_ahead_and_none_after_the_reader_left() -> None:
    taken = []

    def batches() -> Iterator[list[int]]:
        for number in range(1000):
            taken.append(number)
            yield [number]

    results = map_in_order(text, batches(), cores=2)
    assert next(results) == b"0\n"
    assert len(taken) <= 6
    results.close()
    assert len(taken) <= 6


def test_work_that_fails_says_why() -> None:
    with pytest.raises(TypeError, match="%d format"):
        list(map_in_order(text, iter([[1], ["a"], [2]]), cores=2))  # type: ignore[list-item]


def ended(batch: list[int]) -> bytes:
    if batch == [2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return text(batch)


def test_a_process_that_was_ended_is_named_and_not_passed_over() -> None:
    with pytest.raises(Fatal, match="ended from outside"):
        list(map_in_order(ended, iter([[1], [2], [3]]), cores=2))
