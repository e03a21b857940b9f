"""Postfix: what all its services say, through syslog or postlogd's file.

https://www.postfix.org/postconf.5.html, https://www.postfix.org/POSTSCREEN_README.html and
https://www.postfix.org/SMTPD_ACCESS_README.html for the words, 2.6 to 3.10. The queue id ties
the lines of one mail together: it is the mail's `email.uid` and the `correlation_uid`.

The client stands as `host[address]` before anything that it can choose, so it is read from the
front. Addresses of mail are quoted as RFC 5321 has it, and read so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    CRITICAL,
    DENIED,
    EMAIL,
    FAILURE,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.mail.postfix_network import network, other_end
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint

_PRODUCT: Mapping[str, str] = {"name": "Postfix", "vendor_name": "Postfix"}
_LOGON, _NETWORK_LOGON = 1, 3
_SEND, _RECEIVE, _SCAN, TRACE, RELAY = 1, 2, 3, 4, 5
UNKNOWN_WAY, _INBOUND, _OUTBOUND, INTERNAL = 0, 1, 2, 3
REJECTED, _BLOCKED, ALLOWED_WAY, QUARANTINED, _DROPPED = 25, 2, 1, 3, 6

# Short queue ids are hexadecimal, long ones (`enable_long_queue_ids`) of letters and digits.
QUEUED = re.compile(
    r"(?P<qid>NOQUEUE|[0-9A-F]{5,20}|(?=[^:]{0,24}\d)[0-9A-Za-z]{10,25}): (?P<words>.*)", re.ASCII
)
_LEVEL = re.compile(r"(?P<level>warning|error|fatal|panic|info): (?P<words>.*)")
_LEVELS: Mapping[str, int] = {
    "info": INFORMATIONAL,
    "warning": MEDIUM,
    "error": HIGH,
    "fatal": CRITICAL,
    "panic": CRITICAL,
}
_HOST = r"(?P<host>[^\s\[\]]{0,255})\[(?P<ip>[0-9A-Fa-f.:]{2,45}|unknown)\](?::(?P<port>\d{1,5}))?"
SASL = re.compile(
    rf"{_HOST}: SASL (?P<method>[\w-]{{1,40}}) authentication "
    r"(?P<outcome>failed|aborted):? ?(?P<detail>.*)"
)
SASL_NAME = re.compile(r"(?P<detail>.*?), sasl_username=(?P<user>.*)")
_CLIENT = re.compile(rf"client={_HOST}(?P<fields>,.*)?")
_ACTION = re.compile(
    r"(?P<action>(?:milter-|proxy-)?(?:reject|reject_warning|hold|discard|filter|redirect|warn|"
    r"permit|prepend|bcc|delay|accept|tempfail|info|strip|replace|quarantine)|warning): "
    rf"(?P<stage>[A-Za-z][\w ./<>:-]{{0,200}}?) from {_HOST}:? (?P<text>.*)"
)
LOCAL_ACTION = re.compile(
    r"(?P<action>reject|hold|discard|filter|redirect|warn|info|prepend|replace|strip|warning|"
    r"milter-reject|milter-hold|milter-discard): "
    r"(?P<stage>END-OF-MESSAGE\b.{0,1000}? from local); ?(?P<text>.*)"
)
# A header's value is the sender's own; it ends where the client and the envelope begin.
CONTENT_ACTION = re.compile(
    r"(?P<action>[a-z]{3,16}): (?P<stage>(?:mime-|nested-)?(?:header|body)) (?P<value>.*?) "
    rf"from (?:local|{_HOST}); (?P<text>from=<.*)"
)
_CLIENTS = re.compile(r" from (?:local|[^\s\[\]]{0,255}\[[^\[\]]{2,45}\](?::\d{1,5})?); from=<")
REPLY = re.compile(r"(?P<code>[245]\d\d)(?:[ -](?P<dsn>[245]\.\d{1,3}\.\d{1,3}))? ?(?P<why>.*)")
# An address as Postfix writes it: what is quoted may hold any character.
_ADDRESS = r"(?:\"(?:[^\"\\]|\\.)*\"[^<>]*|[^<>\"]*)"
ENVELOPE = re.compile(
    rf"(?:from=<(?P<from>{_ADDRESS})>,? ?)?(?:to=<(?P<to>{_ADDRESS})>,? ?)?"
    r"(?:proto=(?P<proto>\w{1,16}),? ?)?(?:helo=<(?P<helo>[^<>]*)>)?(?P<more>.*)"
)
_FROM = re.compile(
    rf"from=<(?P<from>{_ADDRESS})>, (?:size=(?P<size>\d{{1,18}}), nrcpt=(?P<nrcpt>\d{{1,9}})"
    r"(?: \(queue (?P<queue>\w+)\))?|status=(?P<status>[\w-]+), (?P<detail>.*))"
)
_TO = re.compile(
    rf"to=<(?P<to>{_ADDRESS})>, (?:orig_to=<(?P<orig_to>{_ADDRESS})>, )?"
    r"relay=(?P<relay>[^\s,]{1,400}), (?P<fields>(?:[a-z_]{1,20}=[^\s,]{1,64}, ){0,8})"
    r"status=(?P<status>[\w-]{1,30})(?: \((?P<detail>.*)\))?"
)
RELAY_HOST = re.compile(
    r"(?P<host>[^\[\]]{0,255})\[(?P<ip>[^\[\]]{1,300})\](?::(?P<port>\d{1,5}))?"
)
MESSAGE_ID = re.compile(r"(?:resent-)?message-id=(?:<(?P<id>.*)>|(?P<plain>.*))")
PICKUP = re.compile(rf"uid=(?P<uid>\d{{1,10}}) from=<(?P<from>{_ADDRESS})>(?P<more>.*)")
_PEER_REPLY = re.compile(
    rf"(?:host )?{_HOST} (?:said: |refused to talk to me: )(?P<detail>.*)|"
    r"(?:conversation|lost connection) with (?P<host2>[^\s\[\]]{0,255})"
    r"\[(?P<ip2>[0-9A-Fa-f.:]{2,45})\](?::\d{1,5})? (?P<detail2>.*)"
)
NOTICE = re.compile(
    r"(?P<what>sender|postmaster|recipient) (?P<kind>non-delivery|delay|delivery status) "
    r"(?:status )?notification: (?P<child>[0-9A-Za-z]{5,25})"
)
_LOCAL = frozenset({"local", "virtual", "lmtp", "pipe", "lda", "spawn"})


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line; a base event where Postfix says what has no class."""
    program = line.program or "postfix"
    service = program.rpartition("/")[2]
    text, rest = line.text, kept(service=service if service != "postfix" else None)
    severity = None
    match = _LEVEL.fullmatch(text)
    if match:
        text, severity = match["words"], _LEVELS[match["level"]]
        rest["log_level"] = match["level"]
    queued = QUEUED.fullmatch(text)
    qid = None
    # `NOQUEUE` stands for a mail that was refused before it had an id.
    if queued:
        text, qid = queued["words"], queued["qid"]
        match = _LEVEL.fullmatch(text)
        # `warning:` may also be an action of an access table, and then is no level.
        if match and not _ACTION.fullmatch(text) and not LOCAL_ACTION.fullmatch(text):
            text, severity = match["words"], _LEVELS[match["level"]]
            rest["log_level"] = match["level"]
    # Logins first: a client's line with `sasl_username` is a login and a step of a mail at once.
    authentication = _authentication(text, qid, rest, line) or _action(text, qid, rest, line)
    if authentication is None and qid and qid != "NOQUEUE":
        authentication = _mail(text, qid, service, rest, line)
    return (
        authentication
        or network(text, _PRODUCT, rest, severity, line)
        or daemon_event(
            line,
            _PRODUCT,
            BASE,
            0,
            severity_id=severity,
            rest=rest,
            fields={"correlation_uid": qid if qid != "NOQUEUE" else None},
        )
    )


