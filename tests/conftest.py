"""Fixtures: one Spark session, a fresh lake a test, one broker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession

from infra.kafka import Broker, free_port
from infra.lake import Lake
from infra.settings import Settings, load
from infra.spark import session


@pytest.fixture(scope="session")
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def spark(session_home: Path) -> Iterator[SparkSession]:
    running = session(load(home=session_home, spark={"driver_memory": "2g"}), "tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all tables and no rows, made once: a copy of it is a fresh lake."""
    home = tmp_path_factory.mktemp("empty")
    Lake(spark, load(home=home)).ensure()
    return home / "lake"


@pytest.fixture
def settings(tmp_path: Path, empty_tables: Path) -> Settings:
    shutil.copytree(empty_tables, tmp_path / "lake")
    return load(home=tmp_path)


@pytest.fixture
def lake(spark: SparkSession, settings: Settings) -> Lake:
    return Lake(spark, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("kafka"), free_port()).start()
    yield running
    running.stop()


Drain = Callable[..., None]
os.environ.setdefault("HEADGATE_CONFIG", "")

# How long an example takes says something about the machine, not about what is tested.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")
