"""The day of tests/api/story.py in a lake, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.story import tell


@pytest.fixture(scope="session")
def told(spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("told")
    shutil.copytree(empty_tables, home / "lake")
    return tell(Lake(spark, load(home=home)))
