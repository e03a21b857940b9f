"""A lake with a table of numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.infra.numbers import NUMBER, SQUARE


@pytest.fixture
def arrive(lake: Lake) -> Callable[..., None]:
    """Appends numbers, a commit and a file each call, as a job does."""
    lake.ensure(NUMBER, SQUARE)
    lake.settings = load(home=lake.settings.home, lake=lake.settings.lake_root)

    def run(*values: int) -> None:
        lake.add(NUMBER, [{"n": value, "note": None} for value in values], "test")

    return run
