"""What tells two states apart, and makes the one the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.as_code.state import (
    ConfigChange,
    ConfigState,
    FieldChange,
    diff_states,
    field_changes,
    patched_state,
)
from tests.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
OBJECTS = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=4
)
STATES = st.dictionaries(st.sampled_from(["rule", "query", "asset"]), OBJECTS, max_size=3)


def without_empty(state: ConfigState) -> ConfigState:
    return {kind: objects for kind, objects in state.items() if objects}


def turned(value: Any) -> Any:
    """The same value, made in the other order."""
    if isinstance(value, dict):
        return {key: turned(inner) for key, inner in reversed(value.items())}
    return value


@given(STATES)
@examples(60)
def test_a_state_does_not_differ_from_itself(state: ConfigState) -> None:
    assert diff_states(state, state) == ()
    assert diff_states(state, turned(state)) == ()


@given(STATES, STATES)
@examples(100)
def test_changes_make_the_one_state_the_other(before: ConfigState, after: ConfigState) -> None:
    changes = diff_states(before, after)
    assert patched_state(before, changes) == without_empty(after)
    assert patched_state(patched_state(before, changes), changes) == without_empty(after)
    assert patched_state(before, reversed(changes)) == without_empty(after)


@given(STATES, STATES)
@examples(60)
def test_the_order_of_a_state_does_not_matter(before: ConfigState, after: ConfigState) -> None:
    assert diff_states(turned(before), turned(after)) == diff_states(before, after)


@given(STATES, STATES)
@examples(60)
def test_a_change_names_the_fields_that_differ(before: ConfigState, after: ConfigState) -> None:
    for change in diff_states(before, after):
        if change.action == "change":
            assert field_changes(change)


def test_names_with_dots_and_keys_without_a_value_are_told() -> None:
    dotted = ConfigChange("rule", "a", {"x": {"y": 1}}, {"x.y": 1})
    assert {field.field for field in field_changes(dotted)} == {"x", "x.y"}
    empty = ConfigChange("rule", "a", {}, {"x": None})
    assert field_changes(empty) == (FieldChange("x", None, None),)


def test_fields_are_compared_as_a_person_reads_them() -> None:
    change = ConfigChange("rule", "a", {"text": "x: {y: 1}"}, {"text": "x: {y: 2}"})
    described = {"x: {y: 1}": {"x": {"y": 1}}, "x: {y: 2}": {"x": {"y": 2}}}
    fields = field_changes(change, lambda values: described[values["text"]])
    assert fields == (FieldChange("x.y", 1, 2),)


def test_a_comment_that_differs_is_told_as_the_text() -> None:
    change = ConfigChange("rule", "a", {"text": "x: 1"}, {"text": "x: 1 # why"})
    assert field_changes(change, lambda _: {"x": 1}) == (FieldChange("text", "x: 1", "x: 1 # why"),)
