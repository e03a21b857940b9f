"""The lake: the names of its tables in a Spark session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.delta.ops_tables import LEDGER
from infra.streaming.lake import Lake


@pytest.mark.full
def test_names_in_a_session_are_those_of_the_lake_registered_last(
    spark: SparkSession, empty_tables: Path, tmp_path: Path
) -> None:
    lakes = []
    for name in ("one", "two"):
        shutil.copytree(empty_tables, tmp_path / name / "lake")
        lakes.append(Lake(spark, load(home=tmp_path / name)).register())
        where = spark.sql(f"DESCRIBE DETAIL {LEDGER.name}").head()
        assert where is not None
        assert where.location.removeprefix("file:") == lakes[-1].path(LEDGER)
        assert spark.sql(f"SELECT * FROM {LEDGER.name}").count() == 0
    assert (lakes[0].folder(LEDGER) / "_delta_log").is_dir()
