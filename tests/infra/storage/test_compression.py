"""Compressed bytes: they come back, and damage is never taken for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.storage.compression import compressed, expanded


@given(st.binary())
def test_what_was_compressed_comes_back(plain: bytes) -> None:
    assert expanded(compressed(plain)) == plain
    assert compressed(plain) == compressed(plain)


def test_what_repeats_gets_small() -> None:
    assert len(compressed(b"0123456789" * 10_000)) < 1_000


@given(st.binary(min_size=1), st.data())
def test_a_turned_bit_or_a_cut_is_noticed(plain: bytes, data: st.DataObject) -> None:
    blob = compressed(plain)
    bit = data.draw(st.integers(0, 8 * len(blob) - 1))
    turned = (int.from_bytes(blob, "big") ^ (1 << bit)).to_bytes(len(blob), "big")
    with pytest.raises(ValueError, match="its checksum is another"):
        expanded(turned)
    with pytest.raises(ValueError, match="its checksum is another"):
        expanded(blob[: data.draw(st.integers(0, len(blob) - 1))])
