"""What of an alert goes onto topics, cut from its body in gold.alert: no value is coded anew.

Source: CloudEvents 1.0, Kafka binding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from alerts.delivery.feed import sequence_of

_CE_TYPE = "org.headgate.alert"

Header = tuple[str, str | bytes | None]

_STATE = (
    *("schema", "alert_id", "tenant", "revision", "assignee", "verdict"),
    *("comment", "superseded_by", "severity", "severity_id", "risk_score", "event_time", "entity"),
    *("title", "count", "group_key", "incident_id", "published_at", "tenant_uid"),
    *("state", "lifecycle"),
)
"""Fields of an alert that its present state keeps, as in the body; `rule` becomes its id."""

_NULL = msgspec.Raw(b"null")
_FIRST_VERSION = msgspec.Raw(b'"1.0"')
"""Of bodies that say none: rows of gold.alert that an earlier release wrote."""


@dataclass(frozen=True)
class Revision:
    """One revision as it lies in the table."""

    alert_id: str
    revision: int
    activity: str
    body: str | None
    sequence: int | None = None

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{self.alert_id}:{self.revision}"


class _Rule(msgspec.Struct):
    id: msgspec.Raw


def messages_of(body: str | None, published_at: str) -> tuple[bytes, bytes]:
    """A body and the state in it as they go out; raises `ValueError` that says why a damaged one
    cannot."""
    try:
        whole = published_body((body or "").encode(), published_at)
        return whole, published_state(whole)
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        raise ValueError(str(error)) from None


def published_body(body: bytes, published_at: str) -> bytes:
    """A body as it goes out: with `published_at` as its last field, else byte for byte as it is."""
    # Texts escape their quotation marks, so this is a field: a body that went out before.
    if b'"published_at"' in body:
        return msgspec.json.encode(msgspec.json.decode(body) | {"published_at": published_at})
    return body.rstrip()[:-1] + b',"published_at":"' + published_at.encode() + b'"}'


def published_state(body: bytes) -> bytes:
    """The state of an alert, as the compacted topic keeps it under the alert's id."""
    # The values are cut out as they are: nothing is decoded only to be coded again.
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    rule = msgspec.json.decode(fields["rule"], type=_Rule)
    state = {name: fields.get(name, _NULL) for name in _STATE}
    state["schema_version"] = fields.get("schema_version", _FIRST_VERSION)
    state["alert_status"] = fields.get("alert_status") or _former_status(fields)
    return msgspec.json.encode(state | {"rule_id": rule.id})


def alert_status(body: Mapping[str, Any]) -> str:
    """Where people are with the alert of a body, also of one of an earlier release."""
    status = body.get("alert_status") or body.get("lifecycle")
    return str(status or ("closed" if body.get("state") == "closed" else "new"))


def change_type(body: Mapping[str, Any]) -> str:
    """What the revision of a body did, also of one of an earlier release."""
    return str(body.get("change_type") or body.get("activity") or "")


def _former_status(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    # Bodies of the first releases have no `lifecycle`, and the oldest no `state`.
    if (lifecycle := fields.get("lifecycle")) is not None:
        return lifecycle
    closed = bytes(fields.get("state", _NULL)) == b'"closed"'
    return msgspec.Raw(b'"closed"' if closed else b'"new"')


def cloud_event_headers(
    tenant: str, event_id: str, event_type: str, now: str, *more: Header
) -> list[Header]:
    """CloudEvents 1.0, Kafka binding, binary mode: the headers of a message with a JSON value."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_type", event_type.encode()),
        ("ce_source", f"/headgate/{tenant}".encode()),
        ("ce_time", now.encode()),
        *more,
        ("content-type", b"application/json"),
    ]


def revision_headers(
    tenant: str, revision: tuple[str, int], activity: str, now: str, sequence: int | None
) -> list[Header]:
    """The headers of a revision on the topic."""
    alert_id, number = revision
    place = ("ce_sequence", sequence_of(sequence).encode())
    return cloud_event_headers(tenant, f"{alert_id}:{number}", f"{_CE_TYPE}.{activity}", now, place)
