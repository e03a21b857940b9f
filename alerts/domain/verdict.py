"""What people may judge an alert to be: an enumeration of the alert's contract."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal, get_args

from infra.errors import Usage

Verdict = Literal[
    "true_positive",
    "false_positive",
    "benign",
    "suspicious",
    "test",
    "duplicate",
    "insufficient_data",
]

VERDICTS: dict[Verdict, tuple[int, str]] = {
    "true_positive": (2, "it happened, and it was hostile"),
    "false_positive": (1, "the rule matched what it does not mean"),
    "benign": (5, "it happened, and it was allowed"),
    "suspicious": (4, "it may be hostile; nobody could tell"),
    "test": (6, "an exercise, or somebody who tried the rule"),
    "duplicate": (10, "another alert is about the same"),
    "insufficient_data": (7, "the logs do not show enough to judge"),
}
"""Each verdict with its OCSF `verdict_id` (Detection Finding, class 2004) and what it means."""

TRUE_VERDICTS: frozenset[Verdict] = frozenset({"true_positive", "suspicious"})
"""Verdicts that count for a rule when its true-positive rate is taken."""

NOISE_VERDICTS: tuple[Verdict, ...] = ("false_positive", "benign")
"""Verdicts of alerts that a rule had better not made."""

JUDGING_VERDICTS: frozenset[Verdict] = TRUE_VERDICTS.union(NOISE_VERDICTS)
"""Verdicts that count at all then: an exercise, a duplicate or lack of data tell nothing of it."""


def verdict_of(text: str) -> Verdict:
    """The verdict that a person wrote; case, blanks and hyphens are no matter.

    Raises `Usage` that lists the verdicts, and names the nearest one.
    """
    plain = "_".join(text.strip().lower().replace("-", " ").replace("_", " ").split())
    names = get_args(Verdict)
    for name in names:
        if name == plain:
            verdict: Verdict = name
            return verdict
    near = get_close_matches(plain, names, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise Usage(f"no verdict '{text}'.{hint} One of: {', '.join(names)}")
