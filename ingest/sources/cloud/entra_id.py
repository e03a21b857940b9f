"""Microsoft Entra ID's sign-in and audit logs, as Microsoft Graph and Log Analytics give them.

https://learn.microsoft.com/en-us/graph/api/resources/signin (v1.0 and beta) and
https://learn.microsoft.com/en-us/graph/api/resources/directoryaudit ; rows of the tables
`SigninLogs`, `AADNonInteractiveUserSignInLogs`, `AADServicePrincipalSignInLogs` and `AuditLogs` of
Log Analytics have the same fields with a capital. What Azure Monitor writes around them is
`azure_audit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.azure_audit import AzureAudit
from ingest.sources.cloud.common import Fields, key_of, look, take, take_text

_PACKED = (
    ("status", "Status"),
    ("location", "LocationDetails"),
    ("deviceDetail", "DeviceDetail"),
    ("initiatedBy", "InitiatedBy"),
    ("targetResources", "TargetResources"),
)
"""What Log Analytics writes as JSON in a text, and how Graph calls it."""


def _unpacked(fields: Fields) -> None:
    for name, key in _PACKED:
        text = look(fields, key)
        if type(text) is not str or text[:1] not in ("{", "["):
            continue
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            continue  # stays as text
        take(fields, key)
        fields[name] = value


@dataclass(frozen=True)
class EntraId(AzureAudit):
    """Sign-ins and changes of the directory, without Azure Monitor's envelope."""

    name: str = "entra_id"
    time_keys: ClassVar[tuple[str, ...]] = (
        "createdDateTime",
        "activityDateTime",
        "TimeGenerated",
        "time",
    )

    def is_own(self, fields: Fields) -> bool:
        return self._is_bare(fields) or super().is_own(fields)

    @staticmethod
    def _is_bare(fields: Fields) -> bool:
        if key_of(fields, "properties"):
            return False
        return any(
            key_of(fields, name)
            for name in ("userPrincipalName", "servicePrincipalId", "activityDisplayName")
        )

    def read(self, fields: Fields, context: Context) -> Event:
        if not self._is_bare(fields):
            return super().read(fields, context)
        _unpacked(fields)
        change = key_of(fields, "activityDisplayName") is not None
        if not change and not any(
            key_of(fields, name) for name in ("createdDateTime", "appDisplayName", "ResultType")
        ):
            raise Unreadable("neither a sign-in nor a change of the directory")
        kind = take_text(fields, "Type")
        whole: Fields = {
            "category": kind or ("AuditLogs" if change else "SignInLogs"),
            "properties": fields,
        }
        for name in ("TimeGenerated", "ResultType", "CorrelationId", "TenantId", "Identity"):
            key = key_of(fields, name)
            if key:
                value = fields.pop(key)
                whole["time" if name == "TimeGenerated" else name] = value
        kind_of_change = take_text(fields, "category") if change else None
        if kind_of_change:
            fields["activityCategory"] = kind_of_change
        app = look(fields, "resourceDisplayName") or look(fields, "appDisplayName")
        if not change and look(fields, "resourceDisplayName") is None and type(app) is str:
            fields["resourceDisplayName"] = app
        return super().read(whole, context)


SOURCES = (EntraId(),)
