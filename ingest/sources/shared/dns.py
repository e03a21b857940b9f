"""What logs of name servers have in common: a question, an answer, who asked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    AN_IP,
    BASE,
    DNS,
    FAILURE,
    OTHER,
    SUCCESS,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp

QUERY, RESPONSE, TRAFFIC = 1, 2, 6
RCODES: Mapping[str, int] = MappingProxyType(
    {
        "NOERROR": 0,
        "FORMERR": 1,
        "SERVFAIL": 2,
        "NXDOMAIN": 3,
        "NOTIMP": 4,
        "NOTIMPL": 4,
        "REFUSED": 5,
        "YXDOMAIN": 6,
        "YXRRSET": 7,
        "NXRRSET": 8,
        "NOTAUTH": 9,
        "NOTZONE": 10,
        "BADVERS": 16,
        "BADSIG": 16,
        "BADKEY": 17,
        "BADTIME": 18,
        "BADMODE": 19,
        "BADNAME": 20,
        "BADALG": 21,
        "BADTRUNC": 22,
        "BADCOOKIE": 23,
    }
)
"""Response codes by the names servers give them."""


def answered(code: str | None) -> dict[str, Any]:
    """The columns of a response code, and what it says of success."""
    if code is None:
        return {}
    number = RCODES.get(code.upper(), OTHER)
    return {
        "rcode": code,
        "rcode_id": number,
        "status_id": SUCCESS if number == 0 else FAILURE,
        "status_code": code,
    }


def question(name: str, kind: str | None = None, family: str | None = None) -> dict[str, Any]:
    """What was asked; the point at the end of a full name is left out."""
    plain = name[:-1] if name.endswith(".") and len(name) > 1 else name
    return kept(hostname=plain, type=kind, **{"class": family})


def dns_event(
    activity: int,
    stamp: Stamp,
    product: Mapping[str, str],
    line: Line,
    *,
    client: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    meta: Mapping[str, str | None] | None = None,
    rest: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Event:
    """DNS Activity, or an event of no class where neither end is known."""
    source = dict(client or {})
    target = dict(server or {}) or kept(hostname=line.host)
    if query and not source and not target:
        target = {"svc_name": product["name"].lower()}
    uid, activity = (DNS, activity) if source or target else (BASE, 0)
    question = dict(query) if query else None
    return event(
        uid,
        activity,
        stamp,
        **({"message": line.text} | columns),
        metadata=metadata(product, stamp, log_provider=line.program, **(meta or {})),
        src_endpoint=source or None,
        dst_endpoint=target or None,
        device=device(line.host),
        query=question,
        observables=observables(
            ("src_endpoint.ip", AN_IP, source.get("ip")),
            ("dst_endpoint.ip", AN_IP, target.get("ip")),
            ("query.hostname", A_HOST, question and question.get("hostname")),
        ),
        unmapped=unmapped(line.rest | kept(pid=line.pid) | dict(rest or {})),
    )
