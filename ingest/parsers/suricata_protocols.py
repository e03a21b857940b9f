"""What Suricata's EVE logs of one protocol each mean; `suricata` reads what all have in common.

https://docs.suricata.io/en/latest/output/eve/eve-json-format.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest import dhcp
from ingest.firewall import Fields, code, connection, ends_seen, endpoint
from ingest.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_MAIL,
    A_URL,
    AN_AGENT,
    AUTHENTICATION,
    DHCP,
    DNS,
    EMAIL,
    FAILURE,
    FTP,
    HTTP,
    NETWORK,
    OTHER,
    RDP,
    SMB,
    SSH,
    SUCCESS,
    UNKNOWN,
    device,
    event,
    kept,
    metadata,
    unmapped,
)
from ingest.source import Context, Event
from ingest.strict import encode
from ingest.time import EPOCH, Stamp, stamp_iso

PRODUCT: Mapping[str, str] = {"name": "Suricata", "vendor_name": "OISF"}
QUERY, RESPONSE, TRAFFIC = 1, 2, 6
UTC = ZoneInfo("UTC")
METHODS: Mapping[str, int] = MappingProxyType(
    {
        **{"CONNECT": 1, "DELETE": 2, "GET": 3, "HEAD": 4, "OPTIONS": 5},
        **{"POST": 6, "PUT": 7, "TRACE": 8, "PATCH": 9},
    }
)
RCODES: Mapping[str, int] = MappingProxyType(
    {
        name: number
        for number, name in enumerate(
            "NOERROR FORMERR SERVFAIL NXDOMAIN NOTIMP REFUSED YXDOMAIN YXRRSET NXRRSET NOTAUTH "
            "NOTZONE".split()
        )
    }
)


@dataclass(slots=True)
class Entry:
    """What every EVE event has; `fields` is what has not been used yet, `detail` its own object."""

    kind: str
    fields: Fields
    detail: Fields
    stamp: Stamp
    context: Context
    source: dict[str, Any] | None
    target: dict[str, Any] | None
    protocol: str | None
    sensor: str | None
    flow_id: str | None
    links: dict[str, Any] = field(default_factory=dict)

    def common(self, **about: str | None) -> dict[str, Any]:
        """The columns that all types fill alike."""
        return {
            "metadata": metadata(
                PRODUCT, self.stamp, log_name=self.kind, correlation_uid=self.flow_id, **about
            ),
            "src_endpoint": self.source,
            "dst_endpoint": self.target,
            "device": device(self.sensor),
        }

    def connection(self) -> dict[str, Any] | None:
        """The connection."""
        ip = (self.source or {}).get("ip")
        return connection(self.protocol, ip, uid=self.flow_id, **self.links)

    def rest(self) -> str | None:
        """What found no column, what is left of the type's own object under its name."""
        self.fields.keep(self.kind, self.detail.left())
        return unmapped(self.fields.left())

    def seen(self, *more: tuple[str, int, Any]) -> list[dict[str, Any]] | None:
        """The observables: both ends and `more`."""
        return ends_seen(self.source, self.target, None, *more)

    def ends(self) -> str:
        """Both ends, for a message."""
        source, target = self.source or {}, self.target or {}
        return f"{source.get('ip', '?')} to {target.get('ip', '?')}"


def strings(value: object) -> list[str] | None:
    """A list of nothing but text, or text as a list of one; None for all else."""
    if type(value) is str and value:
        return [value]
    if type(value) is list and value and all(type(one) is str for one in value):
        return value
    return None


def taken(fields: Fields, name: str) -> list[str] | None:
    """Take the strings `name`, where they are nothing else."""
    found = strings(fields.get(name))
    if found is not None:
        del fields[name]
    return found


# -- parts that alerts carry too ---------------------------------------------------------------


