"""pySigma's parsed conditions as predicate trees over silver.event."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import msgspec
import re2
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError
from sigma.rule import SigmaDetections
from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaRegularExpressionFlag,
    SigmaString,
    SigmaTimestampPart,
    SigmaType,
    SpecialChars,
)

from alerts.rulepack.derived_fields import JSON_COLUMNS
from alerts.rulepack.event_paths import is_enriched, is_field, number_paths
from alerts.rulepack.log_source import LogSource, Place, Unmapped
from alerts.rulepack.predicate import (
    ANY_ONE,
    ANY_RUN,
    All,
    Either,
    Node,
    Not,
    Test,
    leaf,
    literals_of,
    tests_of,
)
from infra.errors import Fatal
from ingest.parsing.ocsf import address

MAX_TESTS = 5_000
"""A rule with more tests than this is refused: it would slow down every event of its source."""

NO_LOOK_AROUND = "RE2 has no backreferences or look-around; use `and not` with another selection"

CODES = ("metadata.event_code",)
"""Texts that are numbers written in one way only, so that a number is a text to look for."""

_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


class Untranslatable(Fatal):
    """A rule asks for something we do not have; `remedy` says what to write instead."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


REFUSALS = (
    Unmapped,
    Untranslatable,
    SigmaError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    RecursionError,
)
"""What a broken rule may raise, in our code or in pySigma's, without stopping the others."""


@dataclass(frozen=True)
class Meaning:
    """What a rule's words stand for: its log source, the columns of keywords, placeholders."""

    source: LogSource
    keywords: tuple[str, ...] = ()
    placeholders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def predicate_of(detections: SigmaDetections, meaning: Meaning) -> Node:
    """The conditions of a rule or filter, any of which may hold, as one tree.

    Raises `Unmapped`, `Untranslatable` or pySigma's own SigmaError.
    """
    nodes = []
    for condition in detections.parsed_condition:
        parsed = condition.parsed
        if parsed is None:
            raise Untranslatable("its condition is empty", "name a selection in the condition")
        nodes.append(_Translation(meaning).node(parsed, codes_of_source(meaning.source)))
    tree = any_of(nodes)
    if meaning.source.logs:
        # An event is of one log, so that the others' places take none of its time.
        plain = replace(meaning, source=replace(meaning.source, logs=()))
        _bounded(predicate_of(detections, plain))
    else:
        _bounded(tree)
    _check(tree)
    return tree


def condition_tree(item: object, meaning: Meaning) -> Node:
    """One part of a condition, as pySigma parsed it, as a tree."""
    return _Translation(meaning).node(item, codes_of_source(meaning.source))


def codes_of_source(source: LogSource) -> frozenset[str] | None:
    """The event codes that a log source consists of; None: any."""
    every = [condition.get(CODES[0]) for condition in source.where]
    if not every or None in every:
        return None
    return frozenset(code for codes in every for code in codes or ())


def codes_of(item: object, source: LogSource) -> frozenset[str] | None:
    """The event codes that a condition demands, as pySigma parsed it; None: any."""
    if isinstance(item, ConditionAND | ConditionOR):
        parts = [codes_of(part, source) for part in item.args]
        code_sets = [codes for codes in parts if codes is not None]
        if isinstance(item, ConditionOR):
            return frozenset().union(*code_sets) if len(code_sets) == len(parts) else None
        return frozenset.intersection(*code_sets) if code_sets else None
    if not isinstance(item, ConditionFieldEqualsValueExpression):
        return None
    if source.places(item.field)[0].paths != CODES:
        return None
    if isinstance(item.value, SigmaNumber):
        return frozenset({str(item.value.number)})
    if isinstance(item.value, SigmaString) and not item.value.contains_special():
        return frozenset({str(item.value)})
    return None


def codes_of_rule(detections: SigmaDetections, source: LogSource) -> frozenset[str] | None:
    """The event codes that a rule can mean; None: any."""
    every = [codes_of(c.parsed, source) for c in detections.parsed_condition]
    known = [codes for codes in every if codes is not None]
    asked = frozenset().union(*known) if every and len(known) == len(every) else None
    return _both(codes_of_source(source), asked)


