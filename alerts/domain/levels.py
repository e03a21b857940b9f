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

DOUBLINGS = 9
"""Most that repeats add to a score."""


def score_of_level(level: str, count: int) -> int:
    """0 to 100: the level's score, and one more for each doubling of the count, at most nine."""
    return SEVERITY_BY_LEVEL[level][2] + min(DOUBLINGS, max(0, count.bit_length() - 1))
