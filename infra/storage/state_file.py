"""Small JSON files in which a job or command leaves to the next start what it has to know.

Each is written whole, read as a type, and named with a remedy when a disk has damaged it. Not
kept in this way, and why:

- what a batch decided (`infra.checkpoint.batch_decisions`): it carries a checksum as last key;
- files of Spark and Delta, which set their own form, and those of a lake that copy them;
- rule packs and headers of models: their name is the hash of their bytes;
- manifests of backups: what is no backup is refused as a wrong argument;
- a job's status and rows on their way to a table: written many times a second, never synced;
- marks that are not JSON: a batch in flight, the version up to which indexes were erased;
- results and certificates for people: a document and its text are written side by side.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from infra.errors import Fatal
from infra.storage.atomic_files import write_whole
from infra.storage.checksums import damaged
from infra.storage.paths import Location

InstantText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
        r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)?$"
    ),
]
"""A time as ISO 8601 text: another text in its place is named as damage, not read later."""

_T = TypeVar("_T")
_D = TypeVar("_D")


class JsonLayout(Enum):
    """How the JSON of a state file is laid out. Each file has one for good, so that an upgrade
    changes no byte of it."""

    SPACED = "spaced"
    SORTED = "sorted"
    INDENTED = "indented"
    COMPACT = "compact"
    COMPACT_SORTED = "compact, sorted"

    def text(self, value: Any) -> bytes:
        """The bytes of a value."""
        if self is JsonLayout.COMPACT:
            return msgspec.json.encode(value)
        if self is JsonLayout.COMPACT_SORTED:
            return msgspec.json.encode(value, order="sorted")
        plain = msgspec.to_builtins(value)
        indent = 1 if self is JsonLayout.INDENTED else None
        return json.dumps(plain, indent=indent, sort_keys=self is JsonLayout.SORTED).encode()


class StateFile(Generic[_T]):
    """One file with a value of type `kind`: a dataclass, a `msgspec.Struct`, or a dict or list.

    `remedy`: what a person does about a damaged one. Keys that its type does not have are
    refused, unless the file may come from a later release (`newer_keys`).
    """

    def __init__(
        self,
        path: Location,
        kind: type[_T],
        remedy: str,
        *,
        layout: JsonLayout = JsonLayout.SPACED,
        newer_keys: bool = False,
    ) -> None:
        self.path = path
        self._kind = kind
        self._remedy = remedy
        self._layout = layout
        self._newer_keys = newer_keys

    def read(self) -> _T | None:
        """What was left; None where nothing was. Raises `Fatal` that names file and remedy."""
        try:
            raw = json.loads(self.path.read_bytes())
            if not self._newer_keys:
                self._refuse_unknown(raw)
            return msgspec.convert(raw, self._kind)
        except FileNotFoundError:
            return None
        # RecursionError: damaged JSON may nest deeper than the parser goes.
        except (ValueError, RecursionError) as error:
            raise self.damaged(error) from None

    def read_or(self, otherwise: _D, tell: Callable[[str], Any]) -> _T | _D:
        """What was left, else `otherwise`; of a damaged file, which the next write replaces, a
        person is told."""
        try:
            value = self.read()
        except Fatal as error:
            tell(str(error))
            return otherwise
        return otherwise if value is None else value

    def write(self, value: _T) -> None:
        """Leave a value, in the place of the one before."""
        write_whole(self.path, self._layout.text(value))

    def remove(self) -> None:
        """Leave nothing."""
        self.path.unlink(missing_ok=True)

    def damaged(self, error: Exception) -> Fatal:
        """The error for content that its type allows, and its meaning does not."""
        return damaged(self.path, error, self._remedy)

    def _refuse_unknown(self, raw: Any) -> None:
        kind: Any = self._kind
        if is_dataclass(kind):
            declared = {field.name for field in fields(kind)}
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            declared = set(kind.__struct_encode_fields__)
        else:
            return
        # `msgspec` passes over keys that it does not know.
        unknown = sorted(set(raw) - declared) if isinstance(raw, dict) else []
        if unknown:
            raise ValueError(f"unknown key '{unknown[0]}'")
