"""Access logs of AWS's load balancers: application (ALB), network (NLB) and classic (ELB).

https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html
https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-access-logs.html
Fields are separated by spaces, texts stand in quotes; new fields have been added at the end. A
quote in what a client sent is escaped, so the address before it cannot be forged. A network load
balancer writes a line for each TLS connection, once it is over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import FAILURE, INFORMATIONAL, LOW, SUCCESS, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import stamp_iso
from ingest.sources.shared.firewall import traffic
from ingest.sources.shared.http_exchange import (
    NONE,
    Exchange,
    endpoint,
    host_port,
    http_event,
    milliseconds,
    unescape,
    whole,
)
from ingest.sources.shared.web_timestamps import replacing, write_clf

_PRODUCT: Mapping[str, str] = {"name": "Elastic Load Balancing", "vendor_name": "AWS"}
_WORD = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*+)"(?= |\Z)|(?P<plain>\S+)')
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z"
_START = re.compile(
    rf"(?:(?P<type>https?|h2|grpcs?|wss?|tls) )?(?P<time>{_ISO}) (?P<elb>\S{{1,255}}) "
    r"(?P<client>\S{3,60}) (?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_WORDS_COMMON = """
    target request_processing_time target_processing_time response_processing_time
    elb_status_code target_status_code received_bytes sent_bytes request user_agent ssl_cipher
    ssl_protocol
"""
_COMMON = _WORDS_COMMON.split()
_WORDS_OF_ALB = """
    target_group_arn trace_id domain_name chosen_cert_arn matched_rule_priority
    request_creation_time actions_executed redirect_url error_reason target_port_list
    target_status_code_list classification classification_reason conn_trace_id
"""
_OF_ALB = _WORDS_OF_ALB.split()
_CONNECTION = re.compile(
    rf"tls (?P<version>\d\.\d) (?P<time>{_ISO[:-1]}Z?) (?P<elb>\S{{1,255}}) "
    r"(?P<listener>\S{1,255}) (?P<client>\S{3,60}) (?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_WORDS_OF_NLB = """
    destination connection_time tls_handshake_time received_bytes sent_bytes incoming_tls_alert
    chosen_cert_arn chosen_cert_serial tls_cipher tls_protocol_version tls_named_group domain_name
    alpn_fe_protocol alpn_be_protocol alpn_client_preference_list tls_connection_creation_time
"""
_OF_NLB = _WORDS_OF_NLB.split()
_CLOSED, _FAILED = 2, 4


def _words(text: str) -> list[str]:
    return [
        match["plain"] if match["plain"] is not None else match["quoted"]
        for match in _WORD.finditer(text)
    ]


def _named(names: list[str], words: list[str], before: int) -> dict[str, str]:
    """The words that say something by name; `before` columns stand in front of them."""
    fields: dict[str, str] = {}
    for index, (name, word) in enumerate(zip_longest(names, words)):
        if word is not None and word not in NONE:
            # What a newer version appends is kept under its number.
            fields[name or f"column_{index + before}"] = word
    return fields


def _connection(line: Line, context: Context) -> Event | None:
    """A TLS connection through a network load balancer; None for what is no such line."""
    match = _CONNECTION.fullmatch(line.text)
    words = _words(match["rest"]) if match else []
    if match is None or len(words) < 5:
        return None
    fields = _named(_OF_NLB, words, 6)
    # UTC, as all logs of these load balancers, though this one mostly leaves the `Z` out.
    written = match["time"].removesuffix("Z") + "Z"
    stamp = stamp_iso(written, context.zone(None), context.record.received_at)
    x = Exchange()
    x.client, x.client_port = host_port(match["client"])
    target, port = host_port(fields.pop("destination", ""))
    x.server = endpoint(target, port)
    x.meta = kept(log_name=match["elb"])
    out, back = (whole(fields.pop(f"{way}_bytes", None)) for way in ("received", "sent"))
    x.duration = whole(fields.pop("connection_time", None))
    cipher = fields.pop("tls_cipher", None)
    x.tls = kept(
        cipher=cipher,
        version=fields.pop("tls_protocol_version", None),
        sni=fields.get("domain_name"),
    )
    x.rest = (
        line.rest
        | fields
        | kept(type="tls", version=match["version"], elb=match["elb"], listener=match["listener"])
    )
    # Without a cipher the two ends did not agree on one, so there was no connection to carry.
    return http_event(
        x,
        stamp,
        _PRODUCT,
        host=line.host,
        message=f"TLS connection to {x.tls.get('sni') or match['elb']}",
        activity_id=_CLOSED if cipher else _FAILED,
        status_id=SUCCESS if cipher else FAILURE,
        severity_id=INFORMATIONAL if cipher else LOW,
        traffic=traffic(out, back),
    )


def _read(line: Line, context: Context) -> Event | None:
    """A request or a TLS connection; None for what is no line of such a log."""
    match = _START.fullmatch(line.text)
    words = _words(match["rest"]) if match else []
    if match is None or len(words) < 9:
        return _connection(line, context)
    fields = _named(_COMMON + (_OF_ALB if match["type"] else []), words, 4)
    stamp = stamp_iso(match["time"], context.zone(None), context.record.received_at)
    x = Exchange()
    x.client, x.client_port = host_port(match["client"])
    x.meta = kept(log_name=match["elb"], correlation_uid=fields.pop("trace_id", None))
    target, port = host_port(fields.pop("target", ""))
    x.server = endpoint(target, port)
    if "request" in fields:
        x.request(unescape(fields.pop("request")))
    agent = fields.pop("user_agent", None)
    x.agent = unescape(agent) if agent else None
    x.code = whole(fields.pop("elb_status_code", None), 999)
    x.received = whole(fields.pop("sent_bytes", None))
    x.sent = whole(fields.pop("received_bytes", None))
    spans = [milliseconds(fields.get(f"{part}_processing_time"), 1000) for part in _PARTS]
    measured = [span for span in spans if span is not None]
    x.duration = sum(measured) if len(measured) == len(spans) else None
    x.host = fields.pop("domain_name", None)
    x.tls = kept(cipher=fields.pop("ssl_cipher", None), version=fields.pop("ssl_protocol", None))
    x.rest = line.rest | fields | kept(type=match["type"], elb=match["elb"])
    return http_event(x, stamp, _PRODUCT, host=line.host)


_PARTS = ("request", "target", "response")
_TIME = re.compile(rf"(?:\w{{2,5}} (?:\d\.\d )?)?(?P<time>{_ISO}?)", re.ASCII)

SOURCES = (
    FramedSource(
        name="aws_elb",
        programs=frozenset({"aws_elb"}),
        product=_PRODUCT,
        reader=_read,
        bare_first=True,
        restamper=replacing(_TIME, write_clf),
    ),
)
