"""Events as rows of Python: as a batch for the matcher, and judged without it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alerts.domain.finding import (
    event_schema,
)
from alerts.rulepack.predicate import (
    holds,
)
from alerts.rulepack.rule_pack import RulePack
from infra.errors import Fatal
from ingest.parsing.source import LIVE_MODES
from ingest.tables import HEARTBEAT


def brute_force(
    pack: RulePack, events: Iterable[Mapping[str, Any]], modes: Collection[str] = LIVE_MODES
) -> set[tuple[str, str]]:
    """(rule id, event_uid) of every match, one test after the other: what `Matcher` must equal."""
    return {
        (rule.id, event["event_uid"])
        for event in events
        if event.get("dead_letter_reason") is None
        and event.get("duplicate_of") is None
        and event["source"] != HEARTBEAT
        and event["mode"] in modes
        for rule in pack.rules
        if (not rule.classes or event.get("class_uid") in rule.classes)
        and (not rule.sources or event["source"] in rule.sources)
        and holds(rule.predicate, event)
    }


def event_batch(events: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Nested dictionaries as a batch of silver.event; raises `Fatal` on a name it does not have."""
    schema = event_schema()
    for event in events:
        for name, value in event.items():
            index = schema.get_field_index(name)
            if index < 0:
                raise Fatal(f"silver.event has no column '{name}'")
            # `from_pylist` drops names it does not know, and a test with a misspelt field would
            # pass.
            _known(name, value, schema.field(index).type)
    return pa.RecordBatch.from_pylist([dict(event) for event in events], schema=schema)


def _known(path: str, value: Any, kind: pa.DataType) -> None:
    if isinstance(value, list) and pa.types.is_list(kind):
        for item in value:
            _known(path, item, kind.value_type)
    elif isinstance(value, Mapping) and pa.types.is_struct(kind):
        for name, inner in value.items():
            index = kind.get_field_index(name)
            if index < 0:
                raise Fatal(f"silver.event has no '{path}.{name}'")
            _known(f"{path}.{name}", inner, kind.field(index).type)
