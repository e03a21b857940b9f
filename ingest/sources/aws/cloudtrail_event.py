"""The event of one CloudTrail record.

Rules look for calls by class and name, so a change to a user or a group is an API call like any
other; only what signs somebody in or out is not.

Format: https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-event-reference-record-contents.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    A_CREDENTIAL,
    A_RESOURCE,
    A_USER,
    AN_AGENT,
    AN_IP,
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    LOW,
    OTHER,
    SUCCESS,
    address,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import child, take_string
from ingest.parsing.timestamps import Stamp, stamp_iso
from ingest.sources.cloud.common import filled, ms, take_text

CLOUDTRAIL: Mapping[str, str] = {"name": "CloudTrail", "vendor_name": "AWS"}
_UTC = ZoneInfo("UTC")
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_LOGON, _LOGOFF, _PREAUTH, _SWITCH = 1, 2, 6, 7
_OPENED, _CLOSED = 1, 3
_WORDS = {
    _CREATE: "Create Run Register Allocate Import",
    _READ: "Get List Describe Lookup Head Search Query Scan Select Decrypt",
    _UPDATE: "Update Modify Put Set Attach Detach Associate Disassociate Add Change Enable "
    "Disable Start Stop Tag Untag Authorize Revoke",
    _DELETE: "Delete Terminate Remove Deregister Release",
}
VERBS = MappingProxyType({word: of for of, words in _WORDS.items() for word in words.split()})
VERB = re.compile(r"[A-Z][a-z]+")
LOGSTASH_TIME = "@timestamp"
"""Where Logstash's codec for CloudTrail puts `eventTime`, which it then leaves out."""
HIDDEN = "HIDDEN_DUE_TO_SECURITY_REASONS"
"""What CloudTrail writes for a user name that may be a password typed in the wrong field."""


def activity_of_call(operation: str, read_only: object) -> int:
    """The activity of an API call."""
    verb = VERB.match(operation)
    if verb and verb[0] in VERBS:
        return VERBS[verb[0]]
    return _READ if read_only is True else OTHER


def _user(identity: dict[str, Any]) -> dict[str, Any] | None:
    """Who called; what is used goes out of `identity`."""
    of = take_string(identity, "type")
    name = take_string(identity, "userName")
    # It is no name; it stays in `unmapped`, since it tells of a mistyped login.
    if name == HIDDEN:
        identity["userName"], name = name, None
    issuer = child(child(identity, "sessionContext"), "sessionIssuer")
    # Of an assumed role CloudTrail names who issued the session, not a user.
    if name is None and type(issuer.get("userName")) is str:
        name = issuer["userName"]
    # The root user's record has no `userName`; rules ask for it by this name.
    if name is None and of == "Root":
        name = "root"
    uid, account = take_string(identity, "principalId"), take_string(identity, "accountId")
    if uid is None:
        # IAM Identity Center: on whose behalf the session acts.
        uid = take_text(identity, "onBehalfOf", "userId")
    if name is uid is account is None:
        if of is not None:
            identity["type"] = of
        return None
    # A key of an AWS service is none that anybody holds, but says whose call it was.
    key = take_text(identity, "accessKeyId") or take_text(identity, "credentialId")
    return {
        "name": name,
        "uid": uid,
        "type": of,
        "account_uid": account,
        "credential_uid": key,
    }


def actor_of(identity: dict[str, Any], operation_by: str) -> dict[str, Any]:
    """Who acted; what is used goes out of `identity`. Raises `Unreadable`."""
    user = _user(identity)
    attributes = child(child(identity, "sessionContext"), "attributes")
    mfa = attributes.get("mfaAuthenticated")
    invoked_by = take_string(identity, "invokedBy")
    if user is None and invoked_by is None:
        # Events of a service itself name nobody; the service is who did it.
        invoked_by = operation_by
    return {
        "user": user,
        "invoked_by": invoked_by,
        "session": {"is_mfa": mfa == "true"} if type(mfa) is str else None,
    }


def _source(address_or_service: str | None) -> dict[str, Any] | None:
    """An address, or the AWS service that called on somebody's behalf."""
    if not address_or_service:
        return None
    ip = address(address_or_service)
    # `sourceIPAddress` may be the name of an AWS service, which is no host.
    return {"ip": ip} if ip else {"svc_name": address_or_service}


