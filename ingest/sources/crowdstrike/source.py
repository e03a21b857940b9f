"""CrowdStrike Falcon: what its stream says, and the events of its sensors.

https://falcon.crowdstrike.com/support/documentation/62/streaming-api-event-dictionary and the
"Falcon Data Replicator" and "Events Data Dictionary" guides of the same place: objects of
`metadata` and `event`, and flat ones with an `event_simpleName`, whose numbers may be texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    INFORMATIONAL,
    NETWORK,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.cloud.common import (
    PORTS,
    EnvelopedSource,
    Fields,
    activity_of,
    inner,
    look,
    ms,
    severity_of,
    take,
    take_ip,
    take_name,
    take_number,
    take_text,
)
from ingest.sources.cloud.record import CloudRecord, person, status_of
from ingest.sources.crowdstrike.sensor import PID, READERS, Sensor, file_at, hashes, read_other
from ingest.sources.shared.firewall import (
    INBOUND,
    OUTBOUND,
    connection,
    endpoint,
    firewall_disposition,
    split_user,
)

_PRODUCT: Mapping[str, str] = {"name": "Falcon", "vendor_name": "CrowdStrike"}
_SENSORS: Mapping[str, str] = {
    "Win": "Falcon sensor for Windows",
    "Lin": "Falcon sensor for Linux",
    "Mac": "Falcon sensor for Mac",
}
"""By `event_platform`, which stays as it was written, too."""
_TIMES = ("ContextTimeStamp", "timestamp", "_time")
_LEVELS = (INFORMATIONAL, INFORMATIONAL, 2, 3, 4, 5)
# A quote inside of a text is escaped, so only keys match.
_WRITTEN = re.compile(
    rb'"(?:ContextTimeStamp|timestamp|eventCreationTime|UTCTimestamp)"\s*:\s*"?'
    rb"(?P<old>\d{10}(?:\d{3})?)(?=[.\",}\s])"
)


def _stamp(fields: Fields, context: Context, *paths: tuple[str, ...]) -> Stamp:
    """The first time at `paths`: seconds or milliseconds since 1970, as number or text."""
    received_at = context.record.received_at
    first: object = None
    for path in paths:
        value = look(fields, *path)
        stamp = stamp_epoch(value, received_at)
        if value not in (None, "", 0) and stamp.quality != "received":
            take(fields, *path)
            return stamp
        first = first or value
    return Stamp.missing(received_at, first)


def _machine(host: str | None, uid: str | None, ip: str | None) -> Fields | None:
    leaves = kept(hostname=host, uid=uid, ip=ip)
    return leaves | {"type_id": UNKNOWN} if leaves else None


def _sensed(fields: Fields, context: Context) -> Event:
    """An event of a sensor, from the Falcon Data Replicator."""
    stamp = _stamp(fields, context, *((name,) for name in _TIMES))
    name = take_text(fields, "event_simpleName")
    if name is None:
        raise Unreadable("no 'event_simpleName' in the event")
    host = take_text(fields, "ComputerName")
    sensor = Sensor(
        CloudRecord(_PRODUCT, fields, stamp),
        name,
        {
            "about": kept(
                event_code=name,
                uid=take_name(fields, "id"),
                log_provider=_SENSORS.get(str(look(fields, "event_platform"))),
            ),
            "message": f"{name} on {host}" if host else name,
            "device": _machine(
                # `aid` is the id of the sensor, and so of the machine.
                host,
                take_text(fields, "aid") or "unknown",
                take_ip(fields, "LocalIP"),
            ),
            "operation": name,
        },
    )
    for pattern, reader in READERS:
        if pattern.match(name):
            return reader(sensor)
    return read_other(sensor)


def _detection(event: Fields, record: CloudRecord, columns: dict[str, Any], kind: str) -> Event:
    title = take_text(event, "DetectName") or take_text(event, "Name")
    title = title or take_text(event, "IncidentType") or kind
    uid = take_text(event, "DetectId") or take_text(event, "CompositeId")
    uid = uid or take_text(event, "IdentityProtectionIncidentId") or take_text(event, "IncidentID")
    name = split_user(take_text(event, "UserName"))
    level = take_text(event, "SeverityName")
    number = take_number(event, "Severity", most=100)
    severity = severity_of(level)
    if level is None and number is not None:
        # Once of five steps, since 2023 of a hundred.
        severity = _LEVELS[number if number <= 5 else min(number // 20 + 1, 5)]
    file = take_text(event, "FileName")
    process: Fields = kept(
        pid=take_number(event, "ProcessId", most=PID),
        name=file,
        path=take_text(event, "FilePath"),
        cmd_line=take_text(event, "CommandLine"),
        hashes=hashes(event, "SHA256String", "SHA1String", "MD5String") or None,
    )
    if process and "pid" not in process:
        process["uid"] = take_name(event, "ProcessId") or "unknown"
    tactic, technique = take_text(event, "Tactic"), take_text(event, "Technique")
    attack = kept(
        tactic={"name": tactic} if tactic else None,
        technique={"name": technique} if technique else None,
    )
    columns |= {
        "message": title,
        "severity": severity,
        "device": _machine(
            take_text(event, "ComputerName")
            or take_text(event, "Hostname")
            or take_text(event, "EndpointName"),
            take_text(event, "SensorId") or take_text(event, "AgentId"),
            take_ip(event, "LocalIP") or take_ip(event, "LocalIPv4"),
        ),
        "finding_info": kept(
            uid=uid or title,
            title=title,
            desc=take_text(event, "DetectDescription")
            or take_text(event, "Description")
            or take_text(event, "IncidentDescription"),
            src_url=take_text(event, "FalconHostLink"),
            created_time=record.stamp.time,
        ),
        "more": {"attacks": [attack]} if attack else None,
        "by": name,
    }
    row = record.event(FINDING, 1, **columns)
    if process:
        row["actor"] = (row.get("actor") or {}) | {"process": process}
    return row


def _audit(event: Fields, record: CloudRecord, columns: dict[str, Any], kind: str) -> Event:
    """What somebody did in Falcon's console or through its API."""
    operation = take_text(event, "OperationName") or kind
    success = look(event, "Success")
    written = take_text(event, "UserIp")
    # Some releases write the address of the proxy behind that of the user.
    ip = address((written or "").split(",")[0].strip())
    if written and (ip is None or "," in written):
        event["UserIp"] = written
    who = take_text(event, "UserId")
    columns |= {
        "message": f"{who or 'unknown'}: {operation}",
        "status": status_of(success) if success is not None else SUCCESS,
        "source": {"ip": ip} if ip else None,
        "by": person(who),
        "service": take_text(event, "ServiceName"),
        "operation": operation,
    }
    if "authenticat" in operation.lower() or operation.lower() in ("userlogin", "saml2assert"):
        return record.event(AUTHENTICATION, 1, is_remote=True, **columns)
    return record.event(API, activity_of(operation), **columns)


