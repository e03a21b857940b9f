"""Security log: logons, sessions, Kerberos and NTLM.

https://learn.microsoft.com/windows/security/threat-protection/auditing/audit-logon and the
pages beside it, one for each event id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    AUTHORIZATION,
    FAILURE,
    HIGH,
    OTHER,
    RDP,
    SUCCESS,
    address,
    mac_address,
)
from ingest.sources.windows.codes import KERBEROS, NTSTATUS, status_code
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    EventRule,
    Mapper,
    WindowsColumns,
    actor,
    auth,
    authentication,
    here,
    logon_type,
    merged,
    names,
    other,
    source,
    subject,
    target,
)

# Activities of OCSF's Authentication (3002).
_LOGON, _LOGOFF, _TICKET, _SERVICE_TICKET, _RENEW, _PREAUTH = 1, 2, 3, 4, 5, 6
_FAILED = {"status_id": FAILURE}
_DONE = {"status_id": SUCCESS}


def _logon(fields: Fields, log: Logged) -> WindowsColumns:
    """4624, 4625 and what looks like them: who logged on to this machine, from where."""
    columns = merged(logon_type(fields), auth(fields.text("AuthenticationPackageName")))
    columns |= {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "actor": actor(fields),
        "src_endpoint": source(fields),
        "dst_endpoint": here(log),
    }
    # 4624 has no codes: a logon that succeeded needs no reason.
    if log.event_id == 4625:
        columns |= _failure(fields)
    return columns


def _failure(fields: Fields) -> WindowsColumns:
    """Why a logon failed: the finer of its two codes. Both stay for rules that ask for them."""
    codes = (whole(fields.peek(name)) for name in ("SubStatus", "Status"))
    # A `SubStatus` of 0 says nothing more than `Status`.
    code = next((code_word for code_word in codes if code_word), None)
    if code is None:
        return {}
    return {"status_code": each(status_code, code), "status_detail": each(NTSTATUS.get, code)}


def explicit(fields: Fields, log: Logged) -> WindowsColumns:
    """4648: somebody used the credentials of another account, often on another machine."""
    who = target(fields)
    server = fields.text("TargetServerName")
    # Windows writes `localhost` for this machine, which is no name to search for.
    if server and server.lower() == "localhost":
        fields.left["TargetServerName"], server = server, log.computer
    return {
        "user": who,
        "actor": actor(fields),
        "src_endpoint": source(fields),
        "dst_endpoint": filled(hostname=server or log.computer),
    }


def logoff(fields: Fields, log: Logged) -> WindowsColumns:
    """4634 and 4647: whose session ended."""
    return logon_type(fields) | {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "dst_endpoint": here(log),
    }


def privileges(fields: Fields, log: Logged) -> WindowsColumns:
    """4672: rights a new session got."""
    who = subject(fields) or {}
    return {
        "user": who.get("user"),
        "session": who.get("session"),
        "privileges": names(fields.text("PrivilegeList")),
    }


def groups(fields: Fields, log: Logged) -> WindowsColumns:
    """4627 and 4964: groups of a new session."""
    member_of = names(fields.peek("GroupMembership", "SidList"))
    who = target(fields)
    # Groups come as `%{S-1-5-32-544}`: Windows resolves them only when somebody reads the event.
    sids = [] if member_of is None else each(_bare_sids, member_of)
    if who is not None and sids:
        # The list stays as it was: rules look for `%{S-1-5-32-544}`.
        who["groups"] = sids
    return {
        "user": who or (subject(fields) or {}).get("user"),
        "actor": subject(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "group": {"uid": sids[0]} if sids else None,
    }


def _bare_sids(member_of: list[str]) -> list[str]:
    return [name.strip("%{}") for name in member_of]


def _kerberos(fields: Fields, log: Logged) -> WindowsColumns:
    """4768 to 4773: a ticket asked of this domain controller."""
    name = fields.text("ServiceName")
    ticket_columns: WindowsColumns = {
        "user": target(fields),
        "service": filled(name=name, uid=fields.text("ServiceSid", "ServiceId")),
        "src_endpoint": source(fields),
        "dst_endpoint": here(log),
        "is_remote": True,
    }
    # One field under three names: it changed with Windows' versions and with the event.
    code = whole(fields.peek("Status", "FailureCode", "ResultCode"))
    if code is not None:
        fields.text("Status", "FailureCode", "ResultCode")
        ticket_columns["status_id"] = FAILURE if code else SUCCESS
        ticket_columns["status_code"] = status_code(code)
        # A small number is a code of Kerberos (RFC 4120, 7.5.9), a large one an NTSTATUS.
        ticket_columns["status_detail"] = KERBEROS.get(code) or NTSTATUS.get(code)
    return merged(auth("Kerberos"), ticket_columns)


def _ntlm(fields: Fields, log: Logged) -> WindowsColumns:
    """4776 and 4777: credentials checked by this machine, as NTLM knows them."""
    who = fields.user("TargetUserName", "TargetDomainName")
    # The client writes its own name here: it may be empty, or one that does not exist.
    workstation = fields.text("Workstation", "WorkstationName")
    results: WindowsColumns = {
        "user": who or fields.user("LogonAccount"),
        "src_endpoint": filled(hostname=workstation.lstrip("\\") if workstation else None),
        "dst_endpoint": here(log),
        "is_remote": True,
    }
    code = whole(fields.peek("Status", "ErrorCode"))
    if code is not None:
        fields.text("Status", "ErrorCode")
        results["status_id"] = FAILURE if code else SUCCESS
        results["status_code"] = status_code(code)
        results["status_detail"] = NTSTATUS.get(code)
    return merged(auth(fields.peek("PackageName") or "NTLM"), results)


def _session(fields: Fields, log: Logged) -> WindowsColumns:
    """4778, 4779: a window station left and come back to, mostly over RDP."""
    return {
        "user": fields.user("AccountName", "AccountDomain"),
        "actor": filled(session=filled(uid=fields.logon("LogonID", "LogonId"))),
        "src_endpoint": source(fields, "ClientAddress", "", "ClientName"),
        "dst_endpoint": here(log),
    }


def workstation(fields: Fields, log: Logged) -> WindowsColumns:
    """4800 to 4803: the screen locked, unlocked, saved."""
    return {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId"), terminal=fields.text("SessionId")),
        "dst_endpoint": here(log),
    }


def denied_rdp(fields: Fields, log: Logged) -> WindowsColumns:
    """4825: not allowed to log on through Remote Desktop."""
    return {
        "user": fields.user("AccountName", "AccountDomain"),
        "session": filled(uid=fields.logon("LogonID", "LogonId")),
        "src_endpoint": source(fields, "ClientAddress", "", ""),
        "dst_endpoint": here(log),
        "is_remote": True,
        "logon_type_id": 10,
    }


def _radius(fields: Fields, log: Logged) -> WindowsColumns:
    """6272 to 6279: what the Network Policy Server decided; the client sits behind a NAS."""
    calling = fields.peek("CallingStationID")
    end = {"mac": mac_address(calling), "ip": address(calling) if calling else None}
    if any(end.values()):
        # Only where it is an address: a calling station may also be a telephone number.
        end["uid"] = fields.text("CallingStationID")
    machine = fields.user("SubjectMachineName", "", "SubjectMachineSID")
    if machine:
        end["hostname"] = machine.get("name")
        if machine.get("uid"):
            fields.left["SubjectMachineSID"] = machine["uid"]
    reason = fields.text("ReasonCode")
    # On wireless and dial-in this is a port of the device, not of TCP; so it stays readable.
    port = fields.port("NASPort")
    if port:
        fields.left["NASPort"] = str(port)
    protocol = fields.text("EAPType", "AuthenticationType")
    return merged(
        auth(protocol),
        {
            "user": fields.user("SubjectUserName", "SubjectDomainName", "SubjectUserSid"),
            "src_endpoint": filled(**end),
            "dst_endpoint": filled(
                hostname=fields.text("NASIdentifier", "ClientName"),
                ip=fields.ip("NASIPv4Address", "ClientIPAddress", "NASIPv6Address"),
            )
            or here(log),
            "session": filled(uid=fields.text("AccountSessionIdentifier")),
            "status_code": reason if reason != "0" else None,
            "status_detail": fields.text("Reason"),
            "is_remote": True,
        },
    )


def replayed(fields: Fields, log: Logged) -> WindowsColumns:
    """4649: an authentication seen twice."""
    # A replayed authentication is an attack or a badly wrong clock.
    return _logon(fields, log) | {"severity_id": HIGH}


def credentials_denied(fields: Fields, log: Logged) -> WindowsColumns:
    """5378: delegation of credentials that policy forbids."""
    who = subject(fields) or {}
    name = fields.text("TargetServer")
    return {
        "user": who.get("user"),
        "session": who.get("session"),
        "service": filled(name=name),
        "dst_endpoint": here(log),
    }


def _rule(activity: int, title: str, columns: Mapper, **always: Any) -> EventRule:
    return authentication(activity, title, columns, **always)


LOGONS: Mapping[int, EventRule] = MappingProxyType(
    {
        4624: _rule(_LOGON, "An account was successfully logged on.", _logon, **_DONE),
        4625: _rule(_LOGON, "An account failed to log on.", _logon, **_FAILED),
        4626: _rule(_LOGON, "User/Device claims information.", _logon),
        4627: EventRule(AUTHORIZATION, 2, "Group membership information.", groups),
        4634: _rule(_LOGOFF, "An account was logged off.", logoff, **_DONE),
        4646: _rule(OTHER, "IKE DoS-prevention mode started.", _logon, **other("IKE")),
        4647: _rule(_LOGOFF, "User initiated logoff.", logoff, **_DONE),
        4648: _rule(_LOGON, "A logon was attempted using explicit credentials.", explicit),
        4649: _rule(OTHER, "A replay attack was detected.", replayed, **other("Replay")),
        4672: EventRule(AUTHORIZATION, 1, "Special privileges assigned to new logon.", privileges),
        4675: _rule(_LOGON, "SIDs were filtered.", _logon),
        4768: _rule(_TICKET, "A Kerberos authentication ticket (TGT) was requested.", _kerberos),
        4769: _rule(_SERVICE_TICKET, "A Kerberos service ticket was requested.", _kerberos),
        4770: _rule(_RENEW, "A Kerberos service ticket was renewed.", _kerberos),
        4771: _rule(_PREAUTH, "Kerberos pre-authentication failed.", _kerberos, **_FAILED),
        4772: _rule(
            _TICKET, "A Kerberos authentication ticket request failed.", _kerberos, **_FAILED
        ),
        4773: _rule(
            _SERVICE_TICKET, "A Kerberos service ticket request failed.", _kerberos, **_FAILED
        ),
        4774: _rule(OTHER, "An account was mapped for logon.", _ntlm, **other("Map Account")),
        4775: _rule(
            OTHER,
            "An account could not be mapped for logon.",
            _ntlm,
            **_FAILED,
            **other("Map Account"),
        ),
        4776: _rule(
            _LOGON, "The computer attempted to validate the credentials for an account.", _ntlm
        ),
        4777: _rule(
            _LOGON,
            "The domain controller failed to validate the credentials for an account.",
            _ntlm,
            **_FAILED,
        ),
        4778: EventRule(RDP, 8, "A session was reconnected to a Window Station.", _session, _DONE),
        4779: EventRule(
            RDP, 7, "A session was disconnected from a Window Station.", _session, _DONE
        ),
        4800: _rule(OTHER, "The workstation was locked.", workstation, **other("Lock")),
        4801: _rule(OTHER, "The workstation was unlocked.", workstation, **other("Unlock")),
        4802: _rule(
            OTHER, "The screen saver was invoked.", workstation, **other("Screen Saver Start")
        ),
        4803: _rule(
            OTHER, "The screen saver was dismissed.", workstation, **other("Screen Saver Stop")
        ),
        4820: _rule(
            _TICKET,
            "A Kerberos ticket-granting ticket was denied: the device does not meet the "
            "access control restrictions.",
            _kerberos,
            **_FAILED,
        ),
        4821: _rule(
            _SERVICE_TICKET,
            "A Kerberos service ticket was denied: the user, device or both do not meet the "
            "access control restrictions.",
            _kerberos,
            **_FAILED,
        ),
        4822: _rule(
            _LOGON,
            "NTLM authentication failed: the account is a member of Protected Users.",
            _ntlm,
            **_FAILED,
        ),
        4823: _rule(
            _LOGON,
            "NTLM authentication failed: access control restrictions are required.",
            _ntlm,
            **_FAILED,
        ),
        4824: _rule(
            _PREAUTH,
            "Kerberos preauthentication failed: the account is a member of Protected Users.",
            _kerberos,
            **_FAILED,
        ),
        4825: _rule(
            _LOGON, "A user was denied the access to Remote Desktop.", denied_rdp, **_FAILED
        ),
        4964: EventRule(
            AUTHORIZATION, 2, "Special groups have been assigned to a new logon.", groups
        ),
        5378: _rule(
            OTHER,
            "The requested credentials delegation was disallowed by policy.",
            credentials_denied,
            **_FAILED,
            **other("Delegate Credentials"),
        ),
        5632: _rule(_LOGON, "A request was made to authenticate to a wireless network.", _logon),
        5633: _rule(_LOGON, "A request was made to authenticate to a wired network.", _logon),
        6272: _rule(_LOGON, "Network Policy Server granted access to a user.", _radius, **_DONE),
        6273: _rule(_LOGON, "Network Policy Server denied access to a user.", _radius, **_FAILED),
        6274: _rule(
            _LOGON, "Network Policy Server discarded the request for a user.", _radius, **_FAILED
        ),
        6276: _rule(_LOGON, "Network Policy Server quarantined a user.", _radius),
        6277: _rule(
            _LOGON, "Network Policy Server granted access to a user on probation.", _radius, **_DONE
        ),
        6278: _rule(
            _LOGON, "Network Policy Server granted full access to a user.", _radius, **_DONE
        ),
        6279: _rule(
            _LOGON,
            "Network Policy Server locked the user account due to repeated failed attempts.",
            _radius,
            **_FAILED,
        ),
    }
)
