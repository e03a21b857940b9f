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
from typing import Any, Generic, TypeVar, cast

import msgspec

from infra.errors import Fatal
from infra.storage.atomic_files import write_whole
from infra.storage.checksums import damaged
from infra.storage.paths import Location

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

    `remedy`: what a person does about a damaged one. Keys that a dataclass does not have are
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
            if is_dataclass(self._kind) and not self._newer_keys:
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
        if not isinstance(raw, dict):
            return
        # `msgspec` passes over keys that it does not know.
        unknown = sorted(set(raw) - {known.name for known in fields(cast(Any, self._kind))})
        if unknown:
            raise ValueError(f"unknown key '{unknown[0]}'")
