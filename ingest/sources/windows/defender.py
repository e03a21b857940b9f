"""Microsoft Defender Antivirus, AppLocker, Code Integrity, and the checks of certificates (CAPI2).

https://learn.microsoft.com/defender-endpoint/troubleshoot-microsoft-defender-antivirus
https://learn.microsoft.com/windows/security/application-security/application-control/
https://learn.microsoft.com/previous-versions/windows/it-pro/windows-vista/cc749296(v=ws.10)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    API,
    CRITICAL,
    FAILURE,
    FINDING,
    HIGH,
    INFORMATIONAL,
    LIFECYCLE,
    LOW,
    MEDIUM,
    MODULE,
    OTHER,
    PROCESS,
    SCAN,
    SCRIPT,
    SUCCESS,
)
from ingest.sources.windows.record import Fields, Logged, filled, whole
from ingest.sources.windows.rule import EventRule, WindowsColumns, entity, here, managing, other

_SEVERITIES: Mapping[str, int] = MappingProxyType(
    {"low": LOW, "moderate": MEDIUM, "medium": MEDIUM, "high": HIGH, "severe": CRITICAL}
)
SEVERITY_IDS: Mapping[str, int] = MappingProxyType(
    {"1": LOW, "2": MEDIUM, "4": HIGH, "5": CRITICAL}
)
_DISPOSITIONS: Mapping[str, int] = MappingProxyType(
    {
        "quarantine": 3,
        "remove": 5,
        "delete": 5,
        "clean": 99,
        "block": 2,
        "allow": 1,
        "no action": 16,
    }
)
_PRODUCT = {"name": "Microsoft Defender Antivirus", "vendor_name": "Microsoft"}


def spaced(*names: str) -> tuple[str, ...]:
    """Defender's names have spaces, for which some shippers write nothing or `_`."""
    return tuple(
        part for name in names for part in (name, name.replace(" ", "_"), name.replace(" ", ""))
    )


def _detection(fields: Fields, log: Logged) -> WindowsColumns:
    """1006 to 1009 and 1116 to 1119: malware, in what, through which process."""
    name = fields.text(*spaced("Threat Name", "ThreatName"))
    uid = fields.text(*spaced("Threat ID"))
    kind = fields.text(*spaced("Category Name"))
    # The word is in the machine's language, the number is not; so the number is the fallback.
    graded = fields.peek(*spaced("Severity Name"))
    by_id = SEVERITY_IDS.get(fields.peek(*spaced("Severity ID")) or "")
    path = fields.peek(*spaced("Path"))
    action = (fields.peek(*spaced("Action Name")) or "").lower()
    # `Detection User` is who touched the file; `User` stands in where it is not there.
    user = fields.user(next((n for n in spaced("Detection User") if fields.peek(n)), "User"))
    run = fields.text(*spaced("Process Name"))
    code = whole(fields.peek(*spaced("Error Code")))
    return {
        "finding_info": filled(
            title=name or "Malware",
            uid=fields.text(*spaced("Detection ID")) or uid or log.record_id or "unknown",
            types=[kind] if kind else None,
            src_url=fields.text(*spaced("FWLink")),
            analytic=filled(uid=uid, name=name, type_id=1) if uid else None,
        ),
        "severity_id": _SEVERITIES.get((graded or "").lower()) or by_id,
        "file": _file(path),
        "process": filled(path=run),
        "actor": filled(user=user),
        "disposition_id": _DISPOSITIONS.get(action),
        # 0 is Windows' word for no error, and no code of a failure.
        "status_code": f"0x{code:08X}" if code else None,
    }


def _file(path: str | None) -> WindowsColumns | None:
    """The first of `file:_C:\\a.exe; process:_pid:42`."""
    if path is None:
        return None
    first = path.partition(";")[0].strip()
    # Defender puts the kind of a resource before its path.
    for kind in ("containerfile:_", "file:_", "amsi:_", "webfile:_"):
        first = first.removeprefix(kind)
    # Behind `|` stands what is inside of a container, or where a file came from.
    first = first.partition("|")[0]
    return {"path": first, "type_id": 1} if first else None


def application(fields: Fields, log: Logged) -> WindowsColumns:
    """5000 to 5013, 2000 to 2014: the product itself."""
    return {"more": {"app": dict(_PRODUCT)}, "actor": _user(fields)}


