"""Which events a Sigma log source means, and where its fields are (`mapping/*.yml`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import types as T

from alerts.rulepack.derived_fields import inputs
from enrich.tables_assets import ASSET, PERSON
from infra.errors import Fatal
from ingest.tables import EVENT

MAPPING_FOLDER = Path(__file__).parents[1] / "mapping"


class Unmapped(Fatal):
    """A rule names a log source or field we have no column for; `remedy` says what is close."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class LogSource:
    """The events a rule looks at and its field names.

    `classes` and `sources` say which events (none: all). Of the mappings in `where`
    one must hold besides, each of its paths with one of the texts named. `rest` is
    the JSON column where fields that `fields` lacks are looked for.
    """

    classes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    rest: str | None = None

    @cached_property
    def _folded(self) -> Mapping[str, tuple[str, ...]]:
        return {name.lower(): paths for name, paths in self.fields.items()}

    def paths(self, name: str) -> tuple[str, ...]:
        """Where a Sigma field may be in an event; raises `Unmapped` with close names.

        Names of the log source are compared without regard to case, as products differ in it.
        """
        if is_enriched(name):
            return (name,)
        # The exact name first: two fields may differ in case alone.
        mapped = self.fields.get(name) or self._folded.get(name.lower())
        if mapped is not None:
            return mapped
        if is_field(name):
            return (name,)
        if self.rest is not None:
            return (f"{self.rest}:{name}",)
        close = get_close_matches(name, (*self.fields, *event_paths()), n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise Unmapped(
            f"no field '{name}' in silver.event",
            f"{meant}Map it in alerts/mapping for this log source, or write the column "
            f"(`headgate tables`), or `unmapped:{name}` where the source keeps it",
        )

    def path(self, name: str) -> str:
        """The one column of a Sigma field, for what can only look at one; raises `Unmapped`."""
        paths = self.paths(name)
        plain = [path for path in paths if path in event_paths()]
        if not plain:
            raise Unmapped(
                f"field '{name}' is no column of its own",
                "group and count by a column of silver.event (`headgate tables`)",
            )
        return plain[0]


@dataclass(frozen=True)
class FieldMapping:
    """All of `mapping/*.yml`."""

    logsources: Mapping[tuple[str | None, str | None, str | None], LogSource]
    keywords: tuple[str, ...]

    def logsource(
        self, category: str | None, product: str | None, service: str | None
    ) -> LogSource:
        """The entry that equals a rule's log source; raises `Unmapped`.

        A category of a product is the same whichever service is named beside it.
        """
        of, by, part = (word.lower() if word else None for word in (category, product, service))
        logsources = self.logsources.get((of, by, part))
        # Public rules name a service beside a category; the category says enough.
        if logsources is None and of and by:
            logsources = self.logsources.get((of, by, None))
        if logsources is not None:
            return logsources
        wanted = _spell(category, product, service)
        known = [_spell(*key) for key in self.logsources]
        close = get_close_matches(wanted, known, n=3, cutoff=0.4) or known[:3]
        raise Unmapped(
            f"no log source '{wanted}'", f"close ones are {'; '.join(close)} (alerts/mapping)"
        )


def _spell(category: str | None, product: str | None, service: str | None) -> str:
    named = {"category": category, "product": product, "service": service}
    return ", ".join(f"{key}: {value}" for key, value in named.items() if value)


@lru_cache(maxsize=1)
def mapping() -> FieldMapping:
    """The mapping that comes with Headgate: all files of the folder as one."""
    whole: dict[str, Any] = {"logsources": [], "fields": {}, "groups": {}, "keywords": []}
    for file in sorted(MAPPING_FOLDER.glob("*.yml")):
        for key, value in yaml.safe_load(file.read_text("utf-8")).items():
            if isinstance(value, dict):
                # The order of files must not decide what a field means.
                twice = sorted(whole[key].keys() & value.keys())
                if twice:
                    raise Fatal(f"{file.name}: {key}.{twice[0]} stands in another file too")
                whole[key] |= value
            else:
                whole[key] += value
    return read_mapping(whole)


def read_mapping(data: Mapping[str, Any]) -> FieldMapping:
    """Check and index a mapping; raises `Fatal` that names a path silver.event lacks."""
    lists: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, fields in data["fields"].items():
        lists[name] = {sigma: _listed(paths) for sigma, paths in fields.items()}
        for sigma, paths in lists[name].items():
            _known(paths, f"fields.{name}.{sigma}")
    _known(data["keywords"], "keywords")
    logsources = {}
    for entry in data["logsources"]:
        key = (entry.get("category"), entry.get("product"), entry.get("service"))
        if key in logsources:
            raise Fatal(f"mapping: log source '{_spell(*key)}' stands there twice")
        logsources[key] = _entry(entry, lists, data.get("groups", {}), _spell(*key))
    return FieldMapping(logsources, tuple(data["keywords"]))


def _entry(
    entry: Mapping[str, Any],
    lists: Mapping[str, Mapping[str, tuple[str, ...]]],
    groups: Mapping[str, list[str]],
    spelt: str,
) -> LogSource:
    """One log source, with its field lists joined; of two that name a field the later holds."""
    conditions = entry.get("where", [])
    where = tuple(
        {path: _listed(texts) for path, texts in condition.items()}
        for condition in (conditions if isinstance(conditions, list) else [conditions])
    )
    for condition in where:
        _known(condition, f"where of {spelt}")
    missing = [name for name in entry.get("fields", ()) if name not in lists]
    if missing:
        raise Fatal(f"mapping: {spelt}: no field list '{missing[0]}'; known are {sorted(lists)}")
    return LogSource(
        classes=tuple(entry.get("classes", ())),
        sources=tuple(s for name in entry.get("sources", ()) for s in groups.get(name, [name])),
        fields={k: v for name in entry.get("fields", ()) for k, v in lists[name].items()},
        where=where,
        rest=entry.get("rest"),
    )


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else (str(value),)


def _known(paths: Iterable[str], where: str) -> None:
    for path in paths:
        if not is_field(path):
            raise Fatal(f"mapping: {where}: silver.event has no '{path}'")


ENRICHED = {
    "holder": frozenset({"mac", "hostname", "status", "scope", "certainty"}),
    "asset": frozenset(ASSET.fieldNames()),
    "person": frozenset(PERSON.fieldNames()),
}
"""What a rule may ask of whom an event is about: the device that held its address, and what the
inventories say of that device and of the user (`alerts/compiler/enrichment_predicates.py`)."""


def is_enriched(name: str) -> bool:
    """Whether a field is of whom the event is about, and not of the event itself."""
    about, _, field = name.partition(".")
    return field in ENRICHED.get(about, ())


def is_field(name: str) -> bool:
    """Whether it is a column of silver.event, or written as derived from some."""
    try:
        return all(path in event_paths() for path in inputs(name))
    except ValueError:
        return False


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
