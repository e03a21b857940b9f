"""vsftpd: its own log, the transfer log of wu-ftpd, and both through syslog.

The lines are those of its source (https://security.appspot.com/vsftpd.html, logging.c), all
built alike: `[pid 3] [user] OK UPLOAD: Client "1.2.3.4", "/a", 12 bytes, 3.4Kbyte/sec`. In
names vsftpd replaces what cannot be printed by `?`, but leaves brackets and quotes. A line
that can be read in two ways is therefore kept without an address, marked `ambiguous`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import AUTHENTICATION, BASE, FAILURE, FTP, NETWORK, OTHER, SUCCESS, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import CTIME
from ingest.sources.shared.xferlog import DELETE, GET, LIST, PUT, RENAME, XFERLOG, ftp, transfer

_PRODUCT: Mapping[str, str] = {"name": "vsftpd", "vendor_name": "Chris Evans"}
_LOGON, _NETWORK_LOGON, _OPEN = 1, 3, 1

_ACTIONS: Mapping[str, int] = {
    "UPLOAD": PUT,
    "DOWNLOAD": GET,
    "DELETE": DELETE,
    "RENAME": RENAME,
    "MKDIR": OTHER,
    "RMDIR": OTHER,
    "CHMOD": OTHER,
    "APPEND": PUT,
    "LIST": LIST,
}
_EVENTS = "|".join(_ACTIONS)
_OWN = re.compile(rf"(?P<time>{CTIME}) (?P<text>\[pid \d{{1,10}}\] .*)", re.ASCII)
_CLIENT = re.compile(r": Client \"")
_HEAD = re.compile(
    r"(?:\[pid (?P<pid>\d{1,10})\] )?(?:\[(?P<user>.*)\] )?"
    rf"(?P<what>CONNECT|(?:OK|FAIL) (?:LOGIN|{_EVENTS})|DEBUG|FTP command|FTP response)",
    re.ASCII,
)
_PEER = r"(?P<peer>[^\"\s]{1,64})\""
_BEHIND = {
    "CONNECT": re.compile(rf"{_PEER}(?P<quoted>)(?P<tail>)"),
    "LOGIN": re.compile(
        rf"{_PEER}(?:, (?:anon password \"(?=(?P<quoted>.*)\"\Z).*|\"(?P<reason>[^\"]*))\")?"
        r"(?P<tail>)"
    ),
    "": re.compile(rf"{_PEER}(?:, \"(?P<quoted>.*)\")?(?P<tail>[^\"]*)"),
}
"""What may stand behind the address, by the last word before it."""
_TAIL = re.compile(
    r"(?:, (?P<size>\d{1,19}) bytes)?(?:, (?P<rate>[\d.]{1,32}) ?Kbyte/sec)?", re.ASCII
)


def _read(line: Line, context: Context) -> Event | None:
    """A connection, login, command or transfer; None for what else vsftpd says."""
    readings = _readings(line.text)
    if not readings:
        return transfer(line, _PRODUCT)
    if len(readings) > 1:
        return daemon_event(line, _PRODUCT, BASE, 0, rest={"ambiguous": True})
    part = readings[0]
    if part["pid"] and line.pid is None:
        line = line._replace(pid=int(part["pid"]))
    what, user, peer = part["what"] or "", part["user"] or None, part["peer"] or ""
    quoted = part["quoted"] or part.get("reason") or None
    if what == "CONNECT":
        return _connect(peer, line)
    if what.endswith(" LOGIN"):
        return _login(what, peer, user, quoted, line)
    if what.startswith(("OK ", "FAIL ")):
        return _action(what, peer, user, quoted, part["tail"] or "", line)
    return _command(what, peer, user, quoted, part["tail"] or "", line)


def _readings(text: str) -> list[dict[str, str | None]]:
    """Every way the line can be read: a name or a path may itself imitate a message."""
    readings = []
    # Bounded: a path may hold the mark as often as it likes.
    for match in list(_CLIENT.finditer(text))[:8]:
        head = _HEAD.fullmatch(text, 0, match.start())
        if head:
            behind = _BEHIND.get(head["what"].rpartition(" ")[2], _BEHIND[""])
            tail = behind.fullmatch(text, match.end())
            if tail:
                readings.append(head.groupdict() | tail.groupdict())
    return readings


def _connect(peer: str, line: Line) -> Event:
    rest: dict[str, Any] = {}
    return daemon_event(
        line,
        _PRODUCT,
        NETWORK,
        _OPEN,
        status_id=SUCCESS,
        src_endpoint=endpoint(peer, rest=rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        connection_info={"protocol_name": "tcp", "protocol_num": 6, "direction_id": 1},
        app_name="ftp",
        rest=rest,
    )


def _login(what: str, peer: str, user: str | None, quoted: str | None, line: Line) -> Event:
    good = what == "OK LOGIN"
    # Of an anonymous login the password, by custom a mail address; of a failure the reason.
    rest: dict[str, Any] = kept(anon_password=quoted if good else None)
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=SUCCESS if good else FAILURE,
        status_detail=None if good else quoted,
        src_endpoint=endpoint(peer, rest=rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": user} if user else None,
        auth_method="password",
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "ftp"},
        rest=rest,
    )


def _action(
    what: str, peer: str, user: str | None, quoted: str | None, tail: str, line: Line
) -> Event:
    result, _, name = what.partition(" ")
    numbers = _TAIL.fullmatch(tail)
    size = int(numbers["size"]) if numbers and numbers["size"] else None
    rest: dict[str, Any] = kept(
        rate_kbyte=numbers["rate"] if numbers else None,
        rest=tail if tail and not numbers else None,
    )
    path = quoted
    # Old and new name stand with a blank between them: with more blanks nobody can part them.
    if name == "RENAME" and quoted and '" "' not in quoted and quoted.count(" ") == 1:
        path, _, rest["renamed_to"] = quoted.partition(" ")
    elif name == "CHMOD" and quoted:
        # The mode stands last, and a path may hold blanks.
        path, _, mode = quoted.rpartition(" ")
        path, rest["mode"] = path or quoted, mode
    return ftp(
        line,
        _PRODUCT,
        _ACTIONS[name],
        result == "OK",
        peer=peer,
        user=user,
        path=path,
        size=size if size is None or size < 2**63 else None,
        command=name,
        activity_name=name.capitalize(),
        rest=rest,
    )


def _command(
    what: str, peer: str, user: str | None, quoted: str | None, tail: str, line: Line
) -> Event:
    """With log_ftp_protocol: a command, or the reply to one."""
    verb = code = None
    rest: dict[str, Any] = kept(text=quoted, rest=tail or None)
    if quoted and what == "FTP command":
        verb = quoted.partition(" ")[0].upper()
    elif quoted and what == "FTP response":
        code = quoted[:3] if quoted[:3].isdecimal() else None
    activities = {
        "STOR": PUT,
        "APPE": PUT,
        "RETR": GET,
        "DELE": DELETE,
        "RNTO": RENAME,
        "LIST": LIST,
    }
    return daemon_event(
        line,
        _PRODUCT,
        FTP,
        activities.get(verb or "", OTHER),
        activity_name=None if verb in activities else what,
        src_endpoint=endpoint(peer, rest=rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        by=user,
        user_name=user,
        command=verb,
        status_code=code,
        rest=rest,
    )


SOURCES = (
    Daemon(
        name="vsftpd",
        programs=frozenset({"vsftpd"}),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN, XFERLOG),
        bare=re.compile(r"\[pid \d{1,10}\] |(?:OK|FAIL) LOGIN: Client|CONNECT: Client"),
        families=("vsftpd(",),
    ),
)
