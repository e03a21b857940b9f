"""What the stock Spark side of the comparison shares: rows of silver.event from column expressions.

Where one regular expression has many groups, `captured` runs it once and splits what it
found; `regexp_extract` would run it again for each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.delta.column_types import spark_type
from ingest.tables import EVENT

MALFORMED = "malformed record"
OBSERVED = {
    1: "Hostname",
    2: "IP Address",
    3: "MAC Address",
    4: "User Name",
    6: "URL String",
    10: "Resource UID",
    13: "Command Line",
    16: "HTTP User-Agent",
    19: "User Credential ID",
}
SEVERITY = ("Unknown", "Informational", "Low", "Medium", "High", "Critical", "Fatal")
BETWEEN = "\x01"
"""Stands between what `captured` found; no log line has it."""


def silver(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    """All columns of silver.event, those not given null."""
    return rows.select(
        *[
            given.get(c.name, F.lit(None)).cast(spark_type(c.type)).alias(c.name)
            for c in EVENT.columns
        ]
    )


def identity(good: Column, time: Column, quality: Column) -> dict[str, Column]:
    """What every row has, a dead letter too. Needs `dead_letter_reason`."""
    return {
        "event_uid": F.concat("record_id", F.lit("#0")),
        "record_ids": F.array("record_id"),
        "dead_letter_reason": F.col("dead_letter_reason"),
        "source": F.col("source"),
        "mode": F.col("mode"),
        "time": F.when(good, time).otherwise(F.col("received_at")),
        "received_at": F.col("received_at"),
        "time_quality": F.when(good, quality).otherwise("received"),
        "scope": F.when(good, "default"),
    }


def classified(
    class_uid: Column, activity: Column, severity: Column, names: Mapping[int, str]
) -> dict[str, Column]:
    """The columns that follow from class, activity and severity. 0 stands for none."""
    return {
        "class_uid": class_uid,
        "class_name": lookup(names, class_uid),
        "category_uid": F.floor(class_uid / 1000).cast("int"),
        "activity_id": activity,
        "type_uid": class_uid.cast("long") * 100 + activity,
        "severity_id": severity,
        "severity": F.get(F.array(*[F.lit(name) for name in SEVERITY]), severity),
    }


def status_of(status: Column) -> dict[str, Column]:
    """`status_id` and its name."""
    named = F.when(status == 1, "Success").when(status == 2, "Failure")
    return {"status_id": status, "status": named.when(status == 0, "Unknown")}


def lookup(values: Mapping[Any, Any], key: Column) -> Column:
    """The value of a key, null where there is none."""
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    return F.try_element_at(F.create_map(*pairs), key)


def struct(path: str, /, **given: Column) -> Column:
    """A struct of silver.event with all its fields, those not given null."""
    return F.struct(
        *[given.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in _kind(path)]
    )


def _kind(path: str) -> T.StructType:
    """The struct at `path` in silver.event."""
    found: Any = EVENT.schema
    for name in path.split("."):
        found = found[name].dataType
    return found if isinstance(found, T.StructType) else T.StructType()


def product(name: str, vendor: str) -> Column:
    """The product of an event's metadata."""
    return struct("metadata.product", name=F.lit(name), vendor_name=F.lit(vendor))


def observables(*found: tuple[str, int, Column]) -> Column:
    """Observables from (path, type, value), without the empty ones; null if there is none."""
    made = F.array_compact(
        F.array(
            *[
                F.when(value != "", observable(name, type_id, value))
                for name, type_id, value in found
            ]
        )
    )
    return F.when(F.size(made) > 0, made)


def observable(name: str, type_id: int, value: Column) -> Column:
    """One observable."""
    return F.struct(
        F.lit(name).alias("name"),
        F.lit(OBSERVED[type_id]).alias("type"),
        F.lit(type_id).alias("type_id"),
        value.alias("value"),
    )


def left(*fields: Column) -> Column:
    """What found no column, as a JSON object; null if nothing is left."""
    return F.nullif(F.to_json(F.struct(*fields)), F.lit("{}"))


def captured(text: Column, pattern: str, parts: Sequence[str]) -> Column:
    """What `pattern` finds in all of `text`, as an array; an array of one where it does not match.

    `parts`: `$1` for a group, which is "" where it took no part, or any other text.
    """
    found = F.regexp_replace(text, F.lit(f"^{pattern}$"), F.lit(BETWEEN.join(parts)))
    return F.split(found, BETWEEN)


def part(of: Column, at: int) -> Column:
    """One of the parts that `captured` found; null where it is empty or missing."""
    return F.nullif(F.get(of, F.lit(at)), F.lit(""))


def is_address(text: Column) -> Column:
    """Whether a text looks like an IP address."""
    return text.rlike(r"^(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)$")
