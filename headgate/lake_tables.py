"""Tables and views by name, each with what it tells an analyst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from headgate.result import QueryResult
from infra.delta.schema import Table, View
from infra.errors import Usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Asked(Protocol):
    """What answers for the tables: an open `Headgate`."""

    @property
    def spark(self) -> SparkSession: ...

    def sql(self, text: str, *, max_rows: int = ...) -> QueryResult: ...


class LakeTable:
    """A table or view of the lake: what it is, and its rows."""

    def __init__(self, lake: _Asked, declared: Table | View) -> None:
        self._lake = lake
        self._declared = declared
        self.name = declared.name
        self.doc = declared.doc

    @property
    def columns(self) -> dict[str, str]:
        """What each column means, by name; of a view, the names that its rows have."""
        if isinstance(self._declared, Table):
            return {column.name: column.doc for column in self._declared.columns}
        # A view declares no columns; DuckDB knows them once it has bound the query.
        return dict.fromkeys(self._lake.sql(f"SELECT * FROM {self.name} LIMIT 1").columns, "")

    def read(self, where: str | None = None, *, limit: int = 10_000) -> QueryResult:
        """Its rows by DuckDB, at most `limit`; `where`: a condition in Spark SQL."""
        condition = f" WHERE {where}" if where else ""
        return self._lake.sql(f"SELECT * FROM {self.name}{condition}", max_rows=limit)

    def spark(self) -> DataFrame:
        """The rows as a Spark DataFrame, which reads them when it is asked for something."""
        return self._lake.spark.table(self.name)

    def __repr__(self) -> str:
        return f"{self.name}: {self.doc}"


class LakeTables(Mapping[str, LakeTable]):
    """Tables or views by name. `hg.tables["silver.event"]`; printed, it lists them."""

    def __init__(self, lake: _Asked, declared: Mapping[str, Table] | Mapping[str, View]) -> None:
        self._all = {name: LakeTable(lake, each) for name, each in declared.items()}

    def __getitem__(self, name: str) -> LakeTable:
        if name not in self._all:
            raise Usage(f"no '{name}'; there are {', '.join(sorted(self._all))}")
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        # `Mapping` would call `__getitem__`, which raises our own error and not `KeyError`.
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._all.values()))
