"""A line as Zeek writes it in JSON, made of Sigma's fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from alerts.reach.example_values import KEYWORDS
from alerts.reach.nested_form import typed


def zeek_line(values: Mapping[str, str]) -> bytes:
    """A line of any of its logs with these fields."""
    base: dict[str, Any] = {
        "ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.orig_p": 50000,
        "id.resp_h": "203.0.113.9", "id.resp_p": 443, "proto": "tcp",
    }  # fmt: skip
    path = values.get("c-uri-path") or values.get("cs-uri-stem") or values.get("c-uri-stem")
    query = values.get("cs-uri-query") or values.get("c-uri-query")
    extension = values.get("c-uri-extension")
    if path or query or extension:
        dotted = f"/x.{extension}" if extension else "/"
        base["uri"] = (path or dotted) + (f"?{query}" if query else "")
    renamed = {
        _ZEEK_NAMES.get(name, name): typed(value)
        for name, value in values.items()
        if name not in _PARTS_OF_URI
    }
    for name in _LISTS & renamed.keys():
        renamed[name] = [renamed[name]]
    # One of the two alone says nothing.
    for name, other in (("local_orig", "local_resp"), ("local_resp", "local_orig")):
        if name in renamed:
            renamed.setdefault(other, False)
    return json.dumps(base | renamed).encode()


_LISTS = frozenset(
    ("answers", "TTLs", "resp_mime_types", "orig_mime_types", "tx_hosts", "rx_hosts", "san.dns",
     "san.ip", "san.email", "san.uri", "rcptto", "to", "cc", "tags", "msg_types")
)  # fmt: skip


_PARTS_OF_URI = frozenset(
    {"c-uri-path", "cs-uri-stem", "c-uri-stem", "cs-uri-query", "c-uri-query", "c-uri-extension"}
)
_ZEEK_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "c-uri": "uri",
        "cs-uri": "uri",
        "c-useragent": "user_agent",
        "cs-method": "method",
        "cs-user-agent": "user_agent",
        "cs-host": "host",
        "r-dns": "host",
        "cs-cookie": "cookie",
        "cs-referer": "referrer",
        "cs-referrer": "referrer",
        "sc-status": "status_code",
        "sc-content-type": "resp_mime_types",
        "cs-version": "version",
        "c-ip": "id.orig_h",
        "src_ip": "id.orig_h",
        "dst_ip": "id.resp_h",
        "dst_port": "id.resp_p",
        KEYWORDS: "note",
        "src_port": "id.orig_p",
        "record_type": "qtype_name",
        "answer": "answers",
        "DestinationIp": "id.resp_h",
        "DestinationPort": "id.resp_p",
        "QueryName": "query",
        "app": "service",
        "application": "service",
        "bytes_out": "orig_bytes",
        "src_bytes": "orig_bytes",
        "bytes_in": "resp_bytes",
        "dst_bytes": "resp_bytes",
        "dns.question.name": "query",
        "dns.question.type": "qtype_name",
        "dns.answers.data": "answers",
        "dns.response_code": "rcode_name",
    }
)
"""Zeek's own name for what Sigma's categories ask."""
