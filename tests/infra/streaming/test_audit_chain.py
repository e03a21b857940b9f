"""The chain of ops.audit: nothing is changed, left out, put in or moved unseen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.streaming.audit_chain import ChainFault, ChainHead, chained, first_fault, links_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def act(second: int, who: str = "ann", **more: Any) -> dict[str, Any]:
    row = {"at": NOON + timedelta(seconds=second), "who": who, "act": "alert.close"}
    return row | {"target": "a", "detail": None, "outcome": "ok"} | more


def chain(*rounds: int) -> tuple[list[dict[str, Any]], ChainHead]:
    """Rounds of so many acts each."""
    head, rows, second = ChainHead("c"), [], 0
    for number, size in enumerate(rounds):
        fresh = [act(second + i) for i in range(size)]
        second += size
        linked, head = chained(fresh, head, f"round-{number}")
        rows += linked
    return rows, head


def fault(rows: list[dict[str, Any]], head: ChainHead | None = None) -> ChainFault | None:
    ordered = sorted(rows, key=lambda row: (row["chain"], row["seq"]))
    return first_fault(links_of(ordered), {head.chain: head} if head else {})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_what_the_driver_wrote_holds(rounds: list[int]) -> None:
    rows, head = chain(*rounds)
    assert [row["seq"] for row in rows] == list(range(1, sum(rounds) + 1))
    assert fault(rows, head) is None


@given(
    place=st.integers(0, 5),
    column=st.sampled_from(["at", "who", "act", "target", "detail", "outcome", "digest"]),
)
def test_a_row_that_was_changed_is_the_first_fault(place: int, column: str) -> None:
    rows, head = chain(2, 3, 1)
    other = NOON if column == "at" else "mallory"
    rows[place] = rows[place] | {column: other if rows[place][column] != other else NOON.max}
    named = fault(rows, head)
    assert named is not None
    assert named.seq == place + 1


@given(st.integers(1, 5))
def test_a_row_that_is_gone_is_named(place: int) -> None:
    rows, head = chain(2, 3, 2)
    assert fault(rows[:place] + rows[place + 1 :], head) == ChainFault("c", place + 1, "is missing")


def test_rows_that_are_cut_off_the_end_are_missed_and_those_that_expired_are_not() -> None:
    rows, head = chain(2, 3, 2)
    assert fault(rows[3:], head) is None
    cut = fault(rows[:4], head)
    assert cut == ChainFault("c", 5, "is missing at the end")
    # A round under way is in the file before it is in the table.
    assert fault(rows[:5], head) is None


def test_a_chain_written_anew_over_changed_rows_ends_in_another_digest() -> None:
    rows, head = chain(3)
    forged, _ = chained([act(0), act(1, who="mallory"), act(2)], ChainHead("c"), "round-0")
    assert fault(forged) is None, "it holds in itself"
    assert fault(forged, head) == ChainFault("c", 3, "is another one than the driver wrote")
    assert rows[-1]["digest"] not in {row["digest"] for row in forged}


def test_a_round_that_is_written_again_gets_the_same_links() -> None:
    first, head = chain(2)
    acts = [act(9), act(8)]
    linked, after = chained(acts, head, "round-9")
    again, same = chained(list(reversed(acts)), after, "round-9")
    assert (linked, after) == (again, same)
    assert fault([*first, *linked, *again], after) is None


def test_rows_of_before_the_chain_are_left_out() -> None:
    rows, _ = chain(1)
    old = act(-5) | {"chain": None, "seq": None, "digest": None}
    assert len(list(links_of([old, *rows]))) == 1
