"""Audit events of the Kubernetes API server (audit.k8s.io, v1 and the betas before it).

Also as the clouds wrap them: EKS through CloudWatch, AKS in `properties.log` of a
diagnostic record; GKE writes entries of Google's audit log instead. Format:
https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    A_CREDENTIAL,
    A_RESOURCE,
    A_USER,
    AN_AGENT,
    AN_IP,
    API,
    FAILURE,
    INFORMATIONAL,
    LOW,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    event,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.sources.cloud import gcp_audit
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    filled,
    inner,
    key_of,
    listed,
    look,
    mail,
    moment,
    ms,
    remains,
    take,
    take_ip,
    take_number,
    take_text,
    take_texts,
    take_time,
    unnamed,
)

_PRODUCT: Mapping[str, str] = {"name": "Kubernetes", "vendor_name": "CNCF"}
_VERBS: Mapping[str, int] = MappingProxyType(
    {
        "create": 1,
        "get": 2,
        "list": 2,
        "watch": 2,
        "update": 3,
        "patch": 3,
        "delete": 4,
        "deletecollection": 4,
    }
)
_DECISION = "authorization.k8s.io/decision"
_REFUSED = (401, 403)
_TIMES = (
    ("requestReceivedTimestamp",),
    ("stageTimestamp",),
    ("timestamp",),
    ("metadata", "creationTimestamp"),
    ("@timestamp",),
)
MARKS = ("verb", "auditID", "objectRef", "requestURI", "stage", "responseStatus", "sourceIPs")


def _read(fields: Fields, context: Context) -> Event:
    """The event of one audit event."""
    stamp = take_time(fields, context, *_TIMES)
    stage = take_text(fields, "stage")
    # Of a watch the other stages come at its beginning, when it has not ended.
    ended = moment(fields, context, "stageTimestamp") if stage == "ResponseComplete" else None
    verb = take_text(fields, "verb")
    activity = _VERBS.get((verb or "").lower())
    resources, more_resources = _resources(fields)
    user = _user(fields)
    columns, code, uri = _call(fields, stage, verb, more_resources)
    source, chain = _source(fields)
    agent = take_text(fields, "userAgent")
    return event(
        API,
        activity or (OTHER if verb else UNKNOWN),
        stamp,
        activity_name=None if activity else verb,
        message=_sentence(user, verb, resources, uri, code),
        metadata=metadata(
            _PRODUCT,
            stamp,
            log_name=take_text(fields, "kind"),
            event_code=stage,
            uid=take_text(fields, "auditID"),
        ),
        src_endpoint=unnamed({"ip": source}),
        actor={"user": user, "invoked_by": None if user else "kubernetes"},
        http_request=filled(
            user_agent=agent, url={"path": uri} if uri else None, x_forwarded_for=chain
        ),
        resources=resources or None,
        start_time=stamp.time if ended else None,
        end_time=ended,
        duration=_span(ms(stamp.time), ms(ended)),
        observables=_observables(source, user, agent, resources),
        unmapped=remains(fields),
        **columns,
    )


def _call(
    fields: Fields, stage: str | None, verb: str | None, resources: list[Fields] | None
) -> tuple[Fields, int | None, str | None]:
    """The columns of the call and its outcome; its code and its path."""
    code = take_number(fields, "responseStatus", "code", most=999)
    status = _status(fields, code, stage)
    words = take_text(fields, "responseStatus", "message")
    reason = take_text(fields, "responseStatus", "reason")
    group = take_text(fields, "objectRef", "apiGroup")
    uid = look(fields, "auditID")
    columns = {
        # Controllers ask for what is not there all the time, so a 404 or 409 is no sign of
        # anything.
        "severity_id": LOW if status == FAILURE and code in (None, *_REFUSED) else INFORMATIONAL,
        "status_id": status,
        "status_code": None if code is None else str(code),
        "status_detail": words or reason,
        "api": {
            "operation": verb or "unknown",
            "version": take_text(fields, "objectRef", "apiVersion"),
            "service": {"name": "kubernetes"},
            "request": {"uid": uid} if type(uid) is str and uid else None,
            "response": filled(code=code, error=reason, error_message=words),
        },
        "http_response": {"code": code} if code is not None else None,
        "more": filled(
            api=filled(group={"name": group} if group else None),
            resources=resources,
            metadata=filled(
                log_version=take_text(fields, "apiVersion"), log_level=take_text(fields, "level")
            ),
        ),
    }
    return columns, code, take_text(fields, "requestURI")


def _span(start: int | None, end: int | None) -> int | None:
    return end - start if start is not None and end is not None and end >= start else None


def _status(fields: Fields, code: int | None, stage: str | None) -> int:
    if code is not None:
        return FAILURE if code >= 400 else SUCCESS
    if stage == "Panic" or look(fields, "responseStatus", "status") == "Failure":
        return FAILURE
    # At the stage `RequestReceived` there is no code yet.
    decision = inner(fields, "annotations").get(_DECISION)
    return FAILURE if decision == "forbid" else UNKNOWN


def _user(fields: Fields) -> Fields | None:
    """Who asked; whom it asked to be taken for stays `impersonatedUser`."""
    about = inner(fields, "user")
    name, uid = take_text(about, "username"), take_text(about, "uid")
    if not (name or uid):
        return None
    extra = inner(about, "extra")
    # EKS keeps the AWS key there with which the caller signed.
    keys = look(extra, "accessKeyId")
    if type(keys) is list and len(keys) == 1 and type(keys[0]) is str:
        take(extra, "accessKeyId")
    else:
        keys = [None]
    kind = "ServiceAccount" if name and name.startswith("system:serviceaccount:") else None
    return filled(
        name=name,
        uid=uid,
        type=kind,
        groups=take_texts(about, "groups"),
        credential_uid=keys[0],
        email_addr=mail(name),
    )


def _source(fields: Fields) -> tuple[str | None, list[str] | None]:
    """The client's address and, where there were several hops, all of them.

    The first is what the client, or a proxy before the API server, says of itself.
    """
    written = look(fields, "sourceIPs")
    if type(written) is str:
        return take_ip(fields, "sourceIPs"), None
    if type(written) is not list or not written:
        return None, None
    if not all(type(element) is str for element in written):
        return None, None
    ip_address = address(written[0])
    if len(written) > 1 and all(map(address, written)):
        return ip_address, list(take(fields, "sourceIPs"))
    if ip_address and len(written) == 1:
        take(fields, "sourceIPs")
    return ip_address, None


def _resources(fields: Fields) -> tuple[list[Fields], list[Fields] | None]:
    """What the call is about; the second in OCSF's own shape, with its namespace."""
    about = inner(fields, "objectRef")
    kind, part = take_text(about, "resource"), take_text(about, "subresource")
    name, uid = take_text(about, "name"), take_text(about, "uid")
    space = take_text(about, "namespace")
    if kind is None and name is None:
        return [], [{"name": space, "namespace": space}] if space else None
    of = f"{kind}/{part}" if part else kind
    # A list is asked for of a whole kind, which then is what it is about.
    resources = {"uid": uid or name or kind, "name": name or kind, "type": of}
    return [resources], [
        {k: v for k, v in resources.items() if v} | {"namespace": space}
    ] if space else None


