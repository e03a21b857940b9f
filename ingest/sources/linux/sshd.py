"""OpenSSH's sshd, versions 3 to 10, as it writes to syslog.

Messages are those of its source (https://github.com/openssh/openssh-portable: auth.c, sshd.c,
sshd-session.c, packet.c, srclimit.c). User names come from whoever knocks and may hold anything,
such as `a from 6.6.6.6`. So a pattern finds the address from the very end of the line, and what
may follow it is bounded, or a long name could cost quadratic time.

A logon is `Accepted` or `Failed`; what sshd and PAM say around it is preauth, so that one attempt
counts once. A connection that names no user is SSH Activity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_USER,
    AN_IP,
    AUTHENTICATION,
    BASE,
    FAILURE,
    LOW,
    MEDIUM,
    SSH,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, ParseSettings, Read
from ingest.parsing.syslog import Line, SyslogSource
from ingest.sources.linux.pam_messages import is_pam, read_pam
from ingest.sources.shared.first_match import FirstMatch

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "OpenSSH", "vendor_name": "OpenBSD"}
_LOGON, _LOGOFF, _PREAUTH = 1, 2, 6
_OPEN, _CLOSE, _RESET, _FAIL, _REFUSE, _TRAFFIC, LISTEN = 1, 2, 3, 4, 5, 6, 7
_NETWORK_LOGON = 3

_PEER = r"(?P<peer>\S+) port (?P<port>\d{1,5})"
# Older versions wrote no port.
_OLD_PEER = r"(?P<peer>\S+)(?: port (?P<port>\d{1,5}))?"
_KEY = (
    r"(?:: (?P<key>[^\s,]+(?: (?!ID )[^\s,]+)?(?: ID .{1,256} \(serial \d{1,20}\)"
    r"(?: CA \S+ \S+)?)?(?:, .{1,200})?))?"
)
_TRY = r"(?P<method>\S+) for (?P<invalid>(?:invalid|illegal) user )?(?P<user>.*) from "
_PROTOCOL = r"(?: (?P<protocol>ssh\d?))?"
# Since privilege separation logs through its monitor, what precedes a login says so.
_PRE = r"(?: \[preauth\])?"
_WHO = r"(?:(?P<invalid>invalid)|authenticating) user (?P<user>.*) "
_WHY = r"(?P<detail>.{1,200}?)"

Pattern = tuple[int, int, int, re.Pattern[str]]
_UNTOLD = 0
"""The status of an event whose line says none."""


def _patterns(class_uid: int, *these: tuple[int, int, str]) -> tuple[Pattern, ...]:
    return tuple(
        (class_uid, activity, status, re.compile(pattern, re.ASCII))
        for activity, status, pattern in these
    )


# `(?P<user>.*)` is greedy: it takes a forged ` from 6.6.6.6`, and the true one is left.
_LOGONS = _patterns(
    AUTHENTICATION,
    (_LOGON, SUCCESS, rf"Accepted {_TRY}{_PEER}{_PROTOCOL}{_KEY}"),
    (_LOGON, FAILURE, rf"Failed {_TRY}{_PEER}{_PROTOCOL}{_KEY}{_PRE}"),
    # Protocol 1 named no address with the login.
    (
        _LOGON,
        SUCCESS,
        r"log: (?P<method>Password|RSA|Rhosts(?: with RSA host)?) authentication for "
        r"(?P<user>.*) accepted\.",
    ),
    (
        _LOGON,
        FAILURE,
        r"log: (?P<method>Password|RSA|Rhosts(?: with RSA host)?) authentication for "
        r"(?P<user>.*) (?:failed|rejected)\.",
    ),
    (
        _LOGON,
        FAILURE,
        rf"(?P<user>ROOT) LOGIN (?P<detail>REFUSED)(?: FROM {_OLD_PEER})?{_PRE}",
    ),
    (_LOGOFF, SUCCESS, rf"Disconnected from user (?P<user>.*) {_PEER}"),
    (_LOGOFF, SUCCESS, rf"Close session: user (?P<user>.*) from {_PEER} id (?P<session>\d{{1,9}})"),
    (_LOGOFF, SUCCESS, rf"Connection (?:closed|reset) by user (?P<user>.*) {_PEER}"),
)
PREAUTHS = _patterns(
    AUTHENTICATION,
    *(
        (_PREAUTH, FAILURE, pattern)
        for pattern in (
            rf"(?P<invalid>(?:Invalid|Illegal) user) (?P<user>.*) from {_OLD_PEER}{_PRE}",
            rf"input_userauth_request: (?P<invalid>(?:invalid|illegal) user) (?P<user>.*?){_PRE}",
            r"(?P<detail>Disconnected from|Disconnecting|Connection (?:closed|reset) by|"
            r"Timeout before authentication for|ssh_dispatch_run_fatal: Connection (?:to|from)) "
            rf"{_WHO}{_PEER}(?:(?:: (?P<why>.{{1,200}}?))? \[preauth\])?",
            r"(?:error: )?(?P<detail>maximum authentication attempts exceeded) for "
            rf"(?P<invalid>invalid user )?(?P<user>.*) from {_PEER}{_PROTOCOL}{_PRE}",
            rf"Disconnecting: (?P<detail>Too many authentication failures) for (?P<user>.*?){_PRE}",
            r"User (?P<user>.*) from (?P<peer>\S+) (?P<detail>not allowed because .{1,200}?)"
            r"(?: \[preauth\])?",
            r"User (?P<user>.*) (?P<detail>not allowed because .{1,200}?)(?: \[preauth\])?",
            rf"Login restricted for (?P<user>.*?)(?: from {_OLD_PEER})?: {_WHY}",
            r"error: PAM: (?P<detail>[A-Za-z][\w ',.-]{1,100}?) for "
            rf"(?P<invalid>illegal user |invalid user )?(?P<user>.*) from {_OLD_PEER}"
            rf"(?: via \S{{1,64}})?{_PRE}",
            rf"Login not allowed for user (?P<user>.*?): {_WHY}",
            r"(?:fatal|error): (?P<detail>Access denied) for user (?P<user>.*) by PAM account "
            r"configuration(?: \[preauth\])?",
            r"error: (?P<detail>Could not get shadow information) for (?P<user>.*)",
            r"(?:Authentication )?(?P<detail>[Rr]efused): (?:bad ownership or modes for .*)",
            rf"(?:Authentication tried|Login attempt) for (?P<user>.*) with (?P<detail>correct key "
            rf"but not from a permitted host) \(host=(?P<name>\S{{1,256}}), ip={_OLD_PEER}"
            r"(?:, required=.{1,200})?\)\.?(?: \[preauth\])?",
            r"Certificate invalid: (?P<detail>.{1,200})",
            r"error: key (?P<key>\S+ \S+) (?P<detail>revoked) by file .{1,256}",
        )
    ),
)
_END = r"(?::(?P<code>\d{1,5}))?(?:: (?P<detail>.{0,300}?))?(?: \[preauth\])?"
CONNECTIONS = _patterns(
    SSH,
    (
        _OPEN,
        SUCCESS,
        rf"(?:log: )?Connection from {_PEER}(?: on (?P<here>\S+) port (?P<here_port>\d{{1,5}}))?"
        r"(?: rdomain (?P<rdomain>\S{1,64}))?",
    ),
    # A close does not say how what went before it ended: the peer's last word may be `Auth fail`.
    (_CLOSE, _UNTOLD, rf"Connection closed by {_OLD_PEER}(?: \[(?:preauth|postauth)\])?"),
    (_RESET, FAILURE, rf"Connection reset by {_PEER}(?: \[(?:preauth|postauth)\])?"),
    (_RESET, FAILURE, r"Connection reset by peer"),
    (_CLOSE, _UNTOLD, rf"(?:error: )?Received disconnect from {_PEER}{_END}"),
    # Before 7: no port, and the code behind the address.
    (
        _CLOSE,
        _UNTOLD,
        r"(?:error: )?Received disconnect from (?P<peer>[0-9A-Fa-f.:]{2,45}): (?P<code>\d{1,5}): ?"
        r"(?P<detail>.{0,300}?)(?: \[preauth\])?",
    ),
    (_CLOSE, _UNTOLD, rf"Disconnected from {_PEER}(?: \[(?:preauth|postauth)\])?"),
    (_CLOSE, _UNTOLD, rf"Closing connection to {_OLD_PEER}"),
    (_CLOSE, FAILURE, rf"Disconnecting {_PEER}: (?P<detail>.{{1,300}}?)(?: \[preauth\])?"),
    (
        _FAIL,
        FAILURE,
        rf"(?:error: )?(?P<detail>Did not receive identification string) from {_OLD_PEER}",
    ),
    (_FAIL, FAILURE, r"fatal: (?P<detail>Did not receive ident string)\."),
    (
        _FAIL,
        FAILURE,
        rf"(?P<detail>scanned) from {_OLD_PEER} with (?P<banner>.{{0,300}}?)\.  Don't panic\.",
    ),
    (
        _FAIL,
        FAILURE,
        r"(?P<detail>Bad protocol version identification) '(?P<banner>.*)' from "
        rf"{_OLD_PEER}",
    ),
    (
        _FAIL,
        FAILURE,
        rf"(?:error: )?banner exchange: Connection from {_PEER}: (?P<detail>.{{1,300}})",
    ),
    (
        _FAIL,
        FAILURE,
        rf"(?:error: |fatal: )?Unable to negotiate with {_OLD_PEER}: "
        r"(?P<detail>no matching .{1,2000}?)(?: \[preauth\])?",
    ),
    (
        _FAIL,
        FAILURE,
        r"(?:error: |fatal: )?ssh_dispatch_run_fatal: Connection (?:from|to) "
        rf"{_PEER}: (?P<detail>.{{1,300}}?)(?: \[preauth\])?",
    ),
    (
        _FAIL,
        FAILURE,
        r"(?:fatal: |error: )?(?P<detail>Timeout before authentication) for (?:connection from )?"
        rf"{_OLD_PEER}(?: to (?P<here>\S+))?(?:, pid = (?P<child>\d{{1,10}}))?\.?",
    ),
    (
        _FAIL,
        FAILURE,
        rf"(?P<detail>Timeout, client not responding) from (?:user (?P<user>.*) )?{_PEER}\.?",
    ),
    (
        _FAIL,
        FAILURE,
        rf"(?P<detail>Bad remote protocol version identification|Protocol major versions differ) "
        rf"(?:for|with) {_OLD_PEER}: .{{1,300}}",
    ),
    (
        _FAIL,
        FAILURE,
        r"(?:error: |fatal: )?(?:kex_exchange_identification|kex_protocol_error|"
        r"ssh_packet_\w{1,40}|packet_\w{1,40}|kex_input_\w{1,40}): (?P<detail>.{1,300}?)"
        r"(?: \[preauth\])?",
    ),
    (
        _FAIL,
        FAILURE,
        rf"(?:[Pp]acket_write_wait|Write failed|Read error|Read from socket failed)"
        rf"(?:: Connection (?:from|to) {_PEER})?: (?P<detail>.{{1,200}}?)(?: \[preauth\])?",
    ),
    (
        _FAIL,
        FAILURE,
        r"(?:Disconnecting: )?(?P<detail>Bad packet length \d{1,10}|Corrupted MAC on input|"
        r"Corrupted check bytes on input|Packet corrupt)\.?(?: \[preauth\])?",
    ),
    (
        _REFUSE,
        FAILURE,
        r"(?:error: )?drop connection #(?P<count>\d{1,9}) from \[(?P<peer>[^\]\s]{1,64})\]:"
        r"(?P<port>\d{1,5}) on \[(?P<here>[^\]\s]{1,64})\]:(?P<here_port>\d{1,5}) "
        r"(?P<detail>.{1,200})",
    ),
    (_REFUSE, FAILURE, rf"[Rr]efused connect from (?P<name>\S{{1,256}}) \({_OLD_PEER}\)"),
    (_REFUSE, FAILURE, rf"[Rr]efused connect from {_OLD_PEER}"),
    (
        _REFUSE,
        FAILURE,
        r"(?:error: )?srclimit_penalise: .{1,60}?(?P<peer>[0-9A-Fa-f.:]{2,45})/\d{1,3} "
        r"(?P<detail>.{1,200})",
    ),
    (
        _TRAFFIC,
        SUCCESS,
        rf"Starting session: (?P<command>.{{1,1000}}) for (?P<user>\S{{1,256}}) from {_PEER} "
        r"id (?P<session>\d{1,9})",
    ),
    (
        _TRAFFIC,
        SUCCESS,
        r"subsystem request for (?P<command>\S{1,256})(?: by user (?P<user>.*))?"
        r"(?: failed, (?P<detail>.{1,100}))?",
    ),
    (LISTEN, SUCCESS, r"Server listening on (?P<here>\S+) port (?P<here_port>\d{1,5})\.?"),
)
ASIDE = _patterns(
    BASE,
    (
        0,
        0,
        # One of several that a login needs is through (`AuthenticationMethods`), or goes on.
        r"(?:Postponed|Partial) (?P<method>\S+) for (?P<invalid>(?:invalid|illegal) user )?"
        rf"(?P<user>.*) from {_PEER}{_PROTOCOL}{_KEY}{_PRE}",
    ),
    (
        0,
        0,
        r"(?:Found matching|Accepted) (?P<kind>\S+ key|key|certificate)(?: ID .{1,256})?: "
        r"(?P<key>.{1,300})",
    ),
    (
        0,
        FAILURE,
        r"reverse mapping checking getaddrinfo for (?P<name>\S{1,256}) \[(?P<peer>[^\]\s]{1,64})\] "
        r"(?P<detail>failed(?: - POSSIBLE BREAK-IN ATTEMPT!)?)\.?(?: \[preauth\])?",
    ),
    (
        0,
        FAILURE,
        r"Address (?P<peer>\S{1,64}) maps to (?P<name>\S{1,256}), (?P<detail>but this does not map "
        r"back to the address)(?: - POSSIBLE BREAK-IN ATTEMPT!|\.)?(?: \[preauth\])?",
    ),
    (
        0,
        FAILURE,
        r"Nasty PTR record \"(?P<name>.{1,256})\" is set up for (?P<peer>\S{1,64}), ignoring",
    ),
    (0, FAILURE, r"(?P<detail>Possible attempt to hide).{0,200}"),
)
# The first that matches wins, so what names a user stands before what names none.
_PATTERNS = _LOGONS + PREAUTHS + CONNECTIONS + ASIDE
_FIRST = FirstMatch([pattern for *_, pattern in _PATTERNS])
_FIRST_LOGON = FirstMatch([pattern for *_, pattern in _LOGONS])


def _read(line: Line, context: Context) -> Event | None:
    """A logon, a logoff, what preceded one, or a connection; None for what else sshd says."""
    if is_pam(line):
        # sshd tells of the same attempt itself.
        return read_pam(line, _PRODUCT, counts=False)
    first = _FIRST.find(line.text)
    if first is None:
        return None
    place, match = first
    class_uid, activity, status, _ = _PATTERNS[place]
    return _event(class_uid, activity, status, match.groupdict(), line)


def _port(text: str | None) -> int | None:
    return int(text) if text and int(text) <= 65535 else None


def logon_in(text: str) -> dict[str, Any] | None:
    """The columns of a logon that sshd tells of, without its machine; None for other messages."""
    first = _FIRST_LOGON.find(text)
    if first is None:
        return None
    place, match = first
    part = match.groupdict()
    peer, _, sound = _ends(part, None)
    # Text that a certificate's owner chose may imitate the rest.
    if not sound or (" ID " in (part.get("key") or "")):
        return None
    status = _LOGONS[place][2]
    columns = {"status_id": status, "src_endpoint": peer if any(peer.values()) else None}
    return columns | _logon(part.get("user") or None, part.get("method"))


def _ends(
    part: dict[str, str | None], host: str | None
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Source and destination; whether what stands there can be either."""
    peer, here = part.pop("peer", None) or "", part.pop("here", None)
    port, here_port = part.pop("port", None), part.pop("here_port", None)
    sound = not ((port and _port(port) is None) or (here_port and _port(here_port) is None))
    ip = address(peer.strip("[]"))
    name = part.pop("name", None)
    name = (
        name
        if name and address(name) is None
        else (None if ip or peer in ("", "UNKNOWN") else peer)
    )
    source = {"ip": ip, "hostname": name, "port": _port(port) or None}
    target: dict[str, Any] = {"hostname": host, "ip": address(here) if here else None}
    target["port"] = _port(here_port)
    return (
        {key: value for key, value in source.items() if value is not None or key != "hostname"},
        {key: value for key, value in target.items() if value is not None},
        sound,
    )


