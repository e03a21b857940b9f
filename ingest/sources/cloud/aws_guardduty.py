"""AWS GuardDuty findings, as its API, its export to S3 and EventBridge write them.

The API begins field names with a capital, the others do not; both are read. Format:
https://docs.aws.amazon.com/guardduty/latest/APIReference/API_Finding.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    A_CREDENTIAL,
    A_HASH,
    A_HOST,
    A_RESOURCE,
    A_USER,
    AN_AGENT,
    AN_IP,
    CRITICAL,
    DENIED,
    FINDING,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    UNKNOWN,
    event,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event
from ingest.sources.cloud.common import (
    PORTS,
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
    take_name,
    take_number,
    take_text,
    take_texts,
    take_time,
)

_PRODUCT: Mapping[str, str] = {"name": "GuardDuty", "vendor_name": "AWS"}
_OPENED, UPDATED, _CLOSED = 1, 2, 3
NEW, ARCHIVED = (1, "New"), (5, "Archived")
_BLOCKED = 2
_DIRECTIONS = {"INBOUND": (1, "Inbound"), "OUTBOUND": (2, "Outbound")}
_NUMBERS = {"ICMP": 1, "TCP": 6, "UDP": 17}
_ACTIONS = (
    "NetworkConnectionAction",
    "PortProbeAction",
    "AwsApiCallAction",
    "DnsRequestAction",
    "KubernetesApiCallAction",
    "RdsLoginAttemptAction",
)
RESOURCES = (
    # Where a resource stands, and its fields for uid, name and type.
    (("InstanceDetails",), ("InstanceId",), (), ()),
    (("S3BucketDetails",), ("Arn",), ("Name",), ("Type",)),
    (("EksClusterDetails",), ("Arn",), ("Name",), ()),
    (("EcsClusterDetails",), ("Arn",), ("Name",), ()),
    (("LambdaDetails",), ("FunctionArn",), ("FunctionName",), ()),
    (("RdsDbInstanceDetails",), ("DbInstanceArn",), ("DbInstanceIdentifier",), ("Engine",)),
    (("ContainerDetails",), ("Id",), ("Name",), ("Image",)),
    (("KubernetesDetails", "KubernetesWorkloadDetails"), ("Uid",), ("Name",), ("Type",)),
)
"""What a finding may be about, beside an access key."""


def _severity(score: object) -> int:
    """GuardDuty's own bands: low from 1, medium from 4, high from 7, critical from 9."""
    # To Python a bool is a number.
    if isinstance(score, bool) or not isinstance(score, int | float):
        return UNKNOWN
    bands = ((9.0, CRITICAL), (7.0, HIGH), (4.0, MEDIUM), (1.0, LOW))
    return next((level for least, level in bands if score >= least), INFORMATIONAL)


def _ports(fields: Fields, name: str) -> int | None:
    return take_number(fields, name, "Port", most=PORTS)


def _ip(fields: Fields, name: str) -> str | None:
    return take_ip(fields, name, "IpAddressV4") or take_ip(fields, name, "IpAddressV6")


def _place(about: Fields) -> Fields | None:
    """Where GuardDuty says an address is, and whose, in OCSF's shape."""
    number = take_number(about, "Organization", "Asn", most=2**32 - 1)
    owner = take_text(about, "Organization", "AsnOrg")
    place = filled(city=take_text(about, "City", "CityName"))
    spot = inner(about, "GeoLocation")
    lat, long = look(spot, "Lat"), look(spot, "Lon")
    if place and all(type(part) in (int, float) for part in (lat, long)):
        take(about, "GeoLocation")
        place |= {"lat": lat, "long": long}
    return filled(
        location=place,
        autonomous_system=filled(number=number, name=owner),
        isp=take_text(about, "Organization", "Isp"),
        isp_org=take_text(about, "Organization", "Org"),
    )


