"""A rule's tree as a function of columns and a row, which asks the same of a value only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from alerts.rulepack.derived_fields import derived
from alerts.rulepack.joined_predicates import all_hold, any_holds
from alerts.rulepack.predicate import (
    All,
    Either,
    Leaf,
    Node,
    Not,
    leaf,
    listed_in,
    present,
    refers,
    tests_of,
)
from alerts.rulepack.text_predicate import text_test

RowTest: TypeAlias = "Callable[[Slots, int], bool]"
_Reader: TypeAlias = "Callable[[Slots, int], Any]"


class Slots(Protocol):
    """Columns by number, each a list with one value a row."""

    def __getitem__(self, slot: int, /) -> Sequence[Any]: ...


class Remembered:
    """Verdicts on single values, for all rules that ask the same of them.

    A program's path or a user comes again and again, in a batch and in the next; so what is asked
    of one value alone is asked once. Bounded: when it is full, of so many verdicts or so many
    characters in their values, it begins anew.
    """

    def __init__(self, most: int = 400_000, most_chars: int = 40_000_000) -> None:
        self.most = most
        self.most_chars = most_chars
        self.count = self.chars = 0
        self._verdicts: dict[Node, dict[Any, bool]] = {}

    def of(self, node: Node) -> dict[Any, bool]:
        """The verdicts of a tree, by value."""
        return self._verdicts.setdefault(node, {})

    def add(self, verdicts: dict[Any, bool], value: Any, verdict: bool) -> bool:
        """Keep a verdict, and give it back."""
        if self.count >= self.most or self.chars >= self.most_chars:
            # Emptied and not replaced: the rules hold on to the same dictionaries.
            for every in self._verdicts.values():
                every.clear()
            self.count = self.chars = 0
        verdicts[value] = verdict
        self.count += 1
        self.chars += len(value or "")
        return verdict


_MOST_CHARS = 2_000
"""Longer values, such as scripts, hardly come twice and are not remembered."""


def row_test(node: Node, slots: Mapping[str, int], remembered: Remembered | None = None) -> RowTest:
    """The tree as a function of (columns, row number); `slots` says which column has a path.

    `remembered` is shared by rules: what it knows of a value is not asked again.
    """
    path = _only_path(node) if remembered is not None else None
    if remembered is not None and path is not None:
        return _remembering(node, slots[path], path, remembered)
    if isinstance(node, All | Either):
        # Closures, built once for each rule: walking the tree for each row would cost more than the
        # tests.
        of = node.of if remembered is None else _joined(node)
        parts = [row_test(part, slots, remembered) for part in of]
        return all_hold(parts) if isinstance(node, All) else any_holds(parts)
    if isinstance(node, Not):
        inner = row_test(node.of, slots, remembered)
        return lambda columns, i: not inner(columns, i)
    read = _reader(node.field, slots)
    if node.op == "listed":
        meets, when = listed_in(node), slots["time"]
        return lambda columns, i: meets(read(columns, i), columns[when][i])
    if node.op == "exists":
        wanted = bool(node.value)
        return lambda columns, i: bool(present(read(columns, i))) is wanted
    if node.op.startswith("ref"):
        op, cased, other = node.op, node.cased, _reader(str(node.value), slots)
        return lambda columns, i: refers(op, read(columns, i), other(columns, i), cased)
    return _value_test(leaf(node), read)


def _only_path(node: Node) -> str | None:
    """The one plain column that decides a tree; None where there are several, or a made field."""
    fields = {test.field for test in tests_of(node)}
    if len(fields) != 1 or any(t.op == "listed" or t.op.startswith("ref") for t in tests_of(node)):
        return None
    path = fields.pop()
    return path if derived(path) is None else None


def _joined(node: All | Either) -> list[Node]:
    """The parts, of which those that ask the same column are one."""
    by_path: dict[str | None, list[Node]] = {}
    for part in node.of:
        by_path.setdefault(_only_path(part), []).append(part)
    alone = by_path.pop(None, [])
    of_one = [
        parts[0] if len(parts) == 1 else type(node)(tuple(parts)) for parts in by_path.values()
    ]
    return [*of_one, *alone]


def _remembering(node: Node, slot: int, path: str, remembered: Remembered) -> RowTest:
    plain, of_text = row_test(node, {path: 0}), text_test(node)
    verdicts = remembered.of(node)

    def run(columns: Slots, i: int) -> bool:
        value = columns[slot][i]
        # Lists have no hash; numbers equal truth values, which rules tell apart.
        if value.__class__ is not str and value is not None:
            return plain([[value]], 0)
        verdict = verdicts.get(value)
        if verdict is not None:
            return verdict
        if value is None:
            return remembered.add(verdicts, value, plain([[value]], 0))
        verdict = of_text(value)
        if len(value) > _MOST_CHARS:
            return verdict
        return remembered.add(verdicts, value, verdict)

    return run


class ValueTest:
    """A tree that one plain column decides, asked of many texts at once."""

    def __init__(self, node: Node, path: str, remembered: Remembered) -> None:
        self.path = path
        self._ask = _remembering(node, 0, path, remembered)
        self._verdicts = remembered.of(node)

    @classmethod
    def of(cls, node: Node, remembered: Remembered) -> ValueTest | None:
        """None where the tree asks several columns, or one that is made of others."""
        path = _only_path(node)
        return None if path is None else cls(node, path, remembered)

    def may_hold(self, texts: Sequence[str | None]) -> list[bool]:
        """For each text or missing value whether the tree holds, or throws."""
        verdicts = list(map(self._verdicts.get, texts))
        if None in verdicts:
            return [
                self._or_throws(text) if verdict is None else verdict
                for text, verdict in zip(texts, verdicts, strict=True)
            ]
        return verdicts  # type: ignore[return-value]  # no None is among them

    def _or_throws(self, text: str | None) -> bool:
        try:
            return self._ask([[text]], 0)
        # Left to the rule, which is then set aside by itself.
        except Exception:
            return True


def _reader(field: str, slots: Mapping[str, int]) -> _Reader:
    """The value of a field, column or derived, in one row."""
    made = derived(field)
    if made is None:
        slot = slots[field]
        return lambda columns, i: columns[slot][i]
    make, places = made.make, [slots[path] for path in made.inputs]
    return lambda columns, i: make([columns[place][i] for place in places])


def _value_test(test: Leaf, read: _Reader) -> RowTest:
    def run(columns: Slots, i: int) -> bool:
        value = read(columns, i)
        if value is None:
            return False
        if isinstance(value, list):
            return any(test(v) for v in value if v is not None)
        return test(value)

    return run
