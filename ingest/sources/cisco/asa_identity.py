"""The messages of Cisco's firewalls about people: pages, logins, VPN sessions, commands."""

from __future__ import annotations

from ingest.sources.cisco.asa_patterns import AAA, DST, FROM, GROUP, IKE, ON, SRC, TO
from ingest.sources.shared.firewall import CLOSE, LOGOFF, LOGON, OPEN

_CREATE, _DELETE, _LOCK, _UNLOCK, _ANY = 1, 6, 9, 12, 99
_GET = 2

PEOPLE: tuple[tuple[str, str, str, int, bool | None], ...] = (
    # -- the web and files ---------------------------------------------------------------------
    (
        "304001",
        r"(?:(?P<who>[^\s@()]+)@)?(?P<src>[\w.:-]+)(?:\((?P<srcuser>[^()]*)\))? Accessed "
        r"(?P<what>(?:JAVA )?URL) (?:(?P<who2>[^\s@:]+)@)?(?P<dst>[\w.-]+|[0-9a-fA-F:.]+?):"
        r"(?P<url>.*)",
        "http",
        _GET,
        True,
    ),
    (
        "304002",
        r"Access denied URL (?P<url>.*) SRC (?P<src>\S+)(?:\((?P<srcuser>[^()]*)\))? DEST "
        rf"(?P<dst>[^\s:]+)(?::(?P<rest>\S+))?(?:{ON})?",
        "http",
        _GET,
        False,
    ),
    (
        "303002",
        rf"(?P<proto>FTP) connection from {FROM} to {TO}, user (?P<user>\S*) "
        r"(?P<what>Stored|Retrieved) file (?P<file>.*)",
        "ftp",
        _GET,
        True,
    ),
    # -- who logged in -------------------------------------------------------------------------
    (
        "605004",
        r"Login denied from (?P<src>[^\s/]+)/(?P<srcport>\w+) to (?P<dstif>[^\s:]+):"
        r"(?P<dst>[^\s/]+)/(?P<service>\S+) for user \"(?P<user>.*)\"",
        "login",
        LOGON,
        False,
    ),
    (
        "605005",
        r"Login permitted from (?P<src>[^\s/]+)/(?P<srcport>\w+) to (?P<dstif>[^\s:]+):"
        r"(?P<dst>[^\s/]+)/(?P<service>\S+) for user \"(?P<user>.*)\"",
        "login",
        LOGON,
        True,
    ),
    (
        "611101",
        r"User authentication succeeded: (?:IP address: (?P<src>\S+), )?Uname: (?P<user>.*)",
        "login",
        LOGON,
        True,
    ),
    (
        "611102",
        r"User authentication failed: (?:IP address: (?P<src>\S+), )?Uname: (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    ("611103", r"User logged out: Uname: (?P<user>.*)", "login", LOGOFF, True),
    (
        "308001",
        r"(?:(?P<service>\w+) )?(?P<reason>enable password incorrect for \d+ tries) "
        r"\(from (?:\w+ \(remote )?(?P<src>[^()]*)\)+",
        "login",
        LOGON,
        False,
    ),
    (
        "315011",
        r"(?P<service>SSH) session from (?:(?P<src>\S+) )?on interface (?P<on>\S+) for user "
        r"\"?(?P<user>.*?)\"? (?:terminated normally|disconnected by SSH server, reason: "
        r"(?P<reason>.*?))\.?",
        "login",
        LOGOFF,
        True,
    ),
    (
        "113004",
        rf"{AAA} Successful ?: server = +(?P<server>\S+) [:,] [uU]ser = (?P<user>.*)",
        "login",
        LOGON,
        True,
    ),
    (
        # Before the form without an address: that one would take `user IP` for a part of the name,
        # which may hold anything.
        "113005 113016",
        rf"(?:{AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"server = +(?P<server>\S+) ?: user = (?P<user>.*?) ?: user IP = (?P<src>[0-9a-fA-F:.]+)",
        "login",
        LOGON,
        False,
    ),
    (
        "113005 113016",
        rf"(?:{AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"server = +(?P<server>\S+) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    (
        "113012",
        rf"{AAA} Successful ?: (?P<server>local database) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        True,
    ),
    (
        # The longer form first here as well.
        "113015 113017",
        rf"(?:{AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"(?P<server>local database) ?: user = (?P<user>.*?) ?: user IP = (?P<src>[0-9a-fA-F:.]+)",
        "login",
        LOGON,
        False,
    ),
    (
        "113015 113017",
        rf"(?:{AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"(?P<server>local database) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    (
        "113008",
        r"AAA transaction status (?P<reason>ACCEPT) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        True,
    ),
    (
        "113008",
        r"AAA transaction status (?P<reason>REJECT) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    (
        "113010",
        r"(?P<reason>AAA challenge received) for user (?P<user>.*) from server (?P<server>\S+)",
        "login",
        6,
        None,
    ),
    (
        "113014",
        r"(?P<reason>AAA authentication server not accessible) ?: server = (?P<server>\S+) ?: "
        r"user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    (
        "113021",
        r"Attempted console login failed\. User (?P<user>.*) (?P<reason>did NOT have appropriate "
        r"Admin Rights)\.",
        "login",
        LOGON,
        False,
    ),
    (
        "109005 109007 109001",
        rf"(?:Authentication succeeded|Authorization permitted|Auth start) for user "
        rf"'?(?P<user>.*?)'? from {SRC} to {DST}(?:{ON})?",
        "login",
        LOGON,
        True,
    ),
    (
        "109006 109008 109024 109025",
        rf"(?P<reason>Authentication failed|Authorization denied(?: \(acl=[^)]*\))?"
        rf"|Authorization denied from) for user '?(?P<user>.*?)'? from {SRC} to {DST}"
        rf"(?:{ON})?(?: using (?P<proto>\w+))?",
        "login",
        LOGON,
        False,
    ),
    (
        "716038 716039",
        rf"{GROUP}Authentication: (?P<verdict>successful|rejected), Session Type: "
        r"(?P<service>\w+)\.?",
        "login",
        LOGON,
        None,
    ),
    (
        "716038 716039",
        r"Authentication: (?P<verdict>successful|rejected), group = (?P<group>\S*) user = "
        r"(?P<user>.*?) ?, Session Type: (?P<service>\w+)\.?",
        "login",
        LOGON,
        None,
    ),
    ("113006", r"User (?P<user>.*) (?P<reason>locked out on exceeding .*)", "account", _LOCK, True),
    ("113007", r"User (?P<user>.*) unlocked by (?P<actor>.*)", "account", _UNLOCK, True),
    (
        "502101",
        # What stands behind Encpass is a password's hash, and goes into no column.
        r"New user added to local dbase: Uname: (?P<user>.*) Priv: (?P<level>\d+) Encpass: .*",
        "account",
        _CREATE,
        True,
    ),
    (
        "502102",
        r"User deleted from local dbase: Uname: (?P<user>.*) Priv: (?P<level>\d+) Encpass: .*",
        "account",
        _DELETE,
        True,
    ),
    (
        "502103",
        r"(?P<reason>User priv level changed): Uname: (?P<user>.*) From: (?P<from>\d+) "
        r"To: (?P<to>\d+)",
        "account",
        _ANY,
        True,
    ),
    # -- VPN sessions --------------------------------------------------------------------------
    (
        "113019",
        r"Group = (?P<group>[^,]*), Username = (?P<user>.*), IP = (?P<src>[\w.:-]+), "
        r"Session disconnected\. Session Type: (?P<service>.*?), Duration: (?P<age>[\w: ]+), "
        # As the firewall sees it: sent to the client, received from it.
        r"Bytes xmt: (?P<xmt>\d+), Bytes rcv: (?P<rcv>\d+), Reason: (?P<reason>.*)",
        "tunnel",
        CLOSE,
        True,
    ),
    (
        "722051",
        rf"{GROUP}IPv4 Address <?(?P<assigned>[\d.]*)>? IPv6 address <?(?P<assigned6>[\w:]*)>? "
        r"assigned to session",
        "tunnel",
        OPEN,
        True,
    ),
    ("722022 716001 113039 716059", rf"{GROUP}(?P<reason>.*)", "tunnel", OPEN, True),
    ("722023 716002 722012 722028 722037", rf"{GROUP}(?P<reason>.*)", "tunnel", CLOSE, True),
    ("113029 113038 722006 722020", rf"{GROUP}(?P<reason>.*)", "tunnel", _ANY, False),
    ("716 722 113", rf"{GROUP}(?P<reason>.*)", "tunnel", _ANY, None),
    (
        "721016 721018",
        r"\((?P<unit>[^()]*)\) WebVPN session for client user (?P<user>.*), (?:IP|IPv4) "
        r"(?P<src>\S+) has been (?P<verb>created|deleted)\.",
        "tunnel",
        _ANY,
        True,
    ),
    (
        "734001",
        r"DAP: User (?P<user>.*), Addr (?P<src>[\w.:]+), Connection (?P<service>[^:]*): The "
        r"following DAP records were selected for this connection: (?P<policy>.*)",
        "tunnel",
        _ANY,
        True,
    ),
    (
        "602303 602304",
        r"IPSEC: (?P<reason>An? (?P<way>inbound|outbound) .*?) between (?P<src>\S+) and "
        r"(?P<dst>\S+) \(user= (?P<user>.*)\) has been (?P<verb>created|deleted)\.",
        "tunnel",
        _ANY,
        True,
    ),
    (
        # Failures first, since the next form takes any message; `Unknown` stands there until the
        # peer has said who it is.
        "750 751",
        r"Local:(?P<dst>\S+):(?P<dstport>\d+) Remote:(?P<src>\S+):(?P<srcport>\d+) "
        r"Username:Unknown (?P<reason>.*(?:abort|fail|error).*)",
        "tunnel",
        _ANY,
        False,
    ),
    (
        "750 751",
        r"Local:(?P<dst>\S+):(?P<dstport>\d+) Remote:(?P<src>\S+):(?P<srcport>\d+) "
        r"Username:Unknown (?P<reason>.*)",
        "tunnel",
        _ANY,
        None,
    ),
    (
        "750 751",
        r"Local:(?P<dst>\S+):(?P<dstport>\d+) Remote:(?P<src>\S+):(?P<srcport>\d+) "
        r"Username:(?P<user>(?!Unknown )\S+)(?: IKEv2 Group:(?P<group>\S+))?(?: IPv4 Address="
        r"(?P<assigned>\S+) IPv6 address=(?P<assigned6>\S+))? (?P<reason>.*)",
        "tunnel",
        _ANY,
        None,
    ),
    (
        "713167 713166",
        rf"{IKE}(?P<reason>.*(?:failed user authentication|authentication failed).*)",
        "login",
        LOGON,
        False,
    ),
    (
        "722041 722036 722053",
        r"TunnelGroup <(?P<group>[^<>]*)> GroupPolicy <[^<>]*> User <(?P<user>.*)> "
        r"IP <(?P<src>[0-9a-fA-F:.]+)> (?P<reason>.*)",
        "tunnel",
        _ANY,
        None,
    ),
    ("713119 713120 713049", rf"{IKE}(?P<reason>.*)", "tunnel", OPEN, True),
    ("713050 713259", rf"{IKE}(?P<reason>.*)", "tunnel", CLOSE, True),
    ("713 714 715", rf"{IKE}(?P<reason>.*)", "tunnel", _ANY, None),
    # -- what administrators did ---------------------------------------------------------------
    (
        "111008",
        r"User '(?P<user>.*?)' executed the '(?P<command>.*)' command\.?",
        "command",
        _ANY,
        True,
    ),
    ("111009", r"User '(?P<user>.*?)' executed cmd: (?P<command>.*)", "command", _ANY, True),
    (
        "111010",
        r"User '(?P<user>.*?)', running '(?P<service>[^']*)' from IP (?P<src>[0-9a-fA-F:.]+), "
        r"executed '(?P<command>.*)'\.?",
        "command",
        _ANY,
        True,
    ),
    (
        "111001 111002 111003 111004 111005 111007",
        r"(?P<command>(?:Begin|(?P<src>\S+) (?:[Ee]rase|end)) configuration):? ?(?P<reason>.*)",
        "command",
        _ANY,
        True,
    ),
)
