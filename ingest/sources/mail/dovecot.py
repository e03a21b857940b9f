"""Dovecot 2.2 to 2.4: logins, logouts, authentication and delivery, from syslog or its own log.

https://doc.dovecot.org/main/core/summaries/settings.html (login_log_format_elements,
mail_log_prefix, log_timestamp) and https://doc.dovecot.org/main/core/admin/logging.html.
A login names the user in `user=<...>`, where anything may stand unless auth_username_chars
forbids it; the fields behind it are read from the last place that they can begin at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    EMAIL,
    FAILURE,
    INFORMATIONAL,
    LOW,
    NETWORK,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, severity
from ingest.sources.shared.daemon_source import NAMED, Daemon, daemon_event, endpoint, pam
from ingest.sources.shared.daemon_timestamps import CTIME, DAEMON_EPOCH, ISO, TAI64N, YEARLESS

_PRODUCT: Mapping[str, str] = {"name": "Dovecot", "vendor_name": "Dovecot"}
_LOGON, _LOGOFF, _NETWORK_LOGON = 1, 2, 3
_CLOSE, _RECEIVE, _SEND = 2, 2, 1
_INBOUND, _OUTBOUND = 1, 2

PROCESSES = frozenset(
    {
        *("anvil", "aggregator", "auth", "auth-worker", "config", "deliver", "dict"),
        *("dict-async", "director", "dns-client", "doveadm", "dovecot-auth", "dovecot-lda"),
        *("dsync", "dsync-local", "dsync-server", "imap", "imap-hibernate", "imap-login"),
        *("imap-urlauth", "imap-urlauth-login", "imap-urlauth-worker", "indexer"),
        *("indexer-worker", "ipc", "lda", "lmtp", "log", "managesieve", "managesieve-login"),
        *("master", "old-stats", "pop3", "pop3-login", "quota-status", "replicator", "script"),
        *("script-login", "ssl-params", "stats", "submission", "submission-login", "tcpwrap"),
    }
)
# Longer names first, or `auth` would be read of `auth-worker`.
_NAMES = "|".join(sorted(PROCESSES, key=len, reverse=True))
_OWN = re.compile(
    rf"(?P<time>{YEARLESS}|{ISO}|{CTIME}|{TAI64N}|{DAEMON_EPOCH})[: ] ?"
    rf"(?:(?P<host>[^\s:(<\[]{{1,255}}) )?(?P<text>(?:{_NAMES})[:(<].*)",
    re.ASCII,
)
_MESSAGE = re.compile(
    rf"(?:dovecot: )?(?P<process>{_NAMES})(?:\((?P<who>[^()]{{0,300}})\))?"
    r"(?:<(?P<pid>\d{1,10})>)?(?:<(?P<session>[^<>\s]{0,128})>)?: "
    r"(?:(?P<level>Debug|Info|Warning|Error|Fatal|Panic): )?(?P<words>.*)",
    re.ASCII,
)
_LOGIN = re.compile(
    r"(?P<what>[A-Z][^<>]{0,300}?): (?:user=<(?P<user>.*)>, ?)?"
    r"(?P<fields>(?:method=[\w-]{1,64}, )?rip=[^\s,<>]{1,64}(?:,.{0,2000})?)"
)
"""`user=<.*>` is greedy: of several places where fields could begin, the last."""
REASON = re.compile(r"\((?P<reason>[^()]{0,200})\)")
ATTEMPTS = re.compile(r"auth failed, (\d{1,6}) attempts")
AUTH = re.compile(
    r"(?:conn \S{1,200} \([^()]{0,200}\): )?(?:auth-worker<\d{1,10}>: )?"
    r"(?P<db>[a-z][\w-]{0,40})\((?P<user>.*?),(?P<ip>[0-9A-Fa-f.:]{2,45})"
    r"(?:,(?:master|<?(?P<session>[^<>,()\s]{1,128})>?))*\)(?:<[^<>\s]{1,128}>)?: "
    r"(?P<words>.{1,2000})"
)
_OF_PROCESS = re.compile(
    r"(?P<user>.*?),(?P<ip>[0-9A-Fa-f.:]{2,45})(?:,sasl:(?P<method>[\w-]{1,40}))?"
)
"""Since 2.4 the process names the user and the address: `auth(ann,10.0.0.5,sasl:plain)<id>: `."""
_REFUSED = re.compile(
    r"unknown user|password mismatch|pam_authenticate\(\) failed|authentication fail|"
    r"invalid (?:password|credentials)|username character disallowed|login denied|"
    r"account (?:is )?(?:disabled|locked|expired)|no password|user not found|"
    r"oauth2 failed|ldap_bind\(\) failed|"
    r"policy|not allowed|doesn't match|empty (?:password|username)|user is disabled",
    re.IGNORECASE,
)
_ENDED = re.compile(
    r"(?P<why>(?:Disconnected|Logged out|Connection closed|Disconnect)\b.{0,300}?)"
    r"(?: (?P<numbers>(?:in|top|bytes|deleted)=.{1,1000}))?"
)
DELIVERED = re.compile(
    r"(?:[\w+/=-]{1,64}: ){0,2}(?:from=<?(?P<from>[^<>\s]{0,300})>?, )?"
    r"msgid=(?:<(?P<msgid>[^<>]{0,1000})>|(?P<plain>[^\s:]{0,1000}))?(?P<trail>[^:]{0,50}): "
    r"(?P<words>.{1,2000})"
)
_FORWARDED = re.compile(r"(?:forwarded|sent (?:\w+ ){0,3}response) to <?(?P<to>[^\s<>]{1,300})>?")


def _read(line: Line, context: Context) -> Event | None:
    """What one of Dovecot's processes says; None where it is none of them."""
    text = line.text
    # Through syslog a process may log under its own name, without `dovecot:` before it.
    if line.program in PROCESSES and not line.program.startswith("dovecot"):
        text = f"{line.program}: {text}"
    match = _MESSAGE.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    words = part["words"]
    if words.startswith("pam_"):
        return pam(line._replace(text=words), _PRODUCT)
    if part["process"].endswith("-login"):
        at_login = _at_login(words, part, line)
    elif part["process"] in ("auth", "auth-worker", "dovecot-auth"):
        at_login = _authentication(words, part, line)
    else:
        at_login = _session(words, part, line)
    return at_login or _other(part, line)


