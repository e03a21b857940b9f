r"""The audit log of Infoblox NIOS, which its `httpd` writes. Read for the source `infoblox`.

`2026-11-21 10:00:00.000Z [user]: Login_Allowed - - to=AdminConnector ip=.. auth=Local group=..`
and `...[user]: Modified Network 10.0.0.0/24 network_view=default: Changed ...`. Blanks in
values are written `\040`. Its own time is UTC, and counts more than that of syslog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_USER,
    ACCOUNT,
    AN_IP,
    API,
    AUTHENTICATION,
    ENTITY,
    FAILURE,
    INFORMATIONAL,
    LOW,
    OTHER,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import stamp_iso

_PRODUCT: Mapping[str, str] = {"name": "NIOS", "vendor_name": "Infoblox"}
_ENTRY = re.compile(
    r"\[?(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?Z?)\]? \[(?P<user>[^\]]{0,300})\]: "
    r"(?P<what>[A-Za-z][A-Za-z_]{2,40})(?: (?P<rest>.*))?",
    re.ASCII,
)
_PAIR = re.compile(r"(?:^| )([a-z_]{1,40})=(\S*)", re.ASCII)
ESCAPED = re.compile(r"\\([0-3][0-7]{2})")
SESSIONS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "Login_Allowed": (AUTHENTICATION, 1, SUCCESS),
        "First_Login": (AUTHENTICATION, 1, SUCCESS),
        "Login_Denied": (AUTHENTICATION, 1, FAILURE),
        "Logout": (AUTHENTICATION, 2, SUCCESS),
        "Password_Reset": (ACCOUNT, 4, SUCCESS),
        "Password_Reset_Error": (ACCOUNT, 4, FAILURE),
    }
)
_CHANGES: Mapping[str, int] = MappingProxyType({"Created": 1, "Modified": 3, "Deleted": 4})
THING = re.compile(
    r"(?P<kind>[A-Za-z0-9_]{1,60})(?: (?P<name>.{1,500}?))?(?:: (?P<how>(?:Set|Changed) .*))?"
)
CALL = re.compile(
    r"- (?P<name>\w{1,100})(?: (?P<more>.{0,500}?))?(?:: Args (?P<how>.*))?", re.ASCII
)


def _unescaped(text: str) -> str:
    """A value without octal escapes."""
    return ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def read(line: Line, context: Context) -> Event | None:
    """A login, a change or a call; None for what else `httpd` says."""
    match = _ENTRY.fullmatch(line.text)
    if match is None:
        return None
    stamp = stamp_iso(match["time"], context.zone(line.host), context.record.received_at)
    if stamp.quality == "received":
        stamp = line.stamp
    what, rest = match["what"], match["rest"] or ""
    user = {"name": _unescaped(match["user"])} if match["user"] else None
    common: dict[str, Any] = {
        "message": line.text,
        "metadata": metadata(_PRODUCT, stamp, log_provider=line.program, event_code=what),
        "device": device(line.host),
        "actor": {"user": user, "invoked_by": None if user else "NIOS"},
    }
    if what in SESSIONS:
        return event(*SESSIONS[what][:2], stamp, **common | _session(what, rest, user, line))
    rest_of = line.rest | kept(pid=line.pid)
    if what in _CHANGES and (thing := THING.fullmatch(rest)):
        name, how = (thing["name"] or "").strip(), thing["how"]
        entity = {"name": name or thing["kind"], "type": thing["kind"]}
        return event(
            ENTITY,
            _CHANGES[what],
            stamp,
            status_id=SUCCESS,
            more={"entity": entity},
            unmapped=unmapped(rest_of | kept(change=how)),
            observables=observables(("actor.user.name", A_USER, user and user["name"])),
            **common,
        )
    call = CALL.fullmatch(rest)
    return event(
        API,
        OTHER,
        stamp,
        activity_name=what,
        status_id=SUCCESS,
        src_endpoint={"name": "unknown"},
        api={"operation": call["name"] if call else what, "service": {"name": "NIOS"}},
        unmapped=unmapped(
            rest_of
            | kept(arguments=call["how"] if call else rest or None)
            | kept(more=call["more"] if call else None)
        ),
        **common,
    )


def _session(what: str, rest: str, user: dict[str, str] | None, line: Line) -> dict[str, Any]:
    """The columns of a login, a logout or a new password."""
    class_uid, _, status = SESSIONS[what]
    pairs = {key: _unescaped(value) for key, value in _PAIR.findall(rest)}
    # An administrator at the appliance's console has no address.
    ip = address(pairs.get("ip", ""))
    if ip:
        del pairs["ip"]
    failed = status == FAILURE
    results: dict[str, Any] = {
        "severity_id": LOW if failed else INFORMATIONAL,
        "status_id": status,
        "status_detail": pairs.pop("error", "")
        or (pairs.pop("info", "") if failed else "")
        or None,
        "user": user or {"name": "unknown"},
        "src_endpoint": {"ip": ip} if ip else None,
        "observables": observables(
            ("src_endpoint.ip", AN_IP, ip), ("user.name", A_USER, user and user["name"])
        ),
    }
    if class_uid == AUTHENTICATION:
        results |= {
            "service": {"name": pairs.pop("to", "") or "NIOS"},
            "auth_method": pairs.pop("auth", "") or None,
            "is_remote": ip is not None,
        }
    if user and pairs.get("group"):
        results["user"] = {**user, "groups": [pairs.pop("group")]}
    return results | {"unmapped": unmapped(line.rest | kept(pid=line.pid) | pairs)}
