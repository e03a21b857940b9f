"""Which rows could match which rules: each rule is looked for by the rarest thing it requires.

A gate is a list of atoms of which at least one holds in every event that the
rule matches. An atom is a text that occurs in a column, sought with all others
of that column in one pass over its bytes, or any other test of one field, asked
once for each value the column has. What passes a gate is confirmed exactly
elsewhere, so a gate may let too much through but never too little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import ahocorasick_rs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.matching.column_access import (
    SEPARATOR,
    Distinct,
    EventColumns,
    Flags,
    Numbers,
    haystack_of,
    spread,
    unique,
)
from alerts.rulepack.derived_fields import derived
from alerts.rulepack.predicate import OPS, All, Either, Leaf, Node, Test, leaf, listed_in
from alerts.rulepack.required_literals import Needle, needles_of
from alerts.rulepack.row_predicate import ValueTest

Atom: TypeAlias = Needle | Test

BY_VALUE = frozenset(op for op in OPS if op != "exists" and not op.startswith("ref"))
"""Operations that one value decides and that no missing value satisfies."""

SAMPLE_ROWS = 256
"""Batches smaller than this do not tell what is rare."""

BROAD = 0.05
"""Share of events above which a gate is worth less than asking each value once."""

TRIED, _ASKED, PAIRED = 4.0, 0.4, 0.2
"""Microseconds to confirm a row, to ask one value, and to note that a row passed a gate."""

MADE = 4.0
"""Microseconds to make the value of a derived field, which a question does for every row."""


@dataclass
class AtomCounts:
    """How often atoms held in the rows seen so far."""

    rows: int = 0
    hits: Counter[Atom] = field(default_factory=Counter)
    asked: Counter[Atom] = field(default_factory=Counter)

    def price(self, atom: Atom) -> tuple[float, float]:
        """What an atom costs an event, in microseconds, and the share of events it holds in."""
        rows = self.rows + 1
        if isinstance(atom, Needle):
            # Of two texts that were never seen the longer one is the rarer guess.
            rate = (self.hits[atom] + 0.5 / len(atom.text) ** 2) / rows
            return PAIRED * rate, rate
        rate = (self.hits[atom] + 0.5) / rows
        # Before the first census every row is taken to have a value of its own.
        asked = self.asked[atom] / rows if self.rows else 1.0
        made = MADE if derived(atom.field) else 0.0
        return PAIRED * rate + _ASKED * asked + made, rate


class _Gate(NamedTuple):
    """Atoms of which one holds in every match, what they cost an event, and how many pass."""

    cost: float
    rate: float
    atoms: tuple[Atom, ...]


def gates_of(node: Node, census: AtomCounts) -> list[_Gate]:
    """Gates that every match of the tree passes all of, the cheapest first; none: any event may."""
    if isinstance(node, Test):
        gates = [_priced(atoms, census) for atoms in choices_of(node)]
    elif isinstance(node, All):
        gates = [gate for part in node.of for gate in gates_of(part, census)]
    elif isinstance(node, Either):
        parts = [gates_of(part, census) for part in node.of]
        # One branch without a gate lets any event through, so the whole `or` has none.
        if not parts or not all(parts):
            return []
        # The cheapest gate of each branch, all together: an event passes when any of them holds.
        return [_priced((atom for gates in parts for atom in gates[0].atoms), census)]
    else:
        # A `not` requires nothing to be present, so nothing can be sought for it.
        return []
    return sorted(gates, key=lambda gate: gate[:2])


def _priced(atoms: Iterable[Atom], census: AtomCounts) -> _Gate:
    """The gate of these atoms, each once."""
    different = tuple(dict.fromkeys(atoms))
    prices = [census.price(atom) for atom in different]
    return _Gate(sum(p[0] for p in prices), sum(p[1] for p in prices), different)


def _chosen(gates: Sequence[_Gate]) -> list[_Gate]:
    """The first gates, as long as another one costs less than the rows it keeps out."""
    taken = list(gates[:1])
    passing = taken[0].rate if taken else 0.0
    for gate in gates[1:]:
        if gate.cost < TRIED * passing * (1 - min(gate.rate, 1.0)):
            taken.append(gate)
            passing *= gate.rate
    return taken


def choices_of(test: Test) -> list[tuple[Atom, ...]]:
    """Atoms of which at least one holds whenever the test does, in each way that is known.

    A text in a derived field is sought in the columns the field is made of.
    """
    needles = needles_of(test)
    made = derived(test.field)
    if made is None:
        choices: list[tuple[Atom, ...]] = [(needle,) for needle in needles]
    else:
        sought = [made.literals(needle.text) for needle in needles]
        choices = [tuple(Needle(*pair) for pair in pairs) for pairs in sought if pairs]
    if not choices and test.op in BY_VALUE:
        return [(test,)]
    return choices


def all_atoms(node: Node) -> Iterator[Atom]:
    """Every atom that a gate of the tree could be made of."""
    if isinstance(node, Test):
        yield from chain.from_iterable(choices_of(node))
    elif isinstance(node, All | Either):
        for part in node.of:
            yield from all_atoms(part)


@dataclass
class TextSearch:
    """The needles sought in one column; those of needle `n` serve `owners[bounds[n]:bounds[n+1]]`.

    ContiguousNFA: with thousands of needles the faster-looking DFA is half as
    fast, its table does not fit the processor's cache.
    """

    needles: Sequence[Needle]
    owners: Numbers
    bounds: Numbers
    automaton: ahocorasick_rs.BytesAhoCorasick
    served: Sequence[tuple[int, ...]]
    """The same owners, needle by needle, for work without NumPy."""

    @classmethod
    def of(cls, wanted: Mapping[Needle, Sequence[int]]) -> TextSearch:
        """A search for the needles, each with the numbers of those it serves."""
        needles = list(wanted)
        bounds = np.zeros(len(needles) + 1, np.int64)
        np.cumsum([len(wanted[needle]) for needle in needles], out=bounds[1:])
        automaton = ahocorasick_rs.BytesAhoCorasick(
            [needle.pattern(SEPARATOR) for needle in needles],
            implementation=ahocorasick_rs.Implementation.ContiguousNFA,
        )
        owners = np.fromiter(chain.from_iterable(wanted.values()), np.int64, int(bounds[-1]))
        return cls(needles, owners, bounds, automaton, [tuple(of) for of in wanted.values()])

    def hits(self, distinct: Distinct) -> tuple[Numbers, Numbers]:
        """(needle, value) for each needle that occurs in a value, once."""
        if not len(distinct.values):
            return NO_PAIRS, NO_PAIRS
        # One text of all distinct values: a single call into the automaton for the whole column.
        haystack = distinct.haystack()
        matches = self.automaton.find_matches_as_indexes(haystack.data, overlapping=True)
        if not matches:
            return NO_PAIRS, NO_PAIRS
        # Matches are tuples (needle, start, end); flat they can be sliced without a loop in Python.
        flat = np.fromiter(chain.from_iterable(matches), np.int64, 3 * len(matches))
        values = np.searchsorted(haystack.starts, flat[1::3], side="right") - 1
        # A needle may occur many times in a value; it counts once.
        pairs = unique(flat[0::3] * len(distinct.values) + values)
        return np.divmod(pairs, len(distinct.values))

    def pairs(self, distinct: Distinct) -> tuple[Numbers, Numbers]:
        """(owner, row) for each needle in each row, possibly more than once."""
        needles, values = self.hits(distinct)
        if not len(needles):
            return NO_PAIRS, NO_PAIRS
        place, rows = distinct.rows_of(values)
        needles = needles[place]
        counts = self.bounds[needles + 1] - self.bounds[needles]
        return self.owners[spread(self.bounds[needles], counts)], np.repeat(rows, counts)

    def owners_in(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """For each text the owners of what occurs in it; one may stand there twice."""
        owners: list[tuple[int, ...]] = [()] * len(texts)
        if texts:
            data, starts = haystack_of(texts)
            # Few texts have few matches: NumPy's functions cost more than a loop over them.
            matches = self.automaton.find_matches_as_indexes(data, overlapping=True)
            pairs = {(bisect_right(starts, start), needle) for needle, start, _ in matches}
            for number, needle in pairs:
                owners[number - 1] += self.served[needle]
        return owners


NO_PAIRS: Numbers = np.zeros(0, np.int64)


@dataclass
class PrefilterPlan:
    """How the rules of a pack are looked for: searches by column, questions, and the rest.

    `rules` says whose each gate is, `gates` how many each rule has. `by_value` are rules that
    one column decides and that have no gate worth its search: they are asked value by value.
    """

    searches: dict[str, TextSearch]
    questions: dict[Test, Numbers]
    rules: Numbers
    gates: Numbers
    by_value: dict[int, ValueTest]

    @classmethod
    def of(
        cls,
        rules: Sequence[Node | None],
        census: AtomCounts,
        by_value: Mapping[int, ValueTest] = MappingProxyType({}),
    ) -> PrefilterPlan:
        """The cheapest gates of every rule, as far as the census can tell; None has no gate.

        `by_value`: of the rules, by number, those that one column decides.
        """
        needles: dict[str, dict[Needle, list[int]]] = defaultdict(lambda: defaultdict(list))
        questions: dict[Test, list[int]] = defaultdict(list)
        owners: list[int] = []
        gates = np.zeros(len(rules), np.int64)
        asked: dict[int, ValueTest] = {}
        for number, node in enumerate(rules):
            taken = [] if node is None else _chosen(gates_of(node, census))
            if number in by_value and (not taken or taken[0].rate > BROAD):
                asked[number], taken = by_value[number], []
            # A rule without a gate is confirmed on all rows of its log source.
            gates[number] = len(taken)
            for gate in taken:
                for atom in gate.atoms:
                    if isinstance(atom, Needle):
                        needles[atom.path][atom].append(len(owners))
                    else:
                        questions[atom].append(len(owners))
                owners.append(number)
        return cls(
            {path: TextSearch.of(wanted) for path, wanted in needles.items()},
            {test: np.array(numbers, np.int64) for test, numbers in questions.items()},
            np.array(owners, np.int64),
            gates,
            asked,
        )

    def pairs(self, columns: EventColumns, rows: Numbers, wanted: Flags) -> tuple[Numbers, Numbers]:
        """(rule, row) worth confirming, in order; `wanted` are the rules that matter."""
        passed = [(NO_PAIRS, NO_PAIRS)]
        matter = wanted[self.rules]
        for path, search in self.searches.items():
            if matter[search.owners].any():
                passed.append(search.pairs(columns.distinct(path)))
        for test, owners in self.questions.items():
            if matter[owners].any():
                hit = rows_where(test, columns)
                passed.append((np.repeat(owners, len(hit)), np.tile(hit, len(owners))))
        keys = unique(
            np.concatenate([p[0] for p in passed]) * columns.count
            + np.concatenate([p[1] for p in passed])
        )
        every = [self._through(keys, columns.count)]
        for number in np.flatnonzero(wanted & (self.gates == 0)).tolist():
            value_test = self.by_value.get(number)
            held = None if value_test is None else rows_by_value(value_test, columns)
            every.append(number * columns.count + (rows if held is None else held))
        return np.divmod(np.concatenate(every), columns.count)

    def _through(self, keys: Numbers, count: int) -> Numbers:
        """Gate and row in one number -> rule and row in one, where all gates were passed."""
        gate, row = np.divmod(keys, count)
        rules = self.rules[gate]
        result, times = np.unique(rules * count + row, return_counts=True)
        # Gate and row were made unique before, so the count is that of different gates passed.
        through: Numbers = result[times == self.gates[result // count]]
        return through


def rows_where(test: Test, columns: EventColumns) -> Numbers:
    """Rows with a value for which the test holds, or on which it throws."""
    if test.op == "listed":
        return listed_in(test).rows(columns.batch, columns.rows)
    distinct = columns.distinct(test.field)
    return distinct.rows_of(_values_where(test, distinct))[1]


def rows_by_value(test: ValueTest, columns: EventColumns) -> Numbers | None:
    """Rows on whose value the test holds or throws; None where the column holds no plain text."""
    if not columns.is_text(test.path):
        return None
    distinct = columns.distinct(test.path)
    values = np.flatnonzero(np.array(test.may_hold(distinct.to_list()), bool))
    held = distinct.rows_of(values)[1]
    # A missing value is none of the different ones, and a `not` holds for it.
    if len(distinct.rows) < len(columns.rows) and test.may_hold([None])[0]:
        held = np.concatenate([held, np.setdiff1d(columns.rows, distinct.rows)])
    return held


def _values_where(test: Test, distinct: Distinct) -> Numbers:
    """RE2 inside Arrow reads the column as it lies; what that cannot say is asked one by one."""
    if test.op == "re" and pa.types.is_string(distinct.values.type):
        try:
            # A gate may let too much through, so RE2's reading only has to be as wide as the
            # rule's.
            matched = pc.match_substring_regex(distinct.values, pattern=str(test.value))
            return np.flatnonzero(matched.to_numpy(zero_copy_only=False)).astype(np.int64)
        except pa.ArrowInvalid:
            pass
    holds = leaf(test)
    values = (n for n, value in enumerate(distinct.to_list()) if or_throws(holds, value))
    return np.fromiter(values, np.int64)


def or_throws(holds: Leaf, value: Any) -> bool:
    """A value on which a test throws is left to the rule, which is then set aside by itself."""
    try:
        return holds(value)
    except Exception:
        return True


def count(
    rules: Iterable[Node | None], columns: EventColumns, rows: int, census: AtomCounts
) -> None:
    """Add to the census how often each atom of the rules holds in these rows."""
    atoms = {atom for node in rules if node is not None for atom in all_atoms(node)}
    needles: dict[str, dict[Needle, list[int]]] = defaultdict(dict)
    for atom in atoms:
        if isinstance(atom, Needle):
            needles[atom.path][atom] = [0]
            continue
        listed = atom.op == "listed"
        # A list is asked by row, since its answer depends on the event's time as well.
        census.asked[atom] += rows if listed else len(columns.distinct(atom.field).values)
        census.hits[atom] += len(rows_where(atom, columns))
    for path, wanted in needles.items():
        search, distinct = TextSearch.of(wanted), columns.distinct(path)
        numbers, values = search.hits(distinct)
        weights = distinct.bounds[values + 1] - distinct.bounds[values]
        totals = np.bincount(numbers, weights=weights, minlength=len(search.needles))
        for number in np.flatnonzero(totals).tolist():
            census.hits[search.needles[number]] += int(totals[number])
    census.rows += rows
