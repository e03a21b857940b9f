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
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    Columns,
    Mapper,
    Rule,
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

LOGON, LOGOFF, TICKET, SERVICE_TICKET, RENEW, PREAUTH = 1, 2, 3, 4, 5, 6
FAILED = {"status_id": FAILURE}
DONE = {"status_id": SUCCESS}


def logon(fields: Fields, log: Logged) -> Columns:
    """4624, 4625 and what looks like them: who logged on to this machine, from where."""
    found = merged(logon_type(fields), auth(fields.text("AuthenticationPackageName")))
    found |= {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "actor": actor(fields),
        "src_endpoint": source(fields),
        "dst_endpoint": here(log),
    }
    if log.event_id == 4625:
        found |= _failure(fields)
    return found


def _failure(fields: Fields) -> Columns:
    """Why a logon failed: the finer of its two codes. Both stay for rules that ask for them."""
    codes = (whole(fields.peek(name)) for name in ("SubStatus", "Status"))
    code = next((one for one in codes if one), None)
    if code is None:
        return {}
    return {"status_code": status_code(code), "status_detail": NTSTATUS.get(code)}


def explicit(fields: Fields, log: Logged) -> Columns:
    """4648: somebody used the credentials of another account, often on another machine."""
    who = target(fields)
    server = fields.text("TargetServerName")
    if server and server.lower() == "localhost":
        fields.left["TargetServerName"], server = server, log.computer
    return {
        "user": who,
        "actor": actor(fields),
        "src_endpoint": source(fields),
        "dst_endpoint": filled(hostname=server or log.computer),
    }


def logoff(fields: Fields, log: Logged) -> Columns:
    """4634 and 4647: whose session ended."""
    return logon_type(fields) | {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "dst_endpoint": here(log),
    }


def privileges(fields: Fields, log: Logged) -> Columns:
    """4672: rights a new session got."""
    who = subject(fields) or {}
    return {
        "user": who.get("user"),
        "session": who.get("session"),
        "privileges": names(fields.text("PrivilegeList")),
    }