def setting(fields: Fields, log: Logged) -> WindowsColumns:
    """5007, 5013: a setting changed, or kept from change; both values stay in unmapped."""
    # A setting that was removed has no new value, only an old one.
    value = fields.peek(*spaced("New Value", "Value")) or fields.peek(*spaced("Old Value"))
    name = (value or "").partition(" = ")[0].strip()
    return {**entity("Defender setting", name or None), "actor": _user(fields)}


def _history(fields: Fields, log: Logged) -> WindowsColumns:
    """1013: the history of detections deleted."""
    return {**entity("detection history", "detection history"), "actor": _user(fields)}


def scanned(fields: Fields, log: Logged) -> WindowsColumns:
    """1000 to 1005: a scan."""
    about = filled(uid=fields.text(*spaced("Scan ID")), name=fields.text(*spaced("Scan Type"))) or {
        "name": "scan"
    }
    return {"more": {"scan": {"type_id": 0, **about}}, "actor": _user(fields)}


def _user(fields: Fields) -> WindowsColumns | None:
    return filled(user=fields.user("User", "Domain", "SID"))


def blocked(fields: Fields, log: Logged) -> WindowsColumns:
    """1121, 1122: attack surface reduction: what a process was kept from."""
    path = fields.text(*spaced("Path"))
    return {
        "finding_info": {
            "title": "Attack surface reduction",
            "uid": fields.text("ID") or "unknown",
        },
        "file": filled(path=path),
        "process": filled(
            path=fields.text(*spaced("Process Name")), cmd_line=fields.text("Commandline")
        ),
        "actor": _user(fields),
    }


def _findings() -> Iterator[tuple[int, EventRule]]:
    for uid, title, always in (
        (1006, "The antimalware engine found malware.", {}),
        (1007, "Action was taken against malware.", {"status_id": SUCCESS}),
        (1008, "An action against malware failed.", {"status_id": FAILURE}),
        (1009, "An item was restored from quarantine.", {}),
        (1015, "Suspicious behavior was detected.", {}),
        (1116, "Malware or other potentially unwanted software was detected.", {}),
        (1117, "Action was taken to protect this machine from malware.", {"status_id": SUCCESS}),
        (1118, "A non-critical error occurred on action against malware.", {"status_id": FAILURE}),
        (1119, "A critical error occurred on action against malware.", {"status_id": FAILURE}),
    ):
        # An action is an update of the finding that 1006 or 1116 made.
        activity = 2 if uid in (1007, 1008, 1009, 1117, 1118, 1119) else 1
        yield uid, EventRule(FINDING, activity, title, _detection, always)
    for uid, title in (
        (1121, "A rule blocked an action."),
        (1122, "A rule audited an action."),
        (1123, "Controlled folder access blocked a change."),
        (1124, "Controlled folder access audited a change."),
        (1125, "Network protection audited a connection."),
        (1126, "Network protection blocked a connection."),
    ):
        # The others only audit: what they name did happen.
        act = {"disposition_id": 2, "action_id": 2} if uid in (1121, 1123, 1126) else {}
        yield uid, EventRule(FINDING, 1, title, blocked, act)


def _product() -> Iterator[tuple[int, EventRule]]:
    for uid, activity, title, severity, status in (
        (2000, 8, "The signature definitions were updated.", INFORMATIONAL, SUCCESS),
        (2001, 8, "The update of the signature definitions failed.", MEDIUM, FAILURE),
        (2002, 8, "The antimalware engine was updated.", INFORMATIONAL, SUCCESS),
        (2003, 8, "The update of the antimalware engine failed.", MEDIUM, FAILURE),
        (3002, 7, "Real-time protection encountered an error and failed.", HIGH, FAILURE),
        (5000, 6, "Real-time protection is enabled.", INFORMATIONAL, SUCCESS),
        (5001, 7, "Real-time protection is disabled.", HIGH, SUCCESS),
        (5004, 8, "The real-time protection configuration changed.", MEDIUM, SUCCESS),
        (5008, 4, "The antimalware engine encountered an error and failed.", HIGH, FAILURE),
        (5009, 6, "Scanning for malware is enabled.", INFORMATIONAL, SUCCESS),
        (5010, 7, "Scanning for malware is disabled.", HIGH, SUCCESS),
        (5011, 6, "Scanning for viruses is enabled.", INFORMATIONAL, SUCCESS),
        (5012, 7, "Scanning for viruses is disabled.", HIGH, SUCCESS),
        (5100, 7, "The product will expire.", MEDIUM, SUCCESS),
        (5101, 7, "The product has expired.", HIGH, SUCCESS),
    ):
        always = {"severity_id": severity, "status_id": status}
        yield uid, EventRule(LIFECYCLE, activity, title, application, always)
    for uid, activity, title in (
        (1000, 1, "A scan started."),
        (1001, 2, "A scan finished."),
        (1002, 3, "A scan was stopped before it finished."),
        (1003, 5, "A scan was paused."),
        (1004, 6, "A scan was resumed."),
        (1005, 7, "A scan failed."),
    ):
        yield uid, EventRule(SCAN, activity, title, scanned)
    yield 1013, managing(4, "The history of malware was deleted.", _history)
    yield 5007, managing(3, "The configuration has changed.", setting, severity_id=LOW)
    yield (
        5013,
        managing(
            3,
            "Tamper protection blocked a change.",
            setting,
            severity_id=HIGH,
            action_id=2,
            disposition_id=2,
            status_id=FAILURE,
        ),
    )