def _server(line: Line) -> dict[str, str] | None:
    return {"hostname": line.host} if line.host else None


def _authentication(text: str, qid: str | None, rest: dict[str, Any], line: Line) -> Event | None:
    """A login that failed; or one that succeeded, which Postfix says with the mail's client."""
    failed = SASL.fullmatch(text)
    client = None if failed else _CLIENT.fullmatch(text)
    fields = _named(client["fields"] or "") if client else {}
    if failed is None and (client is None or "sasl_username" not in fields):
        return None
    peer = failed or client
    part = peer.groupdict() if peer else {}
    detail, user = part.get("detail"), fields.pop("sasl_username", None)
    if part.get("outcome") == "aborted":
        detail = f"aborted: {detail}" if detail else "aborted"
    named = SASL_NAME.fullmatch(detail) if detail else None
    if named:
        detail, user = named["detail"], named["user"]
    # Postfix writes this where the client gave no name before the login failed.
    if user == "(unavailable)":
        user = None
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=FAILURE if failed else SUCCESS,
        severity_id=LOW if failed else INFORMATIONAL,
        status_detail=detail or None,
        src_endpoint=other_end(part, rest),
        dst_endpoint=_server(line),
        user={"name": user} if user else None,
        auth_method=part.get("method") or fields.pop("sasl_method", None),
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "smtp"},
        rest=rest | fields | kept(queue_id=qid),
        fields={"correlation_uid": qid if qid != "NOQUEUE" else None},
    )


