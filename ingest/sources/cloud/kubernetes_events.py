"""Events of a Kubernetes cluster: what its components did with pods, nodes and others.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ : objects of the
core API (v1, `involvedObject`) and of events.k8s.io (`regarding`), alone, in a list, in a watch's
`{"type": "ADDED", "object": ...}` or as exporters send them. Who asked for what is `k8s_audit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    API,
    BASE,
    FAILURE,
    INFORMATIONAL,
    LIFECYCLE,
    MEDIUM,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import like_iso
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    inner,
    look_text,
    take,
    take_number,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord

_PRODUCT: Mapping[str, str] = {"name": "Kubernetes", "vendor_name": "CNCF"}
_ABOUT = ("involvedObject", "regarding")
_TIMES = (
    *(("series", "lastObservedTime"), ("lastTimestamp",), ("deprecatedLastTimestamp",)),
    *(("eventTime",), ("firstTimestamp",), ("deprecatedFirstTimestamp",)),
    ("metadata", "creationTimestamp"),
)
"""Where a time may stand, the last occurrence first; a field may be there and null."""
# A quote inside of a text is escaped, so only keys match.
_WRITTEN = re.compile(
    rb'(?P<key>"(?:lastObservedTime|lastTimestamp|deprecatedLastTimestamp|eventTime'
    rb'|firstTimestamp|deprecatedFirstTimestamp|creationTimestamp)"\s*:\s*")(?P<old>[^"\\]{10,40})'
)
_LIVES = {"Started": 3, "Killing": 4, "Starting": 3, "Rebooted": 5, "Shutdown": 4}
"""Reasons that are the start or end of a container or node: activities of Application Lifecycle."""
_CALLS = {
    "SuccessfulCreate": 1,
    "FailedCreate": 1,
    "SuccessfulDelete": 4,
    "FailedDelete": 4,
    "ScalingReplicaSet": 3,
    "SuccessfulRescale": 3,
    "Scheduled": 3,
    "FailedScheduling": 3,
    "TaintManagerEviction": 4,
    "Evicted": 4,
    "Preempted": 4,
    "SuccessfulAttachVolume": 3,
    "FailedAttachVolume": 3,
}
"""Reasons that are a change of an object by a controller: activities of API Activity."""


def _outcome(kind: str | None, reason: str) -> int:
    if kind == "Normal":
        return SUCCESS
    # An event is Normal or a Warning and has no outcome: a warning may be of what still goes on.
    failed = reason.startswith(("Fail", "BackOff", "Unhealthy", "Err", "Invalid"))
    return FAILURE if kind == "Warning" and failed else UNKNOWN


def _read(fields: Fields, context: Context) -> Event:
    stamp = take_time(fields, context, *_TIMES)
    reason = take_text(fields, "reason")
    if reason is None:
        raise Unreadable("no 'reason' in the event")
    about = next((name for name in _ABOUT if inner(fields, name)), _ABOUT[0])
    space, name = look_text(fields, about, "namespace"), look_text(fields, about, "name")
    named = "/".join(filter(None, (space, name)))
    words = take_text(fields, "message") or take_text(fields, "note")
    level = take_text(fields, "type")
    component = (
        take_text(fields, "reportingComponent")
        or take_text(fields, "reportingController")
        or take_text(fields, "source", "component")
        or take_text(fields, "deprecatedSource", "component")
    )
    host = take_text(fields, "source", "host") or take_text(fields, "deprecatedSource", "host")
    count = (
        take_number(fields, "series", "count")
        or take_number(fields, "count")
        or take_number(fields, "deprecatedCount")
    )
    class_uid, activity = BASE, UNKNOWN
    if reason in _LIVES:
        class_uid, activity = LIFECYCLE, _LIVES[reason]
    elif reason in _CALLS:
        class_uid, activity = API, _CALLS[reason]
    more: dict[str, Any] = kept(count=count)
    resources = None
    if class_uid == LIFECYCLE:
        more["app"] = {"name": name or "unknown"}
    elif class_uid == API:
        # Only this class has a place for it: elsewhere it stays under its own name.
        uid, kind = take_text(fields, about, "uid"), take_text(fields, about, "kind")
        name = take_text(fields, about, "name")
        resources = [kept(uid=uid or name, name=name, type=kind)] if uid or name else None
    record = CloudRecord(_PRODUCT, fields, stamp)
    return record.event(
        class_uid,
        activity,
        about=kept(
            event_code=reason,
            log_name=level,
            log_provider=component,
            uid=take_text(fields, "metadata", "uid"),
        ),
        message=f"{reason}: {words}" if words else f"{reason} {named}".strip(),
        status=_outcome(level, reason),
        severity=MEDIUM if level == "Warning" else INFORMATIONAL,
        operation=reason,
        service=component,
        device={"hostname": host, "type_id": 0} if host else None,
        more=more or None,
        resources=resources,
    )


@dataclass(frozen=True)
class KubernetesEvents(EnvelopedSource):
    """Events of Kubernetes."""

    name: str = "k8s_events"
    time_keys: ClassVar[tuple[str, ...]] = tuple(path[0] for path in _TIMES[1:6])

    def is_own(self, fields: Fields) -> bool:
        watched = inner(fields, "object")
        return any(inner(fields, name) or inner(watched, name) for name in _ABOUT)

    def read(self, fields: Fields, context: Context) -> Event:
        watched = inner(fields, "object")
        if any(inner(watched, name) for name in _ABOUT):
            take(fields, "object")
            fields = watched | {"envelope": fields}
        return _read(fields, context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        changed = 0

        def new(match: re.Match[bytes]) -> bytes:
            nonlocal changed
            written = like_iso(match["old"].decode("ascii", "replace"), when, zone)
            changed += written is not None
            return match["key"] + (written.encode() if written else match["old"])

        replaced = _WRITTEN.sub(new, raw)
        if not changed:
            raise Unreadable(f"none of {', '.join(self.time_keys)} in the object")
        return replaced


SOURCES = (KubernetesEvents(),)
