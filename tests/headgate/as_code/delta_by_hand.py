"""Rows into a Delta table without Spark: a Parquet file and a commit, as the protocol has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.delta.parquet_writer import arrow_schema
from infra.delta.schema import Table


def append_rows(lake: Path, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows in one commit; columns that they lack are null."""
    folder = lake / table.path
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    schema = arrow_schema(table)
    whole = [{name: row.get(name) for name in schema.names} for row in rows]
    file = folder / f"part-{version}.parquet"
    pq.write_table(pa.Table.from_pylist(whole, schema=schema), file)
    actions: list[dict[str, Any]] = []
    if version == 0:
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": table.name, "format": {"provider": "parquet", "options": {}},
                          "schemaString": table.schema.json(), "partitionColumns": [],
                          "configuration": {}, "createdTime": 0}},
        ]  # fmt: skip
    added = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size,
             "modificationTime": 0, "dataChange": True,
             "stats": json.dumps({"numRecords": len(rows)})}  # fmt: skip
    actions.append({"add": added})
    lines = "\n".join(json.dumps(action) for action in actions)
    (log / f"{version:020}.json").write_text(lines)
