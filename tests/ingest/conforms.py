"""Whether rows fit silver.event and their class of OCSF 1.8.0."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
from pyspark.sql import types as T

from ingest.parsing.ocsf import FINDING
from ingest.parsing.ocsf_export import ocsf_object
from ingest.tables import EVENT

EXPORT = get_ocsf_schema(version="1.8.0")
SCHEMA = OcsfJsonSchemaEmbedded(EXPORT)
CLASSES = {about["uid"]: name for name, about in EXPORT["classes"].items()}
"""Names of classes by their uid; those of an extension begin with it, such as `win/`."""


@cache
def validator(class_uid: int) -> Draft202012Validator:
    profiles = ["cloud", "host", "security_control", "network_proxy", "load_balancer", "osint"]
    schema = SCHEMA.get_class_schema(CLASSES[class_uid], profiles=profiles)
    # Of the profiles only what they allow: what they require holds where they are used.
    for name in ("cloud", "osint"):
        if name in schema["required"]:
            schema["required"].remove(name)
    return Draft202012Validator(schema)


def faults(row: dict[str, Any]) -> list[str]:
    """Where the object that people get of a row departs from its class in OCSF 1.8.0.

    Known and left out: a Detection Finding that keeps its endpoints.
    """
    found = ocsf_object(row)
    if found["class_uid"] == FINDING:
        found.pop("src_endpoint", None)
        found.pop("dst_endpoint", None)
    if found["class_uid"] == 0:
        for name in ("src_endpoint", "dst_endpoint", "user"):
            found.pop(name, None)
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in validator(found["class_uid"]).iter_errors(found)
    ]


def _shape(kind: T.DataType) -> Any:
    """The fields of a type by name; of an array what it holds, in a list; None: a leaf."""
    if isinstance(kind, T.StructType):
        return {field.name: _shape(field.dataType) for field in kind.fields}
    return [_shape(kind.elementType)] if isinstance(kind, T.ArrayType) else None


# Made once: Spark's types of all columns take longer than a row's whole check.
EVENT_SHAPE = _shape(EVENT.schema)


def misfits(row: dict[str, Any]) -> list[str]:
    """Leaves of a row that silver.event has no column for: Arrow would lose them unseen."""
    return list(_misfits(row, EVENT_SHAPE, ""))


def _misfits(value: Any, shape: Any, where: str) -> Iterator[str]:
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, one in value.items():
            if name not in shape:
                yield f"{where}{name}"
            else:
                yield from _misfits(one, shape[name], f"{where}{name}.")
    elif isinstance(shape, list) and isinstance(value, list):
        for one in value:
            yield from _misfits(one, shape[0], where)