def _remote(action: Fields) -> tuple[Fields, Fields | None]:
    """The other side of an action: its endpoint, and what else is known of it."""
    ip = _ip(action, "RemoteIpDetails")
    if ip is None:
        return {"ip": None}, None
    end = {
        "ip": ip,
        "port": _ports(action, "RemotePortDetails"),
        "country": take_text(action, "RemoteIpDetails", "Country", "CountryName"),
    }
    return end, _place(inner(action, "RemoteIpDetails"))


def _own(action: Fields, resource: Fields) -> Fields:
    """This side: the address of the connection, or else the first of the instance."""
    results = {"ip": _ip(action, "LocalIpDetails"), "port": _ports(action, "LocalPortDetails")}
    cards = listed(resource, "InstanceDetails", "NetworkInterfaces")
    instance = look(resource, "InstanceDetails", "InstanceId")
    if cards:
        private = look(cards[0], "PrivateIpAddress")
        if results["ip"] is None and type(private) is str:
            results["ip"] = take_ip(cards[0], "PrivateIpAddress")
        name = look(cards[0], "PrivateDnsName")
        if type(name) is str and name:
            results["hostname"] = take(cards[0], "PrivateDnsName")
    if type(instance) is str and instance:
        results["uid"] = instance
    return results


@dataclass
class _Seen:
    """What an action tells, on its way to columns and `more`."""

    columns: Fields
    more: Fields


def _action(fields: Fields, resource: Fields) -> _Seen:
    seen = _Seen({}, {})
    action = inner(fields, "Service", "Action")
    name = next((name for name in _ACTIONS if key_of(action, name)), "")
    details = inner(action, name) if name else {}
    if name == "PortProbeAction":
        # Of several probes the first is the finding's; all that is not used stays.
        probes = listed(details, "PortProbeDetails")
        blocked = look(details, "Blocked")
        details = probes[0] if probes else {}
        if blocked is True:
            seen.columns |= {"action_id": DENIED, "disposition_id": _BLOCKED}
    remote, place = _remote(details)
    own = _own(details, resource)
    # A question of DNS always goes out; of other actions the record says the direction.
    outward = name in ("DnsRequestAction", "") or (
        look(details, "ConnectionDirection") == "OUTBOUND"
    )
    source, target = (own, remote) if outward else (remote, own)
    if place and remote["ip"]:
        seen.more["dst_endpoint" if outward else "src_endpoint"] = place
    seen.columns["src_endpoint"], seen.columns["dst_endpoint"] = _some(source), _some(target)
    _connection(seen, name, details)
    _call(seen, name, details)
    return seen


def _some(endpoint: Fields) -> Fields | None:
    """An endpoint that says more than a port or a country."""
    named = any(endpoint.get(key) for key in ("ip", "hostname", "uid"))
    return endpoint if named else None


def _connection(seen: _Seen, name: str, action: Fields) -> None:
    protocol = take_text(action, "Protocol")
    number = _NUMBERS.get((protocol or "").upper())
    way, words = 0, None
    if name == "NetworkConnectionAction":
        written = take_text(action, "ConnectionDirection")
        way, words = _DIRECTIONS.get(written or "", (0, written or "Unknown"))
    if protocol or way:
        seen.columns["connection_info"] = {
            "protocol_name": protocol and protocol.lower(),
            "protocol_num": number,
            "direction_id": way,
            "direction": words or "Unknown",
        }
    if take_blocked(action):
        seen.columns |= {"action_id": DENIED, "disposition_id": _BLOCKED}
    if name == "DnsRequestAction":
        domain = take_text(action, "Domain")
        seen.columns["query"] = {"hostname": domain} if domain else None


def take_blocked(action: Fields) -> bool:
    """Whether what was tried was blocked."""
    if look(action, "Blocked") is not True:
        return False
    take(action, "Blocked")
    return True


