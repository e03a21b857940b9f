"""The transfer log of wu-ftpd, which vsftpd, ProFTPD and Pure-FTPd write as well (xferlog(5)).

`Mon Mar  2 10:00:00 2026 1 1.2.3.4 100 /srv/a b.txt b _ o r ann ftp 0 * c`: the name of the
file may hold spaces and, where a server does not mask it, all that follows it in a line. The
nine fields behind it are therefore counted from the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.parsing.ocsf import FAILURE, FTP, OTHER, SUCCESS, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import CTIME

PUT, GET, DELETE, RENAME, LIST = 1, 2, 4, 5, 6

XFERLOG = re.compile(
    rf"(?P<time>{CTIME}) (?P<text>\d{{1,10}} \S{{1,255}} \d{{1,19}} .+ [ab] (?:[CUT]{{1,3}}|_) "
    r"[oid] [agr] \S+ \S+ [01] \S+ [ci])",
    re.ASCII,
)
# The path's `.+` is greedy: it takes all that looks like the nine fields but the last nine.
_FIELDS = re.compile(
    r"(?P<seconds>\d{1,10}) (?P<peer>\S{1,255}) (?P<size>\d{1,19}) (?P<path>.+) "
    r"(?P<type>[ab]) (?P<special>[CUT]{1,3}|_) (?P<direction>[oid]) (?P<access>[agr]) "
    r"(?P<user>\S+) (?P<service>\S+) (?P<auth>[01]) (?P<auth_user>\S+) (?P<completion>[ci])",
    re.ASCII,
)
_ACTIVITY = {"i": PUT, "o": GET, "d": DELETE}
_TYPES = {"a": "ascii", "b": "binary"}
_ACCESS = {"a": "anonymous", "g": "guest", "r": "real"}


def transfer(line: Line, product: Mapping[str, str]) -> Event | None:
    """A file sent, received or deleted; None where the line is no transfer."""
    match = _FIELDS.fullmatch(line.text)
    if match is None:
        return None
    part = match.groupdict()
    size, path = int(part["size"]), part["path"]
    done = part["completion"] == "c"
    rest: dict[str, object] = {
        "transfer_type": _TYPES[part["type"]],
        "access_mode": _ACCESS[part["access"]],
    }
    rest |= kept(
        special_action=part["special"] if part["special"] != "_" else None,
        authentication_method=part["auth"] if part["auth"] != "0" else None,
        authenticated_user=part["auth_user"] if part["auth_user"] != "*" else None,
        service=part["service"],
    )
    return ftp(
        line,
        product,
        _ACTIVITY[part["direction"]],
        done,
        peer=part["peer"],
        user=part["user"],
        path=path,
        # A forged line may say any number; Delta has none wider than this.
        size=size if size < 2**63 else None,
        seconds=int(part["seconds"]),
        rest=rest | kept(size=part["size"] if size >= 2**63 else None),
        log_name="xferlog",
        status_detail=None if done else "incomplete",
    )


def ftp(
    line: Line,
    product: Mapping[str, str],
    activity: int,
    done: bool | None,
    *,
    peer: str | None,
    user: str | None,
    path: str | None = None,
    size: int | None = None,
    seconds: int | None = None,
    command: str | None = None,
    rest: dict[str, object],
    log_name: str | None = None,
    status_detail: str | None = None,
    activity_name: str | None = None,
    status_code: str | None = None,
    hostname: str | None = None,
) -> Event:
    """An FTP command with its file. Bytes are counted as the client sees them."""
    traffic = None
    if size is not None and activity in (PUT, GET):
        traffic = {"bytes": size, "bytes_out" if activity == PUT else "bytes_in": size}
    return daemon_event(
        line,
        product,
        FTP,
        activity,
        activity_name=activity_name if activity == OTHER else None,
        status_id=None if done is None else SUCCESS if done else FAILURE,
        status_detail=status_detail,
        status_code=status_code,
        src_endpoint=endpoint(peer, rest=rest, hostname=hostname),
        dst_endpoint={"hostname": line.host} if line.host else None,
        by=user or None,
        user_name=user or None,
        file=kept(path=path, name=path.rpartition("/")[2] or path, size=size) if path else None,
        command=command,
        traffic=traffic,
        duration=None if seconds is None else seconds * 1000,
        rest=rest,
        fields=kept(log_name=log_name),
    )
