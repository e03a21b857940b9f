"""A document from outside is no larger than it looks, or is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.config.bounded_yaml import yaml_document, yaml_documents


def _bomb(levels: int, form: str) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        names = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + form.format(names))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _bomb(10, "[{}]"),
        _bomb(10, "{{<<: [{}]}}"),
        "a: &a [*a]",
        "a: &a {b: *a}",
        "[" * 5_000 + "]" * 5_000,
        "x" * (5 << 20),
    ],
    ids=["lists", "merges", "itself", "itself in a mapping", "deep", "long"],
)
def test_what_stands_for_more_than_it_looks_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        list(yaml_documents(text))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="ascii")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii")), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_within_bounds_is_read_as_it_is(value: Any) -> None:
    assert yaml_document(yaml.safe_dump(value)) == yaml.safe_load(yaml.safe_dump(value))


def test_an_alias_that_is_used_twice_is_read() -> None:
    assert yaml_document("a: &a [1, 2]\nb: *a") == {"a": [1, 2], "b": [1, 2]}
