"""What a reader of Windows events asks of a value, when there may be many values in its place.

Needs no Arrow, so that the command line starts at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Many:
    """A field's values in many events. Whatever the events answer differently ends the question:
    then it is put again to those of each answer.
    """

    __slots__ = ()

    @property
    def kind(self) -> type:
        """The type of the values."""
        raise NotImplementedError

    def mapped(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """`function` of the values, of which some are many and the others the same for all."""
        raise NotImplementedError

    def holds(self, test: Callable[[Any], object]) -> bool:
        """Whether the test holds, for all of them."""
        raise NotImplementedError


def each(function: Callable[..., Any], *values: Any) -> Any:
    """`function` of the values; where one of them is many, of each event's. It must be pure."""
    for value in values:
        if isinstance(value, Many):
            return value.mapped(function, values)
    return function(*values)


def holds(test: Callable[[Any], object], value: Any) -> bool:
    """Whether the test holds for a value, or for each of many."""
    return value.holds(test) if isinstance(value, Many) else bool(test(value))


def is_of(value: Any, kind: type) -> bool:
    """Whether a value, or each of many, is of a type."""
    return type(value) is kind or (isinstance(value, Many) and value.kind is kind)
