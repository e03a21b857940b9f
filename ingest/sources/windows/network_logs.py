"""Logs of the network: DNS client and server, SMB, WinRM, RPC Firewall, and who else lets in.

Each is named by its provider, under https://learn.microsoft.com/windows/ ; the fields of SMB's
events are those of its manifest (message files of srv2.sys and mrxsmb.sys). RPC Firewall's are
those of its message file: https://github.com/zeronetworks/rpcfirewall
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    DNS,
    FAILURE,
    FILE,
    MODULE,
    NETWORK,
    OTHER,
    SMB,
    SUCCESS,
    address,
)
from ingest.sources.linux.sshd import logon_in
from ingest.sources.shared.http_exchange import host_port
from ingest.sources.windows.codes import DNS_STATUS, DNS_TYPES, NTSTATUS, status_code
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    EventRule,
    WindowsColumns,
    account,
    here,
    other,
    source,
)
from ingest.sources.windows.sysmon import results


def dns_client(fields: Fields, log: Logged) -> WindowsColumns:
    """3006 to 3020: a question of this machine."""
    name, answer = fields.text("QueryName"), fields.text("QueryResults")
    status = fields.number("QueryStatus", "Status", most=2**32 - 1)
    kind = fields.number("QueryType", most=65535)
    code = DNS_STATUS.get(status) if status is not None else None
    return {
        "query": filled(
            # The name of the root zone is a dot alone.
            hostname=name.rstrip(".") or name if name else None,
            type=DNS_TYPES.get(kind, str(kind)) if kind is not None else None,
        ),
        "answers": results(answer) or None if answer else None,
        "rcode_id": code[0] if code else None,
        "rcode": code[1] if code else None,
        "status_id": None if status is None else FAILURE if status else SUCCESS,
        "status_code": str(status) if status is not None else None,
        "src_endpoint": here(log),
        "actor": filled(process=filled(pid=fields.pid("ClientPID"))),
    }


def dns_server(fields: Fields, log: Logged) -> WindowsColumns:
    """256 to 260 of the analytical log: questions and answers of a DNS server."""
    name = fields.text("QNAME")
    kind = fields.number("QTYPE", most=65535)
    code = fields.number("RCODE", most=23)
    tcp = fields.flag("TCP")
    # 260 and 261 are the server's own questions to another server: there it is the client.
    asking = log.event_id in (256, 257, 258, 259)
    end = "Source" if fields.peek("Source") else "Destination"
    client = source(fields, end, "Port", "")
    server = source(fields, "InterfaceIP", "", "") or here(log)
    return {
        "query": filled(
            hostname=name.rstrip(".") or name if name else None,
            type=DNS_TYPES.get(kind, str(kind)) if kind is not None else None,
        ),
        "rcode_id": code,
        "src_endpoint": client if asking else server,
        "dst_endpoint": server if asking else client,
        "connection_info": None
        if tcp is None
        else {
            "protocol_name": "tcp" if tcp else "udp",
            "protocol_num": 6 if tcp else 17,
            "direction_id": 0,
        },
    }


def plugin(fields: Fields, log: Logged) -> WindowsColumns:
    """150 and 770: the DNS server loaded, or failed to load, a plugin library."""
    path = fields.text("param1", "PluginDll", "DllName")
    return {"module": {"file": {"path": path or "unknown"}}}


# -- SMB, WinRM -------------------------------------------------------------------------------


def _socket_address(text: str | None) -> WindowsColumns | None:
    """Address and port of a SOCKADDR in hexadecimal, as SMB's events have it: family first."""
    digits = (text or "").removeprefix("0x")
    if not re.fullmatch(r"(?:[0-9A-Fa-f]{2}){8,128}", digits):
        return None
    raw = bytes.fromhex(digits)
    # AF_INET is 2, AF_INET6 is 23, in the machine's order; what follows is in the network's.
    place = {b"\x02\x00": slice(4, 8), b"\x17\x00": slice(8, 24)}.get(raw[:2])
    packed = raw[place] if place else b""
    if place is None or len(packed) != place.stop - place.start:
        return None
    ip = address(str(ip_address(packed)))
    return filled(ip=ip, port=int.from_bytes(raw[2:4], "big") or None)


