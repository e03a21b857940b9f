"""Values of a product's fields for which a Sigma condition holds."""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network
from re import _constants as kinds  # type: ignore[attr-defined]  # typeshed leaves it out
from re import _parser as regex_parser  # type: ignore[attr-defined]  # as above
from typing import Any

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.types import (
    CompareOperators,
    SigmaBool,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
    SigmaType,
)

KEYWORDS = "keywords"
"""Name under which texts stand that a rule asks without a field."""

Demand = tuple[str, SigmaType]


@dataclass
class Example:
    """What fields must hold; `beyond` names what no value can be made for."""

    values: dict[str, str] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)


def example_of(condition: Any, turn: int = 0) -> Example:
    """Values for which a condition holds, as pySigma parsed it.

    Of alternatives the one that comes round at `turn` (0: the first of each).
    """
    result = Example()
    keywords: list[str] = []
    by_field: dict[str, list[SigmaType]] = {}
    for name, value in _demands(condition, turn, True):
        by_field.setdefault(name, []).append(value)
    references: dict[str, str] = {}
    for name, values in by_field.items():
        for value in values:
            if isinstance(value, SigmaFieldReference):
                references[name] = value.field
        if name == KEYWORDS:
            # Each may stand anywhere, so they stand side by side.
            keywords = [text for value in values if (text := _of(value, turn)) is not None]
        text = " ".join(keywords) if name == KEYWORDS else _text(values, turn)
        if text is not None:
            result.values[name] = text
        elif name not in references:
            result.beyond.append(name)
    for name, other in references.items():
        same = result.values.get(other) or result.values.get(name) or "same"
        result.values[name] = result.values[other] = same
    return result


def _demands(item: Any, turn: int, wanted: bool) -> Iterator[Demand]:
    """Field and value pairs that make the condition true, or false where not `wanted`."""
    if isinstance(item, ConditionNOT):
        yield from _demands(item.args[0], turn, not wanted)
    elif isinstance(item, ConditionAND | ConditionOR):
        # Of what is not to hold it is the other way round (De Morgan).
        every = isinstance(item, ConditionAND) is wanted
        chosen = item.args if every else [item.args[turn % len(item.args)]]
        for part in chosen:
            yield from _demands(part, turn, wanted)
    elif isinstance(item, ConditionFieldEqualsValueExpression):
        # Null is met by a field that is left out, so it asks for no value.
        null = isinstance(item.value, SigmaNull)
        if wanted and not null:
            yield item.field, item.value
        elif not wanted and null:
            yield item.field, SigmaString("x")
    elif isinstance(item, ConditionValueExpression) and wanted:
        yield KEYWORDS, item.value


def _text(values: list[SigmaType], turn: int) -> str | None:
    """One text that meets all values; None where that cannot be made."""
    strings = [value for value in values if isinstance(value, SigmaString)]
    if len(strings) == len(values):
        return _joined(strings)
    if all(isinstance(value, SigmaCompareExpression) for value in values):
        # Bounds of a range: the number beside one of them that all allow.
        bounds = [v.number.number for v in values if isinstance(v, SigmaCompareExpression)]
        near = (bound + step for bound in bounds for step in (0, 1, -1))
        return next((str(n) for n in near if all(_allows(v, n) for v in values)), None)
    texts = [text for value in values if (text := _of(value, turn)) is not None]
    return "".join(texts) if texts else None


def _joined(values: list[SigmaString]) -> str:
    start, middle, end = "", "", ""
    for value in values:
        parts = [part if isinstance(part, str) else None for part in value.s]
        if None not in parts:
            return "".join(part or "" for part in parts)
        text = "".join("x" if part is None else part for part in parts[1:-1])
        if parts[0] is not None:
            start = parts[0] + text
            end = parts[-1] or end
        elif parts[-1] is not None:
            end = text + parts[-1]
        else:
            middle += text
    # Parsers take the blanks off both ends of a value, as nobody writes them there.
    return (start or "x") + middle + (end or "x")


