"""Events with the assets and the user they are about, as both were when it happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from enrich.assets.index import AssetIndex, index_of, text_or_none
from enrich.assets.index_store import index_file, latest_index
from enrich.tables_assets import ASSET, PERSON
from infra.streaming.lake import Lake

_ADDED = T.StructType(
    [
        T.StructField("src_asset", ASSET.spark),
        T.StructField("dst_asset", ASSET.spark),
        T.StructField("host_asset", ASSET.spark),
        T.StructField("person", PERSON.spark),
    ]
)
"""What `with_assets` adds: where it came from, where it went, the machine that logged it, and
who acted."""

_Batches = Iterator[pa.RecordBatch]
_Cells = dict[str, list[Any]]

_READ = {
    "time": ("time",),
    "scope": ("scope",),
    "src_mac": ("src_endpoint", "mac"),
    "src_name": ("src_endpoint", "hostname"),
    "src_ip": ("src_ip",),
    "dst_mac": ("dst_endpoint", "mac"),
    "dst_name": ("dst_endpoint", "hostname"),
    "dst_ip": ("dst_ip",),
    "host_mac": ("device", "mac"),
    "host_name": ("host_name",),
    "host_ip": ("device", "ip"),
    "user": ("user_name",),
    "domain": ("user", "domain"),
    "uid": ("user", "uid"),
    "mail": ("user", "email_addr"),
    "holder_mac": ("holder", "mac"),
    "holder_name": ("holder", "hostname"),
}
"""Cells that decide, and where an event has them; one that is missing counts as null."""


def with_assets(lake: Lake, events: DataFrame, versions: str | None = None) -> DataFrame:
    """Rows of silver.event with `src_asset`, `dst_asset`, `host_asset` and `person` at their time.

    Stateless: batch or stream (which keeps the versions that it began with). `versions`: those
    of the tables, as `asset_store.newest` names them; none: the newest. Where the rows have a
    `holder` (`enrich.tables.HOLDER`), the device that held the source address decides before
    what the event itself says of it. What no inventory knows is null.
    """
    file = index_file(lake, versions or latest_index(lake))
    schema = T.StructType([*events.schema.fields, *_ADDED.fields])
    return events.mapInArrow(_joiner(file), schema)


def _joiner(file: str | None) -> Callable[[_Batches], _Batches]:
    added = to_arrow_schema(_ADDED, timezone="UTC")

    def join(batches: _Batches) -> _Batches:
        for batch in batches:
            # Opened in the worker: a connection to SQLite does not pickle.
            index = index_of(file) if file else None
            match_rows = _matches(batch, index)
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    *(pa.array(match_rows[field.name], field.type) for field in added),
                ],
                names=[*batch.schema.names, *added.names],
            )

    return join


def _matches(batch: pa.RecordBatch, index: AssetIndex | None) -> _Cells:
    """The columns of `ADDED` for a batch of events."""
    if index is None:
        return {field.name: [None] * batch.num_rows for field in _ADDED}
    cells = {name: _cells(batch, path) for name, path in _READ.items()}
    rows = zip(*cells.values(), strict=True)
    match_rows = [_match(index, dict(zip(cells, row, strict=True))) for row in rows]
    names = _ADDED.fieldNames()
    return {
        name: [match_row[position] for match_row in match_rows]
        for position, name in enumerate(names)
    }


def _match(index: AssetIndex, row: dict[str, Any]) -> Sequence[dict[str, Any] | None]:
    time = row["time"]
    if time is None:
        return (None,) * len(_ADDED)
    scope, holder = row["scope"], row["holder_mac"]
    return (
        index.asset(
            time,
            mac=holder or row["src_mac"],
            hostname=row["holder_name"] if holder else row["src_name"],
            ip=row["src_ip"],
            scope=scope,
            leased=holder is not None,
        ),
        index.asset(
            time, mac=row["dst_mac"], hostname=row["dst_name"], ip=row["dst_ip"], scope=scope
        ),
        index.asset(
            time, mac=row["host_mac"], hostname=row["host_name"], ip=row["host_ip"], scope=scope
        ),
        index.user(time, row["user"], domain=row["domain"], uid=row["uid"], mail=row["mail"]),
    )


def _cells(batch: pa.RecordBatch, path: Sequence[str]) -> list[Any]:
    """The values of a column, or of a field in a struct; nulls where there is no such field."""
    column = batch.column(path[0]) if path[0] in batch.schema.names else None
    for name in path[1:]:
        fields = [] if column is None else [field.name for field in column.type]
        column = pc.struct_field(column, name) if name in fields else None
    if column is None:
        return [None] * batch.num_rows
    if pa.types.is_timestamp(column.type):
        # Microseconds since 1970, as the index has its instants.
        return list(pc.cast(pc.cast(column, pa.timestamp("us", "UTC")), pa.int64()).to_pylist())
    return [text_or_none(value) for value in column.to_pylist()]