def _service(process: str) -> dict[str, str]:
    return {"name": process.removesuffix("-login")}


def _level(part: Mapping[str, Any], line: Line) -> int:
    written = part["level"]
    return NAMED[written.lower()] if written else severity(line)


def _at_login(words: str, part: Mapping[str, Any], line: Line) -> Event | None:
    match = _LOGIN.fullmatch(words)
    if match is None:
        return None
    rest: dict[str, Any] = {}
    fields = _fields(match["fields"], rest)
    what, user = match["what"], match["user"] or None
    good = what in ("Login", "Logged in") or what.startswith("proxy")
    reasons = [reason for reason in REASON.findall(what) if reason]
    attempts = ATTEMPTS.search(what)
    silent = "no auth attempts" in what
    columns: dict[str, Any] = {
        "src_endpoint": endpoint(fields.pop("rip", None), fields.pop("rport", None), rest=rest),
        "dst_endpoint": endpoint(
            fields.pop("lip", None), fields.pop("lport", None), rest=rest, name="local"
        ),
        "status_detail": None if good else what,
        "status_code": reasons[-1] if len(reasons) > 1 and " " not in reasons[-1] else None,
    }
    session, method = fields.pop("session", None), fields.pop("method", None)
    rest |= fields | kept(attempts=attempts[1] if attempts else None, log_level=part["level"])
    # Nobody tried to log in: a port scan is no failed login.
    if not good and silent:
        return daemon_event(
            line,
            _PRODUCT,
            NETWORK,
            _CLOSE,
            app_name=_service(part["process"])["name"],
            by_session=session,
            rest=rest | kept(user=user, method=method),
            fields={"log_name": part["process"]},
            severity_id=INFORMATIONAL,
            **columns,
        )
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=SUCCESS if good else FAILURE,
        severity_id=INFORMATIONAL if good else LOW,
        user={"name": user} if user else None,
        session={"uid": session} if session else None,
        auth_method=method,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service=_service(part["process"]),
        rest=rest,
        fields={"log_name": part["process"]},
        **columns,
    )


def _fields(text: str, rest: dict[str, Any]) -> dict[str, str]:
    """`a=b, c=<d>, TLS` as a mapping; words without a value are named `tls` or kept in `rest`."""
    fields: dict[str, str] = {}
    words: list[str] = []
    for piece in text.split(", "):
        name, equals, value = piece.partition("=")
        if equals and name.isidentifier() and name not in fields:
            fields[name] = value[1:-1] if value[:1] == "<" and value[-1:] == ">" else value
        elif piece.startswith("TLS") and "tls" not in rest:
            rest["tls"] = piece
        elif piece:
            words.append(piece)
    if words:
        rest["flags"] = words
    return fields