def read_http(fields: Fields) -> dict[str, Any]:
    """The columns of an `http` object."""
    method, host = fields.text("http_method"), fields.text("hostname")
    uri, status = fields.text("url"), fields.number("status", most=999)
    request = kept(
        http_method=method,
        version=fields.text("protocol"),
        user_agent=fields.text("http_user_agent"),
        referrer=fields.text("http_refer"),
        url=_url(host, uri, fields.port("http_port")),
        x_forwarded_for=taken(fields, "xff"),
    )
    response = None
    if status is not None:
        response = kept(
            code=status,
            content_type=fields.text("http_content_type"),
            length=fields.number("length"),
        )
    return kept(http_request=request or None, http_response=response)


def _url(host: str | None, uri: str | None, port: int | None) -> dict[str, Any] | None:
    if host is None and uri is None:
        return None
    scheme, between, _ = (uri or "").partition("://")
    whole = bool(between) and scheme.isalpha()
    path, _, query = ("" if whole else uri or "").partition("?")
    return kept(
        url_string=uri if whole or not host else f"http://{host}{uri or '/'}",
        hostname=host,
        path=path or None,
        query_string=query or None,
        port=port,
        scheme=scheme.lower() if whole else "http",
    )


def http_seen(columns: Mapping[str, Any]) -> tuple[tuple[str, int, Any], ...]:
    """The observables of a request."""
    request = columns.get("http_request") or {}
    url = request.get("url") or {}
    return (
        ("http_request.url.hostname", A_HOST, url.get("hostname")),
        ("http_request.url.url_string", A_URL, url.get("url_string")),
        ("http_request.user_agent", AN_AGENT, request.get("user_agent")),
    )


def read_tls(fields: Fields, context: Context) -> dict[str, Any]:
    """The columns of a `tls` object."""
    prints = fields.text("fingerprint")
    received_at = context.record.received_at
    subject = fields.text("subject")
    times = {}
    for name, key in (("created_time", "notbefore"), ("expiration_time", "notafter")):
        stamp = stamp_iso(str(fields.get(key)), UTC, received_at)
        if stamp.quality != "received":
            fields.pop(key)
            times[name] = stamp.time
    certificate = kept(
        subject=subject,
        issuer=fields.text("issuerdn"),
        serial_number=fields.text("serial"),
        fingerprints=[{"algorithm": "SHA-1", "value": prints}] if prints else None,
        **times,
    )
    hashes = {}
    for name in ("ja3", "ja3s"):
        inner = fields.child(name)
        hashes[f"{name}_hash"] = inner.text("hash")
        fields.keep(name, inner.left())
    return kept(
        version=fields.text("version"),
        sni=fields.text("sni"),
        certificate=certificate or None,
        **hashes,
    )


def read_file(fields: Fields) -> dict[str, Any]:
    """The file of a `fileinfo` object."""
    hashes = [
        {"algorithm": name, "value": value}
        for name, key in (("MD5", "md5"), ("SHA-1", "sha1"), ("SHA-256", "sha256"))
        if (value := fields.text(key))
    ]
    path = fields.text("filename")
    return kept(
        path=path,
        name=path and (path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or path),
        size=fields.number("size"),
        hashes=hashes or None,
    )


def read_dns(fields: Fields) -> dict[str, Any]:
    """The columns of a `dns` object, in any of its three versions."""
    queries = fields.get("queries", fields.get("query"))
    asked = Fields()
    if type(queries) is list and len(queries) == 1 and type(queries[0]) is dict:
        asked = Fields(queries[0])
        name = "queries" if "queries" in fields else "query"
        del fields[name]
    question = {
        "hostname": asked.text("rrname") or fields.text("rrname"),
        "type": asked.text("rrtype") or fields.text("rrtype"),
    }
    fields.keep("query", asked.left())
    rcode = fields.text("rcode")
    number = RCODES.get(rcode or "")
    if rcode and number is None:
        number = code(int(rcode)) if rcode.isdecimal() and len(rcode) < 6 else OTHER
    return kept(
        query=question if question["hostname"] is not None else None,
        answers=_answers(fields, question["type"]),
        rcode=rcode,
        rcode_id=number,
    )


