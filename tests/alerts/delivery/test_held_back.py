"""What goes out around damaged revisions, whatever comes in which order: a model without a broker.

commits ──> sort out ──> out        what is out stays out; what is held back is part of the place
               │  ^
             held └── let go <── table, what was left out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.delivery.alert_message import Revision
from alerts.delivery.held_back import (
    AT_ONCE,
    MOST_HELD,
    HeldAlert,
    held_sentence,
    let_go,
    looked_at,
    sort_out,
    within,
)
from alerts.domain.alert_body import DamagedAlert
from tests.examples import examples

WHOLE = '{"rule": {"id": "r"}, "alert_id": "a"}'
TORN = '{"rule": {"id'


class Table:
    """gold.alert as `let_go` and `within` ask it, and what went out of it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], Revision] = {}
        self.held: dict[str, HeldAlert] = {}
        self.left: set[str] = set()
        self.out: list[tuple[str, int]] = []
        self.version = 0
        self.commits: list[list[Revision]] = []
        self.asked = 0

    def ask(
        self, sql: str, asked: Mapping[str, Any], needs: tuple[str, ...] = ()
    ) -> list[dict[str, Any]]:
        assert needs == ("gold.alert",)
        self.asked += 1
        if "BETWEEN" in sql:
            span = range(asked["first"], asked["last"] + 1)
            return [
                {field: getattr(row, field) for field in row.__dataclass_fields__}
                for (alert, number), row in sorted(self.rows.items())
                if alert == asked["alert"] and number in span
            ]
        return [
            {"alert_id": alert, "revision": number} | ({"body": row.body} if "body" in sql else {})
            for (alert, number), row in self.rows.items()
            if alert in asked["alerts"] and row.name in asked.get("names", [row.name])
        ]

    def commit(self, *rows: Revision) -> None:
        """A commit of some revisions, sent as the publisher does."""
        self.version += 1
        self.rows |= {(row.alert_id, row.revision): row for row in rows}
        self.commits.append(list(rows))
        in_order = sorted(rows, key=lambda row: (row.alert_id, row.revision))
        going, self.held = sort_out(in_order, self.held, frozenset(self.left), self.version)
        self.out += [(each.revision.alert_id, each.revision.revision) for each in going]

    def look(self) -> None:
        """What is held back no longer goes out."""
        left = frozenset(self.left)
        some = looked_at(self.ask, self.held, left, is_news)
        for alert in self.held.keys() - some:
            # Those that are passed over would have nothing to say.
            waits = self.held[alert]
            assert let_go(self.ask, alert, waits, left, is_news) == ([], waits)
        for alert in some:
            while (hold := self.held.get(alert)) is not None:
                going, then = let_go(self.ask, alert, hold, left, is_news)
                if then == hold:
                    break
                self.out += [(each.revision.alert_id, each.revision.revision) for each in going]
                self.held = {key: each for key, each in self.held.items() if key != alert}
                if then is not None:
                    self.held[alert] = then

    def repair(self, alert: str, number: int) -> None:
        """Put a whole body in the place of a damaged one."""
        was = self.rows[alert, number]
        self.rows[alert, number] = Revision(alert, number, was.activity, WHOLE, was.sequence)


def is_news(_: Revision) -> bool:
    """Of no lake from a backup all is news."""
    return True


def revision(alert: str, number: int, body: str | None = WHOLE, sequence: int = 0) -> Revision:
    return Revision(alert, number, "update", body, sequence)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4),
        ),
        st.tuples(st.sampled_from(["repair", "leave"]), st.integers(0, 20)),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
@examples(200)
def test_each_revision_goes_out_once_in_order_and_no_alert_waits_for_another(
    steps: list[Any],
) -> None:
    table, numbers, torn = Table(), dict.fromkeys("abc", 0), list[tuple[str, int]]()
    for kind, value in steps:
        if kind == "commit":
            rows = []
            for alert, damaged in value:
                numbers[alert] += 1
                body = TORN if damaged else WHOLE
                rows.append(revision(alert, numbers[alert], body, table.version + 1))
                torn += [(alert, numbers[alert])] if damaged else []
            table.commit(*rows)
        elif kind in ("repair", "leave") and torn:
            name = torn.pop(value % len(torn))
            if kind == "repair":
                table.repair(*name)
            else:
                table.left.add(f"{name[0]}:{name[1]}")
        elif kind == "look":
            table.look()
        check(table)
    table.look()
    check(table)
    for alert, hold in table.held.items():
        # What waits waits for a damaged one, and all before it is out.
        assert table.rows[alert, hold.first].body == TORN
        assert hold.why
    for alert, number in torn:
        table.left.add(f"{alert}:{number}")
    table.look()
    assert table.held == {}
    left = {(name[0], int(name[2:])) for name in table.left}
    assert sorted(table.out) == sorted(table.rows.keys() - (left - set(table.out)))


