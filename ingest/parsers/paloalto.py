"""PAN-OS, the system of Palo Alto Networks' firewalls: its logs as comma-separated values.

https://docs.paloaltonetworks.com/pan-os/11-0/pan-os-admin/monitoring/use-syslog-for-monitoring/syslog-field-descriptions
Columns stand in `paloalto_fields`. Times are the firewall's local ones; since PAN-OS 10
a column with an offset tells which zone that is. Logs that PAN-OS was told to write as
CEF or LEEF are read by `cef`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.device_header import Header, each_line, read_header
from ingest.firewall import (
    CLOSE,
    OPEN,
    REFUSE,
    TRAFFIC,
    Fields,
    connection,
    decided,
    ends_seen,
    endpoint,
    severity,
    split_user,
    traffic,
    verdict,
)
from ingest.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_URL,
    AN_AGENT,
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    HTTP,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    event,
    kept,
    metadata,
    unmapped,
)
from ingest.parsers.cef import MARK as CEF_MARK
from ingest.parsers.cef import read_cef
from ingest.parsers.paloalto_fields import layout
from ingest.parsers.suricata_protocols import METHODS
from ingest.source import Context, Event, Record, Source, Unreadable
from ingest.syslog import one_line
from ingest.time import EPOCH, Stamp, stamp_iso

PRODUCT: Mapping[str, str] = {"name": "PAN-OS", "vendor_name": "Palo Alto Networks"}
START = re.compile(
    r"(?:(?<=^)|(?<=[\s:]))\d*,(?P<received>\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d[^,]{0,20}),"
    r"(?P<serial>[^,]{0,64}),(?:(?P<old>\d+,0x[0-9a-f]+),)?(?P<type>[A-Z][A-Z0-9_-]{1,31}),",
    re.ASCII,
)
LONGEST_HEADER = 1024
COUNTRY = re.compile(r"[A-Za-z][A-Za-z .,'()-]{1,63}")
THREAT_ID = re.compile(r"(?P<name>.*)\((?P<uid>\d{1,10})\)", re.DOTALL)
OFFSET = re.compile(r"(?P<local>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?"
                    r"(?P<offset>Z|[+-]\d\d:?\d\d)", re.ASCII)
STALE = 2000
"""A year before which a high-resolution time is a placeholder for none."""
# What administrators' logins look like; the user's own words stand in quotes before the end.
LOGINS = (
    (
        re.compile(
            r"(?P<verb>authenticated|failed authentication) for user '(?P<user>.*)'\."
            r"(?P<rest>.*?)[,.]? *From: (?P<ip>[0-9a-fA-F:.]+?)\.?"
        ),
        1,
    ),
    (
        re.compile(
            r"User (?P<user>.*) (?P<verb>logged in|logged out|failed to log ?in|timed out) via "
            r"(?P<service>[\w ]+?) from (?P<ip>[0-9a-fA-F:.]+?)(?: using (?P<rest>[\w ./-]*))?\.?"
        ),
        1,
    ),
)


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
        shown = kept(hostname=name or self.header.host, uid=serial)
        if name and self.header.host and name != self.header.host:
            fields["syslog_host"] = self.header.host
        return {
            "metadata": metadata(
                PRODUCT,
                self.stamp,
                log_name=self.kind,
                event_code=fields.get("subtype"),
                uid=fields.text("seqno"),
                correlation_uid=fields.get("sessionid"),
            ),
            "device": shown | {"type_id": 0} if shown else None,
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
    return event(
        NETWORK,
        activity,
        log.stamp,
        **decided(allowed),
        status_detail=reason,
        message=f"Session {subtype or 'traffic'} from {ends}: {fields.get('action') or '?'}",
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        traffic=traffic(
            *numbers, total=fields.number("bytes"), packets=fields.number("packets")
        ),
        app_name=spoken,
        firewall_rule=rule,
        start_time=began,
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
    far = datetime.max.replace(tzinfo=UTC)
    one, other = (
        stamp_iso(text.replace("/", "-"), ZoneInfo("UTC"), far) for text in (value, generated)
    )
    if "received" in (one.quality, other.quality):
        return None
    try:
        found = stamp.time.replace(microsecond=0) + (one.time - other.time)
    except OverflowError:
        return None
    del fields[name]
    return found if found >= EPOCH else None


def threat(log: Log) -> Event:
    """What a security profile found; a page that was asked for, if of URL filtering."""
    if log.fields.get("subtype") == "url":
        return page(log)
    fields = log.fields
    common = log.common()
    allowed = _action(log)
    source, target = log.ends()
    user = log.user("srcuser")
    spelled = fields.text("threatid") or ""
    match = THREAT_ID.fullmatch(spelled)
    title = (match["name"].strip() if match else spelled) or f"{fields.get('subtype')}"
    uid = match["uid"] if match else spelled or "unknown"
    category = fields.text("thr_category") or fields.text("category")
    path, sha = fields.text("misc"), fields.text("filedigest")
    of_file = fields.get("subtype") in ("virus", "wildfire", "wildfire-virus", "file", "data")
    if path and not of_file:
        fields["misc"], path = path, None
    hashes = [{"algorithm": "SHA-256" if len(sha) == 64 else "MD5", "value": sha}] if sha else None
    file = kept(path=path, hashes=hashes, name=_last(path)) if path or sha else None
    verdict_columns = {k: v for k, v in decided(allowed).items() if k != "status_id"}
    return event(
        FINDING,
        1,
        log.stamp,
        severity_id=severity(fields.text("severity")),
        **verdict_columns,
        message=f"{title} ({fields.get('action') or 'no action'})",
        finding_info={
            "uid": uid,
            "title": title,
            "types": [one for one in (fields.get("subtype"), category) if one] or None,
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


def page(log: Log) -> Event:
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
    return event(
        HTTP,
        METHODS.get((method or "").upper(), UNKNOWN if method in (None, "unknown") else OTHER),
        log.stamp,
        severity_id=severity(fields.text("severity")),
        **decided(allowed),
        message=f"{url or 'URL'}: {fields.get('action') or '?'}",
        http_request=kept(
            http_method=method.upper() if method and method != "unknown" else None,
            user_agent=agent,
            referrer=fields.text("referer"),
            x_forwarded_for=[xff] if (xff := fields.text("xff")) else None,
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
    return event(
        NETWORK,
        REFUSE if allowed is False else TRAFFIC,
        log.stamp,
        **decided(allowed),
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
    at = next((n for n, one in enumerate(public) if one not in ("0.0.0.0", "::", "", None)), 0)
    source = endpoint(
        ip=fields.ip(("public_ip", "public_ipv6")[at]),
        hostname=fields.text("machinename"),
        country=_country(fields, "srcregion"),
    )
    outcome = {"success": SUCCESS, "failure": FAILURE}.get((status or "").lower(), UNKNOWN)
    if what.endswith("-auth"):
        uid, activity = AUTHENTICATION, 1
    else:
        uid = TUNNEL
        activity = {"gateway-connected": 1, "gateway-logout": 2, "gateway-tunnel-down": 2}.get(
            what, OTHER
        )
    if uid == TUNNEL and source is None:
        uid, activity = BASE, UNKNOWN
    return event(
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


def login(log: Log) -> Event:
    """Who is behind an address (USERID), or was asked who they are (AUTHENTICATION)."""
    fields = log.fields
    common = log.common()
    user = log.user("user", "normalize_user", "userbysource")
    source = endpoint(
        ip=fields.ip("ip"), mac=fields.mac("src_mac"), hostname=fields.text("src_host")
    )
    subtype = str(fields.get("subtype"))
    words = f"{fields.get('event', '')} {fields.get('desc', '')}".lower()
    failed = log.kind != "USERID" and re.search(r"fail|den(?:y|ied)|reject|invalid", words)
    if user is None or subtype not in ("login", "logout") and log.kind == "USERID":
        return plain(log, common, kept(user=user, src_endpoint=source))
    return event(
        AUTHENTICATION,
        2 if subtype == "logout" else 1,
        log.stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_detail=fields.text("event", "eventid"),
        message=f"{log.kind} {subtype} of {user['name']}",
        user=user,
        src_endpoint=source,
        service={"name": fields.text("datasourcename", "serverprofile") or "PAN-OS"},
        auth_protocol=fields.text("authproto"),
        observables=ends_seen(source, None, user, where="user"),
        **common,
        unmapped=log.rest(),
    )


def system(log: Log) -> Event:
    """What the firewall says of itself; a login of an administrator, where it is one."""
    fields = log.fields
    common = log.common()
    words = str(fields.get("opaque", "")).strip()
    level = severity(fields.text("severity"))
    for pattern, activity in LOGINS if len(words) < 4096 else ():
        match = pattern.fullmatch(words)
        if match is None:
            continue
        verb, parts = match["verb"], match.groupdict()
        away = verb in ("logged out", "timed out")
        spelled = Fields(ip=match["ip"])
        source = endpoint(ip=spelled.ip("ip"))
        user = split_user(match["user"])
        service = parts.get("service") or "PAN-OS"
        return event(
            AUTHENTICATION,
            2 if away else activity,
            log.stamp,
            severity_id=level,
            status_id=FAILURE if verb.startswith("failed") else SUCCESS,
            message=words,
            user=user or {"name": "unknown"},
            src_endpoint=source,
            service={"name": service},
            is_remote=True,
            observables=ends_seen(source, None, user, where="user"),
            **common,
            unmapped=log.rest(),
        )
    return plain(log, common | {"severity_id": level, "message": words or None})


def config(log: Log) -> Event:
    """A change of configuration."""
    fields = log.fields
    common = log.common()
    user, source = log.user("admin"), endpoint(ip=fields.ip("host"))
    command, path = fields.text("cmd"), fields.text("path")
    result, client = fields.text("result"), fields.text("client")
    activity = {"delete": 4, "add": 1, "clone": 1, "set": 3, "edit": 3, "commit": 3}.get(
        (command or "").lower(), OTHER
    )
    return event(
        API,
        activity,
        log.stamp,
        activity_name=(command or "Other") if activity == OTHER else None,
        status_id=SUCCESS if result in ("Succeeded", "Submitted") else FAILURE,
        status_detail=result,
        message=f"{command or 'change'} {(path or '').strip()}".strip(),
        actor={"user": user or {"name": "unknown"}},
        src_endpoint=source or {"name": client or "unknown"},
        api={"operation": command or "unknown", "service": {"name": client} if client else None},
        resources=[{"name": path.strip()}] if path else None,
        observables=ends_seen(source, None, user),
        **common,
        unmapped=log.rest(),
    )


def plain(
    log: Log, common: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None
) -> Event:
    """A log of another type, as it stands."""
    columns = {"message": f"{log.kind} {log.fields.get('subtype', '')}".strip()}
    return event(
        BASE,
        UNKNOWN,
        log.stamp,
        **{**columns, **(common or log.common()), **(more or {})},
        unmapped=log.rest(),
    )


def hip(log: Log) -> Event:
    """A client's state matched a profile (HIPMATCH)."""
    fields = log.fields
    source = endpoint(
        ip=fields.ip("src"), hostname=fields.text("machinename"), mac=fields.mac("src_mac")
    )
    user = log.user("srcuser")
    words = f"Host information matched {fields.get('matchname') or '?'}"
    return plain(log, log.common() | {"message": words}, kept(src_endpoint=source, user=user))


