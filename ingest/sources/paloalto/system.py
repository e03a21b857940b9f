"""What PAN-OS logs of itself and of who logs in; and which function reads which type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import API, AUTHENTICATION, BASE, FAILURE, OTHER, SUCCESS, UNKNOWN, kept
from ingest.parsing.source import Event
from ingest.sources.paloalto.logs import Log, decryption, globalprotect, session, threat
from ingest.sources.shared.firewall import (
    Fields,
    endpoint,
    ends_seen,
    located,
    severity,
    split_user,
)

# What administrators' logins look like; the user's own words stand in quotes before the end.
_LOGINS = (
    (
        re.compile(
            r"(?P<verb>authenticated|failed authentication) for user '(?P<user>.*)'\."
            r"(?P<rest>.*?)[,.]? *From: (?P<ip>[0-9a-fA-F:.]+?)\.?"
        ),
        1,
    ),
    (
        re.compile(
            r"User '(?P<user>.*)' (?P<verb>failed authentication|authenticated)\."
            r"(?P<rest>.*?)[,.]? *From: (?P<ip>[0-9a-fA-F:.]+?)\.?"
        ),
        1,
    ),
    (
        # GlobalProtect before PAN-OS 9.1.3, which gave it a log of its own.
        re.compile(
            r"(?P<service>GlobalProtect (?:gateway|portal)) user authentication "
            r"(?P<verb>succeeded|failed)\. Login from: (?P<ip>[0-9a-fA-F:.]+),"
            r"(?: Source region: [\w .()-]{1,64},)? User name: (?P<user>.*?)"
            r"(?:, Client OS version: (?P<rest>.*)|, Reason: .*|, Auth type: [\w-]+)?\.?"
        ),
        1,
    ),
    (
        re.compile(
            r"User (?P<user>.*) (?P<verb>logged in|logged out|failed to log ?in|timed out) via "
            r"(?P<service>[\w ]+?) from (?P<ip>[0-9a-fA-F:.]+?)(?: using (?P<rest>[\w ./-]*))?\.?"
        ),
        1,
    ),
)


def plain(
    log: Log, common: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None
) -> Event:
    """A log of another type, as it stands."""
    columns = {"message": f"{log.kind} {log.fields.get('subtype', '')}".strip()}
    return located(
        BASE,
        UNKNOWN,
        log.stamp,
        **{**columns, **(common or log.common()), **(more or {})},
        unmapped=log.rest(),
    )


def _login(log: Log) -> Event:
    """Who is behind an address (USERID), or was asked who they are (AUTHENTICATION)."""
    fields = log.fields
    common = log.common()
    user = log.user("user", "normalize_user", "userbysource")
    source = endpoint(
        ip=fields.ip("ip"), mac=fields.mac("src_mac"), hostname=fields.text("src_host")
    )
    subtype = str(fields.get("subtype"))
    words = f"{fields.get('event', '')} {fields.get('desc', '')}".lower()
    # USERID only maps addresses to users who have logged in elsewhere already.
    failed = log.kind != "USERID" and re.search(r"fail|den(?:y|ied)|reject|invalid", words)
    if user is None or (subtype not in ("login", "logout") and log.kind == "USERID"):
        return plain(log, common, kept(user=user, src_endpoint=source))
    return located(
        AUTHENTICATION,
        2 if subtype == "logout" else 1,
        log.stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_detail=fields.text("event", "eventid"),
        message=f"{log.kind} {subtype} of {user['name']}",
        user=user,
        src_endpoint=source,
        service={"name": fields.text("datasourcename", "serverprofile") or "PAN-OS"},
        auth_protocol=fields.text("authproto"),
        observables=ends_seen(source, None, user, where="user"),
        **common,
        unmapped=log.rest(),
    )


def system(log: Log) -> Event:
    """What the firewall says of itself; a login of an administrator, where it is one."""
    fields = log.fields
    common = log.common()
    words = str(fields.get("opaque", "")).strip()
    level = severity(fields.text("severity"))
    # Both patterns have a user's name between open ends: on a long text they would search long.
    for pattern, activity in _LOGINS if len(words) < 4096 else ():
        match = pattern.fullmatch(words)
        if match is None:
            continue
        verb, parts = match["verb"], match.groupdict()
        away = verb in ("logged out", "timed out")
        spelled = Fields(ip=match["ip"])
        source = endpoint(ip=spelled.ip("ip"))
        user = split_user(match["user"])
        service = parts.get("service") or "PAN-OS"
        return located(
            AUTHENTICATION,
            2 if away else activity,
            log.stamp,
            severity_id=level,
            status_id=FAILURE if verb.startswith("failed") else SUCCESS,
            message=words,
            user=user or {"name": "unknown"},
            src_endpoint=source,
            service={"name": service},
            is_remote=True,
            observables=ends_seen(source, None, user, where="user"),
            **common,
            unmapped=log.rest(),
        )
    return plain(log, common | {"severity_id": level, "message": words or None})


def config(log: Log) -> Event:
    """A change of configuration."""
    fields = log.fields
    common = log.common()
    user, source = log.user("admin"), endpoint(ip=fields.ip("host"))
    command, path = fields.text("cmd"), fields.text("path")
    result, client = fields.text("result"), fields.text("client")
    activity = {"delete": 4, "add": 1, "clone": 1, "set": 3, "edit": 3, "commit": 3}.get(
        (command or "").lower(), OTHER
    )
    return located(
        API,
        activity,
        log.stamp,
        activity_name=(command or "Other") if activity == OTHER else None,
        # A commit is logged as submitted, and goes on. Else PAN-OS writes Failed or Unauthorized.
        status_id=SUCCESS if result in ("Succeeded", "Submitted") else FAILURE,
        status_detail=result,
        message=f"{command or 'change'} {(path or '').strip()}".strip(),
        actor={"user": user or {"name": "unknown"}},
        src_endpoint=source or {"name": client or "unknown"},
        api={"operation": command or "unknown", "service": {"name": client} if client else None},
        resources=[{"name": path.strip()}] if path else None,
        observables=ends_seen(source, None, user),
        **common,
        unmapped=log.rest(),
    )


def hip(log: Log) -> Event:
    """A client's state matched a profile (HIPMATCH)."""
    fields = log.fields
    source = endpoint(
        ip=fields.ip("src"), hostname=fields.text("machinename"), mac=fields.mac("src_mac")
    )
    user = log.user("srcuser")
    words = f"Host information matched {fields.get('matchname') or '?'}"
    return plain(log, log.common() | {"message": words}, kept(src_endpoint=source, user=user))


READERS: Mapping[str, Callable[[Log], Event]] = MappingProxyType(
    {
        "TRAFFIC": session,
        "THREAT": threat,
        "DECRYPTION": decryption,
        "SYSTEM": system,
        "GLOBALPROTECT": globalprotect,
        "USERID": _login,
        "AUTHENTICATION": _login,
        # Strata Logging Service's name for it.
        "AUTH": _login,
        "CONFIG": config,
        "HIPMATCH": hip,
        "HIP-MATCH": hip,
        "URL": threat,
    }
)
