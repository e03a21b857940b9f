"""OpenLDAP's slapd: its `stats` log, through syslog or as it writes to standard error.

https://www.openldap.org/doc/admin26/slapdconfig.html (olcLogLevel, olcLogFile) and slapd's
source for 2.3 to 2.6. Only the line that accepts a connection has the client's address, and
only the result of a bind says whether it succeeded: the lines that open a connection, and
later each operation and its result, are joined where they arrive together. Alone, each line
is an event of what it says itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.parsing.ocsf import (
    ACCOUNT,
    AUTHENTICATION,
    BASE,
    DATASTORE,
    FAILURE,
    NETWORK,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, JoiningSource, Record, Unreadable
from ingest.parsing.syslog import Line, one_line
from ingest.sources.server.ldap_codes import ERRORS, GOOD, METHODS, TAGS
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import HEXADECIMAL

_PRODUCT: Mapping[str, str] = {"name": "OpenLDAP", "vendor_name": "OpenLDAP Foundation"}
_LOGON, _LOGOFF, _NETWORK_LOGON = 1, 2, 3
_OPEN, _CLOSE, _TRAFFIC = 1, 2, 6
_PASSWORD_CHANGE = 3
_READ, _UPDATE, _QUERY, _CREATE, _DELETE = 1, 2, 4, 6, 7

_OWN = re.compile(rf"(?P<time>{HEXADECIMAL}) (?:(?P<thread>0x[0-9a-f]{{6,16}}) )?(?P<text>.*)")
# `op=-1` stands where no client asked for anything.
CONNECTION = re.compile(
    r"conn=(?P<conn>\d{1,20}) (?:fd=(?P<fd>\d{1,9})|op=(?P<op>-?\d{1,20})) (?P<words>.*)"
)
_AT = r"(?:\[(?P<{0}6>[0-9A-Fa-f:.]{{2,45}})\]|(?P<{0}>[0-9.]{{7,15}})):(?P<{0}_port>\d{{1,5}})"
ACCEPT = re.compile(
    rf"ACCEPT from (?:IP={_AT.format('ip')}|PATH=(?P<path>\S{{1,255}}))"
    rf"(?: \((?:IP={_AT.format('to')}|PATH=\S{{1,255}})\))?(?P<more>.*)"
)
_CLOSED = re.compile(r"closed(?: \((?P<why>.{1,200})\))?")
_SECURED = re.compile(
    r"TLS established(?P<numbers>(?: (?:tls_)?ssf=\d{1,6})*)"
    r"(?: tls_proto=(?P<version>\S{1,16}))?(?: tls_cipher=(?P<cipher>\S{1,64}))?"
)
BIND = re.compile(
    r"BIND (?:dn=\"(?P<dn>.*)\"|(?P<anonymous>anonymous)|"
    r"authcid=\"(?P<authcid>.*)\" authzid=\"(?P<authzid>.*)\")"
    r"(?: method=(?P<method>\d{1,6}))?(?: mech=(?P<mech>[\w-]{1,40}))?"
    r"(?P<numbers>(?: \w{1,16}=\d{1,6})*)"
)
_RESULT = re.compile(
    r"(?P<search>SEARCH )?RESULT (?:oid=(?P<oid>\S*) ?)?(?:tag=(?P<tag>\d{1,6}) )?"
    r"err=(?P<err>-?\d{1,6}) "
    r"(?P<numbers>(?:\w{1,16}=[\d.]{1,24} ?){0,6})text=(?P<text>.*)"
)
SEARCH = re.compile(
    r"SRCH base=\"(?P<base>.*?)\" scope=(?P<scope>\d{1,2}) deref=(?P<deref>\d{1,2}) "
    r"filter=\"(?P<filter>.*)\""
)
CHANGE = re.compile(r"(?P<what>ADD|DEL|MOD|MODRDN|CMP) dn=\"(?P<dn>.*)\"(?P<more>.*)")
PASSMOD = re.compile(r"PASSMOD(?: id=\"(?P<id>.*)\")?(?P<more>(?: (?:old|new))*)")
_ACTIVITY: Mapping[str, int] = {
    "ADD": _CREATE,
    "DEL": _DELETE,
    "MOD": _UPDATE,
    "MODRDN": _UPDATE,
    "CMP": _READ,
}
_JOINED = re.compile(
    r"(?:ACCEPT|TLS established|BIND|RESULT|SEARCH RESULT|SRCH base|(?:ADD|DEL|MOD|MODRDN|CMP) dn|"
    r"PASSMOD|STARTTLS|EXT)\b"
)
_NAME = re.compile(r"(?:uid|cn|sAMAccountName|mail)=((?:[^,+\\]|\\.)+)", re.IGNORECASE)


@dataclass
class Client:
    """What is known of a connection."""

    source: dict[str, Any] | None = None
    target: dict[str, Any] | None = None
    dn: str | None = None


def user_of(dn: str | None) -> dict[str, Any] | None:
    """The user that a name in the directory stands for: its `uid` or `cn`, and all of it."""
    if not dn:
        return None
    # At the start only: the name of the entry itself, not of a group further up.
    match = _NAME.match(dn)
    return {"name": match[1] if match else dn, "uid": dn}


def read(line: Line, context: Context) -> Event | None:
    """The event of one line alone."""
    return _read(line, Client(), None)


def _read(line: Line, client: Client, result: re.Match[str] | None) -> Event | None:
    match = CONNECTION.fullmatch(line.text)
    if match is None:
        return None
    words = match["words"]
    rest: dict[str, Any] = kept(conn=match["conn"], fd=match["fd"], op=match["op"])
    if match["fd"]:
        return _connection(words, match["conn"], rest, client, line)
    bind = BIND.fullmatch(words)
    if bind:
        return _bind(bind.groupdict(), result, rest, client, line)
    if words == "UNBIND":
        return _unbind(rest, client, line)
    search, change = SEARCH.fullmatch(words), CHANGE.fullmatch(words)
    password, alone = PASSMOD.fullmatch(words), _RESULT.fullmatch(words)
    if search:
        return _search(search, result, rest, client, line)
    if change:
        return _change(change, result, rest, client, line)
    if password:
        return _password(password, result, rest, client, line)
    if alone:
        return _alone(alone, rest, client, line)
    return _plain(rest, client, line)


def _outcome(result: re.Match[str] | None, rest: dict[str, Any]) -> dict[str, Any]:
    """Status of an operation by its result, whose numbers go to `rest`."""
    if result is None:
        return {"status_id": UNKNOWN}
    for piece in result["numbers"].split():
        name, _, value = piece.partition("=")
        rest[name] = value
    err, text = result["err"], result["text"].strip()
    rest |= kept(tag=result["tag"], oid=result["oid"] or None)
    return {
        # Some codes other than 0, such as a comparison's answer, are no failures.
        "status_id": SUCCESS if err in GOOD else FAILURE,
        "status_code": err,
        "status_detail": text or ERRORS.get(err),
    }


def _ends(client: Client, line: Line) -> dict[str, Any]:
    server = {"hostname": line.host} if line.host else {}
    return {
        "src_endpoint": client.source,
        "dst_endpoint": (server | (client.target or {})) or None,
    }


def _connection(
    words: str, conn: str, rest: dict[str, Any], client: Client, line: Line
) -> Event | None:
    accept, closed = ACCEPT.fullmatch(words), _CLOSED.fullmatch(words)
    secured = _SECURED.fullmatch(words)
    if accept:
        part = accept.groupdict()
        ip, to = part["ip6"] or part["ip"], part["to6"] or part["to"]
        client.source = endpoint(ip, part["ip_port"], rest=rest) if ip else None
        client.target = endpoint(to, part["to_port"], rest=rest, name="to") if to else None
        rest |= kept(path=part["path"], more=part["more"].strip() or None)
    elif closed is None and secured is None:
        return _plain(rest, client, line)
    if secured:
        for piece in secured["numbers"].split():
            name, _, value = piece.partition("=")
            rest[name] = value
    tls = None
    if secured and secured["version"]:
        tls = kept(version=secured["version"], cipher=secured["cipher"])
    return daemon_event(
        line,
        _PRODUCT,
        NETWORK,
        _OPEN if accept else _CLOSE if closed else _TRAFFIC,
        status_id=SUCCESS,
        status_detail=closed["why"] if closed else None,
        connection_info={
            "uid": conn,
            "protocol_name": "tcp",
            "protocol_num": 6,
            "direction_id": 1,
        },
        tls=tls,
        app_name="ldap",
        rest=rest,
        **_ends(client, line),
    )


def _bind(
    part: Mapping[str, Any],
    result: re.Match[str] | None,
    rest: dict[str, Any],
    client: Client,
    line: Line,
) -> Event:
    for piece in (part["numbers"] or "").split():
        name, _, value = piece.partition("=")
        rest[name] = value
    dn = part["dn"] or part["authcid"]
    outcome = _outcome(result, rest)
    # A bind that failed leaves the connection with the name it had.
    if outcome["status_id"] == SUCCESS:
        client.dn = dn
    # `mech=` without `method=` is slapd's own line of a bind that succeeded.
    if result is None and part["mech"] and not part["method"]:
        outcome = {"status_id": SUCCESS}
        client.dn = dn
    user = user_of(dn)
    method = part["mech"] or METHODS.get(part["method"] or "", part["method"])
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        user=user,
        auth_protocol="LDAP",
        auth_method=method.lower() if method else None,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "ldap"},
        session={"uid": rest["conn"]},
        # 12 is OCSF's number of LDAP.
        more={"auth_protocol_id": 12} | ({} if user else {"user": {"name": "", "type_id": 0}}),
        rest=rest
        | kept(method=part["method"], authzid=part["authzid"] or None, anonymous=not user or None),
        fields={"event_code": "BIND"},
        **outcome,
        **_ends(client, line),
    )


def _unbind(rest: dict[str, Any], client: Client, line: Line) -> Event:
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGOFF,
        status_id=SUCCESS,
        user=user_of(client.dn),
        service={"name": "ldap"},
        session={"uid": rest["conn"]},
        rest=rest,
        fields={"event_code": "UNBIND"},
        **_ends(client, line),
    )


def _stored(
    activity: int,
    code: str,
    base: str,
    rest: dict[str, Any],
    client: Client,
    line: Line,
    *,
    outcome: dict[str, Any],
    query: str | None = None,
) -> Event:
    """An operation on entries of the directory."""
    user = user_of(client.dn)
    more: dict[str, Any] = {
        "database": {"name": base, "type_id": 0},
        "type_id": 1,
        "actor": {"session": {"uid": rest["conn"]}} | ({"user": user} if user else {}),
    }
    if query is not None:
        more["query_info"] = {"name": code, "query_string": query}
    ends = _ends(client, line)
    # OCSF wants the client of every request; alone, the line names it by its connection.
    ends["src_endpoint"] = ends["src_endpoint"] or {"uid": rest["conn"]}
    return daemon_event(
        line,
        _PRODUCT,
        DATASTORE,
        activity,
        by=user["name"] if user else None,
        by_session=rest["conn"],
        user_name=user["name"] if user else None,
        api={"operation": code},
        more=more,
        rest=rest,
        fields={"event_code": code},
        **outcome,
        **ends,
    )


def _search(
    match: re.Match[str],
    result: re.Match[str] | None,
    rest: dict[str, Any],
    client: Client,
    line: Line,
) -> Event:
    outcome = _outcome(result, rest)
    rest |= {"scope": match["scope"], "deref": match["deref"]}
    return _stored(
        _QUERY, "SRCH", match["base"], rest, client, line, outcome=outcome, query=match["filter"]
    )


def _change(
    match: re.Match[str],
    result: re.Match[str] | None,
    rest: dict[str, Any],
    client: Client,
    line: Line,
) -> Event:
    outcome = _outcome(result, rest)
    rest |= kept(more=match["more"].strip() or None)
    what = match["what"]
    return _stored(_ACTIVITY[what], what, match["dn"], rest, client, line, outcome=outcome)


def _password(
    match: re.Match[str],
    result: re.Match[str] | None,
    rest: dict[str, Any],
    client: Client,
    line: Line,
) -> Event:
    outcome = _outcome(result, rest)
    by = user_of(client.dn)
    return daemon_event(
        line,
        _PRODUCT,
        ACCOUNT,
        _PASSWORD_CHANGE,
        user=user_of(match["id"]) or by or {"name": ""},
        by=by["name"] if by else None,
        rest=rest | kept(more=match["more"].strip() or None),
        fields={"event_code": "PASSMOD"},
        **outcome,
        **_ends(client, line),
    )


def _alone(match: re.Match[str], rest: dict[str, Any], client: Client, line: Line) -> Event:
    """A result whose operation is not at hand."""
    outcome = _outcome(match, rest)
    code = "SRCH" if match["search"] else TAGS.get(match["tag"] or "", "RESULT")
    if code == "BIND":
        return daemon_event(
            line,
            _PRODUCT,
            AUTHENTICATION,
            _LOGON,
            user=user_of(client.dn),
            auth_protocol="LDAP",
            logon_type_id=_NETWORK_LOGON,
            is_remote=True,
            service={"name": "ldap"},
            session={"uid": rest["conn"]},
            rest=rest,
            fields={"event_code": "RESULT"},
            **outcome,
            **_ends(client, line),
        )
    if code == "SRCH" or code in _ACTIVITY:
        activity = _ACTIVITY.get(code, _QUERY)
        return _stored(activity, code, "", rest, client, line, outcome=outcome)
    return _plain(rest, client, line, **outcome)


def _plain(rest: dict[str, Any], client: Client, line: Line, **outcome: Any) -> Event:
    return daemon_event(line, _PRODUCT, BASE, 0, src_endpoint=client.source, rest=rest, **outcome)


@dataclass(frozen=True)
class OpenLdap(Daemon, JoiningSource):
    """slapd, its lines joined by connection."""

    def part_of(self, record: Record, context: Context) -> str | None:
        if b"conn=" not in record.raw or b"\n" in record.raw.rstrip(b"\r\n"):
            return None
        line = self.framed(one_line(record.raw), context)
        match = CONNECTION.fullmatch(line.text)
        if match is None or not _JOINED.match(match["words"]):
            return None
        # A pool keeps its connection for days: only its beginning, where the bind stands,
        # is joined as a whole; afterwards each operation with its result.
        late = match["op"] is not None and match["op"] not in ("0", "1")
        return f"{line.host} {line.pid} {match['conn']} {match['op'] if late else ''}"

    def join(self, parts: Sequence[Record], context: Context) -> list[Event]:
        if len(parts) == 1:
            return self.parse(parts[0], context)
        return self.several([part.raw for part in parts], context)

    def several(self, raws: list[bytes], context: Context) -> list[Event]:
        lines: list[Line | Unreadable] = []
        for raw in raws:
            try:
                lines.append(self.framed(one_line(raw), context))
            except Unreadable as why:
                lines.append(why)
        if all(isinstance(line, Unreadable) for line in lines):
            raise Unreadable(str(lines[0]))
        return list(self._joined(lines, context))

    def _joined(self, lines: list[Line | Unreadable], context: Context) -> list[Event]:
        # Results first: the line of an operation comes before the one that says how it ended.
        results = _results(lines)
        clients: dict[tuple[Any, ...], Client] = {}
        events: list[Event] = []
        for line in lines:
            if isinstance(line, Unreadable):
                events.append({"dead_letter_reason": str(line)})
                continue
            match = CONNECTION.fullmatch(line.text)
            if match is None or not self._is_ours(line):
                events.append(self.read(line, context))
                continue
            # Numbers of connections begin anew when slapd starts, hence the process as well.
            key = (line.host, line.pid, match["conn"])
            if match["words"].startswith("ACCEPT"):
                clients[key] = Client()
            client = clients.setdefault(key, Client())
            operation = (*key, match["op"])
            if _RESULT.fullmatch(match["words"]) and operation in results:
                continue  # told with its operation
            event = _read(line, client, results.get(operation))
            events.append(event or self.read(line, context))
        return events

    def _is_ours(self, line: Line) -> bool:
        return line.program is None or self.reads_program(line.program)


def _results(
    lines: Sequence[Line | Unreadable],
) -> dict[tuple[Any, ...], re.Match[str]]:
    """The results of operations that are among the lines too."""
    operations: set[tuple[Any, ...]] = set()
    matches: dict[tuple[Any, ...], re.Match[str]] = {}
    for line in lines:
        match = None if isinstance(line, Unreadable) else CONNECTION.fullmatch(line.text)
        if match is None or isinstance(line, Unreadable) or match["op"] is None:
            continue
        key = (line.host, line.pid, match["conn"], match["op"])
        result = _RESULT.fullmatch(match["words"])
        if result is None:
            # Second lines of an operation, and steps of one, have no result of their own.
            if not match["words"].startswith(("SRCH attr", "MOD attr", "EXT", "STARTTLS")):
                operations.add(key)
        elif key in operations and key not in matches:
            matches[key] = result
    return matches


SOURCES = (
    OpenLdap(
        name="openldap",
        programs=frozenset({"slapd", "lload", "lloadd"}),
        product=_PRODUCT,
        reader=read,
        forms=(_OWN,),
        bare=re.compile(r"conn=\d{1,20} (?:fd|op)="),
    ),
)
