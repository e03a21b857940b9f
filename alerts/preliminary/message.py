"""Preliminary alerts and their answers as messages (docs/reference/alert.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.domain.alert import Alert, Revised, about_of, evidence_of
from alerts.domain.entity import Holder, entity_of, micros
from alerts.lifecycle.alert_json import alert_row, bounded, stamp
from alerts.preliminary.answer import UNANSWERED, WITHDRAWN, preliminary_id
from alerts.rulepack.rule_pack import RulePack

CE_TYPE = "org.headgate.preliminary"

_SCHEMA = "urn:headgate:preliminary:1"
_ANSWER_SCHEMA = "urn:headgate:preliminary-answer:1"
"""`$id` of the JSON Schemas beside `alert.schema.json`."""

_AS_IN_ALERT = (
    *("alert_id", "tenant", "revision", "mode", "rule", "attack", "severity", "severity_id"),
    *("event_time", "received_at", "entity", "entities", "title", "summary", "fields", "evidence"),
    "lineage",
)
"""Fields that mean what they mean in an alert."""

_HOLDER = (
    *("ip", "scope", "mac", "hostname", "session_id", "lease_start", "lease_end", "known_at"),
    "status",
)

ANSWER_COLUMNS = (
    *("alert_id", "finding_id", "rule_id", "answer", "merged_into", "revision", "reason"),
    "answered_at",
)
"""Columns of gold.preliminary_answer that an answer is made of."""


def preliminary_message(
    row: Mapping[str, Any], holder: Holder | None, pack: RulePack | None, tenant: str
) -> dict[str, Any]:
    """Revision 0 of the alert that a finding may make.

    `row`: a row of gold.finding with `answer_by`. `holder`: the last known one of its address.
    `pack`: the one that found it. None where the one is not known, or the other is lost.
    """
    alert = _alert(row, holder, tenant)
    revised = Revised(alert, "create", "first")
    body = alert_row(revised, pack, tenant, micros(row["received_at"]), {})["body"]
    attribution = body["attribution"]
    return {
        "schema": _SCHEMA,
        "certainty": "preliminary",
        "answer_by": stamp(row["answer_by"]),
        **{name: body[name] for name in _AS_IN_ALERT},
        # People read this field alone, and it names a holder.
        "summary": f"Preliminary: nobody has judged it yet. {body['summary']}",
        "attribution": {name: attribution[name] for name in _HOLDER},
    }


def answer_message(row: Mapping[str, Any], tenant: str) -> dict[str, Any]:
    """The answer to a preliminary alert; `row`: of gold.preliminary_answer."""
    return {
        "schema": _ANSWER_SCHEMA,
        "alert_id": row["alert_id"],
        "tenant": tenant,
        "rule_id": row["rule_id"],
        "answer": row["answer"],
        "merged_into": row["merged_into"],
        "revision": row["revision"],
        "reason": row["reason"],
        "answered_at": stamp(row["answered_at"]),
    }


def given_up(alert_id: str, finding_id: str, rule_id: str, now: int) -> dict[str, Any]:
    """The answer in job `alert`'s stead, when it gave none for a day; a row as it writes them."""
    return {
        "alert_id": alert_id,
        "finding_id": finding_id,
        "rule_id": rule_id,
        "answer": WITHDRAWN,
        "merged_into": None,
        "revision": None,
        "reason": UNANSWERED,
        "answered_at": now,
    }


def as_published(body: Mapping[str, Any], published_at: str) -> bytes:
    """A message's value; texts of one that is too large are cut."""
    return bounded({**body, "published_at": published_at})


def headers(tenant: str, ce_id: str, kind: str, now: str) -> list[tuple[str, str | bytes | None]]:
    """CloudEvents 1.0, Kafka binding, binary mode; `kind`: create or answer."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", ce_id.encode()),
        ("ce_type", f"{CE_TYPE}.{kind}".encode()),
        ("ce_source", f"/headgate/{tenant}".encode()),
        ("ce_time", now.encode()),
        ("content-type", b"application/json"),
    ]


def _alert(row: Mapping[str, Any], holder: Holder | None, tenant: str) -> Alert:
    """The alert as it would be if the finding made it now."""
    entity = entity_of(row, holder)
    time = micros(row["event_time"])
    return Alert(
        alert_id=preliminary_id(row, tenant),
        rule_id=row["rule_id"],
        entity_type=entity.type,
        entity_value=entity.value,
        entity_key=entity.key,
        first=time,
        last=time,
        window_start=time,
        received=micros(row["received_at"]),
        about=about_of(row),
        holder=holder,
        count=1,
        total=1,
        evidence=evidence_of(row),
    )