def where_of(source: LogSource) -> Node | None:
    """The conditions of a log source as a tree; None when it has none."""
    if not source.where:
        return None
    ways = [
        [any_of([Test(path, "eq", text) for text in texts]) for path, texts in condition.items()]
        for condition in source.where
    ]
    return any_of([tests[0] if len(tests) == 1 else All(tuple(tests)) for tests in ways])


def any_of(nodes: Sequence[Node]) -> Node:
    """The node itself where there is but one."""
    return nodes[0] if len(nodes) == 1 else Either(tuple(nodes))


def all_of(nodes: Sequence[Node]) -> Node:
    """The node itself where there is but one."""
    return nodes[0] if len(nodes) == 1 else All(tuple(nodes))


def _bounded(tree: Node) -> None:
    tests = sum(1 for _ in tests_of(tree))
    if tests > MAX_TESTS:
        raise Untranslatable(
            f"{tests} tests, more than {MAX_TESTS}",
            "split the rule, or join an indicator list",
        )


def _check(tree: Node) -> None:
    for test in tests_of(tree):
        # These compare more than a value and have no leaf that could be built.
        if test.op == "exists" or test.op.startswith("ref"):
            continue
        try:
            leaf(test)
        except ValueError as error:
            raise Untranslatable(
                f"{test.field}: '{test.value}': {error}",
                NO_LOOK_AROUND if test.op == "re" else "correct the value",
            ) from None


