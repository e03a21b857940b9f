"""Zeek's logs of protocols: ssl, dhcp, dce_rpc, smtp, tunnel, ntp, syslog, and any other.

https://docs.zeek.org/en/master/script-reference/log-files.html .
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_FINGERPRINT,
    A_HOST,
    A_MAIL,
    A_USER,
    BASE,
    EMAIL,
    FAILURE,
    FATAL,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    NETWORK,
    NTP,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    device,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
)
from ingest.sources.zeek.access import status_of
from ingest.sources.zeek.files import fingerprint
from ingest.sources.zeek.row import PRODUCT, Row, span_of

_OPEN, _CLOSE, _FAIL, _TRAFFIC = 1, 2, 4, 6


# -- TLS ---------------------------------------------------------------------------------------


def ssl(row: Row) -> Event:
    """A TLS handshake. With a complete one the connection is open, with an alert it failed."""
    name, alert = row.text("server_name"), row.text("last_alert")
    established = row.flag("established")
    version, ja3, ja3s = row.text("version"), row.text("ja3"), row.text("ja3s")
    if established:
        activity, status = _OPEN, SUCCESS
    else:
        # Without an alert Zeek may only have missed the end of the handshake.
        activity, status = (_FAIL, FAILURE) if alert else (_TRAFFIC, UNKNOWN)
        if established is False:
            row.fields["established"] = False  # the status does not say it
    certificate = _certificate(row)
    tls = {
        "version": version,
        "cipher": row.text("cipher"),
        "sni": name,
        "ja3_hash": ja3,
        "ja3s_hash": ja3s,
        "certificate": certificate or None,
    }
    return row.event(
        NETWORK,
        activity,
        status_id=status,
        status_code=alert,
        status_detail=row.text("validation_status"),
        protocol=row.text("proto") or "tcp",
        app_name="ssl",
        tls=tls if any(tls.values()) else None,
        more=kept(ja4_fingerprint_list=_ja4(row)),
        seen=(
            ("tls.sni", A_HOST, name),
            ("tls.ja3_hash", A_FINGERPRINT, ja3),
            ("tls.ja3s_hash", A_FINGERPRINT, ja3s),
            *(
                ("tls.certificate.fingerprints", A_FINGERPRINT, each["value"])
                for each in certificate.get("fingerprints", [])
            ),
        ),
    )


def _certificate(row: Row) -> dict[str, Any]:
    """The server's certificate; of its chain the first print is its own."""
    prints = row.fields.get("cert_chain_fps")
    results: list[str] = []
    if type(prints) is list and len(prints) == 1 and type(prints[0]) is str:
        results = row.texts("cert_chain_fps")
    elif type(prints) is list and prints and type(prints[0]) is str:
        results = [prints[0]]  # the chain stays, for the others in it
    results += [part for part in (row.text("resp_certificate_sha1"), row.text("cert_hash")) if part]
    return kept(
        subject=row.text("subject"),
        issuer=row.text("issuer"),
        fingerprints=[fingerprint(part) for part in results] or None,
    )


def _ja4(row: Row) -> list[dict[str, Any]] | None:
    kinds = (("ja4", 1, "JA4"), ("ja4s", 2, "JA4Server"))
    return [
        {"type_id": number, "type": name, "value": value}
        for key, number, name in kinds
        if (value := row.text(key)) is not None
    ] or None


# -- DHCP --------------------------------------------------------------------------------------

MESSAGES = MappingProxyType(
    {
        "DISCOVER": DISCOVER,
        "OFFER": OFFER,
        "REQUEST": REQUEST,
        "DECLINE": DECLINE,
        "ACK": ACK,
        "NAK": NAK,
        "RELEASE": RELEASE,
        "INFORM": INFORM,
    }
)


# A client without a lease speaks from no address, and to everybody.
_NOBODY = ("0.0.0.0", "255.255.255.255", "::")


def dhcp(row: Row) -> Event:
    """A conversation of a client and a server, named after how it ended.

    An ACK to an INFORM grants no address: that conversation is an INFORM. Before Zeek
    2.6 the log had but the ACKs, and one row each.
    """
    msg_types = row.fields.get("msg_types")
    messages = (
        [msg_type for msg_type in msg_types if type(msg_type) is str]
        if type(msg_types) is list
        else []
    )
    old = "assigned_ip" in row.fields
    activity = _ending(messages, old or row.fields.get("assigned_addr") is not None)
    addresses = _held(row, "client_addr"), _held(row, "requested_addr")
    assigned = row.ip("assigned_addr") or row.ip("assigned_ip")
    # Only a grant or an offer says which address it will be; before, it is what was asked for.
    ip = assigned if activity in (ACK, OFFER) else addresses[1] or addresses[0]
    # Nothing is lost: the addresses that the client does not have stay in their fields.
    for key, value in (("client_addr", addresses[0]), ("requested_addr", addresses[1])):
        if value is not None and value != ip:
            row.fields[key] = value
    if assigned is not None and assigned != ip:
        row.fields["assigned_addr"] = assigned
    if ip is None and row.src.get("ip") not in (None, *_NOBODY):
        ip = row.src["ip"]
    name = row.text("host_name") or row.text("client_fqdn")
    lease = row.span("lease_time")
    if lease is not None and activity != ACK:
        row.fields["lease_time"] = lease
    return _dhcp_event(row, activity, ip, name, lease)


