"""What a rule may ask of: paths of silver.event, and of whom an event is about."""

from __future__ import annotations

from functools import lru_cache

from alerts.rulepack.derived_fields import inputs
from enrich.tables_assets import ASSET, PERSON
from infra.delta.column_types import ColumnType, ListOf, StructOf
from ingest.tables import EVENT

ENRICHED = {
    "holder": frozenset({"mac", "hostname", "status", "scope", "certainty"}),
    "asset": frozenset(ASSET.names),
    "person": frozenset(PERSON.names),
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


@lru_cache(maxsize=1)
def number_paths() -> frozenset[str]:
    """Those of `event_paths` that hold whole numbers."""
    return frozenset(
        path
        for column in EVENT.columns
        for path in _leaves(column.name, column.type, ("integer", "long"))
    )


def _leaves(path: str, kind: ColumnType, of: tuple[str, ...] = ()) -> list[str]:
    if isinstance(kind, ListOf):
        return _leaves(path, kind.element, of)
    if isinstance(kind, StructOf):
        return [leaf for f in kind.fields for leaf in _leaves(f"{path}.{f.name}", f.type, of)]
    return [path] if not of or kind.jsonValue() in of else []
