"""Operational logs: tasks, terminal sessions, BITS, WMI, firewall.

Each is named by its provider, under https://learn.microsoft.com/windows/ .
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ingest.parsing.ocsf import API, AUTHENTICATION, FAILURE, HTTP, JOB, MODULE, OTHER, RDP, SUCCESS
from ingest.sources.windows.codes import status_code
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import (
    EventRule,
    Mapper,
    WindowsColumns,
    account,
    entity,
    here,
    managed,
    managing,
    other,
    process,
    source,
)

# -- Task Scheduler ----------------------------------------------------------------------------


def _task(fields: Fields, log: Logged) -> WindowsColumns:
    """A task and, where it ran, what it ran."""
    path = fields.text("Path", "ActionName")
    user = account(fields, "UserContext", "UserName")
    pid = fields.pid("ProcessID", "ProcessId", "EnginePID")
    # Stays as it was: here it is decimal, in the column it is not.
    code = whole(fields.peek("ResultCode"))
    return {
        "job": {"name": fields.text("TaskName", "Name") or "unknown", "cmd_line": path},
        "actor": filled(user=user, process=filled(pid=pid)),
        "status_code": status_code(code) if code else None,
        "status_id": None if code is None else FAILURE if code else SUCCESS,
    }


def _tasks() -> Iterator[tuple[int, EventRule]]:
    # Activities of OCSF's Scheduled Job Activity (1006): 1 create, 2 update, 3 delete, 5 disable, 6
    # start.
    for uid, activity, title, name in (
        (100, 6, "Task Scheduler started a task.", ""),
        (101, OTHER, "Task Scheduler failed to start a task.", "Start"),
        (102, OTHER, "Task Scheduler successfully finished a task.", "Finish"),
        (103, OTHER, "Task Scheduler failed to start an action of a task.", "Start"),
        (106, 1, "A task was registered.", ""),
        (107, 6, "Task Scheduler launched a task due to a time trigger.", ""),
        (108, 6, "Task Scheduler launched a task due to an event trigger.", ""),
        (109, 6, "Task Scheduler launched a task due to a registration trigger.", ""),
        (110, 6, "Task Scheduler launched a task for a user.", ""),
        (111, OTHER, "Task Scheduler terminated a task.", "Terminate"),
        (114, OTHER, "Task Scheduler could not launch a task at its time.", "Start"),
        (117, 6, "Task Scheduler launched a task due to an idle condition.", ""),
        (118, 6, "Task Scheduler launched a task due to system startup.", ""),
        (119, 6, "Task Scheduler launched a task due to a user's logon.", ""),
        (129, 6, "Task Scheduler launched a task in a process.", ""),
        (140, 2, "A task was updated.", ""),
        (141, 3, "A task was deleted.", ""),
        (142, 5, "A task was disabled.", ""),
        (200, 6, "Task Scheduler launched an action of a task.", ""),
        (201, OTHER, "Task Scheduler successfully completed a task's action.", "Finish"),
        (202, OTHER, "Task Scheduler failed to complete a task's action.", "Finish"),
        (203, OTHER, "Task Scheduler failed to launch an action of a task.", "Start"),
        (322, OTHER, "Task Scheduler did not launch a task: it already runs.", "Start"),
        (325, OTHER, "Task Scheduler queued a task.", "Queue"),
        (328, OTHER, "Task Scheduler stopped a task.", "Stop"),
        (329, OTHER, "Task Scheduler terminated a task that ran too long.", "Terminate"),
        (330, OTHER, "Task Scheduler stopped a task for a user.", "Stop"),
    ):
        always: dict[str, Any] = dict(other(name)) if name else {}
        if uid in (101, 103, 114, 202, 203, 322):
            always["status_id"] = FAILURE
        yield uid, EventRule(JOB, activity, title, _task, always)


# -- terminal sessions -------------------------------------------------------------------------


def terminal(fields: Fields, log: Logged) -> WindowsColumns:
    """21 to 25, 39, 40 of the Local Session Manager: `Address` is the client or LOCAL."""
    local = fields.peek("Address") == "LOCAL"
    end = source(fields, "Address", "", "")
    results: WindowsColumns = {
        "user": account(fields, "User"),
        "src_endpoint": end,
        "dst_endpoint": here(log),
    }
    if log.event_id in (21, 22, 23, 41, 42):
        results["session"] = filled(uid=fields.text("SessionID", "SessionId"))
        if log.event_id in (21, 22):
            results["is_remote"] = False if local else True if end else None
            results["logon_type_id"] = 2 if local else 10 if end else None
    return results


def rdp_login(fields: Fields, log: Logged) -> WindowsColumns:
    """1149: a user authenticated to the RDP listener, which is not yet a session."""
    return {
        "user": fields.user("Param1", "Param2") or fields.user("param1", "param2"),
        "src_endpoint": source(fields, "Param3", "", "") or source(fields, "param3", "", ""),
        "dst_endpoint": here(log),
        "is_remote": True,
        "logon_type_id": 10,
    }


def _rdp(fields: Fields, log: Logged) -> WindowsColumns:
    """98 to 140, 261 and 1158: a connection to the RDP listener; its address may have a port."""
    names = ("ClientIP", "IPString", "Param1", "param1")
    text = fields.peek(*names)
    host, _, port = (text or "").rpartition(":")
    parts = Fields({"ip": host, "port": port, "alone": text or ""})
    ip = parts.ip("ip")
    end = filled(ip=ip, port=parts.port("port")) if ip else filled(ip=parts.ip("alone"))
    # Behind a % stands the zone of an address, which has no column.
    if end and text and "%" not in text:
        fields.text(*names)
    return {"src_endpoint": end, "dst_endpoint": here(log)}


def termdd(fields: Fields, log: Logged) -> WindowsColumns:
    """50 and 56: the client that the security layer threw out; its data has no names."""
    return {
        "src_endpoint": filled(ip=Fields({"ip": fields.peek("param2") or ""}).ip("ip")),
        "dst_endpoint": here(log),
    }


def gateway(fields: Fields, log: Logged) -> WindowsColumns:
    """200 to 304 of the Remote Desktop Gateway: a user, a client and the machine behind it."""
    far = fields.text("Resource")
    ip = Fields({"ip": far or ""}).ip("ip")
    code = whole(fields.peek("ErrorCode"))
    if code:
        fields.text("ErrorCode")
    policy = log.event_id in (200, 201, 300, 301)
    user = account(fields, "Username", "UserName")
    return {
        **({"user": user} if policy else {"actor": filled(user=user)}),
        "src_endpoint": source(fields, "IpAddress", "", ""),
        "dst_endpoint": (filled(ip=ip) if ip else filled(hostname=far)) or here(log),
        "traffic": filled(
            bytes_in=fields.number("BytesReceived"),
            # Windows itself spells it with one r.
            bytes_out=fields.number("BytesTransfered", "BytesTransferred"),
        )
        if log.event_id == 303
        else None,
        "status_code": str(code) if code else None,
        "is_remote": True if policy else None,
    }


def rdp_client(fields: Fields, log: Logged) -> WindowsColumns:
    """1024 and 1102 of the RDP client: where somebody connected to."""
    name = fields.text("Value", "param1")
    ip = Fields({"ip": name or ""}).ip("ip")
    return {
        "src_endpoint": here(log),
        "dst_endpoint": filled(ip=ip) if ip else filled(hostname=name),
    }


# -- BITS and WMI ------------------------------------------------------------------------------


def bits_job(fields: Fields, log: Logged) -> WindowsColumns:
    """3 and 4: a job made or finished."""
    owner = account(fields, "jobOwner", "string2", "User")
    run = process(fields, "processPath", "processId")
    return {
        "job": {"name": fields.text("jobTitle", "string", "name") or "unknown"},
        "actor": filled(user=owner, process=run),
    }


def _transfer(fields: Fields, log: Logged) -> WindowsColumns:
    """59 to 61: what a job fetches."""
    url = fields.text("url", "remoteName", "RemoteName")
    try:
        # It raises for brackets and ports that cannot be, and a remote name may be anything.
        parts = urlsplit(url or "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    status = whole(fields.peek("hr"))
    size = fields.number("bytesTransferred")
    return {
        "http_request": {
            "http_method": "GET",
            "url": filled(
                url_string=url,
                hostname=host,
                port=port,
                path=parts.path or None,
                query_string=parts.query or None,
                scheme=parts.scheme or None,
            )
            if url
            else None,
        },
        "src_endpoint": here(log),
        "dst_endpoint": filled(hostname=host, port=port),
        "traffic": filled(bytes_in=size),
        "status_id": None if status is None else FAILURE if status else SUCCESS,
        "status_code": status_code(status) if status else None,
    }


def wmi_provider(fields: Fields, log: Logged) -> WindowsColumns:
    """5857: a provider of WMI loaded into a host process."""
    path = fields.text("ProviderPath")
    name = fields.text("HostProcess")
    return {
        "module": {"file": filled(path=path, name=None if path else "unknown")},
        "actor": filled(process=filled(path=name, pid=fields.pid("ProcessID", "ProcessId"))),
    }


def wmi_failed(fields: Fields, log: Logged) -> WindowsColumns:
    """5858: an operation of WMI that failed: which, for whom, from which machine."""
    code = whole(fields.peek("ResultCode"))
    if code is not None:
        fields.text("ResultCode")
    machine = fields.text("ClientMachine")
    return {
        "api": {
            "operation": fields.text("Operation") or "unknown",
            "service": {"name": "WMI"},
        },
        "actor": filled(
            user=account(fields, "User"), process=filled(pid=fields.pid("ClientProcessId"))
        ),
        "src_endpoint": filled(hostname=machine or log.computer),
        "status_id": FAILURE,
        "status_code": status_code(code) if code is not None else None,
        "status_detail": fields.text("PossibleCause"),
    }


def wmi_subscription(fields: Fields, log: Logged) -> WindowsColumns:
    """5859 to 5861: an event subscription, for a session or for good."""
    name = fields.text("ESS", "Query", "queryName")
    pid = fields.pid("processid", "ClientProcessID", "Processid")
    return {
        **entity("WMI event subscription", name),
        "actor": filled(user=account(fields, "User"), process=filled(pid=pid)),
    }


# -- firewall ----------------------------------------------------------------------------------


def _firewall_rule(fields: Fields, log: Logged) -> WindowsColumns:
    """2004 to 2006 and their successors: a rule of the firewall, and who changed it."""
    uid, name = fields.text("RuleId"), fields.text("RuleName")
    user = fields.user("ModifyingUser")
    return {
        **entity("firewall rule", name, uid),
        "firewall_rule": filled(uid=uid, name=name),
        "actor": filled(user=user, process=process(fields, "ModifyingApplication", "")),
    }


def _firewall() -> Iterator[tuple[int, EventRule]]:
    made = "A rule has been added to the Windows Firewall exception list."
    changed = "A rule has been modified in the Windows Firewall exception list."
    gone = "A rule has been deleted in the Windows Firewall exception list."
    for activity, title, uids in (
        (1, made, (2004, 2071, 2097)),
        (3, changed, (2005, 2073, 2099)),
        (4, gone, (2006, 2052)),
    ):
        for uid in uids:
            yield uid, managing(activity, title, _firewall_rule)
    yield (
        2033,
        managing(4, "All rules have been deleted from the Windows Firewall.", _firewall_rule),
    )
    yield (
        2059,
        managing(4, "All rules have been deleted from the Windows Firewall.", _firewall_rule),
    )
    for uid in (2002, 2003, 2008, 2009, 2010, 2032, 2060, 2082, 2083):
        yield (
            uid,
            managing(3, "A Windows Firewall setting has changed.", managed("firewall setting")),
        )


def _job(activity: int, title: str, columns: Mapper, **always: Any) -> EventRule:
    return EventRule(JOB, activity, title, columns, always)


def _gateway() -> Iterator[tuple[int, EventRule]]:
    for uid, title, done in (
        (200, "A user met the policy of connections.", SUCCESS),
        (201, "A user did not meet the policy of connections.", FAILURE),
        (300, "A user met the policy of machines.", SUCCESS),
        (301, "A user did not meet the policy of machines.", FAILURE),
    ):
        always = {"status_id": done, **other("Authorize")}
        yield uid, EventRule(AUTHENTICATION, OTHER, title, gateway, always)
    for uid, activity, title, result in (
        (302, 3, "A user connected to a machine.", SUCCESS),
        (303, 7, "A user disconnected from a machine.", SUCCESS),
        (304, 3, "A user could not connect to a machine.", FAILURE),
    ):
        yield uid, EventRule(RDP, activity, title, gateway, {"status_id": result})


REMOTE_DONE = {"status_id": SUCCESS}
_FAILED = {"status_id": FAILURE}
ARBITRATION = other("Arbitration")
TERMDD = (
    (50, "The protocol detected an error and disconnected the client."),
    (56, "The security layer detected an error and disconnected the client."),
)
OPERATIONAL: Mapping[str, Mapping[int, EventRule]] = MappingProxyType(
    {
        "microsoft-windows-taskscheduler": MappingProxyType(dict(_tasks())),
        "microsoft-windows-terminalservices-localsessionmanager": MappingProxyType(
            {
                21: EventRule(AUTHENTICATION, 1, "Session logon succeeded.", terminal, REMOTE_DONE),
                22: EventRule(
                    AUTHENTICATION,
                    OTHER,
                    "Shell start notification received.",
                    terminal,
                    other("Shell Start"),
                ),
                23: EventRule(
                    AUTHENTICATION, 2, "Session logoff succeeded.", terminal, REMOTE_DONE
                ),
                24: EventRule(RDP, 7, "Session has been disconnected.", terminal),
                25: EventRule(RDP, 8, "Session reconnection succeeded.", terminal, REMOTE_DONE),
                39: EventRule(RDP, 7, "A session has been disconnected by another.", terminal),
                40: EventRule(RDP, 7, "A session has been disconnected, for a reason.", terminal),
                41: EventRule(RDP, OTHER, "Session arbitration began.", terminal, ARBITRATION),
                42: EventRule(RDP, OTHER, "Session arbitration ended.", terminal, ARBITRATION),
            }
        ),
        "termdd": MappingProxyType(
            {uid: EventRule(RDP, 7, title, termdd, _FAILED) for uid, title in TERMDD}
        ),
        "microsoft-windows-terminalservices-gateway": MappingProxyType(dict(_gateway())),
        "microsoft-windows-terminalservices-remoteconnectionmanager": MappingProxyType(
            {
                261: EventRule(RDP, 1, "A listener received a connection.", _rdp),
                1158: EventRule(RDP, 3, "A connection was accepted from an address.", _rdp),
                1149: EventRule(
                    AUTHENTICATION, 1, "User authentication succeeded.", rdp_login, REMOTE_DONE
                ),
            }
        ),
        "microsoft-windows-remotedesktopservices-rdpcorets": MappingProxyType(
            {
                98: EventRule(RDP, 3, "A TCP connection has been established.", _rdp),
                102: EventRule(RDP, 7, "The server has terminated the main connection.", _rdp),
                103: EventRule(RDP, 7, "The disconnect reason.", _rdp),
                131: EventRule(RDP, 3, "The server accepted a new connection from a client.", _rdp),
                139: EventRule(
                    RDP, 7, "The security layer detected an error in the protocol.", _rdp, _FAILED
                ),
                140: EventRule(
                    RDP,
                    4,
                    "A connection failed: the user name or password is not correct.",
                    _rdp,
                    _FAILED,
                ),
            }
        ),
        "microsoft-windows-terminalservices-clientactivexcore": MappingProxyType(
            {
                1024: EventRule(
                    RDP, 3, "The RDP client is trying to connect to a server.", rdp_client
                ),
                1102: EventRule(RDP, 3, "The RDP client has initiated a connection.", rdp_client),
            }
        ),
        "microsoft-windows-bits-client": MappingProxyType(
            {
                3: _job(1, "The BITS service created a new job.", bits_job),
                4: _job(OTHER, "The transfer job is complete.", bits_job, **other("Complete")),
                5: _job(3, "A BITS job was cancelled.", bits_job),
                59: EventRule(HTTP, 3, "BITS started a transfer job.", _transfer),
                60: EventRule(HTTP, 3, "BITS stopped transferring a job.", _transfer),
                61: EventRule(HTTP, 3, "BITS stopped transferring a job with an error.", _transfer),
                16403: _job(1, "The BITS service created a new job.", bits_job),
            }
        ),
        "microsoft-windows-wmi-activity": MappingProxyType(
            {
                5857: EventRule(MODULE, 1, "A WMI provider started.", wmi_provider),
                5858: EventRule(
                    API, OTHER, "A WMI operation failed.", wmi_failed, other("Execute")
                ),
                5859: managing(1, "A WMI subscription was started.", wmi_subscription),
                5860: managing(1, "A temporary WMI event subscription was made.", wmi_subscription),
                5861: managing(1, "A permanent WMI event subscription was made.", wmi_subscription),
            }
        ),
        "microsoft-windows-windows firewall with advanced security": MappingProxyType(
            dict(_firewall())
        ),
    }
)
