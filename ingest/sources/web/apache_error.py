"""Apache httpd's error log (https://httpd.apache.org/docs/2.4/logs.html#errorlog).

2.2: `[Sat Nov 21 10:00:00 2026] [error] [client 1.2.3.4] File does not exist: /x`;
2.4: `[Sat Nov 21 10:00:00.123456 2026] [core:error] [pid 1:tid 2] [client 1.2.3.4:5678]
AH00126: ...`, in syslog without the time. The client stands before everything that it
could have sent; of what looks like one later nothing is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import BASE, DENIED, FAILURE, INFORMATIONAL, address, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, month_number, stamp_iso, stamp_parts
from ingest.sources.shared.http_exchange import (
    ERROR_LEVELS,
    FAILED,
    PORT,
    Exchange,
    basic_logon,
    http_event,
    request_line,
    unescape,
    user_of,
    whole,
)
from ingest.sources.shared.web_timestamps import replacing, write_ctime
from ingest.sources.web.modsecurity import modsecurity_finding

_PRODUCT: Mapping[str, str] = {"name": "HTTP Server", "vendor_name": "Apache"}
_LEVELS: Mapping[str, int] = MappingProxyType(
    {**ERROR_LEVELS, **dict.fromkeys((f"trace{n}" for n in range(1, 9)), INFORMATIONAL)}
)
_FAIL, _TRAFFIC, _REFUSE, _BLOCKED = 4, 6, 5, 2
_CTIME = (
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? \d{4}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)
_LINE = re.compile(
    rf"(?:\[(?P<time>{_CTIME})\] )?"
    r"\[(?P<module>[\w-]{0,64}:)?(?P<level>[a-z]{4,6}\d?)\] "
    r"(?:\[pid (?P<pid>\d{1,10})(?::tid (?P<tid>[0-9a-fx]{1,20}))?\] )?"
    r"(?P<cause>(?:[\w./-]{1,200}\.[ch](?:\(\d{1,7}\))?: )?(?:\(\S{1,10}\)[^\[\]]{1,200}: )?)"
    r"(?:\[(?:client|remote) (?P<client>\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?|[^\]\s]{1,255})\] )?"
    r"(?:\[(?:host|server) (?P<host>[^\]\s]{1,255})\] )?"
    r"(?P<text>.*)",
    re.ASCII | re.DOTALL,
)
_CODE = re.compile(r"(AH\d{5}): (.*)", re.ASCII | re.DOTALL)
_CLOCK = re.compile(
    r"\w{3} (?P<month>\w{3}) (?P<day>[ \d]\d) (?P<clock>[\d:.]+) (?P<year>\d{4})", re.ASCII
)
_WRITTEN = re.compile(rf"\[(?P<time>{_CTIME})\]", re.ASCII)
WRONG_PASSWORD = re.compile(
    r'user (?P<user>.*): authentication failure for "(?P<target>.*)": .*', re.DOTALL
)
_OF_USER = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # mod_auth_digest, which names the realm in quotes of its own
        r"(?:Digest: )?user `(?P<user>.*)' in realm `.*' (?:not found|denied by provider)"
        r"(?:: (?P<target>\S*))?",
        r"(?:Digest: )?user (?P<user>.*): (?:password mismatch|nonce|invalid).*?"
        r"(?:: (?P<target>\S*))?",
        r"user (?P<user>.*) not found(?:: (?P<target>\S*))?",
        r"user (?P<user>.*): authentication failure(?: .*)?",
        # mod_authnz_ldap before and since 2.4, mod_authnz_pam, mod_authn_dbd, mod_auth_form
        r"(?:\[\d+\] )?auth_ldap authenticate: (?:user (?P<user>.*?) )?authentication failed; "
        r"URI (?P<target>\S*) .*",
        r"PAM: user '(?P<user>.*)' - (?:not authenticated|invalid account).*",
        r"PAM (?:authentication|account validation) failed for user (?P<user>.*?): .*",
        # mod_auth_kerb, mod_auth_gssapi
        r"krb5_get_init_creds_password\(\) failed: .*",
        r"gss_(?:accept_sec_context|acquire_cred|init_sec_context)\(\) failed: .*",
        r"GSS ERROR .*",
        r"(?:Digest: )?realm mismatch - got .*|(?:Digest: )?invalid nonce .*",
    )
)
"""A login that failed, in the words of each module; what it does not say is missing."""
QUOTED = re.compile(r"'.*'", re.DOTALL)
_NOT_ALLOWED = (
    # mod_authz_core since 2.4, mod_authz_host before
    re.compile(r'user (?P<user>.*?): authorization failure for "(?P<target>.*)": ?', re.DOTALL),
    # mod_authz_user, mod_authz_groupfile and others of 2.0 and 2.2
    re.compile(
        r"access to (?P<target>.*) failed, reason: user (?P<user>.*?) "
        r"(?:does not meet 'require'ments|not allowed access).*",
        re.DOTALL,
    ),
    re.compile(r"authorization failure \(no authenticated user\): (?P<target>.*)", re.DOTALL),
)
"""Who is known and may not: no login failed, the request was refused.

