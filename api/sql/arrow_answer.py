"""What a statement gives as Arrow: the types that DuckDB has, where JSON has texts and numbers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # read at the first answer: most workers give JSON alone
    import duckdb
    import pyarrow as pa

_CHUNK = 1024
WIDE = ("HUGEINT", "UBIGINT")
"""128 bits and unsigned 64, which Spark lacks."""


def within_bigint(sql: str, described: list[tuple[str, str]]) -> str:
    """The statement with its wide columns as bigint; beyond it the statement fails, as in Spark.

    `described`: name and DuckDB's type of each column.
    """
    if not any(kind.upper() in WIDE for _, kind in described):
        # As a table all the same: a second column of a name is then called as in `described`.
        return f"SELECT * FROM ({sql})"
    names = ['"' + name.replace('"', '""') + '"' for name, _ in described]
    # By place: two columns may have one name.
    places = [f'"c{number}"' for number in range(len(names))]
    chosen = ", ".join(
        f"CAST({place} AS BIGINT) AS {name}" if kind.upper() in WIDE else f"{place} AS {name}"
        for place, name, (_, kind) in zip(places, names, described, strict=True)
    )
    return f"SELECT {chosen} FROM ({sql}) AS asked({', '.join(places)})"


def arrow_answer(
    connection: duckdb.DuckDBPyConnection, sql: str, max_rows: int, max_bytes: int
) -> dict[str, Any]:
    """Run one SELECT; its answer as an Arrow stream in base64, cut at either limit and marked so.

    With `max_rows` 0 the stream has the schema alone, and no row is read.
    """

    if max_rows == 0:
        schema = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0").fetch_record_batch().schema
        return cut_stream(schema, [], 0, max_bytes)
    # In small pieces, so that the limit on bytes holds before all rows are in memory.
    reader = connection.execute(sql).fetch_record_batch(_CHUNK)
    return cut_stream(reader.schema, reader, max_rows, max_bytes)


def cut_stream(
    schema: pa.Schema, pieces: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int
) -> dict[str, Any]:
    """Batches as an Arrow stream in base64, cut at either limit and marked so."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    cut = None
    for piece in pieces:
        size += piece.nbytes
        if size > max_bytes:
            cut = "bytes"
            break
        left = max_rows - rows
        batches.append(piece.slice(0, left))
        rows += min(left, piece.num_rows)
        if piece.num_rows > left:
            cut = "rows"
            break
    return {"arrow": _stream(schema, batches), "rows": rows, "truncated_by": cut}


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode("ascii")