READERS: Mapping[str, Callable[[Log], Event]] = MappingProxyType(
    {
        **{"TRAFFIC": session, "THREAT": threat, "DECRYPTION": decryption, "SYSTEM": system},
        **{"GLOBALPROTECT": globalprotect, "USERID": login, "AUTHENTICATION": login},
        **{"CONFIG": config, "HIPMATCH": hip, "HIP-MATCH": hip, "URL": threat},
    }
)


# -- lines -------------------------------------------------------------------------------------


def _fields(text: str, start: re.Match[str]) -> Fields:
    body = text[start.start() :]
    try:
        (row,) = csv.reader([body.replace("\r", " ").replace("\n", " ")])
    except (csv.Error, ValueError) as why:
        raise Unreadable(f"not comma-separated values: {why}") from None
    if start["old"]:
        # PAN-OS 9.1 first wrote GLOBALPROTECT with two columns before its type.
        row = [*row[:3], *row[5:], *row[3:5]]
    names = layout(start["type"])
    fields = Fields()
    for at, value in enumerate(row):
        name = names[at] if at < len(names) else f"column_{at + 1}"
        if name == "_":
            name = f"column_{at + 1}" if value.strip() not in ("", "0", "1") else "_"
        if name != "_" and value.strip():
            fields[name] = value
    return fields


