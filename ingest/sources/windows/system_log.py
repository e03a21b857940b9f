"""The System and Application logs: services, the machine, drivers, crashes, installations.

The data of these classic events mostly has no names, or only param1, param2 and so on.
https://learn.microsoft.com/previous-versions/windows/it-pro/windows-server-2008-R2-and-2008/cc756336(v=ws.10)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    APPLICATION_ERROR,
    AUTHENTICATION,
    BASE,
    EVENT_LOG,
    FAILURE,
    FILE,
    HIGH,
    LIFECYCLE,
    MEDIUM,
    OTHER,
    PERIPHERAL,
    REG_KEY,
    SUCCESS,
    WIN_SERVICE,
)
from ingest.sources.windows.codes import SERVICE_TYPES, START_TYPES
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.record import Fields, Logged, filled, split_account
from ingest.sources.windows.rule import (
    EventRule,
    Mapper,
    WindowsColumns,
    base,
    here,
    managing,
    nothing,
    other,
)
from ingest.sources.windows.rule import entity as entity_of
from ingest.sources.windows.security_system import cleared

_CREATE, RECONFIGURE, _START, STOP = 1, 2, 3, 4


# -- services ----------------------------------------------------------------------------------


def installed(fields: Fields, log: Logged) -> WindowsColumns:
    """7045: a service installed, with the file it runs."""
    # Named in the event's XML, param1 and so on where a shipper sends the bare values.
    start, kind = fields.text("StartType", "param4"), fields.text("ServiceType", "param3")
    return {
        "win_service": {
            "name": fields.text("ServiceName", "param1") or "unknown",
            "cmd_line": fields.text("ImagePath", "ServiceFileName", "param2"),
            "type": SERVICE_TYPES.get(kind, kind) if kind else None,
            "start_type": START_TYPES.get(start, start) if start else None,
            "start_name": fields.text("AccountName", "param5"),
        }
    }


_STATES: Mapping[str, int] = MappingProxyType(
    # The word is the machine's language: English and German are known.
    {"running": 3, "stopped": 4, "paused": 5, "wird ausgeführt": 3, "beendet": 4}
)


def _state(fields: Fields, log: Logged) -> WindowsColumns:
    """7036: a service entered a state, named in the language of the machine."""
    now = fields.peek("param2")
    activity = _STATES.get((now or "").lower(), OTHER)
    # A word of a language that is not known here stays for people to read.
    if activity != OTHER:
        fields.text("param2")
    return {"activity_id": activity, "win_service": _service(fields)}


def _service(fields: Fields) -> WindowsColumns:
    return {"name": fields.text("param1", "ServiceName") or "unknown"}


def control(fields: Fields, log: Logged) -> WindowsColumns:
    """7035: somebody sent a service a control."""
    sent = (fields.peek("param2") or "").lower()
    activity = {"start": 3, "stop": 4, "pause": 5, "continue": 6}.get(sent, OTHER)
    return {"activity_id": activity, "win_service": _service(fields)}


def start_type(fields: Fields, log: Logged) -> WindowsColumns:
    """7040: when a service starts, before (kept in unmapped) and now."""
    display = fields.text("param1")
    # param1 is the name people see; the short one is param4, where the event has it.
    name = fields.text("param4") or display or "unknown"
    return {
        "win_service": {
            "name": name,
            "display_name": display if display != name else None,
            "start_type": fields.text("param3"),
        }
    }


def service(fields: Fields, log: Logged) -> WindowsColumns:
    """A service that failed, with its error in unmapped."""
    return {"win_service": _service(fields)}


def _manager() -> Iterator[tuple[int, EventRule]]:
    failed = {"status_id": FAILURE}
    for uid, activity, title in (
        (7000, 3, "A service failed to start."),
        (7001, 3, "A service depends on another which failed to start."),
        (7003, 3, "A service depends on another that does not exist."),
        (7009, 3, "A timeout was reached while waiting for a service to connect."),
        (7011, 3, "A timeout was reached while waiting for a response from a service."),
        (7022, 3, "A service hung on starting."),
        (7023, 4, "A service terminated with an error."),
        (7024, 4, "A service terminated with a service-specific error."),
        (7026, 3, "Boot-start or system-start drivers failed to load."),
        (7030, 3, "A service is marked as interactive, which the system does not allow."),
        (7031, 4, "A service terminated unexpectedly; a corrective action follows."),
        (7032, 3, "A corrective action after the termination of a service failed."),
        (7034, 4, "A service terminated unexpectedly."),
        (7038, 3, "A service was unable to log on."),
        (7041, 3, "A service was unable to log on: the right was not granted."),
        (7043, 4, "A service did not shut down properly."),
    ):
        yield uid, EventRule(WIN_SERVICE, activity, title, service, failed)


SERVICES: Mapping[int, EventRule] = MappingProxyType(
    {
        **dict(_manager()),
        7035: EventRule(
            WIN_SERVICE, OTHER, "A service was sent a control.", control, other("Control")
        ),
        7036: EventRule(WIN_SERVICE, OTHER, "A service entered a state.", _state),
        7040: EventRule(
            WIN_SERVICE, RECONFIGURE, "The start type of a service was changed.", start_type
        ),
        7042: EventRule(WIN_SERVICE, STOP, "A service was successfully sent a control.", service),
        7045: EventRule(WIN_SERVICE, _CREATE, "A service was installed in the system.", installed),
    }
)


# -- the machine -------------------------------------------------------------------------------


def shutdown(fields: Fields, log: Logged) -> WindowsColumns:
    """1074: who asked for a restart, by which process, and why (in unmapped)."""
    name = fields.text("param7")
    user = None
    if name:
        bare, domain = split_account(name)
        user = filled(name=bare, domain=domain)
    # `C:\\Windows\\System32\\shutdown.exe (WS01)`: the machine behind the path.
    path = (fields.peek("param1") or "").rpartition(" (")[0] or fields.text("param1")
    return {
        "actor": filled(user=user, process=filled(path=path)),
        "status_detail": fields.text("param3"),
        "more": {"app": {"name": "Windows", "vendor_name": "Microsoft"}},
    }


def machine(fields: Fields, log: Logged) -> WindowsColumns:
    """Windows itself as what starts and stops."""
    return {"more": {"app": {"name": "Windows", "vendor_name": "Microsoft"}}}


def _machine(activity: int, title: str, columns: Mapper = machine, **always: Any) -> EventRule:
    return EventRule(LIFECYCLE, activity, title, columns, always)


def log_service(fields: Fields, log: Logged) -> WindowsColumns:
    """6005 and the like: the event log itself."""
    return {"more": {"log_name": log.channel or "System"}}


def _clock(fields: Fields, log: Logged) -> WindowsColumns:
    """Kernel-General 1: the clock was set."""
    return entity_of("system time", "system time")


def hive(fields: Fields, log: Logged) -> WindowsColumns:
    """Kernel-General 16: a hive's history of access was cleared, as after it was saved."""
    return {"reg_key": {"path": fields.text("HiveName") or "unknown"}}