def _named(text: str) -> dict[str, str]:
    """`, a=b, c=d` as a mapping."""
    results: dict[str, str] = {}
    for piece in text.split(", "):
        name, equals, value = piece.partition("=")
        if equals and name not in results:
            results[name.strip(", ")] = value
    return results


_DECIDED: Mapping[str, tuple[int, int, int]] = {
    "reject": (FAILURE, DENIED, REJECTED),
    "tempfail": (FAILURE, DENIED, REJECTED),
    "discard": (FAILURE, DENIED, _DROPPED),
    "hold": (SUCCESS, 4, QUARANTINED),
    "quarantine": (SUCCESS, 4, QUARANTINED),
}
"""Status, action and disposition; all else lets the mail pass."""


def _action(text: str, qid: str | None, rest: dict[str, Any], line: Line) -> Event | None:
    """What an access rule, a header check or a filter decided about a client or a mail."""
    match = _ACTION.fullmatch(text) or LOCAL_ACTION.fullmatch(text)
    match = match or CONTENT_ACTION.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    if match.re is CONTENT_ACTION:
        rest |= {"content": part["value"]}
        if len(_CLIENTS.findall(text)) > 1:
            # The mail imitates what follows it: nobody can tell which client is the true one.
            rest |= {"ambiguous": True, "envelope": part["text"]}
            part |= {"ip": None, "text": "", "value": None}
    decided = part["action"].removeprefix("milter-").removeprefix("proxy-")
    status, action, disposition = _DECIDED.get(decided, (SUCCESS, 1, ALLOWED_WAY))
    as_text, mark, behind = part["text"].partition("; ")
    if not mark and as_text.startswith("from=<"):
        as_text, behind = "", as_text
    envelope = ENVELOPE.fullmatch(behind)
    # What stands after a `; ` that does not open the envelope is a part of the words.
    while mark and not (envelope and envelope["more"] != behind) and "; " in behind:
        more, mark, behind = behind.partition("; ")
        as_text, envelope = f"{as_text}; {more}", ENVELOPE.fullmatch(behind)
    mail = envelope.groupdict() if envelope and envelope["more"] != behind else {}
    if not mail:
        as_text = part["text"]
    reply = REPLY.fullmatch(as_text)
    tail = (mail.get("more") or "").strip(" :")
    helo = mail.get("helo")
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        _RECEIVE,
        status_id=status,
        severity_id=LOW if status == FAILURE else INFORMATIONAL,
        status_code=reply["code"] if reply else None,
        status_detail=(reply["why"] if reply else as_text) or tail or None,
        action_id=action,
        disposition_id=disposition,
        src_endpoint=other_end(part, rest) if part.get("ip") else None,
        dst_endpoint=_server(line),
        command=part["stage"] if part["stage"].isupper() else None,
        email=_email(qid, mail.get("from"), mail.get("to")),
        more={"direction_id": _INBOUND}
        | kept(smtp_hello=helo, protocol_name=mail.get("proto") or None),
        rest=rest
        | kept(
            action=part["action"],
            stage=part["stage"],
            dsn=reply["dsn"] if reply else None,
            tail=tail or None,
            null_sender=True if mail.get("from") == "" else None,
        ),
        fields={"correlation_uid": qid if qid != "NOQUEUE" else None},
    )


def _email(
    qid: str | None, sender: str | None = None, to: str | None = None, **more: Any
) -> dict[str, Any]:
    leaves = kept(uid=qid if qid != "NOQUEUE" else None, **{"from": sender or None}, **more)
    return leaves | ({"to": [to]} if to else {})


def _mail(text: str, qid: str, service: str, rest: dict[str, Any], line: Line) -> Event | None:
    """A step on a mail's way through the queue."""
    match = _TO.fullmatch(text)
    if match:
        return _delivery(match, qid, service, rest, line)
    for pattern, read_step in _STEPS:
        match = pattern.fullmatch(text)
        if match:
            columns = read_step(match.groupdict(), qid, rest)
            activity = columns.pop("activity", TRACE)
            more = {"direction_id": columns.pop("way", UNKNOWN_WAY)}
            return daemon_event(
                line,
                _PRODUCT,
                EMAIL,
                activity,
                **({"email": _email(qid), "more": more, "rest": rest} | columns),
                fields={"correlation_uid": qid},
            )
    return None


