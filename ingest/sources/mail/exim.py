"""Exim's main and reject log, from its own file or through syslog.

https://www.exim.org/exim-html-current/doc/html/spec_html/ch53.html (Log files; 4.50, 4.68 and the
current edition): two-character marks tell arrivals (`<=`) from deliveries (`=>`, `->`, `>>`, `*>`),
failures (`**`) and delays (`==`); fields such as `H=`, `A=` and `S=` follow in a fixed order. Ids
of messages have 16 characters, from 4.97 on 23. What a client or a remote server chose stands in
quotes or behind all that Exim wrote, so lines are read from the front and stop at `id=` and `C=`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    ALLOWED,
    AUTHENTICATION,
    BASE,
    DENIED,
    EMAIL,
    FAILURE,
    INFORMATIONAL,
    LOW,
    NETWORK,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint

_PRODUCT: Mapping[str, str] = {"name": "Exim", "vendor_name": "Exim"}
_LOGON, _NETWORK_LOGON = 1, 3
_SEND, _RECEIVE, _TRACE = 1, 2, 4
_INBOUND, _OUTBOUND, _INTERNAL = 1, 2, 3
_OPEN, _CLOSE, _FAIL, _REFUSE, _TRAFFIC = 1, 2, 4, 5, 6
_PASSED, _REJECTED, _DROPPED, _BLOCKED = 1, 25, 6, 2

_TIME = r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: [+-]\d{4})?)"
_OWN = re.compile(rf"{_TIME} (?:\[(?P<pid>\d{{1,10}})\] )?(?P<text>.*)", re.ASCII)
# Exim cuts a long line for syslog and counts the parts; it may write its own time there as well.
_SYSLOG = re.compile(
    r"(?:\[(?P<part>\d{1,3}\\\d{1,3})\] )?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*(?: [+-]\d{4})? )?"
    r"(?:\[\d{1,10}\] )?(?P<words>.*)",
    re.ASCII,
)
_QUEUED = re.compile(
    r"(?P<id>[0-9A-Za-z]{6}-[0-9A-Za-z]{6}-[0-9A-Za-z]{2}|"
    r"[0-9A-Za-z]{6}-[0-9A-Za-z]{11}-[0-9A-Za-z]{4}) (?P<words>.*)",
    re.ASCII,
)
# The name that a client gives itself stands in parentheses; Exim refuses one that holds spaces.
_HOST = (
    r"(?:(?P<host>[^\s()\[\]=\"<>]{1,255}) )?(?:\((?P<helo>[^\s()]{0,300})\) )?"
    # The asterisk marks a further message over a connection that was there.
    r"\[(?P<ip>[0-9A-Fa-f.:]{2,45})\](?::(?P<port>\d{1,5}))?\*?"
)
_ADDRESS = r"(?:\"(?:[^\"\\]|\\.)*\"[^\s<>]*|[^\s<>\"]*)"
_ENVELOPE = rf"<(?P<addr>{_ADDRESS})>"
_FIELD = re.compile(
    rf" (?:H={_HOST}|F={_ENVELOPE}|"
    r"(?P<name>[A-Z][A-Za-z0-9]{0,7}|id)=(?P<value>\"(?:[^\"\\]|\\.)*\"|[^\s\"]\S*)|"
    r"(?P<flag>K|L[-*.]?|TFO\*?|PRDR\*?|DSN))(?=[ :]|$)"
)
_TAIL = re.compile(
    r"(?: T=\"(?P<subject>(?:[^\"\\]|\\.)*)\")?(?: from <(?P<sender>[^<>]*)>)?"
    r"(?: for (?P<to>[^\s\"=<>]{1,320}(?: [^\s\"=<>]{1,320}){0,99}))?"
)
# A colon behind an address is none of it: the reason follows there.
_MOVED = re.compile(
    rf"(?P<mark><=|=>|->|>>|\*>|\*\*|==) (?P<addr><>|{_ADDRESS}(?<!:))"
    rf"(?P<aliases>(?: \([^()]{{1,500}}\))?(?: <{_ADDRESS}>)?)(?P<fields>[ :].*)?"
)
_DEFER = re.compile(r" (?:routing )?defer \((?P<code>-?\d{1,6})\):? ?(?P<why>.*)")
_DECISION = re.compile(
    r" (?P<verb>(?:temporarily )?(?:rejected|discarded|refused)) "
    rf"(?P<stage>RCPT|MAIL|VRFY|EXPN|AUTH|ETRN|STARTTLS|EHLO or HELO|after DATA|connection|"
    rf"by \w{{1,40}}\(\)|[A-Z]{{3,10}})(?: {_ENVELOPE})?(?P<text>.*)"
)
_VERIFY = re.compile(rf" sender verify (?P<kind>fail|defer) for {_ENVELOPE}:? ?(?P<text>.*)")
_WARNED = re.compile(r" Warning: (?P<text>.*)")
_LOGIN = re.compile(
    rf"(?P<method>[\w.-]{{1,64}}) authenticator (?P<outcome>failed|deferred) for (?:H=)?{_HOST}"
    r"(?: I=\[(?P<local>[0-9A-Fa-f.:]{2,45})\](?::(?P<local_port>\d{1,5}))?)?"
    r"(?: U=\S{1,64})?(?: D=\S{1,16})?: (?P<code>\d{3}) (?P<why>[^()]{0,200}?)"
    r"(?: \(set_id=(?P<user>.*)\))?(?P<more>: [^()]*)?"
)
_PEER = (
    rf"(?:H=)?{_HOST}(?: I=\[(?P<local>[0-9A-Fa-f.:]{{2,45}})\](?::(?P<local_port>\d{{1,5}}))?)?"
    r"(?: D=\S{1,16})?"
)
# What Exim says of connections; the first that fits counts. Each begins with words of Exim's own.
_CONNECTIONS: tuple[tuple[re.Pattern[str], int, int | None], ...] = tuple(
    (re.compile(pattern), activity, status)
    for pattern, activity, status in (
        (rf"SMTP connection from {_PEER}(?: \(TCP/IP connection count = \d+\))?", _OPEN, SUCCESS),
        (rf"SMTP connection from {_PEER} (?P<why>closed by QUIT.*)", _CLOSE, SUCCESS),
        (rf"SMTP connection from {_PEER} (?P<why>closed .*|(?:D=\S+ )?lost.*)", _CLOSE, FAILURE),
        (rf"(?P<why>(?:unexpected disconnection|SMTP command timeout|SMTP data timeout|"
         rf"no MAIL in SMTP connection)[a-z ()A-Z]{{0,80}}?) (?:from|on connection from) {_PEER}"
         r"(?P<more> .*)?", _CLOSE, FAILURE),
        (rf"SMTP call from {_PEER} (?P<why>dropped:? .*)", _REFUSE, FAILURE),
        (rf"Connection from {_PEER} (?P<why>refused: .*)", _REFUSE, FAILURE),
        (rf"refused connection from {_PEER}(?P<why>.*)", _REFUSE, FAILURE),
        (rf"rejected connection from {_PEER}(?P<why>.*)", _REFUSE, FAILURE),
        (r"SMTP protocol synchronization error \([^()]{0,80}\): rejected (?:connection from|"
         rf"\"[^\"]{{0,200}}\") {_PEER}(?P<why> .*)?", _REFUSE, FAILURE),
        (rf"TLS error on connection from {_PEER} (?P<why>\(.*)", _FAIL, FAILURE),
        (r"(?P<why>no host name found for IP address) (?P<ip>[0-9A-Fa-f.:]{2,45})", _TRAFFIC, None),
        (r"(?P<why>no IP address found for host \S{1,255} \(during SMTP connection) from "
         rf"{_PEER}\)", _TRAFFIC, None),
    )
)  # fmt: skip


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line; None where Exim speaks of itself."""
    rest: dict[str, Any] = {}
    text = line.text
    # Only then can the number of a part, or a time of Exim's own, stand in front.
    framed = _SYSLOG.fullmatch(text) if text[:1] == "[" or text[:2] == "20" else None
    if framed:
        text, rest = framed["words"], kept(part=framed["part"])
    queued = _QUEUED.fullmatch(text)
    uid = queued["id"] if queued else None
    words = queued["words"] if queued else text
    if uid:
        moved = _MOVED.fullmatch(words)
        if moved:
            arrived = moved["mark"] == "<="
            return (_arrival if arrived else _delivery)(moved, uid, rest, line)
    return (
        _decision(words, uid, rest, line)
        or (_login(words, rest, line) if uid is None else None)
        or _connection(words, rest, line)
        or (_trace(words, uid, rest, line) if uid else None)
    )