def driver(fields: Fields, log: Logged) -> WindowsColumns:
    """20001, 20003 of UserPnp and 2003, 2100 of DriverFrameworks: a device plugged in."""
    uid = fields.text("DeviceInstanceID", "DeviceInstanceId", "InstanceId", "lifetime", "instance")
    name = fields.text("DriverDescription", "ServiceName", "Model")
    return {
        "more": {
            "peripheral_device": filled(
                name=name or uid or "unknown",
                uid=uid,
                vendor_name=fields.text("DriverProvider", "Manufacturer"),
            )
        }
    }


EVENTLOG: Mapping[int, EventRule] = MappingProxyType(
    {
        104: EventRule(EVENT_LOG, 1, "A log file was cleared.", cleared, {"severity_id": MEDIUM}),
        105: EventRule(EVENT_LOG, 4, "Event log automatic backup.", cleared, {"severity_id": 1}),
        6005: EventRule(EVENT_LOG, 6, "The Event log service was started.", log_service),
        6006: EventRule(EVENT_LOG, 7, "The Event log service was stopped.", log_service),
        # Written at the next start, so its time is not when the machine went down.
        6008: _machine(4, "The previous system shutdown was unexpected.", severity_id=HIGH),
        6009: _machine(3, "Windows version at boot time."),
        6011: base("The machine's name was changed."),
        6013: base("The system uptime."),
    }
)
MACHINE: Mapping[str, Mapping[int, EventRule]] = MappingProxyType(
    {
        "eventlog": EVENTLOG,
        "user32": MappingProxyType(
            {
                1073: _machine(OTHER, "An attempt to restart or shut down failed.", shutdown),
                1074: _machine(5, "A process has initiated a restart or shutdown.", shutdown),
                1075: _machine(OTHER, "A restart or shutdown was aborted.", shutdown),
                1076: _machine(OTHER, "The reason for an unexpected shutdown.", shutdown),
            }
        ),
        "microsoft-windows-kernel-power": MappingProxyType(
            {
                41: _machine(
                    3,
                    "The system has rebooted without cleanly shutting down first.",
                    severity_id=HIGH,
                ),
                # Sleep and resume explain a silence that would look like a source that stopped.
                42: _machine(OTHER, "The system is entering sleep.", **other("Sleep")),
                107: _machine(OTHER, "The system has resumed from sleep.", **other("Resume")),
                109: _machine(4, "The kernel power manager has initiated a shutdown transition."),
            }
        ),
        "microsoft-windows-kernel-general": MappingProxyType(
            {
                1: managing(3, "The system time has changed.", _clock),
                12: _machine(3, "The operating system started."),
                13: _machine(4, "The operating system is shutting down."),
                16: EventRule(
                    REG_KEY,
                    OTHER,
                    "The access history in a hive was cleared.",
                    hive,
                    other("Clear History"),
                ),
            }
        ),
        "microsoft-windows-userpnp": MappingProxyType(
            {
                20001: EventRule(
                    PERIPHERAL,
                    1,
                    "Driver Management concluded the process to install a driver.",
                    driver,
                ),
                20003: EventRule(
                    PERIPHERAL,
                    1,
                    "Driver Management has concluded the process to add a service.",
                    driver,
                ),
            }
        ),
        "microsoft-windows-driverframeworks-usermode": MappingProxyType(
            {
                2003: EventRule(PERIPHERAL, 1, "A device was connected.", driver),
                2100: EventRule(PERIPHERAL, OTHER, "A device got a power operation.", driver),
                2102: EventRule(PERIPHERAL, 2, "A device was disconnected.", driver),
            }
        ),
        "microsoft-windows-kernel-pnp": MappingProxyType(
            {
                400: EventRule(PERIPHERAL, 1, "A device was configured.", driver),
                410: EventRule(PERIPHERAL, 1, "A device was started.", driver),
            }
        ),
    }
)


