"""Tests of the same two arguments as one: all of them, or any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_A = TypeVar("_A")
_B = TypeVar("_B")

# Loops and no `all()` or `any()`: a generator for each row would cost as much as a test.


def all_hold(parts: Sequence[Callable[[_A, _B], bool]]) -> Callable[[_A, _B], bool]:
    """Whether each of the parts holds, asked in their order; `parts`: at least one."""

    def run(first: _A, second: _B) -> bool:
        for part in parts:  # noqa: SIM110
            if not part(first, second):
                return False
        return True

    return parts[0] if len(parts) == 1 else run


def any_holds(parts: Sequence[Callable[[_A, _B], bool]]) -> Callable[[_A, _B], bool]:
    """Whether one of the parts holds, asked in their order; `parts`: at least one."""

    def run(first: _A, second: _B) -> bool:
        for part in parts:  # noqa: SIM110
            if part(first, second):
                return True
        return False

    return parts[0] if len(parts) == 1 else run
