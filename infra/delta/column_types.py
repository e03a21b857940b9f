"""Types of columns as a table's declaration names them.

What reads tables without Spark knows them by these: to import Spark's takes longer than many
questions take to answer. A declaration may have Spark's as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql import types as T


class ColumnType(Protocol):
    """A type of this module or of Spark, whose names for these it has."""

    def simpleString(self) -> str:
        """As SQL has it, such as `array<string>`."""

    def jsonValue(self) -> Any:
        """As Delta's log has it."""


@dataclass(frozen=True)
class Simple:
    """A type without others inside."""

    json: str
    sql: str

    def simpleString(self) -> str:
        return self.sql

    def jsonValue(self) -> str:
        return self.json


@dataclass(frozen=True)
class ListOf:
    """A list."""

    element: ColumnType

    def simpleString(self) -> str:
        return f"array<{self.element.simpleString()}>"

    def jsonValue(self) -> dict[str, Any]:
        return {"type": "array", "elementType": self.element.jsonValue(), "containsNull": True}


@dataclass(frozen=True)
class MapOf:
    """A map."""

    key: ColumnType
    value: ColumnType

    def simpleString(self) -> str:
        return f"map<{self.key.simpleString()},{self.value.simpleString()}>"

    def jsonValue(self) -> dict[str, Any]:
        kinds = {"keyType": self.key.jsonValue(), "valueType": self.value.jsonValue()}
        return {"type": "map", **kinds, "valueContainsNull": True}


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    type: ColumnType


@dataclass(frozen=True)
class StructOf:
    """A struct, its fields in this order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        """Names of its fields."""
        return [field.name for field in self.fields]

    @property
    def spark(self) -> T.StructType:
        """The same as Spark has it."""
        return cast("T.StructType", spark_type(self))

    def simpleString(self) -> str:
        inside = (f"{field.name}:{field.type.simpleString()}" for field in self.fields)
        return f"struct<{','.join(inside)}>"

    def jsonValue(self) -> dict[str, Any]:
        fields = [
            {"name": field.name, "type": field.type.jsonValue(), "nullable": True, "metadata": {}}
            for field in self.fields
        ]
        return {"type": "struct", "fields": fields}


def spark_type(kind: ColumnType) -> T.DataType:
    """The type as Spark has it."""
    from pyspark.sql import types as T

    if isinstance(kind, T.DataType):
        return kind
    field = {"name": "", "type": kind.jsonValue(), "nullable": True, "metadata": {}}
    return T.StructField.fromJson(field).dataType
