"""pySigma's parsed conditions as predicate trees over silver.event."""

from __future__ import annotations

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.rule import SigmaRule
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

from alerts.fields import LogSource
from alerts.predicate import ANY_ONE, ANY_RUN, All, Either, Node, Not, Test, leaf, tests_of
from infra.errors import Fatal

MAX_TESTS = 5_000
"""A rule with more tests than this is refused: it would slow down every event of its source."""

NO_LOOK_AROUND = "RE2 has no backreferences or look-around; use `and not` with another selection"

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


def predicate_of(rule: SigmaRule, source: LogSource, keywords: tuple[str, ...]) -> Node:
    """The rule's conditions, any of which may hold, as one tree.

    Raises `Unmapped`, `Untranslatable` or pySigma's own SigmaError.
    """
    nodes = []
    for condition in rule.detection.parsed_condition:
        parsed = condition.parsed
        if parsed is None:
            raise Untranslatable("its condition is empty", "name a selection in the condition")
        nodes.append(_Translation(source, keywords).node(parsed))
    tree = nodes[0] if len(nodes) == 1 else Either(tuple(nodes))
    if source.where:
        tree = All((*(Test(path, "eq", text) for path, text in source.where), tree))
    _check(tree)
    return tree


def _check(tree: Node) -> None:
    tests = list(tests_of(tree))
    if len(tests) > MAX_TESTS:
        raise Untranslatable(
            f"{len(tests)} tests, more than {MAX_TESTS}",
            "split the rule, or join an indicator list",
        )
    for test in tests:
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
    def __init__(self, source: LogSource, keywords: tuple[str, ...]) -> None:
        self.source = source
        self.keywords = keywords

    def node(self, item: object) -> Node:
        """A condition, whatever its kind."""
        if isinstance(item, ConditionAND | ConditionOR):
            parts = tuple(self.node(arg) for arg in item.args)
            return All(parts) if isinstance(item, ConditionAND) else Either(parts)
        if isinstance(item, ConditionNOT):
            return Not(self.node(item.args[0]))
        if isinstance(item, ConditionFieldEqualsValueExpression):
            return self.value(self.source.path(item.field), item.value)
        if isinstance(item, ConditionValueExpression):
            return Either(tuple(self.keyword(path, item.value) for path in self.keywords))
        raise Untranslatable(f"condition of kind {type(item).__name__}", "use and, or, not, N of")

    def keyword(self, path: str, value: SigmaType) -> Node:
        """A value without a field: text found anywhere in one of the keyword columns."""
        if isinstance(value, SigmaExpansion):
            return Either(tuple(self.keyword(path, v) for v in value.values))
        if isinstance(value, SigmaNumber):
            return Test(path, "contains", str(value.number))
        if isinstance(value, SigmaString):
            anywhere = SpecialChars.WILDCARD_MULTI + value + SpecialChars.WILDCARD_MULTI
            return _text(path, anywhere, isinstance(value, SigmaCasedString))
        return self.value(path, value)

    def value(self, path: str, value: SigmaType) -> Node:
        """One field against one value."""
        if isinstance(value, SigmaExpansion):
            return Either(tuple(self.value(path, v) for v in value.values))
        if isinstance(value, SigmaString):
            return _text(path, value, isinstance(value, SigmaCasedString))
        if isinstance(value, SigmaTimestampPart):
            raise Untranslatable("parts of a time", "use a scheduled query for hours and weekdays")
        if isinstance(value, SigmaNumber):
            return Test(path, "number", value.number)
        if isinstance(value, SigmaBool):
            return Test(path, "bool", value.boolean)
        if isinstance(value, SigmaNull):
            return Test(path, "exists", False)
        if isinstance(value, SigmaExists):
            return Test(path, "exists", bool(value))
        if isinstance(value, SigmaCIDRExpression):
            return Test(path, "cidr", value.cidr)
        if isinstance(value, SigmaCompareExpression):
            return _compare(path, value)
        if isinstance(value, SigmaRegularExpression):
            flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
            pattern = str(value.regexp)
            return Test(path, "re", f"(?{flags}){pattern}" if flags else pattern, True)
        if isinstance(value, SigmaFieldReference):
            return self.reference(path, value)
        raise Untranslatable(f"value of kind {type(value).__name__}", "see docs/adding-a-rule.md")

    def reference(self, path: str, value: SigmaFieldReference) -> Node:
        """One field against another."""
        op = {
            (False, False): "ref",
            (True, False): "ref_startswith",
            (False, True): "ref_endswith",
            (True, True): "ref_contains",
        }[value.starts_with, value.ends_with]
        return Test(path, op, self.source.path(value.field))


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
        elif isinstance(part, Placeholder):
            raise Untranslatable(f"placeholder %{part.name}%", "write the values out")
        else:
            parts.append((ANY_RUN if part == SpecialChars.WILDCARD_MULTI else ANY_ONE, ""))
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