def _delivery(
    match: re.Match[str], qid: str, service: str, rest: dict[str, Any], line: Line
) -> Event:
    fields = _named(match["fields"])
    relay = RELAY_HOST.fullmatch(match["relay"])
    target: dict[str, Any] | None = None
    # A socket's path in the brackets means a local service, no host.
    if relay and "/" not in relay["ip"]:
        target = endpoint(
            relay["ip"], relay["port"], rest=rest, name="relay", hostname=relay["host"]
        )
    elif match["relay"] != "none":
        target = {"svc_name": match["relay"]}
    at_home = service in _LOCAL or target is None or "svc_name" in target
    # Handed to a filter on the same machine, from which the mail comes back under another id.
    inside = target is not None and (target.get("ip") or "").startswith(("127.", "::1"))
    status = match["status"]
    delay = fields.pop("delay", "")
    seconds = float(delay) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", delay) else None
    code, detail = fields.pop("dsn", None), match["detail"]
    # `deliverable` is said of an address that was only probed (ADDRESS_VERIFICATION_README).
    good = status in ("sent", "deliverable", "filtered")
    activity = RELAY if inside else _RECEIVE if at_home and service != "smtp" else _SEND
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        activity,
        status_id=SUCCESS if good else FAILURE,
        severity_id=INFORMATIONAL if good else LOW,
        status_code=code,
        status_detail=f"{status} ({detail})" if detail else status,
        dst_endpoint=target,
        src_endpoint=_server(line),
        email=_email(qid, to=match["to"]),
        duration=None if seconds is None else int(seconds * 1000),
        more={"direction_id": {RELAY: INTERNAL, _RECEIVE: _INBOUND, _SEND: _OUTBOUND}[activity]},
        rest=rest
        | fields
        | kept(
            orig_to=match["orig_to"],
            relay=match["relay"] if target is None or "/" in match["relay"] else None,
            delay=delay if delay and seconds is None else None,
            status=status,
        ),
        fields={"correlation_uid": qid},
    )


# -- steps: what each says about the mail ---------------------------------------------------------

_Part = Mapping[str, Any]


def _queue(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    rest |= kept(
        nrcpt=int(part["nrcpt"]) if part["nrcpt"] else None,
        queue=part["queue"],
        status=part["status"],
        null_sender=True if part["from"] == "" else None,
    )
    size = int(part["size"]) if part["size"] else None
    return {
        "email": _email(qid, part["from"], size=size),
        "status_id": FAILURE if part["status"] else SUCCESS,
        "status_detail": part["detail"],
    }


def _received(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    rest |= _named(part["fields"] or "")
    return {
        "activity": _RECEIVE,
        "status_id": SUCCESS,
        "src_endpoint": other_end(part, rest),
        "email": _email(qid),
    }


def _cleanup(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    return {"email": _email(qid, message_uid=part["id"] or part["plain"] or None)}


def _pickup(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    rest |= kept(uid=part["uid"], more=part["more"].strip() or None)
    return {"activity": _RECEIVE, "status_id": SUCCESS, "email": _email(qid, part["from"])}


def _refused(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    ip, host = part["ip"] or part["ip2"], part["host"] or part["host2"]
    return {
        "activity": _SEND,
        "way": _OUTBOUND,
        "status_id": FAILURE,
        "status_detail": part["detail"] or part["detail2"],
        "dst_endpoint": endpoint(ip, part["port"], rest=rest, hostname=host),
    }


def _notice(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    rest |= {
        "notification": part["kind"],
        "notified": part["what"],
        "child_queue_id": part["child"],
    }
    return {}


def _removed(part: _Part, qid: str, rest: dict[str, Any]) -> dict[str, Any]:
    return {}


_STEPS = (
    (_FROM, _queue),
    (_CLIENT, _received),
    (MESSAGE_ID, _cleanup),
    (PICKUP, _pickup),
    (_PEER_REPLY, _refused),
    (NOTICE, _notice),
    (re.compile(r"removed"), _removed),
)

SOURCES = (
    Daemon(
        name="postfix",
        programs=frozenset({"postfix"}),
        product=_PRODUCT,
        reader=_read,
        families=("postfix/", "postfix-"),
    ),
)
