"""Cursors that number a place in a list."""

from __future__ import annotations

import pytest

from api.services.reader import numbered_place
from infra.errors import Usage


def test_a_place_is_counted_from_the_first_row() -> None:
    assert [numbered_place(text) for text in (None, "0", "25", "9" * 9)] == [0, 0, 25, 10**9 - 1]


@pytest.mark.parametrize("text", ["", "-1", "1.5", " 1", "\u00b2", "9" * 5000, "next"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="not one of ours"):
        numbered_place(text)