def _authentication(words: str, part: Mapping[str, Any], line: Line) -> Event | None:
    match = AUTH.fullmatch(words)
    process = _OF_PROCESS.fullmatch(part["who"] or "")
    if match is None and process:
        words = f"{part['process']}({part['who'].partition(',sasl:')[0]}): {words}"
        match = AUTH.fullmatch(words)
    # `auth_debug` tells of each attempt many times over.
    if match is None or (part["level"] or "Info") == "Debug":
        return None
    message = match["words"]
    if not _REFUSED.search(message):
        return None
    rest: dict[str, Any] = kept(db=match["db"], log_level=part["level"], worker=part["who"])
    ip, user = match["ip"], match["user"] or None
    if re.search(
        r",[0-9A-Fa-f.:]{2,45}(?:,<?[^<>,()\s]*>?)*\): ", message
    ) and not message.startswith("Username character"):
        # The name imitates what follows it: which address is the client's nobody can tell.
        rest |= {"ambiguous": True}
        ip, user = "", None
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=FAILURE,
        severity_id=LOW,
        status_detail=message,
        src_endpoint=endpoint(ip, rest=rest) if ip else None,
        # `?` is what Dovecot writes where the client has named nobody yet.
        user={"name": user} if user and user != "?" else None,
        session={"uid": match["session"]} if match["session"] else None,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "dovecot"},
        rest=rest,
        fields={"log_name": part["process"]},
    )


def _session(words: str, part: Mapping[str, Any], line: Line) -> Event | None:
    """What a session of a user says: its end, or a mail it delivered."""
    who = part["who"]
    user = who.rpartition(",")[2].strip() if who else None
    # In some versions the process id stands in these brackets.
    if not user or user.isdecimal():
        return None
    if part["pid"]:
        line = line._replace(pid=int(part["pid"]))
    ended = _ENDED.fullmatch(words)
    if ended and part["process"] in ("imap", "pop3", "managesieve", "submission"):
        return _logoff(ended, user, part, line)
    delivered = DELIVERED.fullmatch(words)
    return _mail(delivered, user, part, line) if delivered else None


def _logoff(ended: re.Match[str], user: str, part: Mapping[str, Any], line: Line) -> Event:
    numbers: dict[str, Any] = {}
    for piece in (ended["numbers"] or "").replace(",", " ").split():
        name, _, value = piece.partition("=")
        numbers[name] = int(value) if value.isdecimal() and len(value) < 19 else value
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGOFF,
        status_id=SUCCESS,
        severity_id=_level(part, line),
        status_detail=ended["why"],
        user={"name": user},
        session={"uid": part["session"]} if part["session"] else None,
        is_remote=True,
        service=_service(part["process"]),
        rest=numbers | kept(log_level=part["level"]),
        fields={"log_name": part["process"]},
    )


def _mail(match: re.Match[str], user: str, part: Mapping[str, Any], line: Line) -> Event:
    words = match["words"]
    onward = _FORWARDED.match(words)
    failed = re.search(r"fail|rejected|error|exceeded", words[:80]) is not None
    msgid = match["msgid"] or match["plain"]
    return daemon_event(
        line,
        _PRODUCT,
        EMAIL,
        _SEND if onward else _RECEIVE,
        status_id=FAILURE if failed else SUCCESS,
        status_detail=words,
        severity_id=_level(part, line),
        email=kept(
            **{"from": match["from"] or None},
            to=[onward["to"] if onward else user],
            message_uid=msgid or None,
        ),
        by=user if onward else None,
        more={"direction_id": _OUTBOUND if onward else _INBOUND},
        rest=kept(user=user, session=part["session"], trail=match["trail"].strip() or None),
        fields={"log_name": part["process"]},
    )


def _other(part: Mapping[str, Any], line: Line) -> Event:
    return daemon_event(
        line,
        _PRODUCT,
        BASE,
        0,
        severity_id=_level(part, line),
        rest=kept(user=part["who"], process_pid=part["pid"], session=part["session"])
        | kept(log_level=part["level"]),
        fields={"log_name": part["process"]},
    )


SOURCES = (
    Daemon(
        name="dovecot",
        programs=frozenset(
            {
                *("dovecot", "dovecot-auth", "dovecot-lda", "dovecot-imap-login", "deliver"),
                *("imap-login", "pop3-login", "managesieve-login", "submission-login"),
            }
        ),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN,),
        bare=re.compile(rf"(?:dovecot: )?(?:{_NAMES})[:(<]"),
    ),
)
