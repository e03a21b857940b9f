"""Which of many patterns is the first to match a text, asked in one pass."""

from __future__ import annotations

import re
from collections.abc import Sequence


class FirstMatch:
    """The first of `patterns`, which share their flags, that matches all of a text.

    One expression of all of them, each followed by an empty group, says which: the number of
    the last group that took part. Only that one is then asked for its own groups. Python's `re`
    tries alternatives in their order, and passes over those whose first letter is another.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        if len({pattern.flags for pattern in patterns}) != 1:
            raise ValueError("patterns asked together must have the same flags")
        self._patterns = tuple(patterns)
        branches = "|".join(f"(?:{_without_groups(pattern)})()" for pattern in patterns)
        self._which = re.compile(branches, patterns[0].flags)

    def find(self, text: str) -> tuple[int, re.Match[str]] | None:
        """The place of the pattern and its match; None where none matches."""
        which = self._which.fullmatch(text)
        if which is None or which.lastindex is None:
            return None
        place = which.lastindex - 1
        match = self._patterns[place].fullmatch(text)
        assert match is not None, "what a branch matches, its pattern matches"
        return place, match


def _without_groups(pattern: re.Pattern[str]) -> str:
    if len(pattern.groupindex) != pattern.groups:
        raise ValueError(f"a group without a name cannot be asked for: {pattern.pattern}")
    if "(?P=" in pattern.pattern:
        raise ValueError(f"what refers back to a group cannot be asked for: {pattern.pattern}")
    return re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern)
