"""Cases of a promise: some in `make test`, the rest only in the full run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def rest_full(quick: int | Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """`cases` as parameters; marked `full` are those beyond the first, or that `quick` denies."""
    marked = []
    for place, case in enumerate(cases):
        always = quick(case) if callable(quick) else place < quick
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=() if always else pytest.mark.full))
    return marked
