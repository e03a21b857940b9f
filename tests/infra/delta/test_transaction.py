"""Files appended by an entry of the log that we write ourselves: Delta goes on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from infra.config.settings import load
from infra.delta import transaction
from infra.delta.log_reader import commit, newest_version
from infra.delta.parquet_writer import DataFile, FileWriter, Target
from infra.delta.schema import Column, Table
from infra.delta.tables import DeltaTables
from infra.delta.transaction import CHECKPOINTS, DESCRIBED_VERSIONS, commit_files
from infra.errors import Fatal
from infra.spark.internals import delta_log, forget_tables, java
from infra.storage.checksums import sums_file

NUMBERS = Table(
    "silver.number",
    "Numbers.",
    (Column("n", T.LongType(), "a number"),),
    stats=("n",),
    properties={"delta.checkpointInterval": "5"},
)
NO_SPARK = cast(SparkSession, None)
"""Whoever asks Delta with it fails."""


def summary(**other: Any) -> dict[str, Any]:
    """What Delta writes of a new table's first version."""
    return {
        "txnId": "a",
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": {
            "id": "t",
            "partitionColumns": [],
            "configuration": {"delta.checkpointInterval": "3"},
        },
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["appendOnly", "invariants"],
        },
        "fileSizeHistogram": {
            "sortedBinBoundaries": [0, 100, 1000],
            "fileCounts": [0, 0, 0],
            "totalBytes": [0, 0, 0],
        },
    } | other


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {}}\n')
    (log / f"{0:020d}.crc").write_text(json.dumps(summary()))
    return tmp_path / "t"


def file(size: int) -> DataFile:
    return DataFile("t", f"{size}.parquet", size, 2, 1, '{"numRecords": 2}')


def test_an_append_is_the_logs_next_entry_and_what_is_said_of_the_version(folder: Path) -> None:
    version = commit_files(NO_SPARK, str(folder), [file(99), file(100)], '{"job": "j"}')
    written = commit(folder, 1)
    assert (version, written.version, written.rows, written.bytes) == (1, 1, 4, 199)
    assert (written.adds, written.marker) == (("99.parquet", "100.parquet"), {"job": "j"})
    assert written.appends
    sums = json.loads((folder / "_delta_log" / f"{1:020d}.crc").read_text())
    assert (sums["tableSizeBytes"], sums["numFiles"]) == (199, 2)
    assert sums["fileSizeHistogram"]["fileCounts"] == [1, 1, 0]
    assert sums["fileSizeHistogram"]["totalBytes"] == [99, 100, 0]
    assert (
        sorted(path.name for path in (folder / "_delta_log").iterdir() if "tmp" in path.name) == []
    )


def test_what_is_said_of_versions_stays_for_the_newest_alone(folder: Path) -> None:
    log = folder / "_delta_log"
    seldom = summary()["metadata"] | {"configuration": {"delta.checkpointInterval": "1000"}}
    (log / f"{0:020d}.crc").write_text(json.dumps(summary(metadata=seldom)))
    last = DESCRIBED_VERSIONS + 4
    for _ in range(last):
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    said = sorted(int(path.stem) for path in log.glob("0*.crc"))
    assert said == list(range(last - DESCRIBED_VERSIONS + 1, last + 1))
    # Each with its checksum; the commits and theirs are all there.
    assert len(list(log.glob(".*.crc.crc"))) == DESCRIBED_VERSIONS
    assert len(list(log.glob("0*.json"))) == last + 1
    assert len(list(log.glob(".*.json.crc"))) == last


def test_a_byte_that_turned_in_our_entry_is_seen(folder: Path) -> None:
    commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    entry = folder / "_delta_log" / f"{1:020d}.json"
    entry.write_text(entry.read_text().replace("99.parquet", "98.parquet"))
    with pytest.raises(Fatal, match="checksum says otherwise"):
        commit(folder, 1)


def test_where_no_entry_can_be_linked_delta_commits_and_nothing_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(transaction.os, "link", refuse)
    with pytest.raises(AttributeError):  # Delta is asked, which is not here
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    log = folder / "_delta_log"
    assert sorted(path.name for path in log.iterdir()) == [f"{0:020d}.crc", f"{0:020d}.json"]


