"""The day of tests/api/story.py in a lake, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.streaming.lake import Lake


@pytest.fixture(scope="session")
def told(spark: SparkSession, day_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("told")
    shutil.copytree(day_tables, home / "lake")
    return Lake(spark, load(home=home))