def resources_of(entry: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The ARNs touched; `entry` keeps what they have besides, and what is no object."""
    resources = entry.pop("resources", None)
    if resources is None:
        return None
    if type(resources) is not list:
        # They decide nothing, so an odd form of them costs no event.
        entry["resources"] = resources
        return None
    named = [
        {"uid": arn, "type": take_text(resource, "type")}
        for resource in resources
        if type(resource) is dict and (arn := take_text(resource, "ARN"))
    ]
    rest = [resource for resource in resources if resource]
    if rest:
        entry["resources"] = rest
    return named or None


def cloudtrail_event(entry: dict[str, Any], context: Context) -> Event:
    """The event of one record. What it uses goes out of `entry`. Raises `Unreadable`."""
    operation, service = take_string(entry, "eventName"), take_string(entry, "eventSource")
    if operation and not service and "eventVersion" in entry and "insightDetails" not in entry:
        service = "unknown"  # cut by a forwarder; a record all the same
    received_at = context.record.received_at
    written = take_string(entry, "eventTime")
    if written is None and type(entry.get(LOGSTASH_TIME)) is str:
        written = entry[LOGSTASH_TIME]
    stamp = stamp_iso(written, _UTC, received_at)
    if not operation or not service:
        return _nameless(entry, operation, service, stamp)
    identity = child(entry, "userIdentity")
    actor = actor_of(identity, service)
    if not identity:
        entry.pop("userIdentity", None)
    account, region = take_string(entry, "recipientAccountId"), take_string(entry, "awsRegion")
    agent = take_string(entry, "userAgent")
    source = _source(take_string(entry, "sourceIPAddress"))
    user = actor["user"]
    common = {
        "metadata": metadata(
            CLOUDTRAIL,
            stamp,
            log_name=take_string(entry, "eventCategory"),
            event_code=operation,
            uid=take_string(entry, "eventID"),
            correlation_uid=take_string(entry, "sharedEventID"),
        ),
        "src_endpoint": source,
        "cloud": {
            "provider": "AWS",
            "region": region,
            "account": {"uid": account} if account else None,
        },
        "http_request": {"user_agent": agent} if agent else None,
        "user_name": user and user["name"],
    }
    resources = resources_of(entry)
    common["observables"] = observables(
        ("src_endpoint.ip", AN_IP, source and source.get("ip")),
        ("actor.user.name", A_USER, user and user["name"]),
        ("http_request.user_agent", AN_AGENT, agent),
        (
            "actor.user.credential_uid",
            A_CREDENTIAL,
            user and user["credential_uid"],
        ),
        *(("resources[].uid", A_RESOURCE, resource["uid"]) for resource in resources or ()),
    )
    activity = signing_in(operation, service)
    if activity is not None:
        return _console_login(entry, activity, service, stamp, actor, resources, common)
    return _api_call(entry, operation, service, stamp, actor, resources, common)


def _nameless(
    entry: dict[str, Any], operation: str | None, service: str | None, stamp: Stamp
) -> Event:
    """Insights and the like, which are no calls; all else without a name is unreadable."""
    insight = entry.get("insightDetails")
    if type(insight) is dict and type(insight.get("insightType")) is str:
        return _insight(entry, insight, stamp, kept(eventName=operation, eventSource=service))
    # Digest files, which sign the others, lie in the same bucket.
    digest = entry.get("digestEndTime")
    if ("eventCategory" not in entry or "eventType" not in entry) and type(digest) is not str:
        missing = "eventSource" if operation else "eventName"
        raise Unreadable(f"no '{missing}' in the record")
    if type(digest) is str and stamp.quality == "received":
        stamp = stamp_iso(digest, _UTC, stamp.time)
    return event(
        BASE,
        0,
        stamp,
        message=f"CloudTrail {entry.get('eventType', 'digest')}",
        metadata=metadata(
            CLOUDTRAIL,
            stamp,
            uid=take_string(entry, "eventID"),
        ),
        unmapped=unmapped(entry | kept(eventName=operation, eventSource=service)),
    )


def _insight(
    entry: dict[str, Any], insight: dict[str, Any], stamp: Stamp, rest: dict[str, str]
) -> Event:
    """Calls or errors at an unusual rate; its begin and its end share `sharedEventID`."""
    kind, state = insight["insightType"], insight.get("state")
    name = insight.get("eventName")
    title = f"{kind}: {name}" if type(name) is str else kind
    uid, shared = take_string(entry, "eventID"), take_string(entry, "sharedEventID")
    account, region = take_string(entry, "recipientAccountId"), take_string(entry, "awsRegion")
    return event(
        FINDING,
        _CLOSED if state == "End" else _OPENED,
        stamp,
        severity_id=LOW,
        message=title,
        metadata=metadata(
            CLOUDTRAIL,
            stamp,
            log_name=take_string(entry, "eventCategory"),
            event_code=kind,
            uid=uid,
            correlation_uid=shared,
        ),
        finding_info={"uid": shared or uid or kind, "title": title, "types": [kind]},
        cloud={
            "provider": "AWS",
            "region": region,
            "account": {"uid": account} if account else None,
        },
        more=filled(finding_info=filled(modified_time=ms(stamp.time))),
        unmapped=unmapped(entry | rest),
    )


def _api_call(
    entry: dict[str, Any],
    operation: str,
    service: str,
    stamp: Stamp,
    actor: dict[str, Any],
    resources: list[dict[str, Any]] | None,
    common: dict[str, Any],
) -> Event:
    error, words = take_string(entry, "errorCode"), take_string(entry, "errorMessage")
    # Some services give words without a code.
    failed = error is not None or words is not None
    request = take_string(entry, "requestID")
    response = {"error": error, "error_message": words} if failed else None
    return event(
        API,
        activity_of_call(operation, entry.get("readOnly")),
        stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_code=error,
        status_detail=words,
        actor=actor,
        api={
            "operation": operation,
            "version": take_string(entry, "apiVersion"),
            "service": {"name": service},
            "request": {"uid": request} if request else None,
            "response": response,
        },
        resources=resources,
        **common,
        unmapped=unmapped(entry),
    )


_SIGN_IN: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "signin.amazonaws.com": {
            "ConsoleLogin": _LOGON,
            "UserAuthentication": _LOGON,
            "CheckMfa": _PREAUTH,
            "CredentialChallenge": _PREAUTH,
            "CredentialVerification": _PREAUTH,
            "SwitchRole": _SWITCH,
            "ExitRole": _SWITCH,
            "RenewRole": _SWITCH,
        },
        "sso.amazonaws.com": {"Authenticate": _LOGON, "Logout": _LOGOFF},
    }
)
"""Events of signing in and out; IAM Identity Center checks each credential in its own."""


def signing_in(operation: str, service: str) -> int | None:
    """The activity of what signs somebody in or out; None for all other calls."""
    if operation == "ConsoleLogin":
        return _LOGON
    return _SIGN_IN.get(service, {}).get(operation)


def _console_login(
    entry: dict[str, Any],
    activity: int,
    service: str,
    stamp: Stamp,
    actor: dict[str, Any],
    resources: list[dict[str, Any]] | None,
    common: dict[str, Any],
) -> Event:
    """A step of signing in, good or bad; which, its activity says."""
    more = child(entry, "additionalEventData")
    mfa = more.get("MFAUsed")
    name = str(common["metadata"]["event_code"])
    results = child(entry, "responseElements"), child(entry, "serviceEventDetails")
    # A wrong password has no `errorCode`; the answer says so.
    failed = any(result.get(name) == "Failure" for result in results)
    user = actor["user"]
    if user is None:
        named = more.get("UserName")
        user = {"name": named if type(named) is str else actor["invoked_by"]}
    if resources is not None:
        entry["resources"] = [*resources, *entry.get("resources", [])]
    error = take_string(entry, "errorCode")
    words = take_string(entry, "errorMessage")
    return event(
        AUTHENTICATION,
        activity,
        stamp,
        status_id=FAILURE if failed or error or words else SUCCESS,
        severity_id=LOW if failed or error or words else 1,
        status_code=error,
        status_detail=words,
        user=user,
        actor=actor,
        service={"name": service},
        is_remote=True,
        is_mfa=mfa == "Yes" if type(mfa) is str else None,
        **common,
        unmapped=unmapped(entry),
    )
