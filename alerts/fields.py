"""Which events a Sigma log source means, and which column a Sigma field is (`mapping.yml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import types as T

from infra.errors import Fatal
from ingest.tables import EVENT

MAPPING_FILE = Path(__file__).with_name("mapping.yml")


class Unmapped(Fatal):
    """A rule names a log source or field we have no column for; `remedy` says what is close."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class LogSource:
    """The events a rule looks at and its field names.

    `classes` and `sources` say which events (none: all); `where` are (path, text)
    pairs that must hold besides.
    """

    classes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    where: tuple[tuple[str, str], ...] = ()

    def path(self, name: str) -> str:
        """The silver.event path of a Sigma field; raises `Unmapped` with close names."""
        mapped = self.fields.get(name, name)
        if mapped in event_paths():
            return mapped
        known = (*self.fields, *event_paths())
        close = get_close_matches(name, known, n=3, cutoff=0.5)
        raise Unmapped(
            f"no field '{name}' in silver.event",
            f"did you mean {' or '.join(close)}?" if close else "see `headgate tables`",
        )


@dataclass(frozen=True)
class FieldMapping:
    """All of `mapping.yml`."""

    logsources: Mapping[tuple[str | None, str | None, str | None], LogSource]
    keywords: tuple[str, ...]

    def logsource(
        self, category: str | None, product: str | None, service: str | None
    ) -> LogSource:
        """The entry that equals a rule's log source; raises `Unmapped`."""
        found = self.logsources.get((category, product, service))
        if found is not None:
            return found
        wanted = _spell(category, product, service)
        known = [_spell(*key) for key in self.logsources]
        close = get_close_matches(wanted, known, n=3, cutoff=0.4) or known
        raise Unmapped(
            f"no log source '{wanted}'", f"close ones are {'; '.join(close)} (alerts/mapping.yml)"
        )


def _spell(category: str | None, product: str | None, service: str | None) -> str:
    named = {"category": category, "product": product, "service": service}
    return ", ".join(f"{key}: {value}" for key, value in named.items() if value)


@lru_cache(maxsize=1)
def mapping() -> FieldMapping:
    """The mapping that comes with Headgate."""
    return read_mapping(yaml.safe_load(MAPPING_FILE.read_text("utf-8")))


def read_mapping(data: Mapping[str, Any]) -> FieldMapping:
    """Check and index a mapping; raises `Fatal` that names a path silver.event lacks."""
    for name, fields in data["fields"].items():
        for sigma, path in fields.items():
            if path not in event_paths():
                raise Fatal(f"mapping.yml: fields.{name}.{sigma}: silver.event has no '{path}'")
    logsources = {}
    for path in (*data["keywords"], *(p for e in data["logsources"] for p in e.get("where", ()))):
        if path not in event_paths():
            raise Fatal(f"mapping.yml: silver.event has no '{path}'")
    for entry in data["logsources"]:
        key = (entry.get("category"), entry.get("product"), entry.get("service"))
        fields = {k: v for name in entry.get("fields", ()) for k, v in data["fields"][name].items()}
        logsources[key] = LogSource(
            tuple(entry.get("classes", ())),
            tuple(entry.get("sources", ())),
            fields,
            tuple(entry.get("where", {}).items()),
        )
    return FieldMapping(logsources, tuple(data["keywords"]))


@lru_cache(maxsize=1)
def event_paths() -> frozenset[str]:
    """Every path of silver.event that holds a value, such as `src_endpoint.ip`.

    A path crosses a list without a mark: `answers.rdata` is all of them.
    """
    return frozenset(path for column in EVENT.columns for path in _leaves(column.name, column.type))


def _leaves(path: str, kind: T.DataType) -> list[str]:
    if isinstance(kind, T.ArrayType):
        return _leaves(path, kind.elementType)
    if isinstance(kind, T.StructType):
        return [leaf for f in kind.fields for leaf in _leaves(f"{path}.{f.name}", f.dataType)]
    return [path]
