"""Candidates of batches of few rows: a look-up for each value, and hardly a call into Arrow.

What a value of a plain text column passes, be it a gate or a rule that is asked value by value,
is a set of numbers. Values that pass the same share one set, remembered across batches, and the
sets of a row decide which rules are worth confirming on it; that is remembered as well. So a
value that differs from earlier ones in what no rule asks for costs no more than a known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress, repeat
from weakref import WeakMethod

import numpy as np

from alerts.matching.column_access import EventColumns, Flags, Numbers
from alerts.matching.prefilter import (
    PrefilterPlan,
    TextSearch,
    or_throws,
    rows_by_value,
    rows_where,
)
from alerts.matching.routing import LogSource
from alerts.rulepack.predicate import Leaf, Test, leaf
from alerts.rulepack.row_predicate import ValueTest

FEW = 1_000
"""Rows up to which a value is looked up among those of earlier batches and not sought anew."""

_MOST_VALUES, _MOST_CHARS = 20_000, 1_000
"""Values that a column remembers, and how long they may be: scripts hardly come twice."""

_MOST_SETS = 100_000
"""Sets, and rows of sets, that are remembered."""

_MOST_ASKED = 1_000
"""Combinations of log sources that are remembered: of some dozens almost any may be in a batch."""


@dataclass
class _Column:
    """What is asked of the texts of one column; each answer is a number of a set."""

    path: str
    search: TextSearch | None = None
    questions: list[tuple[Leaf, tuple[int, ...]]] = field(default_factory=list)
    tests: list[tuple[ValueTest, int]] = field(default_factory=list)
    known: dict[str | None, int] = field(default_factory=dict)

    def passed(self, texts: Sequence[str | None]) -> list[tuple[int, ...]]:
        """What each text passes, some perhaps twice; a missing one no gate, but a `not`."""
        passed: list[tuple[int, ...]] = [()] * len(texts)
        if self.search is not None:
            # No needle is empty, so none occurs in the text that stands for a missing one.
            passed = self.search.owners_in([text or "" for text in texts])
        for holds, numbers in self.questions:
            for place, text in enumerate(texts):
                if text is not None and or_throws(holds, text):
                    passed[place] += numbers
        for test, number in self.tests:
            for place, held in enumerate(test.may_hold(texts)):
                if held:
                    passed[place] += (number,)
        return passed


@dataclass
class _Asked:
    """What events of some groups are asked: of columns of text, and of all others."""

    columns: list[_Column]
    questions: list[tuple[Test, tuple[int, ...]]]


class _Worth(dict[tuple[int, ...], tuple[int, ...]]):
    """The rules worth confirming on a row, by its group and the sets of its values."""

    def __init__(self, candidates: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        super().__init__()
        # Weakly, as it is a method of who has this: a worker's matcher must go without the
        # collector (`alerts.matching.cost_metering`).
        self._candidates = WeakMethod(candidates)

    def __missing__(self, key: tuple[int, ...]) -> tuple[int, ...]:
        candidates = self._candidates()
        assert candidates is not None
        rules = self[key] = candidates(key)
        return rules


class FewRows:
    """The look-ups of one plan.

    Gates have their number in the plan; a rule that is asked value by value stands behind them,
    as a gate of its own.
    """

    def __init__(self, plan: PrefilterPlan, rules_for: Callable[[LogSource], Flags]) -> None:
        self._plan = plan
        self._rules_for = rules_for
        rules = range(len(plan.gates))
        self._rule_of = [*plan.rules.tolist(), *rules]
        self._needed = [max(count, 1) for count in plan.gates.tolist()]
        self._ungated = [n for n in rules if not plan.gates[n] and n not in plan.by_value]
        self._columns: dict[str, _Column] = {}
        self._asked: dict[tuple[LogSource, ...], _Asked] = {}
        self._sets: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._groups: list[LogSource] = []
        self._group_numbers: dict[LogSource, int] = {}
        self._worth = _Worth(self._candidates)

    def worth(
        self, columns: EventColumns, groups: Sequence[LogSource], of_row: Sequence[int] | None
    ) -> tuple[Sequence[int], list[tuple[int, ...]]]:
        """Places of rows worth confirming, in order, and the rules for which each is, in order.

        `groups` are those of the rows in `columns`; `of_row` says which each row is of, and is
        None where there is one.
        """
        if max(len(self._numbers), len(self._worth)) > _MOST_SETS:
            self._forget()
        asked = self._asked.get(of_groups := tuple(groups))
        if asked is None:
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            asked = self._asked[of_groups] = self._asked_of(groups)
        sets: list[Iterable[int]] = []
        others: list[tuple[Numbers, Numbers]] = []
        for column in asked.columns:
            texts = columns.texts(column.path)
            if texts is None:
                others += self._in_arrow(column, columns)
            else:
                sets.append(self._looked_up(column, texts))
        for test, owners in asked.questions:
            hit = rows_where(test, columns)
            others.append((np.repeat(owners, len(hit)), np.tile(hit, len(owners))))
        if others:
            sets.append(self._by_row(others, columns.rows))
        # Numbers, as a pair would be hashed anew for each row.
        numbered = list(map(self._group_number, groups))
        of: Iterable[int] = repeat(numbered[0], len(columns.rows))
        if of_row is not None:
            of = map(numbered.__getitem__, of_row)
        worth = list(map(self._worth.__getitem__, zip(of, *sets, strict=True)))
        return list(compress(range(len(worth)), worth)), list(filter(None, worth))

    def _group_number(self, group: LogSource) -> int:
        number = self._group_numbers.setdefault(group, len(self._groups))
        if number == len(self._groups):
            self._groups.append(group)
        return number

    def _asked_of(self, groups: Sequence[LogSource]) -> _Asked:
        """What concerns a rule that looks at one of the groups."""
        plan = self._plan
        wanted = np.logical_or.reduce([self._rules_for(group) for group in groups])
        matter = wanted[plan.rules]
        paths = {path for path, search in plan.searches.items() if matter[search.owners].any()}
        questions = [(test, of) for test, of in plan.questions.items() if matter[of].any()]
        paths |= {test.path for number, test in plan.by_value.items() if wanted[number]}
        plain = [test for test, _ in questions if test.op != "listed"]
        # A question of a column that is read anyway is asked of its texts.
        return _Asked(
            [self._column(path) for path in sorted(paths | {test.field for test in plain})],
            [(test, tuple(of.tolist())) for test, of in questions if test.op == "listed"],
        )

    def _column(self, path: str) -> _Column:
        """All that the plan asks of a column, for whichever rules: a text is sought but once."""
        if path not in self._columns:
            plan, behind = self._plan, len(self._plan.rules)
            self._columns[path] = _Column(
                path,
                plan.searches.get(path),
                [
                    (leaf(test), tuple(of.tolist()))
                    for test, of in plan.questions.items()
                    if test.field == path and test.op != "listed"
                ],
                [(test, behind + n) for n, test in plan.by_value.items() if test.path == path],
            )
        return self._columns[path]

    def _looked_up(self, column: _Column, texts: Sequence[str | None]) -> list[int]:
        """For each text the number of the set of what it passes."""
        known = column.known
        # To look whether a None is among some hundred numbers takes longer than to look them up.
        with suppress(KeyError):
            return list(map(known.__getitem__, texts))
        numbers: list[int] = list(map(known.get, texts))  # type: ignore[arg-type]  # or None
        unknown = [place for place, number in enumerate(numbers) if number is None]
        fresh = dict.fromkeys(map(texts.__getitem__, unknown), 0)
        missing = list(fresh)
        passed = column.passed(missing)
        # Most pass what others have passed: a call for each would take as long as the look-ups.
        of_sets = map(self._numbers.get, passed)
        for text, number, of_text in zip(missing, of_sets, passed, strict=True):
            fresh[text] = self._number(of_text) if number is None else number
        for place in unknown:
            numbers[place] = fresh[texts[place]]
        if len(known) > _MOST_VALUES:
            known.clear()
        known.update(fresh)
        if max([len(text) for text in missing if text], default=0) > _MOST_CHARS:
            for text in missing:
                if text is not None and len(text) > _MOST_CHARS:
                    del known[text]
        return numbers

    def _number(self, passed: tuple[int, ...]) -> int:
        """The number of a set, which may be written in any order and with repetitions."""
        number = self._numbers.get(passed)
        if number is None:
            key = tuple(sorted(set(passed)))
            number = self._numbers.setdefault(key, len(self._sets))
            if number == len(self._sets):
                self._sets.append(key)
            self._numbers[passed] = number
        return number

    def _in_arrow(self, column: _Column, columns: EventColumns) -> list[tuple[Numbers, Numbers]]:
        """(gate, row) of a column that is no plain text, such as a list or a number."""
        plan, path = self._plan, column.path
        passed = [column.search.pairs(columns.distinct(path))] if column.search else []
        for test, owners in plan.questions.items():
            if test.field == path and test.op != "listed":
                hit = rows_where(test, columns)
                passed.append((np.repeat(owners, len(hit)), np.tile(hit, len(owners))))
        for value_test, number in column.tests:
            held = rows_by_value(value_test, columns)
            rows = columns.rows if held is None else held
            passed.append((np.full(len(rows), number), rows))
        return passed

    def _by_row(self, passed: Sequence[tuple[Numbers, Numbers]], rows: Numbers) -> list[int]:
        """The same as the number of one set a row."""
        sets: dict[int, set[int]] = {}
        for gates, hit in passed:
            for gate, row in zip(gates.tolist(), hit.tolist(), strict=True):
                sets.setdefault(row, set()).add(gate)
        numbers = {row: self._number(tuple(gates)) for row, gates in sets.items()}
        return list(map(numbers.get, rows.tolist(), repeat(self._number(()))))

    def _candidates(self, key: tuple[int, ...]) -> tuple[int, ...]:
        """The rules all of whose gates a row has passed, of those that look at its group.

        `key` is the group's number and those of what the row's values pass.
        """
        gates: set[int] = set()
        for number in key[1:]:
            gates.update(self._sets[number])
        times: dict[int, int] = {}
        for gate in gates:
            rule = self._rule_of[gate]
            times[rule] = times.get(rule, 0) + 1
        allowed = self._rules_for(self._groups[key[0]])
        passed = [rule for rule, count in times.items() if count >= self._needed[rule]]
        return tuple(sorted(rule for rule in (*passed, *self._ungated) if allowed[rule]))

    def _forget(self) -> None:
        self._worth.clear()
        self._sets.clear()
        self._numbers.clear()
        for column in self._columns.values():
            column.known.clear()