def _fields(text: str, rest: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any], str]:
    """Exim's fields, the host among them with its parts, and what follows the fields.

    Nothing behind a message's id or a server's answer counts as a field: others wrote those.
    """
    fields: dict[str, str] = {}
    host: dict[str, Any] = {}
    position = 0
    while match := _FIELD.match(text, position):
        part = match.groupdict()
        position = match.end()
        if part["ip"]:
            host = host or part
        elif part["addr"] is not None:
            fields.setdefault("F", part["addr"])
        elif part["flag"]:
            rest[part["flag"].rstrip("-*.")] = True
        else:
            value = part["value"]
            fields.setdefault(part["name"], value[1:-1] if value[:1] == '"' else value)
            if part["name"] in ("id", "C"):
                break
    return fields, host, text[position:]


def _end(part: Mapping[str, Any], rest: dict[str, Any], name: str) -> dict[str, Any] | None:
    if not part.get("ip"):
        return None
    return endpoint(
        part["ip"], part.get("port"), rest=rest, name=name, hostname=part.get("host") or None
    )


def _interface(written: str | None, line: Line, rest: dict[str, Any]) -> dict[str, Any] | None:
    """The server's own end as a field has it: `I=[10.0.0.1]:25`."""
    match = re.fullmatch(
        r"\[(?P<local>[0-9A-Fa-f.:]{2,45})\](?::(?P<local_port>\d{1,5}))?", written or ""
    )
    return _local(match.groupdict() if match else {}, line, rest)