def _answers(fields: Fields, kind: str | None) -> list[dict[str, Any]] | None:
    answers = fields.get("answers")
    if type(answers) is list and answers and all(type(one) is dict for one in answers):
        del fields["answers"]
        fields.pop("grouped", None)  # the same values once more, by type
        return [_answer(Fields(one)) for one in answers]
    grouped = fields.get("grouped")
    if type(grouped) is dict and all(type(values) is list for values in grouped.values()):
        del fields["grouped"]
        return [
            {"rdata": one if type(one) is str else encode(one), "type": name}
            for name, values in grouped.items()
            for one in values
        ] or None
    rdata = fields.text("rdata")  # version 1: one event an answer
    if rdata is None:
        return None
    return [kept(rdata=rdata, type=kind, ttl=fields.number("ttl", most=2**32))]


def _answer(one: Fields) -> dict[str, Any]:
    """An answer; its name, and data that are no text, stand in `rdata` as JSON."""
    kind, ttl = one.text("rrtype"), one.number("ttl", most=2**32)
    rdata = one.text("rdata")
    if rdata is None:
        data = {key: value for key, value in one.items() if key != "rrname"}
        rdata = encode(data) if data else one.text("rrname") or ""
    return kept(rdata=rdata, type=kind, ttl=ttl)


# -- types -------------------------------------------------------------------------------------


def dns(entry: Entry) -> Event:
    """A question or its answer."""
    kind = entry.detail.text("type")
    columns = read_dns(entry.detail)
    rcode = columns.get("rcode_id")
    answered = kind in ("answer", "response")
    name = (columns.get("query") or {}).get("hostname")
    return event(
        DNS,
        RESPONSE if answered else QUERY if kind in ("query", "request") else TRAFFIC,
        entry.stamp,
        status_id=UNKNOWN if rcode is None else SUCCESS if rcode == 0 else FAILURE,
        status_code=columns.get("rcode"),
        message=f"DNS {kind or 'message'} {name or ''}".rstrip(),
        connection_info=entry.connection(),
        observables=entry.seen(("query.hostname", A_HOST, name)),
        **columns,
        **entry.common(),
        unmapped=entry.rest(),
    )


def http(entry: Entry) -> Event:
    """A request and its response."""
    columns = read_http(entry.detail)
    request = columns.get("http_request") or {}
    method, status = request.get("http_method"), (columns.get("http_response") or {}).get("code")
    url = (request.get("url") or {}).get("url_string")
    return event(
        HTTP,
        METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
        entry.stamp,
        status_id=UNKNOWN if status is None else SUCCESS if status < 400 else FAILURE,
        status_code=None if status is None else str(status),
        message=f"{method or 'HTTP request'} {url or entry.ends()}",
        connection_info=entry.connection(),
        app_name="http",
        observables=entry.seen(*http_seen(columns)),
        **columns,
        **entry.common(),
        unmapped=entry.rest(),
    )


def tls(entry: Entry) -> Event:
    """A TLS handshake."""
    columns = read_tls(entry.detail, entry.context)
    sni = columns.get("sni")
    return event(
        NETWORK,
        TRAFFIC,
        entry.stamp,
        status_id=SUCCESS,
        message=f"TLS handshake of {entry.ends()}" + (f" for {sni}" if sni else ""),
        app_name="tls",
        tls=columns or None,
        connection_info=entry.connection(),
        observables=entry.seen(("tls.sni", A_HOST, sni)),
        **entry.common(),
        unmapped=entry.rest(),
    )


def ssh(entry: Entry) -> Event:
    """Banners of both ends of an SSH connection."""
    more = {}
    for name in ("client", "server"):
        end = entry.detail.child(name)
        hassh = end.child("hassh")
        value = hassh.text("hash")
        if value:
            print_ = {"algorithm": "HASSH", "algorithm_id": 20, "value": value}
            more[f"{name}_hassh"] = kept(algorithm=hassh.text("string"), fingerprint=print_)
        end.keep("hassh", hassh.left())
        entry.detail.keep(name, end.left())
    return event(
        SSH,
        TRAFFIC,
        entry.stamp,
        status_id=SUCCESS,
        message=f"SSH connection from {entry.ends()}",
        app_name="ssh",
        connection_info=entry.connection(),
        more=more,
        observables=entry.seen(),
        **entry.common(),
        unmapped=entry.rest(),
    )