The server knows the user, so the words of the format inside of it can only be the URL's.
"""
FORBIDDEN = re.compile(
    r"client denied by server configuration: (.*)|access to (\S+) (?:denied|failed).*|"
    r".*(?:client used wrong authentication scheme|not allowed access).*",
    re.DOTALL,
)
MISSING = re.compile(
    r"(?:File does not exist|script not found or unable to stat|Directory index forbidden by "
    r"Options directive|client denied by server configuration|attempt to invoke directory as "
    r"script|Cannot serve directory): (/[^,]*|[A-Z]:[/\\][^,]*).*",
    re.DOTALL,
)
_ASKED = re.compile(r".*?(?:in|of|for) request:? ([A-Z]{3,16} .*)", re.DOTALL)


def _stamp(text: str | None, line: Line, zone: ZoneInfo, received_at: datetime) -> Stamp:
    if text is None:
        return line.stamp
    match = _CLOCK.fullmatch(text)
    if match is None:
        return stamp_iso(text, zone, received_at)
    return stamp_parts(
        int(match["year"]),
        month_number(match["month"]),
        int(match["day"]),
        match["clock"],
        zone,
        received_at,
        original=text,
    )


def _client(x: Exchange, text: str) -> None:
    """The client with its port behind the last colon, which an address of 2.2 lacks."""
    host, colon, port = text.rpartition(":")
    number = whole(port, PORT)
    # 2.2 writes no port, and the last part of an IPv6 address looks like one.
    host = host.strip("[]")
    if colon and number is not None and (address(host) or ":" not in host):
        x.client, x.client_port = host, number
    else:
        x.client = text


def _read(line: Line, context: Context) -> Event | None:
    """A message; None for what is no line of an error log."""
    match = _LINE.fullmatch(line.text)
    if match is None or match["level"] not in _LEVELS:
        return None
    # Brackets alone do not make it Apache's.
    if match["time"] is None and line.program is None:
        return None
    stamp = _stamp(match["time"], line, context.zone(line.host), context.record.received_at)
    x = Exchange()
    x.rest |= line.rest
    if match["client"]:
        _client(x, match["client"])
    if match["host"]:
        x.server = {"hostname": match["host"]}
    pid = whole(match["pid"]) if match["pid"] else line.pid
    x.columns["actor"] = None
    if pid is not None:
        x.columns["actor"] = {"process": kept(name="httpd", pid=pid, tid=whole(match["tid"]))}
    if match["tid"] and whole(match["tid"]) is None:
        x.rest["tid"] = match["tid"]
    module = (match["module"] or "").rstrip(":")
    x.more = {"metadata": {"log_level": match["level"]}}
    x.meta = kept(log_name="error", log_provider=module or line.program)
    return _event(x, match["text"], match["cause"].removesuffix(": "), match["level"], stamp, line)


def _event(x: Exchange, text: str, cause: str, level: str, stamp: Stamp, line: Line) -> Event:
    # From the end: the referrer is the client's, and Apache puts it last.
    head, ended, referrer = text.rpartition('"], referer: ')
    # An escaped quote is part of the matched data, and no end of a field.
    if ended and head[-1:] != "\\" and "ModSecurity: " in head:
        text, x.referrer = f'{head}"]', unescape(referrer)
    attack = modsecurity_finding(text, x, stamp, line.host, {"actor": x.columns["actor"]})
    if attack:
        return attack
    message, result, referrer = text.rpartition(", referer: ")
    if result:
        text, x.referrer = message, unescape(referrer)
    code = _CODE.fullmatch(text)
    words = unescape(code[2] if code else text)
    if code:
        x.meta["event_code"] = code[1]
    failed = level in FAILED
    columns: dict[str, Any] = {
        "severity_id": _LEVELS[level],
        "status_id": FAILURE if failed else None,
        "status_detail": cause or None,
        "message": words,
    }
    if x.client is None:
        return http_event(
            x, stamp, _PRODUCT, host=line.host, class_uid=BASE, activity_id=0, **columns
        )
    return http_event(
        x, stamp, _PRODUCT, host=line.host, **(columns | _of_client(x, words, failed))
    )


def _of_client(x: Exchange, words: str, failed: bool) -> dict[str, Any]:
    """What a message about a client says besides: who, which file, which request."""
    columns: dict[str, Any] = {}
    # Behind these two codes the words of a failed login can only be the URL's.
    denied = x.meta.get("event_code") in ("AH01629", "AH01631")
    wrong = next(
        (match for form in (WRONG_PASSWORD, *_OF_USER) if (match := form.fullmatch(words))), None
    )
    if wrong and not denied:
        named = wrong.groupdict()
        x.target = named.get("target") or None
        name = named.get("user") or ""
        # mod_auth_form alone writes the name in quotes; of any other module they are the name's.
        if x.meta.get("log_provider") == "auth_form" and QUOTED.fullmatch(name):
            name = name[1:-1]
        return basic_logon(name, "httpd")
    request = _ASKED.fullmatch(words)
    text_found = request and (request_line(request[1]) or request_line(f"{request[1]} HTTP/0"))
    if text_found:
        x.method, x.target = text_found[0], text_found[1]
        x.version = None if text_found[2] == "0" else text_found[2]
    missing = MISSING.fullmatch(words)
    if missing:
        columns["file"] = {"path": missing[1], "type_id": 0}
    not_allowed = next((match for form in _NOT_ALLOWED if (match := form.fullmatch(words))), None)
    refused = not_allowed or FORBIDDEN.fullmatch(words)
    if refused:
        columns |= {"action_id": DENIED, "disposition_id": _BLOCKED, "status_id": FAILURE}
    if not_allowed:
        named = not_allowed.groupdict()
        x.target = named["target"] or None
        name = named.get("user") or ""
        x.user = name[1:-1] if QUOTED.fullmatch(name) and "reason: " in words else name or None
        if x.user:
            x.columns["actor"] = (x.columns["actor"] or {}) | {"user": user_of(x.user)}
    elif refused and refused[2]:
        x.target = x.target or refused[2]
    # OCSF's HTTP Activity needs a request; without one it is the connection that failed.
    if not (x.target or x.method or x.referrer):
        columns["activity_id"] = _REFUSE if refused else _FAIL if failed else _TRAFFIC
        if "file" in columns:
            x.rest["file"] = columns.pop("file")["path"]
    return columns


SOURCES = (
    FramedSource(
        name="apache_error",
        programs=frozenset({"httpd", "apache", "apache2", "apache-error", "apache_error"}),
        product=_PRODUCT,
        reader=_read,
        restamper=replacing(_WRITTEN, write_ctime),
    ),
)
