"""A small finished lake for the examples of the documentation, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def finished(day_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose lake has the day of tests/api/story.py."""
    home = tmp_path_factory.mktemp("documented")
    shutil.copytree(day_tables, home / "lake")
    return home