def _local(part: Mapping[str, Any], line: Line, rest: dict[str, Any]) -> dict[str, Any] | None:
    """The server's own end: its address, or the host's name."""
    if part.get("local"):
        return endpoint(part["local"], part["local_port"], rest=rest, name="interface")
    return {"hostname": line.host} if line.host else None


def _number(text: str | None) -> int | None:
    # More digits do not fit 64 bits.
    return int(text) if text and text.isdecimal() and len(text) <= 18 else None


def _arrival(moved: re.Match[str], uid: str, rest: dict[str, Any], line: Line) -> Event:
    """A message that Exim took, from a host or from a program of its own machine."""
    fields, host, behind = _fields(moved["fields"] or "", rest)
    tail = _TAIL.fullmatch(behind)
    sender = "" if moved["addr"] == "<>" else moved["addr"]
    # `A=` is written only when a login succeeded; `U=` of a host is what that host answered.
    method, _, account = fields.pop("A", "").partition(":")
    by = account or (fields.pop("U", "") if not host else "")
    protocol = fields.pop("P", None)
    to = tail["to"].split() if tail and tail["to"] else []
    if tail:
        rest |= kept(received_from=tail["sender"])
    else:
        rest["tail"] = behind.strip()
    size = fields.pop("S", None)
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        _RECEIVE,
        status_id=SUCCESS,
        severity_id=INFORMATIONAL,
        src_endpoint=_end(host, rest, "client"),
        dst_endpoint=_interface(fields.pop("I", None), line, rest),
        by=by or None,
        email=kept(
            uid=uid,
            **{"from": sender or None},
            to=to or None,
            subject=re.sub(r"\\(.)", r"\1", tail["subject"]) if tail and tail["subject"] else None,
            size=_number(size),
            message_uid=fields.pop("id", None),
        ),
        more={"direction_id": _INBOUND if host else _INTERNAL}
        | kept(smtp_hello=host.get("helo"), protocol_name=protocol),
        rest=rest
        | fields
        | kept(
            auth_method=method or None,
            size=size if _number(size) is None else None,
            null_sender=True if not sender else None,
        ),
        fields={"correlation_uid": uid},
    )


def _delivery(moved: re.Match[str], uid: str, rest: dict[str, Any], line: Line) -> Event:
    """A recipient that a message reached, could not reach, or has to wait for."""
    mark = moved["mark"]
    fields, host, behind = _fields(moved["fields"] or "", rest)
    target = _end(host, rest, "server")
    answer = fields.pop("C", None)
    delayed = _DEFER.fullmatch(behind) if mark == "==" else None
    why = delayed["why"] if delayed else behind.lstrip(": ")
    if delayed and why.startswith("H="):
        # Newer versions write the host behind the error's number.
        more, host, behind = _fields(f" {why}", rest)
        target, why = _end(host, rest, "server"), behind.lstrip(": ")
        fields |= more
    detail = answer
    if mark in ("**", "=="):
        status, detail = FAILURE, f"{'failed' if mark == '**' else 'deferred'}: {why}"
    else:
        # `*>` says that the delivery was only tried out.
        status = SUCCESS
        rest |= kept(tail=why or None)
    size = fields.pop("S", None)
    # Without a host it went into a mailbox, or to a program, of this machine.
    activity = _SEND if target or mark in ("**", "==") else _RECEIVE
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        activity,
        status_id=status,
        severity_id=INFORMATIONAL if status == SUCCESS else LOW,
        status_code=delayed["code"] if delayed else None,
        status_detail=detail.rstrip(": ") if detail else None,
        src_endpoint={"hostname": line.host} if line.host else None,
        dst_endpoint=target,
        email=kept(
            uid=uid,
            **{"from": fields.pop("F", None) or None},
            to=[moved["addr"]] if moved["addr"] else None,
            size=_number(size),
        ),
        more={"direction_id": _OUTBOUND if activity == _SEND else _INBOUND},
        rest=rest
        | fields
        | kept(mark=mark, aliases=moved["aliases"].strip() or None)
        | kept(size=size if _number(size) is None else None),
        fields={"correlation_uid": uid},
    )