DEFENDER: Mapping[int, EventRule] = MappingProxyType({**dict(_findings()), **dict(_product())})


# -- AppLocker and Code Integrity --------------------------------------------------------------


def applocker(fields: Fields, log: Logged) -> WindowsColumns:
    """8002 to 8007 and 8020 to 8025: a program or script that a rule let run or not."""
    path = fields.text("FullFilePath") or fields.text("FilePath", "Package")
    # Other lengths are no SHA-256 and stay as they are.
    value = (fields.peek("FileHash") or "").removeprefix("0x")
    hashes = [{"algorithm": "SHA-256", "value": value.lower()}] if len(value) == 64 else None
    if hashes:
        fields.text("FileHash")
    user = fields.user("TargetUser")
    rule = filled(uid=fields.guid("RuleId"), name=fields.text("RuleName"))
    session = filled(uid=fields.logon("TargetLogonId"))
    pid = fields.pid("TargetProcessId")
    results = {"firewall_rule": rule, "actor": filled(user=user, session=session)}
    # 8005 to 8007 name the script; the process is its interpreter.
    if 8005 <= log.event_id <= 8007:
        return results | {
            "class_uid": SCRIPT,
            "script": {"path": path, "type_id": 0},
            "actor": filled(**(results["actor"] or {}), process=filled(pid=pid)),
        }
    run = filled(path=path, pid=pid, hashes=hashes, user=user)
    return results | {"process": run or {"name": "unknown"}}


def image(fields: Fields, log: Logged) -> WindowsColumns:
    """3001 to 3090: a file that did not meet, or would not meet, the signing demanded."""
    path = fields.text("FileNameBuffer", *spaced("File Name"), "FileName", "param1")
    run = fields.text("ProcessNameBuffer", *spaced("Process Name"), "ProcessName")
    return {
        "module": {"file": {"path": path or "unknown", "type_id": 1}},
        "actor": filled(process=filled(path=run)),
    }


def mitigated(fields: Fields, log: Logged) -> WindowsColumns:
    """5 to 8, 11 and 12 of exploit protection: an image that a process may not load."""
    path, pid = fields.text("ProcessPath"), fields.pid("CallingProcessId", "ProcessId")
    line = fields.text("ProcessCommandLine")
    return {
        "module": {"file": {"path": fields.text("ImageName") or "unknown", "type_id": 1}},
        "actor": filled(process=filled(path=path, cmd_line=line, pid=pid)),
    }


def _verdict(word: str) -> dict[str, Any]:
    if word == "allowed":
        return {"action_id": 1, "disposition_id": 1, "status_id": SUCCESS}
    if word == "blocked":
        return {"action_id": 2, "disposition_id": 2, "status_id": FAILURE, "severity_id": MEDIUM}
    return {"action_id": 3, "disposition_id": 17, "severity_id": LOW}


def _applocker() -> Iterator[tuple[int, EventRule]]:
    titles = {
        "allowed": "was allowed to run.",
        "audited": "was allowed to run but would have been prevented.",
        "blocked": "was prevented from running.",
    }
    for first, kind in ((8002, "A program"), (8005, "A script"), (8020, "A packaged app")):
        for index, word in enumerate(("allowed", "audited", "blocked")):
            yield (
                first + index,
                EventRule(PROCESS, 1, f"{kind} {titles[word]}", applocker, _verdict(word)),
            )
    for index, word in enumerate(("allowed", "audited", "blocked")):
        title = f"The installation of a packaged app {titles[word]}"
        yield (
            8023 + index,
            EventRule(PROCESS, OTHER, title, applocker, {**_verdict(word), **other("Install")}),
        )


def _integrity(title: str, word: str) -> EventRule:
    return EventRule(MODULE, 1, title, image, _verdict(word))


