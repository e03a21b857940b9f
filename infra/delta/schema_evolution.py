"""What a release adds to tables that an earlier one made: columns, and fields inside of them.

Additions are all that is ever done: a column keeps its name and type for good, and one that
a release no longer writes stays. So a table serves the release that made it, the next one,
and again the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from infra.delta.log_reader import metadata_of
from infra.delta.schema import Table
from infra.errors import Fatal
from infra.storage.paths import Location


@dataclass(frozen=True)
class Addition:
    """A column, or a field of one, that a table lacks: its path and type as SQL has them."""

    path: tuple[str, ...]
    type: T.DataType
    doc: str

    @property
    def name(self) -> str:
        """As a person says it: `holder.certainty`."""
        return ".".join(self.path)

    @property
    def sql(self) -> str:
        """As `ALTER TABLE ... ADD COLUMNS` takes it."""
        path = ".".join("`" + part.replace("`", "``") + "`" for part in self.path)
        doc = self.doc.replace("\\", "\\\\").replace("'", "\\'")
        return f"{path} {self.type.simpleString()}" + (f" COMMENT '{doc}'" if doc else "")


def schema_of(folder: Location) -> T.StructType:
    """The schema of the table in `folder`, as its log has it now."""
    return schema(described(folder))


def schema(described: Mapping[str, Any]) -> T.StructType:
    """The schema in a table's `metaData`."""
    return T.StructType.fromJson(json.loads(described["schemaString"]))


def described(folder: Location) -> dict[str, Any]:
    """The newest `metaData` of the table in `folder`. Raises `Fatal` where its log lacks it."""
    table_metadata = metadata_of(folder)
    if table_metadata is None:
        raise Fatal(
            f"{folder}: its log has neither its first commit nor a checkpoint; put _delta_log back "
            "from a backup"
        )
    return table_metadata


def additions(table: Table, stored: T.StructType) -> tuple[Addition, ...]:
    """What a table's declaration has and its schema `stored` lacks.

    Raises `Fatal`, naming each, for columns whose type is another one.
    """
    added: list[Addition] = []
    other: list[str] = []
    for difference in _differences((), table.schema, stored):
        added.append(difference) if isinstance(difference, Addition) else other.append(difference)
    if other:
        raise Fatal(
            f"{table.name}: was made with other types than this release writes: "
            f"{'; '.join(other)}; go back to the release that made it, or start with an empty lake"
        )
    return tuple(added)


def unknown(table: Table, stored: T.StructType) -> tuple[str, ...]:
    """Columns of a table that this release does not declare, as after a step back."""
    declared = set(table.schema.fieldNames())
    return tuple(name for name in stored.fieldNames() if name not in declared)


def _differences(
    path: tuple[str, ...], declared: T.StructType, stored: T.StructType
) -> Iterator[Addition | str]:
    have = {field.name: field for field in stored.fields}
    for field in declared.fields:
        here = (*path, field.name)
        if field.name not in have:
            yield Addition(here, field.dataType, field.metadata.get("comment", ""))
        else:
            yield from _inside(here, field.dataType, have[field.name].dataType)


def _inside(
    path: tuple[str, ...], declared: T.DataType, stored: T.DataType
) -> Iterator[Addition | str]:
    if isinstance(declared, T.StructType) and isinstance(stored, T.StructType):
        yield from _differences(path, declared, stored)
    elif isinstance(declared, T.ArrayType) and isinstance(stored, T.ArrayType):
        # `element`, `key` and `value` are Delta's names for the inside of lists and maps.
        yield from _inside((*path, "element"), declared.elementType, stored.elementType)
    elif isinstance(declared, T.MapType) and isinstance(stored, T.MapType):
        yield from _inside((*path, "key"), declared.keyType, stored.keyType)
        yield from _inside((*path, "value"), declared.valueType, stored.valueType)
    elif declared != stored:
        yield (
            f"column {'.'.join(path)} is {stored.simpleString()} there, "
            f"{declared.simpleString()} here"
        )