def _event(
    class_uid: int, activity: int, status: int, part: dict[str, str | None], line: Line
) -> Event | None:
    source, target, sound = _ends(part, line.host)
    # Beyond 65535 there is no port, so the line is none of sshd's own.
    if not sound:
        return None
    name, key = part.pop("user", None) or None, part.get("key") or ""
    # A certificate's ID is chosen by its owner too, even where it is refused.
    ambiguous = " ID " in key and " from " in f" {name} {key}"
    if ambiguous:
        # Rather no address than one that the certificate's owner may have written.
        source = {"ip": None}
    if name == "ROOT":
        name = "root"
    invalid = "invalid user" if part.pop("invalid", None) else None
    failed = status == FAILURE
    method, detail = part.pop("method", None), part.pop("detail", None)
    why = part.pop("why", None)
    columns: dict[str, Any] = {
        "status_id": status or None,
        "severity_id": LOW if failed and (activity == _LOGON or class_uid != AUTHENTICATION) else 1,
        "status_detail": (f"{detail}: {why}" if why else detail) or invalid,
        "src_endpoint": source if any(source.values()) else None,
        # OCSF wants an end of every connection, if only by the name of its service.
        "dst_endpoint": target or ({"svc_name": "sshd"} if class_uid == SSH else None),
    }
    # sshd's own words for a name that does not resolve back.
    if "POSSIBLE BREAK-IN" in line.text and class_uid == BASE:
        columns["severity_id"] = MEDIUM
    rest: dict[str, Any] = kept(
        invalid_user=True if invalid else None, ambiguous=ambiguous or None, **part
    )
    actor: dict[str, Any] = {"process": {"name": line.program, "pid": line.pid}} if line.pid else {}
    if class_uid == AUTHENTICATION:
        columns |= _logon(name, method)
    elif class_uid == SSH:
        columns |= _connection(source, rest)
        if name:
            actor["user"] = {"name": name}
    elif name:
        columns["user"] = {"name": name}
        rest |= kept(method=method)
    return event(
        class_uid,
        activity,
        line.stamp,
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        actor=actor or None,
        device=device(line.host),
        observables=observables(
            ("src_endpoint.ip", AN_IP, source.get("ip")),
            ("src_endpoint.hostname", A_HOST, source.get("hostname")),
            ("user.name" if class_uid != SSH else "actor.user.name", A_USER, name),
        ),
        unmapped=unmapped(line.rest | rest),
        **columns,
    )


