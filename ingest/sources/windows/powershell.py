"""PowerShell: the operational log (module and script block logging) and the classic one.

https://learn.microsoft.com/powershell/module/microsoft.powershell.core/about/about_logging_windows
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from ingest.parsing.ocsf import LIFECYCLE, OTHER, SCRIPT
from ingest.sources.windows.record import Fields, Logged, filled, split_account
from ingest.sources.windows.rule import EventRule, WindowsColumns, other

POWERSHELL = 2
"""OCSF's `script.type_id`."""
# In ContextInfo `        Host Application = powershell.exe`, in the classic log
# `\tHostApplication=powershell.exe`.
_PAIR = re.compile(r"[ \t]*([A-Z][A-Za-z ]{1,30}?)[ \t]?=(.*)")
_BEFORE = frozenset(
    {
        *("Severity", "DetailSequence", "DetailTotal", "NewEngineState", "PreviousEngineState"),
        *("ProviderName", "NewProviderState", "NewCommandState", "SequenceNumber", "UserId"),
        *("HostName", "HostVersion", "HostId", "HostID", "HostApplication"),
    }
)
"""Names that stand before what was typed, the command line of the host, and that itself."""
_BEHIND = frozenset(
    {
        *("EngineVersion", "RunspaceId", "RunspaceID", "PipelineId", "PipelineID", "CommandName"),
        *("CommandType", "ScriptName", "CommandPath", "CommandLine"),
    }
)
_LAST = frozenset({"User", "ConnectedUser"})
"""Names at the end of ContextInfo, behind all that was typed; the classic log has none of them."""
CONTEXT_STARTS = ("\tDetailSequence=", "Context Information:")
APP: Mapping[str, str] = MappingProxyType({"name": "PowerShell", "vendor_name": "Microsoft"})


def context_of(text: str | None, *, classic: bool) -> dict[str, str]:
    """The pairs of a context, by their names without spaces.

    What was typed may have line breaks, and so lines that look like pairs. Before it the first
    of a name counts and at the end the last; between them a name that stands twice is not
    believed, and the command line of the host goes on to the last place where it can end.
    """
    lines = (text or "").replace("\r\n", "\n").split("\n")
    matches = [_PAIR.fullmatch(line) for line in lines]
    pairs = [(m[1].replace(" ", ""), m[2].strip()) if m else ("", "") for m in matches]
    named = [name for name, _ in pairs]
    host = named.index("HostApplication") if "HostApplication" in named else -1
    results: dict[str, str] = {}
    for name, value in pairs[: host + 1]:
        if name in _BEFORE:
            results.setdefault(name, value)
    end = max((place for place, name in enumerate(named) if name == "EngineVersion"), default=-1)
    if -1 < host < end - 1:
        typed = [results["HostApplication"], *(line.strip() for line in lines[host + 1 : end])]
        results["HostApplication"] = "\n".join(typed).strip()
    times = Counter(named[host + 1 :])
    for name, value in pairs[host + 1 :]:
        once = name in _BEHIND or (host < 0 and name in _BEFORE)
        if (once and times[name] == 1) or (name in _LAST and not classic):
            results[name] = value
    return results


def _actor(log: Logged, context: Mapping[str, str]) -> WindowsColumns | None:
    """PowerShell itself, which writes its log from the process of its host."""
    line = context.get("HostApplication")
    run = filled(cmd_line=line or None, pid=log.pid or None, uid=context.get("HostId") or None)
    if run and "pid" in run:
        log.pid = None
    name, domain = log.account
    who = context.get("User") or context.get("UserId")
    if who:
        name, domain = split_account(who)
    user = filled(name=name or None, domain=domain, uid=log.sid)
    if user:
        log.sid, log.account = None, (None, None)
    return filled(process=run, user=user)


def block(fields: Fields, log: Logged) -> WindowsColumns:
    """4104: the text of a script, of which long ones come in several parts."""
    # With its white space: rules and hashes are about the text as it ran.
    content = fields.raw("ScriptBlockText")
    return {
        "script": {
            "content": content if content is not None else "",
            "uid": fields.text("ScriptBlockId"),
            "path": fields.text("Path"),
            "type_id": POWERSHELL,
        },
        "actor": _actor(log, {}),
    }