class _Translation:
    def __init__(self, meaning: Meaning) -> None:
        self.source = meaning.source
        self.keywords = meaning.keywords
        self.placeholders = meaning.placeholders

    def node(self, item: object, codes: frozenset[str] | None = None) -> Node:
        """A condition, whatever its kind, about events of these codes (None: any)."""
        if isinstance(item, ConditionOR) and (same_field := _of_one_field(item)):
            # Values of one field together, so that the logs of a product are asked once.
            return self.field(same_field[0].field, [each.value for each in same_field], codes)
        if isinstance(item, ConditionAND | ConditionOR):
            # What an `and` says of the event's code holds for all its parts.
            inside = codes_of(item, self.source) if isinstance(item, ConditionAND) else None
            codes = _both(codes, inside)
            parts = tuple(self.node(arg, codes) for arg in item.args)
            return All(parts) if isinstance(item, ConditionAND) else Either(parts)
        if isinstance(item, ConditionNOT):
            return Not(self.node(item.args[0], codes))
        if isinstance(item, ConditionFieldEqualsValueExpression):
            return self.field(item.field, [item.value], codes)
        if isinstance(item, ConditionValueExpression):
            return any_of([self.keyword(path, item.value) for path in self.keywords])
        raise Untranslatable(f"condition of kind {type(item).__name__}", "use and, or, not, N of")

    def field(self, name: str, values: Sequence[SigmaType], codes: frozenset[str] | None) -> Node:
        """A field with one of these values, in each log of a product where that log has it."""

        def asked(log: LogSource) -> Node:
            return any_of([self.in_log(log, name, value, codes) for value in values])

        common = asked(self.source)
        # Logs that have it in the same place are one, or a list of values would be there 32 times.
        logs: dict[Node, list[Node]] = {}
        for own in self.source.logs:
            if name.lower() in own.names and (tree := asked(own.log)) != common:
                logs.setdefault(tree, []).append(_of_log(own.log, self.source))
        if not logs:
            return common
        ways = [All((_not_sought(any_of(marks), tree), tree)) for tree, marks in logs.items()]
        elsewhere = Not(any_of([mark for marks in logs.values() for mark in marks]))
        return Either((*ways, All((common, elsewhere))))

    def in_log(
        self, log: LogSource, name: str, value: SigmaType, codes: frozenset[str] | None
    ) -> Node:
        """A field where a log's events of these codes have it."""
        places = log.places(name, codes)
        if isinstance(value, SigmaNull) or (isinstance(value, SigmaExists) and not value):
            held = [
                _in_events(p, any_of([Test(f, "exists", True) for f in p.paths])) for p in places
            ]
            present = any_of(held)
            if isinstance(present, Test):
                return Test(present.field, "exists", False)
            return Not(present)
        ways = [_in_events(p, self.at_place(p, value, codes)) for p in places]
        # A column asked by its path means itself.
        if _is_nothing(value) and not is_enriched(name) and not is_field(name):
            ways += _nothing(log, name, str(value), places)
        return any_of(ways)

    def at_place(self, place: Place, value: SigmaType, codes: frozenset[str] | None) -> Node:
        """A field in the first of the place's paths that has a value, or in any."""
        ways: list[Node] = []
        for number, path in enumerate(place.paths):
            test = self.value(path, value, codes)
            # The rest of an event never repeats what a parser took, so nothing needs be absent.
            first = place.any or path.startswith("unmapped:")
            absent = [Test(p, "exists", False) for p in place.paths[:number] if not first]
            ways.append(All((test, *absent)) if absent else test)
        return any_of(ways)

    def keyword(self, path: str, value: SigmaType) -> Node:
        """A value without a field: text found anywhere in one of the keyword columns."""
        if isinstance(value, SigmaExpansion):
            return any_of([self.keyword(path, v) for v in value.values])
        if isinstance(value, SigmaNumber):
            return Test(path, "contains", str(value.number))
        if isinstance(value, SigmaString):
            anywhere = SpecialChars.WILDCARD_MULTI + value + SpecialChars.WILDCARD_MULTI
            if path in JSON_COLUMNS:
                # Such a column is text in JSON, where quotes and backslashes stand escaped.
                anywhere = anywhere.map_parts(_as_in_json, lambda part: isinstance(part, str))
            cased = isinstance(value, SigmaCasedString)
            ways = [self.text(path, anywhere, cased)]
            if (begun := _at_start(path, value)) is not None:
                ways.append(self.text(path, begun, cased))
            return any_of(ways)
        return self.value(path, value)

    def value(self, path: str, value: SigmaType, codes: frozenset[str] | None = None) -> Node:
        """One field against one value."""
        if isinstance(value, SigmaExpansion):
            return any_of([self.value(path, v, codes) for v in value.values])
        if isinstance(value, SigmaString):
            return self.text(path, value, isinstance(value, SigmaCasedString))
        if isinstance(value, SigmaTimestampPart):
            return Test(path, value.timestamp_part.name.lower(), value.number)
        if isinstance(value, SigmaNumber):
            # Event codes are texts here; a number test could not be sought as a literal.
            if path in CODES:
                return Test(path, "eq", str(value.number))
            return Test(path, "number", value.number)
        if isinstance(value, SigmaBool):
            return Test(path, "bool", value.boolean)
        if isinstance(value, SigmaExists):
            return Test(path, "exists", True)
        if isinstance(value, SigmaCIDRExpression):
            return Test(path, "cidr", value.cidr)
        if isinstance(value, SigmaCompareExpression):
            return _compare(path, value)
        if isinstance(value, SigmaRegularExpression):
            return self.expression(path, value)
        if isinstance(value, SigmaFieldReference):
            others = self.source.places(value.field, codes)
            return any_of(
                [
                    _in_events(other, _reference(path, of, value))
                    for other in others
                    for of in other.paths
                ]
            )
        raise Untranslatable(
            f"value of kind {type(value).__name__}", "see docs/how-to/write-a-sigma-rule.md"
        )

    def text(self, path: str, value: SigmaString, cased: bool) -> Node:
        """A text, with each of the values its placeholders stand for."""
        return any_of([_text(path, v, cased) for v in value.replace_placeholders(self.expand)])

    def expression(self, path: str, value: SigmaRegularExpression) -> Node:
        """A regular expression with its flags; values of placeholders are taken literally."""
        flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
        start = f"(?{flags})" if flags else ""
        filled = value.regexp.replace_placeholders(self.expand_quoted)
        # Sigma's `re` minds case unless its flag says otherwise, so the test is `cased`.
        return any_of([Test(path, "re", f"{start}{alternative}", True) for alternative in filled])

    def expand(self, placeholder: Placeholder) -> Iterator[SigmaString]:
        """What `%name%` stands for, each of which may have wildcards."""
        for value in self.values_of(placeholder):
            yield SigmaString(value)

    def expand_quoted(self, placeholder: Placeholder) -> Iterator[SigmaString]:
        """The same inside a regular expression."""
        for value in self.values_of(placeholder):
            # Escaped for RE2 here; pySigma must not read those backslashes as its own escapes.
            yield SigmaString(re2.escape(value), escape=False)

    def values_of(self, placeholder: Placeholder) -> tuple[str, ...]:
        """The values; raises `Untranslatable` when nobody gave any."""
        values = self.placeholders.get(placeholder.name)
        if not values:
            raise Untranslatable(
                f"placeholder %{placeholder.name}% has no values",
                f"write the values out, or list them under {placeholder.name} in a file "
                "placeholders.yml in a rule folder",
            )
        return values