def smtp(entry: Entry) -> Event:
    """A mail on its way."""
    mail, envelope = entry.fields.child("email"), entry.detail
    sender, targets = mail.text("from"), taken(mail, "to")
    from_ = envelope.text("mail_from")
    to = taken(envelope, "rcpt_to")
    subject = mail.text("subject")
    columns = kept(
        to=[_bare(one) for one in to or targets or ()] or None,
        cc=taken(mail, "cc"),
        subject=subject,
        message_uid=mail.text("message_id"),
        **{"from": _bare(from_ or sender)},
    )
    # Of header and envelope the column takes the envelope, which mail was sent by.
    if from_:
        mail.keep("from", sender)
    if to:
        mail.keep("to", targets)
    entry.fields.keep("email", mail.left())
    hello = envelope.text("helo")
    found = columns.get("from")
    return event(
        EMAIL,
        1,
        entry.stamp,
        message=f"Mail from {found or '?'}: {subject or ''}".rstrip(": "),
        email=columns or None,
        more={"direction_id": 0} | kept(smtp_hello=hello, protocol_name="smtp"),
        observables=entry.seen(
            ("email.from", A_MAIL, found), *(("email.to", A_MAIL, one) for one in to or ())
        ),
        **entry.common(),
        unmapped=_with_connection(entry),
    )


def _with_connection(entry: Entry) -> str | None:
    """The rest of a class that has no place for a connection."""
    entry.fields.keep("proto", entry.protocol)
    return entry.rest()


def _bare(mail: str | None) -> str | None:
    """`Ann <ann@x.org>` without name and brackets."""
    if not mail:
        return None
    start, end = mail.rfind("<"), mail.rfind(">")
    return mail[start + 1 : end] if 0 <= start < end - 1 else mail


FTP_ACTIVITIES: Mapping[str, int] = MappingProxyType(
    {
        **{"STOR": 1, "STOU": 1, "APPE": 1, "RETR": 2, "DELE": 4, "RNFR": 5, "RNTO": 5},
        **{"LIST": 6, "NLST": 6, "MLSD": 6, "MLST": 6},
    }
)


def ftp(entry: Entry) -> Event:
    """A command and its reply, or the data it moved."""
    detail = entry.detail
    command = detail.text("command")
    argument = detail.get("command_data")
    user = None
    name = detail.text("filename")
    if type(argument) is str and argument:
        if command == "USER":
            user = {"name": detail.pop("command_data")}
        elif name is None and command in FTP_ACTIVITIES and command not in ("LIST", "NLST"):
            name = detail.pop("command_data")
    codes = strings(detail.get("completion_code"))
    failed = bool(codes) and any(one[:1] in "45" for one in codes or ())
    activity = FTP_ACTIVITIES.get(command or "", OTHER)
    return event(
        FTP,
        activity,
        entry.stamp,
        activity_name=command if activity == OTHER else None,
        status_id=FAILURE if failed else SUCCESS if codes else UNKNOWN,
        status_code=codes[-1] if codes else None,
        message=f"FTP {command or 'traffic'} {name or ''}".rstrip(),
        command=command,
        file=kept(path=name, name=name.rsplit("/", 1)[-1] or name) if name else None,
        actor={"user": user} if user else None,
        app_name=entry.kind,
        connection_info=entry.connection(),
        observables=ends_seen(entry.source, entry.target, user, ("file.name", A_FILE, name)),
        **entry.common(),
        unmapped=entry.rest(),
    )


SMB_ACTIVITIES: Mapping[str, int] = MappingProxyType(
    {
        **{"FILE_SUPERSEDE": 1, "FILE_OPEN": 2, "FILE_CREATE": 3},
        **{"FILE_OPEN_IF": 4, "FILE_OVERWRITE": 5, "FILE_OVERWRITE_IF": 6},
    }
)