def _of(value: SigmaType, turn: int) -> str | None:
    if isinstance(value, SigmaExpansion):
        return _text([value.values[turn % len(value.values)]], turn)
    if isinstance(value, SigmaString):
        return _joined([value])
    if isinstance(value, SigmaNumber):
        return str(value.number)
    if isinstance(value, SigmaBool):
        return "true" if value.boolean else "false"
    if isinstance(value, SigmaExists):
        return "x" if value.exists else ""
    if isinstance(value, SigmaCIDRExpression):
        # Of a single address a list comes, of more than one an iterator.
        return str(next(iter(ip_network(value.cidr).hosts())))
    if isinstance(value, SigmaCompareExpression):
        return str(_beside(value))
    if isinstance(value, SigmaTimestampPart):
        return None
    if isinstance(value, SigmaRegularExpression):
        try:
            return matching(str(value.regexp))
        except (re.error, NotImplementedError):
            return None
    return None


_COMPARES = {
    CompareOperators.LT: operator.lt,
    CompareOperators.LTE: operator.le,
    CompareOperators.GT: operator.gt,
    CompareOperators.GTE: operator.ge,
    CompareOperators.NEQ: operator.ne,
}


def _allows(value: SigmaType, number: float) -> bool:
    if not isinstance(value, SigmaCompareExpression):
        return False
    return bool(_COMPARES[value.op](number, value.number.number))


def _beside(value: SigmaCompareExpression) -> float | int:
    number = value.number.number
    if value.op in (CompareOperators.LT, CompareOperators.NEQ):
        return number - 1
    return number + 1 if value.op is CompareOperators.GT else number


# -- a text that a regular expression matches --------------------------------------------------

_CLASSES = {
    kinds.CATEGORY_DIGIT: "1",
    kinds.CATEGORY_NOT_DIGIT: "a",
    kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_NOT_SPACE: "a",
    kinds.CATEGORY_WORD: "a",
    kinds.CATEGORY_NOT_WORD: "-",
}


def matching(pattern: str) -> str:
    """A text that contains a match of the expression.

    Raises `re.error` for what Python cannot read, `NotImplementedError` for look-around.
    """
    # RE2's flags may stand behind the start, which Python does not take; they change no match here.
    plain = re.sub(r"\(\?[imsU]+\)", "", pattern)
    return "".join(_run(regex_parser.parse(plain)))


def _run(parsed: Any) -> Iterator[str]:
    for kind, argument in parsed:
        yield from _token(kind, argument)


def _token(kind: Any, argument: Any) -> Iterator[str]:
    if kind is kinds.LITERAL:
        yield chr(argument)
    elif kind is kinds.NOT_LITERAL:
        yield "a" if argument != ord("a") else "b"
    elif kind is kinds.ANY:
        yield "a"
    elif kind is kinds.IN:
        yield _one_of(argument)
    elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, _, inner = argument
        for _ in range(least):
            yield from _run(inner)
    elif kind is kinds.SUBPATTERN:
        yield from _run(argument[-1])
    elif kind is kinds.BRANCH:
        yield from _run(argument[1][0])
    elif kind is not kinds.AT:
        raise NotImplementedError(str(kind))


def _one_of(options: Any) -> str:
    """A character of a class, tried in the order in which they are likely to be meant."""
    tests = [_member(kind, argument) for kind, argument in options if kind is not kinds.NEGATE]
    negated = any(kind is kinds.NEGATE for kind, _ in options)
    for character in string.ascii_lowercase + string.digits + string.printable:
        if any(test.fullmatch(character) for test in tests) is not negated:
            return character
    raise NotImplementedError("a class of no printable character")


def _member(kind: Any, argument: Any) -> re.Pattern[str]:
    if kind is kinds.LITERAL:
        return re.compile(re.escape(chr(argument)), re.DOTALL)
    if kind is kinds.RANGE:
        low, high = (re.escape(chr(bound)) for bound in argument)
        return re.compile(f"[{low}-{high}]")
    shown = {"1": r"\d", "a": r"\w", " ": r"\s", "-": r"\W"}
    if argument in (kinds.CATEGORY_NOT_DIGIT, kinds.CATEGORY_NOT_SPACE):
        return re.compile(r"\D" if argument is kinds.CATEGORY_NOT_DIGIT else r"\S")
    return re.compile(shown[_CLASSES[argument]])
