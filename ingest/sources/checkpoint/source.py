"""Check Point's gateways and management, as Log Exporter writes them to syslog.

https://sc1.checkpoint.com/documents/R81.20/WebAdminGuides/EN/CP_R81.20_LoggingAndMonitoring_AdminGuide
(Log Exporter): `[action:"Accept"; src:"10.0.0.5"; ...]` behind a header of RFC 5424, quotes in
values escaped; `key=value|key=value` of the form `generic`; CEF and LEEF are read by `cef`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    A_HASH,
    API,
    AUTHENTICATION,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line, restamp
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso
from ingest.sources.generic.cef import MARK as CEF_MARK
from ingest.sources.generic.cef import read_cef
from ingest.sources.shared.device_header import Header, each_line, read_header
from ingest.sources.shared.firewall import (
    CLOSE,
    OPEN,
    REFUSE,
    TRAFFIC,
    Fields,
    connection,
    endpoint,
    ends_seen,
    file_hash,
    firewall_disposition,
    located,
    severity,
    split_user,
    traffic,
    verdict,
)
from ingest.sources.shared.http_exchange import url
from ingest.sources.shared.key_values import certain, put

_PRODUCT: Mapping[str, str] = {"name": "VPN-1 & FireWall-1", "vendor_name": "Check Point"}
# Behind the last value stands no semicolon, in most releases.
# Possessive: a value whose closing quote is missing costs one pass, not one for each length that it
# might have.
_PAIR = re.compile(
    r'\s*(?P<key>[A-Za-z_][\w.-]{0,63}):"(?P<value>(?:[^"\\]|\\.)*+)"(?:;|(?=\s*+\]?\s*$))'
)
_GENERIC = re.compile(r"(?P<key>[A-Za-z_][\w.-]{0,63})=(?P<value>(?:[^|\\]|\\.)*+)(?:\||$)")
_START = re.compile(r'\[(?=[A-Za-z_][\w.-]{0,63}:")')
_ESCAPED = re.compile(r"\\(.)")
_CHOSEN = ["src", "dst", "s_port", "service", "user", "src_user_name", "action", "origin"]
_ACTIONS = {"log in": 1, "log out": 2, "login": 1, "logout": 2, "failed log in": 1}
_THREATS = ("protection_name", "attack", "malware_action", "protection_type")


def _pairs(text: str) -> Fields:
    """The fields of a log; of a key that stands twice the first counts."""
    fields = Fields()
    # No header is longer: further in, only a value could look like the beginning of a log.
    start = _START.search(text[:2048])
    if start:
        position = start.end()
        while match := _PAIR.match(text, position):
            put(fields, match["key"], _ESCAPED.sub(r"\1", match["value"]))
            position = match.end()
        tail = text[position:].strip(" ]")
        if tail:
            fields["tail"] = tail
        return fields
    if "|" in text:
        for match in _GENERIC.finditer(text):
            put(fields, match["key"], _ESCAPED.sub(r"\1", match["value"]))
    return fields


def _time(fields: Fields, header: Header, context: Context) -> Stamp:
    received_at = context.record.received_at
    spelled = fields.get("time")
    stamp = stamp_epoch(spelled, received_at)
    if stamp.quality == "received" and type(spelled) is str:
        stamp = stamp_iso(spelled, context.zone(header.host), received_at)
    if stamp.quality != "received":
        del fields["time"]
        return stamp
    return header.stamp or Stamp.missing(received_at, spelled)


def _read(text: str, context: Context) -> Event:
    if CEF_MARK.search(text, 0, 1024):
        return read_cef(text, context)
    fields = _pairs(text)
    if not fields.keys() & {"action", "product", "origin", "loguid"}:
        raise Unreadable(f"no log of Check Point at byte 0: '{text[:40]}'")
    fields = certain(fields, _CHOSEN)
    first = _START.search(text[:2048]) or _GENERIC.search(text)
    header = read_header(text[: first.start()].rstrip() if first else "", context)
    stamp = _time(fields, header, context)
    return _Log(fields, stamp, header).event()


class _Log:
    """One log; `fields` is what has not been used."""

    def __init__(self, fields: Fields, stamp: Stamp, header: Header) -> None:
        self.fields, self.stamp, self.header = fields, stamp, header
        self.action = fields.text("action")
        self.product = fields.text("product")
        self.source = endpoint(
            ip=fields.ip("src", "client_ip"),
            port=fields.port("s_port"),
            hostname=fields.text("src_machine_name", "hostname"),
            mac=fields.mac("mac_address"),
            zone=fields.text("inzone"),
            interface_name=fields.text("ifname"),
            country=fields.text("src_country"),
        )
        self.target = endpoint(
            ip=fields.ip("dst"),
            # Check Point's `service` is the port; the service's name stands in `service_id`.
            port=fields.port("service"),
            hostname=fields.text("dst_machine_name", "dst_domain_name"),
            zone=fields.text("outzone"),
            country=fields.text("dst_country"),
        )
        self.user = split_user(
            fields.text("user", "src_user_name", "administrator", "login_name", "email_id")
        )
        self.device = kept(
            hostname=fields.text("origin_name") or header.host, ip=fields.ip("origin")
        )
        self.rule = kept(name=fields.text("rule_name"), uid=fields.text("rule_uid"))
        self.uid = fields.text("loguid")

    def event(self) -> Event:
        """The event of what kind of log it is."""
        action = (self.action or "").lower()
        fields = self.fields
        # Management logs an administrator's login as an operation that it accepted.
        operation = str(fields.get("operation")).lower()
        if operation in _ACTIONS and action not in _ACTIONS:
            return self._login(_ACTIONS[operation], operation)
        if action in _ACTIONS:
            return self._login(_ACTIONS[action], action)
        if any(fields.get(name) for name in _THREATS):
            return self._finding()
        if (fields.get("operation") and "administrator" in str(fields)) or "objecttype" in fields:
            return self._change()
        return self._session()

    def _common(self) -> dict[str, Any]:
        return {
            "metadata": metadata(
                {**_PRODUCT, "name": self.product or _PRODUCT["name"]},
                self.stamp,
                event_code=self.action,
                uid=self.uid,
            ),
            "src_endpoint": self.source,
            "dst_endpoint": self.target,
            "device": self.device | {"type_id": 0} if self.device else None,
        }

    def _left(self) -> str | None:
        return unmapped(self.header.rest | self.fields.left())

    def _login(self, activity: int, action: str) -> Event:
        common = self._common()
        word = self.fields.text("auth_status", "status", "audit_status")
        failed = "failed" in action or "fail" in (word or "").lower()
        return located(
            AUTHENTICATION,
            activity,
            self.stamp,
            status_id=FAILURE if failed else SUCCESS,
            status_code=word,
            status_detail=self.fields.text("reason", "auth_failure_reason"),
            message=f"{action.title()}: {(self.user or {}).get('name') or 'unknown'}",
            user=self.user or {"name": "unknown"},
            service={"name": self.product or "Check Point"},
            auth_method=self.fields.text("auth_method"),
            is_remote=True if self.source else None,
            observables=ends_seen(self.source, self.target, self.user, where="user"),
            **common,
            unmapped=self._left(),
        )

    def _finding(self) -> Event:
        fields, common = self.fields, self._common()
        title = fields.text("protection_name", "attack", "attack_info") or self.product or "attack"
        decided = firewall_disposition(verdict(self.action))
        # In a finding it says how far people are with it, not whether the traffic got through.
        decided.pop("status_id", None)
        hashes = self._hashes()
        file = kept(name=fields.text("file_name"), hashes=hashes or None) or None
        return located(
            FINDING,
            1,
            self.stamp,
            severity_id=severity(fields.text("severity"), 3),
            message=title,
            finding_info={
                "uid": fields.text("protection_id") or self.uid or title,
                "title": title,
                "created_time": self.stamp.time,
            },
            actor={"user": self.user} if self.user else None,
            file=file,
            http_request=self._request(),
            connection_info=connection(fields.text("proto"), (self.source or {}).get("ip")),
            firewall_rule=self.rule or None,
            observables=ends_seen(
                self.source,
                self.target,
                self.user,
                *(("file.hashes", A_HASH, each["value"]) for each in hashes),
            ),
            **decided,
            **common,
            unmapped=self._left(),
        )

    def _hashes(self) -> list[dict[str, str]]:
        """What a scanned file is known by; of what is no hash nothing is taken."""
        hashes = []
        for name in ("file_sha256", "file_sha1", "file_md5"):
            written = file_hash(self.fields.get(name))
            if written:
                del self.fields[name]
                hashes += written
        return hashes

    def _request(self) -> dict[str, Any] | None:
        """What was asked for, where the log names a URL or a method."""
        fields = self.fields
        link, method = fields.text("resource"), fields.text("method")
        if not link and not method:
            return None
        host = fields.get("http_host")
        return kept(
            http_method=method,
            user_agent=fields.text("user_agent", "web_client_type"),
            referrer=fields.text("referrer"),
            url=url(link, method, host if type(host) is str else None) if link else None,
        )

    def _change(self) -> Event:
        fields, common = self.fields, self._common()
        operation = fields.text("operation") or self.action or "change"
        name = fields.text("objectname")
        doing = {"create": 1, "modify": 3, "update": 3, "delete": 4}
        activity = next((n for word, n in doing.items() if word in operation.lower()), OTHER)
        # OCSF's API Activity requires a source, which management on the machine itself does not
        # name.
        common["src_endpoint"] = self.source or {"name": "unknown"}
        return located(
            API,
            activity,
            self.stamp,
            activity_name=operation if activity == OTHER else None,
            status_id=FAILURE if "fail" in str(fields.get("audit_status")).lower() else SUCCESS,
            message=f"{operation} {name or ''}".strip(),
            actor={"user": self.user or {"name": "unknown"}},
            api={"operation": operation, "service": {"name": self.product or "SmartConsole"}},
            resources=[kept(name=name, type=fields.text("objecttype"))] if name else None,
            observables=ends_seen(self.source, None, self.user),
            **common,
            unmapped=self._left(),
        )

    def _session(self) -> Event:
        fields, common = self.fields, self._common()
        allowed = verdict(self.action)
        sent = fields.number("client_outbound_bytes", "sent_bytes")
        back = fields.number("server_outbound_bytes", "received_bytes")
        seconds = fields.number("elapsed", most=10**9)
        request = self._request()
        method = (request or {}).get("http_method")
        closed = (self.action or "").lower() in ("ctl", "monitored") or seconds is not None
        activity = REFUSE if allowed is False else CLOSE if closed else OPEN if allowed else TRAFFIC
        if request:
            activity = HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN)
        return located(
            HTTP if request else NETWORK,
            activity,
            self.stamp,
            activity_name=method if request and activity == OTHER else None,
            **firewall_disposition(allowed),
            severity_id=severity(fields.text("severity")),
            message=f"{self.action or '?'} {self.rule.get('name') or ''}".strip(),
            actor={"user": self.user} if self.user else None,
            http_request=request,
            connection_info=connection(fields.text("proto"), (self.source or {}).get("ip")),
            traffic=traffic(sent, back),
            duration=None if seconds is None else seconds * 1000,
            app_name=fields.text("appi_name", "service_id"),
            firewall_rule=self.rule or None,
            observables=ends_seen(self.source, self.target, self.user),
            **common,
            unmapped=self._left(),
        )


class CheckPoint(Source):
    """Check Point's logs."""

    name = "checkpoint"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [_read(text, context)])

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        # Not the end of another key, such as `start_time`.
        match = re.search(r'(?<![\w])time[:=]"?(\d{10})(?=["|])', text)
        if match is None:
            return restamp(raw, when, zone)
        new = text[: match.start(1)] + str(int(when.timestamp())) + text[match.end(1) :]
        return new.encode() + raw[len(text.encode()) :]


SOURCES = (CheckPoint(),)
