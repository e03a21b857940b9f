"""How many examples a property gets: few in `make test`, many in the full run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

NAMED = 100
"""What a property that names no number would get; the profiles take a share or a multiple of it."""

PROFILES = {"quick": NAMED * 2 // 5, "full": NAMED * 5}


def examples(count: int, **more: Any) -> settings:
    """`count` examples, scaled as the profile in force scales all."""
    share = settings().max_examples / NAMED
    return settings(max_examples=max(1, round(count * share)), **more)