def _firewall(event: Fields, record: CloudRecord, columns: dict[str, Any], kind: str) -> Event:
    """A connection that a rule of the host's firewall speaks of."""
    here = endpoint(
        ip=take_ip(event, "LocalAddress"), port=take_number(event, "LocalPort", most=PORTS)
    )
    there = endpoint(
        ip=take_ip(event, "RemoteAddress"), port=take_number(event, "RemotePort", most=PORTS)
    )
    # 1 is incoming; 2, and in older streams 0, outgoing.
    inward = take_number(event, "ConnectionDirection", most=3) == 1
    source, target = (there, here) if inward else (here, there)
    number = take_number(event, "RuleAction", most=9)
    decided = firewall_disposition({1: True, 2: False}.get(number or 0))
    if not decided and number is not None:
        event["RuleAction"] = number
    status = decided.pop("status_id", None)
    rule = take_text(event, "RuleName")
    path = take_text(event, "ImageFileName")
    # Falcon's own number of the process, which no system's would reach.
    uid = take_name(event, "PID")
    process: Fields = kept(
        uid=uid, path=path, name=file_at(path), cmd_line=take_text(event, "CommandLine")
    )
    row = record.event(
        NETWORK,
        5 if status == FAILURE else 1,
        **columns,
        message=f"{rule or kind}: {'blocked' if status == FAILURE else 'matched'}",
        status=status,
        device=_machine(take_text(event, "HostName"), take_text(event, "DeviceId"), None),
        source=source,
        target=target,
        connection_info=connection(
            take_number(event, "Protocol", most=255),
            ((source or target) or {}).get("ip"),
            **(INBOUND if inward else OUTBOUND),
        ),
        firewall_rule=kept(
            name=rule,
            uid=take_name(event, "RuleId"),
            type=take_text(event, "RuleGroupName"),
            desc=take_text(event, "RuleDescription"),
        )
        or None,
        **decided,
    )
    if process:
        row["actor"] = {"process": {"uid": "unknown"} | process}
    return row