def _far(fields: Fields, *names: str) -> WindowsColumns | None:
    """The other machine: `\\\\HOST`, `\\\\10.0.0.1`, or in `ClientAddress` a SOCKADDR.

    Rules ask these names as they are written, so they stay in unmapped too.
    """
    text = (fields.peek(*names) or "").lstrip("\\")
    ip = Fields({"ip": text}).ip("ip")
    seen = _socket_address(fields.peek("ClientAddress")) or _end_of(fields.peek("ClientAddress"))
    return filled(**((seen or filled(ip=ip)) or {}), hostname=None if ip else text or None)


def _end_of(text: str | None) -> WindowsColumns | None:
    host, _, port = (text or "").rpartition(":")
    parts = Fields({"ip": host or text or "", "port": port, "alone": text or ""})
    # As a whole first: an IPv6 address without a port has colons, too.
    ip = parts.ip("alone")
    return filled(ip=ip) if ip else filled(ip=parts.ip("ip"), port=parts.port("port"))


def _smb(fields: Fields, log: Logged) -> WindowsColumns:
    """Events of SMB's server and client: who, from where, and the status of what failed."""
    server = "smbserver" in (log.provider or log.channel or "").lower()
    far = _far(fields, "ClientName") if server else _far(fields, "ServerName")
    status = whole(fields.peek("Status"))
    # Taken only as a number: anything else stays in unmapped as it was written.
    if status is not None:
        fields.text("Status")
    return {
        "user": account(fields, "UserName"),
        "src_endpoint": far if server else here(log),
        "dst_endpoint": here(log) if server else far,
        "status_code": status_code(status) if status is not None else None,
        "status_detail": NTSTATUS.get(status) if status is not None else None,
    }


def smb_denied(fields: Fields, log: Logged) -> WindowsColumns:
    """551 and 1009 of SMBServer, 31001 and 31017 of SMBClient: a session that was refused."""
    return {**_smb(fields, log), "is_remote": True}


def _smb_share(fields: Fields, log: Logged) -> WindowsColumns:
    """1006, 1007 of SMBServer, 31010 of SMBClient: a share that was refused."""
    columns = _smb(fields, log)
    session = filled(uid=fields.logon("SessionID", "SessionId"))
    by = filled(user=columns.pop("user"), session=session)
    return {**columns, "actor": by, "share": fields.text("ShareName")}


def _smb_traffic(fields: Fields, log: Logged) -> WindowsColumns:
    """Connections and what of them was refused."""
    columns = _smb(fields, log)
    return {**columns, "actor": filled(user=columns.pop("user"))}


def _smb_rules(
    rules: Iterable[tuple[int, int, str, int | None]],
) -> Iterator[tuple[int, EventRule]]:
    for uid, activity, title, status in rules:
        always: dict[str, Any] = {} if status is None else {"status_id": status}
        yield uid, EventRule(NETWORK, activity, title, _smb_traffic, always)


def _denied(title: str) -> EventRule:
    return EventRule(AUTHENTICATION, 1, title, smb_denied, {"status_id": FAILURE})


def _share_denied(title: str) -> EventRule:
    return EventRule(SMB, OTHER, title, _smb_share, {"status_id": FAILURE, **other("Tree Connect")})


def winrm(fields: Fields, log: Logged) -> WindowsColumns:
    """6 and 91: a remote shell asked for or made; `connection` names the machine."""
    text = fields.peek("connection", "connectionString") or ""
    # `HOST:5985/wsman?PSVersion=5.1`, with or without a scheme before the host.
    authority = re.split(r"[/?]", re.sub(r"^[A-Za-z]{1,20}://", "", text), maxsplit=1)[0]
    host, port = host_port(authority)
    ip = address(host or "")
    there = filled(ip=ip, hostname=None if ip else host or None, port=port if host else None)
    # 6 is written where a shell is asked for, 91 where it is made.
    return {"src_endpoint": here(log), "dst_endpoint": there if log.event_id == 6 else here(log)}


