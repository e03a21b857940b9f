"""A checkpoint whose first batch came to nothing begins; one that did something is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

from infra.checkpoint.leftovers import put_aside
from infra.delta.schema import Column, Table
from infra.errors import Fatal
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake

TEMPORARY = ".0.9e6f60c2-3f1d-4a33-a1f5-0d7c1a3b5e77.tmp"
OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logs.x":{"0":1}}'
METADATA = json.dumps({"id": "5f2b2f0e-8f5d-4a67-9a07-1a4c5c6b7d11"})

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
TOTAL = Table("gold.total", "how many came", (Column("n", T.LongType(), "a number"),))

LEFTOVERS = (
    {f"offsets/{TEMPORARY}": ""},
    {f"offsets/.{TEMPORARY}.crc": "", "offsets/.0.crc": "crc"},
    {"offsets/0": ""},
    {"offsets/0": "v1\n{"},
    {f"commits/{TEMPORARY}": "v1"},
    {"commits/0": ""},
    {f"state/0/0/{TEMPORARY}": "x"},
    {"state/0/0/1.delta": ""},
    {"state/0/_metadata/metadata": ""},
    {"state/0/_metadata/.metadata.1.tmp": "v1"},
    {"metadata": ""},
    {"metadata": '{"id"', ".metadata.crc": "crc"},
    {f".metadata.{TEMPORARY}": "{"},
    {"sources/0/0": ""},
    {f"sources/0/{TEMPORARY}": "v1"},
)


def lay(folder: Path, files: dict[str, str], below: str = "spark") -> None:
    for name, text in files.items():
        file = folder / below / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def there(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


@pytest.fixture
def numbers(lake: Lake) -> Callable[..., None]:
    lake.ensure(NUMBER, TOTAL)

    def arrive(*values: int) -> None:
        rows = lake.spark.createDataFrame([Row(n=value) for value in values], NUMBER.schema)
        rows.write.format("delta").mode("append").save(lake.path(NUMBER))

    return arrive


def distinct(lake: Lake) -> Job:
    """A job with a state."""

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, TOTAL, run)

    rows = lake.stream(NUMBER).dropDuplicates(["n"])
    return lake.each_batch("distinct", rows, batch, trigger_seconds=None)


@pytest.mark.full
def test_a_job_begins_whatever_a_first_batch_left(lake, numbers):
    numbers(1, 1, 2)
    lay(
        lake.settings.checkpoint_root / "distinct",
        {name: text for files in LEFTOVERS for name, text in files.items()},
    )
    distinct(lake).wait()
    assert sorted(row["n"] for row in lake.read(TOTAL).collect()) == [1, 2]


@pytest.mark.full
def test_a_first_batch_that_was_planned_and_lost_its_state_is_done_again(lake, numbers):
    numbers(1, 1, 2)
    distinct(lake).wait()
    folder = lake.settings.checkpoint_root / "distinct"
    (folder / "spark" / "commits" / "0").write_text("")
    next((folder / "spark" / "state").rglob("1.delta")).write_text("")
    numbers(2, 3)
    distinct(lake).wait()
    assert sorted(row["n"] for row in lake.read(TOTAL).collect()) == [1, 2, 3]


@pytest.mark.parametrize("files", LEFTOVERS, ids=lambda files: "+".join(files))
def test_each_kind_of_leftover_is_moved_as_it_is_and_named(files, tmp_path, capsys):
    lay(tmp_path, files)
    aside = put_aside("alert", tmp_path)
    assert aside is not None
    assert there(tmp_path / "spark") == {}
    moved = there(aside / "spark")
    assert moved == files
    assert str(aside) in capsys.readouterr().err
    assert put_aside("alert", tmp_path) is None


def test_a_planned_batch_stays_planned(tmp_path):
    lay(tmp_path, {"metadata": METADATA, "offsets/0": OFFSETS, "sources/0/0": "v1\n{}"})
    lay(tmp_path, {"state/0/0/1.delta": "", "state/1/0/1.delta": "x"})
    assert put_aside("alert", tmp_path) is not None
    assert set(there(tmp_path / "spark")) == {
        "metadata",
        "offsets/0",
        "sources/0/0",
        "state/1/0/1.delta",
    }


def test_a_state_of_later_batches_without_their_logs_is_refused_by_name(tmp_path):
    lay(tmp_path, {"metadata": METADATA, "state/0/3/17.delta": "x"})
    with pytest.raises(Fatal, match=r"17\.delta is of batch 16, but no offsets of it are there"):
        put_aside("alert", tmp_path)
    assert "spark/state/0/3/17.delta" in there(tmp_path)


@given(done=st.integers(0, 300), extra=st.sets(st.sampled_from(range(len(LEFTOVERS)))))
def test_a_checkpoint_that_has_done_a_batch_is_left_as_it_is(tmp_path_factory, done, extra):
    folder = tmp_path_factory.mktemp("checkpoint")
    for number in extra:
        lay(folder, LEFTOVERS[number])
    lay(
        folder, {"metadata": METADATA, f"offsets/{done}": OFFSETS, f"commits/{done}": 'v1\n{"a":1}'}
    )
    before = there(folder)
    assert put_aside("alert", folder) is None
    assert there(folder) == before