# -- applications ------------------------------------------------------------------------------


_CRASH = (
    *("AppName", "AppVersion", "AppTimeStamp", "ModuleName", "ModuleVersion", "ModuleTimeStamp"),
    *("ExceptionCode", "FaultingOffset", "ProcessId", "ProcessCreationTime", "AppPath"),
    "ModulePath",
)
"""How Windows 11 names what those before it only put in this order."""


def _with_base(number: str) -> str:
    return number if number[:2].lower() == "0x" else f"0x{number}"


def crashed(fields: Fields, log: Logged) -> WindowsColumns:
    """1000 and 1002: an application that failed or hung."""
    if log.event_id == 1000:
        for number, named in enumerate(_CRASH, 1):
            value = fields.peek(f"param{number}")
            if value is not None:
                # In hexadecimal also where nothing says so.
                value = each(_with_base, value) if named == "ProcessId" else value
                fields.left.setdefault(named, value)
    path = fields.text("AppPath", "param6")
    name = fields.peek("AppName", "param1")
    run = filled(path=path or name, pid=fields.pid("ProcessId"))
    code = fields.text("ExceptionCode") if log.event_id == 1000 else None
    return {
        "actor": filled(process=run),
        "status_code": code,
        "status_detail": fields.peek("ModuleName") if log.event_id == 1000 else None,
    }


def reported(fields: Fields, log: Logged) -> WindowsColumns:
    """1001 and 1026: what Windows Error Reporting or .NET says of a crash."""
    return {"actor": filled(process=filled(path=fields.peek("AppPath")))}


def product(fields: Fields, log: Logged) -> WindowsColumns:
    """Windows Installer: which product; its event has `Data` without names."""
    text = fields.peek("param1", "ProductName")
    name = (text or "unknown").partition("--")[0].removeprefix("Product:").strip()
    named = log.event_id in (1033, 1034, 1035, 1036, 1037, 1038)
    version = fields.peek("param2") if named else None
    app = filled(name=name or "unknown", version=version)
    code = fields.peek("param4") if named else None
    results: WindowsColumns = {"more": {"app": app}}
    if code is not None and code.isdecimal():
        # 3010 and 1641: done, and the machine must be or is being restarted.
        results["status_id"] = SUCCESS if code in ("0", "3010", "1641") else FAILURE
        results["status_code"] = code
    return results