def groups(fields: Fields, log: Logged) -> Columns:
    """4627 and 4964: groups of a new session."""
    member_of = names(fields.peek("GroupMembership", "SidList"))
    who = target(fields)
    sids = [one.strip("%{}") for one in member_of or ()]
    if who is not None and sids:
        fields.text("GroupMembership", "SidList")
        who["groups"] = sids
    return {
        "user": who or (subject(fields) or {}).get("user"),
        "actor": subject(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "group": {"uid": sids[0]} if sids else None,
    }


def kerberos(fields: Fields, log: Logged) -> Columns:
    """4768 to 4773: a ticket asked of this domain controller."""
    name = fields.text("ServiceName")
    found: Columns = {
        "user": target(fields),
        "service": filled(name=name, uid=fields.text("ServiceSid", "ServiceId")),
        "src_endpoint": source(fields),
        "dst_endpoint": here(log),
        "is_remote": True,
    }
    code = whole(fields.peek("Status", "FailureCode", "ResultCode"))
    if code is not None:
        fields.text("Status", "FailureCode", "ResultCode")
        found["status_id"] = FAILURE if code else SUCCESS
        found["status_code"] = status_code(code)
        found["status_detail"] = KERBEROS.get(code) or NTSTATUS.get(code)
    return merged(auth("Kerberos"), found)


def ntlm(fields: Fields, log: Logged) -> Columns:
    """4776 and 4777: credentials checked by this machine, as NTLM knows them."""
    who = fields.user("TargetUserName", "TargetDomainName")
    workstation = fields.text("Workstation", "WorkstationName")
    found: Columns = {
        "user": who or fields.user("LogonAccount"),
        "src_endpoint": filled(hostname=workstation.lstrip("\\") if workstation else None),
        "dst_endpoint": here(log),
        "is_remote": True,
    }
    code = whole(fields.peek("Status", "ErrorCode"))
    if code is not None:
        fields.text("Status", "ErrorCode")
        found["status_id"] = FAILURE if code else SUCCESS
        found["status_code"] = status_code(code)
        found["status_detail"] = NTSTATUS.get(code)
    return merged(auth(fields.peek("PackageName") or "NTLM"), found)


def session(fields: Fields, log: Logged) -> Columns:
    """4778, 4779: a window station left and come back to, mostly over RDP."""
    return {
        "user": fields.user("AccountName", "AccountDomain"),
        "actor": filled(session=filled(uid=fields.logon("LogonID", "LogonId"))),
        "src_endpoint": source(fields, "ClientAddress", "", "ClientName"),
        "dst_endpoint": here(log),
    }


def workstation(fields: Fields, log: Logged) -> Columns:
    """4800 to 4803: the screen locked, unlocked, saved."""
    return {
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId"), terminal=fields.text("SessionId")),
        "dst_endpoint": here(log),
    }


def denied_rdp(fields: Fields, log: Logged) -> Columns:
    """4825: not allowed to log on through Remote Desktop."""
    return {
        "user": fields.user("AccountName", "AccountDomain"),
        "session": filled(uid=fields.logon("LogonID", "LogonId")),
        "src_endpoint": source(fields, "ClientAddress", "", ""),
        "dst_endpoint": here(log),
        "is_remote": True,
        "logon_type_id": 10,
    }


def radius(fields: Fields, log: Logged) -> Columns:
    """6272 to 6279: what the Network Policy Server decided; the client sits behind a NAS."""
    calling = fields.peek("CallingStationID")
    end = {"mac": mac_address(calling), "ip": address(calling) if calling else None}
    if any(end.values()):
        end["uid"] = fields.text("CallingStationID")
    machine = fields.user("SubjectMachineName", "", "SubjectMachineSID")
    if machine:
        end["hostname"] = machine["name"]
        if machine["uid"]:
            fields.left["SubjectMachineSID"] = machine["uid"]
    reason = fields.text("ReasonCode")
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


def replayed(fields: Fields, log: Logged) -> Columns:
    """4649: an authentication seen twice."""
    return logon(fields, log) | {"severity_id": HIGH}


def credentials_denied(fields: Fields, log: Logged) -> Columns:
    """5378: delegation of credentials that policy forbids."""
    who = subject(fields) or {}
    name = fields.text("TargetServer")
    return {
        "user": who.get("user"),
        "session": who.get("session"),
        "service": filled(name=name),
        "dst_endpoint": here(log),
    }


def _rule(activity: int, title: str, columns: Mapper, **always: Any) -> Rule:
    return authentication(activity, title, columns, **always)


LOGONS: Mapping[int, Rule] = MappingProxyType(
    {
        4624: _rule(LOGON, "An account was successfully logged on.", logon, **DONE),
        4625: _rule(LOGON, "An account failed to log on.", logon, **FAILED),
        4626: _rule(LOGON, "User/Device claims information.", logon),
        4627: Rule(AUTHORIZATION, 2, "Group membership information.", groups),
        4634: _rule(LOGOFF, "An account was logged off.", logoff, **DONE),
        4646: _rule(OTHER, "IKE DoS-prevention mode started.", logon, **other("IKE")),
        4647: _rule(LOGOFF, "User initiated logoff.", logoff, **DONE),
        4648: _rule(LOGON, "A logon was attempted using explicit credentials.", explicit),
        4649: _rule(OTHER, "A replay attack was detected.", replayed, **other("Replay")),
        4672: Rule(AUTHORIZATION, 1, "Special privileges assigned to new logon.", privileges),
        4675: _rule(LOGON, "SIDs were filtered.", logon),
        4768: _rule(TICKET, "A Kerberos authentication ticket (TGT) was requested.", kerberos),
        4769: _rule(SERVICE_TICKET, "A Kerberos service ticket was requested.", kerberos),
        4770: _rule(RENEW, "A Kerberos service ticket was renewed.", kerberos),
        4771: _rule(PREAUTH, "Kerberos pre-authentication failed.", kerberos, **FAILED),
        4772: _rule(TICKET, "A Kerberos authentication ticket request failed.", kerberos, **FAILED),
        4773: _rule(
            SERVICE_TICKET, "A Kerberos service ticket request failed.", kerberos, **FAILED
        ),
        4774: _rule(OTHER, "An account was mapped for logon.", ntlm, **other("Map Account")),
        4775: _rule(
            OTHER,
            "An account could not be mapped for logon.",
            ntlm,
            **FAILED,
            **other("Map Account"),
        ),
        4776: _rule(
            LOGON, "The computer attempted to validate the credentials for an account.", ntlm
        ),
        4777: _rule(
            LOGON,
            "The domain controller failed to validate the credentials for an account.",
            ntlm,
            **FAILED,
        ),
        4778: Rule(RDP, 8, "A session was reconnected to a Window Station.", session, DONE),
        4779: Rule(RDP, 7, "A session was disconnected from a Window Station.", session, DONE),
        4800: _rule(OTHER, "The workstation was locked.", workstation, **other("Lock")),
        4801: _rule(OTHER, "The workstation was unlocked.", workstation, **other("Unlock")),
        4802: _rule(
            OTHER, "The screen saver was invoked.", workstation, **other("Screen Saver Start")
        ),
        4803: _rule(
            OTHER, "The screen saver was dismissed.", workstation, **other("Screen Saver Stop")
        ),
        4820: _rule(
            TICKET,
            "A Kerberos ticket-granting ticket was denied: the device does not meet the "
            "access control restrictions.",
            kerberos,
            **FAILED,
        ),
        4821: _rule(
            SERVICE_TICKET,
            "A Kerberos service ticket was denied: the user, device or both do not meet the "
            "access control restrictions.",
            kerberos,
            **FAILED,
        ),
        4822: _rule(
            LOGON,
            "NTLM authentication failed: the account is a member of Protected Users.",
            ntlm,
            **FAILED,
        ),
        4823: _rule(
            LOGON,
            "NTLM authentication failed: access control restrictions are required.",
            ntlm,
            **FAILED,
        ),
        4824: _rule(
            PREAUTH,
            "Kerberos preauthentication failed: the account is a member of Protected Users.",
            kerberos,
            **FAILED,
        ),
        4825: _rule(LOGON, "A user was denied the access to Remote Desktop.", denied_rdp, **FAILED),
        4964: Rule(AUTHORIZATION, 2, "Special groups have been assigned to a new logon.", groups),
        5378: _rule(
            OTHER,
            "The requested credentials delegation was disallowed by policy.",
            credentials_denied,
            **FAILED,
            **other("Delegate Credentials"),
        ),
        5632: _rule(LOGON, "A request was made to authenticate to a wireless network.", logon),
        5633: _rule(LOGON, "A request was made to authenticate to a wired network.", logon),
        6272: _rule(LOGON, "Network Policy Server granted access to a user.", radius, **DONE),
        6273: _rule(LOGON, "Network Policy Server denied access to a user.", radius, **FAILED),
        6274: _rule(
            LOGON, "Network Policy Server discarded the request for a user.", radius, **FAILED
        ),
        6276: _rule(LOGON, "Network Policy Server quarantined a user.", radius),
        6277: _rule(
            LOGON, "Network Policy Server granted access to a user on probation.", radius, **DONE
        ),
        6278: _rule(LOGON, "Network Policy Server granted full access to a user.", radius, **DONE),
        6279: _rule(
            LOGON,
            "Network Policy Server locked the user account due to repeated failed attempts.",
            radius,
            **FAILED,
        ),
    }
)
