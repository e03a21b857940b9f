"""The messages of sshd, sudo, dnsmasq and ISC dhcpd that the stock side of the comparison reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PARTS = (
    "class", "activity", "status", "severity", "detail", "user", "user_uid", "by", "by_uid", "ip",
    "port", "here", "here_port", "mac", "client", "method", "asked", "asked_type", "answer",
    "serial", "command", "cwd", "end", "interface", "invalid", "protocol", "session", "code",
    "rdomain", "module", "pam_type", "uid", "euid", "tty", "kind",
)  # fmt: skip
"""What a message may say, in the order of what its pattern finds. `end`: `none` where the
line's host is no end of what happened."""
CLASSES = MappingProxyType(
    {
        0: "Base Event",
        1007: "Process Activity",
        3002: "Authentication",
        4003: "DNS Activity",
        4004: "DHCP Activity",
        4007: "SSH Activity",
    }
)
ACTIVITIES = MappingProxyType(
    {
        0: "Unknown",
        100701: "Launch",
        300201: "Logon",
        300202: "Logoff",
        300206: "Preauth",
        300207: "Account Switch",
        400301: "Query",
        400302: "Response",
        400401: "Discover",
        400402: "Offer",
        400403: "Request",
        400404: "Decline",
        400405: "Ack",
        400406: "Nak",
        400407: "Release",
        400408: "Inform",
        400701: "Open",
        400702: "Close",
        400706: "Traffic",
        400707: "Listen",
    }
)


@dataclass(frozen=True)
class Words:
    """A message: how it begins, or what it holds; its pattern; where each part stands in it."""

    pattern: str
    parts: Mapping[str, str]
    begins: str = ""
    holds: str = ""


def _words(
    of: tuple[int, int, int, int], pattern: str, begins: str = "", holds: str = "", **parts: str
) -> Words:
    """`of`: class, activity, status (0: none) and severity."""
    class_uid, activity, status, severity = of
    fixed = {
        "class": str(class_uid),
        "activity": str(activity),
        "status": str(status or ""),
        "severity": str(severity),
        "end": "host",
    }
    return Words(pattern, fixed | parts, begins, holds)


