"""Security log: shares and packets, as the file server and the Windows Filtering Platform see them.

https://learn.microsoft.com/windows/security/threat-protection/auditing/audit-file-share and
audit-filtering-platform-connection beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ingest.parsing.ocsf import FAILURE, NETWORK, OTHER, SMB, SUCCESS
from ingest.sources.windows.record import Fields, Logged, filled
from ingest.sources.windows.rule import (
    EventRule,
    WindowsColumns,
    actor,
    here,
    other,
    process,
    protocol,
    source,
)

# Parameters that the log stores in place of words; their texts are in msobjs.dll.
_INBOUND, _OUTBOUND = "%%14592", "%%14593"
_DIRECTIONS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        _INBOUND: ("Inbound", 1),
        _OUTBOUND: ("Outbound", 2),
        "inbound": ("Inbound", 1),
        "outbound": ("Outbound", 2),
    }
)


def share(fields: Fields, log: Logged) -> WindowsColumns:
    """5140 to 5145: a share, and in 5145 what was asked for in it."""
    path = fields.text("RelativeTargetName")
    return {
        "actor": actor(fields),
        "src_endpoint": source(fields, host=""),
        "dst_endpoint": here(log),
        "share": fields.text("ShareName"),
        "file": filled(path=path),
    }


def _packet(fields: Fields, log: Logged) -> WindowsColumns:
    """5150 to 5159: what the Windows Filtering Platform let pass or stopped."""
    # The log stores a code, which a renderer may have replaced by a word.
    direction = _DIRECTIONS.get((fields.peek("Direction") or "").lower())
    if direction:
        fields.text("Direction")
    number = fields.number("Protocol", most=255)
    return {
        "src_endpoint": source(fields, "SourceAddress", "SourcePort", ""),
        "dst_endpoint": filled(ip=fields.ip("DestAddress"), port=fields.port("DestPort")),
        "connection_info": filled(
            **protocol(number),
            direction=direction[0] if direction else None,
            direction_id=direction[1] if direction else 0,
        ),
        "actor": filled(process=process(fields, "Application", "ProcessId")),
    }


def blocked_listen(fields: Fields, log: Logged) -> WindowsColumns:
    """5031: the firewall stopped an application from accepting connections."""
    return {
        "actor": filled(process=process(fields, "Application", "")),
        "dst_endpoint": here(log),
    }


ALLOW = {"action_id": 1, "disposition_id": 1, "status_id": SUCCESS}
DENY = {"action_id": 2, "disposition_id": 2, "status_id": FAILURE}


def _wfp() -> Iterator[tuple[int, EventRule]]:
    # 1, 5 and 7 are activities of OCSF's Network Activity (4001): open, refuse and listen.
    message = "The Windows Filtering Platform has"
    yield (
        5031,
        EventRule(
            NETWORK,
            5,
            "The Windows Firewall Service blocked an application from accepting incoming "
            "connections on the network.",
            blocked_listen,
            DENY,
        ),
    )
    for uid, activity, what, always in (
        (5150, 5, "blocked a packet", DENY),
        (5151, 5, "blocked a packet: a more restrictive filter", DENY),
        (5152, 5, "blocked a packet", DENY),
        (5153, 5, "blocked a packet: a more restrictive filter", DENY),
        (
            5154,
            7,
            "permitted an application or service to listen on a port for incoming connections",
            ALLOW,
        ),
        (
            5155,
            5,
            "blocked an application or service from listening on a port for incoming connections",
            DENY,
        ),
        (5156, 1, "permitted a connection", ALLOW),
        (5157, 5, "blocked a connection", DENY),
        (5158, OTHER, "permitted a bind to a local port", {**ALLOW, **other("Bind")}),
        (5159, OTHER, "blocked a bind to a local port", {**DENY, **other("Bind")}),
    ):
        yield uid, EventRule(NETWORK, activity, f"{message} {what}.", _packet, always)


def _share(activity: int, title: str, name: str = "") -> EventRule:
    return EventRule(SMB, activity, title, share, other(name) if name else {})


NETWORKING: Mapping[int, EventRule] = MappingProxyType(
    {
        **dict(_wfp()),
        5140: _share(2, "A network share object was accessed."),
        5142: _share(OTHER, "A network share object was added.", "Share Create"),
        5143: _share(OTHER, "A network share object was modified.", "Share Update"),
        5144: _share(OTHER, "A network share object was deleted.", "Share Delete"),
        5145: _share(
            2,
            "A network share object was checked to see whether client can be granted desired "
            "access.",
        ),
        5168: _share(OTHER, "SPN check for SMB/SMB2 failed.", "SPN Check"),
    }
)
