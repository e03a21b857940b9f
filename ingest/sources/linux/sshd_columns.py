"""How the lines that sshd writes most are worded, for reading those alike at once."""

from __future__ import annotations

from ingest.sources.shared.alike_lines import IPV4, PORT, USER, alike_reader

_USER = rf"(?P<user>{USER})"
_IP = rf"(?P<ip>{IPV4})"
_PEER = rf"{_IP}( port )(?P<port>{PORT})((?:[^\w.].*)?)"
_NOT_KNOWN = r"(?:(?:invalid|illegal) user )?"

read_sshd = alike_reader(
    "sshd",
    rf"((?:Accepted|Failed|Postponed) [\w/-]+ for {_NOT_KNOWN}){_USER}( from )"
    rf"{_PEER}",
    rf"((?:Invalid|Illegal) user ){_USER}( from ){_PEER}",
    r"((?:Connection (?:closed|reset) by|Disconnect(?:ed|ing) from) "
    rf"(?:(?:invalid|authenticating) )?user ){_USER}( ){_PEER}",
    rf"(Connection from |Connection (?:closed|reset) by |Received disconnect from "
    rf"|Disconnected from ){_PEER}",
    rf"(Close session: user |Starting session: .+ for ){_USER}( from ){_PEER}",
    rf"(error: PAM: Authentication failure for {_NOT_KNOWN}){_USER}( from ){_IP}"
    r"((?: via \S+)?(?: \[preauth\])?)",
    rf"(pam_unix\(sshd:session\): session (?:opened|closed) for user ){_USER}"
    r"((?:\(.*| .*)?)",
    r"(pam_unix\(sshd:auth\): authentication failure; [a-z= 0-9]* rhost=)"
    rf"{_IP}(  user=){_USER}( ?)",
    rf"(pam_unix\(sshd:auth\): authentication failure; [a-z= 0-9]* rhost=){_IP}( ?)",
)
"""The events of those of `records` that are worded as others, as in `Source.columns`."""
