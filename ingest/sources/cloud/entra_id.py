"""Microsoft Entra ID's sign-in and audit logs and risks, as Microsoft Graph and Log Analytics
give them.

https://learn.microsoft.com/en-us/graph/api/resources/signin (v1.0 and beta) and
https://learn.microsoft.com/en-us/graph/api/resources/directoryaudit ; rows of the tables
`SigninLogs`, `AADNonInteractiveUserSignInLogs`, `AADServicePrincipalSignInLogs`, `AuditLogs`,
`AADUserRiskEvents` and `AADRiskyUsers` of Log Analytics have the same fields with a capital. What
Azure Monitor writes around them is `azure_audit`; risks are told in `entra_risk.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.azure_audit import AzureAudit
from ingest.sources.cloud.common import Fields, key_of, look, take, take_text
from ingest.sources.cloud.entra_risk import category_of

_PACKED = (
    ("status", "Status"),
    ("location", "LocationDetails"),
    ("location", "Location"),
    ("deviceDetail", "DeviceDetail"),
    ("initiatedBy", "InitiatedBy"),
    ("targetResources", "TargetResources"),
)
"""What Log Analytics writes as JSON in a text, and how Graph calls it."""


def _unpacked(fields: Fields) -> None:
    for name, key in _PACKED:
        value: Any = look(fields, key)
        if type(value) is str and value[:1] in ("{", "["):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.MsgspecError, RecursionError):
                continue  # stays as text
        # Some exports have unpacked it themselves, under Log Analytics' name.
        if type(value) in (dict, list):
            take(fields, key)
            fields[name] = value


@dataclass(frozen=True)
class EntraId(AzureAudit):
    """Sign-ins and changes of the directory, without Azure Monitor's envelope."""

    name: str = "entra_id"
    time_keys: ClassVar[tuple[str, ...]] = (
        "createdDateTime",
        "activityDateTime",
        "riskLastUpdatedDateTime",
        "lastScannedDateTime",
        "TimeGenerated",
        "time",
    )

    def is_own(self, fields: Fields) -> bool:
        return self._is_bare(fields) or super().is_own(fields)

    @staticmethod
    def _is_bare(fields: Fields) -> bool:
        if key_of(fields, "properties"):
            return False
        return bool(category_of(fields)) or any(
            key_of(fields, name)
            for name in ("userPrincipalName", "servicePrincipalId", "activityDisplayName")
        )

    def read(self, fields: Fields, context: Context) -> Event:
        if not self._is_bare(fields):
            return super().read(fields, context)
        _unpacked(fields)
        risk = category_of(fields)
        change = not risk and key_of(fields, "activityDisplayName") is not None
        if (
            not risk
            and not change
            and not any(
                key_of(fields, name) for name in ("createdDateTime", "appDisplayName", "ResultType")
            )
        ):
            raise Unreadable("neither a sign-in nor a change of the directory")
        kind = take_text(fields, "Type")
        category, operation = risk or ("AuditLogs" if change else "SignInLogs", None)
        whole: Fields = {"category": kind or category, "properties": fields}
        if risk:
            whole["operationName"] = take_text(fields, "operationName") or operation
        for name in ("TimeGenerated", "ResultType", "CorrelationId", "TenantId", "Identity"):
            key = key_of(fields, name)
            if key:
                value = fields.pop(key)
                whole["time" if name == "TimeGenerated" else name] = value
        scanned = take_text(fields, "lastScannedDateTime")
        if scanned:
            # When an alert was raised is not told, only when it was seen to hold.
            whole.setdefault("time", scanned)
        kind_of_change = take_text(fields, "category") if change else None
        if kind_of_change:
            fields["activityCategory"] = kind_of_change
        app = look(fields, "resourceDisplayName") or look(fields, "appDisplayName")
        if not change and look(fields, "resourceDisplayName") is None and type(app) is str:
            fields["resourceDisplayName"] = app
        return super().read(whole, context)


SOURCES = (EntraId(),)