def _dhcp_event(
    row: Row, activity: int, ip: str | None, name: str | None, lease: float | None
) -> Event:
    uids = row.fields.get("uids")
    if row.uid is None and type(uids) is list and len(uids) == 1:
        row.uid = next(iter(row.texts("uids")), None)
    refused = row.text("server_message") if activity == NAK else None
    server = row.ip("server_addr") or _unicast(row.dst.get("ip"))
    number = row.count("trans_id")
    mac, seconds = row.mac("mac"), row.span("duration")
    if not any((ip, mac, name, server)):
        if number is not None:
            row.fields["trans_id"] = number
        return row.event(BASE, 0, message="DHCP without an address", seconds=seconds)
    for key, end, used in (("orig", row.src, ip), ("resp", row.dst, server)):
        if end and end["ip"] != used:
            row.fields[f"id.{key}_h"] = end["ip"]
    event = dhcp_event(
        activity,
        row.context,
        row.stamp,
        PRODUCT,
        ip=ip,
        mac=mac,
        hostname=name,
        server_ip=server,
        lease_seconds=None if lease is None else int(lease),
        refused=refused,
        rest=row.rest(),
        fields={"log_name": row.log, "correlation_uid": row.uid},
        transaction_uid=None if number is None else str(number),
        **span_of(row.stamp, seconds),
    )
    for name_of, end in (("src_endpoint", row.src), ("dst_endpoint", row.dst)):
        if end.get("port") is not None and event[name_of]:
            event[name_of]["port"] = end["port"]
    # Who saw it is Zeek's sensor, which is not the server.
    return event | {"device": device(row.sensor)}


def _unicast(ip: str | None) -> str | None:
    return None if ip in _NOBODY else ip


def _held(row: Row, key: str) -> str | None:
    return None if row.fields.get(key) in _NOBODY else row.ip(key)


def _ending(messages: list[str], assigned: bool) -> int:
    activities = [MESSAGES[message] for message in messages if message in MESSAGES]
    if not activities:
        return ACK if assigned else UNKNOWN
    if activities[-1] == ACK and INFORM in activities and REQUEST not in activities:
        return INFORM
    return activities[-1]


# -- mail --------------------------------------------------------------------------------------

_SEND = 1
# OCSF's form of an address; Zeek's fields may hold `Name <address>`, or anything.
_ADDRESS = re.compile(
    r"[a-zA-Z0-9!#$%&'*+,./:;<=>?^_`{|}~-]{1,64}@[a-zA-Z0-9-]{1,63}\.[a-zA-Z0-9.-]{1,190}"
)
BRACKETS = re.compile(r"[^<>]*<([^<>]+)>\s*")


def mail_address(text: str) -> str | None:
    """The address in `a@b.c` or `Name <a@b.c>`; None if there is not exactly one."""
    match = BRACKETS.fullmatch(text)
    bare = (match[1] if match else text).strip()
    return bare if _ADDRESS.fullmatch(bare) else None


def smtp(row: Row) -> Event:
    """A mail on its way. What the envelope says is whom it went to, the header may lie.

    A session that gave no address, such as one that went on in TLS, is traffic.
    """
    reply = row.text("last_reply")
    code = reply[:3] if reply and reply[:3].isdecimal() and reply[:3].isascii() else None
    status = UNKNOWN if code is None else SUCCESS if code < "400" else FAILURE
    envelope = _address(row, "mailfrom")
    header = None if type(row.fields.get("from")) is not str else mail_address(row.fields["from"])
    sent = _addresses(row, "rcptto")
    named = _addresses(row, "to", whole=False)
    sender, receivers = envelope or header, sent or named
    common: dict[str, Any] = {
        "status_id": status,
        "status_code": code,
        "status_detail": reply,
    }
    if sender is None and not receivers:
        return row.event(NETWORK, _TRAFFIC, protocol="tcp", app_name="smtp", **common)
    email = {
        "from": sender,
        "to": receivers or None,
        "cc": _addresses(row, "cc") or None,
        "subject": row.text("subject"),
        "message_uid": row.text("msg_id"),
    }
    return row.event(
        EMAIL,
        _SEND,
        email=email,
        more=_mail_more(row, envelope, sent),
        seen=(
            ("email.from", A_MAIL, sender),
            *(("email.to", A_MAIL, receiver) for receiver in receivers),
        ),
        **common,
    )


def _mail_more(row: Row, envelope: str | None, sent: list[str]) -> dict[str, Any]:
    origin = row.ip("x_originating_ip")
    mailboxes = row.fields.get("to")
    whole = type(mailboxes) is list and all(type(mailbox) is str for mailbox in mailboxes)
    email = kept(
        smtp_from=envelope,
        smtp_to=sent or None,
        from_mailbox=row.text("from"),
        to_mailboxes=row.texts("to") or None if whole else None,
        x_originating_ip=None if origin is None else [origin],
    )
    return kept(
        direction_id=0, smtp_hello=row.text("helo"), protocol_name="SMTP", email=email or None
    )


