"""How a session is set up: what alerts wait for comes first, and who may change that."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.runtime.job_registry import JOBS
from infra.spark.internals import pool_share
from infra.spark.session import ALERTING, LEISURE, conf_of


def test_the_pool_of_jobs_that_alerts_wait_for_is_ahead_of_all_others(spark: SparkSession) -> None:
    (mode, first), (_, rest) = pool_share(spark, ALERTING), pool_share(spark, LEISURE)
    assert mode == "FAIR"
    assert first > 1000 > rest == 0


def test_every_job_is_waited_for_or_is_history() -> None:
    urgent = {name for name, job in JOBS.items() if not job.history}
    assert urgent == {
        "ingest",
        "files",
        "sessions",
        "alert",
    }


def test_jobs_interpret_small_batches_on_a_small_machine_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    wanted = "spark.sql.codegen.wholeStage"
    assert conf_of(load(home=tmp_path), tmp_path, small_batches=True)[wanted] == "false"
    assert wanted not in conf_of(load(home=tmp_path), tmp_path, small_batches=False)
    large = load(home=tmp_path, spark={"small": False})
    assert wanted not in conf_of(large, tmp_path, small_batches=True)
    told = load(home=tmp_path, spark={"conf": {wanted: "true"}})
    assert conf_of(told, tmp_path, small_batches=True)[wanted] == "true"


def test_only_a_jvm_that_stands_for_long_compiles_with_c2(tmp_path: Path) -> None:
    options, brief, lasting = "spark.driver.extraJavaOptions", "TieredStopAtLevel=1", "Tier4"
    command = conf_of(load(home=tmp_path), tmp_path, small_batches=False)[options]
    driver = conf_of(load(home=tmp_path), tmp_path, small_batches=True)[options]
    large = conf_of(load(home=tmp_path, spark={"small": False}), tmp_path, small_batches=True)
    assert brief in command
    assert lasting not in command
    assert lasting in driver
    assert brief not in driver
    # On a large machine HotSpot keeps its own ways.
    assert lasting not in large[options]
    assert brief not in large[options]


def test_a_driver_on_a_small_machine_begins_with_a_third_of_its_heap(tmp_path: Path) -> None:
    options = "spark.driver.extraJavaOptions"

    def given(small_batches: bool = True, **spark: object) -> str:
        settings = load(home=tmp_path, spark=spark)
        return conf_of(settings, tmp_path, small_batches=small_batches)[options]

    assert " -Xms1024m " in given()
    assert " -Xms170m " in given(driver_memory="512M")
    assert " -Xms682m " in given(driver_memory="2gb")
    assert "-Xms" not in given(driver_memory="3221225472")
    assert "-Xms" not in given(small=False)
    assert "-Xms" not in given(small_batches=False)
