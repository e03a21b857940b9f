"""Messages in Avro: with a schema by file, framed with a registry's id, or as container files.

Format: https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import io
import json
import math
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from infra.errors import Fatal, HeadgateError
from ingest.decoding.schema_registry import Schema, schema, split_schema_id
from ingest.parsing.source import Format, Unreadable
from ingest.parsing.strict_json import FILE_BYTES

_CONTAINER = b"Obj\x01"


def decode_avro(raw: bytes, packed: Format) -> bytes:
    """The message as JSON, or its field; of a container file one record a line."""
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the message has {len(raw)} bytes; at most {FILE_BYTES} are read")
    try:
        # A container file brings its own schema, so its mark is looked for before any setting.
        if raw[:4] == _CONTAINER:
            return _container(raw, packed.field)
        if packed.registry is not None:
            number, raw = split_schema_id(raw)
            return _one(raw, _of_registry(packed.registry, number), packed.field)
        if packed.schema_file is None:
            raise Unreadable("no Avro container file, and no schema_file or registry is set")
        return _one(raw, _of_file(packed.schema_file), packed.field)
    except (Unreadable, HeadgateError):
        raise
    except Exception as error:  # the library's own errors are of a dozen types
        raise Unreadable(f"not Avro of this schema: {type(error).__name__}: {error}") from None


def _one(raw: bytes, schema: Any, field: str | None) -> bytes:
    stream = io.BytesIO(raw)
    schemaless_reader = import_module("fastavro").schemaless_reader(stream, schema, None)
    # The library stops at the record's end; bytes behind it would be a way to hide something.
    if stream.tell() != len(raw):
        raise Unreadable(f"trailing bytes after the Avro record, at byte {stream.tell()}")
    return text_of(schemaless_reader, field)


def _container(raw: bytes, field: str | None) -> bytes:
    records = import_module("fastavro").reader(io.BytesIO(raw))
    lines, size = [], 0
    for record in records:
        lines.append(text_of(record, field))
        size += len(lines[-1])
        # Blocks may be compressed: a small file can hold far more than it weighs.
        if size > FILE_BYTES:
            raise Unreadable(f"the container file holds more than {FILE_BYTES} bytes")
    return b"\n".join(lines)


def text_of(decoded: Any, field: str | None) -> bytes:
    """What the parser gets of a decoded message. Raises `Unreadable`."""
    if field is None:
        return msgspec.json.encode(_with_finite_numbers(decoded))
    value = decoded.get(field) if isinstance(decoded, dict) else None
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict | list):
        return msgspec.json.encode(_with_finite_numbers(value))
    raise Unreadable(f"no field '{field}' with a record in the message")


def _with_finite_numbers(value: Any) -> Any:
    """The value with `"NaN"`, `"Infinity"` and `"-Infinity"` for the floats that JSON cannot write.

    So ProtoJSON has it (https://protobuf.dev/programming-guides/json/); msgspec would say null.
    """
    of = type(value)
    if of is float:
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if of is dict:
        return {name: _with_finite_numbers(each) for name, each in value.items()}
    return [_with_finite_numbers(each) for each in value] if of is list else value


@lru_cache(maxsize=64)
def _of_file(file: str) -> Any:
    try:
        return import_module("fastavro.schema").parse_schema(json.loads(Path(file).read_bytes()))
    except Exception as error:
        raise Fatal(f"{file}: no Avro schema: {error}") from None


@lru_cache(maxsize=1024)
def _of_registry(registry: str, number: int) -> Any:
    written_schema = schema(registry, number, "avro")
    if written_schema is None:
        raise Unreadable(f"no schema {number} in the registry")
    try:
        return _parsed(written_schema, {})
    except Exception as error:
        raise Unreadable(f"schema {number} of the registry is no Avro schema: {error}") from None


def _parsed(schema: Schema, named: dict[str, Any]) -> Any:
    for reference in schema.references:
        # Avro resolves names only backwards, so what is named is parsed first.
        _parsed(reference, named)
    return import_module("fastavro.schema").parse_schema(json.loads(schema.text), named)
