"""What a rule asks of an event: a tree of tests, as data and as a function.

Two-valued logic: a missing field matches nothing, so `Not` of it is true. A
field that is a list matches when any of its elements does. Text is compared
without regard to case unless a test says `cased`. A field is a column of
silver.event, or derived from some (`alerts/rulepack/derived_fields.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import re2

from alerts.rulepack.derived_fields import derived, inputs
from alerts.rulepack.derived_fields import fold as fold
from alerts.rulepack.derived_fields import text_of as text_of

if TYPE_CHECKING:
    from alerts.rulepack.indicator_match import Listed

_Value: TypeAlias = str | int | float | bool | None
Leaf: TypeAlias = Callable[[Any], bool]
Literals: TypeAlias = tuple[tuple[str, str], ...]

ANY_RUN, ANY_ONE = "*", "?"
"""Jokers of `like`: any run of characters, any one character."""

_PARTS = ("minute", "hour", "day", "week", "month", "year")

OPS = (
    "eq",
    "contains",
    "startswith",
    "endswith",
    "like",
    "re",
    "cidr",
    "number",
    "lt",
    "lte",
    "gt",
    "gte",
    "ne",
    "bool",
    *_PARTS,
    *(f"{part}_{compare}" for part in _PARTS for compare in ("lt", "lte", "gt", "gte", "ne")),
    "exists",
    "ref",
    "ref_contains",
    "ref_startswith",
    "ref_endswith",
    "listed",
)


class Test(msgspec.Struct, frozen=True, tag="test", omit_defaults=True):
    """One question about one field.

    `field` is a path such as `src_endpoint.ip`; `op` one of `OPS`. `value` is an
    RE2 expression for `re`, the path of another field for `ref...`, true or false
    for `exists`. `like` has `parts` instead: (kind, text) pairs, the kind `text`,
    `ANY_RUN` or `ANY_ONE`. `listed` asks the observables: `value` is the hash of a list of
    indicators, `parts` (`list`, its name) and the kinds that count, each as (`kind`, text).
    """

    __test__ = False

    field: str
    op: str
    value: _Value = None
    cased: bool = False
    parts: tuple[tuple[str, str], ...] = ()


class All(msgspec.Struct, frozen=True, tag="all"):
    """True when every part is."""

    of: tuple[Node, ...]


class Either(msgspec.Struct, frozen=True, tag="either"):
    """True when some part is."""

    of: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    """True when its part is not."""

    of: Node


Node: TypeAlias = Test | All | Either | Not


def number_of(value: Any) -> float | int | None:
    """A field's value as a number, or None where it is none."""
    # In Python a bool is an int: without this, true would equal 1 in every number test.
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        try:
            # Windows writes masks and ids as 0x1010; unquoted in a rule that is the number 4112.
            if value[:2] in ("0x", "0X"):
                return int(value, 16)
            return int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            return None
    return None


def regex(pattern: str) -> Any:
    """`pattern` compiled by RE2; raises ValueError with RE2's reason."""
    options = re2.Options()
    # RE2 writes its errors to stderr by itself; here they become the reason of a refused rule.
    options.log_errors = False
    # A bound on what one expression may take: a pack has thousands, in every worker.
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        # The binding raises with bytes or with text, whichever RE2 gave it.
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


@lru_cache(maxsize=100_000)
def leaf(test: Test) -> Leaf:
    """The test as a function of one present value (not None, not a list).

    Raises ValueError when the test itself is broken. Tests with `exists` or
    `ref...` and `listed` concern more than a value and have none.
    """
    op, value = test.op, test.value
    if op in _TEXT:
        return _text_leaf(op, str(value), test.cased)
    if op == "like":
        return _like_leaf(test)
    if op == "re":
        # Anywhere in the value, as Sigma's `re` means it.
        search = regex(str(value)).search
        return lambda v: search(text_of(v)) is not None
    if op == "cidr":
        return _cidr_leaf(str(value))
    if op == "bool":
        # Logs write booleans in any case and as texts as well as real ones.
        wanted = "true" if value else "false"
        return lambda v: fold(text_of(v)) == wanted
    if op in _COMPARE:
        return _number_leaf(op, value)
    part, _, compare = op.partition("_")
    if part in _TIME and (not compare or compare in _COMPARE):
        return _time_leaf(part, compare or "number", value)
    raise ValueError(f"test on {test.field}: unknown operation '{op}'; known are {', '.join(OPS)}")


def listed_in(test: Test) -> Listed:
    """The list that a test `listed` asks; raises ValueError where it is not there."""
    # Late: most rules ask no list, and who only looks at rules needs neither Arrow nor numpy.
    from alerts.rulepack.indicator_match import indicator_columns

    return indicator_columns(
        str(test.value), tuple(text for part, text in test.parts if part == "kind")
    )


_TEXT: dict[str, Callable[[str, str], bool]] = {
    "eq": lambda text, wanted: text == wanted,
    "contains": lambda text, wanted: wanted in text,
    "startswith": lambda text, wanted: text.startswith(wanted),
    "endswith": lambda text, wanted: text.endswith(wanted),
}

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "number": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
}


_TIME: dict[str, Callable[[datetime], int]] = {
    "minute": lambda t: t.minute,
    "hour": lambda t: t.hour,
    "day": lambda t: t.day,
    "week": lambda t: t.isocalendar().week,
    "month": lambda t: t.month,
    "year": lambda t: t.year,
}
"""Parts of a time in UTC; `day` is that of the month, `week` ISO 8601's of the year."""


