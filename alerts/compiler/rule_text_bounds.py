"""How much a rule's text may ask of who compiles it, told before pySigma reads it.

`1 of s*` names every selection each time it stands there, and conditions join them: a file of a
megabyte would take minutes at each start, and hold up every other rule for as long.
"""

from __future__ import annotations

from typing import Any

from sigma.policy import default_policy
from sigma.policy.regex_engine import RE2RegexEngine

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.rulepack.predicate import regex

MAX_CONDITION_CHARS = 4_096
MAX_SELECTIONS = 500
MAX_VALUES = 10_000
"""Values of a rule; more of them are a list of indicators."""
MAX_SPAN_SECONDS = 3_650 * 86_400
"""A time span of a correlation; beyond some centuries its end is no instant any more."""


def require_bounded(document: dict[str, Any]) -> None:
    """Raises `Untranslatable` for a rule that asks too much."""
    for part in (document.get("detection"), document.get("filter")):
        if isinstance(part, dict):
            _require_bounded(part)


def _require_bounded(detection: dict[str, Any]) -> None:
    conditions = detection.get("condition")
    listed = conditions if isinstance(conditions, list) else [conditions]
    if (chars := sum(len(str(text)) for text in listed)) > MAX_CONDITION_CHARS:
        raise Untranslatable(
            f"its condition has {chars} characters, more than {MAX_CONDITION_CHARS}",
            "name selections so that `1 of name*` covers them, or split the rule",
        )
    if len(detection) > MAX_SELECTIONS:
        raise Untranslatable(
            f"{len(detection)} selections, more than {MAX_SELECTIONS}", "split the rule"
        )
    if (values := _values(detection)) > MAX_VALUES:
        raise Untranslatable(
            f"{values} values, more than {MAX_VALUES}", "make an indicator list of them"
        )


def _values(part: Any) -> int:
    if isinstance(part, dict):
        return sum(map(_values, part.values()))
    return sum(map(_values, part)) if isinstance(part, list) else 1


class _QuietRe2(RE2RegexEngine):
    """The engine that rules run with; pySigma's own prints what it refuses on the terminal."""

    def compile(self, pattern: str, flags: int = 0) -> Any:
        inline = "".join(letter for letter, bit in _FLAGS.items() if int(flags) & bit)
        return regex(f"(?{inline})" + pattern if inline else pattern)

    @property
    def error(self) -> type[Exception]:
        return ValueError


_FLAGS = {"i": 2, "m": 8, "s": 16}
"""The bits of Python's `re` for these letters."""

default_policy.regex_engine = _QuietRe2()
