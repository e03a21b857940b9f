"""Events of ZIA's admin audit log: who logged in to the admin portal, who changed what.

https://help.zscaler.com/zia/nss-feed-output-format-admin-audit-logs
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import API, AUTHENTICATION, FAILURE, OTHER, SUCCESS, UNKNOWN, kept
from ingest.parsing.source import Event
from ingest.sources.cloud.record import person
from ingest.sources.shared.firewall import endpoint
from ingest.sources.zscaler.logs import Log, plain

_LOGINS: Mapping[str, int] = MappingProxyType({"SIGN_IN": 1, "SIGN_OUT": 2})
_CHANGES: Mapping[str, int] = MappingProxyType(
    {"CREATE": 1, "IMPORT": 1, "DOWNLOAD": 2, "UPDATE": 3, "PATCH": 3, "DELETE": 4}
)


def audit(log: Log) -> Event:
    """What an administrator did, in the portal or through the API."""
    fields = log.fields
    name = plain(fields, "adminid")
    # OCSF wants to know who; a log without an administrator's name still tells what was done.
    who = person(name) or {"name": "unknown"}
    log.user = who
    action = (log.action or "").upper()
    result, error = plain(fields, "result"), plain(fields, "errorcode")
    outcome = {"SUCCESS": SUCCESS, "FAILURE": FAILURE}.get((result or "").upper(), UNKNOWN)
    source = endpoint(ip=fields.ip("clientip"))
    what, interface = plain(fields, "resource"), plain(fields, "interface")
    columns: dict[str, Any] = {
        "severity_id": 1,
        "status_id": outcome,
        "status_code": result,
        "status_detail": error,
    }
    if action in _LOGINS:
        fields.keep("resource", what)
        fields.keep("interface", interface)
        return log.event(
            AUTHENTICATION,
            _LOGINS[action],
            src_endpoint=source,
            user=who,
            service={"name": "ZIA Admin Portal"},
            is_remote=True if source else None,
            message=f"{name or 'unknown'}: {log.action}",
            **columns,
        )
    category = fields.get("subcategory", fields.get("category"))
    activity = _CHANGES.get(action, OTHER)
    return log.event(
        API,
        activity,
        activity_name=(log.action or "Other") if activity == OTHER else None,
        # OCSF's API Activity requires a source and an actor.
        src_endpoint=source or {"name": "unknown"},
        api={
            "operation": log.action or "unknown",
            "service": {"name": interface} if interface else None,
        },
        resources=[kept(name=what, type=category if type(category) is str else None)]
        if what
        else None,
        message=f"{log.action or 'change'} {what or ''}".strip(),
        **columns,
    )
