"""Types of columns are those of Spark, and known without it."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from infra.delta.catalog import catalog
from infra.delta.column_types import ListOf, MapOf, spark_type
from infra.delta.plain_files import duck_type
from infra.delta.schema import BYTES, STRINGS, TS, B, Column, D, L, N, S, Table, struct

KINDS = [
    (S, T.StringType()),
    (N, T.IntegerType()),
    (L, T.LongType()),
    (B, T.BooleanType()),
    (D, T.DoubleType()),
    (TS, T.TimestampType()),
    (BYTES, T.BinaryType()),
    (STRINGS, T.ArrayType(T.StringType())),
    (MapOf(S, L), T.MapType(T.StringType(), T.LongType())),
    (
        ListOf(struct(name=S, at=TS)),
        T.ArrayType(
            T.StructType(
                [T.StructField("name", T.StringType()), T.StructField("at", T.TimestampType())]
            )
        ),
    ),
]


@pytest.mark.parametrize(("ours", "sparks"), KINDS, ids=lambda kind: kind.simpleString())
def test_a_type_is_spelled_as_spark_spells_it(ours, sparks: T.DataType) -> None:
    assert spark_type(ours) == sparks
    assert ours.simpleString() == sparks.simpleString()
    assert ours.jsonValue() == sparks.jsonValue()
    assert duck_type(ours) == duck_type(sparks)


def test_a_declaration_may_have_types_of_spark() -> None:
    table = Table("silver.mixed", "both", (Column("n", T.LongType(), "a number"),))
    assert table.schema == T.StructType(
        [T.StructField("n", T.LongType(), metadata={"comment": "a number"})]
    )


def test_every_table_has_a_schema_of_spark() -> None:
    for table in catalog().values():
        assert [f.dataType.simpleString() for f in table.schema] == [
            column.type.simpleString() for column in table.columns
        ], table.name
