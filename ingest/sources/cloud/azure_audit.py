"""Microsoft Entra ID's sign-in and audit logs, and Azure's activity log, as diagnostics.

Records as Event Hubs and storage hold them (`records[]`). Formats:
https://learn.microsoft.com/en-us/azure/azure-monitor/essentials/resource-logs-schema
https://learn.microsoft.com/en-us/entra/identity/monitoring-health/concept-sign-ins
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    A_RESOURCE,
    A_USER,
    AN_AGENT,
    AN_IP,
    API,
    AUTHENTICATION,
    FAILURE,
    FINDING,
    INFORMATIONAL,
    LOW,
    OTHER,
    SUCCESS,
    UNKNOWN,
    event,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import Stamp
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    filled,
    inner,
    listed,
    look,
    look_text,
    mail,
    remains,
    severity_of,
    take_ip,
    take_name,
    take_number,
    take_text,
    take_time,
    unnamed,
)
from ingest.sources.cloud.entra_risk import SETTLED, alert_kind, is_active, is_risk, risk_kind

_PRODUCT: Mapping[str, str] = {"name": "Entra ID", "vendor_name": "Microsoft"}
_LEVELS = {"critical": 5, "error": 4, "warning": 3, "1": 5, "2": 4, "3": 3}
"""Levels in words, and as Event Tracing numbers them; all others only inform."""
_GOOD = frozenset({"success", "succeeded", "0", "started", "accepted"})
BAD = frozenset({"failure", "failed", "error", "timeout"})
_SIGN_IN = "signin"
_NETWORK_LOGON = 3


def _read(fields: Fields, context: Context) -> Event:
    """The event of one record."""
    operation = take_text(fields, "operationName") or take_text(
        fields, "operationName", "localizedValue"
    )
    about = inner(fields, "properties")
    operation = operation or take_text(about, "activityDisplayName")
    category = take_text(fields, "category")
    if operation is None and category is None:
        raise Unreadable("neither 'operationName' nor 'category' in the record")
    risk = is_risk(about) or alert_kind(about) is not None
    # `properties` first: `time` is when the record was written, which may be later.
    stamp = take_time(
        fields,
        context,
        ("properties", "createdDateTime"),
        ("properties", "activityDateTime"),
        # In records of risks `time` is written as in the United States.
        ("properties", "riskLastUpdatedDateTime"),
        ("time",),
        ("eventTimestamp",),
    )
    entry = _Entry(fields, about, operation or category or "", category, stamp)
    if risk:
        return entry.risk()
    return entry.sign_in() if entry.is_sign_in else entry.call()


_CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/"
_CLAIMED_NAMES = (f"{_CLAIMS}upn", f"{_CLAIMS}name", "upn", "name", "appid")
"""Who a token is for: a user's principal name, else a service's id."""
_OBJECT_ID = "http://schemas.microsoft.com/identity/claims/objectidentifier"


class _Entry:
    """One record, read piece by piece; `fields` holds what is left."""

    def __init__(
        self, fields: Fields, about: Fields, operation: str, category: str | None, stamp: Stamp
    ) -> None:
        self.fields, self.about, self.stamp = fields, about, stamp
        self.operation, self.category = operation, category
        # `SignInLogs`, `NonInteractiveUserSignInLogs`, `Sign-in activity`: one word in all of them.
        self.is_sign_in = _SIGN_IN in (category or operation).lower().replace("-", "")
        self.ip = (
            take_ip(about, "ipAddress")
            or take_ip(fields, "callerIpAddress")
            or take_ip(fields, "properties", "initiatedBy", "user", "ipAddress")
        )
        self.agent = take_text(about, "userAgent")
        self.error = take_number(about, "status", "errorCode")
        self.reason = take_text(about, "status", "failureReason") or take_text(
            about, "resultReason"
        )
        self.status, self.code = self._status()

    def _status(self) -> tuple[int, str | None]:
        written = take_name(self.fields, "resultType") or take_text(self.about, "result")
        if self.error is not None:
            # An error code of 0 is how Entra ID writes that a sign-in went well.
            return FAILURE if self.error else SUCCESS, str(self.error)
        low = (written or "").lower()
        if low in _GOOD:
            return SUCCESS, written
        # Sign-ins have the number of an error here, such as 50126 for a wrong password.
        if low in BAD or (low.isdecimal() and low != "0"):
            return FAILURE, written
        return UNKNOWN, written

    def sign_in(self) -> Event:
        """A sign-in of a user, a service principal or a managed identity."""
        name = take_text(self.about, "userPrincipalName") or take_text(
            self.about, "servicePrincipalName"
        )
        full = take_text(self.about, "userDisplayName")
        uid = take_text(self.about, "userId") or take_text(self.about, "servicePrincipalId")
        # In sign-ins `identity` is mostly the display name once more.
        named = None if full else take_text(self.fields, "identity")
        user = filled(
            name=name or full or named,
            uid=uid,
            full_name=full or named,
            email_addr=mail(name),
            type=take_text(self.about, "userType"),
        )
        app = take_text(self.about, "resourceDisplayName") or "Entra ID"
        needed = look(self.about, "authenticationRequirement")
        session = take_text(self.about, "sessionId")
        return self._event(
            AUTHENTICATION,
            1,
            user=user or {"name": "unknown"},
            actor={"user": user} if user else None,
            service={"name": app, "uid": take_text(self.about, "resourceId")},
            is_remote=True,
            is_mfa=needed == "multiFactorAuthentication" if type(needed) is str else None,
            logon_type_id=_NETWORK_LOGON,
            auth_protocol=take_text(self.about, "authenticationProtocol"),
            session={"uid": session} if session else None,
        )

    def risk(self) -> Event:
        """What ID Protection found about an account, or an alert of Privileged Identity Management.

        An alert that is not active is closed, and names nothing that it found.
        """
        about = self.about
        name = (
            take_text(about, "userPrincipalName")
            or take_text(about, "assigneeUserPrincipalName")
            or take_text(about, "servicePrincipalDisplayName")
        )
        full = take_text(about, "userDisplayName") or take_text(about, "assigneeDisplayName")
        uid = (
            take_text(about, "userId")
            or take_text(about, "assigneeId")
            or take_text(about, "servicePrincipalId")
        )
        who = filled(name=name or full or uid, uid=uid, full_name=full, email_addr=mail(name))
        alert = alert_kind(about)
        kind, active = risk_kind(about), is_active(about)
        state, level = look_text(about, "riskState"), look_text(about, "riskLevel")
        closed = not active or state in SETTLED
        analytic = alert if active else None
        return self._event(
            FINDING,
            3 if closed else 1,
            user=who,
            severity_id=severity_of(level),
            finding_info=filled(
                uid=look_text(about, "id") or "unknown",
                title=kind or alert or self.operation,
                types=[kind] if kind else None,
                analytic=filled(name=analytic, uid=analytic, type_id=UNKNOWN) if analytic else None,
                desc=look_text(about, "alertDefinition", "description"),
            ),
        )

    def call(self) -> Event:
        """A change in the directory or to a resource."""
        by = inner(self.about, "initiatedBy")
        user, app = inner(by, "user"), inner(by, "app")
        name = take_text(user, "userPrincipalName") or take_text(app, "displayName")
        named = take_text(self.fields, "identity") or take_text(self.fields, "caller")
        # Who called Azure's resource manager stands in the claims of the token that was shown.
        claims = inner(inner(self.fields, "identity"), "claims") or inner(self.fields, "claims")
        claimed_name = next(
            (text for key in _CLAIMED_NAMES if (text := take_text(claims, key))), None
        )
        named = named or claimed_name
        full = take_text(user, "displayName")
        actor = filled(
            name=name or named or full,
            uid=take_text(user, "id")
            or take_text(app, "servicePrincipalId")
            or take_text(claims, _OBJECT_ID),
            full_name=full,
            email_addr=mail(name or named),
        )
        # `MICROSOFT.COMPUTE/VIRTUALMACHINES/DELETE` ends in its verb, `Add user` begins with it.
        verb = self.operation.rpartition("/")[2]
        looked_up = look(self.about, "operationType")
        activity = activity_of(verb.lower())
        if activity == OTHER and type(looked_up) is str:
            activity = activity_of(looked_up)
        return self._event(
            API,
            activity,
            activity_name=verb if activity == OTHER else None,
            actor={"user": actor, "invoked_by": None if actor else "Azure"},
            api={
                "operation": self.operation,
                "version": take_name(self.fields, "operationVersion"),
                "service": {"name": take_text(self.about, "loggedByService") or "Azure"},
            },
            resources=self._resources() or None,
        )

    def _resources(self) -> list[Fields]:
        field_lists = []
        for target in listed(self.about, "targetResources"):
            uid, name = take_text(target, "id"), take_text(target, "displayName")
            name = name or take_text(target, "userPrincipalName")
            if uid or name:
                field_lists.append(
                    {"uid": uid or name, "name": name, "type": take_text(target, "type")}
                )
        whole = take_text(self.fields, "resourceId")
        if whole:
            field_lists.append(
                {"uid": whole, "name": whole.rpartition("/")[2] or whole, "type": None}
            )
        return field_lists

    def _event(self, class_uid: int, activity: int, **columns: Any) -> Event:
        level = look(self.fields, "level")
        severity = columns.pop("severity_id", None) or _LEVELS.get(
            str(level).lower(), INFORMATIONAL
        )
        tenant = take_text(self.fields, "tenantId") or take_text(self.about, "tenantId")
        place = inner(self.about, "location")
        placed = bool(place)
        country = take_text(place, "countryOrRegion")
        # Of a risky account it is where Microsoft keeps it.
        if not country and (self.ip or class_uid != FINDING):
            country = take_text(self.fields, "location")
        source: Fields = {"ip": self.ip, "country": country}
        # OCSF asks for a source of a call, also where a service acts for itself.
        if not self.ip and (class_uid != FINDING or placed):
            source |= unnamed(None)
        acting = (columns.get("actor") or {}).get("user")
        who = acting or columns.get("user") or {}
        uid = take_text(self.about, "id") or take_text(self.fields, "eventDataId")
        return event(
            class_uid,
            activity,
            self.stamp,
            severity_id=LOW if self.status == FAILURE and severity < LOW else severity,
            status_id=self.status,
            status_code=self.code,
            status_detail=self.reason,
            message=f"{who.get('name') or 'unknown'}: {self.operation}",
            metadata=metadata(
                _PRODUCT,
                self.stamp,
                log_name=self.category,
                event_code=self.operation,
                uid=uid,
                correlation_uid=take_text(self.fields, "correlationId"),
            ),
            src_endpoint=source,
            http_request={"user_agent": self.agent} if self.agent else None,
            cloud={"provider": "Azure", "account": {"uid": tenant} if tenant else None},
            duration=take_number(self.fields, "durationMs"),
            observables=observables(
                ("src_endpoint.ip", AN_IP, self.ip),
                ("actor.user.name" if acting else "user.name", A_USER, who.get("name")),
                ("http_request.user_agent", AN_AGENT, self.agent),
                *(
                    ("resources[].uid", A_RESOURCE, resource["uid"])
                    for resource in columns.get("resources") or ()
                ),
            ),
            more=filled(
                metadata=filled(log_level=take_name(self.fields, "level")),
                src_endpoint=filled(
                    location=filled(city=take_text(place, "city"), region=take_text(place, "state"))
                ),
            ),
            unmapped=remains(self.fields),
            **columns,
        )


@dataclass(frozen=True)
class AzureAudit(EnvelopedSource):
    """Azure's diagnostic records of sign-ins and changes, one or several a record."""

    name: str = "azure_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("time",)

    def is_own(self, fields: Fields) -> bool:
        return look(fields, "operationName") is not None or (
            look(fields, "category") is not None and bool(inner(fields, "properties"))
        )

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (AzureAudit(),)
