"""ProFTPD: its system log (own file or syslog), TransferLog and ExtendedLog.

http://www.proftpd.org/docs/howto/Logging.html and
http://www.proftpd.org/docs/modules/mod_log.html for the formats, its source for the words.
What a client sends stands behind `server (name[address])`, which ProFTPD writes itself: only
from there the address is taken. mod_sftp's own log names the user and no address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    FAILURE,
    MEDIUM,
    NETWORK,
    OTHER,
    SSH,
    SUCCESS,
    address,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import CLF
from ingest.sources.shared.xferlog import DELETE, GET, LIST, PUT, RENAME, XFERLOG, ftp, transfer

_PRODUCT: Mapping[str, str] = {"name": "ProFTPD", "vendor_name": "ProFTPD Project"}
_LOGON, _PREAUTH, _NETWORK_LOGON = 1, 6, 3
_OPEN, _CLOSE = 1, 2

# No name may hold a bracket: the client's is what its owner put into the DNS, and must not end the
# parentheses early.
_SESSION = re.compile(
    r"(?P<server>[^\s()\[\]]{1,255}) \((?P<client>[^\s()\[\]]{0,255})\[(?P<ip>[^\]\s]{1,64})\]\)"
    r"(?: -|:) ?(?P<words>.*)",
    re.ASCII,
)
_SERVER = re.compile(r"(?P<server>[^\s()\[\]:]{1,255})(?: -|:) (?P<words>.*)", re.ASCII)
_USER = r"(?:USER|ANON) (?P<user>.*)"
_PATTERNS: tuple[tuple[int, int, re.Pattern[str]], ...] = (
    (_LOGON, SUCCESS, re.compile(rf"{_USER}: Login successful\.?")),
    (
        _LOGON,
        FAILURE,
        re.compile(
            rf"{_USER}: (?P<detail>no such user found) from (?P<name>\S{{1,255}}) "
            r"\[(?P<again>\S{1,64})\] to (?P<to>\S{1,64}?)(?::(?P<to_port>\d{1,5}))?"
        ),
    ),
    (_LOGON, FAILURE, re.compile(rf"{_USER} \(Login failed\): (?P<detail>.{{1,300}})")),
    (_LOGON, FAILURE, re.compile(rf"{_USER}: (?P<detail>Login failed.{{0,300}})")),
    (
        _LOGON,
        FAILURE,
        re.compile(r"SECURITY VIOLATION: (?P<detail>(?P<user>[Rr]oot) login attempted\.?)"),
    ),
    (_PREAUTH, FAILURE, re.compile(r"(?P<detail>Maximum login attempts \(\d+\) exceeded.{0,100})")),
    (_PREAUTH, FAILURE, re.compile(r"(?P<detail>FTP login timed out, disconnected)")),
    (_PREAUTH, FAILURE, re.compile(r"Refused user (?P<user>.*) for (?P<detail>service \S{1,99})")),
    (
        _PREAUTH,
        FAILURE,
        re.compile(r"(?:mod_ban/\S{1,20}: )?(?P<detail>Login denied: .{1,300})"),
    ),
    (
        _LOGON,
        SUCCESS,
        re.compile(
            r"(?:mod_sftp/\S{1,20}: )?user '(?P<user>.*)' authenticated via "
            r"'(?P<method>[\w/-]{1,40})' method"
        ),
    ),
    (
        _LOGON,
        FAILURE,
        re.compile(
            r"(?:mod_sftp/\S{1,20}: )?(?P<detail>[Aa]uthentication failed|no such user) "
            r"(?:for user )?'(?P<user>.*)'(?P<why>(?: found|:).{0,200})?"
        ),
    ),
    (
        _LOGON,
        FAILURE,
        re.compile(
            r"(?:mod_sftp/\S{1,20}: )?(?:sending userauth failure|(?P<detail>client sent invalid "
            r"(?:password|key)) for user '(?P<user>.*)').{0,200}"
        ),
    ),
)
_OPENED = re.compile(r"(?P<kind>FTP|SSH2|FTPS|SFTP|SCP|HTTP) session opened\.?")
_CLOSED = re.compile(
    r"(?P<kind>FTP|SSH2|FTPS|SFTP|SCP|HTTP) "
    r"(?P<detail>session closed|session idle timeout, disconnected|"
    r"no transfer timeout, disconnected|transfer stalled.{0,60})\.?.{0,100}"
)
VIOLATION = re.compile(r"SECURITY VIOLATION: .*|Refused (?:PORT|EPRT) .*")
# LogFormat default "%h %l %u %t \"%r\" %s %b"
EXTENDED = re.compile(
    r"(?P<peer>\S{1,255}) (?P<ident>\S{1,255}) (?P<user>.{1,300}?) "
    r"\[\d\d/[A-Z][a-z]{2}/\d{4}:[^\]]{14}\] "
    r"\"(?P<request>.*)\" (?P<code>\d{3}|-) (?P<size>\d{1,19}|-)",
    re.ASCII,
)
_OWN = re.compile(
    # The time stands within the line, whose text is all of it all the same.
    rf"(?=(?P<text>.*))\S{{1,255}} \S{{1,255}} [^\[\]]{{1,300}} \[(?P<time>{CLF})\] "
    r"\".*\" (?:\d{3}|-) (?:\d{1,19}|-)",
    re.ASCII,
)
_COMMANDS: Mapping[str, int] = {
    **dict.fromkeys(("STOR", "APPE", "STOU"), PUT),
    "RETR": GET,
    **dict.fromkeys(("DELE", "RMD", "XRMD"), DELETE),
    **dict.fromkeys(("RNFR", "RNTO"), RENAME),
    **dict.fromkeys(("LIST", "NLST", "MLSD", "MLST"), LIST),
}
_PATHLESS = frozenset({"USER", "PASS", "TYPE", "PORT", "EPRT", "PASV", "EPSV", "SYST", "FEAT"})


def _read(line: Line, context: Context) -> Event | None:
    """A session, login, command or transfer; None for what else ProFTPD says."""
    match = EXTENDED.fullmatch(line.text)
    if match:
        return _extended(match.groupdict(), line)
    match = _SESSION.fullmatch(line.text)
    if match:
        return _session(match["words"].strip(), match.groupdict(), line)
    transferred = transfer(line, _PRODUCT)
    if transferred:
        return transferred
    match = _SERVER.fullmatch(line.text)
    words = match["words"] if match else line.text
    # Without a client's address only the modules' own words are logins.
    if (line.program or "").startswith("mod_") or words.startswith("mod_"):
        return _session_event(words, {}, line)
    return None


def _session(words: str, part: dict[str, Any], line: Line) -> Event:
    result = _session_event(words, part, line)
    if result:
        return result
    rest: dict[str, Any] = {"server": part["server"]}
    opened, closed = _OPENED.fullmatch(words), _CLOSED.fullmatch(words)
    position = opened or closed
    if position is None:
        return daemon_event(
            line,
            _PRODUCT,
            BASE,
            0,
            src_endpoint=_source(part, rest),
            severity_id=MEDIUM if VIOLATION.fullmatch(words) else None,
            rest=rest,
        )
    secure = position["kind"] in ("SSH2", "SFTP", "SCP")
    return daemon_event(
        line,
        _PRODUCT,
        SSH if secure else NETWORK,
        _OPEN if opened else _CLOSE,
        status_id=SUCCESS,
        status_detail=None if closed is None else closed["detail"],
        src_endpoint=_source(part, rest),
        dst_endpoint=_server(part, line),
        connection_info={"protocol_name": "tcp", "protocol_num": 6, "direction_id": 1},
        app_name=position["kind"].lower(),
        rest=rest,
    )


def _source(part: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any] | None:
    return endpoint(part.get("ip"), rest=rest, hostname=part.get("client"))


def _server(part: Mapping[str, Any], line: Line) -> dict[str, Any] | None:
    name = part.get("server") or line.host
    if not name:
        return None
    ip = address(name)
    return {"ip": ip} if ip else {"hostname": name}


def _session_event(words: str, part: Mapping[str, Any], line: Line) -> Event | None:
    for activity, status, pattern in _PATTERNS:
        match = pattern.fullmatch(words)
        if match:
            return _login(activity, status, match.groupdict(), part, line)
    return None


def _login(
    activity: int, status: int, login: dict[str, str | None], part: Mapping[str, Any], line: Line
) -> Event:
    rest: dict[str, Any] = kept(server=part.get("server"), why=login.get("why"))
    target = _server(part, line)
    if login.get("to"):
        local = endpoint(login["to"], login["to_port"], rest=rest, name="to") or {}
        target = (target or {}) | local
    user, method = login.get("user") or None, login.get("method")
    sftp = method or "mod_sftp" in line.text or (line.program or "").startswith("mod_sftp")
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        activity,
        status_id=status,
        status_detail=login.get("detail"),
        src_endpoint=_source(part, rest),
        dst_endpoint=target,
        user={"name": user} if user else None,
        auth_method=method,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "sftp" if sftp else "ftp"},
        rest=rest,
    )


def _extended(part: dict[str, Any], line: Line) -> Event:
    """A line of ExtendedLog in its default format."""
    user = part["user"] if part["user"] not in ("-", "UNKNOWN") else None
    rest: dict[str, Any] = kept(
        ident=part["ident"] if part["ident"] not in ("-", "UNKNOWN") else None
    )
    verb, _, argument = part["request"].partition(" ")
    verb, code = verb.upper(), part["code"]
    # Replies of FTP below 400 are no errors; three digits compare as text.
    done = None if code == "-" else code < "400"
    size = int(part["size"]) if part["size"] != "-" and int(part["size"]) < 2**63 else None
    # USER is only a login where the reply to it decides, else PASS is.
    if verb in ("PASS", "USER") and (verb == "PASS" or code in ("230", "530", "232")):
        name = user or (argument if verb == "USER" else None)
        return daemon_event(
            line,
            _PRODUCT,
            AUTHENTICATION,
            _LOGON,
            status_id=SUCCESS if done else FAILURE,
            status_code=code,
            src_endpoint=endpoint(part["peer"], rest=rest),
            dst_endpoint={"hostname": line.host} if line.host else None,
            user={"name": name} if name else None,
            auth_method="password",
            logon_type_id=_NETWORK_LOGON,
            is_remote=True,
            service={"name": "ftp"},
            rest=rest,
            fields={"log_name": "ExtendedLog"},
        )
    path = argument if argument and verb not in _PATHLESS else None
    activity = _COMMANDS.get(verb, OTHER)
    return ftp(
        line,
        _PRODUCT,
        activity,
        done,
        peer=part["peer"],
        user=user,
        path=path,
        # The bytes of a listing are no file's size.
        size=size if activity in (PUT, GET) else None,
        command=verb or None,
        activity_name=verb[:32] or "Other",
        status_code=code if code != "-" else None,
        rest=rest
        | kept(
            argument=argument if argument and path is None else None,
            size=size if activity not in (PUT, GET) else None,
        ),
        log_name="ExtendedLog",
    )


SOURCES = (
    Daemon(
        name="proftpd",
        programs=frozenset({"proftpd", "in.proftpd", "mod_sftp", "mod_tls", "mod_ban"}),
        product=_PRODUCT,
        reader=_read,
        forms=(XFERLOG, _OWN),
    ),
)