def database(fields: Fields, log: Logged) -> WindowsColumns:
    """ESENT 216, 325 to 327: a database such as ntds.dit made, attached, detached."""
    texts = [fields.peek(f"param{index}") for index in range(1, 8)]
    # Where the path stands differs from event to event: it is told by its looks.
    path = next(
        (
            text_value
            for text_value in texts
            if text_value and "\\" in text_value and "." in text_value
        ),
        None,
    )
    return {"file": {"path": path or "unknown", "type_id": 1}}


def sql_login(fields: Fields, log: Logged) -> WindowsColumns:
    """MSSQL 18453 to 18456: a login; the client stands as `[CLIENT: 10.0.0.1]`."""
    # 18456 has the reason as param2, logins that succeed have the client there.
    client = fields.peek("param3", "param2") or ""
    ip = Fields({"ip": client.rpartition("CLIENT: ")[2].rstrip("] ")}).ip("ip")
    name, domain = split_account(fields.peek("param1") or "")
    return {
        "user": filled(name=name or None, domain=domain),
        "src_endpoint": filled(ip=ip),
        "dst_endpoint": here(log),
        "service": {"name": log.provider},
        "is_remote": None if ip is None else True,
        "status_id": FAILURE if log.event_id == 18456 else SUCCESS,
    }


def _app(activity: int, title: str, **always: Any) -> EventRule:
    return EventRule(LIFECYCLE, activity, title, product, always)


_ERROR = {"severity_id": HIGH}
APPLICATIONS: Mapping[str, Mapping[int, EventRule]] = MappingProxyType(
    {
        "application error": MappingProxyType(
            {1000: EventRule(APPLICATION_ERROR, 1, "Faulting application.", crashed, _ERROR)}
        ),
        "application hang": MappingProxyType(
            {
                1002: EventRule(
                    APPLICATION_ERROR, 1, "A program stopped interacting.", crashed, _ERROR
                )
            }
        ),
        "windows error reporting": MappingProxyType(
            {1001: EventRule(APPLICATION_ERROR, 1, "A fault was reported.", reported)}
        ),
        ".net runtime": MappingProxyType(
            {1026: EventRule(APPLICATION_ERROR, 1, "An unhandled exception.", reported, _ERROR)}
        ),
        "msiinstaller": MappingProxyType(
            {
                1022: _app(8, "An update was installed.", status_id=SUCCESS),
                1033: _app(1, "Windows Installer installed the product."),
                1034: _app(2, "Windows Installer removed the product."),
                1035: _app(8, "Windows Installer reconfigured the product."),
                1036: _app(8, "Windows Installer installed an update."),
                1040: _app(OTHER, "Beginning a Windows Installer transaction.", **other("Begin")),
                1042: _app(OTHER, "Ending a Windows Installer transaction.", **other("End")),
                11707: _app(1, "Installation operation completed.", status_id=SUCCESS),
                11708: _app(1, "Installation operation failed.", status_id=FAILURE),
                11724: _app(2, "Removal completed successfully.", status_id=SUCCESS),
                11725: _app(2, "Removal failed.", status_id=FAILURE),
                11728: _app(8, "Configuration completed successfully.", status_id=SUCCESS),
            }
        ),
        "esent": MappingProxyType(
            {
                216: EventRule(FILE, 5, "A database location change was detected.", database),
                325: EventRule(FILE, 1, "The database engine created a new database.", database),
                326: EventRule(FILE, 14, "The database engine attached a database.", database),
                327: EventRule(FILE, OTHER, "The database engine detached a database.", database),
            }
        ),
        "mssqlserver": MappingProxyType(
            {
                uid: EventRule(AUTHENTICATION, 1, title, sql_login)
                for uid, title in (
                    (18453, "Login succeeded using Windows authentication."),
                    (18454, "Login succeeded using SQL Server authentication."),
                    (18455, "Login succeeded."),
                    (18456, "Login failed for user."),
                )
            }
        ),
        "volsnap": MappingProxyType(
            {33: EventRule(BASE, 0, "A shadow copy was deleted.", nothing)}
        ),
    }
)