APPLOCKER: Mapping[int, EventRule] = MappingProxyType(dict(_applocker()))
CODE_INTEGRITY: Mapping[int, EventRule] = MappingProxyType(
    {
        3001: _integrity("An unsigned kernel module was loaded.", "audited"),
        3002: _integrity("The page hashes of a file could not be found.", "blocked"),
        3003: _integrity("The page hashes of a file could not be found.", "audited"),
        3004: _integrity("The image hash of a file could not be found.", "blocked"),
        3010: _integrity("A file's hash is on the list of revoked.", "blocked"),
        3023: _integrity("A driver is blocked: its certificate is revoked.", "blocked"),
        3033: _integrity(
            "A process tried to load a file that is not signed as required.", "blocked"
        ),
        3034: _integrity("A process would not be allowed to load a file.", "audited"),
        3063: _integrity("A file does not meet the requirements of its section.", "blocked"),
        3064: _integrity("A file would not meet the requirements of its section.", "audited"),
        3065: _integrity("A file would not meet the requirements of its section.", "audited"),
        3066: _integrity("A file would not meet the signing level required.", "audited"),
        3076: _integrity("A file would have been blocked by policy.", "audited"),
        3077: _integrity("A file was blocked by policy.", "blocked"),
        3104: _integrity("A file was blocked by policy.", "blocked"),
    }
)
MITIGATIONS: Mapping[int, EventRule] = MappingProxyType(
    {
        first + step: EventRule(MODULE, 1, f"{title} {words}", mitigated, _verdict(verdict))
        for first, title in (
            (5, "An image of low integrity"),
            (7, "An image from another machine"),
            (11, "An image that Microsoft did not sign"),
        )
        for step, words, verdict in (
            (0, "would have been kept from loading.", "audited"),
            (1, "was kept from loading.", "blocked"),
        )
    }
)


# -- certificates and signatures (CAPI2) ------------------------------------------------------

_CALLS = (
    (10, "CertGetCertificateChain", "A certificate chain is being built."),
    (11, "CertGetCertificateChain", "A certificate chain was built."),
    (30, "CertVerifyCertificateChainPolicy", "A certificate chain was held against a policy."),
    (40, "CertVerifyRevocation", "It is being asked whether a certificate was revoked."),
    (41, "CertVerifyRevocation", "It was asked whether a certificate was revoked."),
    (42, "CertRejectedRevocationInfo", "An answer about revocation was refused."),
    (50, "CryptRetrieveObjectByUrlCache", "An object is being fetched from the cache."),
    (51, "CryptRetrieveObjectByUrlCache", "An object was fetched from the cache."),
    (52, "CryptRetrieveObjectByUrlWire", "An object is being fetched from the network."),
    (53, "CryptRetrieveObjectByUrlWire", "An object was fetched from the network."),
    (70, "CryptAcquireCertificatePrivateKey", "A certificate's private key was acquired."),
    (80, "WinVerifyTrust", "A signature is being checked."),
    (81, "WinVerifyTrust", "A signature was checked."),
    (90, "X509Objects", "The objects that a check looked at."),
)
_CALLED = {uid: operation for uid, operation, _ in _CALLS}
_BEGINNINGS = frozenset({10, 40, 50, 52, 80})


def capi2(fields: Fields, log: Logged) -> WindowsColumns:
    """10 to 90: a call of CryptoAPI, by which program and with what result.

    Subjects, URLs and files stay in unmapped: events name several of each.
    """
    # Some tools keep the element of an attribute in its name, others do not.
    name = fields.text("EventAuxInfo.ProcessName", "ProcessName")
    digits = fields.peek("Result.value") or ""
    code = int(digits, 16) if re.fullmatch(r"[0-9A-Fa-f]{1,8}", digits) else None
    # A level tells how a call ended: 2 with an error, 4 well; a call that begins has no end yet.
    by_level = {2: FAILURE, 4: SUCCESS} if log.event_id not in _BEGINNINGS else {2: FAILURE}
    status = by_level.get(log.level or 0) if code is None else FAILURE if code else SUCCESS
    return {
        "api": {"operation": _CALLED[log.event_id], "service": {"name": "CryptoAPI"}},
        "actor": filled(process=filled(name=name)),
        "src_endpoint": here(log),
        "status_id": status,
        "status_code": f"0x{code:08X}" if code else None,
        "status_detail": fields.text("Result") if code else None,
    }


CAPI2: Mapping[int, EventRule] = MappingProxyType(
    {uid: EventRule(API, OTHER, title, capi2, other("Verify")) for uid, _, title in _CALLS}
)
