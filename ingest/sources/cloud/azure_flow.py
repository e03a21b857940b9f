"""Azure's flow logs: of network security groups (versions 1 and 2) and of virtual networks.

https://learn.microsoft.com/azure/network-watcher/nsg-flow-logs-overview and
https://learn.microsoft.com/azure/network-watcher/vnet-flow-logs-overview . A record holds the
flows of a minute as texts of values between commas, grouped by rule and interface: each such
text becomes an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import NETWORK, address, kept, mac_address, metadata, unmapped
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import require_repeatable
from ingest.parsing.timestamps import stamp_epoch
from ingest.sources.cloud.common import (
    PORTS,
    EnvelopedSource,
    Fields,
    inner,
    listed,
    look,
    look_text,
    ms,
)
from ingest.sources.shared.firewall import (
    CLOSE,
    INBOUND,
    OPEN,
    OUTBOUND,
    REFUSE,
    TRAFFIC,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    traffic,
)
from ingest.sources.shared.http_exchange import whole

_PRODUCT: Mapping[str, str] = {"name": "Network Watcher", "vendor_name": "Microsoft"}
_STATES = {"B": OPEN, "C": TRAFFIC, "E": CLOSE, "D": REFUSE}
_PROTOCOLS = {"T": "tcp", "U": "udp"}
_TIMES = re.compile(rb'(?<=")(\d{10}|\d{13})(?=,[0-9A-Fa-f.:]{2,45},)')
_FEWEST, _WITH_VOLUMES = 8, 13
"""Values of a flow in version 1; in version 2, and in logs of virtual networks."""


class _Group(NamedTuple):
    """What flows have in common; `about` is the rest of their record."""

    rule: str | None
    mac: str | None
    acl: str | None
    networks: bool
    about: Fields


def _groups(fields: Fields) -> Iterator[tuple[_Group, list[Any]]]:
    """The lists of flows in a record, each with its rule and interface."""
    about = {name: value for name, value in fields.items() if type(value) is not dict}
    properties = inner(fields, "properties")
    version = look(properties, "Version")
    about |= kept(Version=version)
    for ruled in listed(properties, "flows"):
        for group in listed(ruled, "flows"):
            tuples = look(group, "flowTuples")
            if type(tuples) is list:
                rule, mac = look_text(ruled, "rule"), look_text(group, "mac")
                yield _Group(rule, mac, None, False, about), tuples
    for flow in listed(fields, "flowRecords", "flows"):
        for group in listed(flow, "flowGroups"):
            tuples = look(group, "flowTuples")
            if type(tuples) is list:
                rule, mac = look_text(group, "rule"), look_text(fields, "macAddress")
                yield _Group(rule, mac, look_text(flow, "aclID"), True, about), tuples


def _named(group: _Group) -> int:
    """How long what names a group is."""
    return len(group.rule or "") + len(group.acl or "")


def _volumes(values: list[str]) -> Fields | None:
    """Packets and bytes there, packets and bytes back; Azure leaves them empty at the start."""
    there, sent, back, received = (whole(value) for value in values)
    return traffic(sent, received, there, back)


def _decision(values: list[str], *, networks: bool) -> tuple[bool, str]:
    """Whether a flow was let pass, and its state, a key of `_STATES`."""
    word = values[7]
    if networks:
        return word != "D", word
    if word not in ("A", "D"):
        raise Unreadable(f"flowTuples: expected A or D as the decision, found '{word}'")
    if word == "D":
        return False, word
    # Version 1 tells that a flow was let pass, not whether it opened.
    return True, (values[8] or "B") if len(values) > _FEWEST else "C"


def _flow(text: object, group: _Group, context: Context) -> Event:
    if type(text) is not str:
        raise Unreadable("flowTuples: an element that is no text")
    values = text.split(",")
    if len(values) < _FEWEST:
        raise Unreadable(f"flowTuples: {len(values)} values, expected at least {_FEWEST}")
    stamp = stamp_epoch(values[0], context.record.received_at)
    source = endpoint(ip=address(values[1]), port=whole(values[3], PORTS))
    target = endpoint(ip=address(values[2]), port=whole(values[4], PORTS))
    if source is None or target is None:
        raise Unreadable(f"flowTuples: no two addresses in '{text[:60]}'")
    decided, state = _decision(values, networks=group.networks)
    # Logs of networks have the protocol's number.
    spoken = values[5] if group.networks else _PROTOCOLS.get(values[5], values[5])
    rest = kept(encryption=values[8] if group.networks and len(values) > _FEWEST else None)
    long = len(values) >= _WITH_VOLUMES
    volumes = _volumes(values[9:13]) if long else None
    beyond = values[13:] if long else values[9:]
    outward = values[6] == "O"
    directed = OUTBOUND if outward else INBOUND if values[6] == "I" else {}
    # Azure names one interface: that of its own machine, whichever end it is.
    (source if outward else target).update(kept(mac=mac_address(group.mac)))
    resource = look_text(group.about, "targetResourceID") or look_text(group.about, "resourceId")
    rule = kept(name=group.rule, uid=group.acl)
    left = {name: value for name, value in group.about.items() if name != "category"}
    return located(
        NETWORK,
        _STATES.get(state, TRAFFIC),
        stamp,
        **firewall_disposition(decided),
        message=f"{'allowed' if decided else 'denied'} by {group.rule or 'an unnamed rule'}",
        metadata=metadata(
            _PRODUCT,
            stamp,
            event_code=state,
            log_name=look_text(group.about, "category"),
        ),
        cloud={"provider": "Azure", **kept(account=_subscription(resource))},
        src_endpoint=source,
        dst_endpoint=target,
        connection_info=connection(spoken, source.get("ip"), **directed),
        traffic=volumes,
        firewall_rule=rule or None,
        observables=ends_seen(source, target),
        unmapped=unmapped(left | rest | ({"flow": beyond} if beyond else {})),
    )


def _subscription(resource: str | None) -> Fields | None:
    parts = (resource or "").split("/")
    return {"uid": parts[2]} if len(parts) > 2 and parts[1].lower() == "subscriptions" else None


@dataclass(frozen=True)
class AzureFlow(EnvelopedSource):
    """Flow logs of Azure's network security groups and virtual networks."""

    name: str = "azure_flow"
    time_keys: ClassVar[tuple[str, ...]] = ()

    def is_own(self, fields: Fields) -> bool:
        return look(fields, "properties", "flows") is not None or "flowRecords" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return self.read_all(fields, context)[0]

    def read_all(self, fields: Fields, context: Context) -> list[Event]:
        events: list[Event] = []
        groups = list(_groups(fields))
        if groups:
            # Once, as if all flows were of the longest: each group has the same rest of the record.
            longest = max((group for group, _ in groups), key=_named)
            common = longest.about | kept(rule=longest.rule, acl=longest.acl)
            require_repeatable(common, sum(len(texts) for _, texts in groups))
        for group, texts in groups:
            for text in texts:
                try:
                    events.append(_flow(text, group, context))
                except Unreadable as why:
                    events.append({"dead_letter_reason": str(why)})
        if all("dead_letter_reason" in event for event in events):
            raise Unreadable(events[0]["dead_letter_reason"] if events else "a record of no flows")
        return events

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        """Every flow gets the same time, in seconds or milliseconds as it had it."""
        digits = str(ms(when))
        new, changed = _TIMES.subn(lambda match: digits[: len(match[1])].encode(), raw)
        if not changed:
            raise Unreadable("no flow that begins with a time in the record")
        return new


SOURCES = (AzureFlow(),)