def instant_of(value: Any) -> datetime | None:
    """A field's value as an instant, or None where it is none. A time without zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    # An event may say any instant, and its offset carry that beyond the year 9999.
    except OverflowError:
        return None


def _time_leaf(op: str, compare: str, value: _Value) -> Leaf:
    part, compared, wanted = _TIME[op], _COMPARE[compare], number_of(value)
    if wanted is None:
        raise ValueError(f"'{value}' is not a number")

    def test(v: Any) -> bool:
        time = instant_of(v)
        return time is not None and compared(part(time), wanted)

    return test


def _text_leaf(op: str, wanted: str, cased: bool) -> Leaf:
    compare = _TEXT[op]
    if cased:
        return lambda v: compare(text_of(v), wanted)
    folded = fold(wanted)
    return lambda v: compare(fold(text_of(v)), folded)


def _number_leaf(op: str, value: _Value) -> Leaf:
    compare, wanted = _COMPARE[op], number_of(value)
    if wanted is None:
        raise ValueError(f"'{value}' is not a number")

    def test(v: Any) -> bool:
        number = number_of(v)
        return number is not None and compare(number, wanted)

    return test


def _like_leaf(test: Test) -> Leaf:
    jokers = {ANY_RUN: ".*", ANY_ONE: "."}
    shape: Callable[[str], str] = (lambda t: t) if test.cased else fold
    # `like` through RE2, in linear time: a wildcard pattern must not backtrack on hostile input.
    whole = regex(
        "(?s)" + "".join(jokers.get(kind) or re2.escape(shape(text)) for kind, text in test.parts)
    ).fullmatch
    return lambda v: whole(shape(text_of(v))) is not None


def _cidr_leaf(value: str) -> Leaf:
    # Parsed once here and not for each event.
    network = ip_network(value)

    def test(v: Any) -> bool:
        try:
            address = ip_address(text_of(v))
        except ValueError:
            return False
        return address.version == network.version and address in network

    return test


def present(value: Any) -> list[Any]:
    """The scalars of a field: none when it is missing, several when it is a list."""
    if value is None:
        return []
    if isinstance(value, list):
        return [v for v in value if v is not None]
    return [value]


def refers(op: str, value: Any, other: Any, cased: bool) -> bool:
    compare = _TEXT["eq" if op == "ref" else op.removeprefix("ref_")]
    shape: Callable[[str], str] = (lambda t: t) if cased else fold
    return any(
        compare(shape(text_of(a)), shape(text_of(b)))
        for a in present(value)
        for b in present(other)
    )


def at(event: Mapping[str, Any], path: str) -> Any:
    """The value at `path` of a nested event; a list of them where the path crosses a list."""
    made = derived(path)
    if made is not None:
        return made.make([at(event, column) for column in made.inputs])
    value: Any = event
    for name in path.split("."):
        if isinstance(value, list):
            # OCSF nests arrays of objects; a path through one means any of its elements.
            value = [v.get(name) for v in value if isinstance(v, Mapping)]
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            return None
    return value


def holds(node: Node, event: Mapping[str, Any]) -> bool:
    """Whether the event, a nested dictionary in the shape of silver.event, satisfies the tree."""
    if isinstance(node, All):
        return all(holds(part, event) for part in node.of)
    if isinstance(node, Either):
        return any(holds(part, event) for part in node.of)
    if isinstance(node, Not):
        return not holds(node.of, event)
    value = at(event, node.field)
    if node.op == "listed":
        return listed_in(node)(value, at(event, "time"))
    if node.op == "exists":
        return bool(present(value)) is bool(node.value)
    if node.op.startswith("ref"):
        return refers(node.op, value, at(event, str(node.value)), node.cased)
    return any(leaf(node)(v) for v in present(value))


def tests_of(node: Node) -> Iterator[Test]:
    """Every test in the tree."""
    if isinstance(node, Test):
        yield node
    elif isinstance(node, Not):
        yield from tests_of(node.of)
    else:
        for part in node.of:
            yield from tests_of(part)


def paths_of(node: Node) -> set[str]:
    """Every column the tree reads; of a derived field those it is made of."""
    paths: set[str] = set()
    for test in tests_of(node):
        paths.update(inputs(test.field))
        if test.op.startswith("ref"):
            paths.update(inputs(str(test.value)))
        if test.op == "listed":
            # An entry of a list counts for a span, so the test reads the event's time as well.
            paths.add("time")
    return paths


def literals_of(node: Node) -> Literals | None:
    """(column, folded text) pairs of which at least one occurs in any event that matches.

    None: nothing of the kind can be said, the rule has to look at every event
    of its log source.
    """
    # A rule that says what must be absent requires no text to be there.
    if isinstance(node, Not):
        return None
    if isinstance(node, Test):
        text = _literal(node)
        if not text:
            return None
        made = derived(node.field)
        return made.literals(text) if made else ((node.field, text),)
    result = [literals_of(part) for part in node.of]
    if isinstance(node, Either):
        # One branch that requires no text is enough for an event to match without any.
        if any(literals is None for literals in result):
            return None
        return tuple(sorted({pair for literals in result for pair in literals or ()}))
    known = [literals for literals in result if literals]
    # In an `and` each part must hold, so the one that lets the fewest events through is enough.
    return max(known, key=_selectivity) if known else None


def _literal(test: Test) -> str | None:
    if test.op in _TEXT and test.value:
        return fold(str(test.value))
    if test.op == "like":
        texts = [fold(text) for kind, text in test.parts if kind == "text"]
        return max(texts, key=len, default="") or None
    return None


def _selectivity(literals: Literals) -> tuple[int, int]:
    # Long texts are rare; a set is as weak as its shortest text.
    return min(len(text) for _, text in literals), -len(literals)
