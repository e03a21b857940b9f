"""A tree that one text decides, as a function of that text: it is folded once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from alerts.rulepack.joined_predicates import all_hold, any_holds
from alerts.rulepack.predicate import All, Either, Node, Not, Test, fold, leaf

TextTest: TypeAlias = Callable[[str], bool]

_Asked: TypeAlias = Callable[[str, str], bool]
"""A function of a text as it is and as it is folded."""


def text_test(node: Node) -> TextTest:
    """The tree as a function of the one text that all its tests read.

    No test of it may be `listed` or `ref...`. Raises ValueError when a test is broken.
    """
    asked = _asked(node)
    return lambda text: asked(text, fold(text))


def _asked(node: Node) -> _Asked:
    if isinstance(node, Not):
        inner = _asked(node.of)
        return lambda text, folded: not inner(text, folded)
    if isinstance(node, All):
        return all_hold([_asked(part) for part in node.of])
    if isinstance(node, Either):
        return any_holds(list(_alternatives(node.of)))
    if node.op == "exists":
        wanted = bool(node.value)
        return lambda text, folded: wanted
    return _folded(node) or _plain(node)


def _plain(test: Test) -> _Asked:
    holds = leaf(test)
    return lambda text, folded: holds(text)


def _folded(test: Test) -> _Asked | None:
    """A test of the folded text; None for one that asks something else."""
    if test.cased:
        return None
    return _one_of(test.op, [fold(str(test.value))])


def _one_of(op: str, wanted: Sequence[str]) -> _Asked | None:
    """Whether the folded text is, has, begins or ends with one of these."""
    # Each a single call for all of the texts, however many a rule names.
    if op == "eq":
        equal = frozenset(wanted)
        return lambda text, folded: folded in equal
    if op == "startswith":
        begins = tuple(wanted)
        return lambda text, folded: folded.startswith(begins)
    if op == "endswith":
        ends = tuple(wanted)
        return lambda text, folded: folded.endswith(ends)
    return _contains(wanted) if op == "contains" else None


def _contains(wanted: Sequence[str]) -> _Asked:
    def run(text: str, folded: str) -> bool:
        for part in wanted:  # noqa: SIM110
            if part in folded:
                return True
        return False

    only = wanted[0]
    return (lambda text, folded: only in folded) if len(wanted) == 1 else run


def _alternatives(parts: Iterable[Node]) -> Iterable[_Asked]:
    """The parts of an `or`; tests alike but for their text are one."""
    alike: dict[str, list[str]] = {}
    others: list[_Asked] = []
    for part in parts:
        if isinstance(part, Test) and _folded(part):
            alike.setdefault(part.op, []).append(fold(str(part.value)))
        else:
            others.append(_asked(part))
    for op, wanted in alike.items():
        if one_of := _one_of(op, wanted):
            yield one_of
    yield from others
