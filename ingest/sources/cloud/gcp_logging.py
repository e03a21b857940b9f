"""Entries of Google's Cloud Logging that are no audit: flows, firewall, DNS, requests, text.

Read for the source `gcp_audit`, to whose topic they come when a sink exports more. Formats:
https://cloud.google.com/vpc/docs/about-flow-logs-records
https://cloud.google.com/firewall/docs/firewall-rules-logging
https://cloud.google.com/dns/docs/monitoring
https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry#httprequest
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ingest.parsing.ocsf import (
    A_HOST,
    ALLOWED,
    AN_AGENT,
    AN_IP,
    BASE,
    DENIED,
    DNS,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    SUCCESS,
    kept,
    metadata,
    observables,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.cloud.common import (
    PORTS,
    Fields,
    filled,
    inner,
    look,
    moment,
    remains,
    severity_of,
    take_ip,
    take_number,
    take_text,
    take_time,
)
from ingest.sources.shared.firewall import INBOUND, OUTBOUND, located

_PRODUCT: Mapping[str, str] = {"name": "Cloud Logging", "vendor_name": "Google Cloud"}
_PROTOCOLS: Mapping[int, str] = MappingProxyType(
    {1: "icmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 58: "ipv6-icmp"}
)
_RCODES: Mapping[str, int] = MappingProxyType(
    {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
)
_REFUSED, _OPENED, _TRAFFIC = 5, 1, 6
_BLOCKED = 2


def read_entry(fields: Fields, context: Context) -> Event:
    """The event of an entry without an AuditLog."""
    stamp = take_time(fields, context, ("timestamp",), ("receiveTimestamp",))
    payload = inner(fields, "jsonPayload")
    common = _common(fields, stamp)
    # By their fields and not by `logName`, which a sink or an export may change.
    if inner(payload, "connection"):
        columns = _connection(payload, context)
    elif type(look(payload, "queryName")) is str:
        columns = _dns(payload)
    elif inner(fields, "httpRequest"):
        columns = _http(inner(fields, "httpRequest"))
    else:
        columns = {"class_uid": BASE, "activity": 0}
    class_uid, activity = columns.pop("class_uid"), columns.pop("activity")
    words = take_text(fields, "textPayload") or take_text(payload, "message")
    if words:
        columns["message"] = words
    return located(
        class_uid,
        activity,
        stamp,
        **(common | columns),
        more=_more(fields),
        unmapped=remains(fields),
    )


def _common(fields: Fields, stamp: Stamp) -> Fields:
    name = take_text(fields, "logName")
    labels = inner(fields, "resource", "labels")
    account = look(labels, "project_id")
    level = look(fields, "severity")
    instance = take_text(labels, "instance_id")
    return {
        "severity_id": severity_of(level if type(level) is str else None),
        "message": f"entry of {name}" if name else "entry of Cloud Logging",
        "metadata": metadata(
            _PRODUCT,
            stamp,
            log_name=name,
            uid=take_text(fields, "insertId"),
            correlation_uid=take_text(fields, "trace"),
        ),
        "cloud": {
            "provider": "GCP",
            "region": take_text(labels, "location") or take_text(labels, "region"),
            "account": {"uid": account} if type(account) is str and account else None,
        },
        "device": {"uid": instance, "type_id": 0} if instance else None,
    }


def _more(fields: Fields) -> Fields | None:
    project = take_text(fields, "resource", "labels", "project_id")
    return filled(
        metadata=filled(log_level=take_text(fields, "severity")),
        cloud=filled(project_uid=project),
    )


def _endpoint(payload: Fields, side: str, machine: Fields) -> Fields | None:
    leaves = kept(
        ip=take_ip(payload, "connection", f"{side}_ip"),
        port=take_number(payload, "connection", f"{side}_port", most=PORTS),
        name=take_text(machine, "vm_name"),
        zone=take_text(machine, "zone"),
        country=take_text(payload, f"{side}_location", "country"),
    )
    if leaves and not leaves.keys() & {"ip", "name"}:
        # OCSF takes no endpoint of a port alone.
        leaves["name"] = "unknown"
    return leaves or None


def _connection(payload: Fields, context: Context) -> Fields:
    """A flow of a VPC, or a decision of its firewall."""
    connection = inner(payload, "connection")
    # Firewall entries name the machine `instance`, flows `src_instance`.
    number = take_number(connection, "protocol", most=255)
    source = _endpoint(payload, "src", inner(payload, "src_instance") or inner(payload, "instance"))
    target = _endpoint(payload, "dest", inner(payload, "dest_instance"))
    direction = _direction(payload)
    verdict = take_text(payload, "disposition")
    denied = verdict == "DENIED"
    rule = take_text(payload, "rule_details", "reference")
    sent = take_number(payload, "bytes_sent", most=2**63 - 1)
    packets = take_number(payload, "packets_sent", most=2**63 - 1)
    return {
        "class_uid": NETWORK,
        "activity": _TRAFFIC if verdict is None else _REFUSED if denied else _OPENED,
        "status_id": FAILURE if denied else SUCCESS,
        "message": verdict or "VPC flow",
        "src_endpoint": source,
        "dst_endpoint": target,
        "connection_info": {
            "protocol_num": number,
            "protocol_name": _PROTOCOLS.get(-1 if number is None else number),
            **direction,
        },
        # An entry counts one way, from source to destination; what came back is an entry of its
        # own.
        "traffic": filled(bytes=sent, bytes_out=sent, packets=packets, packets_out=packets),
        "action_id": (DENIED if denied else ALLOWED) if verdict else None,
        "disposition_id": (_BLOCKED if denied else 1) if verdict else None,
        "firewall_rule": {"name": rule} if rule else None,
        "start_time": moment(payload, context, "start_time"),
        "end_time": moment(payload, context, "end_time"),
        "observables": _addresses(source, target),
    }


def _direction(payload: Fields) -> Mapping[str, Any]:
    """Which way, as the machine saw it that reported the flow, or whose rule it was."""
    word = look(payload, "reporter") or look(payload, "rule_details", "direction")
    if word in ("SRC", "EGRESS"):
        return OUTBOUND
    return INBOUND if word in ("DEST", "INGRESS") else {"direction_id": 0}


def _addresses(source: Fields | None, target: Fields | None, *more: Any) -> list[Fields] | None:
    return observables(
        ("src_endpoint.ip", AN_IP, (source or {}).get("ip")),
        ("dst_endpoint.ip", AN_IP, (target or {}).get("ip")),
        *more,
    )


def _dns(payload: Fields) -> Fields:
    source = {"ip": take_ip(payload, "sourceIP")}
    target = {"ip": take_ip(payload, "destinationIP") or take_ip(payload, "serverIP")}
    name = take_text(payload, "queryName") or ""
    code = take_text(payload, "responseCode")
    answers = take_text(payload, "rdata")
    return {
        "class_uid": DNS,
        "activity": _TRAFFIC,
        "status_id": SUCCESS if code in (None, "NOERROR") else FAILURE,
        "message": f"{name} {code or ''}".strip(),
        "src_endpoint": source if source["ip"] else {"name": "unknown"},
        "dst_endpoint": target if target["ip"] else None,
        "query": {"hostname": name, "type": take_text(payload, "queryType")},
        "rcode": code,
        "rcode_id": _RCODES.get(code or ""),
        "answers": _answers(answers),
        "observables": _addresses(source, target, ("query.hostname", A_HOST, name)),
    }


def _answers(text: str | None) -> list[Fields] | None:
    """`name.\\t300\\tIN\\ta\\t1.2.3.4` a line."""
    if not text:
        return None
    field_lists: list[Fields] = []
    for line in text.splitlines():
        parts = line.split("\t")
        ttl = parts[1] if len(parts) == 5 else ""
        # A TTL has 32 bits (RFC 2181, 8), so ten digits at most.
        if ttl.isascii() and ttl.isdecimal() and len(ttl) < 11:
            field_lists.append({"rdata": parts[4], "type": parts[3].upper(), "ttl": int(ttl)})
        else:
            field_lists.append({"rdata": line})
    return field_lists


def _http(request: Fields) -> Fields:
    """A request to a load balancer or a service."""
    method = take_text(request, "requestMethod")
    written = take_text(request, "requestUrl")
    agent = take_text(request, "userAgent")
    code = take_number(request, "status", most=999)
    source = {"ip": take_ip(request, "remoteIp")}
    target = {"ip": take_ip(request, "serverIp")}
    return {
        "class_uid": HTTP,
        "activity": HTTP_METHODS.get(method or "", 0 if method is None else 99),
        "status_id": None if code is None else FAILURE if code >= 400 else SUCCESS,
        "status_code": None if code is None else str(code),
        "message": f"{method or 'request'} {written or ''}: {code}",
        "src_endpoint": source if source["ip"] else {"name": "unknown"},
        "dst_endpoint": target if target["ip"] else None,
        "http_request": {
            "http_method": method,
            "user_agent": agent,
            "referrer": take_text(request, "referer"),
            "length": take_number(request, "requestSize", most=2**63 - 1),
            "url": _url(written),
        },
        "http_response": {
            "code": code,
            "length": take_number(request, "responseSize", most=2**63 - 1),
        },
        "observables": _addresses(source, target, ("http_request.user_agent", AN_AGENT, agent)),
    }


def _url(text: str | None) -> Fields | None:
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    # A port that is no number: the text is kept as it was asked for.
    except ValueError:
        return {"url_string": text}
    return {
        "url_string": text,
        "scheme": parts.scheme or None,
        "hostname": parts.hostname,
        "path": parts.path or None,
        "query_string": parts.query or None,
        "port": port,
    }