def _remote_response(
    event: Fields, record: CloudRecord, columns: dict[str, Any], kind: str
) -> Event:
    """Somebody's session on a machine through Falcon's Real Time Response."""
    ended = "End" in kind
    host, name = take_text(event, "HostnameField"), take_text(event, "UserName")
    uid = take_text(event, "SessionId")
    return record.event(
        AUTHENTICATION,
        2 if ended else 1,
        **columns,
        message=f"{name or 'unknown'}: remote response session on {host or 'unknown'} "
        f"{'ended' if ended else 'started'}",
        status=SUCCESS,
        user=person(name),
        target={"hostname": host} if host else None,
        device=_machine(host, take_text(event, "AgentIdString"), None),
        session={"uid": uid} if uid else None,
        service="Real Time Response",
        is_remote=True,
    )


def _external(fields: Fields) -> Fields:
    """A message of the stream as the Data Replicator hands it on: flat, with the type inside."""
    kind = take_text(fields, "ExternalApiType") or ""
    return {"metadata": {"eventType": kind.removeprefix("Event_")}, "event": fields}


def _streamed(fields: Fields, context: Context) -> Event:
    """A message of the stream."""
    event = inner(fields, "event")
    kind = take_text(fields, "metadata", "eventType") or "event"
    stamp = _stamp(fields, context, ("metadata", "eventCreationTime"), ("event", "UTCTimestamp"))
    record = CloudRecord(_PRODUCT, fields, stamp)
    columns: dict[str, Any] = {
        "about": kept(
            event_code=kind,
            uid=take_name(fields, "metadata", "offset"),
            log_name="Event Streams",
        ),
    }
    reader: Callable[[Fields, CloudRecord, dict[str, Any], str], Event] | None = None
    if kind.endswith("AuditEvent"):
        reader = _audit
    elif kind.startswith("RemoteResponseSession"):
        reader = _remote_response
    elif kind == "FirewallMatchEvent":
        reader = _firewall
    elif "Severity" in event or "Detection" in kind or "Incident" in kind:
        reader = _detection
    if reader is not None:
        return reader(event, record, columns, kind)
    return record.event(BASE, UNKNOWN, message=kind, **columns)


@dataclass(frozen=True)
class CrowdStrike(EnvelopedSource):
    """CrowdStrike Falcon's stream and sensors."""

    name: str = "crowdstrike"
    time_keys: ClassVar[tuple[str, ...]] = _TIMES

    def is_own(self, fields: Fields) -> bool:
        return any(name in fields for name in ("event_simpleName", "ExternalApiType")) or (
            look(fields, "metadata", "eventType") is not None and bool(inner(fields, "event"))
        )

    def read(self, fields: Fields, context: Context) -> Event:
        if "event_simpleName" in fields:
            return _sensed(fields, context)
        if "ExternalApiType" in fields:
            fields = _external(fields)
        return _streamed(fields, context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        digits = str(ms(when))

        def new(match: re.Match[bytes]) -> bytes:
            before = match[0][: match.start("old") - match.start()]
            # As many digits as stood there: seconds stay seconds, milliseconds milliseconds.
            return before + digits[: len(match["old"])].encode()

        replaced, changed = _WRITTEN.subn(new, raw)
        if not changed:
            raise Unreadable("no time of the sensor or the stream in the object")
        return replaced


SOURCES = (CrowdStrike(),)
