"""What the join of job `alert` says of a row, read by whoever gets it (`stream_join.attribute`).

Without Spark: a holder that Catalyst puts together is part of each batch's plan, and planning is
most of what a batch costs (decision 0041).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from enrich.attribution.scopes import by_hand, in_scope
from enrich.tables import DEVICE, HOLDER
from infra.config.settings import ScopeSettings
from ingest.parsing.timestamps import EPOCH

LINE_END = "\n"
"""Parts a finding's text from its routing, and parts of what the join says; JSON has it only
escaped."""

PASSED = ("passed_status", "passed_mac")
"""In the routing of a finding that waits for nobody: its holder's status and MAC address."""

_NOBODY = dict.fromkeys(HOLDER.names)


def attribution_of(
    finding: Mapping[str, Any], routing: str, join_text: str, wait: timedelta
) -> dict[str, Any]:
    """`holder`, `attr_rev` and `via` of a finding or event that left the join.

    `finding`: its own columns. `routing`: the line behind its text. `join_text`: the join's own
    word: when it arrived, and of the segment that covers it when that was known, and its JSON.
    """
    where = {"scope": finding.get("scope"), "ip": finding.get("ip")}
    status = msgspec.json.decode(routing).get(PASSED[0]) if routing else None
    if status is not None:
        given = finding.get("holder")
        holder = _NOBODY | (dict(given) if given else {**where, "status": status})
        return {"holder": holder, "attr_rev": -1, "via": "outside"}
    arrived, *segment = join_text.split(LINE_END, 2)
    stated = msgspec.json.decode(segment[1]) if segment else {}
    if stated.get("rev") is None:
        # Spark gives the unmatched row only when the watermark has passed the bound, so this time
        # is true.
        upto = _instant(arrived) + wait if arrived else None
        none = {**where, "status": "none", "complete_up_to": upto}
        return {"holder": _NOBODY | none, "attr_rev": -1, "via": "join"}
    holder = _holder(stated, _instant(segment[0]))
    return {"holder": _NOBODY | where | holder, "attr_rev": stated["rev"], "via": "join"}


def _holder(stated: Mapping[str, Any], known_at: datetime) -> dict[str, Any]:
    """As `stream_join.segment_holder`, of a segment's JSON."""
    evidence = stated.get("evidence") or {}
    holder = {
        "status": "none",
        "known_at": known_at,
        "complete_up_to": known_at,
        "evidence": evidence.get("event_uids"),
    }
    # A row that frees an address still names the lease that it was part of.
    if stated.get("mac") is None:
        return holder
    return holder | {
        "status": "leased",
        "mac": stated["mac"],
        "hostname": stated.get("hostname"),
        "session_id": stated.get("session_id"),
        "lease_start": _time(stated.get("session_start")),
        "lease_end": _time(stated.get("session_end")),
        "ended": evidence.get("ended"),
    }


def attributed_event(
    event: Mapping[str, Any], attribution: Mapping[str, Any], scopes: Sequence[ScopeSettings]
) -> dict[str, Any]:
    """A row of gold.attributed_event of an event that left the join.

    An address that no DHCP network has waited like all others, and is only now said to be so: a
    branch of its own would read every file of silver.event twice.
    """
    holder = attribution["holder"]
    status = _status(event.get("scope"), event.get("ip"), holder["status"] == "leased", scopes)
    device = {name: holder[name] for name in DEVICE.names} | {"status": status}
    # An address that is set by hand has no device, also where DHCP gave it away: then the session
    # stays, as the mark of what speaks against it.
    if status != "leased":
        device |= {"mac": None, "hostname": None}
    same = ("received_at", "class_uid", "source", "scope", "ip", "role", "user_name", "host_name")
    return {
        "event_uid": event["finding_id"],
        "event_time": event["event_time"],
        **{name: event.get(name) for name in same},
        "holder": device,
        "rev": attribution["attr_rev"],
        "via": "outside" if status == "outside" else attribution["via"],
    }


def _status(
    scope: str | None, ip: str | None, leased: bool, scopes: Sequence[ScopeSettings]
) -> str:
    """As of `attributed_events.device`."""
    if ip is None:
        return "unknown"
    # Before `leased`: what a person configured outranks a server that leased it all the same.
    if by_hand(scope, ip, scopes):
        return "static"
    if leased:
        return "leased"
    return "none" if in_scope(scope, ip, scopes) else "outside"


def _instant(micros: str) -> datetime:
    return EPOCH + timedelta(microseconds=int(micros))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
