"""Files that were taken and could not be read: gone, changed or away when a worker came to them.

What `ingest.pipeline.file_scanner` takes, it takes for the content; here that is taken back, with a
row of ops.file, so that the content is taken wherever it turns up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from infra.storage.paths import to_read
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from ingest.decoding.decoding import REFUSED
from ingest.tables import RECORD
from ingest.tables_quality import LANDED

TAKEN, RENAMED, UNREAD = "taken", "renamed", "unread"


def instead(entry: Mapping[str, Any]) -> str:
    """What names a file's record in place of its content, when that was not read.

    When it was found: it may be found again, and not read again.
    """
    result: datetime = entry["found_at"]
    return f"{result.timestamp():.6f}"


def refusals(lake: Lake, run: Batch) -> dict[str, str]:
    """Why files of a batch were refused in reading them, by the id of the record that says so."""
    if not run.counts.get("dead"):
        return {}
    result: dict[str, str] = {}
    # A refusal has no bytes, so Parquet's statistics pass over most of a batch's files.
    empty = pc.field("raw") == pa.scalar(b"", pa.binary())
    for file in lake.files_of(RECORD, run.versions[RECORD.name]):
        rows = pq.read_table(to_read(file), columns=["record_id", "headers"], filters=empty)
        for row in rows.to_pylist():
            message = {header["key"]: header["value"] for header in row["headers"] or ()}
            if REFUSED in message:
                result[row["record_id"]] = message[REFUSED].decode("utf-8", "replace")
    return result


def take_back(
    lake: Lake, entries: Sequence[Mapping[str, Any]], refused: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Note in ops.file which files of a batch nothing was read of; these."""
    unread = [
        {**entry, "found_at": datetime.now(UTC), "state": UNREAD, "reason": why}
        for entry in entries
        if entry["state"] == TAKEN
        and (why := refused.get(f"{entry['path']}:{instead(entry)}:0")) is not None
    ]
    if unread:
        rows = [tuple(row[column.name] for column in LANDED.columns) for row in unread]
        frame = lake.spark.createDataFrame(rows, LANDED.schema).coalesce(1)
        with lake.alone(LANDED):
            frame.write.format("delta").mode("append").save(lake.path(LANDED))
    return list(unread)


def lost(files: DataFrame) -> DataFrame:
    """Hashes of contents, of rows of ops.file, that were taken and read nowhere."""
    last = F.max_by("state", "found_at").alias("last")
    agg = files.where(F.col("state").isin(TAKEN, UNREAD)).groupBy("path", "hash").agg(last)
    everywhere = F.bool_and(F.col("last") == UNREAD).alias("unread")
    return agg.groupBy("hash").agg(everywhere).where("unread").select("hash")