# -- remote access, OpenSSH, wireless networks, printers ----------------------------------------


def _dialled(fields: Fields, log: Logged) -> WindowsColumns:
    """20250 and 20271 of RemoteAccess: the user is the second value, his address the third."""
    refused = log.event_id == 20271
    return {
        "user": account(fields, "param2"),
        "src_endpoint": source(fields, "param3", "", "") if refused else None,
        "dst_endpoint": here(log),
        "status_detail": fields.text("param4") if refused else None,
        "is_remote": True,
    }


def openssh(fields: Fields, log: Logged) -> WindowsColumns:
    """4 of OpenSSH: what a program of its says, a logon where sshd itself tells of one."""
    text = fields.peek("payload") or ""
    logon = logon_in(text) if fields.peek("process") in ("sshd", "sshd-session") else None
    if logon is None:
        return {}
    return {"class_uid": AUTHENTICATION, "activity_id": 1, "dst_endpoint": here(log), **logon}


def _printed(fields: Fields, log: Logged) -> WindowsColumns:
    """307: a document was printed: for whom, from which machine; printer and size in unmapped."""
    return {
        "file": {"name": fields.text("Param2", "param2") or "unknown"},
        "actor": filled(user=account(fields, "Param3", "param3")),
        "src_endpoint": filled(
            hostname=(fields.text("Param4", "param4") or "").lstrip("\\") or None
        ),
    }


def _wireless(fields: Fields, log: Logged) -> WindowsColumns:
    """8001 to 8003: this machine and a wireless network, which stays in unmapped."""
    return {"src_endpoint": here(log), "status_detail": fields.text("FailureReason", "Reason")}


# -- RPC Firewall -------------------------------------------------------------------------------

RPC_CALL = (
    *("RPCRT_Func", "ProcessID", "ImagePath", "Protocol", "Endpoint", "SourceNetworkAddress"),
    *("InterfaceUuid", "OpNum", "SecurityID", "AuthenticationLevel", "AuthenticationService"),
    "RemotePort",
)
"""What the values of a call are, in their order; the event gives them no names."""


def _rpc_call(fields: Fields, log: Logged) -> WindowsColumns:
    """3 of RPC Firewall: a client called a service here, and was let or, a failed audit, not."""
    return {
        "activity_id": 5 if log.failed else 6,
        "action_id": 2 if log.failed else None,
        "user": account(fields, "param9"),
        "src_endpoint": source(fields, "param6", "param12", ""),
        "dst_endpoint": here(log),
        "actor": filled(process=filled(path=fields.text("param3"), pid=fields.pid("param2"))),
    }


