"""Levels of rules: what they weigh, here and under OCSF."""

from __future__ import annotations

SEVERITY_BY_LEVEL = {
    "informational": (1, "Informational", 10),
    "low": (2, "Low", 25),
    "medium": (3, "Medium", 50),
    "high": (4, "High", 75),
    "critical": (5, "Critical", 90),
}
"""Level -> OCSF severity_id, its name, risk score of a single finding."""

LEVELS = tuple(SEVERITY_BY_LEVEL)
"""Sigma's levels, the lowest first."""

WORST_FIRST = LEVELS[::-1]

DOUBLINGS = 9
"""Most that repeats add to a score."""


def severity_of_level(level: str) -> int:
    """OCSF's severity_id, 1 to 5; 1 of a level that Sigma does not have."""
    return SEVERITY_BY_LEVEL[level][0] if level in SEVERITY_BY_LEVEL else 1


def score_of_level(level: str, count: int) -> int:
    """0 to 100: the level's score, and one more for each doubling of the count, at most nine."""
    return SEVERITY_BY_LEVEL[level][2] + min(DOUBLINGS, max(0, count.bit_length() - 1))
