"""Numbers and masks that Windows' shippers write in many ways are one number."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.windows.record import keywords_of, whole
from tests.examples import examples

PADDED = st.sampled_from(("", " ", "\t", "\n", " " * 70))
NUMBERS = st.integers(0, 2**64 - 1)


@examples(200)
@given(PADDED, NUMBERS, PADDED)
def test_a_number_is_read_from_text_in_any_base_and_with_space_around(
    before: str, number: int, after: str
) -> None:
    assert whole(f"{before}0x{number:x}{after}") == number
    assert whole(f"{before}0X{number:X}{after}") == number
    decimal = f"{before}{number:05}{after}"
    assert whole(decimal) == (number if len(decimal.strip()) <= 19 else None)


@examples(200)
@given(st.text("0123456789abxX- _\u0663", max_size=24))
def test_other_text_is_no_number(text: str) -> None:
    shape = re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}", text.strip())
    assert (whole(text) is None) is (shape is None)


@examples(200)
@given(PADDED, NUMBERS)
def test_a_mask_says_the_same_as_number_and_as_text_however_often_it_is_asked(
    before: str, mask: int
) -> None:
    expected = keywords_of(int(f"0x{mask:x}", 16))
    for _ in range(2):
        assert keywords_of(f"{before}0x{mask:x}") == expected
    assert keywords_of("Audit Success") == (None, None)
