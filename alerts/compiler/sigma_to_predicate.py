"""pySigma's parsed conditions as predicate trees over silver.event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import re2
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
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
from alerts.rulepack.field_mapping import LogSource
from alerts.rulepack.predicate import ANY_ONE, ANY_RUN, All, Either, Node, Not, Test, leaf, tests_of
from infra.errors import Fatal

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
        nodes.append(_Translation(meaning).node(parsed))
    tree = any_of(nodes)
    _check(tree)
    return tree


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


def _check(tree: Node) -> None:
    tests = list(tests_of(tree))
    if len(tests) > MAX_TESTS:
        raise Untranslatable(
            f"{len(tests)} tests, more than {MAX_TESTS}",
            "split the rule, or join an indicator list",
        )
    for test in tests:
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

    def node(self, item: object) -> Node:
        """A condition, whatever its kind."""
        if isinstance(item, ConditionAND | ConditionOR):
            parts = tuple(self.node(arg) for arg in item.args)
            return All(parts) if isinstance(item, ConditionAND) else Either(parts)
        if isinstance(item, ConditionNOT):
            return Not(self.node(item.args[0]))
        if isinstance(item, ConditionFieldEqualsValueExpression):
            return self.field(item.field, item.value)
        if isinstance(item, ConditionValueExpression):
            return any_of([self.keyword(path, item.value) for path in self.keywords])
        raise Untranslatable(f"condition of kind {type(item).__name__}", "use and, or, not, N of")

    def field(self, name: str, value: SigmaType) -> Node:
        """A field, which may be in one of several places; it is missing when it is in none."""
        paths = self.source.paths(name)
        if isinstance(value, SigmaNull) or (isinstance(value, SigmaExists) and not value):
            # A field with several places is null only when it is in none of them: `and`, not `or`.
            absent = tuple(Test(path, "exists", False) for path in paths)
            return absent[0] if len(absent) == 1 else All(absent)
        return any_of([self.value(path, value) for path in paths])

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
            return self.text(path, anywhere, isinstance(value, SigmaCasedString))
        return self.value(path, value)

    def value(self, path: str, value: SigmaType) -> Node:
        """One field against one value."""
        if isinstance(value, SigmaExpansion):
            return any_of([self.value(path, v) for v in value.values])
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
            return any_of([_reference(path, of, value) for of in self.source.paths(value.field)])
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


def _compare(path: str, value: SigmaCompareExpression) -> Node:
    op = {
        CompareOperators.LT: "lt",
        CompareOperators.LTE: "lte",
        CompareOperators.GT: "gt",
        CompareOperators.GTE: "gte",
        CompareOperators.NEQ: "ne",
    }[value.op]
    return Test(path, op, value.number.number)


def _text(path: str, value: SigmaString, cased: bool) -> Test:
    """A Sigma text with its wildcards; the common shapes become the cheap operations."""
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
