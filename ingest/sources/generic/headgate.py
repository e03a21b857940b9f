"""What the platform says about itself: checks that failed, fields that are new, silent sources.

`ingest.quality.self_events` sends these records to the topic `logs.headgate`, so that they take
the way of all logs: bronze, silver, rules, alerts. One record is one OCSF Detection
Finding. `uid` is the same for what is told twice, as after a crash; a repeat is marked
and raises nothing (see `ingest.pipeline.deduplication`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ingest.parsing import ocsf
from ingest.parsing.json_source import JsonSource
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import stamp_iso

_PRODUCT = {"name": "Headgate", "vendor_name": "Headgate"}
_KINDS = ("data_quality", "field_drift", "source_silent", "rule_blind")
_ACTIVITIES = {"create": 1, "update": 2, "close": 3}
_LEVELS = {"informational": 1, "low": 2, "medium": 3, "high": 4, "critical": 5}
# OCSF's status of a finding, by activity: new, in progress, resolved.
_STATUS = {1: (1, "New"), 2: (2, "In Progress"), 3: (4, "Resolved")}
_RULE = 1
"""OCSF: the analytic that found it is a rule."""


class Headgate(JsonSource):
    """Records about the platform itself."""

    name = "headgate"
    redelivery: ClassVar[tuple[str, ...]] = ("metadata.uid", "metadata.event_code")

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        """One finding a record; what is particular to its kind goes to `unmapped`."""
        kind = _one_of(fields, "kind", _KINDS)
        activity = _ACTIVITIES[_one_of(fields, "activity", tuple(_ACTIVITIES))]
        severity = _LEVELS[_one_of(fields, "level", tuple(_LEVELS))]
        texts = {name: _text(fields, name) for name in ("uid", "finding", "title", "message")}
        check = fields.pop("check", None)
        time = fields.pop("time", None)
        stamp = stamp_iso(
            time if isinstance(time, str) else None,
            context.zone(None),
            context.record.received_at,
        )
        status_id, status = _STATUS[activity]
        finding = {
            "uid": texts["finding"],
            "title": texts["title"],
            "desc": texts["message"],
            "types": [kind],
            "analytic": {"name": check if isinstance(check, str) else kind, "type_id": _RULE},
        }
        return [
            ocsf.event(
                ocsf.FINDING,
                activity,
                stamp,
                severity_id=severity,
                message=texts["message"],
                metadata=ocsf.metadata(_PRODUCT, stamp, uid=texts["uid"], event_code=kind),
                finding_info=finding,
                more={"status_id": status_id, "status": status},
                unmapped=ocsf.unmapped(fields),
            )
        ]


def _one_of(fields: dict[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    value = fields.pop(name, None)
    if value not in allowed:
        raise Unreadable(f"{name}: not one of {', '.join(allowed)}")
    return str(value)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.pop(name, None)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"{name}: missing, or no text")
    return value


SOURCES = (Headgate(),)