def _call(seen: _Seen, name: str, action: Fields) -> None:
    agent = take_text(action, "UserAgent")
    if name == "AwsApiCallAction":
        error = take_text(action, "ErrorCode")
        seen.columns["api"] = {
            "operation": take_text(action, "Api") or "unknown",
            "service": {"name": take_text(action, "ServiceName")},
            "response": {"error": error} if error else None,
        }
    if name == "KubernetesApiCallAction":
        uri = take_text(action, "RequestUri")
        code = take_number(action, "StatusCode", most=999)
        seen.columns["api"] = {
            "operation": take_text(action, "Verb") or "unknown",
            "service": {"name": "kubernetes"},
            "response": None if code is None else {"code": code},
        }
        seen.columns["http_request"] = {
            "user_agent": agent,
            "url": {"path": uri} if uri else None,
        }
    elif agent:
        seen.columns["http_request"] = {"user_agent": agent}


def _user(resource: Fields, action: Fields) -> Fields | None:
    """The holder of the key, or the user of the cluster or database, that acted."""
    key = inner(resource, "AccessKeyDetails")
    cluster = inner(resource, "KubernetesDetails", "KubernetesUserDetails")
    database = inner(resource, "RdsDbUserDetails")
    attempts = listed(action, "RdsLoginAttemptAction", "LoginAttributes")
    name = take_text(key, "UserName")
    name = name or take_text(cluster, "Username") or take_text(database, "User")
    if name is None and attempts:
        name = take_text(attempts[0], "User")
    uid = take_text(key, "PrincipalId") or take_text(cluster, "Uid")
    if not (name or uid):
        return None
    return filled(
        name=name,
        uid=uid,
        type=take_text(key, "UserType"),
        credential_uid=take_text(key, "AccessKeyId"),
        email_addr=mail(name),
        groups=take_texts(cluster, "Groups"),
    )


def _resources(resource: Fields) -> Iterator[dict[str, str | None]]:
    for path, *parts in RESOURCES:
        for node in listed(resource, *path):
            # What `_own` took as the endpoint's uid is still in its place.
            uid, name, of = (take_text(node, *part) if part else None for part in parts)
            if uid or name:
                yield {
                    "uid": uid or name,
                    "name": name,
                    "type": of or path[-1].removesuffix("Details"),
                }


def _process(service: Fields) -> Fields | None:
    """What ran, in findings of Runtime Monitoring."""
    details = inner(service, "RuntimeDetails", "Process")
    # OCSF tells processes apart by their pid; without one the details stay in unmapped.
    if type(look(details, "Pid")) is not int:
        return None
    digest = take_text(details, "ExecutableSha256")
    user, uid = take_text(details, "User"), take_name(details, "UserId")
    return {
        "name": take_text(details, "Name"),
        "pid": take_number(details, "Pid"),
        "path": take_text(details, "ExecutablePath"),
        "cwd": take_text(details, "Pwd"),
        "cmd_line": take_text(inner(service, "RuntimeDetails", "Context"), "CommandLineExample"),
        "uid": take_text(details, "Uuid"),
        "user": {"name": user, "uid": uid} if user or uid else None,
        "hashes": [{"algorithm": "SHA-256", "value": digest}] if digest else None,
    }


