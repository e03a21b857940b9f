"""Messages in Protobuf: with a descriptor set by file, or framed with a registry's id.

Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from infra.errors import Fatal, HeadgateError
from ingest.decoding.avro import text_of
from ingest.decoding.schema_registry import Schema, schema, split_schema_id
from ingest.parsing.source import Format, Unreadable
from ingest.parsing.strict_json import FILE_BYTES

_WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
"""Files of google/protobuf/ that schemas import without bringing them along."""

_UNKNOWN = "_unknown_fields"
"""Where fields stand that the schema does not know: number to values."""


def decode_protobuf(raw: bytes, packed: Format) -> bytes:
    """The message as JSON, its fields under the schema's names; or its field."""
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the message has {len(raw)} bytes; at most {FILE_BYTES} are read")
    try:
        if packed.registry is not None:
            number, rest = split_schema_id(raw)
            indexes, rest = message_indexes(rest)
            kind = _of_registry(packed.registry, number, indexes)
        else:
            rest, kind = raw, _of_file(str(packed.schema_file), packed.message)
        # No bytes are a valid message of defaults, in which there is no event.
        if not rest:
            raise Unreadable("an empty message")
        message = kind()
        message.ParseFromString(rest)
        return text_of(_plain(message), packed.field)
    except (Unreadable, HeadgateError):
        raise
    except Exception as error:  # the library's own errors are of several types
        raise Unreadable(f"not Protobuf of this schema: {type(error).__name__}: {error}") from None


def message_indexes(raw: bytes) -> tuple[tuple[int, ...], bytes]:
    """Which message of its file it is, from the outermost in; and what follows."""
    position, count = _zigzag(raw, 0)
    if count == 0:
        return (0,), raw[position:]
    # Far more than anybody nests; a wrong frame gives numbers of any size.
    if not 0 < count <= 32:
        raise Unreadable(f"{count} message indexes in front of the message")
    result = []
    for _ in range(count):
        position, index = _zigzag(raw, position)
        # Python would count a negative one from the end, and read another message's fields.
        if index < 0:
            raise Unreadable(f"{index} as an index of a message")
        result.append(index)
    return tuple(result), raw[position:]


def _zigzag(raw: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        # Five bytes hold 32 bits; a longer number is not one of these.
        if offset >= len(raw) or shift > 28:
            raise Unreadable("the message indexes end early")
        byte = raw[offset]
        offset += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return offset, (value >> 1) ^ -(value & 1)


# -- schemas -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _of_file(file: str, name: str | None) -> Any:
    try:
        files = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet()
        files.ParseFromString(Path(file).read_bytes())
        pool = _pool(files.file)
        last = files.file[-1]
        if name is None and len(last.message_type) != 1:
            message_types = [
                f"{last.package}.{message_type.name}".strip(".")
                for message_type in last.message_type
            ]
            raise ValueError(f"set message to one of {', '.join(message_types)}")
        full = name or f"{last.package}.{last.message_type[0].name}".strip(".")
        return _class(pool.FindMessageTypeByName(full))
    except Exception as error:
        raise Fatal(f"{file}: no descriptor set with the message: {error}") from None


@lru_cache(maxsize=1024)
def _of_registry(registry: str, number: int, indexes: Sequence[int]) -> Any:
    text_found = schema(registry, number, "protobuf")
    if text_found is None:
        raise Unreadable(f"no schema {number} in the registry")
    try:
        files = list(_files(text_found))
        kind = _pool(files).FindFileByName(files[-1].name)
        names = [message_type.name for message_type in files[-1].message_type]
        place = kind.message_types_by_name[names[indexes[0]]]
        for index in indexes[1:]:
            place = place.nested_types[index]
        return _class(place)
    except Exception as error:
        raise Unreadable(f"schema {number} of the registry, message {indexes}: {error}") from None


def _files(schema: Schema) -> Iterator[Any]:
    """The file descriptors of a registered schema, each before who imports it."""
    for reference in schema.references:
        for file in _files(reference):
            file.name = reference.name
            yield file
    descriptors = import_module("google.protobuf.descriptor_pb2")
    content = base64.b64decode(schema.text)
    several = descriptors.FileDescriptorSet()
    try:  # a folder has what protoc writes, a registry one file
        several.ParseFromString(content)
        if several.file and all(file.name for file in several.file):
            yield from several.file
            return
    except Exception:
        pass
    file = descriptors.FileDescriptorProto()
    file.ParseFromString(content)
    file.name = file.name or schema.name
    yield file


def _pool(files: Sequence[Any]) -> Any:
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    descriptors = import_module("google.protobuf.descriptor_pb2")
    brought = {file.name for file in files}
    for name in _WELL_KNOWN:
        well_known = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
        # A schema may bring a copy of its own; a pool refuses two files of one name that differ.
        if well_known.name not in brought:
            pool.Add(descriptors.FileDescriptorProto.FromString(well_known.serialized_pb))
    for file in files:
        pool.Add(file)
    return pool


def _class(descriptor: Any) -> Any:
    return import_module("google.protobuf.message_factory").GetMessageClass(descriptor)


# -- messages ----------------------------------------------------------------------------------


def _plain(message: Any) -> Any:
    """A message as JSON has it: numbers as numbers, enums as names, what is unknown kept."""
    # Times, spans and wrappers have forms of their own in JSON.
    if message.DESCRIPTOR.full_name.startswith("google.protobuf."):
        return import_module("google.protobuf.json_format").MessageToDict(message)
    results = {field.name: _value(field, value) for field, value in message.ListFields()}
    unknown: dict[str, list[Any]] = {}
    for unknown_field in import_module("google.protobuf.unknown_fields").UnknownFieldSet(message):
        data = (
            unknown_field.data
            if isinstance(unknown_field.data, int | bytes)
            else str(unknown_field.data)
        )
        unknown.setdefault(str(unknown_field.field_number), []).append(data)
    return results | {_UNKNOWN: unknown} if unknown else results


def _value(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inside = kind.fields_by_name["value"]
        return {str(key): _single(inside, element) for key, element in value.items()}
    if isinstance(value, str | bytes | int | float) or hasattr(value, "ListFields"):
        return _single(field, value)
    return [_single(field, element) for element in value]


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else value
    return value
