"""A lake with one day in it, made once, and the API over it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from api.app import create_app
from infra.config.settings import Settings, load
from infra.streaming.lake import Lake

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="session")
def day(spark: SparkSession, day_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("day")
    shutil.copytree(day_tables, home / "lake")
    # Without Spark for statements: `sql/test_spark_engine.py` begins one.
    limits = {"statement_seconds": 4, "statement_rows": 50, "statement_memory": "300MB",
              "statement_bytes": 200_000, "spark_engine": False, "token": TOKEN}  # fmt: skip
    return Lake(spark, load(home=home, api=limits))


@pytest.fixture(scope="session")
def day_settings(day: Lake) -> Settings:
    return day.settings


@pytest.fixture(scope="session")
def client(day_settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(day_settings), raise_server_exceptions=False) as running:
        running.headers["Authorization"] = f"Bearer {TOKEN}"
        yield running
