"""A finding as a correlation remembers it: when, in which group, with which value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from alerts.domain.alert import Evidence, evidence_of
from alerts.domain.entity import Holder, entity_of, fields_of, holder_of, micros, shared_key
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation

COPIED = (
    *("class_uid", "source", "mode", "role", "scope", "ip", "host_name", "user_name", "dst_ip"),
    "tenant_uid",
)
"""Columns that a correlation's finding takes over from the finding that completed it."""

COLUMN = {
    "src_endpoint.ip": "ip",
    "dst_endpoint.ip": "dst_ip",
    "user.name": "user_name",
    "actor.user.name": "user_name",
    "device.hostname": "host_name",
}
"""Columns of a finding that stand in for a field it does not carry."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


class CorrelationEntry(msgspec.Struct, omit_defaults=True, gc=False):
    """A finding that a correlation remembers.

    `group` is compared, `shown` is how the finding spelled it. `carried` are the
    finding's fields, kept only when another correlation counts what this one finds. `evidence` are
    the events that a correlation's finding rests on, `events` how many they were; of a finding that
    is about one event it is empty.
    `late`: it came when the windows that end with it were closed. There are many of
    them and none holds itself, so the garbage collector need not look.
    """

    time: int
    finding_id: str
    rule_id: str
    rev: int
    event_uid: str
    snippet: str
    received: int
    group: list[str]
    copied: dict[str, Any]
    entity: str
    value: str | None = None
    holder: Holder | None = None
    late: bool = False
    shown: list[str] = []
    carried: dict[str, str] = {}
    evidence: list[Evidence] = []
    events: int = 1


def correlation_entry(definition: Correlation, row: Mapping[str, Any]) -> CorrelationEntry | None:
    """The finding as an entry; None when it lacks what the correlation groups by.

    Groups are compared without case, as Sigma compares text, and whatever it groups by, those of
    two tenants are two: nobody is to be told what another one's logs say. A finding without
    the counted field stays: a window may end with it, but it adds no value.
    """
    holder = holder_of(row)
    entity = entity_of(row, holder)
    device = shared_key(entity, row)
    group = [_value(definition, row, name, device) for name in definition.group_by]
    shown = [value for value in group if value is not None]
    if len(shown) < len(group):
        return None
    tenant = row.get("tenant_uid")
    rev = row.get("attr_rev")
    counted = bool(row.get("evidence"))
    return CorrelationEntry(
        time=micros(row["event_time"]),
        finding_id=row["finding_id"],
        rule_id=row["rule_id"],
        rev=-1 if rev is None else int(rev),
        event_uid=row["event_uid"],
        snippet=row.get("snippet") or "",
        received=micros(row["received_at"]),
        group=[*map(fold, shown), *([] if tenant is None else [tenant])],
        copied={name: row[name] for name in COPIED if row.get(name) is not None},
        entity=entity.key,
        value=_counted(definition, row, device),
        holder=holder,
        shown=shown,
        carried=fields_of(row) if definition.feeds else {},
        evidence=evidence_of(row) if counted else [],
        events=int(row.get("evidence_total") or 1) if counted else 1,
    )


def time_key(entry: CorrelationEntry) -> int:
    """Key for windows, which take all findings of an instant or none."""
    return entry.time


def by_order(entry: CorrelationEntry) -> tuple[int, str]:
    """Key that no two findings share."""
    return entry.time, entry.finding_id


# A window is measured with each finding that comes, and its values are mostly the same ones.
@lru_cache(maxsize=16_384)
def number(text: str | None) -> int | float | None:
    """The finite decimal number that `text` is; None for anything else, never a guess."""
    clean = (text or "").strip()
    if not _NUMBER.fullmatch(clean):
        return None
    # As a whole number no digit is lost; one so long that a float cannot hold it is none
    # (`isfinite`).
    if clean.lstrip("-").isdigit() and len(clean) < 300:
        return int(clean)
    value = float(clean)
    return value if math.isfinite(value) else None


def _counted(definition: Correlation, row: Mapping[str, Any], entity: str) -> str | None:
    """What is counted of a finding: of several fields all values together, or none."""
    values = [_value(definition, row, name, entity) for name in definition.every_field]
    if len(values) < 2:
        return values[0] if values else None
    if None in values:
        return None
    # JSON and not joined text: values may hold any separator.
    return msgspec.json.encode(values).decode()


def _value(definition: Correlation, row: Mapping[str, Any], name: str, entity: str) -> str | None:
    if name == "device":
        return entity
    if name in definition.aliases:
        name = definition.aliases[name].get(row["rule_id"], name)
        if name == "device":
            return entity
    value = fields_of(row).get(name)
    if value is None:
        value = row.get(COLUMN.get(name, name))
    return None if value is None else str(value)
