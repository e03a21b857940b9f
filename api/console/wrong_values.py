"""What is wrong with a form or one of its values, as people say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api.services.triage import Stale

_WORDS = {
    "missing": "is missing",
    "string_too_long": "has more than {max_length:,} characters",
    "string_pattern_mismatch": "has signs that it may not have",
    "date_parsing": "is no date such as 2026-11-20",
    "date_from_datetime_parsing": "is no date such as 2026-11-20",
    "int_parsing": "is no whole number",
    "int_from_float": "is no whole number",
    "float_parsing": "is no number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be one of {expected}",
}
"""By pydantic's name for the mistake; of any other its own sentence is told."""


def wrong_value(error: ValidationError | RequestValidationError) -> str:
    """The first value that is wrong and why: `reason: is empty`.

    The first will do: the form comes back, and tells of the next.
    """
    wrong = error.errors()[0]
    place: Sequence[Any] = wrong["loc"]
    # Of a value of a list its list is known to people; what a check of several values says names
    # them by itself.
    name = next((f"{part}: " for part in reversed(place) if isinstance(part, str)), "")
    return name + _why(str(wrong["type"]), dict(wrong.get("ctx") or {}), str(wrong["msg"]))


def sentence_of(error: Exception) -> str:
    """What an error says to who looks at pages: ETags are not theirs to send."""
    return error.plain if isinstance(error, Stale) else str(error)


def _why(kind: str, limits: dict[str, Any], sentence: str) -> str:
    if kind == "string_too_short":
        least = limits["min_length"]
        return "is empty" if least == 1 else f"has fewer than {least:,} characters"
    words = _WORDS.get(kind)
    # A check of ours has a sentence of its own, to which pydantic adds this.
    return words.format(**limits) if words else sentence.removeprefix("Value error, ")
