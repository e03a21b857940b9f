"""GitHub's audit log, of organisations and enterprises: by API, export or streaming.

Times are milliseconds in the product, and text where a lake has rewritten them. Format:
https://docs.github.com/en/organizations/keeping-your-organization-secure/managing-security-settings-for-your-organization/audit-log-events-for-your-organization
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar

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
    event,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import integral
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    filled,
    look,
    mail,
    remains,
    take,
    take_ip,
    take_name,
    take_number,
    take_text,
    take_time,
    unnamed,
)

_PRODUCT: Mapping[str, str] = {"name": "GitHub Audit Log", "vendor_name": "GitHub"}
_LOGON, _LOGOFF = 1, 2
_ACTIONS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "user.login": (AUTHENTICATION, _LOGON, SUCCESS),
        "user.failed_login": (AUTHENTICATION, _LOGON, FAILURE),
        "user.logout": (AUTHENTICATION, _LOGOFF, SUCCESS),
        "user.sign_in_from_unrecognized_device": (AUTHENTICATION, _LOGON, SUCCESS),
        "user.sign_in_from_unrecognized_device_and_location": (AUTHENTICATION, _LOGON, SUCCESS),
        "user.two_factor_challenge_failure": (AUTHENTICATION, _LOGON, FAILURE),
        "user.two_factor_challenge_success": (AUTHENTICATION, _LOGON, SUCCESS),
        "org.sso_response": (AUTHENTICATION, _LOGON, SUCCESS),
        "business.sso_response": (AUTHENTICATION, _LOGON, SUCCESS),
        "user.create": (ACCOUNT, 1, SUCCESS),
        "user.destroy": (ACCOUNT, 6, SUCCESS),
        "user.delete": (ACCOUNT, 6, SUCCESS),
        "user.suspend": (ACCOUNT, 5, SUCCESS),
        "user.unsuspend": (ACCOUNT, 2, SUCCESS),
        "user.change_password": (ACCOUNT, 3, SUCCESS),
        "user.forgot_password": (ACCOUNT, 4, SUCCESS),
        "user.reset_password": (ACCOUNT, 4, SUCCESS),
        "two_factor_authentication.enabled": (ACCOUNT, 10, SUCCESS),
        "two_factor_authentication.disabled": (ACCOUNT, 11, SUCCESS),
        "external_identity.provision": (ACCOUNT, 1, SUCCESS),
        "external_identity.deprovision": (ACCOUNT, 6, SUCCESS),
        "org.add_member": (GROUP, 3, SUCCESS),
        "org.remove_member": (GROUP, 4, SUCCESS),
        "org.add_outside_collaborator": (GROUP, 3, SUCCESS),
        "org.remove_outside_collaborator": (GROUP, 4, SUCCESS),
        "business.add_admin": (GROUP, 3, SUCCESS),
        "business.remove_admin": (GROUP, 4, SUCCESS),
        "business.add_organization": (GROUP, 7, SUCCESS),
        "business.remove_organization": (GROUP, 8, SUCCESS),
        "team.add_member": (GROUP, 3, SUCCESS),
        "team.remove_member": (GROUP, 4, SUCCESS),
        "team.create": (GROUP, 6, SUCCESS),
        "team.destroy": (GROUP, 5, SUCCESS),
        "team.add_repository": (GROUP, 1, SUCCESS),
        "team.remove_repository": (GROUP, 2, SUCCESS),
    }
)
"""Actions that are no mere calls: class, activity, status."""
GIT: Mapping[str, int] = MappingProxyType({"git.clone": 2, "git.fetch": 2, "git.push": 3})
_KINDS: Mapping[str, int] = MappingProxyType(
    {"create": 1, "access": 2, "modify": 3, "restore": 3, "transfer": 3, "remove": 4}
)
"""What GitHub itself says an operation is (`operation_type`)."""
_FAILED = frozenset({"failure", "failed", "timed_out", "startup_failure", "cancelled"})
_NETWORK_LOGON = 3
WEB, HTTP_CODES = "GitHub", 999


def _read(fields: Fields, context: Context) -> Event:
    """The event of one entry of the log."""
    action = take_text(fields, "action")
    if action is None:
        raise Unreadable("no 'action' in the record")
    stamp = take_time(
        fields, context, ("@timestamp",), ("at_sign_timestamp",), ("created_at",), ("timestamp",)
    )
    # Only the second name of the same instant goes; another one stays to be seen.
    if look(fields, "created_at") is not None and _same(fields, stamp.time, context):
        take(fields, "created_at")
    class_uid, activity, status = _ACTIONS.get(action, (API, _activity(action, fields), SUCCESS))
    conclusion = look(fields, "conclusion")
    code = integral(look(fields, "status_code"))
    # Workflows end with a conclusion, calls of the API with an HTTP status.
    if (type(conclusion) is str and conclusion.lower() in _FAILED) or (
        type(code) is int and code >= 400
    ):
        status = FAILURE
    entry = _Entry(fields, action)
    special = entry.of_class(class_uid)
    # An entry without what its class must have is still the call that it was.
    if special is None:
        class_uid, activity, special = API, _activity(action, fields), entry.of_class(API)
    return event(
        class_uid,
        activity,
        stamp,
        activity_name=action.rpartition(".")[2] or action if activity == OTHER else None,
        severity_id=LOW if status == FAILURE else 1,
        status_id=status,
        status_detail=take_text(fields, "reason") or take_text(fields, "explanation"),
        message=entry.sentence(),
        metadata=metadata(
            _PRODUCT,
            stamp,
            event_code=action,
            # Unique for each entry, the same when it is delivered again.
            uid=take_text(fields, "_document_id"),
            correlation_uid=take_text(fields, "request_id"),
        ),
        **entry.common(class_uid),
        **(special or {}),
        unmapped=remains(fields),
    )


def _same(fields: Fields, time: datetime, context: Context) -> bool:
    """Whether `created_at` only says again when it was."""
    return take_time(dict(fields), context, ("created_at",)).time == time


def _activity(action: str, fields: Fields) -> int:
    if action in GIT:
        return GIT[action]
    looked_up = look(fields, "operation_type")
    # GitHub's own word before a guess from the action's name.
    activity = _KINDS.get(looked_up) if type(looked_up) is str else None
    return activity or activity_of(action.rpartition(".")[2])


class _Entry:
    """One entry, read piece by piece; `fields` holds what is left."""

    def __init__(self, fields: Fields, action: str) -> None:
        self.fields, self.action = fields, action
        name = take_text(fields, "actor")
        bot = look(fields, "actor_is_bot")
        self.actor = filled(
            name=name,
            uid=take_name(fields, "actor_id"),
            type="Bot" if bot is True else None,
            email_addr=mail(name) or take_text(fields, "external_identity_nameid", "email"),
            # The token itself is never logged; its hash is what finds all that was done with it.
            credential_uid=take_text(fields, "hashed_token") or take_name(fields, "token_id"),
        )
        user = take_text(fields, "user") or take_text(fields, "userLogin")
        self.user = filled(
            name=user, uid=take_name(fields, "user_id"), email_addr=mail(take_mail(fields))
        )
        # An invited person has no account yet, only an address to which the mail went.
        if self.user and set(self.user) == {"email_addr"}:
            self.user["name"] = self.user["email_addr"]
        self.agent = take_text(fields, "user_agent")
        self.ip = take_ip(fields, "actor_ip")
        self.org, self.org_id = _one(fields, "org"), take_name(fields, "org_id")
        self.team = take_text(fields, "team") or take_text(fields, "data", "team")
        self.resources = self._resources()

    def _resources(self) -> list[Fields]:
        field_lists = [
            ("Repository", _one(self.fields, "repo") or _one(self.fields, "repository"), "repo_id"),
            ("Team", self.team, "team_id"),
            ("Business", take_text(self.fields, "business"), "business_id"),
        ]
        listed = [
            {"uid": take_name(self.fields, key) or name, "name": name, "type": kind}
            for kind, name, key in field_lists
            if name
        ]
        if self.org:
            listed.append(
                {"uid": self.org_id or self.org, "name": self.org, "type": "Organization"}
            )
        return listed

    def common(self, class_uid: int) -> Fields:
        country = take_text(self.fields, "actor_location", "country_code")
        source: Fields = {"ip": self.ip, "country": country}
        if class_uid == API or any(source.values()):
            # Addresses are there only where the organisation turned them on; OCSF wants one.
            source = source if self.ip else source | unnamed(None)
        path = take_text(self.fields, "url_path")
        method = take_text(self.fields, "request_method")
        code = take_number(self.fields, "status_code", most=HTTP_CODES)
        return {
            "src_endpoint": source if any(source.values()) else None,
            "actor": {"user": self.actor, "invoked_by": None if self.actor else WEB},
            "cloud": {
                "provider": "GitHub",
                "account": {"name": self.org, "uid": self.org_id} if self.org else None,
            },
            "http_request": filled(
                user_agent=self.agent,
                http_method=method,
                url={"path": path} if path else None,
            ),
            "http_response": {"code": code} if code is not None else None,
            "resources": self.resources or None,
            "observables": observables(
                ("src_endpoint.ip", AN_IP, self.ip),
                ("actor.user.name", A_USER, (self.actor or {}).get("name")),
                ("user.name", A_USER, (self.user or {}).get("name")),
                (
                    "actor.user.credential_uid",
                    A_CREDENTIAL,
                    (self.actor or {}).get("credential_uid"),
                ),
                ("http_request.user_agent", AN_AGENT, self.agent),
                *(("resources[].uid", A_RESOURCE, resource["uid"]) for resource in self.resources),
            ),
        }

    def of_class(self, class_uid: int) -> Fields | None:
        """What only this class has; None where it lacks what the class must have."""
        call = {"operation": self.action, "service": {"name": "github.com"}}
        if class_uid == API:
            return {"api": call, "user": self.user}
        more = {"more": {"api": call}}
        if class_uid == AUTHENTICATION:
            who = self.user or self.actor
            # Other logins do not say whether there was a second factor: null, not false.
            second = "two_factor" in self.action or None
            return who and more | {
                "user": who,
                "service": {"name": WEB},
                "is_remote": True,
                "is_mfa": second,
                "logon_type_id": _NETWORK_LOGON,
            }
        if class_uid == ACCOUNT:
            who = self.user or self.actor
            return who and more | {"user": who}
        whole = self.org or next((resource["name"] for resource in self.resources), None)
        # Membership of an organisation is a group of that name, for lack of another one.
        name = self.team if self.action.startswith("team.") else whole
        return more | {"user": self.user, "group": {"name": name}} if name else None

    def sentence(self) -> str:
        """Who did what to what."""
        who = (self.actor or {}).get("name") or "unknown"
        target = (self.user or {}).get("name")
        on = self.resources[0]["name"] if self.resources else None
        return " ".join(part for part in (who, self.action, target, on) if part)


def take_mail(fields: Fields) -> str | None:
    """The mail address of an invited user, where the entry has one."""
    value = look(fields, "email")
    return take(fields, "email") if type(value) is str and mail(value) else None


def _one(fields: Fields, name: str) -> str | None:
    """A name; of several, as entries about more than one organisation have, the first."""
    value = look(fields, name)
    if type(value) is list and value and type(value[0]) is str:
        return value[0] or None
    return take_text(fields, name)


@dataclass(frozen=True)
class GithubAudit(EnvelopedSource):
    """GitHub's audit log, one or several entries a record."""

    name: str = "github_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("@timestamp", "at_sign_timestamp", "created_at")

    def is_own(self, fields: Fields) -> bool:
        return type(look(fields, "action")) is str

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (GithubAudit(),)
