"""Active Directory's own services: Federation Services, Domain Services, NTLM and Netlogon.

AD FS: https://learn.microsoft.com/windows-server/identity/ad-fs/troubleshooting/ad-fs-tshoot-logging
and the list of its events, https://adfshelp.microsoft.com/AdfsEventViewer/GetAdfsEventList .
Since Server 2016 an audit is one XML text of what was asked, by whom and from where; before, and
for refused tokens still, its values stand in a fixed order. Domain Services: the log "Directory
Service", with signing (2889), passwords of group managed service accounts (2946, 2947) and
searches (1644), https://learn.microsoft.com/windows-server/identity/ad-ds/ . NTLM: its audits, of
which those of Windows 11 24H2 and Server 2025 are in https://support.microsoft.com/help/5064479 ; a
domain controller's are of the provider Security-Netlogon. Netlogon's secure channels:
https://support.microsoft.com/help/4557222 .
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    BASE,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    LOW,
    MEDIUM,
    OTHER,
    SUCCESS,
)
from ingest.sources.windows.codes import NTSTATUS, status_code
from ingest.sources.windows.record import Fields, Logged, filled, split_account, whole
from ingest.sources.windows.rule import (
    EventRule,
    WindowsColumns,
    auth,
    entity,
    here,
    managing,
    merged,
    other,
    process,
)

ADFS_AUDIT = "<AuditBase"
LEAF = re.compile(r"<([A-Za-z]{1,60})>([^<>]{0,4096})</\1>")
MOST_AUDIT = 256 * 1024
NO_VALUE = frozenset({"", "N/A", "None", "-"})
SERVICE = {"name": "AD FS"}


def _audit(fields: Fields, log: Logged) -> dict[str, str]:
    """The values of an audit by name; of a name that stands twice, none.

    What clients send is escaped in it and cannot make an element.
    """
    texts = [fields.peek(f"param{number}") for number in range(1, 5)] + [fields.peek("Data")]
    text = next((text for text in texts if text and ADFS_AUDIT in text), None)
    if text is None:
        text = (log.message or "").partition(ADFS_AUDIT)[2]
    pairs = LEAF.findall(text[:MOST_AUDIT])
    times = Counter(name for name, _ in pairs)
    values = {name: html.unescape(value).strip() for name, value in pairs if times[name] == 1}
    return {name: value for name, value in values.items() if value not in NO_VALUE}


def _client(text: str | None, beside: str | None = None) -> WindowsColumns | None:
    """The client of `IpAddress`; of several that were forwarded, the one the server saw.

    Headers name the others, and anybody can send headers.
    """
    listed = Fields({"ip": (text or "").partition(",")[0], "seen": beside or ""})
    alone = text is not None and "," not in text
    ip = listed.ip("ip") if alone else listed.ip("seen")
    return filled(ip=ip)


def _who(name: str | None) -> WindowsColumns | None:
    # A name with blanks or line ends is none that can be told from what stands around it.
    if not name or re.search(r"\s", name):
        return None
    bare, domain = split_account(name)
    return filled(name=bare, domain=domain)


def adfs_audited(fields: Fields, log: Logged) -> WindowsColumns:
    """1200 to 1210: the XML of the audit, which itself stays in unmapped."""
    values = _audit(fields, log)
    agent = values.get("UserAgentString")
    protocol = values.get("PrimaryAuth", "").rpartition("/")[2] or None
    result = values.get("AuditResult", "").lower()
    code = values.get("ErrorCode") or values.get("FailureType")
    return {
        "user": _who(values.get("UserId")),
        "src_endpoint": _client(values.get("IpAddress"), values.get("NetworkIpAddress")),
        "dst_endpoint": here(log),
        "service": filled(name=values.get("RelyingParty")) or dict(SERVICE),
        "http_request": filled(user_agent=agent),
        "auth_protocol": protocol,
        "more": {"auth_protocol_id": 99} if protocol else {},
        "is_remote": True,
        "status_id": {"success": SUCCESS, "failure": FAILURE}.get(result),
        "status_detail": code,
    }


def _password(fields: Fields, log: Logged) -> WindowsColumns:
    """1204, 1205: a password changed, or not, at AD FS."""
    columns = adfs_audited(fields, log)
    kept = ("user", "src_endpoint", "http_request", "status_id", "status_detail")
    return {name: columns[name] for name in kept}


def token_refused(fields: Fields, log: Logged) -> WindowsColumns:
    """411, and 342 of the log AD FS/Admin: `ann@corp.example-The user name or password ...`."""
    kind, wording = ("param2", "param4") if log.event_id == 411 else ("param1", "param2")
    protocol = (fields.peek(kind) or "").rpartition("/")[2] or None
    # At the last dash: names may have some, the sentences have none.
    name, dash, why = (fields.peek(wording) or "").rpartition("-")
    return {
        "user": _who(name) if dash else None,
        "src_endpoint": _client(fields.peek("param3")) if log.event_id == 411 else None,
        "dst_endpoint": here(log),
        "service": dict(SERVICE),
        "auth_protocol": protocol,
        "more": {"auth_protocol_id": 99} if protocol else {},
        "status_detail": why.strip() or None,
        "is_remote": True,
    }


def account_locked(fields: Fields, log: Logged) -> WindowsColumns:
    """512, 515, 516: the account and the client of an attempt on a locked account."""
    return {
        "user": _who(fields.peek("param2")),
        "src_endpoint": _client(fields.peek("param3")),
        "dst_endpoint": here(log),
        "service": dict(SERVICE),
        "is_remote": True,
    }


def _token(fields: Fields, log: Logged) -> WindowsColumns:
    """299, 324, 412: a token made or accepted; whose stands in event 500 or 501 of its instance."""
    party = {299: "param3", 324: "param3", 412: "param4"}[log.event_id]
    return {
        "service": filled(name=fields.peek(party)) or dict(SERVICE),
        "dst_endpoint": here(log),
        "session": filled(uid=fields.peek("param1")),
    }


def _requested(fields: Fields, log: Logged) -> WindowsColumns:
    """403: a request with its client, method and path."""
    method, path = fields.peek("param5"), fields.peek("param6")
    # The order of values has no names: only what looks like a request is one.
    if (method or "").upper() not in HTTP_METHODS or not (path or "").startswith("/"):
        return {"class_uid": 0, "activity_id": 0}
    query = fields.peek("param7")
    return {
        "activity_id": HTTP_METHODS[str(method).upper()],
        "http_request": filled(
            http_method=str(method).upper(),
            url=filled(path=path, query_string=(query or "").removeprefix("?") or None),
            user_agent=fields.peek("param10"),
        ),
        "src_endpoint": _client(fields.peek("param4")),
        "dst_endpoint": here(log),
    }


def _adfs() -> Iterator[tuple[int, EventRule]]:
    done, failed = {"status_id": SUCCESS}, {"status_id": FAILURE}
    for uid, activity, title, columns, always in (
        (299, OTHER, "A token was issued.", _token, {**done, **other("Token Issue")}),
        (324, OTHER, "A token was not issued.", _token, {**failed, **other("Token Issue")}),
        (342, 1, "Token validation failed.", token_refused, failed),
        (411, 1, "Token validation failed.", token_refused, failed),
        (412, OTHER, "A token was accepted.", _token, {**done, **other("Token Validation")}),
        (
            512,
            1,
            "A sign-in to a locked account was let through.",
            account_locked,
            {"severity_id": LOW},
        ),
        (
            515,
            1,
            "The right password of a locked account was given.",
            account_locked,
            {"severity_id": MEDIUM},
        ),
        (1200, OTHER, "A token was issued.", adfs_audited, {**done, **other("Token Issue")}),
        (1201, OTHER, "A token was not issued.", adfs_audited, {**failed, **other("Token Issue")}),
        (1202, 1, "Credentials were validated.", adfs_audited, done),
        (1203, 1, "Credentials were not validated.", adfs_audited, failed),
        (1206, 2, "A sign-out succeeded.", adfs_audited, done),
        (1207, 2, "A sign-out failed.", adfs_audited, failed),
        (1210, 1, "A sign-in to a locked account was refused.", adfs_audited, failed),
    ):
        yield uid, EventRule(AUTHENTICATION, activity, title, columns, always)
    yield 403, EventRule(HTTP, 0, "A request was received.", _requested)
    yield 516, EventRule(ACCOUNT, 9, "An account was locked out of AD FS.", _locked_out, done)
    yield 1204, EventRule(ACCOUNT, 3, "A password was changed.", _password, done)
    yield 1205, EventRule(ACCOUNT, 3, "A password was not changed.", _password, failed)


def _locked_out(fields: Fields, log: Logged) -> WindowsColumns:
    columns = account_locked(fields, log)
    return {name: columns[name] for name in ("user", "src_endpoint")}


# -- Domain Services ---------------------------------------------------------------------------


def _end(text: str | None) -> WindowsColumns | None:
    """`10.0.0.5:54321` or `[fe80::1]:54321` as an endpoint."""
    host, _, port = (text or "").rpartition(":")
    parts = Fields({"ip": host, "port": port, "alone": text or ""})
    ip = parts.ip("ip")
    # What is no address with a port may be one alone: IPv6 has colons itself.
    return filled(ip=ip, port=parts.port("port")) if ip else filled(ip=parts.ip("alone"))


def _bound(fields: Fields, log: Logged) -> WindowsColumns:
    """2889: a client bound without signing, or with its password in the clear."""
    return {
        "src_endpoint": _end(fields.peek("param1")),
        "dst_endpoint": here(log),
        "user": fields.user("param2"),
        "service": {"name": "LDAP"},
        "is_remote": True,
    }


def _managed_password(fields: Fields, log: Logged) -> WindowsColumns:
    """2946, 2947: who read the password of a group managed service account."""
    name = fields.peek("param1")
    return {
        **entity("group managed service account", name),
        "actor": filled(user=fields.user("param2")),
        "src_endpoint": _end(fields.peek("param3")),
    }


def _searched(fields: Fields, log: Logged) -> WindowsColumns:
    """1644: a search that was expensive; its start and filter stay in unmapped."""
    return {"src_endpoint": _end(fields.peek("param5")), "dst_endpoint": here(log)}


def _gmsa(title: str, **always: Any) -> EventRule:
    return managing(2, title, _managed_password, **always)


ADFS: Mapping[int, EventRule] = MappingProxyType(dict(_adfs()))
DOMAIN_SERVICES: Mapping[int, EventRule] = MappingProxyType(
    {
        1644: EventRule(BASE, 0, "A client made an expensive LDAP search.", _searched),
        2889: EventRule(
            AUTHENTICATION, 1, "A client made an LDAP bind that is not protected.", _bound
        ),
        2946: _gmsa("The password of a managed service account was read.", status_id=SUCCESS),
        2947: _gmsa("The password of a managed service account was refused.", status_id=FAILURE),
    }
)


# -- NTLM and Netlogon ------------------------------------------------------------------------


def _ntlm(fields: Fields, log: Logged) -> WindowsColumns:
    """Who authenticates by NTLM, through which program, from where to where."""
    # These are of the client: this machine asks, another one checks.
    asks = log.event_id in (4001, 4015, 4020, 4021, 4024, 4025, 8001)
    service = fields.peek("TargetService")
    server = fields.text(
        "TargetMachine" if asks else "ServerName", "TargetName", "SChannelName", "DCName"
    )
    client = fields.text(
        "WorkstationName", "Workstation", "RemoteClientMachine", "ClientName", "DeviceName"
    )
    code = whole(fields.peek("Status"))
    # Taken only as a number: anything else stays in unmapped as it was written.
    if code is not None:
        fields.text("Status")
    results = {
        "user": _account(fields),
        "actor": filled(
            process=process(fields, "ProcessName", "ProcessPID")
            if fields.peek("ProcessPID")
            else process(fields, "ProcessName", "CallerPID")
        ),
        "src_endpoint": filled(hostname=client, ip=fields.ip("ClientIP"))
        or (here(log) if asks else None),
        "dst_endpoint": filled(hostname=server, ip=fields.ip("TargetIP" if asks else "ServerIP"))
        or (None if asks else here(log)),
        "service": filled(name=service if (service or "").lower() != "null" else None),
        # 301 went well: its code is what a policy in force would have answered.
        "status_id": None if code is None or log.event_id == 301 else FAILURE if code else SUCCESS,
        "status_code": status_code(code) if code is not None else None,
        "status_detail": NTSTATUS.get(code) if code else None,
        "is_remote": True,
    }
    return merged(auth("NTLM"), {key: value for key, value in results.items() if value is not None})


def _account(fields: Fields) -> WindowsColumns | None:
    """The account that is to be let in; what asks for it has one of its own."""
    for name, domain in (
        ("UserName", "DomainName"),
        ("Username", "DomainName"),
        ("AccountName", "AccountDomain"),
        ("ClientUserName", "ClientDomainName"),
    ):
        if (user := fields.user(name, domain)) is not None:
            return user
    return None


def _machine_logon(fields: Fields, log: Logged) -> WindowsColumns:
    """5722 to 5831 of Netlogon: a machine or another domain asks for a secure channel."""
    trust = log.event_id in (5828, 5831)
    if log.event_id < 5800:
        user, far = None, filled(hostname=(fields.peek("param1") or "").lstrip("\\") or None)
    elif log.event_id == 5805:
        user, far = None, filled(hostname=(fields.text("param1") or "").lstrip("\\") or None)
    else:
        user = None if trust else fields.user("param1", "param2")
        far = filled(ip=fields.ip("param4")) if trust else None
    return {"user": user, "src_endpoint": far, "dst_endpoint": here(log), "is_remote": True}


_WEAK = "A vulnerable Netlogon secure channel "
_NETLOGON = MappingProxyType(
    {
        uid: EventRule(
            AUTHENTICATION,
            1,
            title,
            _machine_logon,
            {"status_id": status, "severity_id": MEDIUM} if uid > 5805 else {"status_id": status},
        )
        for uid, title, status in (
            (5722, "A machine's session failed to authenticate.", FAILURE),
            (5723, "A machine's session failed: it has no account.", FAILURE),
            (5805, "A machine's session failed to authenticate.", FAILURE),
            (5827, f"{_WEAK}of a machine was denied.", FAILURE),
            (5828, f"{_WEAK}of a trust was denied.", FAILURE),
            (5829, f"{_WEAK}of a machine was let through.", SUCCESS),
            (5830, f"{_WEAK}of a machine was let through by policy.", SUCCESS),
            (5831, f"{_WEAK}of a trust was let through by policy.", SUCCESS),
        )
    }
)

_BLOCKED = {"status_id": FAILURE}


def _ntlm_rules(events: Iterable[tuple[int, str, bool]]) -> Mapping[int, EventRule]:
    """Rules by event id, from id, title and whether the event says that it was refused."""
    return MappingProxyType(
        {
            uid: EventRule(AUTHENTICATION, 1, title, _ntlm, _BLOCKED if refused else {})
            for uid, title, refused in events
        }
    )


_NTLM = _ntlm_rules(
    (
        (100, "NTLM authentication failed: the account is a protected user.", True),
        (101, "NTLM authentication failed: its policy restricts access.", True),
        (301, "NTLM authentication that an enforced policy would refuse.", False),
        (4001, "Outgoing NTLM authentication was blocked.", True),
        (4002, "Incoming NTLM authentication was blocked.", True),
        (4003, "NTLM authentication to a server in the domain was blocked.", True),
        (4010, "NTLM client: less than the least security was asked for.", True),
        (4011, "NTLM server: less than the least security was asked for.", True),
        (4012, "An NTLM client used the domain's password.", False),
        (4013, "An attempt to use NTLMv1 failed.", True),
        (4014, "Credential Guard kept a key from a package.", True),
        (4015, "Outgoing NTLM authentication was blocked.", True),
        (4020, "This machine authenticates to another by NTLM.", False),
        (4021, "This machine authenticates to another by NTLM, less safely.", False),
        (4022, "Another machine authenticates to this one by NTLM.", False),
        (4023, "Another machine authenticates to this one by NTLM, less safely.", False),
        (4024, "Single sign-on with credentials derived by NTLMv1.", False),
        (4025, "Single sign-on with credentials derived by NTLMv1 was blocked.", True),
        (8001, "Outgoing NTLM authentication that would be blocked.", False),
        (8002, "Incoming NTLM authentication that would be blocked.", False),
        (8003, "NTLM authentication to a server that would be blocked.", False),
    )
)
_CONTROLLER = _ntlm_rules(
    (
        *(
            (uid, "NTLM authentication to this domain controller was blocked.", True)
            for uid in (4004, 4005, 4006)
        ),
        (4030, "A domain controller checked NTLM authentication.", False),
        (4031, "A domain controller checked NTLM authentication, less safe.", False),
        (4032, "A domain controller checked NTLM authentication that was forwarded.", False),
        (4033, "It checked NTLM authentication that was forwarded, less safe.", False),
        *(
            (uid, "NTLM authentication to a domain controller that would be blocked.", False)
            for uid in (8004, 8005, 8006)
        ),
    )
)
NTLM: Mapping[str, Mapping[int, EventRule]] = MappingProxyType(
    {
        # Shippers that only know the channel name the wrong one of the two.
        "microsoft-windows-ntlm": MappingProxyType({**_CONTROLLER, **_NTLM}),
        "microsoft-windows-security-netlogon": _CONTROLLER,
        "netlogon": _NETLOGON,
    }
)