_PEER = r"(\S+) port (\d{1,5})"
_PAM = r"(pam_unix)\(sshd:(\w+)\): "
_WHO = {"module": "$1", "pam_type": "$2"}
SSHD = (
    _words(
        (4007, 1, 1, 1),
        rf"Connection from {_PEER} on (\S+) port (\d{{1,5}})(?: rdomain (\S+))?",
        "Connection from ",
        ip="$1", port="$2", here="$3", here_port="$4", rdomain="$5",
    ),
    _words(
        (3002, 6, 2, 1),
        rf"(Connection closed by) (?:(invalid)|authenticating) user (.*) {_PEER}(?: \[preauth\])?",
        "Connection closed by ",
        detail="$1", invalid="$2", user="$3", ip="$4", port="$5",
    ),
    _words(
        (3002, 1, 2, 2),
        rf"Failed (\S+) for (invalid user )?(.*) from {_PEER}(?: (ssh2))?(?: \[preauth\])?",
        "Failed ",
        method="$1", invalid="$2", user="$3", ip="$4", port="$5", protocol="$6",
    ),
    _words(
        (3002, 1, 1, 1),
        rf"Accepted (\S+) for (.*) from {_PEER}(?: (ssh2))?",
        "Accepted ",
        method="$1", user="$2", ip="$3", port="$4", protocol="$5",
    ),
    _words(
        (0, 0, 0, 1),
        rf"Postponed (\S+) for (invalid user )?(.*) from {_PEER}(?: (ssh2))?(?: \[preauth\])?",
        "Postponed ",
        method="$1", invalid="$2", user="$3", ip="$4", port="$5", protocol="$6",
    ),
    _words(
        (3002, 6, 2, 1),
        rf"(Invalid) user (.*) from {_PEER}",
        "Invalid user ",
        invalid="$1", user="$2", ip="$3", port="$4",
    ),
    _words(
        (3002, 6, 2, 1),
        r"error: PAM: (.*?) for (illegal user |invalid user )?(.*) from (\S+)",
        "error: PAM: ",
        detail="$1", invalid="$2", user="$3", ip="$4",
    ),
    _words(
        (3002, 2, 1, 1),
        rf"Disconnected from user (.*) {_PEER}",
        "Disconnected from user ",
        user="$1", ip="$2", port="$3",
    ),
    _words(
        (3002, 2, 1, 1),
        rf"Close session: user (.*) from {_PEER} id (\d+)",
        "Close session: user ",
        user="$1", ip="$2", port="$3", session="$4",
    ),
    _words(
        (4007, 2, 0, 1),
        rf"Received disconnect from {_PEER}:(\d+): (.*)",
        "Received disconnect from ",
        ip="$1", port="$2", code="$3", detail="$4",
    ),
    _words(
        (4007, 6, 1, 1),
        rf"Starting session: (.*) for (\S+) from {_PEER} id (\d+)",
        "Starting session: ",
        command="$1", by="$2", ip="$3", port="$4", session="$5",
    ),
    _words(
        (4007, 7, 1, 1),
        r"Server listening on (\S+) port (\d+)\.?",
        "Server listening on ",
        here="$1", here_port="$2",
    ),
    _words(
        (3002, 1, 1, 1),
        rf"{_PAM}session opened for user ([^(]+)\(uid=(\d+)\) by ([^(]*)\(uid=(\d+)\)",
        "pam_unix(sshd:session): session opened",
        user="$3", user_uid="$4", by="$5", by_uid="$6", **_WHO,
    ),
    _words(
        (3002, 2, 1, 1),
        rf"{_PAM}session closed for user (\S+)",
        "pam_unix(sshd:session): session closed",
        user="$3", **_WHO,
    ),
    _words(
        (3002, 6, 2, 2),
        rf"{_PAM}(authentication failure); logname= uid=(\d*) euid=(\d*) tty=(\S*) ruser=\S* "
        r"rhost=(\S*)(?: +user=(.*))?",
        "pam_unix(sshd:auth): authentication failure",
        detail="$3", uid="$4", euid="$5", tty="$6", ip="$7", user="$8", **_WHO,
    ),
    _words(
        (3002, 6, 2, 2),
        rf"{_PAM}(check pass; user unknown)",
        "pam_unix(sshd:auth): check pass",
        detail="$3", **_WHO,
    ),
)  # fmt: skip

_RUN = r"PWD=(.*?) ; USER=(\S+) ; COMMAND=(.*)"
SUDO = (
    _words(
        (1007, 1, 1, 1),
        rf"(\S+) : {_RUN}",
        holds=" : PWD=",
        by="$1", cwd="$2", user="$3", command="$4",
    ),
    _words(
        (3002, 7, 2, 3),
        rf"(\S+) : (\d+ incorrect password attempts?) ; {_RUN}",
        holds=" incorrect password attempt",
        by="$1", detail="$2", cwd="$3", user="$4", command="$5",
    ),
    _words(
        (3002, 7, 2, 3),
        rf"(\S+) : (a password is required) ; {_RUN}",
        holds=" : a password is required ; ",
        by="$1", detail="$2", cwd="$3", user="$4", command="$5",
    ),
    _words(
        (1007, 1, 2, 3),
        rf"(\S+) : (.*?) ; {_RUN}",
        holds=" ; PWD=",
        by="$1", detail="$2", cwd="$3", user="$4", command="$5",
    ),
    _words(
        (3002, 7, 1, 1),
        r"pam_unix\(sudo:session\): session opened for user ([^\s(]+)\(uid=(\d+)\) by "
        r"([^\s(]*)\(uid=(\d+)\)",
        "pam_unix(sudo:session): session opened",
        user="$1", user_uid="$2", by="$3", by_uid="$4",
    ),
    _words(
        (3002, 2, 1, 1),
        r"pam_unix\(sudo:session\): session closed for user (\S+)",
        "pam_unix(sudo:session): session closed",
        user="$1",
    ),
)  # fmt: skip

