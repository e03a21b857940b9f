"""Bounds in a file's statistics hide no row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.delta.parquet_writer import STRING_PREFIX, upper_bound

LAST = "\U0010ffff"


@given(st.text(st.sampled_from(["a", "\u00e9", LAST]), min_size=STRING_PREFIX + 1, max_size=80))
def test_no_text_lies_above_the_bound_of_the_highest(text: str) -> None:
    bound = upper_bound(text)
    assert bound is None or bound.encode() >= text.encode()


@pytest.mark.parametrize("rest", [LAST, LAST + "x", LAST * 3])
def test_a_text_that_goes_on_with_the_last_character_has_no_bound(rest: str) -> None:
    assert upper_bound("a" * STRING_PREFIX + rest) is None
    assert upper_bound("a" * STRING_PREFIX + "b" + rest) == "a" * STRING_PREFIX + LAST
