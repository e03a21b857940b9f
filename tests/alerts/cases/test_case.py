"""A case is what its acts make of it, in whatever order and however often their rows are read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alerts.cases.case import fold_cases
from alerts.cases.case_store import NoSuchCase, case_called
from infra.errors import Usage

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def act(number: int, case_id: str, name: str, **more: Any) -> dict[str, Any]:
    row = {"act_id": f"{number:02}", "case_id": case_id, "act": name, "value": None,
           "comment": None, "alert_ids": None, "who": "ann",
           "at": (NOON + timedelta(seconds=number)).isoformat()}  # fmt: skip
    return row | more


ROWS = [
    act(1, "case-aa1", "open", value="Guessed password", alert_ids=["a1", "a2"]),
    act(2, "case-ab2", "open", value="Tunnel", alert_ids=["a3", "a1"], comment="same laptop?"),
    act(3, "case-aa1", "assign", value="bob"),
    act(4, "case-ab2", "unlink", alert_ids=["a1"]),
    act(5, "case-ab2", "merge", value="case-aa1", who="bob"),
    act(6, "case-aa1", "close", value="true_positive", comment="wiped"),
    act(7, "case-gone", "note", comment="no case of that id was opened"),
]


def test_a_case_is_the_same_from_its_rows_in_any_order_and_twice() -> None:
    mixed = [*ROWS, *ROWS]
    random.Random(7).shuffle(mixed)
    cases = fold_cases(mixed)
    assert cases == fold_cases(ROWS)
    kept, merged = cases["case-aa1"], cases["case-ab2"]
    assert (merged.status, merged.merged_into) == ("merged", "case-aa1")
    assert (kept.status, kept.outcome, kept.assignee) == ("closed", "true_positive", "bob")
    assert kept.alerts == ["a1", "a2", "a3"]
    assert [note.text for note in kept.notes] == ["same laptop?", "wiped"]
    assert kept.merged_from == ["case-ab2"]
    assert set(cases) == {"case-aa1", "case-ab2"}


def test_a_case_is_called_by_the_beginning_of_its_id_where_that_is_one() -> None:
    cases = fold_cases([*ROWS, act(8, "case-aa9", "open", value="Other")])
    assert case_called(cases, "ab2").case_id == "case-ab2"
    assert case_called(cases, "case-aa1").case_id == "case-aa1"
    with pytest.raises(NoSuchCase):
        case_called(cases, "a")
    cases["case-aa1b"] = cases["case-aa1"]
    del cases["case-aa1"]
    cases["case-aa1c"] = cases["case-aa1b"]
    with pytest.raises(Usage, match="may be several"):
        case_called(cases, "aa1")


def test_a_case_of_very_many_alerts_is_folded_in_one_pass() -> None:
    class Name(str):
        """Counts how often it is compared."""

        compared = 0
        __hash__ = str.__hash__

        def __str__(self) -> str:
            return self

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

    names = [Name(f"a{number}") for number in range(2_000)]
    rows = [
        act(1, "case-aa1", "open", value="Storm", alert_ids=names),
        act(2, "case-aa1", "link", alert_ids=[*reversed(names), "z"]),
        act(3, "case-aa1", "unlink", alert_ids=names[10:]),
    ]
    case = fold_cases(rows)["case-aa1"]
    assert case.alerts == [*names[:10], "z"]
    assert len(case.ever) == 2_001
    assert Name.compared < 20 * len(names)
