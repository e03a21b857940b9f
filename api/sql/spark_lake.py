"""The lake's tables and views in the Spark session that answers statements.

Everything lies in schemas of its own (`lake_silver.event`), which a statement may not name. Under
the names that people know stand views over it, of what one caller may see: with the rows of some
sources or tenants alone, where the caller's key is limited to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.delta.catalog import catalog, views
from infra.delta.log_reader import newest_version
from infra.storage.paths import Location, location

if TYPE_CHECKING:
    # Read by the process of Spark alone: `headgate sql` and the API start without it.
    from pyspark.sql import SparkSession

    from api.sql.translation import RowLimits

_OWN = "lake_"


def described_lake(root: Location) -> dict[str, Any]:
    """Tables and views of the catalogue as `SparkLake` takes them, in JSON."""
    tables = {
        table.name: {
            "folder": str(root / table.path),
            "columns": [[field.name, field.dataType.simpleString()] for field in table.schema],
        }
        for table in catalog().values()
    }
    return {"tables": tables, "views": {view.name: view.sql for view in views().values()}}


class SparkLake:
    """The names of one session. They come as statements name them: each costs a look at its log."""

    def __init__(self, spark: SparkSession, described: Mapping[str, Any]) -> None:
        """`described`: what `described_lake` told."""
        self._spark = spark
        self._columns: dict[str, list[str]] = {}
        self._shown: dict[str, RowLimits | None] = {}
        self._tables, self._views = described["tables"], described["views"]
        names = [*self._tables, *self._views]
        for layer in sorted({name.partition(".")[0] for name in names}):
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {layer}")
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {_OWN}{layer}")
        # Longest first, as `silver.event` is also how `silver.events` begins.
        ordered = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._known = re.compile(rf"\b({ordered})\b", re.IGNORECASE)

    def show(self, statement: str, rows: RowLimits | None) -> None:
        """Put a caller's views under all names that a statement has.

        `rows`: of each table the condition of what it shows; others are not shown, nor are views
        that rest on them. What the lake does not have yet is not there.
        """
        # What an earlier caller saw goes first: no name may be left with another's rows.
        for name in [name for name, shown in self._shown.items() if shown != rows]:
            self._spark.sql(f"DROP VIEW IF EXISTS {name}")
            del self._shown[name]
        for name in sorted({name.lower() for name in self._names_in(statement.replace("`", ""))}):
            self._show(name, rows)

    def _show(self, name: str, rows: RowLimits | None) -> bool:
        """Make the caller's view of this name; False: there is none for this caller."""
        if name in self._shown:
            return True
        if not self._take_in(name):
            return False
        chosen = f"SELECT * FROM {_OWN}{name}"
        if rows is not None:
            # What stands in these under the names that people know is the caller's, too.
            text = self._views.get(name) if name in self._views else rows.get(name)
            if text is None or not all(self._show(each, rows) for each in self._names_in(text)):
                return False
            chosen = text if name in self._views else f"{chosen} WHERE {text}"
        self._spark.sql(f"CREATE VIEW {name} AS {chosen}")
        self._shown[name] = rows
        return True

    def _names_in(self, text: str) -> list[str]:
        return sorted(set(self._known.findall(text)))

    def _take_in(self, name: str) -> bool:
        """Make a table or view known with all that it rests on; False: the lake lacks it."""
        if name in self._columns:
            return True
        if name in self._tables:
            return self._take_in_table(name, **self._tables[name])
        text = self._views[name]
        if not all(self._take_in(each) for each in self._names_in(text)):
            return False
        written = self._known.sub(lambda named: f"{_OWN}{named[0]}", text)
        self._spark.sql(f"CREATE VIEW {_OWN}{name} AS {written}")
        self._columns[name] = self._spark.table(f"{_OWN}{name}").columns
        return True

    def _take_in_table(self, name: str, folder: str, columns: Sequence[Sequence[str]]) -> bool:
        if newest_version(location(folder)) < 0:
            return False
        files = f"{_OWN}{name}_files"
        self._spark.sql(f"CREATE TABLE {files} USING DELTA LOCATION {_text(folder)}")
        have = self._spark.table(files).schema.names
        # A column that an earlier release did not have yet is null, as in DuckDB's views.
        chosen = [
            f"`{column}`" if column in have else f"CAST(NULL AS {kind}) AS `{column}`"
            for column, kind in columns
        ]
        self._spark.sql(f"CREATE VIEW {_OWN}{name} AS SELECT {', '.join(chosen)} FROM {files}")
        self._columns[name] = [column for column, _ in columns]
        return True


def is_hidden_schema(schema: str) -> bool:
    """Whether a schema is one of those that a statement may not name."""
    return schema.startswith(_OWN)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
