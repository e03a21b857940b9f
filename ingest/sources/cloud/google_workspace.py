"""Google Workspace's audit logs: logins, admin, Drive, tokens and others.

https://developers.google.com/workspace/admin/reports/reference/rest/v1/activities : activities of
the Reports API, with one event each or several. What Cloud Logging carries of them is `gcp_audit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    API,
    AUTHENTICATION,
    FAILURE,
    FILE_HOSTING,
    LOW,
    MEDIUM,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import require_repeatable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    listed,
    look,
    take,
    take_ip,
    take_name,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person

_PRODUCT: Mapping[str, str] = {"name": "Workspace", "vendor_name": "Google"}
_LOGINS: Mapping[str, tuple[int, int, int]] = {
    "login_success": (1, SUCCESS, 1),
    "login_failure": (1, FAILURE, LOW),
    "logout": (2, SUCCESS, 1),
    "login_challenge": (6, UNKNOWN, 1),
    "login_verification": (6, UNKNOWN, 1),
    "risky_sensitive_action_allowed": (6, SUCCESS, MEDIUM),
    "risky_sensitive_action_blocked": (6, FAILURE, MEDIUM),
    "suspicious_login": (1, SUCCESS, MEDIUM),
    "suspicious_login_less_secure_app": (1, SUCCESS, MEDIUM),
    "suspicious_programmatic_login": (1, SUCCESS, MEDIUM),
}
"""Events of the application `login` (and of `saml`): activity, outcome, severity."""
_FILES = {
    "create": 1,
    "upload": 1,
    "download": 2,
    "edit": 3,
    "delete": 4,
    "trash": 4,
    "rename": 5,
    "copy": 6,
    "move": 7,
    "untrash": 8,
    "preview": 9,
    "view": 14,
    "change_user_access": 12,
    "change_document_visibility": 12,
    "change_document_access_scope": 12,
}
"""Events of Drive, as activities of File Hosting."""


def _parameters(event: Fields) -> Fields:
    """The parameters of an event by name; each holds its value under a key of its type."""
    values: Fields = {}
    for element in listed(event, "parameters"):
        name = take_text(element, "name")
        # `name` is gone, so that what is left is the value, under `value`, `intValue`, `boolValue`
        # and so on; some parameters have several.
        held = [value for value in element.values() if value is not None]
        if name is not None:
            values[name] = held[0] if len(held) == 1 else dict(element)
    take(event, "parameters")
    return values


def _one(activity: Fields, event: Fields, context: Context) -> Event:
    """The event of one of an activity's events; both are emptied of what is used."""
    name, kind = take_text(event, "name"), look(event, "type")
    kind = kind if type(kind) is str else None
    if name is None:
        raise Unreadable("events: an event without 'name'")
    stamp = take_time(activity, context, ("id", "time"))
    application = take_text(activity, "id", "applicationName")
    customer = take_text(activity, "id", "customerId")
    uid = take_name(activity, "id", "uniqueQualifier")
    mail_of, profile = (
        take_text(activity, "actor", "email"),
        take_name(activity, "actor", "profileId"),
    )
    by = person(
        mail_of or take_text(activity, "actor", "key"),
        profile,
        type=take_text(activity, "actor", "callerType"),
    )
    ip = take_ip(activity, "ipAddress")
    values = _parameters(event)
    rest = activity | {key: value for key, value in event.items() if value}
    if values:
        rest["parameters"] = values
    record = CloudRecord(_PRODUCT, rest, stamp)
    columns: dict[str, Any] = {
        "about": kept(event_code=name, uid=uid, log_name=application or kind),
        "message": f"{mail_of or 'unknown'}: {name}",
        "source": {"ip": ip} if ip else None,
        "by": by,
        "cloud": {"provider": "Google", "account": {"uid": customer} if customer else None},
    }
    if name in _LOGINS and application in ("login", "saml", None):
        doing, status, severity = _LOGINS[name]
        second = values.get("is_second_factor")
        how = take_text(rest, "parameters", "login_type")
        why = take_text(rest, "parameters", "login_failure_type")
        return record.event(
            AUTHENTICATION,
            doing,
            status=status,
            severity=severity,
            status_detail=why,
            auth_protocol=how,
            is_mfa=second if type(second) is bool else None,
            is_remote=True,
            service=application or "login",
            **columns,
        )
    if application == "drive" and name in _FILES:
        title = take_text(rest, "parameters", "doc_title") or "unknown"
        columns["source"] = columns["source"] or {"name": "unknown"}
        return record.event(
            FILE_HOSTING,
            _FILES[name],
            status=SUCCESS,
            file=kept(name=title, path=take_text(rest, "parameters", "doc_id"), type_id=1),
            **columns,
        )
    acted = take_text(rest, "parameters", "USER_EMAIL") or take_text(
        rest, "parameters", "affected_email_address"
    )
    return record.event(
        API,
        activity_of(name.replace("_", " ").lower().replace(" ", "_")),
        status=SUCCESS,
        operation=name,
        service=application,
        resources=[{"uid": acted, "name": acted, "type": "User"}] if acted else None,
        **columns,
    )


@dataclass(frozen=True)
class GoogleWorkspace(EnvelopedSource):
    """Activities of Google Workspace."""

    name: str = "google_workspace"
    time_keys: ClassVar[tuple[str, ...]] = ()

    def is_own(self, fields: Fields) -> bool:
        return look(fields, "id", "applicationName") is not None and "events" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return self.read_all(fields, context)[0]

    def read_all(self, fields: Fields, context: Context) -> list[Event]:
        """The events of an activity, each with what the activity says of all of them."""
        parts = listed(fields, "events")
        if not parts:
            raise Unreadable("an activity without events")
        fields.pop("events")
        require_repeatable(fields, len(parts))
        # A copy for each: an event takes out of its activity what it uses, and the next one needs
        # that as well.
        return [_one(_copy(fields), part, context) for part in parts]


def _copy(fields: Fields) -> Fields:
    return {key: dict(value) if type(value) is dict else value for key, value in fields.items()}


SOURCES = (GoogleWorkspace(),)