def _nothing(log: LogSource, name: str, text: str, places: Sequence[Place]) -> list[Node]:
    """`''` and `-` as values: what a product writes for none, which no parser puts in a column.

    Windows' are kept in the rest; of others an empty value is a missing one.
    """
    rest = f"unmapped:{name}"
    if any(source.startswith("win") for source in log.sources):
        asked = any(rest in place.paths for place in places)
        return [] if asked else [Test(rest, "eq", text)]
    if text:
        return []
    # Of a name that may stand in several places, in none of them.
    missing = tuple(Test(path, "exists", False) for path in places[0].paths)
    return [All(missing) if len(missing) > 1 else missing[0]]


def _of_log(log: LogSource, whole: LogSource) -> Node:
    """That an event is of one log of a product."""
    asked = [where] if (where := where_of(log)) is not None else []
    # No sources of its own: those of the product.
    if log.sources and log.sources != whole.sources:
        asked.append(any_of([Test("source", "eq", name) for name in log.sources]))
    return all_of(asked)


def _not_sought(mark: Node, asked: Node) -> Node:
    """A log's mark beside what is asked of it, by which alone an event is looked for.

    The long name of a channel would be taken for the rarer text, and each event of it looked at.
    """
    return Not(Not(mark)) if literals_of(asked) else mark


def _of_one_field(item: ConditionOR) -> list[ConditionFieldEqualsValueExpression]:
    """The parts, where all of them ask one field for a value; else none."""
    parts = [arg for arg in item.args if isinstance(arg, ConditionFieldEqualsValueExpression)]
    same = len(parts) == len(item.args) and len({part.field for part in parts}) == 1
    return parts if same else []


def _is_nothing(value: SigmaType) -> bool:
    return isinstance(value, SigmaString) and str(value) in ("", "-") and len(value.s) < 2


