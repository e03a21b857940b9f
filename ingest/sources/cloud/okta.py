"""Okta's System Log: events as its API, event hooks and EventBridge give them.

What an event is says its `eventType`; formats and types:
https://developer.okta.com/docs/api/openapi/okta-management/management/tag/SystemLog/
https://developer.okta.com/docs/reference/api/event-types/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    A_HOST,
    A_RESOURCE,
    A_USER,
    ACCOUNT,
    AN_AGENT,
    AN_IP,
    API,
    AUTHENTICATION,
    ENTITY,
    FAILURE,
    FINDING,
    GROUP,
    LOW,
    OTHER,
    SUCCESS,
    UNKNOWN,
    USER_ACCESS,
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
from ingest.sources.cloud.okta_types import kind_of

_PRODUCT: Mapping[str, str] = {"name": "Okta System Log", "vendor_name": "Okta"}
RESULTS = {
    "SUCCESS": SUCCESS,
    "ALLOW": SUCCESS,
    "FAILURE": FAILURE,
    "DENY": FAILURE,
    "ABANDONED": FAILURE,
    "RATE_LIMIT": FAILURE,
    "THROTTLED": FAILURE,
}
"""Outcomes that say how it ended; a challenge or a step that is skipped leaves that open."""
_NETWORK_LOGON = 3
_PEOPLE = frozenset({"User", "AppUser", "SystemPrincipal"})


def _person(about: Fields, kind: str | None) -> Fields | None:
    """An actor or target as a user; what is used goes out of `about`."""
    name, full = take_text(about, "alternateId"), take_text(about, "displayName")
    uid = take_name(about, "id")
    if not (name or full or uid):
        if kind:
            about["type"] = kind  # says nothing of whom
        return None
    return filled(
        name=name or full,
        uid=uid,
        type=kind,
        full_name=full,
        email_addr=mail(name),
    )


class _Targets:
    """What an event acted on: a user, a group, an application, and all else."""

    def __init__(self, fields: Fields) -> None:
        self.user: Fields | None = None
        self.group: Fields | None = None
        self.app: Fields | None = None
        self.others: list[Fields] = []
        for target in listed(fields, "target"):
            self._add(target)

    def _add(self, one: Fields) -> None:
        kind = take_text(one, "type")
        if kind in ("User", "AppUser") and self.user is None:
            self.user = _person(one, kind)
            return
        uid, name = take_name(one, "id"), take_text(one, "displayName")
        if uid is None and name is None:
            if kind is not None:
                one["type"] = kind
            return
        results = {"uid": uid or name, "name": name, "type": kind}
        # It only says the same once more, or that there is none.
        if look(one, "alternateId") in (name, uid, "unknown", None):
            take(one, "alternateId")
        if kind == "UserGroup" and self.group is None:
            self.group = results
        if kind == "AppInstance" and self.app is None:
            self.app = results
        self.others.append(results)


def _source(fields: Fields) -> tuple[Fields, Fields | None]:
    """Where the client was, and what more OCSF has a place for."""
    place = inner(fields, "client", "geographicalContext")
    # Okta writes the words `null` for no zone and `.` for no domain.
    zone = look(fields, "client", "zone")
    domain = look(fields, "securityContext", "domain")
    ip = take_ip(fields, "client", "ipAddress")
    source = {
        "ip": ip,
        "country": take_text(place, "country"),
        "zone": take_text(fields, "client", "zone") if zone != "null" else None,
        "domain": take_text(fields, "securityContext", "domain") if domain != "." else None,
    }
    spot = inner(place, "geolocation")
    field_lists = {
        "city": take_text(place, "city"),
        "region": take_text(place, "state"),
        "postal_code": take_text(place, "postalCode"),
        "lat": _degrees(spot, "lat"),
        "long": _degrees(spot, "lon"),
    }
    context = inner(fields, "securityContext")
    more = filled(
        location=filled(**field_lists),
        autonomous_system=filled(
            number=take_number(context, "asNumber", most=2**32 - 1),
            name=take_text(context, "asOrg"),
        ),
        isp=take_text(context, "isp"),
    )
    if not (ip or source["domain"]):
        source["name"] = "unknown"
    return source, more


def _degrees(spot: Fields, name: str) -> float | None:
    value = look(spot, name)
    return take(spot, name) if type(value) in (int, float) else None


def _read(fields: Fields, context: Context) -> Event:
    """The event of one entry of the log."""
    kind = take_text(fields, "eventType")
    if kind is None:
        raise Unreadable("no 'eventType' in the record")
    stamp = take_time(fields, context, ("published",))
    class_uid, activity = kind_of(kind)
    result = take_text(fields, "outcome", "result")
    status = RESULTS.get((result or "").upper(), UNKNOWN)
    who = inner(fields, "actor")
    of = take_text(who, "type")
    actor = _person(who, of)
    targets = _Targets(fields)
    source, more_source = _source(fields)
    session = take_text(fields, "authenticationContext", "externalSessionId")
    level = take_text(fields, "severity")
    severity = severity_of(level)
    message = take_text(fields, "displayMessage")
    agent = take_text(fields, "client", "userAgent", "rawUserAgent")
    path = look(fields, "debugContext", "debugData", "requestUri")
    # A failure is worth at least a low severity, whatever Okta calls it.
    common: Fields = {
        "severity_id": LOW if status == FAILURE and severity < LOW else severity,
        "status_id": status,
        "status_code": result,
        "status_detail": take_text(fields, "outcome", "reason"),
        "message": message or kind,
        "metadata": metadata(
            _PRODUCT,
            stamp,
            event_code=kind,
            uid=take_text(fields, "uuid"),
            correlation_uid=take_text(fields, "transaction", "id"),
        ),
        "src_endpoint": source,
        "http_request": filled(
            user_agent=agent,
            url={"path": path} if type(path) is str and path else None,
            x_forwarded_for=_chain(fields),
        ),
        "actor": {
            "user": actor,
            "session": {"uid": session} if session else None,
            "invoked_by": None if actor else "Okta",
        },
        "observables": observables(
            ("src_endpoint.ip", AN_IP, source["ip"]),
            ("actor.user.name", A_USER, (actor or {}).get("name")),
            ("user.name", A_USER, (targets.user or {}).get("name")),
            ("src_endpoint.domain", A_HOST, source["domain"]),
            ("http_request.user_agent", AN_AGENT, agent),
            *(("resources[].uid", A_RESOURCE, other["uid"]) for other in targets.others),
        ),
    }
    version = take_text(fields, "version")
    more: Fields = {
        **(filled(src_endpoint=more_source) or {}),
        **(filled(metadata=filled(log_version=version, log_level=level)) or {}),
    }
    build = _BUILDERS.get(class_uid, _api)
    return build(_Entry(kind, activity, stamp, actor, targets, session, fields, common, more))


def _chain(fields: Fields) -> list[str] | None:
    """The addresses a request came through, where it was more than one."""
    looks = [look(hop, "ip") for hop in listed(fields, "request", "ipChain")]
    texts = [hop for hop in looks if type(hop) is str]
    # A chain of one only repeats the client's address.
    return texts if len(texts) > 1 else None


@dataclass
class _Entry:
    """One entry of the log, read so far; `fields` is what is left."""

    kind: str
    activity: int
    stamp: Stamp
    actor: Fields | None
    targets: _Targets
    session: str | None
    fields: Fields
    common: Fields
    more: Fields

    def event(self, class_uid: int, activity: int, **columns: Any) -> Event:
        name = self.kind.rpartition(".")[2] if activity == OTHER else None
        more = self.more | {"api": _call(self.kind)} | columns.pop("more", {})
        return event(
            class_uid,
            activity,
            self.stamp,
            activity_name=name,
            **(self.common | columns),
            more=more,
            unmapped=remains(self.fields),
        )


def _call(kind: str) -> Fields:
    return {"operation": kind, "service": {"name": "Okta"}}


def _api(entry: _Entry) -> Event:
    activity = activity_of(entry.kind.rpartition(".")[2])
    resources = list(entry.targets.others)
    user = entry.targets.user
    if user:
        # API Activity has no user acted upon, so it is one of the resources.
        resources.insert(0, {"uid": None, "name": None, "type": None} | user)
    return entry.event(
        API,
        activity,
        src_endpoint=unnamed(entry.common["src_endpoint"]),
        api=_call(entry.kind),
        user=user,
        resources=[_resource(resource) for resource in resources] or None,
    )


def _resource(one: Fields) -> Fields:
    return {"uid": one["uid"] or one["name"], "name": one["name"], "type": one["type"]}


def _logon(entry: _Entry) -> Event:
    user = entry.actor if (entry.actor or {}).get("type") == "User" else None
    app, target, others = entry.targets.app, entry.targets.user, entry.targets.others
    # OCSF has one user of a login; the other one must not be lost.
    if user and target and target.get("uid") != user.get("uid"):
        entry.fields["target"] = [target, *listed(entry.fields, "target")]
    second = ".auth_via_mfa" in entry.kind or ".mfa." in entry.kind
    return entry.event(
        AUTHENTICATION,
        entry.activity,
        user=user or target or entry.actor or {"name": "unknown"},
        service={"name": app["name"] or app["uid"], "uid": app["uid"]} if app else {"name": "Okta"},
        session={"uid": entry.session} if entry.session else None,
        is_remote=True,
        is_mfa=True if second else None,
        logon_type_id=_NETWORK_LOGON,
        resources=others or None,
    )


def _account(entry: _Entry) -> Event:
    user = entry.targets.user or entry.actor
    if user is None:
        return _api(entry)
    return entry.event(ACCOUNT, entry.activity, user=user, resources=entry.targets.others or None)


def _group(entry: _Entry) -> Event:
    group = entry.targets.group
    if group is None:
        return _api(entry)
    return entry.event(
        GROUP,
        entry.activity,
        group={"name": group["name"], "uid": group["uid"]},
        user=entry.targets.user,
        privileges=_privileges(entry),
        resources=[other for other in entry.targets.others if other is not group] or None,
        more={"group": {"type": group["type"]}},
    )


def _privileges(entry: _Entry) -> list[str] | None:
    data = inner(entry.fields, "debugContext", "debugData")
    granted = look(data, "privilegeGranted") or look(data, "privilegeRevoked")
    if type(granted) is str and granted:
        return [word.strip() for word in granted.split(",")]
    return None


def _access(entry: _Entry) -> Event:
    user, others = entry.targets.user, entry.targets.others
    named = [other["name"] for other in others if other["name"]]
    privileges = _privileges(entry) or named
    if user is None or not privileges:
        return _api(entry)
    return entry.event(
        USER_ACCESS, entry.activity, user=user, privileges=privileges, resources=others or None
    )


def _entity(entry: _Entry) -> Event:
    others, user = entry.targets.others, entry.targets.user
    if not others and not user:
        return _api(entry)
    first = others[0] if others else user or {}
    entity = {key: first[key] for key in ("uid", "name", "type") if first.get(key)}
    return entry.event(
        ENTITY,
        entry.activity,
        user=user,
        resources=others[1:] or None,
        more={"entity": entity},
    )


def _finding(entry: _Entry) -> Event:
    uid = entry.common["metadata"]["uid"]
    reason = entry.common["status_detail"]
    # A finding's status tells how far it is dealt with, which Okta does not say.
    return entry.event(
        FINDING,
        1,
        finding_info={
            "uid": uid or entry.kind,
            "title": entry.common["message"],
            "desc": reason,
            "types": [entry.kind],
            "created_time": entry.stamp.time,
        },
        status_id=None,
        user=entry.targets.user,
        resources=[_resource(other) for other in entry.targets.others] or None,
        more={"is_alert": True},
    )


_BUILDERS = {
    AUTHENTICATION: _logon,
    ACCOUNT: _account,
    GROUP: _group,
    USER_ACCESS: _access,
    ENTITY: _entity,
    FINDING: _finding,
}


@dataclass(frozen=True)
class Okta(EnvelopedSource):
    """Okta's System Log, one or several entries a record."""

    name: str = "okta"
    time_keys: ClassVar[tuple[str, ...]] = ("published",)

    def is_own(self, fields: Fields) -> bool:
        kind = look(fields, "eventType")
        # An event hook has an `eventType` of its own, around the entries in `data`.
        return type(kind) is str and not inner(fields, "data")

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (Okta(),)