def _stamp(fields: Fields, header: Header, context: Context) -> Stamp:
    """When the log was made: exact where a column tells the offset of the firewall's clock."""
    received_at = context.record.received_at
    host = fields.get("device_name") or header.host
    zone = context.zone(host if type(host) is str else None)
    spelled = fields.get("time_generated") or fields.get("receive_time")
    text = spelled.replace("/", "-") if type(spelled) is str else None
    precise = OFFSET.fullmatch(str(fields.get("high_res_timestamp", "")))
    if precise is None or int(precise["local"][:4]) < STALE or text is None:
        return stamp_iso(text, zone, received_at)
    if text.replace(" ", "T") == precise["local"]:
        return stamp_iso(precise[0], zone, received_at)
    return stamp_iso(text.replace(" ", "T") + precise["offset"], zone, received_at)


class PaloAlto(Source):
    """PAN-OS's logs."""

    name = "paloalto"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [self.read_text(text, context)])

    def read_text(self, text: str, context: Context) -> Event:
        """The event of one line."""
        start = START.search(text, 0, LONGEST_HEADER)
        if start is None:
            if CEF_MARK.search(text, 0, LONGEST_HEADER):
                return read_cef(text, context)
            raise Unreadable(f"no receive time, serial and type between commas in '{text[:60]}'")
        header = read_header(text[: start.start()], context)
        fields = _fields(text, start)
        stamp = _stamp(fields, header, context)
        log = Log(start["type"], fields, stamp, header)
        fields.pop("type", None)
        return READERS.get(log.kind, plain)(log)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        start = START.search(text, 0, LONGEST_HEADER)
        if start is None:
            raise Unreadable("no receive time, serial and type between commas")
        local = when.astimezone(zone)
        pattern = re.compile(r"\d{4}(?P<dash>[/-])\d\d[/-]\d\d(?P<sep>[ T])\d\d:\d\d:\d\d")
        pieces = text[start.start() :].split(",", 7)
        for at in (1, 6):
            if at < len(pieces):
                pieces[at] = pattern.sub(
                    lambda m: f"{local:%Y}{m['dash']}{local:%m}{m['dash']}{local:%d}{m['sep']}"
                    f"{local:%H:%M:%S}",
                    pieces[at],
                )
        return (text[: start.start()] + ",".join(pieces)).encode() + raw[len(text.encode()) :]


SOURCES = (PaloAlto(),)
