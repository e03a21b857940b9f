"""Windows events as Winlogbeat writes them: 6.x flat, 7.x and 8.x under `winlog`.

https://www.elastic.co/guide/en/beats/winlogbeat/current/exported-fields-winlog.html
Its modules for Security, Sysmon and PowerShell move data to ECS fields; where the data is
not under `event_data` any more it is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.source import Context, Unreadable
from ingest.sources.windows.codes import DNS_TYPES
from ingest.sources.windows.columns.many import each, is_of
from ingest.sources.windows.record import Logged, as_text, level_of, whole
from ingest.sources.windows.system_part import System, logged

ECS_SYSMON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "process.entity_id": ("ProcessGuid",),
        "process.pid": ("ProcessId",),
        "process.executable": ("Image",),
        "process.command_line": ("CommandLine",),
        "process.working_directory": ("CurrentDirectory",),
        "process.thread.id": ("SourceThreadId",),
        "process.parent.entity_id": ("ParentProcessGuid",),
        "process.parent.pid": ("ParentProcessId",),
        "process.parent.executable": ("ParentImage",),
        "process.parent.command_line": ("ParentCommandLine",),
        "process.pe.company": ("Company",),
        "process.pe.description": ("Description",),
        "process.pe.file_version": ("FileVersion",),
        "process.pe.original_file_name": ("OriginalFileName",),
        "process.pe.product": ("Product",),
        "file.pe.company": ("Company",),
        "file.pe.description": ("Description",),
        "file.pe.file_version": ("FileVersion",),
        "file.pe.original_file_name": ("OriginalFileName",),
        "file.pe.product": ("Product",),
        "file.code_signature.subject_name": ("Signature",),
        "file.code_signature.status": ("SignatureStatus",),
        "source.ip": ("SourceIp",),
        "source.port": ("SourcePort",),
        "source.domain": ("SourceHostname",),
        "destination.ip": ("DestinationIp",),
        "destination.port": ("DestinationPort",),
        "destination.domain": ("DestinationHostname",),
        "network.transport": ("Protocol",),
        "dns.question.name": ("QueryName",),
        "sysmon.dns.status": ("QueryStatus",),
        "sysmon.file.archived": ("Archived",),
        "sysmon.file.is_executable": ("IsExecutable",),
        "rule.name": ("RuleName",),
    }
)
# `file.path` stands for another field of Sysmon in each kind of event.
ECS_PATH: Mapping[int, str] = MappingProxyType(
    {
        **dict.fromkeys((2, 11, 15, 23, 26, 27, 28, 29), "TargetFilename"),
        6: "ImageLoaded",
        7: "ImageLoaded",
        9: "Device",
    }
)
ECS_SECURITY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "source.ip": ("IpAddress", "SourceAddress"),
        "source.port": ("IpPort", "SourcePort"),
        "source.domain": ("WorkstationName",),
        "process.executable": ("ProcessName", "NewProcessName"),
        "process.pid": ("ProcessId", "NewProcessId"),
        "process.command_line": ("CommandLine",),
        "process.parent.executable": ("ParentProcessName",),
    }
)
ECS_POWERSHELL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "powershell.file.script_block_text": ("ScriptBlockText",),
        "powershell.file.script_block_id": ("ScriptBlockId",),
        "powershell.sequence": ("MessageNumber",),
        "powershell.total": ("MessageTotal",),
        "file.path": ("Path",),
    }
)
# The context of a command, in the order in which PowerShell writes it.
ECS_CONTEXT: Mapping[str, str] = MappingProxyType(
    {
        "ProviderName": "powershell.provider.name",
        "NewProviderState": "powershell.provider.new_state",
        "NewEngineState": "powershell.engine.new_state",
        "PreviousEngineState": "powershell.engine.previous_state",
        "HostName": "process.title",
        "HostVersion": "powershell.process.executable_version",
        "HostId": "process.entity_id",
        "HostApplication": "process.command_line",
        "EngineVersion": "powershell.engine.version",
        "RunspaceId": "powershell.runspace_id",
        "PipelineId": "powershell.pipeline_id",
        "CommandName": "powershell.command.name",
        "CommandType": "powershell.command.type",
        "ScriptName": "file.path",
        "CommandPath": "powershell.command.path",
        "CommandLine": "powershell.command.value",
    }
)
PACKINGS = ("expected", "events")
"""Keys of an object that only holds an array of documents, as Elastic keeps its samples."""
HASH_NAMES: Mapping[str, str] = MappingProxyType(
    {"sha1": "SHA1", "md5": "MD5", "sha256": "SHA256", "imphash": "IMPHASH"}
)


def documents(fields: Mapping[str, Any]) -> list[Any] | None:
    """The documents of an object that only packs them: a file of samples, an answer of a search."""
    if "winlog" in fields or "event_id" in fields or "@timestamp" in fields:
        return None
    hits = _at(fields, "hits.hits")
    packed = [fields[name] for name in PACKINGS if type(fields.get(name)) is list]
    if type(hits) is list:
        packed.append(hits)
    # Of two arrays one would be passed over.
    return packed[0] if len(packed) == 1 else None


def _expanded(fields: dict[str, Any]) -> dict[str, Any]:
    """`{"winlog.event_id": 1}` as `{"winlog": {"event_id": 1}}`, and the `_source` of a hit."""
    source = fields.get("_source")
    # A document that was exported from Elasticsearch, with its envelope.
    if type(source) is dict and "winlog" not in fields:
        rest = {key: value for key, value in fields.items() if key != "_source"}
        return _expanded(source) | rest
    if not any("." in key for key in fields):
        return fields
    results: dict[str, Any] = {}
    for key, value in fields.items():
        parts = key.split(".")
        setdefault: Any = results
        for part in parts[:-1]:
            setdefault = setdefault.setdefault(part, {}) if type(setdefault) is dict else None
        if type(setdefault) is dict and parts[-1] not in setdefault:
            setdefault[parts[-1]] = value
        elif (
            type(setdefault) is dict and type(setdefault[parts[-1]]) is dict and type(value) is dict
        ):
            setdefault[parts[-1]] |= value
        else:
            results[key] = value
    return results


def logged_of_beat(fields: dict[str, Any], context: Context) -> Logged:
    """The event of one document, which is used up. Raises `Unreadable`."""
    fields = _expanded(fields)
    winlog = fields.pop("winlog", None)
    # Winlogbeat 6.x writes the fields at the top level.
    old = type(winlog) is not dict
    if old and winlog is not None:
        fields["winlog"] = winlog
    of: dict[str, Any] = fields if old else winlog
    about = System(context)
    about.time = fields.pop("@timestamp", None)
    about.event_id = of.pop("event_id", None)
    if about.event_id is None:
        about.event_id = _at(fields, "event.code")
    if about.event_id is None:
        raise Unreadable("no 'winlog.event_id' in the record")
    about.provider = _text(of, "provider_name", "source_name")
    about.guid = _text(of, "provider_guid")
    about.channel = _text(of, "channel", "log_name")
    about.computer = _text(of, "computer_name") or _host(fields)
    about.record_id = _text(of, "record_id", "record_number")
    about.activity_id = _text(of, "activity_id")
    about.message = _text(fields, "message")
    if about.provider is None and about.channel is None and about.guid is None:
        raise Unreadable("neither 'winlog.provider_name' nor 'winlog.channel' in the record")
    _outcome(fields, of, about)
    _process(of, about)
    data: dict[str, Any] = {}
    for name in ("event_data", "user_data"):
        part = of.get(name)
        if type(part) is dict:
            del of[name]
            data |= {key: as_text(value) for key, value in part.items() if value is not None}
    account = _user(of, about)
    _moved_data(fields, data, about)
    about.rest |= _renamed(of) if not old else {}
    about.rest |= {key: value for key, value in fields.items() if value is not None}
    log = logged(about, data)
    log.account = account
    return log


_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "opcode": "Opcode",
        "task": "Task",
        "version": "Version",
        "api": "winlog.api",
        "keywords": "KeywordsText",
        "related_activity_id": "RelatedActivityID",
    }
)


def _renamed(winlog: dict[str, Any]) -> dict[str, Any]:
    return {
        _NAMES.get(key, f"winlog.{key}"): as_text(value)
        for key, value in winlog.items()
        if value is not None
    }


def _text(of: dict[str, Any], *names: str) -> str | None:
    for name in names:
        value = of.get(name)
        text: str | None = None if value is None else each(_written, value, name == "message")
        if text is not None:
            del of[name]
            return text
    return None


def _written(value: Any, whole_text: bool) -> str | None:
    text = as_text(value)
    if type(text) is not str or not text.strip():
        return None
    return text if whole_text else text.strip()


def _at(fields: Mapping[str, Any], path: str) -> Any:
    all_fields: Any = fields
    for part in path.split("."):
        all_fields = all_fields.get(part) if type(all_fields) is dict else None
    return all_fields


def _host(fields: Mapping[str, Any]) -> str | None:
    for path in ("host.name", "host.hostname", "beat.hostname", "agent.hostname"):
        value = _at(fields, path)
        if is_of(value, str) and value:
            return value  # type: ignore[no-any-return]  # text, or a column of it
    return fields["host"] if is_of(fields.get("host"), str) else None


def _outcome(fields: dict[str, Any], of: dict[str, Any], about: System) -> None:
    """Level and audit keywords, which stand in several places, in words."""
    for place in ("level",):
        level = level_of(of.get(place))
        if level is not None:
            about.level = level
            del of[place]
    if about.level is None:
        about.level = level_of(_at(fields, "log.level"))
    # One keyword is a string, several are a list.
    keywords = of.get("keywords")
    if type(keywords) is str:
        keywords = [keywords]
    if type(keywords) is list:
        del of["keywords"]
        about.words(keywords)
    if about.failed is None:
        outcome = of.get("outcome") or _at(fields, "event.outcome")
        if about.channel and about.channel.lower() == "security":
            # Only of Security: elsewhere `outcome` is a module's own judgement, no audit.
            about.failed = {"failure": True, "success": False}.get(str(outcome))


def _process(of: dict[str, Any], about: System) -> None:
    """Who wrote the event: `process.pid` and `process.thread.id`, or `process_id` of 6.x."""
    run = of.get("process")
    if type(run) is dict and is_of(run.get("pid"), int):
        about.pid = run.pop("pid")
        thread = run.get("thread")
        if type(thread) is dict and is_of(thread.get("id"), int):
            about.tid = thread.pop("id")
        if not any(run.values()):
            del of["process"]
    for name in ("process_id", "thread_id"):
        number = whole(of.get(name))
        if number is not None:
            del of[name]
            setattr(about, "pid" if name == "process_id" else "tid", number)


def _user(of: dict[str, Any], about: System) -> tuple[str | None, str | None]:
    """The account in whose name it was logged."""
    user = of.get("user")
    if type(user) is not dict or not is_of(user.get("identifier"), str):
        return None, None
    about.sid = user.pop("identifier")
    results = _text(user, "name"), _text(user, "domain")
    if not user:
        del of["user"]
    return results


def _moved_data(fields: dict[str, Any], data: dict[str, Any], about: System) -> None:
    """Data that a module moved to ECS, back under its name if it is gone from there."""
    name = (about.provider or about.channel or "").lower()
    number = whole(about.event_id) or 0
    if "sysmon" in name:
        _of_sysmon(fields, data, number)
    elif "powershell" in name:
        _of_powershell(fields, data, number)
    elif "security-auditing" in name:
        _of_security(fields, data, number)


def _fill(
    fields: dict[str, Any], data: dict[str, Any], table: Mapping[str, tuple[str, ...]]
) -> None:
    for path, names in table.items():
        value = as_text(_at(fields, path))
        if type(value) is str and not any(name in data for name in names):
            data[names[0]] = value


def _of_sysmon(fields: dict[str, Any], data: dict[str, Any], number: int) -> None:
    # Events 8 and 10 have two processes; ECS has moved the one that acts.
    between = number in (8, 10)
    if not between:
        _fill(fields, data, ECS_SYSMON)
        data.pop("SourceThreadId", None)
    else:
        source = {
            "process.entity_id": ("SourceProcessGuid", "SourceProcessGUID"),
            "process.pid": ("SourceProcessId",),
            "process.executable": ("SourceImage",),
            "process.thread.id": ("SourceThreadId",),
        }
        _fill(fields, data, source)
    if number in ECS_PATH:
        _fill(fields, data, {"file.path": (ECS_PATH[number],)})
    if number in (17, 18):
        _fill(fields, data, {"file.name": ("PipeName",)})
    if number in (12, 13, 14):
        _fill(fields, data, {"registry.path": ("TargetObject",)})
        strings = _at(fields, "registry.data.strings")
        # Of several nobody could tell what Sysmon had written between them.
        if type(strings) is list and len(strings) == 1:
            data.setdefault("Details", strings[0])
    if number == 22:
        _of_dns(fields, data)
    _hashes(fields, data)
    user, domain = _at(fields, "user.name"), _at(fields, "user.domain")
    # Of two processes ECS keeps one user, and does not say whose.
    if type(user) is str and not between:
        data.setdefault("User", f"{domain}\\{user}" if type(domain) is str and domain else user)


def _of_dns(fields: dict[str, Any], data: dict[str, Any]) -> None:
    """What Sysmon wrote of a question, again in its own words."""
    if data.get("QueryStatus") == "SUCCESS":
        data["QueryStatus"] = "0"
    if "QueryResults" in data:
        return
    answers = _at(fields, "dns.answers")
    if type(answers) is list and all(type(each) is dict for each in answers):
        words = [_answer(each) for each in answers]
    else:
        addresses = _at(fields, "dns.resolved_ip")
        words = list(addresses) if type(addresses) is list else []
    if words and all(type(word) is str for word in words):
        data["QueryResults"] = ";".join(str(word) for word in words)


def _answer(each: Mapping[str, Any]) -> str | None:
    text, name = each.get("data"), each.get("type")
    if type(text) is not str:
        return None
    number = next((code for code, word in DNS_TYPES.items() if word == name), None)
    # Addresses stand alone there, all else behind the number of its type.
    return text if number is None or name in ("A", "AAAA") else f"type:  {number} {text}"


def _of_powershell(fields: dict[str, Any], data: dict[str, Any], number: int) -> None:
    """The module's fields as PowerShell's own; those of a context again as its text."""
    own = (
        "param2" if number == 800 else "ContextInfo" if number in OPERATIONAL_CONTEXT else "param3"
    )
    if number in (4104, 4105, 4106):
        _fill(fields, data, ECS_POWERSHELL)
        return
    if number not in CLASSIC_CONTEXT | OPERATIONAL_CONTEXT or own in data:
        return
    user, domain = _at(fields, "user.name"), _at(fields, "user.domain")
    named = {name: _at(fields, path) for name, path in ECS_CONTEXT.items()}
    account = f"{domain}\\{user}" if type(domain) is str and domain else user
    # The account stands where it does in each kind: what was typed comes behind it, or before.
    if number in CLASSIC_CONTEXT:
        named = {"UserId": account, **named}
    else:
        named["User"] = account
    # A value of several lines would make lines of its own, which nobody wrote.
    pairs = [
        f"\t{name}={' '.join(value.split())}"
        for name, value in named.items()
        if type(value) is str and value
    ]
    if pairs:
        data[own] = "\n".join(pairs)
    typed = _at(fields, "powershell.command.value")
    if number == 800 and type(typed) is str:
        data.setdefault("param1", typed)


CLASSIC_CONTEXT = frozenset({400, 403, 500, 501, 600, 800})
OPERATIONAL_CONTEXT = frozenset({4100, 4101, 4102, 4103})
"""Events of PowerShell with a context, by the log they are in."""


def _hashes(fields: dict[str, Any], data: dict[str, Any]) -> None:
    if "Hashes" in data or "Hash" in data:
        return
    for place in ("process.hash", "file.hash", "hash"):
        result = _at(fields, place)
        if type(result) is dict:
            parts = dict(result)
            imphash = _at(fields, f"{place.partition('.')[0]}.pe.imphash")
            if type(imphash) is str:
                parts.setdefault("imphash", imphash)
            words = [
                f"{HASH_NAMES[key]}={value}"
                for key, value in parts.items()
                if key in HASH_NAMES and type(value) is str
            ]
            if words:
                data["Hashes"] = ",".join(words)
                return


def _of_security(fields: dict[str, Any], data: dict[str, Any], number: int) -> None:
    if number == 4688:
        launched = {
            "process.executable": ("NewProcessName",),
            "process.pid": ("NewProcessId",),
            "process.command_line": ("CommandLine",),
            "process.parent.executable": ("ParentProcessName",),
            "process.parent.pid": ("ProcessId",),
        }
        _fill(fields, data, launched)
    elif number in (4624, 4625, 4648, 4768, 4769, 4771, 4778, 4779):
        _fill(fields, data, ECS_SECURITY)
