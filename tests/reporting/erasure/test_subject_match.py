"""A name is found wherever it stands as a word, and is gone from there afterwards."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import Usage
from reporting.erasure.request import ErasureRequest, subject_words
from reporting.erasure.subject_match import Search, device, person
from reporting.erasure.topics import _state

NAMES = ["anna", "CORP\\anna", "anna@corp.example", "Anna Å. Smith", "élodie", "jos"]
ANNA = Search(person(NAMES, "[erased]"))

TEXTS = {
    "user anna in": "user [erased] in",
    "ANNA": "[erased]",
    "bye anna.": "bye [erased].",
    "anna anna anna": "[erased] [erased] [erased]",
    "/home/anna/x": "/home/[erased]/x",
    '{"u":"CORP\\\\anna"}': '{"u":"[erased]"}',
    "q=anna%40corp.example&x": "q=[erased]&x",
    "for Anna Å. Smith!": "for [erased]!",
    "bye ÉLODIE, Élodie.": "bye [erased], [erased].",
    '{"u":"\\u00c9LODIE"}': '{"u":"[erased]"}',
    "u=%C3%89lodie&x": "u=[erased]&x",
    "«anna» “anna”": "«[erased]» “[erased]”",
    "banana": None,
    "annaïs": None,
    "maïanna": None,
    "José": None,
    "jose\u0301 jos\u0301": None,
    "山anna anna山": None,
    "é.anna": None,
    "anna.smith": None,
    "alice.anna": None,
    "annas-laptop": None,
    "": None,
}


@pytest.mark.parametrize(("said", "after"), TEXTS.items())
def test_a_word_is_found_as_a_word_of_its_own(said: str, after: str | None) -> None:
    assert ANNA.has(said) == (after is not None)
    assert ANNA.text(said) == (said if after is None else after)
    # In bytes as in text, also beside a record that is no text.
    for others in ([], [b"\xff\x00 \xa4bob", None]):
        raw = pa.array([said.encode(), *others], pa.binary())
        assert ANNA.rows(raw).to_pylist() == [after is not None, *[False for _ in others]]
        assert ANNA.replaced(raw).to_pylist() == [
            (said if after is None else after).encode(),
            *others,
        ]


PACKED = {
    b"\x91\xa4anna\x00": b"\x91\xa4[erased]\x00",
    b"\x82\xa4user\xa4anna": b"\x82\xa4user\xa4[erased]",
    b"\xff \xc3\x89LODIE \xc3\xa9lodie": b"\xff [erased] [erased]",
    "«anna» Jose".encode("latin-1"): "«[erased]» Jose".encode("latin-1"),
    "annaïs, Joséanna, éjos".encode("latin-1"): None,
    b"\xff anna\xc3\xafs ma\xc3\xafanna": None,
}


@pytest.mark.parametrize(("said", "after"), PACKED.items())
def test_a_word_is_found_in_bytes_that_are_no_text(said: bytes, after: bytes | None) -> None:
    assert ANNA.rows(pa.array([said])).to_pylist() == [after is not None]
    assert ANNA.replaced(pa.array([said])).to_pylist() == [said if after is None else after]


def test_a_hardware_address_is_found_in_each_spelling_and_keeps_it() -> None:
    search = Search(device("AA-BB-CC-DD-EE-01", "02a1b2c3d4e5"))
    said = pa.array(
        ["aa:bb:cc:dd:ee:01 ok", "AABB.CCDD.EE01", "mac=AABBCCDDEE01,", "AA-BB-CC-DD-EE-01"]
    )
    assert search.replaced(said).to_pylist() == [
        "02:a1:b2:c3:d4:e5 ok",
        "02a1.b2c3.d4e5",
        "mac=02a1b2c3d4e5,",
        "02-a1-b2-c3-d4-e5",
    ]
    assert not search.has("aa:bb:cc:dd:ee:011")
    for wrong in ("aa:bb:cc", "host-aabbccddee01", ""):
        with pytest.raises(Usage, match="is no hardware address"):
            device(wrong, "x")


def test_a_name_that_is_too_short_is_refused() -> None:
    with pytest.raises(Usage, match="'al': shorter than 3 characters"):
        person(["al"], "x")
    with pytest.raises(Usage, match="no name of 'anna' is left to look for"):
        subject_words(
            ErasureRequest("user", "anna", but=("anna",)), [], "x"
        )  # else it would be all text


texts = st.sampled_from(["anna", "bob", "x anna y", "banana", "", None])
binaries = st.sampled_from([b"anna", b"\xa4anna\x00", b"bob", None])
named = st.fixed_dictionaries({"v": texts})
nested = st.fixed_dictionaries({"name": texts, "groups": st.none() | st.lists(texts, max_size=3)})
pairs = st.dictionaries(st.sampled_from(["k", "anna", "z"]), texts, max_size=3)
row = st.fixed_dictionaries(
    {
        "plain": texts,
        "raw": binaries,
        "number": st.none() | st.integers(0, 9),
        "nested": st.none() | nested,
        "list": st.none() | st.lists(st.none() | named, max_size=3),
        "map": st.none() | pairs.map(lambda found: list(found.items())),
    }
)
KIND = pa.struct(
    [
        ("plain", pa.string()),
        ("raw", pa.binary()),
        ("number", pa.int64()),
        ("nested", pa.struct([("name", pa.string()), ("groups", pa.list_(pa.string()))])),
        ("list", pa.list_(pa.struct([("v", pa.string())]))),
        ("map", pa.map_(pa.string(), pa.string())),
    ]
)


def reworded(value: object) -> object:
    """The same by plain Python, for these few texts."""
    if isinstance(value, str):
        return value if value == "banana" else value.replace("anna", "[erased]")
    if isinstance(value, bytes):
        return value.replace(b"anna", b"[erased]")
    if isinstance(value, dict):
        return {key: reworded(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(reworded(one) for one in value)
    return [reworded(one) for one in value] if isinstance(value, list) else value


@given(st.lists(row, max_size=6), st.integers(0, 3))
def test_rows_of_any_shape_are_searched_and_reworded_whole(rows: list[object], skip: int) -> None:
    array = pa.array(rows, KIND)[skip:]
    wanted = [reworded(one) for one in array.to_pylist()]
    found = ANNA.rows(array).to_pylist()
    assert found == [
        before != after for before, after in zip(array.to_pylist(), wanted, strict=True)
    ]
    after = ANNA.replaced(array)
    assert after.type == array.type
    assert after.to_pylist() == wanted
    assert not any(ANNA.rows(after).to_pylist())


def test_the_state_of_a_damaged_alert_is_what_the_topic_has_in_other_words() -> None:
    before = b'{"alert_id": "x", "entity": "' + NAMES[0].encode() + b'", "published_at": "then"}'
    for damaged in ('{"alert_id": "x", "rule', "", "[]", '"text"'):
        said = _state(ANNA, damaged, before)
        assert said == b'{"alert_id": "x", "entity": "[erased]", "published_at": "then"}'
        assert _state(ANNA, damaged, None) is None, "a tombstone stays one"