NETWORK_LOGS: Mapping[str, Mapping[int, EventRule]] = MappingProxyType(
    {
        "microsoft-windows-dns-client": MappingProxyType(
            {
                1014: EventRule(
                    DNS, 1, "Name resolution timed out.", dns_client, {"status_id": FAILURE}
                ),
                3006: EventRule(DNS, 1, "A DNS query is called.", dns_client),
                3008: EventRule(DNS, 2, "A DNS query is completed.", dns_client),
                3009: EventRule(DNS, 1, "A network query was started.", dns_client),
                3010: EventRule(DNS, 1, "A DNS query was sent to a server.", dns_client),
                3011: EventRule(DNS, 2, "A response was received from a DNS server.", dns_client),
                3018: EventRule(DNS, 2, "A cache lookup was made.", dns_client),
                3019: EventRule(DNS, 1, "A query wire was called.", dns_client),
                3020: EventRule(DNS, 2, "A query response.", dns_client),
            }
        ),
        "microsoft-windows-dnsserver": MappingProxyType(
            {
                256: EventRule(DNS, 1, "A query was received.", dns_server),
                257: EventRule(DNS, 2, "A response was sent.", dns_server),
                258: EventRule(DNS, 2, "A response was sent: failure.", dns_server),
                259: EventRule(DNS, 1, "A query was ignored.", dns_server),
                260: EventRule(DNS, 1, "A recursive query was sent.", dns_server),
                261: EventRule(DNS, 2, "A recursive response was received.", dns_server),
            }
        ),
        "microsoft-windows-dns-server-service": MappingProxyType(
            {
                150: EventRule(
                    MODULE, 1, "A plugin DLL could not be loaded.", plugin, {"status_id": FAILURE}
                ),
                770: EventRule(
                    MODULE, 1, "A plugin DLL was loaded.", plugin, {"status_id": SUCCESS}
                ),
            }
        ),
        "microsoft-windows-smbserver": MappingProxyType(
            {
                **dict(
                    _smb_rules(
                        (
                            (1001, 4, "SMB1 is disabled; its request was refused.", FAILURE),
                            (1003, 4, "A message without encryption was refused.", FAILURE),
                            (1004, 4, "A message with a wrong signature was refused.", FAILURE),
                            (1005, 4, "A negotiation was not as it should be.", FAILURE),
                            (1015, 4, "A message could not be decrypted.", FAILURE),
                            (3000, 1, "SMB1 access.", None),
                            (3021, 1, "A client that cannot sign connected.", None),
                            (3022, 1, "A client that cannot encrypt connected.", None),
                        )
                    )
                ),
                551: _denied("SMB Session Authentication Failure"),
                1006: _share_denied("A share denied access to a client."),
                1007: _share_denied("A share denied anonymous access."),
                1009: _denied("The server denied anonymous access."),
            }
        ),
        "microsoft-windows-smbclient": MappingProxyType(
            {
                **dict(
                    _smb_rules(
                        (
                            (30803, 4, "A connection could not be made.", FAILURE),
                            (30804, 3, "A connection was lost.", None),
                            (30805, 3, "A session was lost.", None),
                            (30806, 1, "A session was made again.", SUCCESS),
                            (30807, 3, "The connection to a share was lost.", None),
                            (30808, 1, "The connection to a share was made again.", SUCCESS),
                            (31013, 4, "A message with a wrong signature was refused.", FAILURE),
                            (31018, 1, "An insecure guest logon was let through.", None),
                        )
                    )
                ),
                31001: _denied("Failed logon to an SMB server."),
                31010: _share_denied("A share could not be connected to."),
                31017: _denied("An insecure guest logon was refused."),
            }
        ),
        "microsoft-windows-winrm": MappingProxyType(
            {
                6: EventRule(NETWORK, 1, "Creating WSMan Session.", winrm),
                91: EventRule(NETWORK, 1, "Creating WSMan shell on server.", winrm),
            }
        ),
        "rpcfw": MappingProxyType(
            {3: EventRule(NETWORK, 6, "An RPC server function was called.", _rpc_call)}
        ),
        "remoteaccess": MappingProxyType(
            {
                20250: EventRule(
                    AUTHENTICATION, 1, "A user connected.", _dialled, {"status_id": SUCCESS}
                ),
                20271: EventRule(
                    AUTHENTICATION, 1, "A user was refused.", _dialled, {"status_id": FAILURE}
                ),
            }
        ),
        "openssh": MappingProxyType({4: EventRule(BASE, 0, "A message of OpenSSH.", openssh)}),
        "microsoft-windows-printservice": MappingProxyType(
            {307: EventRule(FILE, OTHER, "A document was printed.", _printed, other("Print"))}
        ),
        "microsoft-windows-wlan-autoconfig": MappingProxyType(
            {
                8001: EventRule(
                    NETWORK,
                    1,
                    "Connected to a wireless network.",
                    _wireless,
                    {"status_id": SUCCESS},
                ),
                8002: EventRule(
                    NETWORK, 4, "A wireless network failed.", _wireless, {"status_id": FAILURE}
                ),
                8003: EventRule(NETWORK, 2, "Disconnected from a wireless network.", _wireless),
            }
        ),
    }
)
