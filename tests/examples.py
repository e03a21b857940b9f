"""How many examples a property gets: a few in `make test`, five times as many in the full run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

QUICK = 100
"""Examples of a property that names no number."""


def examples(count: int, **more: Any) -> settings:
    """`count` examples in the quick profile, and as many times more in another as that has."""
    return settings(max_examples=count * settings().max_examples // QUICK, **more)
