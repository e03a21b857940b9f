"""Which rows could match which rules: each rule is looked for by the rarest thing it requires.

A gate is a list of atoms of which at least one holds in every event that the
rule matches. An atom is a text that occurs in a column, sought with all others
of that column in one pass over its bytes, or any other test of one field, asked
once for each value the column has. What passes a gate is confirmed exactly
elsewhere, so a gate may let too much through but never too little.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

import ahocorasick_rs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.columns import SEPARATOR, Columns, Distinct, Flags, Numbers, spread
from alerts.needles import PLACES, Needle, needles_of
from alerts.predicate import All, Either, Leaf, Node, Test, leaf

Atom: TypeAlias = Needle | Test
Gate: TypeAlias = tuple[Atom, ...]

BY_VALUE = frozenset(("re", "cidr", "number", "lt", "lte", "gt", "gte", "ne", "bool", "like"))
"""Operations that one value decides and that no missing value satisfies."""

SAMPLE_ROWS = 256
"""Batches smaller than this do not tell what is rare."""

TRIED, ASKED = 2.0, 0.4
"""What confirming a row costs against asking one value, in microseconds."""


@dataclass
class Census:
    """How often atoms held in the rows seen so far."""

    rows: int = 0
    found: Counter[Atom] = field(default_factory=Counter)
    asked: Counter[Atom] = field(default_factory=Counter)

    def cost(self, atom: Atom) -> float:
        """Microseconds an event that the atom is expected to cost."""
        rows = self.rows + 1
        if isinstance(atom, Needle):
            return TRIED * (self.found[atom] + 0.5 / len(atom.text) ** 2) / rows
        guess = 0.0 if self.rows else 1.0
        return TRIED * (self.found[atom] + 0.5) / rows + ASKED * (self.asked[atom] / rows + guess)


def gate_of(node: Node, census: Census) -> tuple[float, Gate] | None:
    """The cheapest gate of a rule and its cost; None when any event might match."""
    if isinstance(node, Test):
        options = [((census.cost(a)), (a,)) for a in atoms_of(node)]
        return min(options, key=lambda option: option[0], default=None)
    if isinstance(node, All):
        gates = [gate for part in node.of if (gate := gate_of(part, census)) is not None]
        return min(gates, key=lambda gate: gate[0], default=None)
    if isinstance(node, Either):
        parts = [gate_of(part, census) for part in node.of]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        atoms = dict.fromkeys(atom for _, gate in known for atom in gate)
        return sum(census.cost(atom) for atom in atoms), tuple(atoms)
    return None


def atoms_of(test: Test) -> list[Atom]:
    """Atoms that hold whenever the test does."""
    needles: list[Atom] = list(needles_of(test))
    if needles:
        return needles
    if test.op in BY_VALUE or test.op in PLACES:
        return [test]
    return []


def all_atoms(node: Node) -> Iterator[Atom]:
    """Every atom that a gate of the tree could be made of."""
    if isinstance(node, Test):
        yield from atoms_of(node)
    elif isinstance(node, All | Either):
        for part in node.of:
            yield from all_atoms(part)


@dataclass
class Search:
    """The needles sought in one column; those of needle `n` serve `owners[bounds[n]:bounds[n+1]]`.

    ContiguousNFA: with thousands of needles the faster-looking DFA is half as
    fast, its table does not fit the processor's cache.
    """

    needles: Sequence[Needle]
    owners: Numbers
    bounds: Numbers
    automaton: ahocorasick_rs.BytesAhoCorasick

    @classmethod
    def of(cls, wanted: Mapping[Needle, Sequence[int]]) -> Search:
        """A search for the needles, each with the numbers of those it serves."""
        needles = list(wanted)
        bounds = np.zeros(len(needles) + 1, np.int64)
        np.cumsum([len(wanted[needle]) for needle in needles], out=bounds[1:])
        automaton = ahocorasick_rs.BytesAhoCorasick(
            [needle.pattern(SEPARATOR) for needle in needles],
            implementation=ahocorasick_rs.Implementation.ContiguousNFA,
        )
        owners = np.fromiter(chain.from_iterable(wanted.values()), np.int64, int(bounds[-1]))
        return cls(needles, owners, bounds, automaton)

    def found(self, distinct: Distinct) -> tuple[Numbers, Numbers]:
        """(needle, value) for each needle that occurs in a value, once."""
        if not len(distinct.values):
            return _NONE, _NONE
        haystack = distinct.haystack()
        matches = self.automaton.find_matches_as_indexes(
            memoryview(haystack.data), overlapping=True
        )
        if not matches:
            return _NONE, _NONE
        flat = np.fromiter(chain.from_iterable(matches), np.int64, 3 * len(matches))
        values = np.searchsorted(haystack.starts, flat[1::3], side="right") - 1
        pairs = np.unique(flat[0::3] * len(distinct.values) + values)
        return np.divmod(pairs, len(distinct.values))

    def pairs(self, distinct: Distinct) -> tuple[Numbers, Numbers]:
        """(owner, row) for each needle in each row, possibly more than once."""
        needles, values = self.found(distinct)
        if not len(needles):
            return _NONE, _NONE
        place, rows = distinct.rows_of(values)
        needles = needles[place]
        counts = self.bounds[needles + 1] - self.bounds[needles]
        return self.owners[spread(self.bounds[needles], counts)], np.repeat(rows, counts)


_NONE: Numbers = np.zeros(0, np.int64)


@dataclass
class Plan:
    """How the rules of a pack are looked for: searches by column, questions, and the rest."""

    searches: dict[str, Search]
    questions: dict[Test, Numbers]
    ungated: Numbers

    @classmethod
    def of(cls, rules: Sequence[Node | None], census: Census) -> Plan:
        """The cheapest gate of every rule, as far as the census can tell; None has no gate."""
        needles: dict[str, dict[Needle, list[int]]] = defaultdict(lambda: defaultdict(list))
        questions: dict[Test, list[int]] = defaultdict(list)
        ungated = []
        for number, node in enumerate(rules):
            chosen = None if node is None else gate_of(node, census)
            if chosen is None:
                ungated.append(number)
            for atom in chosen[1] if chosen else ():
                if isinstance(atom, Needle):
                    needles[atom.path][atom].append(number)
                else:
                    questions[atom].append(number)
        return cls(
            {path: Search.of(wanted) for path, wanted in needles.items()},
            {test: np.array(numbers, np.int64) for test, numbers in questions.items()},
            np.array(ungated, np.int64),
        )

    def pairs(self, columns: Columns, rows: Numbers, wanted: Numbers) -> tuple[Numbers, Numbers]:
        """(rule, row) worth confirming, possibly twice; `wanted` are the rules that matter."""
        mask = np.zeros(int(wanted.max()) + 1 if len(wanted) else 0, bool)
        mask[wanted] = True
        ungated = np.intersect1d(self.ungated, wanted)
        found = [(np.repeat(ungated, len(rows)), np.tile(rows, len(ungated)))]
        for path, search in self.searches.items():
            if _any(mask, search.owners):
                found.append(search.pairs(columns.distinct(path)))
        for test, owners in self.questions.items():
            if _any(mask, owners):
                hit = rows_where(test, columns)
                found.append((np.repeat(owners, len(hit)), np.tile(hit, len(owners))))
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _any(mask: Flags, numbers: Numbers) -> bool:
    return bool(mask[numbers[numbers < len(mask)]].any())


def rows_where(test: Test, columns: Columns) -> Numbers:
    """Rows with a value for which the test holds, or on which it throws."""
    distinct = columns.distinct(test.field)
    return distinct.rows_of(_values_where(test, distinct))[1]


def _values_where(test: Test, distinct: Distinct) -> Numbers:
    """RE2 inside Arrow reads the column as it lies; what that cannot say is asked one by one."""
    if test.op == "re" and pa.types.is_string(distinct.values.type):
        try:
            matched = pc.match_substring_regex(distinct.values, pattern=str(test.value))
            return np.flatnonzero(matched.to_numpy(zero_copy_only=False)).astype(np.int64)
        except pa.ArrowInvalid:
            pass
    holds = leaf(test)
    values = (n for n, value in enumerate(distinct.to_list()) if _or_throws(holds, value))
    return np.fromiter(values, np.int64)


def _or_throws(holds: Leaf, value: Any) -> bool:
    """A value on which a test throws is left to the rule, which is then set aside by itself."""
    try:
        return holds(value)
    except Exception:
        return True


def count(rules: Iterable[Node | None], columns: Columns, rows: int, census: Census) -> None:
    """Add to the census how often each atom of the rules holds in these rows."""
    atoms = {atom for node in rules if node is not None for atom in all_atoms(node)}
    needles: dict[str, dict[Needle, list[int]]] = defaultdict(dict)
    for atom in atoms:
        if isinstance(atom, Needle):
            needles[atom.path][atom] = [0]
            continue
        distinct = columns.distinct(atom.field)
        census.asked[atom] += len(distinct.values)
        census.found[atom] += len(rows_where(atom, columns))
    for path, wanted in needles.items():
        search, distinct = Search.of(wanted), columns.distinct(path)
        numbers, values = search.found(distinct)
        weights = distinct.bounds[values + 1] - distinct.bounds[values]
        totals = np.bincount(numbers, weights=weights, minlength=len(search.needles))
        for number in np.flatnonzero(totals).tolist():
            census.found[search.needles[number]] += int(totals[number])
    census.rows += rows
