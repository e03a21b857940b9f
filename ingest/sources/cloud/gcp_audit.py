"""Google Cloud's audit logs, and other entries of Cloud Logging that come along.

An entry (LogEntry) holds an AuditLog in `protoPayload`. Google Workspace's logins and
admin actions come that way too. Formats:
https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry
https://cloud.google.com/logging/docs/reference/audit/auditlog/rest/Shared.Types/AuditLog
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    A_CREDENTIAL,
    A_RESOURCE,
    A_USER,
    ACCOUNT,
    AN_AGENT,
    AN_IP,
    API,
    AUTHENTICATION,
    FAILURE,
    GROUP,
    LOW,
    OTHER,
    SUCCESS,
    USER_ACCESS,
    event,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import Stamp
from ingest.sources.cloud.common import (
    PORTS,
    EnvelopedSource,
    Fields,
    activity_of,
    filled,
    inner,
    key_of,
    listed,
    look,
    mail,
    remains,
    severity_of,
    take,
    take_ip,
    take_name,
    take_number,
    take_text,
    take_time,
    unnamed,
)
from ingest.sources.cloud.gcp_logging import read_entry

_PRODUCT: Mapping[str, str] = {"name": "Cloud Audit Logs", "vendor_name": "Google Cloud"}
_LOGON, _LOGOFF = 1, 2
WORKSPACE: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "loginsuccess": (AUTHENTICATION, _LOGON, SUCCESS),
        "loginfailure": (AUTHENTICATION, _LOGON, FAILURE),
        "loginchallenge": (AUTHENTICATION, 6, SUCCESS),
        "loginverification": (AUTHENTICATION, 6, SUCCESS),
        "logout": (AUTHENTICATION, _LOGOFF, SUCCESS),
        "suspiciouslogin": (AUTHENTICATION, _LOGON, SUCCESS),
        "suspiciousloginlesssecureapp": (AUTHENTICATION, _LOGON, SUCCESS),
        "accountdisabledpasswordleak": (ACCOUNT, 5, SUCCESS),
        "accountdisabledgeneric": (ACCOUNT, 5, SUCCESS),
        "accountdisabledhijacked": (ACCOUNT, 5, SUCCESS),
        "accountdisabledspamming": (ACCOUNT, 5, SUCCESS),
        "passwordedit": (ACCOUNT, 3, SUCCESS),
        "2svenroll": (ACCOUNT, 10, SUCCESS),
        "2svdisable": (ACCOUNT, 11, SUCCESS),
        "createuser": (ACCOUNT, 1, SUCCESS),
        "deleteuser": (ACCOUNT, 6, SUCCESS),
        "suspenduser": (ACCOUNT, 5, SUCCESS),
        "unsuspenduser": (ACCOUNT, 2, SUCCESS),
        "changepassword": (ACCOUNT, 4, SUCCESS),
        "grantadminprivilege": (USER_ACCESS, 1, SUCCESS),
        "revokeadminprivilege": (USER_ACCESS, 2, SUCCESS),
        "assignrole": (USER_ACCESS, 1, SUCCESS),
        "unassignrole": (USER_ACCESS, 2, SUCCESS),
        "creategroup": (GROUP, 6, SUCCESS),
        "deletegroup": (GROUP, 5, SUCCESS),
        "addgroupmember": (GROUP, 3, SUCCESS),
        "removegroupmember": (GROUP, 4, SUCCESS),
    }
)
"""Methods of Workspace's login and admin services: class, activity, status."""
WORKSPACE_SERVICES = frozenset({"login.googleapis.com", "admin.googleapis.com"})
_VALUES = ("value", "multiStrValue", "intValue", "multiIntValue", "boolValue", "multiBoolValue")
"""Where a parameter has its value: by whether it is several, a number or a truth value."""
_NETWORK_LOGON = 3
SERVICE_ACCOUNT = ".gserviceaccount.com"


def read(fields: Fields, context: Context) -> Event:
    """The event of one entry."""
    key = key_of(fields, "protoPayload")
    if key is not None and type(fields[key]) is dict:
        payload = fields[key]
    elif key_of(fields, "methodName"):
        payload = fields  # an AuditLog by itself
    else:
        return read_entry(fields, context)
    stamp = take_time(
        fields,
        context,
        ("timestamp",),
        ("protoPayload", "requestMetadata", "requestAttributes", "time"),
        ("receiveTimestamp",),
        ("protoPayload", "receiveTimestamp"),
    )
    return _Audit(fields, payload, stamp).event()