def invoked(fields: Fields, log: Logged) -> WindowsColumns:
    """4103: a command with its parameters."""
    context = context_of(fields.peek("ContextInfo"), classic=False)
    # Here it is written `Host ID`, in the classic log `HostId`.
    context.setdefault("HostId", context.pop("HostID", ""))
    return {
        "script": {
            "content": fields.raw("Payload") or context.get("CommandName") or "",
            "name": context.get("CommandName") or None,
            "path": context.get("ScriptName") or None,
            "type_id": POWERSHELL,
        },
        "actor": _actor(log, context),
    }


def _marked(fields: Fields, log: Logged) -> WindowsColumns:
    """4105, 4106: a script block began or ended."""
    return {
        "script": {"uid": fields.text("ScriptBlockId"), "type_id": POWERSHELL},
        "actor": _actor(log, {}),
    }


def console(fields: Fields, log: Logged) -> WindowsColumns:
    """40961, 40962, 53504 and their like: PowerShell itself."""
    return {"more": {"app": dict(APP)}, "actor": _actor(log, {})}


def _classic_text(fields: Fields, log: Logged) -> str | None:
    """The part of a classic event that has the context. Its data has no names, so they are
    counted; some shippers keep only the message."""
    name = "param2" if log.event_id == 800 else "param3"
    text = fields.peek(name, "ContextInfo")
    if text and "HostApplication=" in text:
        return text
    message = log.message or fields.peek("Data") or ""
    if log.event_id != 800:
        return message
    # Here what was typed stands before the context too, and may imitate its beginning.
    starts = [start for start in CONTEXT_STARTS if start in message]
    if not starts:
        return message
    return message.partition(starts[0])[2] if message.count(starts[0]) == 1 else None


def _line(fields: Fields, log: Logged, context: Mapping[str, str]) -> str:
    """What was typed: in event 800 the first of its data, where that came along."""
    typed = fields.peek("param1") if log.event_id == 800 else None
    if typed:
        return typed
    parts = (log.message or "").partition("command line: ")[2]
    head, result, _ = parts.partition(". \r\n\r\nContext Information:")
    return head if result else context.get("CommandLine", "")


def _engine(fields: Fields, log: Logged) -> WindowsColumns:
    """400, 403, 600: the engine or a provider started or stopped."""
    context = context_of(_classic_text(fields, log), classic=True)
    version = context.get("EngineVersion")
    return {
        "more": {"app": {**APP, **({"version": version} if version else {})}},
        "actor": _actor(log, context),
    }


def pipeline(fields: Fields, log: Logged) -> WindowsColumns:
    """500, 501, 800: a command line that ran."""
    context = context_of(_classic_text(fields, log), classic=True)
    return {
        "script": {
            "content": _line(fields, log, context),
            "path": context.get("ScriptName") or None,
            "name": context.get("CommandName") or None,
            "type_id": POWERSHELL,
        },
        "actor": _actor(log, context),
    }


OPERATIONAL: Mapping[int, EventRule] = MappingProxyType(
    {
        4100: EventRule(SCRIPT, OTHER, "Error message of a command.", invoked, other("Error")),
        4101: EventRule(SCRIPT, 1, "Executing Pipeline", invoked),
        4102: EventRule(SCRIPT, 1, "Executing Pipeline", invoked),
        4103: EventRule(SCRIPT, 1, "Executing Pipeline", invoked),
        4104: EventRule(SCRIPT, 1, "Creating Scriptblock text", block),
        4105: EventRule(
            SCRIPT, OTHER, "Started invocation of ScriptBlock", _marked, other("Start")
        ),
        4106: EventRule(
            SCRIPT, OTHER, "Completed invocation of ScriptBlock", _marked, other("Stop")
        ),
        40961: EventRule(LIFECYCLE, 3, "PowerShell console is starting up", console),
        40962: EventRule(LIFECYCLE, 3, "PowerShell console is ready for user input", console),
        53504: EventRule(
            LIFECYCLE,
            3,
            "Windows PowerShell has started an IPC listening thread.",
            console,
        ),
    }
)

CLASSIC: Mapping[int, EventRule] = MappingProxyType(
    {
        400: EventRule(LIFECYCLE, 3, "Engine state is changed from None to Available.", _engine),
        403: EventRule(LIFECYCLE, 4, "Engine state is changed from Available to Stopped.", _engine),
        500: EventRule(SCRIPT, OTHER, "Command is Started.", pipeline, other("Start")),
        501: EventRule(SCRIPT, OTHER, "Command is Stopped.", pipeline, other("Stop")),
        600: EventRule(LIFECYCLE, 3, "Provider is Started.", _engine),
        800: EventRule(SCRIPT, 1, "Pipeline execution details.", pipeline),
    }
)
