"""Delta tables written without Spark: their logs line by line, their rows by our own writer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from infra.delta.log_archive import LOG, single
from infra.delta.log_reader import newest_version
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.delta.schema import Table
from infra.storage.paths import Location, make


def define(folder: Location, table: Table, identity: str = "t-1") -> int:
    """A commit by which the table in a folder has these columns from now on; its version."""
    metadata = {
        "id": identity,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema.json(),
        "partitionColumns": [],
        "configuration": {},
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    begins = newest_version(folder) < 0
    return commit(folder, *(first if begins else []), {"metaData": metadata})


def add(folder: Location, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """A commit with rows; its version."""
    writer = FileWriter(Target.of(table, folder, "hand-"))
    writer.write(pa.RecordBatch.from_pylist([dict(row) for row in rows], arrow_schema(table)))
    file = writer.close()
    assert file is not None
    return commit(folder, json.loads(file.action()))


def commit(folder: Location, *actions: Mapping[str, Any]) -> int:
    """A commit of these actions; its version."""
    version = newest_version(folder) + 1
    info = {"commitInfo": {"timestamp": round(time.time() * 1000)}}
    make(folder / LOG)
    lines = [json.dumps(action) for action in (info, *actions)]
    single(folder / LOG, version).write_text("\n".join(lines))
    return version
