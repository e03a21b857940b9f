"""Operational logs of the network: DNS client and server, NTLM, SMB, WinRM.

Each is named by its provider, under https://learn.microsoft.com/windows/ .
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ingest.parsing.ocsf import AUTHENTICATION, DNS, FAILURE, MODULE, NETWORK, SUCCESS
from ingest.sources.windows.codes import DNS_STATUS, DNS_TYPES, NTSTATUS, status_code
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    EventRule,
    WindowsColumns,
    account,
    auth,
    here,
    merged,
    process,
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


# -- NTLM, SMB, WinRM -------------------------------------------------------------------------


def _ntlm(fields: Fields, log: Logged) -> WindowsColumns:
    """8001 to 8004: an NTLM logon, audited because a policy would block it."""
    server = fields.text("TargetName", "SChannelName", "ServerName")
    run = process(fields, "ProcessName", "ClientPID")
    if run is None:
        run = process(fields, "CallerPID", "")
    workstation = fields.text("WorkstationName", "Workstation")
    user = fields.user("UserName", "DomainName") or fields.user(
        "ClientUserName", "ClientDomainName"
    )
    # These two are of the client: this machine asks, another one checks.
    away = log.event_id in (8001, 4001)
    results = {
        "user": user,
        "actor": filled(process=run),
        "src_endpoint": filled(hostname=workstation) or (here(log) if away else None),
        "dst_endpoint": filled(hostname=server) if server else here(log),
        "is_remote": True,
    }
    return merged(auth("NTLM"), results)


def smb_denied(fields: Fields, log: Logged) -> WindowsColumns:
    """551 of SMBServer, 31001 of SMBClient: a session that could not be authenticated."""
    name = fields.text("ClientName", "ServerName")
    status = whole(fields.peek("Status"))
    if status is not None:
        fields.text("Status")
    here_as_server = log.event_id in (551, 1006, 1007)
    # Written `\\HOST` or `\\10.0.0.1`.
    ip = Fields({"ip": (name or "").removeprefix("\\\\")}).ip("ip")
    bare = (name or "").removeprefix("\\\\") or None
    far = filled(ip=ip, hostname=None if ip else bare)
    return {
        "user": account(fields, "UserName"),
        "src_endpoint": far if here_as_server else here(log),
        "dst_endpoint": here(log) if here_as_server else far,
        "is_remote": True,
        "status_code": status_code(status) if status is not None else None,
        "status_detail": NTSTATUS.get(status) if status is not None else None,
    }


def winrm(fields: Fields, log: Logged) -> WindowsColumns:
    """6 and 91: a remote shell asked for or made; `connection` names the machine."""
    # `HOST/wsman?PSVersion=5.1`, with or without a scheme before the host.
    name = (fields.peek("connection", "connectionString") or "").partition("/")[0]
    host = name.rpartition("//")[2].partition("?")[0] or None
    return {
        "src_endpoint": here(log),
        "dst_endpoint": filled(hostname=host) if log.event_id == 6 else here(log),
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
        "microsoft-windows-ntlm": MappingProxyType(
            {
                uid: EventRule(AUTHENTICATION, 1, title, _ntlm)
                for uid, title in (
                    (4001, "Outgoing NTLM authentication was blocked."),
                    (4002, "Incoming NTLM authentication was blocked."),
                    (4003, "NTLM authentication to a server in the domain was blocked."),
                    (4004, "NTLM authentication to this domain controller was blocked."),
                    (8001, "Outgoing NTLM authentication that would be blocked."),
                    (8002, "Incoming NTLM authentication that would be blocked."),
                    (8003, "NTLM authentication to a server that would be blocked."),
                    (8004, "NTLM authentication to a domain controller that would be blocked."),
                )
            }
        ),
        "microsoft-windows-smbserver": MappingProxyType(
            {
                551: EventRule(
                    AUTHENTICATION,
                    1,
                    "SMB Session Authentication Failure",
                    smb_denied,
                    {"status_id": FAILURE},
                ),
                3000: EventRule(NETWORK, 1, "SMB1 access.", smb_denied),
            }
        ),
        "microsoft-windows-smbclient": MappingProxyType(
            {
                31001: EventRule(
                    AUTHENTICATION,
                    1,
                    "Failed logon to an SMB server.",
                    smb_denied,
                    {"status_id": FAILURE},
                )
            }
        ),
        "microsoft-windows-winrm": MappingProxyType(
            {
                6: EventRule(NETWORK, 1, "Creating WSMan Session.", winrm),
                91: EventRule(NETWORK, 1, "Creating WSMan shell on server.", winrm),
            }
        ),
    }
)