def _sentence(
    user: Fields | None,
    verb: str | None,
    resources: list[Fields],
    uri: str | None,
    code: int | None,
) -> str:
    who = (user or {}).get("name") or "unknown"
    what = f"{resources[0]['type']} {resources[0]['name']}" if resources else uri or ""
    end = "" if code is None else f": {code}"
    return f"{who} {verb or 'unknown'} {what}{end}"


def _observables(
    ip: str | None, user: Fields | None, agent: str | None, resources: list[Fields]
) -> list[dict[str, Any]] | None:
    return observables(
        ("src_endpoint.ip", AN_IP, ip),
        ("actor.user.name", A_USER, (user or {}).get("name")),
        ("actor.user.credential_uid", A_CREDENTIAL, (user or {}).get("credential_uid")),
        ("http_request.user_agent", AN_AGENT, agent),
        *(("resources[].uid", A_RESOURCE, resource["uid"]) for resource in resources),
    )


@dataclass(frozen=True)
class K8sAudit(EnvelopedSource):
    """The audit log of a cluster, one or several events a record."""

    name: str = "k8s_audit"
    time_keys: ClassVar[tuple[str, ...]] = (
        "requestReceivedTimestamp",
        "stageTimestamp",
        "timestamp",
    )

    def is_own(self, fields: Fields) -> bool:
        # An EventList has a `kind` and a `metadata` as an event has.
        if listed(fields, "items") or "logEvents" in fields:
            return False
        if inner(fields, "protoPayload"):
            return True
        diagnostic = look(fields, "properties", "log")
        if type(diagnostic) is str and diagnostic.lstrip()[:1] == "{":
            return True
        return any(key_of(fields, mark) for mark in MARKS)

    def read(self, fields: Fields, context: Context) -> Event:
        if inner(fields, "protoPayload"):
            return gcp_audit.read(fields, context)
        if not any(key_of(fields, mark) for mark in MARKS):
            return _read(_diagnostic(fields), context)
        return _read(fields, context)


def _diagnostic(fields: Fields) -> Fields:
    """The audit event in a record of Azure's diagnostics, with what that says besides."""
    log = take(fields, "properties", "log")
    decoded = decode_object(log.encode("utf-8", "surrogatepass").strip())
    if not any(key_of(decoded, mark) for mark in MARKS):
        raise Unreadable("properties.log: no audit event of Kubernetes")
    if key_of(decoded, "requestReceivedTimestamp") is None and type(fields.get("time")) is str:
        decoded["timestamp"] = fields.pop("time")
    return decoded | {"envelope": fields}


SOURCES = (K8sAudit(),)