def _decision(words: str, uid: str | None, rest: dict[str, Any], line: Line) -> Event | None:
    """What an access list decided about a client, a sender, a recipient or a message."""
    if not words.startswith(("H=", "U=", "F=", "P=")):
        return None
    fields, host, behind = _fields(f" {words}", rest)
    match = _DECISION.fullmatch(behind) or _VERIFY.fullmatch(behind) or _WARNED.fullmatch(behind)
    if match is None:
        return None
    part = match.groupdict()
    decided = part.get("verb")
    address = part.get("addr")
    method, _, account = fields.pop("A", "").partition(":")
    common: dict[str, Any] = {
        "status_detail": part["text"].lstrip(": ") or None,
        "src_endpoint": _end(host, rest, "client"),
        "dst_endpoint": _interface(fields.pop("I", None), line, rest),
        "by": account or None,
        "fields": {"correlation_uid": uid},
    }
    if decided:
        dropped = decided == "discarded"
        common |= {
            "status_id": FAILURE,
            "action_id": DENIED,
            "disposition_id": _DROPPED if dropped else _REJECTED,
        }
        rest |= {"decision": decided, "stage": part["stage"]}
    elif part.get("kind"):
        common["status_id"] = FAILURE
        rest["decision"] = f"sender verify {part['kind']}"
    else:
        common |= {"status_id": SUCCESS, "action_id": ALLOWED, "disposition_id": _PASSED}
    rest |= kept(auth_method=method or None)
    stage = part.get("stage")
    if stage in ("connection", "AUTH", "STARTTLS"):
        common["disposition_id"] = _BLOCKED
        return daemon_event(
            line,
            _PRODUCT,
            NETWORK,
            _REFUSE,
            app_name="smtp",
            rest=rest | fields | kept(helo=host.get("helo")),
            **common,
        )
    sender = fields.pop("F", None)
    recipient = address if stage == "RCPT" else None
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        _RECEIVE,
        email=kept(uid=uid, **{"from": sender or None}, to=[recipient] if recipient else None),
        command=stage if stage and stage.isupper() else None,
        more={"direction_id": _INBOUND}
        | kept(smtp_hello=host.get("helo"), protocol_name=fields.pop("P", None)),
        rest=rest
        | fields
        | kept(
            address=address if address != recipient else None,
            null_sender=True if sender == "" else None,
        ),
        **common,
    )


def _login(words: str, rest: dict[str, Any], line: Line) -> Event | None:
    match = _LOGIN.fullmatch(words)
    if match is None:
        return None
    part = match.groupdict()
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=FAILURE,
        status_code=part["code"],
        status_detail=part["why"] + (part["more"] or ""),
        src_endpoint=_end(part, rest, "client"),
        dst_endpoint=_local(part, line, rest),
        user={"name": part["user"]} if part["user"] else None,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "smtp"},
        rest=rest
        | kept(helo=part["helo"], authenticator=part["method"])
        | kept(outcome="deferred" if part["outcome"] == "deferred" else None),
    )


def _connection(words: str, rest: dict[str, Any], line: Line) -> Event | None:
    for pattern, activity, status in _CONNECTIONS:
        match = pattern.fullmatch(words)
        if match is None:
            continue
        part = match.groupdict()
        refused = activity == _REFUSE
        why = f"{part.get('why') or ''}{part.get('more') or ''}".strip() or None
        return daemon_event(
            line,
            _PRODUCT,
            NETWORK,
            activity,
            status_id=status,
            status_detail=why,
            action_id=DENIED if refused else None,
            disposition_id=_BLOCKED if refused else None,
            src_endpoint=_end(part, rest, "client"),
            dst_endpoint=_local(part, line, rest),
            app_name="smtp",
            rest=rest | kept(helo=part.get("helo")),
        )
    return None


def _trace(words: str, uid: str, rest: dict[str, Any], line: Line) -> Event:
    """A step on a message's way: done, frozen, signed, or words of a filter."""
    words = words.strip()
    done = re.fullmatch(r"Completed(?: QT=\S{1,20})?", words)
    if not done and not re.match(
        r"(?:\*\*\* )?(?:[Ff]rozen|Unfrozen|Message is frozen|DKIM:)", words
    ):
        return daemon_event(line, _PRODUCT, BASE, 0, rest=rest, fields={"correlation_uid": uid})
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        _TRACE,
        status_id=SUCCESS if done else None,
        status_detail=words,
        email={"uid": uid},
        more={"direction_id": 0},
        rest=rest,
        fields={"correlation_uid": uid},
    )


SOURCES = (
    Daemon(
        name="exim",
        programs=frozenset({"exim", "exim4"}),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN,),
    ),
)
