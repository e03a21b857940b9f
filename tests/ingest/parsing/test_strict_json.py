"""JSON that is judged as it is read, beside a spelling of it that is judged afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import Unreadable
from ingest.parsing.strict_json import decode_object, plain_object
from tests.lines_run import lines_run

_NUMBERS = [
    *(0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30),
    *(1.5, -0.0, 1e300, 12345678901234567890.5),
]


def _nested(levels: int, inside: Any) -> Any:
    for level in range(levels):
        inside = [inside] if level % 2 else {"k": inside}
    return inside


@pytest.mark.parametrize("levels", [0, 1, 7, 8, 9, 63, 64, 70])
@pytest.mark.parametrize("number", _NUMBERS)
def test_spaces_between_fields_change_nothing(levels: int, number: float) -> None:
    value = {"a": _nested(levels, number), "b": ["x", None, True, "ä", {"c": {}}]}
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    read = decode_object(compact)
    assert read == decode_object(json.dumps(value).encode())
    usual = type(number) is float or -(2**63) <= number < 2**63
    assert (plain_object(compact) is not None) == (usual and levels < 64)
    if usual and levels < 64:
        assert repr(read) == repr(value)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    # Halves of surrogate pairs among them.
    | st.text(st.characters(exclude_categories=()), max_size=4),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text('a"\\: \u00e9', max_size=3), inside, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), _VALUES, max_size=4), st.booleans())
def test_any_object_is_read_alike_with_spaces_and_without(
    value: dict[str, Any], ascii_only: bool
) -> None:
    # Python writes what is beyond a float as a word that JSON does not have.
    text = json.dumps(value, ensure_ascii=ascii_only).replace("Infinity", "1e999")
    compact = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    compact = compact.replace("Infinity", "1e999")
    assert repr(_read(compact)) == repr(_read(text)) == repr(_read(f" {compact}"))


def _read(text: str) -> Any:
    try:
        return decode_object(text.encode("utf-8", "surrogatepass"))
    except Unreadable as error:
        # Where it is wrong differs with the spaces.
        return str(error).partition(" at byte")[0]


def test_a_key_that_stands_twice_is_seen_without_spaces() -> None:
    with pytest.raises(Unreadable, match="'a' stands twice"):
        decode_object(b'{"a":1,"b":2,"a":2}')
    assert plain_object(b'{"a":{"b":1,"b":1}}') is None
    assert "oddities" in decode_object(b'{"a":{"b":1,"b":2}}')["a"]


def test_too_many_values_are_refused_without_spaces() -> None:
    raw = b'{"a":[' + b",".join([b"1"] * 200_001) + b"]}"
    with pytest.raises(Unreadable, match="200001 values"):
        decode_object(raw)
    assert plain_object(raw) is None


@pytest.mark.parametrize("number", [b"1e999", b"9" * 20_000])
def test_a_number_alone_is_no_object_however_long_it_is(number: bytes) -> None:
    with pytest.raises(Unreadable, match="expected a JSON object, found a number"):
        decode_object(number)


def test_very_many_odd_values_many_levels_down_cost_no_more_than_some_are_named() -> None:
    odd = 2_000

    def text(levels: int) -> bytes:
        return b'{"x":' + b"[" * levels + (b"1e999," * odd)[:-1] + b"]" * levels + b"}"

    assert lines_run(lambda: decode_object(text(60))) < 2 * lines_run(
        lambda: decode_object(text(5))
    )
    read = decode_object(text(60))
    assert len(read["oddities"]) == 9
    assert read["oddities"][-1] == f"and {odd - 8} more"


def test_what_is_nested_too_deep_is_kept_as_text_or_refused_at_any_depth() -> None:
    refused = set()
    for depth in range(800, 1100, 5):
        try:
            decode_object(b'{"x":' + b"[" * depth + b"]" * depth + b"}")
        except Unreadable as why:
            refused.add(str(why))
    assert refused == {"nested deeper than 64 levels"}
