"""What a table is: a name, its columns with a doc for each, and how it is laid out.

The folder that writes a table declares it in its own `tables.py`. The docs
feed `headgate tables`, the API's catalogue and `docs/reference/tables.md`, so they are
written for an analyst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.delta.column_types import ColumnType, Field, ListOf, Simple, StructOf, spark_type
from infra.storage.paths import path_of

if TYPE_CHECKING:
    from pyspark.sql import types as T

S, N, L, B, D, TS, BYTES = (
    Simple("string", "string"),
    Simple("integer", "int"),
    Simple("long", "bigint"),
    Simple("boolean", "boolean"),
    Simple("double", "double"),
    Simple("timestamp", "timestamp"),
    Simple("binary", "binary"),
)
"""The types of columns by short names: a table's declaration is read by its names and docs."""
STRINGS = ListOf(S)


@dataclass(frozen=True)
class Column:
    """One column: its type and what it tells an analyst."""

    name: str
    type: ColumnType
    doc: str
    required: bool = True


TENANT = Column(
    "tenant_uid", S, "whose log it is, by the way it came in (`tenants`); null: nobody's", False
)
"""What keys are limited by. Never read from a log: whoever writes one could name another."""


@dataclass(frozen=True)
class Table:
    """A Delta table, addressed by its path `<lake>/<layer>/<name>`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    event_time: str | None = None
    key: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    codec: str = "snappy"
    """How its files are compressed; `zstd` where few columns have most of the bytes and are seldom
    read (decision 0043)."""
    zstd: tuple[str, ...] = ()
    """Columns compressed with zstd, whatever `codec` is for the others: long texts that repeat
    (decision 0043)."""
    expires: str | None = None
    """The setting of `retention` that says after how many days rows go. By arrival (the column
    `received_at`), else by when their file was written; None: never."""
    kept: timedelta = timedelta(0)
    """How long files of former versions stay at least, whatever the settings say."""
    rewritten: timedelta | None = None
    """The same at most, of a table whose newest files each batch writes anew and that nobody
    streams: for readers that are at work."""

    @property
    def schema(self) -> T.StructType:
        """The table's Spark schema, each column carrying its doc as comment."""
        from pyspark.sql import types as T

        return T.StructType(
            [
                T.StructField(c.name, spark_type(c.type), True, {"comment": c.doc})
                for c in self.columns
            ]
        )

    @property
    def path(self) -> str:
        """Path below the lake's root."""
        return path_of(self.name)


@dataclass(frozen=True)
class View:
    """A named question over tables, in SQL that both Spark and DuckDB read.

    `sql` names tables and views as `layer.name`.
    """

    name: str
    doc: str
    sql: str


def struct(**fields: ColumnType) -> StructOf:
    """A struct type, its fields in the order given."""
    return StructOf(tuple(Field(name, kind) for name, kind in fields.items()))
