"""Preliminary alerts and their answers as messages (docs/reference/alert.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.domain.alert import Alert, Revised, evidence_of, new_alert
from alerts.domain.entity import Holder, entity_of, micros
from alerts.lifecycle.alert_json import alert_row, bounded, rfc3339
from alerts.preliminary.answer import UNANSWERED, WITHDRAWN, preliminary_id
from alerts.rulepack.rule_pack import RulePack

CE_TYPE = "org.headgate.preliminary"

_SCHEMA = "urn:headgate:preliminary:1"
_ANSWER_SCHEMA = "urn:headgate:preliminary-answer:1"
"""`$id` of the JSON Schemas beside `alert.schema.json`."""

_AS_IN_ALERT = (
    *(
        "alert_id",
        "tenant",
        "tenant_uid",
        "revision",
        "mode",
        "rule",
        "attack",
        "severity",
        "severity_id",
    ),
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
        "answer_by": rfc3339(row["answer_by"]),
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
        "answered_at": rfc3339(row["answered_at"]),
    }


def given_up(
    alert_id: str, finding_id: str, rule_id: str, now: int, reason: str = UNANSWERED
) -> dict[str, Any]:
    """The answer in job `alert`'s stead, when it gives none; a row as it writes them."""
    return {
        "alert_id": alert_id,
        "finding_id": finding_id,
        "rule_id": rule_id,
        "answer": WITHDRAWN,
        "merged_into": None,
        "revision": None,
        "reason": reason,
        "answered_at": now,
    }


def as_published(body: Mapping[str, Any], published_at: str) -> bytes:
    """A message's value; texts of one that is too large are cut."""
    return bounded({**body, "published_at": published_at})


def _alert(row: Mapping[str, Any], holder: Holder | None, tenant: str) -> Alert:
    """The alert as it would be if the finding made it now."""
    alert = new_alert(preliminary_id(row, tenant), row, entity_of(row, holder), holder)
    alert.count, alert.total, alert.evidence = 1, 1, evidence_of(row)
    return alert
