"""A small finished lake for the examples of the documentation, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.story import tell


@pytest.fixture(scope="session")
def finished(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A home whose lake has the day of tests/api/story.py."""
    home = tmp_path_factory.mktemp("documented")
    shutil.copytree(empty_tables, home / "lake")
    tell(Lake(spark, load(home=home)))
    return home