class _Audit:
    """One AuditLog, read piece by piece; `fields` and `payload` hold what is left."""

    def __init__(self, fields: Fields, payload: Fields, stamp: Stamp) -> None:
        self.fields, self.payload, self.stamp = fields, payload, stamp
        named = take_text(payload, "methodName") or take_text(fields, "methodName")
        service = take_text(payload, "serviceName") or take_text(fields, "serviceName")
        if named is None and service is None and not payload:
            raise Unreadable("protoPayload: no 'methodName' in it")
        self.method, self.service = named or "unknown", service or "unknown"
        self.user = self._user()
        self.code = take_number(payload, "status", "code", most=2**31 - 1)
        self.words = take_text(payload, "status", "message")
        self.agent = take_text(payload, "requestMetadata", "callerSuppliedUserAgent")
        self.resources = self._resources()
        # 0 is Google's code of success, and a refusal may come without any code.
        self.failed = bool(self.code) or self._refused()
        self.parameters = self._parameters()

    def event(self) -> Event:
        """The event: of Workspace by what was done, of all else a call of an API."""
        workspace = None
        # Only of these services: other products have methods of the same names.
        if self.service in WORKSPACE_SERVICES:
            workspace = WORKSPACE.get(self.method.rpartition(".")[2].lower())
        if workspace and (event := self._workspace(*workspace)):
            return event
        columns = self._columns()
        columns["src_endpoint"] = unnamed(columns["src_endpoint"])
        last = self.method.rpartition(".")[2]
        return self._event(
            API, activity_of(last), columns, api=self._api(), resources=self.resources
        )

    def _event(self, class_uid: int, activity: int, columns: Fields, **more: Any) -> Event:
        extra = more.pop("more", {}) | self._more()
        last = self.method.rpartition(".")[2] or "unknown"
        return event(
            class_uid,
            activity,
            self.stamp,
            activity_name=last if activity == OTHER else None,
            **(columns | more),
            more=extra,
            unmapped=remains(self.fields),
        )

    def _api(self) -> Fields:
        response = filled(code=self.code, error_message=self.words)
        return {
            "operation": self.method,
            "service": {"name": self.service},
            "response": response,
        }

    def _columns(self) -> Fields:
        fields, payload = self.fields, self.payload
        level = look(fields, "severity")
        severity = severity_of(level if type(level) is str else None)
        source = self._source()
        target = inner(payload, "requestMetadata", "destinationAttributes")
        onward = take_ip(target, "ip")
        return {
            "severity_id": LOW if self.failed and severity < LOW else severity,
            "status_id": FAILURE if self.failed else SUCCESS,
            "status_code": None if self.code is None else str(self.code),
            "status_detail": self.words,
            "message": self._sentence(),
            "metadata": metadata(
                _PRODUCT,
                self.stamp,
                log_name=take_text(fields, "logName"),
                event_code=self.method,
                uid=take_text(fields, "insertId"),
                correlation_uid=take_text(fields, "operation", "id"),
            ),
            "src_endpoint": source if any(source.values()) else None,
            "dst_endpoint": {"ip": onward, "port": take_number(target, "port", most=PORTS)}
            if onward
            else None,
            "http_request": {"user_agent": self.agent} if self.agent else None,
            "actor": {"user": self.user, "invoked_by": None if self.user else self.service},
            "cloud": self._cloud(),
            "observables": observables(
                ("src_endpoint.ip", AN_IP, source["ip"]),
                ("actor.user.name", A_USER, (self.user or {}).get("name")),
                (
                    "actor.user.credential_uid",
                    A_CREDENTIAL,
                    (self.user or {}).get("credential_uid"),
                ),
                ("http_request.user_agent", AN_AGENT, self.agent),
                *(
                    ("resources[].uid", A_RESOURCE, resource["uid"])
                    for resource in self.resources or ()
                ),
            ),
        }

    def _more(self) -> Fields:
        level = take_text(self.fields, "severity")
        project = (self.cloud_account or None) and {"project_uid": self.cloud_account}
        return filled(metadata=filled(log_level=level), cloud=project) or {}

    # -- parts

    def _user(self) -> Fields | None:
        about = inner(self.payload, "authenticationInfo")
        name = take_text(about, "principalEmail")
        subject = take_text(about, "principalSubject")
        if not (name or subject):
            return None
        return filled(
            name=name or subject,
            uid=subject,
            email_addr=mail(name),
            type="ServiceAccount" if name and name.endswith(SERVICE_ACCOUNT) else None,
            credential_uid=take_text(about, "serviceAccountKeyName"),
        )

    def _source(self) -> Fields:
        about = inner(self.payload, "requestMetadata")
        ip = take_ip(about, "callerIp")
        # `private`, `gce-internal-ip`: Google's own words for addresses it does not tell.
        return {"ip": ip, "name": None if ip else take_text(about, "callerIp")}

    def _resources(self) -> list[Fields] | None:
        kind = take_text(self.fields, "resource", "type")
        name = take_text(self.payload, "resourceName")
        if name is None and kind is not None:
            label = next(iter(inner(self.fields, "resource", "labels").values()), None)
            name = label if type(label) is str and label else kind
        return [{"uid": name, "name": name, "type": kind}] if name else None

    def _refused(self) -> bool:
        """Whether any of the permissions needed was not granted."""
        checks = [*listed(self.payload, "authorizationInfo")]
        checks += listed(self.fields, "authorizationInfo")
        return any(look(check, "granted") is False for check in checks)

    def _cloud(self) -> Fields:
        labels = inner(self.fields, "resource", "labels")
        self.cloud_account = take_name(labels, "project_id")
        account = self.cloud_account
        return {
            "provider": "GCP",
            "region": take_text(labels, "location") or take_text(labels, "region"),
            "account": {"uid": account} if account else None,
        }

    def _sentence(self) -> str:
        who = (self.user or {}).get("name") or "unknown"
        what = f" {self.resources[0]['name']}" if self.resources else ""
        return f"{who} {self.method}{what}{f': {self.words}' if self.words else ''}"

    # -- Workspace

    def _parameters(self) -> dict[str, str]:
        """The texts among the parameters of Workspace's events, by name in small letters.

        All go to `parameters`, as the Reports API's records have them: rules ask by name, whichever
        the way.
        """
        events = listed(self.payload, "metadata", "event")
        # Of several events only their own lists say which of them a value belongs to.
        read = take if len(events) == 1 and "parameters" not in self.fields else look
        by_name: dict[str, list[Any]] = {}
        for parameter in chain.from_iterable(listed(each, "parameter") for each in events):
            name = look(parameter, "name")
            key = next((key for key in _VALUES if look(parameter, key) is not None), None)
            if type(name) is str and key is not None:
                by_name.setdefault(name, []).append(read(parameter, key))
        if by_name and "parameters" not in self.fields:
            self.fields["parameters"] = {
                name: values[0] if len(values) == 1 else values for name, values in by_name.items()
            }
        texts = ((name, text) for name, of in by_name.items() for text in of if type(text) is str)
        parameters: dict[str, str] = {}
        for name, text in texts:
            parameters.setdefault(name.lower(), text)
        return parameters

    def _workspace(self, class_uid: int, activity: int, status: int) -> Event | None:
        named = self.parameters.get("user_email") or self.parameters.get("affected_email_address")
        target = {"name": named, "email_addr": mail(named)} if named else None
        special: Fields = {}
        if class_uid == AUTHENTICATION:
            special = {
                "user": target or self.user or {"name": "unknown"},
                "service": {"name": "Google Workspace"},
                "is_remote": True,
                "logon_type_id": _NETWORK_LOGON,
            }
        elif class_uid == ACCOUNT:
            special = {"user": target or self.user}
        elif class_uid == USER_ACCESS:
            role = self.parameters.get("role_name") or "administrator"
            special = {"user": target, "privileges": [role]}
        else:
            group = self.parameters.get("group_email")
            special = {"user": target, "group": {"name": group} if group else None}
        special["resources"] = self.resources
        needed = "group" if class_uid == GROUP else "user"
        # OCSF requires it; without it the event is the API call that it also is.
        if not special[needed]:
            return None
        # The call that tells of a failed login went well itself, and has no code of an error.
        if status == FAILURE:
            self.failed = True
        return self._event(
            class_uid, activity, self._columns(), **special, more={"api": _without(self._api())}
        )


def _without(api: Fields) -> Fields:
    return {name: value for name, value in api.items() if value is not None}


@dataclass(frozen=True)
class GcpAudit(EnvelopedSource):
    """Entries of Cloud Logging, one or several a record, also as Pub/Sub wraps them."""

    name: str = "gcp_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("timestamp", "receiveTimestamp")

    def is_own(self, fields: Fields) -> bool:
        payloads = ("protoPayload", "jsonPayload", "textPayload", "httpRequest", "methodName")
        if any(key_of(fields, name) for name in payloads):
            return True
        return bool(key_of(fields, "logName") and key_of(fields, "insertId"))

    def read(self, fields: Fields, context: Context) -> Event:
        return read(fields, context)


SOURCES = (GcpAudit(),)
