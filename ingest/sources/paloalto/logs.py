"""What each type of PAN-OS's logs means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_URL,
    AN_AGENT,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import EPOCH, Stamp, stamp_iso
from ingest.sources.shared.device_header import Header
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
    forwarded,
    located,
    severity,
    split_user,
    traffic,
    verdict,
)

_PRODUCT: Mapping[str, str] = {"name": "PAN-OS", "vendor_name": "Palo Alto Networks"}
COUNTRY = re.compile(r"[A-Za-z][A-Za-z .,'()-]{1,63}")
THREAT_ID = re.compile(r"(?P<name>.*)\((?P<uid>\d{1,10})\)", re.DOTALL)


@dataclass(slots=True)
class Log:
    """One log; `fields` is what has not been used yet."""

    kind: str
    fields: Fields
    stamp: Stamp
    header: Header

    def common(self) -> dict[str, Any]:
        """The columns that all types fill alike."""
        fields = self.fields
        name, serial = fields.text("device_name"), fields.text("serial")
        device = kept(hostname=name or self.header.host, uid=serial)
        # Behind a collector such as Panorama the header names that, not the firewall.
        if name and self.header.host and name != self.header.host:
            fields["syslog_host"] = self.header.host
        return {
            "metadata": metadata(
                _PRODUCT,
                self.stamp,
                log_name=self.kind,
                event_code=fields.get("subtype"),
                uid=fields.text("seqno"),
                # Looked at and not taken out: the connection has it as its own id.
                correlation_uid=fields.get("sessionid"),
            ),
            "device": device | {"type_id": 0} if device else None,
        }

    def rest(self) -> str | None:
        """What found no column."""
        return unmapped(self.header.rest | self.fields.left())

    def ends(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Source and destination of a session."""
        fields = self.fields
        return (
            endpoint(
                ip=fields.ip("src"),
                port=fields.port("sport"),
                mac=fields.mac("src_mac"),
                hostname=fields.text("src_host"),
                zone=fields.text("from"),
                interface_name=fields.text("inbound_if"),
                country=_country(fields, "srcloc"),
            ),
            endpoint(
                ip=fields.ip("dst"),
                port=fields.port("dport"),
                mac=fields.mac("dst_mac"),
                hostname=fields.text("dst_host"),
                zone=fields.text("to"),
                interface_name=fields.text("outbound_if"),
                country=_country(fields, "dstloc"),
            ),
        )

    def connection(self, source: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The session."""
        uid = self.fields.text("sessionid")
        return connection(self.fields.text("proto"), (source or {}).get("ip"), uid=uid)

    def rule(self) -> dict[str, Any] | None:
        """The rule that decided."""
        fields = self.fields
        return kept(name=fields.text("rule"), uid=fields.text("rule_uuid")) or None

    def user(self, *names: str) -> dict[str, Any] | None:
        """The first of the users that `names` name."""
        return split_user(self.fields.text(*names))


def _country(fields: Fields, name: str) -> str | None:
    """A place; for private addresses PAN-OS writes the range."""
    value = fields.get(name)
    return fields.text(name) if type(value) is str and COUNTRY.fullmatch(value) else None


def _action(log: Log) -> bool | None:
    action = log.fields.get("action")
    return verdict(action) if type(action) is str else None


# -- types -------------------------------------------------------------------------------------


def session(log: Log) -> Event:
    """A session that began, ended or was refused (TRAFFIC)."""
    fields = log.fields
    common = log.common()
    subtype = fields.get("subtype", "")
    # The subtype is surer: a session may be dropped before any rule gave it an action.
    allowed = False if subtype in ("drop", "deny") else _action(log)
    source, target = log.ends()
    user = log.user("srcuser")
    seconds = fields.number("elapsed", most=10**9)
    began = _local(fields, "start", log.stamp)
    end = began + timedelta(seconds=seconds) if began and seconds is not None else None
    numbers = [
        fields.number(name)
        for name in ("bytes_sent", "bytes_received", "pkts_sent", "pkts_received")
    ]
    activity = REFUSE if allowed is False else {"start": OPEN, "end": CLOSE}.get(subtype, TRAFFIC)
    spoken = fields.text("app")
    reason = fields.text("session_end_reason")
    ends = f"{(source or {}).get('ip', '?')} to {(target or {}).get('ip', '?')}"
    rule = log.rule()
    return located(
        NETWORK,
        activity,
        log.stamp,
        **firewall_disposition(allowed),
        status_detail=reason,
        message=f"Session {subtype or 'traffic'} from {ends}: {fields.get('action') or '?'}",
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        traffic=traffic(*numbers, total=fields.number("bytes"), packets=fields.number("packets")),
        app_name=spoken,
        firewall_rule=rule,
        start_time=began,
        # Of a session that goes on, `elapsed` says only how old it is.
        end_time=end if activity == CLOSE else None,
        duration=None if seconds is None else seconds * 1000,
        observables=ends_seen(source, target, user),
        **common,
        unmapped=log.rest(),
    )


def _local(fields: Fields, name: str, stamp: Stamp) -> datetime | None:
    """A time of the same clock as `time_generated`, which says how far that is from UTC."""
    value, generated = fields.get(name), fields.get("time_generated")
    if type(value) is not str or type(generated) is not str:
        return None
    # No arrival can be nearer: only the distance of two times of one clock is wanted here.
    far = datetime.max.replace(tzinfo=UTC)
    near, other = (
        stamp_iso(text.replace("/", "-"), ZoneInfo("UTC"), far) for text in (value, generated)
    )
    if "received" in (near.quality, other.quality):
        return None
    try:
        # Both columns are whole seconds; the time of the log may have a finer one beside it.
        changed = stamp.time.replace(microsecond=0) + (near.time - other.time)
    except OverflowError:
        return None
    del fields[name]
    return changed if changed >= EPOCH else None


def threat(log: Log) -> Event:
    """What a security profile found; a page that was asked for, if of URL filtering."""
    if log.fields.get("subtype") == "url":
        return _page(log)
    fields = log.fields
    common = log.common()
    allowed = _action(log)
    source, target = log.ends()
    user = log.user("srcuser")
    spelled = fields.text("threatid") or ""
    # The last bracket: a threat's name may hold brackets of its own.
    match = THREAT_ID.fullmatch(spelled)
    title = (match["name"].strip() if match else spelled) or f"{fields.get('subtype')}"
    uid = match["uid"] if match else spelled or "unknown"
    category = fields.text("thr_category") or fields.text("category")
    path, sha = fields.text("misc"), fields.text("filedigest")
    of_file = fields.get("subtype") in ("virus", "wildfire", "wildfire-virus", "file", "data")
    # `misc` holds a file's name only for these subtypes; else it is a URL or something else.
    if path and not of_file:
        fields["misc"], path = path, None
    hashes = file_hash(sha)
    if not hashes:
        fields.keep("filedigest", sha)
    file = kept(path=path, hashes=hashes, name=_last(path)) if path or hashes else None
    # In a finding it says how far people are with it, not whether the traffic got through.
    verdict_columns = {k: v for k, v in firewall_disposition(allowed).items() if k != "status_id"}
    return located(
        FINDING,
        1,
        log.stamp,
        severity_id=severity(fields.text("severity")),
        **verdict_columns,
        message=f"{title} ({fields.get('action') or 'no action'})",
        finding_info={
            "uid": uid,
            "title": title,
            "types": [part for part in (fields.get("subtype"), category) if part] or None,
            "created_time": log.stamp.time,
            "analytic": kept(uid=uid, name=title, category=category, type_id=1),
        },
        file=file,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        firewall_rule=log.rule(),
        more={"is_alert": True},
        observables=ends_seen(
            source, target, user, ("file.path", A_FILE, path), ("file.hashes", A_HASH, sha)
        ),
        **common,
        unmapped=log.rest(),
    )


def _last(path: str | None) -> str | None:
    return path and (path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or path)


def _page(log: Log) -> Event:
    """A page that was asked for (THREAT, url)."""
    fields = log.fields
    common = log.common()
    allowed = _action(log)
    source, target = log.ends()
    user = log.user("srcuser")
    url = fields.text("misc")
    host = re.split(r"[/:?]", (url or "").partition("://")[2] or url or "", maxsplit=1)[0]
    method, agent = fields.text("http_method"), fields.text("user_agent")
    name = host if host and len(host) < 254 else None
    return located(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), UNKNOWN if method in (None, "unknown") else OTHER),
        log.stamp,
        severity_id=severity(fields.text("severity")),
        **firewall_disposition(allowed),
        message=f"{url or 'URL'}: {fields.get('action') or '?'}",
        http_request=kept(
            http_method=method.upper() if method and method != "unknown" else None,
            user_agent=agent,
            referrer=fields.text("referer"),
            x_forwarded_for=forwarded(fields, "xff"),
            url=kept(url_string=url, hostname=name) or None,
        )
        or None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        app_name=fields.text("app"),
        firewall_rule=log.rule(),
        observables=ends_seen(
            source,
            target,
            user,
            ("http_request.url.url_string", A_URL, url),
            ("http_request.url.hostname", A_HOST, name),
            ("http_request.user_agent", AN_AGENT, agent),
        ),
        **common,
        unmapped=log.rest(),
    )


def decryption(log: Log) -> Event:
    """A TLS session that the firewall looked into (DECRYPTION)."""
    fields = log.fields
    common = log.common()
    source, target = log.ends()
    user = log.user("srcuser")
    print_ = fields.text("fingerprint")
    sni, error = fields.text("sni"), fields.text("error")
    certificate = kept(
        subject=fields.text("cn"),
        issuer=fields.text("issuer_cn"),
        serial_number=fields.text("cert_serial"),
        fingerprints=[{"algorithm": "SHA-256", "value": print_}] if print_ else None,
    )
    allowed = _action(log)
    tls = kept(
        version=fields.text("tls_version"),
        cipher=fields.text("tls_enc"),
        sni=sni,
        certificate=certificate or None,
    )
    return located(
        NETWORK,
        REFUSE if allowed is False else TRAFFIC,
        log.stamp,
        **firewall_disposition(allowed),
        status_detail=error,
        message=f"TLS session for {sni or certificate.get('subject') or '?'}"
        + (f": {error}" if error else ""),
        tls=tls or None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        app_name=fields.text("app"),
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, user, ("tls.sni", A_HOST, sni)),
        **common,
        unmapped=log.rest(),
    )


def globalprotect(log: Log) -> Event:
    """A step of a VPN client: a login, a tunnel, what it was configured with."""
    fields = log.fields
    common = log.common()
    what, status = fields.text("eventid") or "unknown", fields.text("status")
    user = log.user("srcuser")
    public = [fields.get(name) for name in ("public_ip", "public_ipv6")]
    # The client comes by one of the two families; the other column holds zeros.
    position = next(
        (n for n, candidate in enumerate(public) if candidate not in ("0.0.0.0", "::", "", None)), 0
    )
    source = endpoint(
        ip=fields.ip(("public_ip", "public_ipv6")[position]),
        hostname=fields.text("machinename"),
        country=_country(fields, "srcregion"),
    )
    outcome = {"success": SUCCESS, "failure": FAILURE}.get((status or "").lower(), UNKNOWN)
    # `portal-auth` and `gateway-auth`.
    if what.endswith("-auth"):
        uid, activity = AUTHENTICATION, 1
    else:
        uid = TUNNEL
        activity = {"gateway-connected": 1, "gateway-logout": 2, "gateway-tunnel-down": 2}.get(
            what, OTHER
        )
    if uid == TUNNEL and source is None:
        uid, activity = BASE, UNKNOWN
    return located(
        uid,
        activity,
        log.stamp,
        activity_name=what if activity == OTHER else None,
        status_id=outcome,
        status_detail=fields.text("reason", "error"),
        status_code=fields.text("error_code"),
        message=f"GlobalProtect {what}: {fields.get('opaque') or status or ''}".rstrip(": "),
        user=user or ({"name": "unknown"} if uid == AUTHENTICATION else None),
        src_endpoint=source,
        service={"name": "GlobalProtect"} if uid == AUTHENTICATION else None,
        app_name=None if uid == AUTHENTICATION else "GlobalProtect",
        auth_protocol=fields.text("auth_method") if uid == AUTHENTICATION else None,
        is_remote=True if uid == AUTHENTICATION else None,
        observables=ends_seen(source, None, user, where="user"),
        **common,
        unmapped=log.rest(),
    )