def smb(entry: Entry) -> Event:
    """An SMB command."""
    detail = entry.detail
    command, status = detail.text("command"), detail.text("status")
    name, share = detail.text("filename"), detail.text("share")
    ntlm = detail.child("ntlmssp")
    user = kept(name=ntlm.text("user"), domain=ntlm.text("domain"))
    detail.keep("ntlmssp", ntlm.left())
    activity = SMB_ACTIVITIES.get(str(detail.get("disposition")), OTHER)
    return event(
        SMB,
        activity,
        entry.stamp,
        activity_name=(command or "Other") if activity == OTHER else None,
        status_id=UNKNOWN
        if status is None
        else SUCCESS
        if status in ("STATUS_SUCCESS", "STATUS_MORE_PROCESSING_REQUIRED")
        else FAILURE,
        status_code=detail.text("status_code"),
        status_detail=status,
        message=f"{command or 'SMB'} {name or share or ''}".rstrip(),
        command=command,
        share=share,
        file=_windows_file(name),
        actor={"user": user} if user.get("name") else None,
        app_name="smb",
        more=kept(dialect=detail.text("dialect"), client_dialects=taken(detail, "client_dialects")),
        connection_info=entry.connection(),
        observables=ends_seen(entry.source, entry.target, user, ("file.name", A_FILE, name)),
        **entry.common(),
        unmapped=entry.rest(),
    )


def _windows_file(name: str | None) -> dict[str, Any] | None:
    if not name:
        return None
    return {"path": name, "name": name.replace("\\", "/").rsplit("/", 1)[-1] or name}


def krb5(entry: Entry) -> Event:
    """A Kerberos ticket asked for, and whether it was given."""
    detail = entry.detail
    message, error = detail.text("msg_type"), detail.text("error_code")
    client, realm, service = detail.text("cname"), detail.text("realm"), detail.text("sname")
    asked = str(detail.get("failed_request") or message)
    activity = 3 if "KRB_AS" in asked else 4 if "KRB_TGS" in asked else OTHER
    refused = error is not None or message == "KRB_ERROR"
    user = kept(name=client if client and client != "<empty>" else None, domain=realm)
    if client and "name" not in user:
        detail["cname"] = client
    return event(
        AUTHENTICATION,
        activity,
        entry.stamp,
        activity_name=message if activity == OTHER else None,
        status_id=FAILURE if refused else SUCCESS,
        status_code=error,
        message=f"{message or 'Kerberos'} of {client or '?'} for {service or '?'}",
        user=user or {"name": "unknown"},
        service={"name": service} if service else None,
        auth_protocol="Kerberos",
        is_remote=True,
        more={"auth_protocol_id": 2},
        observables=ends_seen(entry.source, entry.target, user, where="user"),
        **entry.common(),
        unmapped=_with_connection(entry),
    )


DHCP_TYPES: Mapping[str, int] = MappingProxyType(
    {
        **{"discover": dhcp.DISCOVER, "offer": dhcp.OFFER, "request": dhcp.REQUEST},
        **{"decline": dhcp.DECLINE, "ack": dhcp.ACK, "nak": dhcp.NAK, "nack": dhcp.NAK},
        **{"release": dhcp.RELEASE, "inform": dhcp.INFORM},
    }
)


def read_dhcp(entry: Entry) -> Event:
    """A DHCP message; the client is the source, as of every DHCP log."""
    detail = entry.detail
    kind = detail.text("dhcp_type")
    activity = DHCP_TYPES.get(kind or "", OTHER)
    reply = detail.get("type") == "reply"
    given = [detail.get(name) for name in ("assigned_ip", "client_ip", "requested_ip")]
    ips = [one for one in given if type(one) is str and one != "0.0.0.0"]
    client = Fields(ip=ips[0] if ips else None)
    client_ip = client.ip("ip")
    server = entry.source if reply else entry.target
    ends = {"proto": entry.protocol}
    mac, hostname = detail.mac("client_mac"), detail.text("hostname")
    relay = detail.get("relay_ip")
    number = detail.number("id")
    lease = detail.number("lease_time") if activity == dhcp.ACK else None
    source = endpoint(ip=client_ip, mac=mac, hostname=hostname)
    target = server if (server or {}).get("ip") != "255.255.255.255" else None
    entry.fields |= {
        f"{name}_{leaf}": value
        for name, end in (("src", entry.source), ("dest", entry.target))
        for leaf, value in (end or {}).items()
        if leaf in ("ip", "port")
    } | kept(**ends)
    entry.source, entry.target = source, target
    return event(
        DHCP,
        activity,
        entry.stamp,
        activity_name=kind if activity == OTHER else None,
        status_id=FAILURE if activity in dhcp.FAILING else SUCCESS,
        message=f"DHCP {kind or 'message'} of {mac or '?'}",
        lease_dur=lease,
        transaction_uid=None if number is None else str(number),
        relay_ip=relay if type(relay) is str and relay != "0.0.0.0" else None,
        observables=entry.seen(),
        **entry.common(),
        unmapped=entry.rest(),
    )


