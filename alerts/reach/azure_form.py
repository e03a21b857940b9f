"""A record of Entra ID or Azure as its diagnostic settings write it, made of Sigma's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from alerts.reach.example_values import KEYWORDS
from alerts.reach.nested_form import nested
from alerts.rulepack.log_source import LogSource

_AZURE = {
    "time": "2025-03-05T12:00:00.123Z", "resourceId": "/tenants/t/providers/Microsoft.aadiam",
    "operationName": "x", "category": "AuditLogs", "tenantId": "t",
    "callerIpAddress": "203.0.113.9", "properties": {},
}  # fmt: skip
_NAMES = {
    **dict.fromkeys(("OperationName", "operationNameValue", "eventName"), "operationName"),
    **dict.fromkeys(("LoggedByService", "LoggedbyService"), "properties.loggedByService"),
    **dict.fromkeys(
        ("InitiatedBy", "Initiatedby"), "properties.initiatedBy.user.userPrincipalName"
    ),
    "InitiatedBy.user.userPrincipalName": "properties.initiatedBy.user.userPrincipalName",
    "AuthenticationProtocol": "properties.authenticationProtocol",
    "properties.message": "operationName",
    "ActivityDisplayName": "operationName",
    "ActivityType": "operationName",
    "Category": "category",
    "ResultType": "resultType",
    "ResultDescription": "resultDescription",
    "Username": "properties.userPrincipalName",
    "UserPrincipalName": "properties.userPrincipalName",
    "userAgent": "properties.userAgent",
    "ClientApp": "properties.clientAppUsed",
    "AppDisplayName": "properties.appDisplayName",
    "ResourceDisplayName": "properties.resourceDisplayName",
    "Location": "properties.location",
    "AuthenticationRequirement": "properties.authenticationRequirement",
    "ConditionalAccessStatus": "properties.conditionalAccessStatus",
    "riskEventType": "properties.riskEventType",
    KEYWORDS: "properties.note",
}
_MODIFIED = "modifiedproperties."


def azure_record(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> bytes:
    """A record of the log that the log source names, with these fields."""
    data = dict(values)
    changed = _changed(data)
    channels = next(iter(source.where), {}).get("metadata.log_name")
    outcome = _outcome(data, signed_in="SignInLogs" in (channels or ()))
    own = {_own_name(source, name): value for name, value in data.items()} | outcome
    alert = re.fullmatch(r"(\w+Alert)(?:Incident|Configuration)", values.get("riskEventType", ""))
    if alert:
        # Alerts of Privileged Identity Management are named by what they define.
        own["properties.alertDefinitionId"] = f"DirectoryRole_t_{alert[1]}"
        del own["properties.riskEventType"]
    record = nested(own, _AZURE)
    if changed:
        record["properties"]["targetResources"] = [changed]
    if channels and "category" not in own:
        record["category"] = channels[0]
    # These are texts in Azure's records, whatever they look like.
    for name in ("resultType", "operationName"):
        if name in record:
            record[name] = str(record[name])
    return json.dumps(record).encode()


def _own_name(source: LogSource, name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    places = source.paths(name) if name != KEYWORDS else ()
    # Where one place is known, it has the record's own name.
    own = len(places) == 1 and places[0].startswith("unmapped:")
    return places[0].removeprefix("unmapped:") if own else name


def _outcome(data: dict[str, str], *, signed_in: bool) -> dict[str, str]:
    """What stands for a rule's status: a number of a sign-in, a word of anything else."""
    status = data.pop("Status", None) or data.pop("status", None)
    if status is None:
        return {}
    if not signed_in:
        return {"resultType": status, "properties.result": status}
    if status.lower() in ("success", "failure"):
        return {"resultType": "0" if status.lower() == "success" else "50126"}
    return {"resultType": status} if status.isdecimal() else {
        "resultType": "50126", "properties.status.additionalDetails": status,
    }  # fmt: skip


def _changed(data: dict[str, str]) -> dict[str, Any]:
    """What an operation changed, one of a list in the record."""
    changed: dict[str, Any] = {}
    for name in [*data]:
        before, _, leaf = name.removeprefix("properties.").partition(".")
        if name in ("Target", "TargetResources"):
            changed["displayName"] = data.pop(name)
        elif before.lower() == "targetresources" and leaf.lower().startswith(_MODIFIED):
            inner = leaf[len(_MODIFIED) :]
            properties = changed.setdefault("modifiedProperties", [{}])
            properties[0][f"{inner[:1].lower()}{inner[1:]}"] = data.pop(name)
        elif before.lower() == "targetresources" and leaf:
            changed[leaf] = data.pop(name)
        elif before == "ConsentContext":
            # Behind another property, of which a rule may ask the value besides.
            changed.setdefault("modifiedProperties", [{}]).append(
                {"displayName": name, "oldValue": None, "newValue": f'"{data.pop(name)}"'}
            )
    return changed