def check(table: Table) -> None:
    """Each once, in order for an alert; and of an alert without a hold nothing is missing."""
    assert len(table.out) == len(set(table.out))
    for alert in "abc":
        out = [number for name, number in table.out if name == alert]
        assert out == sorted(out)
        hold = table.held.get(alert)
        behind = [number for name, number in table.rows if name == alert and number not in out]
        waiting = [number for number in behind if f"{alert}:{number}" not in table.left]
        if hold is None:
            assert waiting == []
        else:
            assert all(hold.first <= number <= hold.last for number in waiting)


def test_many_go_out_in_portions_and_a_gap_is_none_of_them() -> None:
    table = Table()
    table.commit(revision("a", 1, TORN))
    table.commit(*(revision("a", number) for number in range(2, 3 * AT_ONCE) if number % 7))
    table.left.add("a:1")
    table.look()
    assert [number for _, number in table.out] == [n for n in range(2, 3 * AT_ONCE) if n % 7]
    assert table.held == {}


def test_what_was_put_in_again_goes_out_once() -> None:
    hold = HeldAlert(1, 2, 1, "torn")
    rows = [(1, TORN), (1, WHOLE), (2, WHOLE), (2, WHOLE)]

    def ask(*_: object, **__: object) -> list[dict[str, Any]]:
        return [
            {"alert_id": "a", "revision": n, "activity": "x", "body": body, "sequence": 1}
            for n, body in rows
        ]

    assert looked_at(ask, {"a": hold}, frozenset(), is_news) == ["a"]
    going, then = let_go(ask, "a", hold, frozenset(), is_news)
    assert ([each.revision.revision for each in going], then) == ([1, 2], None)


def test_what_consumers_had_before_a_restore_does_not_go_out_again() -> None:
    table = Table()
    table.commit(revision("a", 1, TORN), revision("a", 2), revision("a", 3))
    assert looked_at(table.ask, table.held, frozenset(), lambda _: False) == ["a"]
    going, then = let_go(
        table.ask, "a", table.held["a"], frozenset(), lambda revision: revision.revision > 2
    )
    assert ([each.revision.revision for each in going], then) == ([3], None)


def test_what_later_commits_bring_is_held_back_by_them() -> None:
    table = Table()
    for number in range(1, 5):
        table.commit(revision("a", number, TORN if number == 1 else WHOLE))
    table.commit(revision("b", 1, TORN))
    later = [("a", 3), ("a", 4), ("b", 1)]
    assert within(table.ask, table.held, later) == {"a": HeldAlert(1, 2, 1, table.held["a"].why)}
    gone = {"c": HeldAlert(1, 9, 1, "torn")}
    assert within(table.ask, gone, []) == {}, "a lake that does not have it makes it anew"


def test_of_many_that_wait_it_is_asked_once_which_may_go() -> None:
    table = Table()
    table.commit(*(revision(f"a{number:03}", 1, TORN) for number in range(MOST_HELD)))
    some = ["a003", "a100", "a200", "a300"]
    table.repair("a003", 1)
    table.left.add("a100:1")
    del table.rows["a200", 1]
    table.held["a300"] = HeldAlert(1, 1, 1, "")  # the rest of it is going out
    assert looked_at(table.ask, table.held, frozenset(table.left), is_news) == some
    assert table.asked == 1


def test_too_much_stops_all_and_says_so() -> None:
    table = Table()
    table.commit(*(revision(f"a{number:03}", 1, TORN) for number in range(MOST_HELD)))
    assert len(table.held) == MOST_HELD
    with pytest.raises(DamagedAlert) as stopped:
        table.commit(revision("b", 1, TORN))
    said = str(stopped.value)
    assert said.startswith("gold.alert, version 2: alert b, revision 1, cannot be published")
    assert "More than 500 alerts would be held back. Nothing behind it was sent." in said
    assert held_sentence(table.held).count(f"{MOST_HELD - 1} more alerts are held back so.") == 1
    assert held_sentence({}) == held_sentence({"a": HeldAlert(2, 3, 1, "")}) == ""
