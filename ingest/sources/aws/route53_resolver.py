"""Route 53 Resolver: a record for each name that machines of a VPC asked for.

https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/resolver-query-logs-format.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import DNS, FAILURE, SUCCESS, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    inner,
    listed,
    look,
    take,
    take_ip,
    take_number,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord
from ingest.sources.shared.dns import RCODES
from ingest.sources.shared.firewall import connection, firewall_disposition

_PRODUCT: Mapping[str, str] = {"name": "Route 53 Resolver", "vendor_name": "AWS"}
_QUERY, _RESPONSE = 1, 2
_ALLOWED = {"ALLOW": True, "ALERT": True, "BLOCK": False}


def _answers(fields: Fields) -> list[Fields] | None:
    answers = []
    for element in listed(fields, "answers"):
        data = look(element, "Rdata")
        if type(data) is str:
            take(element, "Rdata")
            answers.append(kept(rdata=data, type=take_text(element, "Type")))
            take(element, "Class")
    return answers or None


def _read(fields: Fields, context: Context) -> Event:
    name = take_text(fields, "query_name")
    if name is None:
        raise Unreadable("no 'query_name' in the record")
    stamp = take_time(fields, context, ("query_timestamp",))
    ids = inner(fields, "srcids")
    source = kept(
        ip=take_ip(fields, "srcaddr"),
        port=take_number(fields, "srcport", most=65535),
        uid=take_text(ids, "instance"),
    )
    region, account = take_text(fields, "region"), take_text(fields, "account_id")
    rcode = take_text(fields, "rcode")
    number = RCODES.get((rcode or "").upper())
    action = take_text(fields, "firewall_rule_action")
    group = take_text(fields, "firewall_rule_group_id")
    decided: dict[str, Any] = firewall_disposition(_ALLOWED.get((action or "").upper()))
    # Whether the name exists is not what a rule decided.
    decided.pop("status_id", None)
    record = CloudRecord(_PRODUCT, fields, stamp)
    query = kept(
        hostname=name.rstrip(".") or name,
        type=take_text(fields, "query_type"),
        **{"class": take_text(fields, "query_class")},
    )
    return record.event(
        DNS,
        _RESPONSE if rcode else _QUERY,
        about=kept(log_name=take_text(fields, "vpc_id")),
        message=f"{query.get('type', '')} {query['hostname']}: {rcode or 'no answer'}".strip(),
        status=None if rcode is None else SUCCESS if rcode.upper() == "NOERROR" else FAILURE,
        source=source or {"name": "unknown"},
        query=query,
        answers=_answers(fields),
        rcode=rcode,
        rcode_id=number if rcode is None or number is not None else 99,
        connection_info=connection(take_text(fields, "transport"), source.get("ip")),
        cloud={
            "provider": "AWS",
            "region": region,
            "account": {"uid": account} if account else None,
        },
        firewall_rule=kept(uid=group, type=action) if group else None,
        **decided,
    )


@dataclass(frozen=True)
class Route53Resolver(EnvelopedSource):
    """Query logs of Route 53 Resolver and its DNS Firewall."""

    name: str = "route53_resolver"
    time_keys: ClassVar[tuple[str, ...]] = ("query_timestamp",)

    def is_own(self, fields: Fields) -> bool:
        return "query_name" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (Route53Resolver(),)
