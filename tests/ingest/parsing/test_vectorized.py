"""What is done a column at a time, on columns that are parts of longer ones."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.parsing import ocsf
from ingest.parsing.arrow_columns import EVENT_ARROW, joined
from ingest.parsing.ocsf import address
from ingest.parsing.vectorized import (
    addresses,
    exact_times,
    json_objects,
    json_of,
    null_where,
    observables,
    only_where,
    taken,
    texts_of,
)

TEXTS = st.none() | st.text("ab\u00e9", max_size=3)
MASKS = st.none() | st.booleans()
OCTETS = st.sampled_from(["0", "00", "01", "9", "99", "199", "249", "255", "256", "1e1", "\u0661"])
ADDRESSES = st.none() | st.one_of(
    st.lists(OCTETS, min_size=3, max_size=5).map(".".join),
    st.text("0123456789.:fF% \n", max_size=16),
    st.ip_addresses().map(str),
    st.ip_addresses(v=4).map(lambda ip: f"::ffff:{ip}"),
    st.tuples(st.ip_addresses(v=4).map(str), st.sampled_from([":80", "/8", " ", "\n", "\0"])).map(
        "".join
    ),
)


@given(st.lists(st.tuples(TEXTS, MASKS), max_size=12), st.integers(0, 4), st.booleans())
def test_texts_are_taken_as_they_stand_in_a_part_of_a_column(
    rows: list[tuple[str | None, bool | None]], before: int, as_bytes: bool
) -> None:
    values = ["before"[:before], *(text for text, _ in rows), "behind"]
    kind = pa.binary() if as_bytes else pa.string()
    texts = pa.array(values).cast(kind).slice(1, len(rows))
    mask = pa.array([True, *(holds for _, holds in rows)], pa.bool_()).slice(1)
    for made, wanted in ((null_where(mask, texts), False), (only_where(mask, texts), True)):
        made.validate(full=True)
        assert made.type == kind
        assert made.cast(pa.string()).to_pylist() == [
            text if holds is wanted else None for text, holds in rows
        ]


def test_texts_may_begin_behind_the_first_byte_of_their_buffer() -> None:
    validity, offsets, data = pa.array(["before", "a", "bc"]).buffers()
    texts = pa.Array.from_buffers(pa.string(), 2, [validity, offsets.slice(4), data])
    assert texts.offset == 0
    assert only_where(pa.array([True, False]), texts).to_pylist() == ["a", None]
    assert null_where(pa.array([True, False]), texts).to_pylist() == [None, "bc"]


@given(st.lists(ADDRESSES, max_size=12), st.integers(0, 3))
@example(["10.0.0.1", "1.2.3.04", "1.2.3.4\n", " 1.2.3.4", "FE80::1", "fe80::1%eth0", "", "::1"], 1)
@example(["host", "10.0.0.1", "255.255.255.255", "0.0.0.0", None], 1)
def test_addresses_are_what_each_is_by_itself(texts: list[str | None], first: int) -> None:
    part = pa.array(texts, pa.string()).slice(first)
    alone = [None if text is None else address(text) for text in texts[first:]]
    assert addresses(part).to_pylist() == alone


@pytest.mark.parametrize("odd", ["2026-02-30T00:00:00Z", "yesterday", None])
def test_times_and_bytes_are_read_in_a_part_of_a_column(odd: str | None) -> None:
    texts = pa.array(["1999-01-01T00:00:00Z", odd, "2026-11-20T12:00:00Z", "x" * 30]).slice(1, 2)
    assert exact_times(texts).is_valid().to_pylist() == [False, True]
    raws = pa.array([b"before", b"\xff\xff", b"a", "\u00e9".encode()]).slice(1)
    assert texts_of(raws).to_pylist() == [None, "a", "\u00e9"]


FIELDS = {
    "text": (pa.string(), st.none() | st.text('ab"\\\u00e9\n', max_size=3)),
    "whole": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    'odd "name"': (pa.bool_(), st.none() | st.booleans()),
}


@given(
    st.lists(st.fixed_dictionaries({name: of for name, (_, of) in FIELDS.items()}), max_size=8),
    st.integers(0, 3),
)
@example([{"text": "a", "whole": 1, 'odd "name"': None}, dict.fromkeys(FIELDS)], 0)
@example([{"text": "a", "whole": None, 'odd "name"': True}], 0)
def test_json_objects_hold_the_fields_that_a_row_has(
    rows: list[dict[str, Any]], first: int
) -> None:
    texts = {
        name: json_of(pa.array([row[name] for row in rows], kind).slice(first))
        for name, (kind, _) in FIELDS.items()
    }
    made = json_objects(len(rows[first:]), texts)
    made.validate(full=True)
    pairs = [text and json.loads(text, object_pairs_hook=list) for text in made.to_pylist()]
    # In the order of the names, whichever of them all rows have.
    assert pairs == [
        [(name, row[name]) for name in FIELDS if row[name] is not None] or None
        for row in rows[first:]
    ]


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=8), st.integers(0, 3))
def test_observables_are_those_of_each_row(rows: list[tuple[str | None, ...]], first: int) -> None:
    paths = ("src_endpoint.ip", "user.name", "query.hostname")
    kinds = (ocsf.AN_IP, ocsf.A_USER, ocsf.A_HOST)
    columns = [
        pa.array([row[place] for row in rows], pa.string()).slice(first) for place in range(3)
    ]
    made = observables(len(rows[first:]), *zip(paths, kinds, columns, strict=True))
    made.validate(full=True)
    assert made.to_pylist() == [
        ocsf.observables(*zip(paths, kinds, row, strict=True)) for row in rows[first:]
    ]


@given(st.data())
def test_rows_of_structs_are_taken_with_what_is_null_in_them(data: st.DataObject) -> None:
    kind = EVENT_ARROW.field("actor").type
    users = st.none() | st.fixed_dictionaries({"name": TEXTS, "uid": TEXTS})
    actors = st.none() | st.fixed_dictionaries({"user": users, "invoked_by": TEXTS})
    values = pa.array(data.draw(st.lists(actors, min_size=2, max_size=6)), kind).slice(1)
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=6))
    made = taken(values, pa.array(places, pa.int32()))
    made.validate(full=True)
    assert made.equals(values.take(pa.array(places, pa.int32())))


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_bytes_are_joined_to_the_array_that_arrow_makes_of_them(values: list[bytes | None]) -> None:
    array = joined(values, pa.binary())
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))
    texts = [None if value is None else value.hex().encode() for value in values]
    assert joined(texts, pa.string()).equals(pa.array(texts, pa.string()))
    assert joined(texts, pa.string()).null_count == values.count(None)
