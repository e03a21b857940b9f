"""Security log: the machine itself, its audit log and its firewall.

https://learn.microsoft.com/windows/security/threat-protection/auditing/audit-security-state-change
and the pages beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    CONFIG,
    EVENT_LOG,
    FAILURE,
    HIGH,
    LIFECYCLE,
    MEDIUM,
    MODULE,
    OTHER,
    SUCCESS,
    WIN_SERVICE,
)
from ingest.sources.windows.record import Fields, Logged, filled
from ingest.sources.windows.rule import (
    EventRule,
    Mapper,
    WindowsColumns,
    actor,
    base,
    entity,
    managed,
    managing,
    other,
    subject,
)


def _firewall_rule(fields: Fields, log: Logged) -> WindowsColumns:
    """4946 to 4948: a rule of the firewall."""
    uid, name = fields.text("RuleId"), fields.text("RuleName")
    return {
        **entity("firewall rule", name, uid),
        "firewall_rule": filled(uid=uid, name=name),
        "actor": actor(fields),
    }


def filtering(kind: str, name: str, uid: str) -> Mapper:
    """A filter, callout, provider ... of the Windows Filtering Platform."""

    def columns(fields: Fields, log: Logged) -> WindowsColumns:
        # These events have no SubjectUserName, as all others of Security do.
        who = fields.user("UserName", "", "UserSid")
        return {**entity(kind, fields.text(name), fields.text(uid)), "actor": filled(user=who)}

    return columns


def cleared(fields: Fields, log: Logged) -> WindowsColumns:
    """1102 of Security and 104 of the others: a log emptied, which log and by whom."""
    # Event 104 stands in System and names the log that was cleared; 1102 stands in that log.
    channel = fields.text("Channel") or log.channel
    more = {"log_name": channel} if channel else {}
    # Where the log was saved before it was emptied, in events that say so.
    backup = fields.text("BackupPath")
    return {
        "actor": subject(fields),
        "file": filled(path=backup),
        "severity_id": HIGH,
        "more": more,
        "status_id": SUCCESS,
    }


def _clock(fields: Fields, log: Logged) -> WindowsColumns:
    """4616: the clock set; both times stay in unmapped."""
    return {"actor": actor(fields), **entity("system time", "system time")}


def package(fields: Fields, log: Logged) -> WindowsColumns:
    """4610, 4611, 4614, 4622: a package or process that the LSA trusts with passwords.

    Written `C:\\Windows\\system32\\kerberos.DLL : Kerberos`, or as a bare name.
    """
    name = fields.peek(
        "AuthenticationPackageName",
        "NotificationPackageName",
        "SecurityPackageName",
        "LogonProcessName",
    )
    # OCSF wants a module to have a file; the package's name behind the colon stays in unmapped.
    path = (name or "unknown").partition(" : ")[0].strip()
    return {
        "module": {"file": {"path": path}},
        # At boot nobody asks for it: the LSA itself loads its packages.
        "actor": subject(fields) or {"process": {"name": "lsass.exe"}},
    }


def lsa(title: str) -> EventRule:
    """A library that the Local Security Authority loaded."""
    return EventRule(MODULE, 1, title, package)


def firewall_service(fields: Fields, log: Logged) -> WindowsColumns:
    """5024 and the like: the service of the firewall."""
    return {"win_service": {"name": "MpsSvc", "display_name": "Windows Firewall"}}


def windows(fields: Fields, log: Logged) -> WindowsColumns:
    """Windows itself as the application that starts or stops."""
    return {"more": {"app": {"name": "Windows", "vendor_name": "Microsoft"}}}


def integrity(fields: Fields, log: Logged) -> WindowsColumns:
    """5038, 6281: an image whose hash is not what it should be."""
    path = fields.text("param1", "FileName", "ImageFileName")
    return {"module": {"file": filled(path=path) or {"name": "unknown"}}, "severity_id": MEDIUM}


def _log(activity: int, title: str, **always: Any) -> EventRule:
    return EventRule(EVENT_LOG, activity, title, _log_columns, always)


def _log_columns(fields: Fields, log: Logged) -> WindowsColumns:
    return {"actor": subject(fields), "file": filled(path=fields.text("BackupPath"))}


def _firewall() -> Iterator[tuple[int, EventRule]]:
    """Changes of the firewall's rules and settings."""
    title = "A change was made to the Windows Firewall exception list."
    for uid, activity, what in (
        (4946, 1, "A rule was added."),
        (4947, 3, "A rule was modified."),
        (4948, 4, "A rule was deleted."),
    ):
        yield uid, managing(activity, f"{title} {what}", _firewall_rule)
    for uid, activity, title in (
        (4944, 2, "The following policy was active when the Windows Firewall started."),
        (4945, 2, "A rule was listed when the Windows Firewall started."),
        (4949, 3, "Windows Firewall settings were restored to the default values."),
        (4950, 3, "A Windows Firewall setting has changed."),
        (4954, 3, "Windows Firewall Group Policy settings have changed."),
        (4956, 3, "Windows Firewall has changed the active profile."),
    ):
        yield uid, managing(activity, title, _firewall_rule)
    for uid, title in (
        (4951, "A rule has been ignored because its major version number was not recognized."),
        (4952, "Parts of a rule have been ignored."),
        (4953, "A rule has been ignored because the rule could not be parsed."),
        (4957, "Windows Firewall did not apply a rule."),
        (4958, "Windows Firewall did not apply a rule: it refers to items not configured."),
    ):
        yield uid, managing(OTHER, title, _firewall_rule, status_id=FAILURE, **other("Ignore"))
    for uid, activity, title in (
        (5024, 3, "The Windows Firewall Service has started successfully."),
        (5025, 4, "The Windows Firewall Service has been stopped."),
        (5034, 4, "The Windows Firewall Driver has been stopped."),
        (5033, 3, "The Windows Firewall Driver has started successfully."),
    ):
        yield uid, EventRule(WIN_SERVICE, activity, title, firewall_service, {"status_id": SUCCESS})
    for uid, title in (
        (5027, "The Windows Firewall Service was unable to retrieve the security policy."),
        (5028, "The Windows Firewall Service was unable to parse the new security policy."),
        (5029, "The Windows Firewall Service failed to initialize the driver."),
        (5030, "The Windows Firewall Service failed to start."),
        (5035, "The Windows Firewall Driver failed to start."),
        (5037, "The Windows Firewall Driver detected a critical runtime error."),
    ):
        yield uid, EventRule(WIN_SERVICE, 3, title, firewall_service, {"status_id": FAILURE})


