"""A field's values in many events, which mappings use like one value.

What is asked of a value is asked once for each that occurs. Where the events answer differently,
`Split` says which answer is whose, and the events of each are read for themselves. What would make
one text of all of them, or take them for something else than a value, raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter, methodcaller
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ingest.sources.windows.columns.many import Many

Codes = npt.NDArray[np.int64]
MOST_ANSWERS = 8
"""Of more answers than these to one question, the events are left to the row reader."""
LONG = 300
"""Characters of a text that is not compared with all others: rendered messages."""


class Split(Exception):
    """The events differ in what decides how they are read: `labels` says which go together."""

    def __init__(self, labels: Codes) -> None:
        super().__init__("the events differ")
        self.labels = labels


class Unlike(Exception):
    """The events differ in more than is worth reading them in parts."""


class Column(Many):
    """Values that occur, and which of them is each event's. Texts and numbers are not all equal."""

    __slots__ = ("codes", "values")

    def __init__(self, values: Sequence[Any], codes: Codes) -> None:
        self.values = values
        self.codes = codes

    @property
    def kind(self) -> type:
        """The type of the values."""
        return type(self.values[0])

    def mapped(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """`function` of the values of each event; where all get the same, just that."""
        many = [place for place, value in enumerate(values) if isinstance(value, Column)]
        if len(values) == 1:
            return shaped([function(value) for value in self.values], self.codes)
        if len(many) == 1:
            before, after = values[: many[0]], values[many[0] + 1 :]
            return shaped([function(*before, value, *after) for value in self.values], self.codes)
        combined, codes = _combined([values[place] for place in many])
        arguments = list(values)
        results = []
        for combination in combined:
            for place, value in zip(many, combination, strict=True):
                arguments[place] = value
            results.append(function(*arguments))
        return shaped(results, codes)

    def holds(self, test: Callable[[Any], object]) -> bool:
        """Whether the test holds for all. Raises `Split` where it does for some."""
        results = [bool(test(value)) for value in self.values]
        first = results[0]
        if all(results) if first else not any(results):
            return first
        raise Split(np.array(results, np.int64)[self.codes])

    def at(self, places: Codes) -> Any:
        """The same for some of the events."""
        codes = self.codes[places]
        occurs = np.zeros(len(self.values), np.bool_)
        occurs[codes] = True
        kept = np.flatnonzero(occurs).tolist()
        values = self.values
        return _plain([values[code] for code in kept], (np.cumsum(occurs) - 1)[codes])

    # What a mapping does with a text or a number.

    def __bool__(self) -> bool:
        return self.holds(bool)

    def __contains__(self, item: object) -> bool:
        return self.holds(lambda value: item in value)

    def __eq__(self, other: object) -> bool:
        return bool(self.mapped(operator.eq, (self, other)))

    def __ne__(self, other: object) -> bool:
        return bool(self.mapped(operator.ne, (self, other)))

    def __lt__(self, other: object) -> bool:
        return bool(self.mapped(operator.lt, (self, other)))

    def __le__(self, other: object) -> bool:
        return bool(self.mapped(operator.le, (self, other)))

    def __gt__(self, other: object) -> bool:
        return bool(self.mapped(operator.gt, (self, other)))

    def __ge__(self, other: object) -> bool:
        return bool(self.mapped(operator.ge, (self, other)))

    def __and__(self, other: object) -> Any:
        return self.mapped(operator.and_, (self, other))

    def __hash__(self) -> int:
        # To be looked up in a table: value by value, if they are few.
        raise Split(self._labels())

    def _labels(self) -> Codes:
        label_of: dict[Any, int] = {}
        labels = [label_of.setdefault(value, len(label_of)) for value in self.values]
        if len(label_of) > MOST_ANSWERS:
            raise Unlike
        return np.array(labels, np.int64)[self.codes]

    def __getitem__(self, key: Any) -> Any:
        return self.mapped(itemgetter(key), (self,))

    def __iter__(self) -> Iterator[Any]:
        if not issubclass(self.kind, tuple | list):
            raise TypeError("many texts are no sequence")
        # What all have equally many of comes place by place.
        lengths = {len(value) for value in self.values}
        if len(lengths) > 1:
            lengths_of = [len(value) for value in self.values]
            raise Split(np.array(lengths_of, np.int64)[self.codes])
        return iter([self[place] for place in range(lengths.pop())])

    def __str__(self) -> NoReturn:
        raise TypeError("many values are no text")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("many values are no text")

    def __repr__(self) -> str:
        return f"<{len(self.values)} values of {len(self.codes)} events>"

    def lower(self) -> Any:
        """In small letters, as a text."""
        return self.mapped(str.lower, (self,))

    def upper(self) -> Any:
        """In capitals, as a text."""
        return self.mapped(str.upper, (self,))

    def strip(self, *characters: str) -> Any:
        """As a text."""
        return self.mapped(methodcaller("strip", *characters), (self,))

    def lstrip(self, *characters: str) -> Any:
        """As a text."""
        return self.mapped(methodcaller("lstrip", *characters), (self,))

    def rstrip(self, *characters: str) -> Any:
        """As a text."""
        return self.mapped(methodcaller("rstrip", *characters), (self,))

    def removeprefix(self, prefix: str) -> Any:
        """As a text."""
        return self.mapped(methodcaller("removeprefix", prefix), (self,))

    def removesuffix(self, suffix: str) -> Any:
        """As a text."""
        return self.mapped(methodcaller("removesuffix", suffix), (self,))

    def startswith(self, prefix: str) -> bool:
        """Whether all do, as a text."""
        return self.holds(methodcaller("startswith", prefix))

    def endswith(self, suffix: str) -> bool:
        """Whether all do, as a text."""
        return self.holds(methodcaller("endswith", suffix))

    def partition(self, by: str) -> Any:
        """As a text: what stands before, the separator, what stands behind."""
        return self.mapped(methodcaller("partition", by), (self,))

    def rpartition(self, by: str) -> Any:
        """As a text: what stands before, the separator, what stands behind."""
        return self.mapped(methodcaller("rpartition", by), (self,))


def shaped(results: Sequence[Any], codes: Codes) -> Any:
    """Answers as a column, or as the one that all got. Raises `Split` where some got None."""
    empty = [result is None for result in results]
    if any(empty):
        if all(empty):
            return None
        raise Split(np.array(empty, np.int64)[codes])
    return _plain(results, codes)


def _plain(values: Sequence[Any], codes: Codes) -> Any:
    first = values[0]
    # `True` equals 1, hence the type; inside of a list no type would tell.
    nested = type(first) in (list, dict)
    for value in values:
        if value is not first and (nested or type(value) is not type(first) or value != first):
            return Column(values, codes)
    return first


def column_of(values: Sequence[Any]) -> Any:
    """The values of some events, all of one type that can be compared, as a column or just one."""
    first, rows = values[0], len(values)
    if values.count(first) == rows:
        return first
    if type(first) is str and len(first) > LONG:
        return Column(values, np.arange(rows))
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(numbers) == rows:
        return Column(values, np.arange(rows))
    return Column(list(numbers), np.fromiter(map(numbers.__getitem__, values), np.int64, rows))


def _combined(columns: Sequence[Column]) -> tuple[list[tuple[Any, ...]], Codes]:
    """The combinations of values that occur, and which of them is each event's."""
    codes = columns[0].codes
    # Of one field, such as the hashes of an image.
    if all(column.codes is codes for column in columns):
        return list(zip(*(column.values for column in columns), strict=True)), codes
    for other in columns[1:]:
        codes = codes * len(other.values) + other.codes
        # Numbered anew each time, so that they stay small.
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    parts = [[column.values[code] for code in column.codes[first].tolist()] for column in columns]
    return list(zip(*parts, strict=True)), codes
