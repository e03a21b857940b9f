"""How the tables of providers say what an event id means, and what their mappings share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.parsing.ocsf import AUTHENTICATION, BASE, ENTITY, FAILURE, OTHER, SUCCESS
from ingest.parsing.strict_json import encode
from ingest.sources.windows.codes import LOGON_TYPES, PROTOCOLS
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.record import Fields, Logged, filled, whole

WindowsColumns = dict[str, Any]
Mapper = Callable[[Fields, Logged], WindowsColumns]
"""Columns of silver.event out of the data. Keys `class_uid` and `activity_id` (and what
else `Rule` says) overrule the table, `more` is a dictionary."""


class EventRule(NamedTuple):
    """What an event id is: class, activity, what happened in words, and how its fields map."""

    class_uid: int
    activity_id: int
    title: str
    columns: Mapper
    always: Mapping[str, Any] = MappingProxyType({})


def other(name: str) -> Mapping[str, Any]:
    """An activity that OCSF has no number for."""
    return {"activity_name": name}


AUTH_PROTOCOLS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "ntlm": ("NTLM", 1),
        "kerberos": ("Kerberos", 2),
        "wdigest": ("Digest", 3),
        "digest": ("Digest", 3),
        # MSV1_0, the package that NTLM is in.
        "microsoft_authentication_package_v1_0": ("NTLM", 1),
        "pap": ("PAP", 7),
        "ms-chapv2": ("MS-CHAPv2", 8),
        "ms-chap v2": ("MS-CHAPv2", 8),
        "chap": ("CHAP", 8),
        "eap": ("EAP", 9),
        "peap": ("PEAP", 9),
    }
)


def auth(protocol: str | None) -> WindowsColumns:
    """The columns of an authentication protocol."""
    if protocol is None:
        return {}
    name, uid = AUTH_PROTOCOLS.get(protocol.lower(), (protocol, 99))
    return {"auth_protocol": name, "more": {"auth_protocol_id": uid}}


def subject(fields: Fields, of: str = "Subject") -> WindowsColumns | None:
    """Who did it, of the fields `SubjectUserName` and so on: the user and the session."""
    user = fields.user(f"{of}UserName", f"{of}DomainName", f"{of}UserSid")
    logon = fields.logon(f"{of}LogonId")
    return filled(user=user, session=filled(uid=logon))


def target(fields: Fields) -> WindowsColumns | None:
    """The account acted upon; its SID has one of two names."""
    sid = "TargetUserSid" if fields.peek("TargetUserSid") else "TargetSid"
    return fields.user("TargetUserName", "TargetDomainName", sid)


def process(
    fields: Fields, path: str = "ProcessName", pid: str = "ProcessId", uid: str = ""
) -> WindowsColumns | None:
    """A process from the fields of these names."""
    number = fields.pid(pid) if pid else None
    # Some events, such as those of the filtering platform, spell it `ProcessID`.
    if number is None and pid == "ProcessId":
        number = fields.pid("ProcessID")
    return filled(
        path=fields.text(path) if path else None,
        pid=number,
        uid=fields.guid(uid) if uid else None,
    )


def actor(
    fields: Fields, path: str = "ProcessName", pid: str = "ProcessId", of: str = "Subject"
) -> WindowsColumns | None:
    """Who did it, and by which process."""
    who = subject(fields, of) or {}
    by = process(fields, path, pid)
    return filled(**who, process=by)


def source(
    fields: Fields, ip: str = "IpAddress", port: str = "IpPort", host: str = "WorkstationName"
) -> WindowsColumns | None:
    """The other end of a connection to this machine."""
    name = fields.text(host) if host else None
    return filled(
        ip=fields.ip(ip) if ip else None,
        port=fields.port(port) if port else None,
        # Some services give the workstation as a UNC path, with two backslashes in front.
        hostname=name.removeprefix("\\\\") or None if name else None,
    )


def here(log: Logged) -> WindowsColumns | None:
    """This machine, as an endpoint."""
    return filled(hostname=log.computer)


def logon_type(fields: Fields) -> WindowsColumns:
    """The columns of a logon type."""
    number = whole(fields.peek("LogonType"))
    if number is None:
        return {}
    # A type that Windows has not documented: the number stays in `unmapped`.
    if number not in LOGON_TYPES:
        return {"logon_type_id": 99}
    fields.text("LogonType")
    uid, name, remote = LOGON_TYPES[number]
    return {"logon_type_id": uid, "is_remote": remote, "more": {"logon_type": name}}


def merged(*parts: WindowsColumns) -> WindowsColumns:
    """Columns of several parts; their `more` is joined."""
    results: WindowsColumns = {}
    more: WindowsColumns = {}
    for part in parts:
        more |= part.get("more", {})
        results |= part
    if more:
        results["more"] = more
    return results


def _outcome(code: int | None) -> int | None:
    """Status by a code that is 0 when all went well."""
    return None if code is None else SUCCESS if code == 0 else FAILURE


def names(text: str | None) -> list[str] | None:
    """The words of a list that Windows writes with line ends and tabs between."""
    return each(_words_of, text)  # type: ignore[no-any-return]  # `each` gives what it is given


def _words_of(text: str | None) -> list[str] | None:
    name_list = [word for word in re.split(r"[\s,]+", text or "") if word and word != "-"]
    return name_list or None


def protocol(number: int | None) -> WindowsColumns:
    """The leaves of connection_info for an IP protocol."""
    if number is None or not 0 <= number <= 255:
        return {}
    return {"protocol_num": number, "protocol_name": PROTOCOLS.get(number)}


def entity(kind: str, name: str | None, uid: str | None = None, **data: Any) -> WindowsColumns:
    """`more` of an Entity Management event: the thing managed."""
    about = filled(name=name, uid=uid, data=filled(**data)) or {}
    if name is None and uid is None:
        about["name"] = kind
    return {"more": {"entity": {"type": kind, **about}}}


def managed(
    kind: str, name: tuple[str, ...] = (), uid: tuple[str, ...] = (), path: str = "ProcessName"
) -> Mapper:
    """A mapping for Entity Management: the fields that name the thing, the subject as actor."""

    def columns(fields: Fields, log: Logged) -> WindowsColumns:
        event = entity(kind, fields.text(*name), fields.text(*uid))
        return event | {"actor": actor(fields, path)}

    return columns


def account(fields: Fields, *names: str) -> WindowsColumns | None:
    """`DOMAIN\\name`, a bare name or a SID, as a user."""
    text = fields.peek(*names)
    return fields.user(next(n for n in names if fields.peek(n)), "", "") if text else None


def plain(fields: Fields, log: Logged) -> WindowsColumns:
    """What fields of well-known names say, for events without a mapping of their own."""
    who = actor(fields)
    return {
        "actor": who,
        "user": target(fields),
        "src_endpoint": source(fields),
    }


def nothing(fields: Fields, log: Logged) -> WindowsColumns:
    """No columns: all data stays in unmapped."""
    return {}


def base(title: str, **always: Any) -> EventRule:
    """An event of no class."""
    return EventRule(BASE, 0, title, plain, always)


def managing(activity_id: int, title: str, columns: Mapper, **always: Any) -> EventRule:
    """An event of Entity Management."""
    if activity_id == OTHER:
        always.setdefault("activity_name", "Other")
    return EventRule(ENTITY, activity_id, title, columns, always)


def authentication(activity_id: int, title: str, columns: Mapper, **always: Any) -> EventRule:
    """An event of Authentication."""
    return EventRule(AUTHENTICATION, activity_id, title, columns, always)


def _text_of(value: Any) -> str:
    """A value as text: itself, or JSON."""
    return value if type(value) is str else encode(value)