def _read(fields: Fields, context: Context) -> Event:
    """The event of one finding."""
    resource, service = inner(fields, "Resource"), inner(fields, "Service")
    kind = take_text(fields, "Type")
    created, updated = look(fields, "CreatedAt"), look(fields, "UpdatedAt")
    # The newest of its times: a finding that comes back is about what happened last.
    stamp = take_time(fields, context, ("UpdatedAt",), ("Service", "EventLastSeen"), ("CreatedAt",))
    made = moment(fields, context, "CreatedAt")
    first, last = (moment(service, context, name) for name in ("EventFirstSeen", "EventLastSeen"))
    archived = look(service, "Archived") is True and take(service, "Archived")
    count = take_number(service, "Count")
    seen = _action(fields, resource)
    user = _user(resource, inner(service, "Action"))
    process = _process(service)
    resources = list(_resources(resource))
    account, region = take_name(fields, "AccountId"), take_text(fields, "Region")
    uid, title = take_text(fields, "Id"), take_text(fields, "Title")
    about = take_text(fields, "Description")
    # A score that is none of GuardDuty's stays in `unmapped`.
    score = take(fields, "Severity") if _severity(look(fields, "Severity")) else None
    # GuardDuty counts how often a finding came back under the same id.
    is_new = count == 1 or (count is None and updated == created)
    columns = seen.columns
    return event(
        FINDING,
        _CLOSED if archived else _OPENED if is_new else UPDATED,
        stamp,
        severity_id=_severity(score),
        message=title or about or kind,
        metadata=metadata(_PRODUCT, stamp, event_code=kind, uid=uid),
        finding_info={
            "uid": uid or "unknown",
            "title": title or kind,
            "desc": about,
            "types": [kind] if kind else None,
            "created_time": made,
        },
        cloud={
            "provider": "AWS",
            "region": region,
            "account": {"uid": account} if account else None,
        },
        actor={"user": user} if user else None,
        process=process,
        resources=resources or None,
        start_time=first,
        end_time=last,
        observables=_observables(columns, user, resources, process),
        more=_more(fields, service, seen.more, score, archived, count, (stamp, first, last)),
        unmapped=remains(fields),
        **columns,
    )


def _more(
    fields: Fields,
    service: Fields,
    found: Fields,
    score: Any,
    archived: bool,
    count: int | None,
    times: tuple[Any, ...],
) -> Fields:
    stamp, first, last = times
    status_id, status = ARCHIVED if archived else NEW
    places = filled(
        status_id=status_id,
        status=status,
        is_alert=True,
        count=count,
        risk_details=None if score is None else f"severity {score}",
        cloud=filled(cloud_partition=take_text(fields, "Partition")),
        finding_info=filled(
            modified_time=ms(stamp.time) if stamp.quality != "received" else None,
            first_seen_time=ms(first),
            last_seen_time=ms(last),
            uid_alt=take_text(fields, "Arn"),
            product_uid=take_text(service, "DetectorId"),
        ),
        metadata=filled(log_version=take_text(fields, "SchemaVersion")),
    )
    return (places or {}) | found


def _observables(
    columns: Fields, user: Fields | None, resources: list[Any], process: Fields | None
) -> list[Fields] | None:
    source, target = columns["src_endpoint"] or {}, columns["dst_endpoint"] or {}
    who = user or {}
    hashes = (process or {}).get("hashes") or ()
    return observables(
        ("src_endpoint.ip", AN_IP, source.get("ip")),
        ("dst_endpoint.ip", AN_IP, target.get("ip")),
        ("query.hostname", A_HOST, (columns.get("query") or {}).get("hostname")),
        ("actor.user.name", A_USER, who.get("name")),
        ("actor.user.credential_uid", A_CREDENTIAL, who.get("credential_uid")),
        (
            "http_request.user_agent",
            AN_AGENT,
            (columns.get("http_request") or {}).get("user_agent"),
        ),
        *(("resources[].uid", A_RESOURCE, resource["uid"]) for resource in resources),
        *(("process.file.hashes[].value", A_HASH, resource["value"]) for resource in hashes),
    )


@dataclass(frozen=True)
class GuardDuty(EnvelopedSource):
    """GuardDuty's findings, one or several a record."""

    name: str = "aws_guardduty"
    time_keys: ClassVar[tuple[str, ...]] = ("UpdatedAt", "CreatedAt")

    def is_own(self, fields: Fields) -> bool:
        about = look(fields, "Type"), look(fields, "Title"), look(fields, "Severity")
        # `Type` alone is a name that other logs have as well.
        return type(about[0]) is str and (
            type(about[1]) is str or about[2] is not None or bool(inner(fields, "Service"))
        )

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (GuardDuty(),)