def _logon(name: str | None, method: str | None) -> dict[str, Any]:
    return {
        "user": {"name": name} if name else None,
        # OCSF wants a name even of a logon that names nobody.
        "more": None if name else {"user": {"name": "", "type_id": 0}},
        "auth_method": method,
        "logon_type_id": _NETWORK_LOGON,
        "is_remote": True,
        "service": {"name": "sshd"},
    }


def _connection(source: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    ip = source.get("ip")
    return {
        "app_name": "ssh",
        "connection_info": {
            "protocol_name": "tcp",
            "protocol_num": 6,
            "protocol_ver_id": (6 if ":" in ip else 4) if ip else None,
            "direction_id": 1 if ip else 0,
            "direction": "Inbound" if ip else "Unknown",
        },
    }


def _at_once(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    # Imported where Arrow is at hand anyway: the command line starts without it.
    from ingest.sources.linux.sshd_columns import read_sshd

    return read_sshd(records, settings)


SOURCES = (
    SyslogSource(
        # Since OpenSSH 9.8 the part that authenticates is a program of its own.
        name="sshd",
        programs=frozenset(
            {
                *("sshd", "sshd-session", "sshd-auth", "sshd(pam_unix)", "sshd-keygen-wrapper"),
                *("com.apple.sshd", "com.openssh.sshd"),
            }
        ),
        product=_PRODUCT,
        reader=_read,
        at_once=_at_once,
    ),
)