def _address(row: Row, key: str) -> str | None:
    value = row.fields.get(key)
    result = mail_address(value) if type(value) is str else None
    # Taken only where nothing is lost: a name beside the address stays in the field.
    if result is not None and result == value:
        del row.fields[key]
    return result


def _addresses(row: Row, key: str, whole: bool = True) -> list[str]:
    """The addresses of a set; it stays where not all of it could be read."""
    values = row.fields.get(key)
    if type(values) is not list:
        return []
    addresses = [mail_address(value) if type(value) is str else None for value in values]
    if whole and addresses == values:
        row.texts(key)
    return [value for value in addresses if value is not None]


# -- others ------------------------------------------------------------------------------------


def dce_rpc(row: Row) -> Event:
    """A call of a Windows service by RPC."""
    endpoint, operation = row.text("endpoint"), row.text("operation")
    api = {
        "operation": operation or "unknown",
        "service": None if endpoint is None else {"name": endpoint},
    }
    return row.event(
        NETWORK,
        _TRAFFIC,
        protocol="tcp",
        app_name="dce_rpc",
        command=operation,
        api=api if operation or endpoint else None,
        seconds=row.span("rtt"),
    )


_TUNNELS = MappingProxyType(
    {"Tunnel::DISCOVER": _OPEN, "Tunnel::CLOSE": _CLOSE, "Tunnel::EXPIRE": _CLOSE}
)


def tunnel(row: Row) -> Event:
    """A tunnel that was found or ended."""
    kind, action = row.text("tunnel_type"), row.text("action")
    activity = _TUNNELS.get(action or "", OTHER if action else UNKNOWN)
    name = None if kind is None else kind.rpartition("::")[2]
    return row.event(
        TUNNEL,
        activity,
        activity_name=action if activity == OTHER else None,
        code=action,
        more=kept(
            tunnel_type=kind,
            tunnel_type_id=OTHER if kind else UNKNOWN,
            protocol_name=name,
        ),
    )


def ntp(row: Row) -> Event:
    """A message of NTP, whose modes OCSF numbers as NTP does."""
    version, mode = row.fields.get("version"), row.fields.get("mode")
    # OCSF's NTP needs a version and an end.
    if type(version) is not int or not (row.src or row.dst):
        return other(row)
    del row.fields["version"]
    known = type(mode) is int and 1 <= mode <= 7
    if known:
        del row.fields["mode"]
    stratum = row.count("stratum", 255)
    return row.event(
        NTP,
        mode if known and type(mode) is int else UNKNOWN,
        protocol=row.text("proto") or "udp",
        app_name="ntp",
        more=kept(
            version=str(version),
            stratum=None if stratum is None else str(stratum),
            stratum_id=None if stratum is None else _stratum(stratum),
        ),
    )


def _stratum(number: int) -> int:
    # OCSF has one value for strata 2 to 15, 16 for unsynchronised and 17 for reserved ones.
    return number if number < 2 else 2 if number < 16 else min(number, 17)


_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "EMERG": FATAL,
        "ALERT": HIGH,
        "CRIT": HIGH,
        "ERR": MEDIUM,
        "WARNING": LOW,
        "Reporter::ERROR": MEDIUM,
        "Reporter::WARNING": LOW,
        "Reporter::FATAL": HIGH,
    }
)


def syslog(row: Row) -> Event:
    """A syslog message on the wire; what it says is its sender's word, not Zeek's."""
    level = row.fields.get("severity")
    return row.event(
        NETWORK,
        _TRAFFIC,
        severity_id=_LEVELS.get(level, INFORMATIONAL) if type(level) is str else INFORMATIONAL,
        message=row.text("message"),
        protocol=row.text("proto"),
        app_name="syslog",
    )


def other(row: Row) -> Event:
    """A record of any log: between two ends it is traffic, else a base event."""
    if not row.src and not row.dst:
        row.src = row.end("src", "src_p") or row.end("host", "port_num")
        row.dst = row.end("dst", "dst_p")
    user = row.text("username") or row.text("user")
    success, level = row.flag("success"), row.fields.get("level")
    # With one end alone nobody knows what it is of: a scan, a list, a statistic.
    paired = bool(row.src and row.dst)
    seconds = row.span("duration")
    return row.event(
        NETWORK if paired else BASE,
        _TRAFFIC if paired else UNKNOWN,
        status_id=None if success is None else status_of(success),
        severity_id=_LEVELS.get(level, INFORMATIONAL) if type(level) is str else INFORMATIONAL,
        message=row.text("message") or row.text("msg"),
        protocol=row.text("proto") if paired else None,
        app_name=(row.text("service") or row.log) if paired else None,
        actor={"user": {"name": user}} if user else None,
        seconds=seconds,
        seen=(("actor.user.name", A_USER, user),),
    )