_ASKER = r"(?:(\d+) ([0-9a-fA-F.:]+)/(\d+) )?"
DNSMASQ = (
    _words(
        (4003, 1, 0, 1),
        rf"{_ASKER}query\[([^\]\s]+)\] (\S+) from ([0-9a-fA-F.:]+)",
        holds="query[",
        serial="$1", port="$3", asked_type="$4", asked="$5", ip="$6",
    ),
    _words(
        (4003, 2, 0, 1),
        rf"{_ASKER}(reply|cached|config|DHCP|/\S*) (\S+) is (.*)",
        holds=" is ",
        serial="$1", ip="$2", port="$3", kind="$4", asked="$5", answer="$6",
    ),
)  # fmt: skip

_MAC = r"([0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5})"
_DHCP = {"DISCOVER": 1, "OFFER": 2, "REQUEST": 3, "DECLINE": 4, "ACK": 5, "NAK": 6, "RELEASE": 7}
DNSMASQ_DHCP = (
    *(
        _words(
            (4004, activity, 0, 1),
            rf"(\d+) DHCP{word}\(([^)\s]+)\) (?:(\d+\.\d+\.\d+\.\d+) )?{_MAC}(?: (.*))?",
            holds=f" DHCP{word}(",
            serial="$1", interface="$2", ip="$3", mac="$4",
            **({"client": "$5"} if word in ("ACK", "DECLINE") else {"detail": "$5"}),
        )
        for word, activity in _DHCP.items()
    ),
    _words((0, 0, 0, 1), r"(\d+) .*", holds=" ", serial="$1", end="none"),
)  # fmt: skip

_CLIENT = r"(\S+)(?: \((.*)\))?"
_VIA = r"via ([^\s:]+)"
DHCPD = (
    _words(
        (4004, 1, 0, 1),
        rf"DHCPDISCOVER from {_CLIENT} {_VIA}(?:: (.*))?",
        "DHCPDISCOVER ",
        mac="$1", client="$2", interface="$3", detail="$4",
    ),
    _words(
        (4004, 3, 0, 1),
        rf"DHCPREQUEST for ([0-9.]+)(?: \(([0-9.]+)\))? from {_CLIENT} {_VIA}(?:: (.*))?",
        "DHCPREQUEST ",
        ip="$1", here="$2", mac="$3", client="$4", interface="$5", detail="$6",
    ),
    *(
        _words(
            (4004, activity, 0, 1),
            rf"DHCP{word} on ([0-9.]+) to {_CLIENT} {_VIA}",
            f"DHCP{word} ",
            ip="$1", mac="$2", client="$3", interface="$4",
        )
        for word, activity in (("ACK", 5), ("OFFER", 2), ("NAK", 6))
    ),
    _words(
        (4004, 7, 0, 1),
        rf"DHCPRELEASE of ([0-9.]+) from {_CLIENT} {_VIA} \((?:found|(not found))\)",
        "DHCPRELEASE ",
        ip="$1", mac="$2", client="$3", interface="$4", detail="$5",
    ),
    _words(
        (4004, 4, 0, 1),
        rf"DHCPDECLINE of ([0-9.]+) from {_CLIENT} {_VIA}(?:: (.*))?",
        "DHCPDECLINE ",
        ip="$1", mac="$2", client="$3", interface="$4", detail="$5",
    ),
)  # fmt: skip
PROGRAMS: Mapping[str, tuple[Words, ...]] = MappingProxyType(
    {
        "sshd": SSHD,
        "dnsmasq": DNSMASQ,
        "dnsmasq-dhcp": DNSMASQ_DHCP,
        "dhcpd": DHCPD,
        "sudo": SUDO,
    }
)
"""By program, the likeliest first."""