def _filtering() -> Iterator[tuple[int, EventRule]]:
    for uid, kind, name in (
        (5440, "callout", "Callout"),
        (5441, "filter", "Filter"),
        (5442, "provider", "Provider"),
        (5443, "provider context", "ProviderContext"),
        (5444, "sub-layer", "SubLayer"),
    ):
        title = f"A {kind} was present when the Base Filtering Engine started."
        yield uid, managing(2, title, filtering(f"WFP {kind}", f"{name}Name", f"{name}Id"))
    for uid, kind, name in (
        (5446, "callout", "Callout"),
        (5447, "filter", "Filter"),
        (5448, "provider", "Provider"),
        (5449, "provider context", "ProviderContext"),
        (5450, "sub-layer", "SubLayer"),
    ):
        title = f"A Windows Filtering Platform {kind} has been changed."
        yield uid, managing(3, title, filtering(f"WFP {kind}", f"{name}Name", f"{name}Id"))


def _named(kind: str, **always: Any) -> Mapping[str, Any]:
    return {"more": {"entity": {"type": kind, "name": kind}}, **always}


MACHINE: Mapping[int, EventRule] = MappingProxyType(
    {
        **dict(_firewall()),
        **dict(_filtering()),
        1100: _log(7, "The event logging service has shut down."),
        1101: _log(OTHER, "Audit events have been dropped by the transport.", **other("Drop")),
        # Attackers clear it to hide; the event stands as the first one of the emptied log.
        1102: EventRule(EVENT_LOG, 1, "The audit log was cleared.", cleared),
        # From here on events may be missing, so it is more than a notice.
        1104: _log(OTHER, "The security log is now full.", **other("Full"), severity_id=MEDIUM),
        1105: _log(4, "Event log automatic backup."),
        1107: _log(OTHER, "Event processing error.", **other("Error")),
        1108: _log(
            OTHER,
            "The event logging service encountered an error while processing an incoming event.",
            **other("Error"),
        ),
        4608: EventRule(LIFECYCLE, 3, "Windows is starting up.", windows),
        4609: EventRule(LIFECYCLE, 4, "Windows is shutting down.", windows),
        4610: lsa("An authentication package has been loaded by the Local Security Authority."),
        4611: lsa("A trusted logon process has been registered with the Local Security Authority."),
        4612: _log(
            OTHER,
            "Internal resources allocated for the queuing of audit messages have been exhausted.",
            **other("Drop"),
        ),
        4614: lsa("A notification package has been loaded by the Security Account Manager."),
        4615: base("Invalid use of LPC port."),
        # Also written at each synchronisation; a jump is what a rule should look for.
        4616: managing(3, "The system time was changed.", _clock),
        4618: base("A monitored security event pattern has occurred.", severity_id=MEDIUM),
        # CrashOnAuditFail stops a machine whose Security log cannot be written.
        4621: base("Administrator recovered system from CrashOnAuditFail."),
        4622: lsa("A security package has been loaded by the Local Security Authority."),
        4694: base("Protection of auditable protected data was attempted."),
        4695: base("Unprotection of auditable protected data was attempted."),
        4709: base("The IPsec Policy Agent service was started."),
        4710: base("The IPsec Policy Agent service was disabled."),
        4816: base("RPC detected an integrity violation while decrypting an incoming message."),
        # Its fields tell of test signing, which lets unsigned drivers load.
        4826: EventRule(CONFIG, 1, "Boot Configuration Data loaded.", _log_columns),
        4880: base("Certificate Services started."),
        4881: base("Certificate Services stopped."),
        4882: managing(
            3, "The security permissions for Certificate Services changed.", managed("CA security")
        ),
        4885: managing(
            3, "The audit filter for Certificate Services changed.", managed("CA audit filter")
        ),
        4890: managing(
            3,
            "The certificate manager settings for Certificate Services changed.",
            managed("CA settings"),
        ),
        4892: managing(3, "A property of Certificate Services changed.", managed("CA property")),
        # Templates decide who may get a certificate in whose name.
        4898: managing(
            2,
            "Certificate Services loaded a template.",
            managed("certificate template", ("TemplateDSObjectFQDN", "TemplateInternalName")),
        ),
        4899: managing(
            3,
            "A Certificate Services template was updated.",
            managed("certificate template", ("TemplateDSObjectFQDN", "TemplateInternalName")),
        ),
        4900: managing(
            3,
            "Certificate Services template security was updated.",
            managed("certificate template", ("TemplateDSObjectFQDN", "TemplateInternalName")),
        ),
        # A source that is no known domain controller is how DCShadow looks.
        4928: base("An Active Directory replica source naming context was established."),
        4929: base("An Active Directory replica source naming context was removed."),
        4932: base("Synchronization of a replica of an Active Directory naming context has begun."),
        4933: base("Synchronization of a replica of an Active Directory naming context has ended."),
        5038: EventRule(
            MODULE,
            1,
            "Code integrity determined that the image hash of a file is not valid.",
            integrity,
            {"status_id": FAILURE},
        ),
        5056: base("A cryptographic self test was performed."),
        5058: managing(
            OTHER, "Key file operation.", managed("key file", ("KeyName",)), **other("Operate")
        ),
        5059: managing(
            OTHER, "Key migration operation.", managed("key", ("KeyName",)), **other("Migrate")
        ),
        5061: managing(
            OTHER, "Cryptographic operation.", managed("key", ("KeyName",)), **other("Operate")
        ),
        5478: base("IPsec Services has started successfully."),
        5479: base("IPsec Services has been shut down successfully."),
        6144: managing(
            3,
            "Security policy in the group policy objects has been applied successfully.",
            managed("group policy"),
        ),
        6145: managing(
            3,
            "Errors occurred while processing security policy in the group policy objects.",
            managed("group policy"),
            status_id=FAILURE,
        ),
        6281: EventRule(
            MODULE,
            1,
            "Code Integrity determined that the page hashes of an image file are not valid.",
            integrity,
            {"status_id": FAILURE},
        ),
        6410: EventRule(
            MODULE,
            1,
            "Code integrity determined that a file does not meet the security requirements to "
            "load into a process.",
            integrity,
            {"status_id": FAILURE},
        ),
    }
)
