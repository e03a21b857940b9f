"""What Suricata's EVE logs of one protocol each mean; `suricata` reads what all have in common.

https://docs.suricata.io/en/latest/output/eve/eve-json-format.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_MAIL,
    AUTHENTICATION,
    DHCP,
    DNS,
    EMAIL,
    FAILURE,
    FTP,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    RDP,
    SMB,
    SSH,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.dhcp import dhcp_event as dhcp
from ingest.sources.shared.firewall import Fields, endpoint, ends_seen, located
from ingest.sources.suricata.common import (
    Entry,
    http_seen,
    read_dns,
    read_file,
    read_http,
    read_tls,
    strings,
    taken,
)

_QUERY, _RESPONSE, _TRAFFIC = 1, 2, 6


# -- types -------------------------------------------------------------------------------------


def _dns(entry: Entry) -> Event:
    """A question or its answer."""
    kind = entry.detail.text("type")
    columns = read_dns(entry.detail)
    # Only an answer has a code: a question neither failed nor succeeded.
    rcode = columns.get("rcode_id")
    answered = kind in ("answer", "response")
    name = (columns.get("query") or {}).get("hostname")
    return located(
        DNS,
        _RESPONSE if answered else _QUERY if kind in ("query", "request") else _TRAFFIC,
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


def _http(entry: Entry) -> Event:
    """A request and its response."""
    columns = read_http(entry.detail)
    request = columns.get("http_request") or {}
    method, status = request.get("http_method"), (columns.get("http_response") or {}).get("code")
    url = (request.get("url") or {}).get("url_string")
    return located(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
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


def _tls(entry: Entry) -> Event:
    """A TLS handshake."""
    columns = read_tls(entry.detail, entry.context)
    sni = columns.get("sni")
    return located(
        NETWORK,
        _TRAFFIC,
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


def _ssh(entry: Entry) -> Event:
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
    return located(
        SSH,
        _TRAFFIC,
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


def _smtp(entry: Entry) -> Event:
    """A mail on its way."""
    mail, envelope = entry.fields.child("email"), entry.detail
    sender, targets = mail.text("from"), taken(mail, "to")
    from_ = envelope.text("mail_from")
    to = taken(envelope, "rcpt_to")
    subject = mail.text("subject")
    columns = kept(
        to=[_bare(mailbox) for mailbox in to or targets or ()] or None,
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
    if not columns:
        # A session that was left before a mail, such as one that only tried names.
        return located(
            NETWORK,
            _TRAFFIC,
            entry.stamp,
            message=f"SMTP session of {entry.ends()}",
            app_name="smtp",
            connection_info=entry.connection(),
            observables=entry.seen(),
            **entry.common(),
            unmapped=entry.rest(),
        )
    hello = envelope.text("helo")
    mail_from = columns.get("from")
    return located(
        EMAIL,
        1,
        entry.stamp,
        message=f"Mail from {mail_from or '?'}: {subject or ''}".rstrip(": "),
        email=columns or None,
        more={"direction_id": 0} | kept(smtp_hello=hello, protocol_name="smtp"),
        observables=entry.seen(
            ("email.from", A_MAIL, mail_from),
            *(("email.to", A_MAIL, mailbox) for mailbox in to or ()),
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
    # The last brackets: the name before them is the sender's own text.
    start, end = mail.rfind("<"), mail.rfind(">")
    return mail[start + 1 : end] if 0 <= start < end - 1 else mail


FTP_ACTIVITIES: Mapping[str, int] = MappingProxyType(
    {
        "STOR": 1,
        "STOU": 1,
        "APPE": 1,
        "RETR": 2,
        "DELE": 4,
        "RNFR": 5,
        "RNTO": 5,
        "LIST": 6,
        "NLST": 6,
        "MLSD": 6,
        "MLST": 6,
    }
)


def _ftp(entry: Entry) -> Event:
    """A command and its reply, or the data it moved."""
    detail = entry.detail
    command = detail.text("command")
    argument = detail.get("command_data")
    user = None
    name = detail.text("filename")
    if type(argument) is str and argument:
        if command == "USER":
            user = {"name": detail.pop("command_data")}
        # The argument of a listing may be options instead of a path.
        elif name is None and command in FTP_ACTIVITIES and command not in ("LIST", "NLST"):
            name = detail.pop("command_data")
    # One command may get several replies, such as 150 and 226; the last one is its end.
    codes = strings(detail.get("completion_code"))
    # 4xx is a transient and 5xx a permanent refusal (RFC 959, 4.2).
    failed = bool(codes) and any(code[:1] in "45" for code in codes or ())
    activity = FTP_ACTIVITIES.get(command or "", OTHER)
    return located(
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
        "FILE_SUPERSEDE": 1,
        "FILE_OPEN": 2,
        "FILE_CREATE": 3,
        "FILE_OPEN_IF": 4,
        "FILE_OVERWRITE": 5,
        "FILE_OVERWRITE_IF": 6,
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
    return located(
        SMB,
        activity,
        entry.stamp,
        activity_name=(command or "Other") if activity == OTHER else None,
        status_id=UNKNOWN
        if status is None
        # `MORE_PROCESSING_REQUIRED` is a step of every login by NTLM, and no failure.
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
    request = str(detail.get("failed_request") or message)
    # AS gives the ticket of a login, TGS one for a service.
    activity = 3 if "KRB_AS" in request else 4 if "KRB_TGS" in request else OTHER
    refused = error is not None or message == "KRB_ERROR"
    # Suricata writes `<empty>` where the message has no client name.
    user = kept(name=client if client and client != "<empty>" else None, domain=realm)
    if client and "name" not in user:
        detail["cname"] = client
    return located(
        AUTHENTICATION,
        activity,
        entry.stamp,
        activity_name=message if activity == OTHER else None,
        status_id=FAILURE if refused else SUCCESS,
        status_code=error,
        message=f"{message or 'Kerberos'} of {client or '?'} for {service or '?'}",
        user={"name": "unknown"} | user,
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
        "discover": dhcp.DISCOVER,
        "offer": dhcp.OFFER,
        "request": dhcp.REQUEST,
        "decline": dhcp.DECLINE,
        "ack": dhcp.ACK,
        "nak": dhcp.NAK,
        "nack": dhcp.NAK,
        "release": dhcp.RELEASE,
        "inform": dhcp.INFORM,
    }
)


def read_dhcp(entry: Entry) -> Event:
    """A DHCP message; the client is the source, as of every DHCP log."""
    detail = entry.detail
    kind = detail.text("dhcp_type")
    activity = DHCP_TYPES.get(kind or "", OTHER)
    reply = detail.get("type") == "reply"
    # What the server gives counts before what the client has or asks for.
    given = [detail.get(name) for name in ("assigned_ip", "client_ip", "requested_ip")]
    ips = [address for address in given if type(address) is str and address != "0.0.0.0"]
    client = Fields(ip=ips[0] if ips else None)
    client_ip = client.ip("ip")
    server = entry.source if reply else entry.target
    ends = {"proto": entry.protocol}
    mac, hostname = detail.mac("client_mac"), detail.text("hostname")
    relay = detail.get("relay_ip")
    number = detail.number("id")
    # Only a grant leases anything; in an offer the same field is a promise.
    lease = detail.number("lease_time") if activity == dhcp.ACK else None
    source = endpoint(ip=client_ip, mac=mac, hostname=hostname)
    # A client without an address speaks to everybody, which names no server.
    target = server if (server or {}).get("ip") != "255.255.255.255" else None
    entry.fields |= {
        f"{name}_{leaf}": value
        for name, end in (("src", entry.source), ("dest", entry.target))
        for leaf, value in (end or {}).items()
        if leaf in ("ip", "port")
    } | kept(**ends)
    entry.source, entry.target = source, target
    return located(
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
        "initial_request": 1,
        "initial_response": 2,
        "connect_request": 3,
        "connect_response": 4,
        "tls_handshake": 5,
    }
)


def _rdp(entry: Entry) -> Event:
    """A step of an RDP connection; the cookie tells the user that the client will ask for."""
    kind = entry.detail.text("event_type")
    activity = RDP_ACTIVITIES.get(kind or "", _TRAFFIC)
    # The client sends `mstshash=NAME` in the clear, so it is a claim and no proven user.
    cookie = entry.detail.text("cookie")
    return located(
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
    uid, activity = NETWORK, _TRAFFIC
    if spoken.startswith("http"):
        request = entry.fields.child("http")
        columns = read_http(request)
        method = (columns.get("http_request") or {}).get("http_method")
        uid, activity = HTTP, HTTP_METHODS.get(method or "", OTHER if method else UNKNOWN)
        entry.fields.keep("http", request.left())
    elif spoken.startswith("smb"):
        uid, activity = SMB, OTHER
    elif spoken.startswith("ftp"):
        uid, activity = FTP, OTHER
    state = entry.detail.text("state")
    hashes = [hash_value["value"] for hash_value in file.get("hashes", ())]
    return located(
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
            *(("file.hashes", A_HASH, hash_value) for hash_value in hashes),
            *http_seen(columns),
        ),
        **columns,
        **entry.common(),
        unmapped=entry.rest(),
    )


READERS: Mapping[str, Callable[[Entry], Event]] = MappingProxyType(
    {
        "dns": _dns,
        "mdns": _dns,
        "http": _http,
        "http2": _http,
        "tls": _tls,
        "ssh": _ssh,
        "smtp": _smtp,
        "ftp": _ftp,
        "ftp_data": _ftp,
        "smb": smb,
        "krb5": krb5,
        "rdp": _rdp,
        "dhcp": read_dhcp,
        "fileinfo": fileinfo,
    }
)
