"""What of an alert goes onto topics, cut from its body in gold.alert: no value is coded anew."""

from __future__ import annotations

import msgspec

_STATE = (
    *("schema", "alert_id", "tenant", "revision", "state", "lifecycle", "assignee", "verdict"),
    *("comment", "superseded_by", "severity", "severity_id", "risk_score", "event_time", "entity"),
    *("title", "count", "group_key", "incident_id", "published_at", "tenant_uid"),
)
"""Fields of an alert that its present state keeps, as in the body; `rule` becomes its id."""

_NULL = msgspec.Raw(b"null")


class _Rule(msgspec.Struct):
    id: msgspec.Raw


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
    return msgspec.json.encode(state | {"rule_id": rule.id})
