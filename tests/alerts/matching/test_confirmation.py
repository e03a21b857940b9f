"""What is remembered of values that came before changes no finding, however little has room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.matching import confirmation, few_rows
from alerts.matching.column_access import EventColumns, Picked
from alerts.matching.confirmation import Confirmation, ReadyRule
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import All, Either, Node, Not, Test, holds, literals_of
from alerts.rulepack.row_predicate import Slots
from alerts.rulepack.rule_pack import Rule, RulePack
from alerts.rulepack.text_predicate import text_test
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
TEXTS = ("", "a", "A", "ab", "B", "bA", "Σ", "ας", "Σίσυφος", "7")
OPS = ("eq", "contains", "startswith", "endswith", "re")
FIELDS = ("message", "user.name", "process.cmd_line")


def _tests(fields: Sequence[str]) -> st.SearchStrategy[Node]:
    asked = st.builds(
        Test,
        st.sampled_from(fields),
        st.sampled_from(OPS),
        st.sampled_from([text for text in TEXTS if text]),
        st.booleans(),
    )
    there = st.builds(Test, st.sampled_from(fields), st.just("exists"), st.booleans())
    return asked | there


def _nodes(fields: Sequence[str]) -> st.SearchStrategy[Node]:
    return st.recursive(
        _tests(fields),
        lambda parts: st.one_of(
            st.builds(All, st.lists(parts, min_size=1, max_size=3).map(tuple)),
            st.builds(Either, st.lists(parts, min_size=1, max_size=4).map(tuple)),
            st.builds(Not, parts),
        ),
        max_leaves=6,
    )


@given(_nodes(["message"]), st.sampled_from(TEXTS))
def test_a_tree_of_one_text_says_what_plain_evaluation_says(node: Node, text: str) -> None:
    assert text_test(node)(text) is holds(node, {"message": text})


def _event(number: int, texts: tuple[str | None, ...]) -> dict[str, Any]:
    return {
        "event_uid": f"e{number}",
        "time": NOON,
        "received_at": NOON,
        "source": "s",
        "mode": "live",
        "class_uid": 1,
        "message": texts[0],
        "user": {"name": texts[1]},
        "process": {"cmd_line": texts[2]},
    }


_ROWS = st.tuples(*[st.sampled_from((None, *TEXTS, "a" * 2_500))] * 3)


@pytest.mark.parametrize(("most", "few"), [(0, 0), (3, 2), (100_000, 4), (100_000, 1_000)])
@examples(15)
@given(
    st.lists(_nodes(FIELDS), min_size=1, max_size=4),
    st.lists(st.lists(_ROWS, max_size=8), max_size=4),
)
def test_rules_of_several_columns_equal_plain_evaluation_in_any_batch(
    most: int, few: int, nodes: list[Node], batches: list[list[tuple[str | None, ...]]]
) -> None:
    pack = RulePack(
        rules=tuple(
            Rule(id=f"r{number}", title="t", predicate=node, literals=literals_of(node))
            for number, node in enumerate(nodes)
        )
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(confirmation, "MOST", most)
        patched.setattr("alerts.matching.matcher.FEW", few)
        patched.setattr(few_rows, "_MOST_VALUES", most)
        matcher = Matcher(pack)
        for texts in [*batches, *batches]:
            events = [_event(number, row) for number, row in enumerate(texts)]
            findings = matcher.match(event_batch(events)).to_pylist()
            pairs = [(row["rule_id"], row["event_uid"]) for row in findings]
            assert sorted(pairs) == sorted(brute_force(pack, events))


def _throws_at_b(columns: Slots, row: int) -> bool:
    if columns[0][row] == "b":
        raise ValueError("b")
    return True


def test_a_rule_that_throws_is_set_aside_at_the_same_row_whatever_is_remembered() -> None:
    node = All((Test("message", "exists", True), Test("user.name", "exists", True)))
    rules = [ReadyRule(node, _throws_at_b), ReadyRule(node, lambda columns, row: True)]
    asked = Confirmation(rules, {"message": 0, "user.name": 1})
    batch = event_batch([_event(n, (text, "u", None)) for n, text in enumerate("abac")])
    answers = [
        asked.confirm(Picked(EventColumns(batch), range(4), ["message", "user.name"]), [(0, 1)] * 4)
        for _ in range(3)
    ]
    hits = [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1)]
    assert answers == [(hits, {0: (1, "ValueError: b")})] * 3
    assert asked.known > 0


def test_columns_that_are_read_together_are_read_as_each_by_itself() -> None:
    batch = event_batch([_event(n, (text, "u", None)) for n, text in enumerate(("a", None, "b"))])
    names = ("event_uid", "message", "host_name", "class_uid", "user", "no_column")
    for places in ([2, 0], [1], []):
        together, alone = (Picked(EventColumns(batch), places) for _ in range(2))
        together.read_together(names)
        assert {name: together[name] for name in names} == {name: alone[name] for name in names}
    read = Picked(EventColumns(batch), [2, 0])
    read.read_together(names)
    # Others are left to whoever asks for them.
    assert dict(read) == {"event_uid": ["e2", "e0"], "message": ["b", "a"]}


def test_columns_taken_together_are_those_of_each_place_and_their_texts_those_of_each_row() -> None:
    batch = event_batch([_event(n, (text, "u", None)) for n, text in enumerate(("a", None, "b"))])
    names, read = ("event_uid", "class_uid", "message", "dst_ip", "no_column"), ("message", "scope")
    for of_hits in ([0, 0, 1], [1, 1], [0, 1]):
        picked, alone = (Picked(EventColumns(batch), [2, 0]) for _ in range(2))
        taken = picked.take_together(names, read, of_hits)
        # No event has a `dst_ip`.
        assert set(taken) == {"event_uid", "class_uid", "message"}
        for name, array in taken.items():
            assert array.to_pylist() == [alone[name][place] for place in of_hits]
        assert {name: picked[name] for name in read} == {name: alone[name] for name in read}


def test_what_is_remembered_stays_within_its_bounds() -> None:
    node = All((Test("message", "contains", "7"), Test("user.name", "exists", True)))
    asked = Confirmation(
        [ReadyRule(node, lambda columns, row: True)], {"message": 0, "user.name": 1}
    )
    asked.most, asked.most_chars = 5, 12
    for number in range(40):
        batch = event_batch([_event(0, (str(number) * 3, "u", None))])
        asked.confirm(Picked(EventColumns(batch), range(1), ["message", "user.name"]), [(0,)])
        assert asked.count <= 5
        assert asked.chars <= 12