def _both(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    """Event codes that both allow; None allows any. Two that exclude each other: the first."""
    if first is None or second is None:
        return second if first is None else first
    return first & second or first


MOST_CODES = 8
"""More codes than this are asked as one expression."""


def _in_events(place: Place, asked: Node) -> Node:
    """What is asked of a place, of the events alone that have the field there."""
    if place.only is not None:
        return All((_of_codes(place.only), asked))
    return All((asked, Not(_of_codes(place.without)))) if place.without else asked


def _of_codes(codes: frozenset[str]) -> Node:
    if len(codes) > MOST_CODES:
        return Test(CODES[0], "re", f"^(?:{'|'.join(sorted(codes))})$", True)
    return any_of([Test(CODES[0], "eq", code) for code in sorted(codes)])


def _reference(path: str, of: str, value: SigmaFieldReference) -> Test:
    """One field against another."""
    op = {
        (False, False): "ref",
        (True, False): "ref_startswith",
        (False, True): "ref_endswith",
        (True, True): "ref_contains",
    }[value.starts_with, value.ends_with]
    return Test(path, op, of)


def _as_in_json(part: object) -> str:
    """A text as it is written inside a JSON string."""
    return msgspec.json.encode(str(part)).decode()[1:-1]


def _at_start(path: str, value: SigmaString) -> SigmaString | None:
    """What stands behind a blank, as a text begins with it: the blank is no part of that text.

    In a line it is the one behind the head, between values what a rendered message has there.
    """
    first = value.s[0] if value.s else None
    if not isinstance(first, str) or not first.startswith(" ") or not first.strip():
        return None
    begun = copy(value)
    begun.s = [first.lstrip(" "), *value.s[1:]]
    if path == "message":
        return begun + SpecialChars.WILDCARD_MULTI
    if path not in JSON_COLUMNS:
        return None
    begun = begun.map_parts(_as_in_json, lambda part: isinstance(part, str))
    return SpecialChars.WILDCARD_MULTI + ('"' + begun) + SpecialChars.WILDCARD_MULTI


def _hashes(text: str) -> list[str]:
    return [part for part in text.strip("*").split(",") if _HASH.fullmatch(part)]


_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]{1,16}")
_MAPPED = re.compile(r"::ffff:(?=[0-9.]+\Z)", re.IGNORECASE)


def _plain_address(value: SigmaString) -> SigmaString:
    """A text about an address as the column has it: canonical, IPv4 without `::ffff:`."""
    if not value.contains_special():
        return SigmaString(address(str(value)) or str(value), escape=False)
    return value.map_parts(
        lambda part: _MAPPED.sub("", str(part)), lambda part: isinstance(part, str)
    )


_HASH = re.compile(r"\w+=[0-9A-Fa-f]+")


def _compare(path: str, value: SigmaCompareExpression) -> Node:
    op = {
        CompareOperators.LT: "lt",
        CompareOperators.LTE: "lte",
        CompareOperators.GT: "gt",
        CompareOperators.GTE: "gte",
        CompareOperators.NEQ: "ne",
    }[value.op]
    if isinstance(value.number, SigmaTimestampPart):
        op = f"{value.number.timestamp_part.name.lower()}_{op}"
    return Test(path, op, value.number.number)


def _text(path: str, value: SigmaString, cased: bool) -> Node:
    """A Sigma text with its wildcards; the common shapes become the cheap operations."""
    # A column; in the rest of an event an address stands as it was written.
    if path.endswith(".ip") and ":" not in path:
        value = _plain_address(value)
    elif path in number_paths() and _HEXADECIMAL.fullmatch(str(value)):
        # Windows writes numbers so, of which the column has the value.
        return Test(path, "number", int(str(value), 16))
    hashes = _hashes(str(value)) if path.endswith("#") else []
    if len(hashes) > 1:
        # The whole list as Sysmon writes it; here each hash is a value of its own.
        return All(tuple(Test(path, "eq", value_hash) for value_hash in hashes))
    parts: list[tuple[str, str]] = []
    for part in value.s:
        if isinstance(part, str):
            parts.append(("text", part))
        else:
            parts.append((ANY_RUN if part == SpecialChars.WILDCARD_MULTI else ANY_ONE, ""))
    # `**` means the same as `*`; without the second one the cheap shapes below are recognised.
    parts = [p for i, p in enumerate(parts) if not (i and p[0] == ANY_RUN == parts[i - 1][0])]
    kinds = [kind for kind, _ in parts]
    op = {
        (): "eq",
        ("text",): "eq",
        ("text", ANY_RUN): "startswith",
        (ANY_RUN, "text"): "endswith",
        (ANY_RUN, "text", ANY_RUN): "contains",
    }.get(tuple(kinds))
    if op is None:
        return Test(path, "like", None, cased, tuple(parts))
    return Test(path, op, "".join(text for _, text in parts), cased)
