"""Zeek's logs of who logs in: kerberos, ntlm, radius, ssh, rdp.

https://docs.zeek.org/en/master/script-reference/log-files.html . OCSF's Authentication has
to name a user: where the traffic did not show one, the event is Network Activity.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_USER,
    AN_IP,
    AUTHENTICATION,
    FAILURE,
    INFORMATIONAL,
    LOW,
    NETWORK,
    OTHER,
    RDP,
    SSH,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.zeek.row import Row

_LOGON, _TICKET, _SERVICE_TICKET, _PREAUTH = 1, 3, 4, 6
_OPEN, _FAIL, _TRAFFIC = 1, 4, 6
_NETWORK_LOGON = 3
_REQUESTS = MappingProxyType({"AS": _TICKET, "TGS": _SERVICE_TICKET})
ASKS_FOR_MORE = "KDC_ERR_PREAUTH_REQUIRED"
"""How a KDC answers the first request of nearly every login."""


def status_of(success: bool | None) -> int:
    """OCSF's status of Zeek's `success`."""
    return UNKNOWN if success is None else SUCCESS if success else FAILURE


def _login(
    row: Row,
    activity: int,
    status: int,
    user: dict[str, Any] | None,
    protocol: tuple[int, str],
    more: Mapping[str, Any],
    seen: tuple[tuple[str, int, Any], ...] = (),
    **columns: Any,
) -> Event:
    """A login with a name; without one, traffic of the same protocol."""
    number, name = protocol
    # Authentication requires a user, and a destination or a service (OCSF).
    if user is None or not (row.dst or columns.get("service")):
        if user is not None:
            columns["user"] = user
        return row.event(
            NETWORK,
            _TRAFFIC,
            status_id=status,
            app_name=name.lower(),
            auth_protocol=name,
            more=more,
            seen=seen,
            **columns,
        )
    severe = status == FAILURE and activity != _PREAUTH
    return row.event(
        AUTHENTICATION,
        activity,
        status_id=status,
        severity_id=LOW if severe else INFORMATIONAL,
        user=user,
        auth_protocol=name,
        is_remote=True,
        more={"auth_protocol_id": number} | dict(more),
        seen=(*seen, ("user.name", A_USER, user["name"])),
        **columns,
    )


def kerberos(row: Row) -> Event:
    """A ticket that was asked for; `client` and `service` end in their realm."""
    user = _principal(row)
    service = row.text("service")
    error = row.text("error_msg")
    request = row.text("request_type")
    activity = _REQUESTS.get(request or "") or _by_service(service)
    granted = _SERVICE_TICKET if activity == _SERVICE_TICKET else _TICKET
    # It is no failure: counted as one, every login would look like a wrong password.
    if error == ASKS_FOR_MORE:
        activity = _PREAUTH
    return _login(
        row,
        activity,
        status_of(row.flag("success")),
        user,
        (2, "Kerberos"),
        _ticket(row, granted) if user is not None and (row.dst or service) else {},
        code=request,
        status_code=error,
        status_detail=error,
        service=None if service is None else {"name": service},
    )


def _by_service(service: str | None) -> int:
    if service is None:
        return UNKNOWN
    # Who asks for krbtgt asks the KDC itself for a ticket: that is a login.
    return _TICKET if service.startswith("krbtgt/") else _SERVICE_TICKET


def _principal(row: Row) -> dict[str, Any] | None:
    client = row.fields.get("client")
    if type(client) is not str:
        return None
    # The last slash: a service's name, such as `host/www`, has one of its own.
    name, slash, realm = client.rpartition("/")
    if not slash:
        name, realm = realm, ""
    if not name:
        return None
    del row.fields["client"]
    return {"name": name, "domain": realm or None}


def _ticket(row: Row, activity: int) -> dict[str, Any]:
    cipher = row.text("cipher")
    token = kept(
        created_time=row.time_ms("from"),
        expiration_time=row.time_ms("till"),
        is_renewable=row.flag("renewable"),
    )
    if cipher is not None:
        # By their beginnings, as in `aes256-cts-hmac-sha1-96`, `des3-cbc-sha1` and `des-cbc-md5`.
        ciphers = {"aes": 3, "des3": 2, "des-": 1}
        number = next(
            (number_known for start, number_known in ciphers.items() if cipher.startswith(start)),
            OTHER,
        )
        token["encryption_details"] = {"algorithm": cipher, "algorithm_id": number}
    if not token:
        return {}
    return {"authentication_token": token | {"type_id": 2 if activity == _SERVICE_TICKET else 1}}


def ntlm(row: Row) -> Event:
    """A login by NTLM inside another protocol, as the server answered it."""
    user = _named(row, "username", "domainname")
    host, server = row.text("hostname"), row.text("server_dns_computer_name")
    if row.src and host:
        row.src["hostname"] = host
    if row.dst and server:
        row.dst["hostname"] = server
    status = row.text("status")
    success = row.flag("success")
    # Newer logs have only `success`, older ones the server's word as well.
    if success is None and status is not None:
        success = status == "SUCCESS"
    return _login(
        row,
        _LOGON,
        status_of(success),
        user,
        (1, "NTLM"),
        {},
        (
            ("src_endpoint.hostname", A_HOST, row.src.get("hostname")),
            ("dst_endpoint.hostname", A_HOST, row.dst.get("hostname")),
        ),
        status_code=status,
        logon_type_id=_NETWORK_LOGON,
    )


def _named(row: Row, name: str, domain: str) -> dict[str, Any] | None:
    text_value = row.text(name)
    return None if text_value is None else {"name": text_value, "domain": row.text(domain)}


def radius(row: Row) -> Event:
    """A login that an access server asked a RADIUS server about."""
    user = _named(row, "username", "domainname")
    result = row.text("result")
    success = {"success": True, "failed": False}.get(result or "")
    remote = row.fields.get("remote_ip")
    return _login(
        row,
        _LOGON,
        status_of(success),
        user,
        (10, "RADIUS"),
        {},
        (("unmapped.remote_ip", AN_IP, address(remote) if type(remote) is str else None),),
        status_code=result,
        status_detail=row.text("reply_msg"),
        seconds=row.span("ttl"),
    )


# -- SSH, RDP ----------------------------------------------------------------------------------


def ssh(row: Row) -> Event:
    """An SSH connection, and whether it looked like a login that worked."""
    success = row.flag("auth_success")
    version = row.fields.get("version")
    if type(version) is int:
        del row.fields["version"]
    hassh = {name: _hassh(row, key) for name, key in HASSH.items()}
    columns = _direction(row)
    return row.event(
        SSH,
        _TRAFFIC if success is None else _OPEN if success else _FAIL,
        status_id=status_of(success),
        severity_id=LOW if success is False else INFORMATIONAL,
        protocol="tcp",
        app_name="ssh",
        more=kept(protocol_ver=str(version) if type(version) is int else None, **hassh) | columns,
    )


HASSH = MappingProxyType({"client_hassh": "hassh", "server_hassh": "hasshServer"})


def _hassh(row: Row, key: str) -> dict[str, Any] | None:
    value = row.text(key)
    if value is None:
        return None
    # HASSH is the MD5 of the algorithms that an end offers.
    fingerprint = {"algorithm": "MD5", "algorithm_id": 1, "value": value}
    return kept(algorithm=row.text(f"{key}Algorithms"), fingerprint=fingerprint)


def _direction(row: Row) -> dict[str, Any]:
    """What `direction` and `remote_location` say: the place of the end that is not ours."""
    fields, result = row.fields, {}
    direction = fields.get("direction")
    ways = {"INBOUND": (1, "Inbound", "src_endpoint"), "OUTBOUND": (2, "Outbound", "dst_endpoint")}
    if type(direction) is not str or direction not in ways or not (row.src and row.dst):
        return {}
    del fields["direction"]
    number, name, end = ways[direction]
    result["connection_info"] = {"direction_id": number, "direction": name}
    place = kept(
        country=row.text("remote_location.country_code"),
        region=row.text("remote_location.region"),
        city=row.text("remote_location.city"),
    )
    if place:
        for leaf, key in (("lat", "latitude"), ("long", "longitude")):
            number_of = fields.get(f"remote_location.{key}")
            if type(number_of) is float or type(number_of) is int:
                place[leaf] = float(fields.pop(f"remote_location.{key}"))
        country = place.get("country")
        if country is not None:
            (row.src if end == "src_endpoint" else row.dst)["country"] = country
        result[end] = {"location": place}
    return result


def rdp(row: Row) -> Event:
    """An RDP connection as far as it is not encrypted; its cookie mostly is a user's name."""
    cookie, result = row.text("cookie"), row.text("result")
    channels = row.texts("client_channels")
    name, layout = row.text("client_name"), row.text("keyboard_layout")
    if row.src and name:
        row.src["hostname"] = name
    success = row.flag("auth_success")
    activity, status = _rdp_result(result, success)
    width, height = row.count("desktop_width", 2**31), row.count("desktop_height", 2**31)
    display = kept(physical_width=width, physical_height=height)
    return row.event(
        RDP,
        activity,
        status_id=status,
        status_code=result,
        protocol="tcp",
        app_name="rdp",
        user={"name": cookie} if cookie else None,
        more=kept(
            identifier_cookie=cookie,
            capabilities=channels or None,
            keyboard_info={"keyboard_layout": layout} if layout else None,
            remote_display=display or None,
        ),
        seen=(
            ("user.name", A_USER, cookie),
            ("src_endpoint.hostname", A_HOST, row.src.get("hostname")),
        ),
    )


def _rdp_result(result: str | None, success: bool | None) -> tuple[int, int]:
    """Activity and status of the answer: granted, encrypted from here on, or refused."""
    if success is not None:
        return 4, status_of(success)
    if result is None:
        return 1, UNKNOWN
    if result.lower() == "encrypted":
        return 5, UNKNOWN
    return (4, SUCCESS) if result.lower().startswith("success") else (2, FAILURE)
