"""The lake: the names of its tables in a Spark session."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.delta.ops_tables import LEDGER
from infra.streaming.batch import Batch
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


def test_a_batch_of_a_former_release_with_deltas_txn_is_known_by_its_marker(
    tmp_path: Path,
) -> None:
    no_spark: Any = None
    lake = Lake(no_spark, load(home=tmp_path))
    now = datetime.now(UTC)
    run = Batch("numbers", "the-query", 7, "0123", tmp_path, True, now, offsets="")
    info = {"timestamp": 0, "operation": "WRITE", "userMetadata": run.metadata}
    txn = {"appId": "numbers/the-query", "version": 7}
    log = lake.folder(LEDGER) / "_delta_log"
    log.mkdir(parents=True)
    lines = "\n".join(map(json.dumps, ({"commitInfo": info}, {"txn": txn})))
    (log / f"{0:020d}.json").write_text(lines + "\n")
    assert lake.has(LEDGER, run)
    assert (run.replayed, run.versions) == (True, {LEDGER.name: 0})
