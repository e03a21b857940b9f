"""Zeek's conn, dns and http, which are most of what Zeek writes, one record at a time.

They are read strictly: a record without two addresses, or with a field of another type,
is refused. `ingest.sources.zeek.columns` reads the plain ones among many at once, and must agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ingest.parsing.event_rows import url_parts
from ingest.parsing.ocsf import (
    A_HOST,
    A_URL,
    A_USER,
    AN_AGENT,
    AN_IP,
    DNS,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    device,
    event,
    first,
    kept,
    mac_address,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import flag, number, take_seconds, take_string
from ingest.parsing.timestamps import Stamp
from ingest.sources.zeek.row import PORT, PRODUCT, PROTOCOLS, span_of, stamp_of

# Zeek's conn_state as OCSF activity and status
# (https://docs.zeek.org/en/master/scripts/base/protocols/conn/main.zeek.html).
_OPEN, _CLOSE, _RESET, _FAIL, _REFUSE, TRAFFIC = 1, 2, 3, 4, 5, 6
STATES = MappingProxyType(
    {
        "S0": (_FAIL, FAILURE),
        "S1": (_OPEN, SUCCESS),
        "S2": (TRAFFIC, SUCCESS),
        "S3": (TRAFFIC, SUCCESS),
        "SF": (_CLOSE, SUCCESS),
        "REJ": (_REFUSE, FAILURE),
        "RSTO": (_RESET, SUCCESS),
        "RSTR": (_RESET, SUCCESS),
        "RSTOS0": (_RESET, FAILURE),
        "RSTRH": (_RESET, FAILURE),
        "SH": (_FAIL, FAILURE),
        "SHR": (_FAIL, FAILURE),
    }
)
HIGHEST_RCODE = 25
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(slots=True)
class Entry:
    """What every Zeek log has in common; `fields` is what has not been used yet."""

    fields: dict[str, Any]
    stamp: Stamp
    uid: str | None
    src_ip: str
    src_port: int | None
    dst_ip: str
    dst_port: int | None
    sensor: str | None
    log: str

    def common(self) -> dict[str, Any]:
        """The columns that all logs fill alike."""
        return {
            "metadata": metadata(PRODUCT, self.stamp, log_name=self.log, correlation_uid=self.uid),
            "src_endpoint": {"ip": self.src_ip, "port": self.src_port},
            "dst_endpoint": {"ip": self.dst_ip, "port": self.dst_port},
            "device": device(self.sensor),
        }

    def connection(self, protocol: str | None) -> dict[str, Any]:
        """The connection; its direction is unknown unless a reader says otherwise."""
        return {
            "uid": self.uid,
            "protocol_name": protocol,
            "protocol_num": PROTOCOLS.get(protocol or ""),
            "protocol_ver_id": 6 if ":" in self.src_ip else 4,
            "direction_id": 0,
            "direction": "Unknown",
        }


def _ends(fields: dict[str, Any]) -> tuple[str, int | None, str, int | None]:
    if "id.orig_h" in fields:
        return _four(fields, "id.")
    # Shippers rewrite the dot, which many stores do not take in a name.
    if "id_orig_h" in fields:
        return _four(fields, "id_")
    if type(fields.get("id")) is dict:
        ends = _four(fields["id"], "")
        if not fields["id"]:
            del fields["id"]
        return ends
    raise Unreadable("no 'id.orig_h', 'id_orig_h' or 'id': {'orig_h': ...} in the object")


def _four(fields: dict[str, Any], prefix: str) -> tuple[str, int | None, str, int | None]:
    return (
        _ip(fields, prefix + "orig_h"),
        number(fields, prefix + "orig_p", PORT),
        _ip(fields, prefix + "resp_h"),
        number(fields, prefix + "resp_p", PORT),
    )


def _ip(fields: dict[str, Any], key: str) -> str:
    spelled = take_string(fields, key)
    ip = address(spelled) if spelled else None
    if ip is None:
        raise Unreadable(f"{key}: expected an IP address, found {str(spelled)[:40]!r}")
    return ip


def entry_of(fields: dict[str, Any], context: Context, log: str) -> Entry:
    sensor = (
        first([take_string(fields, key) for key in ("@system", "_system_name")]) or context.host
    )
    return Entry(
        fields,
        stamp_of(fields, context, sensor),
        take_string(fields, "uid"),
        *_ends(fields),
        sensor,
        log,
    )


def left_over(fields: Mapping[str, Any]) -> str | None:
    """What found no column, by name: lines that are read many at once do not keep the order of
    their keys, and a line must not tell by which way it was read."""
    return unmapped(dict(sorted(fields.items())))


def _span(stamp: Stamp, span: float | None) -> dict[str, Any]:
    """Start, end and milliseconds of what began at `stamp` and took `span` seconds."""
    return span_of(stamp, span) or {"start_time": stamp.time}


def conn(entry: Entry) -> Event:
    """One connection, seen as a whole."""
    fields, common = entry.fields, entry.common()
    state = take_string(fields, "conn_state")
    activity, status = STATES.get(state or "", (TRAFFIC, UNKNOWN))
    source, target = common["src_endpoint"], common["dst_endpoint"]
    for end, key in ((source, "orig_l2_addr"), (target, "resp_l2_addr")):
        spelled = take_string(fields, key)
        end["mac"] = mac_address(spelled)
        # No hardware address of six octets: the text goes back, to be found in `unmapped`.
        if spelled and end["mac"] is None:
            fields[key] = spelled
    connection = entry.connection(take_string(fields, "proto"))
    connection["flag_history"] = take_string(fields, "history")
    connection["community_uid"] = take_string(fields, "community_id")
    local = {key: flag(fields, key) for key in ("local_orig", "local_resp")}
    connection |= _direction(*local.values())
    if None in local.values():
        # One end alone gives no direction: what the line says of it stays in `unmapped`.
        fields |= {key: value for key, value in local.items() if value is not None}
    return event(
        NETWORK,
        activity,
        entry.stamp,
        status_id=status,
        status_code=state,
        app_name=take_string(fields, "service"),
        traffic=_traffic(fields),
        connection_info=connection,
        observables=observables(
            ("src_endpoint.ip", AN_IP, entry.src_ip), ("dst_endpoint.ip", AN_IP, entry.dst_ip)
        ),
        **_span(entry.stamp, take_seconds(fields, "duration")),
        **common,
        unmapped=left_over(fields),
    )


def _direction(local_orig: bool | None, local_resp: bool | None) -> dict[str, Any]:
    if local_orig is None or local_resp is None:
        return {}
    directions = {
        (False, True): (1, "Inbound"),
        (True, False): (2, "Outbound"),
        (True, True): (3, "Lateral"),
    }
    direction_id, direction = directions.get((local_orig, local_resp), (0, "Unknown"))
    return {"direction_id": direction_id, "direction": direction}


def _traffic(fields: dict[str, Any]) -> dict[str, Any] | None:
    out, back = number(fields, "orig_bytes"), number(fields, "resp_bytes")
    sent, received = number(fields, "orig_pkts"), number(fields, "resp_pkts")
    if out is back is sent is received is None:
        return None
    return {
        "bytes_out": out,
        "bytes_in": back,
        "bytes": _sum("orig_bytes", out, back),
        "packets_out": sent,
        "packets_in": received,
        "packets": _sum("orig_pkts", sent, received),
    }


def _sum(key: str, one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return None
    if one + other >= 2**63:
        raise Unreadable(f"{key}: {one} and {other} together are beyond 64 bits")
    return one + other


def dns(entry: Entry) -> Event:
    """One question and, where Zeek saw it, its answer."""
    fields = entry.fields
    name = take_string(fields, "query")
    rcode = number(fields, "rcode", PORT)
    rcode_name = take_string(fields, "rcode_name")
    kind, family = take_string(fields, "qtype_name"), take_string(fields, "qclass_name")
    if name is None:
        # A question for the root has no name, without which there is no query in OCSF.
        fields |= kept(qtype_name=kind, qclass_name=family)
    answers = _answers(fields)
    status = UNKNOWN if rcode is None else SUCCESS if rcode == 0 else FAILURE
    return event(
        DNS,
        # Zeek writes one line for question and answer, so only a lone question is a query.
        1 if rcode is None and answers is None else TRAFFIC,
        entry.stamp,
        status_id=status,
        status_code=rcode_name,
        query={"hostname": name, "type": kind, "class": family} if name is not None else None,
        answers=answers,
        rcode_id=rcode if rcode is None or rcode <= HIGHEST_RCODE else OTHER,
        rcode=rcode_name,
        connection_info=entry.connection(take_string(fields, "proto")),
        observables=observables(
            ("src_endpoint.ip", AN_IP, entry.src_ip),
            ("dst_endpoint.ip", AN_IP, entry.dst_ip),
            ("query.hostname", A_HOST, name),
        ),
        **_span(entry.stamp, take_seconds(fields, "rtt")),
        **entry.common(),
        unmapped=left_over(fields),
    )


def _answers(fields: dict[str, Any]) -> list[dict[str, Any]] | None:
    answers = _list(fields, "answers")
    if answers is None:
        return None
    ttls = _list(fields, "TTLs") or []
    if not all(type(answer) is str for answer in answers):
        raise Unreadable("answers: expected strings")
    # Zeek writes TTLs as an interval, so with a fraction.
    if not all(type(ttl) in (int, float) and 0 <= ttl < 2**32 for ttl in ttls):
        raise Unreadable("TTLs: expected seconds from 0 to 4294967295")
    # Zeek may write fewer TTLs than answers.
    ttls += [None] * (len(answers) - len(ttls))
    return [
        {"rdata": answer, "ttl": None if ttl is None else int(ttl)}
        for answer, ttl in zip(answers, ttls, strict=False)
    ]


def _list(fields: dict[str, Any], key: str) -> list[Any] | None:
    value = fields.pop(key, None)
    if value is None or type(value) is list:
        return value
    raise Unreadable(f"{key}: expected an array")


def http(entry: Entry) -> Event:
    """One request and its response."""
    fields = entry.fields
    method, agent = take_string(fields, "method"), take_string(fields, "user_agent")
    code = number(fields, "status_code", PORT)
    user = take_string(fields, "username")
    url = url_of(take_string(fields, "host"), take_string(fields, "uri"), entry.dst_port)
    return event(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
        entry.stamp,
        status_id=UNKNOWN if code is None else SUCCESS if code < 400 else FAILURE,
        status_code=None if code is None else str(code),
        http_request={
            "http_method": method,
            "version": take_string(fields, "version"),
            "user_agent": agent,
            "referrer": take_string(fields, "referrer"),
            "length": number(fields, "request_body_len"),
            "url": url,
        },
        http_response=_response(fields, code),
        actor={"user": {"name": user}} if user else None,
        connection_info=entry.connection("tcp"),
        app_name="http",
        observables=observables(
            ("src_endpoint.ip", AN_IP, entry.src_ip),
            ("dst_endpoint.ip", AN_IP, entry.dst_ip),
            ("http_request.url.hostname", A_HOST, url and url["hostname"]),
            ("http_request.url.url_string", A_URL, url and url["url_string"]),
            ("http_request.user_agent", AN_AGENT, agent),
            ("actor.user.name", A_USER, user),
        ),
        **entry.common(),
        unmapped=left_over(fields),
    )


def _response(fields: dict[str, Any], code: int | None) -> dict[str, Any] | None:
    """The response; its length and words stay in `fields` where it has no code."""
    if code is None:
        return None
    # One for each part of a body; of several none speaks for the whole.
    kinds = fields.get("resp_mime_types")
    kind = None
    if type(kinds) is list and len(kinds) == 1 and type(kinds[0]) is str:
        kind = fields.pop("resp_mime_types")[0]
    return {
        "code": code,
        "message": take_string(fields, "status_msg"),
        "length": number(fields, "response_body_len"),
        "content_type": kind,
    }


def url_of(host: str | None, uri: str | None, port: int | None) -> dict[str, Any] | None:
    if host is None and uri is None:
        return None
    whole = uri is not None and _SCHEME.match(uri) is not None
    path, _, query = ("" if whole else uri or "").partition("?")
    # Only a request to a proxy has a whole URI; `http.log` is of plain HTTP.
    scheme = uri.partition("://")[0].lower() if whole and uri else "http"
    url = {
        "url_string": uri if whole or not host else f"http://{host}{uri or '/'}",
        "hostname": host,
        "path": path or None,
        "query_string": query or None,
        "port": port,
        "scheme": scheme,
    }
    # Both readers of this log call this, so that a whole URL has the same parts in both.
    return dict.fromkeys(url) | url_parts(url)
