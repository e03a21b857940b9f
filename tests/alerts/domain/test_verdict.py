"""Verdicts are a closed list, which a person may write as they are used to."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.domain.verdict import VERDICTS, Verdict, verdict_of
from infra.errors import Usage


@given(
    name=st.sampled_from(get_args(Verdict)),
    mark=st.sampled_from(["_", "-", " ", "  "]),
    upper=st.booleans(),
)
def test_a_verdict_is_known_however_its_words_are_joined(name: str, mark: str, upper: bool) -> None:
    written = name.replace("_", mark)
    assert verdict_of(f" {written.upper() if upper else written} ") == name


def test_each_verdict_has_an_id_of_its_own_and_a_meaning() -> None:
    assert set(VERDICTS) == set(get_args(Verdict))
    assert len({uid for uid, _ in VERDICTS.values()}) == len(VERDICTS)
    assert all(meaning for _, meaning in VERDICTS.values())


def test_what_is_no_verdict_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(Usage, match=r"no verdict 'benin'. Did you mean benign\? One of: true_posi"):
        verdict_of("benin")
    with pytest.raises(Usage, match="no verdict 'banana'"):
        verdict_of("banana")
