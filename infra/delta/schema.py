"""What a table is: a name, its columns with a doc for each, and how it is laid out.

The folder that writes a table declares it in its own `tables.py`. The docs
feed `headgate tables`, the API's catalogue and `docs/reference/tables.md`, so they are
written for an analyst.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import types as T

from infra.errors import Fatal, Usage

S, N, L, B, _D, TS = (
    T.StringType(),
    T.IntegerType(),
    T.LongType(),
    T.BooleanType(),
    T.DoubleType(),
    T.TimestampType(),
)
"""The types of columns by short names: a table's declaration is read by its names and docs."""
STRINGS = T.ArrayType(S)


@dataclass(frozen=True)
class Column:
    """One column: its Spark type and what it tells an analyst."""

    name: str
    type: T.DataType
    doc: str
    required: bool = True


def path_of(name: str) -> str:
    """Path of a table below the lake's root: `silver.event` lies in `silver/event`."""
    return name.replace(".", "/")


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
        return T.StructType(
            [T.StructField(c.name, c.type, True, {"comment": c.doc}) for c in self.columns]
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


def struct(**fields: T.DataType) -> T.StructType:
    """A struct type, its fields in the order given."""
    return T.StructType([T.StructField(name, kind, True) for name, kind in fields.items()])


@dataclass(frozen=True)
class Declared:
    """The tables and views that one package writes, in an order in which they can be made."""

    tables: tuple[Table, ...]
    views: tuple[View, ...] = ()


_DECLARED: dict[str, Callable[[], Declared]] = {}


def register_tables(package: str, declared: Callable[[], Declared]) -> None:
    """Make a package's tables known; `declared` is called when somebody asks for the catalogue."""
    _DECLARED[package] = declared


def _declared() -> tuple[Callable[[], Declared], ...]:
    # Half a catalogue would leave tables out of backups and erasures without a word.
    if not _DECLARED:
        raise Fatal("no package has registered its tables; import headgate.packages first")
    return tuple(_DECLARED.values())


def catalog() -> dict[str, Table]:
    """Every table of the platform, by name."""
    return {t.name: t for declared in _declared() for t in declared().tables}


def views() -> dict[str, View]:
    """Every view of the platform, by name, in an order in which they can be made."""
    return {v.name: v for declared in _declared() for v in declared().views}


def table(name: str) -> Table:
    """The table called `name`; raises `Usage` with the known names."""
    known = catalog()
    if name not in known:
        raise Usage(f"no table '{name}'; there are {', '.join(sorted(known))}")
    return known[name]
