"""FortiOS's logs of sessions, and what all its logs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import FAILURE, NETWORK, kept, metadata, unmapped
from ingest.parsing.source import Context, Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.device_header import Header
from ingest.sources.shared.firewall import (
    CLOSE,
    FAIL,
    INBOUND,
    OPEN,
    OUTBOUND,
    REFUSE,
    RESET,
    TRAFFIC,
    Fields,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    severity,
    split_user,
    traffic,
    verdict,
)

PRODUCT: Mapping[str, str] = {"name": "FortiGate", "vendor_name": "Fortinet"}
_ACTIVITIES: Mapping[str, int] = MappingProxyType(
    {
        "start": OPEN,
        "close": CLOSE,
        "timeout": CLOSE,
        "client-rst": RESET,
        "server-rst": RESET,
        # FortiOS' word for a session whose other end could not be reached.
        "ip-conn": FAIL,
        "deny": REFUSE,
        "blocked": REFUSE,
    }
)
# How a session ended that was let through: a reset by one of its ends is no refusal.
ALLOWED_ACTIONS = frozenset({"start", "close", "timeout", "client-rst", "server-rst", "dns"})


@dataclass(slots=True)
class Log:
    """One log; `fields` is what has not been used yet."""

    fields: Fields
    kind: str
    subtype: str
    stamp: Stamp
    header: Header
    context: Context

    def common(self) -> dict[str, Any]:
        """The columns that all logs fill alike."""
        fields = self.fields
        name, uid = fields.text("devname"), fields.text("devid", "device_id")
        device = kept(hostname=name or self.header.host, uid=uid)
        # Older releases call it `pri`.
        level = fields.get("level", fields.get("pri"))
        return {
            "severity_id": severity(level if type(level) is str else None),
            "metadata": metadata(
                PRODUCT,
                self.stamp,
                log_name="/".join(part for part in (self.kind, self.subtype) if part) or None,
                event_code=fields.text("logid", "log_id"),
                # Looked at and not taken out: the connection has it as its own id.
                correlation_uid=fields.get("sessionid"),
            ),
            "device": device | {"type_id": 0} if device else None,
        }

    def rest(self) -> str | None:
        """What found no column."""
        return unmapped(self.header.rest | self.fields.left())

    def ends(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Source and destination."""
        fields = self.fields
        return (
            endpoint(
                # FortiOS 4 wrote `src` and `dst`; logs of VPNs name the two ends from the
                # firewall's own side, `remip` and `locip`.
                ip=fields.ip("srcip", "src", "remip", "rem_ip"),
                port=fields.port("srcport", "src_port", "remport", "rem_port"),
                mac=fields.mac("srcmac", "mastersrcmac", "src_mac"),
                hostname=fields.text("srcname"),
                interface_name=fields.text("srcintf", "src_int"),
                country=_country(fields, "srccountry"),
            ),
            endpoint(
                ip=fields.ip("dstip", "dst", "locip", "loc_ip"),
                port=fields.port("dstport", "dst_port", "locport", "loc_port"),
                mac=fields.mac("dstmac", "masterdstmac", "dst_mac"),
                hostname=fields.text("dstname"),
                interface_name=fields.text("dstintf", "dst_int"),
                country=_country(fields, "dstcountry"),
            ),
        )

    def connection(self, source: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The session; its direction is from the firewall's own point of view."""
        fields = self.fields
        way = {"outgoing": OUTBOUND, "incoming": INBOUND}.get(str(fields.get("direction")), {})
        if way:
            del fields["direction"]
        return connection(
            fields.text("proto"),
            (source or {}).get("ip"),
            uid=fields.text("sessionid", "session_id"),
            **way,
        )

    def rule(self) -> dict[str, Any] | None:
        """The policy that decided."""
        fields = self.fields
        rule = kept(uid=fields.text("policyid"), name=fields.text("policyname"))
        return rule | kept(type=fields.text("policytype")) if rule else None

    def user(self, *names: str) -> dict[str, Any] | None:
        """The first of the users that `names` name, with their group."""
        user = split_user(self.fields.text(*(names or ("user", "unauthuser", "srcuser"))))
        group = self.fields.text("group") if user else None
        return user if user is None or group is None else user | {"groups": [group]}

    def allowed(self) -> bool | None:
        """Whether the action let it pass."""
        action = self.fields.get("action", self.fields.get("status"))
        if type(action) is not str:
            return None
        return True if action in ALLOWED_ACTIONS else verdict(action)


def _country(fields: Fields, name: str) -> str | None:
    """A country; for private addresses FortiOS writes `Reserved`."""
    return None if fields.get(name) == "Reserved" else fields.text(name)


def session(
    log: Log,
    class_uid: int = NETWORK,
    activity_id: int | None = None,
    activity_name: str | None = None,
    **columns: Any,
) -> Event:
    """A session (traffic), or what an application control saw of one.

    Of another class than a connection's with `class_uid`, and of another activity than what
    the firewall did with it with `activity_id`.
    """
    fields = log.fields
    common = log.common()
    action = fields.get("action", "")
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    activity = _ACTIVITIES.get(action, REFUSE if allowed is False else TRAFFIC)
    if log.kind == "traffic" and str(common["metadata"]["event_code"])[-2:] == "15":
        activity = OPEN
    seconds = fields.number("duration", most=10**9)
    outcome = firewall_disposition(allowed)
    if activity == FAIL:
        outcome["status_id"] = FAILURE
    spoken = fields.text("app", "service")
    ends = f"{(source or {}).get('ip', '?')} to {(target or {}).get('ip', '?')}"
    numbers = [fields.number(name) for name in ("sentbyte", "rcvdbyte", "sentpkt", "rcvdpkt")]
    return located(
        class_uid,
        activity if activity_id is None else activity_id,
        log.stamp,
        activity_name=activity_name,
        **outcome,
        **columns,
        status_code=action or None,
        message=fields.text("msg") or f"{log.subtype or log.kind} {action} {ends}",
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        traffic=traffic(*numbers),
        duration=None if seconds is None else seconds * 1000,
        app_name=spoken,
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, user),
        **common,
        unmapped=log.rest(),
    )