def test_sums_are_as_hadoop_writes_them() -> None:
    # CRC-32 of "a" and of "b", for parts of one byte.
    assert sums_file(b"ab", 1).hex() == "63726300" + "00000001" + "e8b7be43" + "71beeff9"


@pytest.mark.parametrize(
    "other",
    [
        {"inCommitTimestampOpt": 1},
        {"protocol": {"minWriterVersion": 7, "writerFeatures": ["rowTracking"]}},
        {"protocol": {"minWriterVersion": 4}},
        {"metadata": {"id": "t", "partitionColumns": ["day"], "configuration": {}}},
    ],
)
def test_a_table_that_asks_for_more_is_left_to_delta(folder: Path, other: dict[str, Any]) -> None:
    (folder / "_delta_log" / f"{0:020d}.crc").write_text(json.dumps(summary(**other)))
    with pytest.raises(AttributeError):  # Delta is asked, which is not here
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    assert newest_version(folder) == 0


def test_delta_commits_where_a_checkpoint_is_due_or_nothing_is_said_of_the_version(
    folder: Path,
) -> None:
    for _ in range(2):
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    with pytest.raises(AttributeError):
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")
    assert newest_version(folder) == 2, "the third would be a checkpoint"
    (folder / "_delta_log" / f"{3:020d}.json").write_text('{"commitInfo": {}}\n')
    with pytest.raises(AttributeError):
        commit_files(NO_SPARK, str(folder), [file(99)], "{}")


@pytest.mark.full
def test_delta_reads_our_entries_and_goes_on_from_them(spark: SparkSession, tmp_path: Path) -> None:
    lake = DeltaTables(spark, load(home=tmp_path)).ensure(NUMBERS)
    path, number = lake.path(NUMBERS), 0

    def append() -> str | None:
        nonlocal number
        writer = FileWriter(Target.of(NUMBERS, lake.folder(NUMBERS), "j-"))
        writer.write(pa.RecordBatch.from_pydict({"n": [number]}))
        number += 1
        done = writer.close()
        assert done is not None
        version = commit_files(spark, path, [done], "{}")
        text = (lake.folder(NUMBERS) / "_delta_log" / f"{version:020d}.json").read_text()
        info: dict[str, Any] = json.loads(text.splitlines()[0])["commitInfo"]
        return str(info["engineInfo"])

    engines = [append() for _ in range(6)]
    # The first behind Delta's own description of an empty table, the fifth for its checkpoint.
    assert [engine == "Headgate" for engine in engines[1:]] == [True, True, True, False, True]
    log = lake.folder(NUMBERS) / "_delta_log"
    assert [file.name for file in log.glob("*.checkpoint.parquet")] == [
        f"{5:020d}.checkpoint.parquet"
    ]
    assert _numbers(lake) == list(range(6))
    assert _sound(spark, path).numOfFiles() == 6
    forget_tables(spark)
    assert _sound(spark, path).numOfFiles() == 6

    CHECKPOINTS.begin(spark)
    assert [append() for _ in range(4)] == ["Headgate"] * 4
    CHECKPOINTS.stop(60)
    assert (log / f"{10:020d}.checkpoint.parquet").exists()
    DeltaTable.forPath(spark, path).delete("n = 0")
    assert append() == "Headgate"
    assert _numbers(lake) == list(range(1, 11))
    assert _sound(spark, path).version() == 12


def _numbers(lake: DeltaTables) -> list[int]:
    return sorted(row.n for row in lake.read(NUMBERS).collect())


def _sound(spark: SparkSession, path: str) -> Any:
    """The newest snapshot; what was said of the version is compared with what its log has."""
    snapshot = delta_log(spark, path).startTransaction().snapshot()
    nothing = java(spark, "scala.collection.immutable.Map$EmptyMap$")
    assert snapshot.validateChecksum(getattr(nothing, "MODULE$"))
    return snapshot