RDP_ACTIVITIES: Mapping[str, int] = MappingProxyType(
    {
        **{"initial_request": 1, "initial_response": 2, "connect_request": 3},
        **{"connect_response": 4, "tls_handshake": 5},
    }
)


def rdp(entry: Entry) -> Event:
    """A step of an RDP connection; the cookie tells the user that the client will ask for."""
    kind = entry.detail.text("event_type")
    activity = RDP_ACTIVITIES.get(kind or "", TRAFFIC)
    cookie = entry.detail.text("cookie")
    return event(
        RDP,
        activity,
        entry.stamp,
        message=f"RDP {(kind or 'traffic').replace('_', ' ')} from {entry.ends()}",
        app_name="rdp",
        more=kept(identifier_cookie=cookie),
        connection_info=entry.connection(),
        observables=entry.seen(),
        **entry.common(),
        unmapped=entry.rest(),
    )


def fileinfo(entry: Entry) -> Event:
    """A file seen on the wire, as an event of the protocol that carried it."""
    spoken = entry.fields.text("app_proto") or ""
    file = read_file(entry.detail)
    columns: dict[str, Any] = {}
    uid, activity = NETWORK, TRAFFIC
    if spoken.startswith("http"):
        request = entry.fields.child("http")
        columns = read_http(request)
        method = (columns.get("http_request") or {}).get("http_method")
        uid, activity = HTTP, METHODS.get(method or "", OTHER if method else UNKNOWN)
        entry.fields.keep("http", request.left())
    elif spoken.startswith("smb"):
        uid, activity = SMB, OTHER
    elif spoken.startswith("ftp"):
        uid, activity = FTP, OTHER
    state = entry.detail.text("state")
    hashes = [one["value"] for one in file.get("hashes", ())]
    return event(
        uid,
        activity,
        entry.stamp,
        status_id=SUCCESS if state == "CLOSED" else UNKNOWN,
        status_detail=state,
        message=f"File {file.get('path') or '?'} from {entry.ends()}",
        file=file or None,
        app_name=spoken or None,
        connection_info=entry.connection(),
        observables=entry.seen(
            ("file.name", A_FILE, file.get("name")),
            *(("file.hashes", A_HASH, one) for one in hashes),
            *http_seen(columns),
        ),
        **columns,
        **entry.common(),
        unmapped=entry.rest(),
    )


def seconds_between(start: Stamp, end: Stamp) -> int | None:
    """Milliseconds from one time to a later one."""
    found = round((end.time - EPOCH).total_seconds() * 1000) - round(
        (start.time - EPOCH).total_seconds() * 1000
    )
    return found if found >= 0 else None


READERS: Mapping[str, Callable[[Entry], Event]] = MappingProxyType(
    {
        **{"dns": dns, "mdns": dns, "http": http, "http2": http, "tls": tls, "ssh": ssh},
        **{"smtp": smtp, "ftp": ftp, "ftp_data": ftp, "smb": smb, "krb5": krb5, "rdp": rdp},
        **{"dhcp": read_dhcp, "fileinfo": fileinfo},
    }
)
SOURCES: tuple[()] = ()
"""None: a part of `suricata`."""
