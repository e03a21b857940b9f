"""The messages of Cisco's firewalls: their numbers, their words, what they mean.

https://www.cisco.com/c/en/us/td/docs/security/asa/syslog/asa-syslog.html . Each pattern
matches the whole message. Names, URLs and reasons that others choose are bounded by
words of the product's own on both sides, or stand at the very end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ingest.firewall import CLOSE, FAIL, LOGOFF, LOGON, OPEN, REFUSE, TRAFFIC

CREATE, DELETE, LOCK, UNLOCK, ANY = 1, 6, 9, 12, 99
PUT, GET = 1, 2


class Shape(NamedTuple):
    """What messages of one form become: a kind of event, its activity, and the verdict.

    `allowed` is whether it was let pass, or succeeded; None where that is not the
    point, or a group `verdict` says it.
    """

    pattern: re.Pattern[str]
    kind: str
    activity: int
    allowed: bool | None


def _end(at: str, *, named: bool, plain: str = "") -> str:
    """An address and port, with its interface where `named`, and a user in parentheses."""
    interface = rf"(?P<{at}if>[^\s:/]+):" if named else ""
    user = rf"(?: ?\((?P<{at}user>[^()]*{plain})\))?"
    return rf"{interface}(?P<{at}>[^\s/,;()<>]+)(?:/(?P<{at}port>[\w-]+))?{user}"


def _mapped(at: str) -> str:
    """An address with its interface, the address it is translated to, and its user."""
    return (
        rf"(?P<{at}if>[^\s:/]+):(?P<{at}>[^\s/,;()]+)(?:/(?P<{at}port>\d+))?"
        rf" \((?P<{at}map>[^\s/()]+)(?:[/(](?P<{at}mapport>\d+))?\)(?: ?\((?P<{at}user>[^()]*)\))?"
    )


_S, _D = _end("src", named=True), _end("dst", named=True)
_A, _B = _end("src", named=False), _end("dst", named=False)
_SM, _DM = _mapped("src"), _mapped("dst")
_P = r"(?P<proto>protocol \d+|[\w-]+)"
_ON = r" on interface (?P<on>\S+)"
_FLAGS = r" flags (?P<flags>[A-Z ]+?) *"
_HASH = r"(?: (?P<hashes>\[[^\]]*\]\"?))?"
_TYPE = r"(?: ?\(?type (?P<icmp_type>\d+), ?code (?P<icmp_code>\d+)\)?,?)?"
_SPAN = r" duration (?P<span>\d+:\d\d:\d\d)"
_TAIL = r"(?: (?P<reason>[^()]*?))?(?: \((?P<user>[^()]*)\))?"
# A VPN user's group and name stand before the address; see `ambiguous`.
_GROUP = (
    r"Group <?(?P<group>[^<>]*?)>? User <?(?P<user>.*?)>? IP <?(?P<src>[0-9a-fA-F:.]+)>?,? ?"
)
_IKE = r"(?:Group = (?P<group>[^,]*), )?(?:Username = (?P<user>.*?), )?IP = (?P<src>[\w.:-]+), "
_AAA = r"AAA user (?P<what>authentication|authorization|accounting)"

_TABLE: tuple[tuple[str, str, str, int, bool | None], ...] = (
    # -- connections ---------------------------------------------------------------------------
    (
        "302013 302015 302303 302033 302035 302017",
        rf"Built (?P<way>inbound|outbound) {_P}(?: state-bypass)? connection (?P<conn>\d+) "
        rf"(?:for|from) {_SM} to {_DM}(?: \((?P<user>[^()]*)\))?(?: (?P<reason>.*))?",
        "net",
        OPEN,
        True,
    ),
    (
        "302014 302016 302304 302036 302018",
        rf"Teardown {_P}(?: state-bypass)? connection (?P<conn>\d+) (?:for|from) {_S}"
        rf"(?: (?P<srcname>\S+))? to {_D}(?: (?P<dstname>(?!duration)\S+))?{_SPAN}"
        rf" bytes (?P<bytes>\d+){_TAIL}",
        "net",
        CLOSE,
        None,
    ),
    (
        "302020",
        r"Built (?P<way>inbound|outbound) (?P<proto>ICMPv?6?) connection for faddr "
        rf"{_A} gaddr (?P<gaddr>\S+) laddr {_B}(?: ?\((?P<user>[^()]*)\))?"
        r"(?: type (?P<icmp_type>\d+) code (?P<icmp_code>\d+))?(?: (?P<reason>.*))?",
        "net",
        OPEN,
        True,
    ),
    (
        "302021",
        rf"Teardown (?P<proto>ICMPv?6?) connection for faddr {_A} gaddr (?P<gaddr>\S+) laddr {_B}"
        r"(?: ?\((?P<user>[^()]*)\))?(?: type (?P<icmp_type>\d+) code (?P<icmp_code>\d+))?"
        r"(?: (?P<reason>.*))?",
        "net",
        CLOSE,
        None,
    ),
    (
        "302022 302024 302026",
        rf"Built (?P<role>\w+) +stub {_P} connection for {_SM} to {_DM}",
        "net",
        OPEN,
        True,
    ),
    (
        "302023 302025 302027",
        rf"Teardown stub {_P} connection for {_S} to {_D}{_SPAN} forwarded bytes "
        r"(?P<bytes>\d+)(?: (?P<reason>.*))?",
        "net",
        CLOSE,
        None,
    ),
    ("609001", r"Built local-host (?P<srcif>[^\s:]+):(?P<src>\S+)", "net", OPEN, None),
    (
        "609002",
        rf"Teardown local-host (?P<srcif>[^\s:]+):(?P<src>\S+){_SPAN}",
        "net",
        CLOSE,
        None,
    ),
    (
        "305011 305009",
        rf"Built (?P<nat>\w+) (?:{_P} )?translation from {_S} to (?P<mapif>[^\s:(]+)(?:\([^)]*\))?"
        r":(?P<map>[^\s/]+)(?:/(?P<mapport>\d+))?",
        "net",
        OPEN,
        None,
    ),
    (
        "305012 305010",
        rf"Teardown (?P<nat>\w+) (?:{_P} )?translation from {_S} to (?P<mapif>[^\s:(]+)"
        rf"(?:\([^)]*\))?:(?P<map>[^\s/]+)(?:/(?P<mapport>\d+))?{_SPAN}",
        "net",
        CLOSE,
        None,
    ),
    (
        "305006",
        rf"(?P<nat>[\w ]+?) translation creation failed for {_P} src {_S} dst {_D}{_TYPE}",
        "net",
        FAIL,
        False,
    ),
    (
        "305013",
        rf"(?P<reason>Asymmetric NAT rules matched for forward and reverse flows); Connection for "
        rf"{_P} src {_S} dst {_D}{_TYPE} denied due to NAT reverse path failure",
        "net",
        REFUSE,
        False,
    ),
    (
        "805001 805002",
        rf"(?P<reason>Offloaded {_P} Flow for connection|(?P<proto2>\w+) Flow is no longer "
        rf"offloaded for connection) (?P<conn>\d+) from {_SM} to {_DM}",
        "net",
        TRAFFIC,
        None,
    ),
    (
        "725001 725002 725003 725006 725007 725016",
        r"(?P<reason>.*?) (?:with|for) client (?P<srcif>[^\s:/]+):(?P<src>[^\s/]+)/(?P<srcport>\d+)"
        r"(?: to (?P<dst>[^\s/]+)/(?P<dstport>\d+))?(?: (?P<rest>.*))?",
        "net",
        TRAFFIC,
        None,
    ),
    # -- what was refused ----------------------------------------------------------------------
    (
        "106001",
        rf"Inbound (?P<proto>TCP) connection denied from {_A} to {_B}{_FLAGS}{_ON}",
        "net",
        REFUSE,
        False,
    ),
    ("106002", rf"{_P} Connection denied by (?P<reason>outbound list \S+) src {_A} dest {_B}",
     "net", REFUSE, False),
    ("106006", rf"Deny inbound (?P<proto>UDP) from {_A} to {_B}{_ON}", "net", REFUSE, False),
    (
        "106007",
        rf"Deny inbound (?P<proto>UDP) from {_A} to {_B} due to (?P<reason>.*)",
        "net",
        REFUSE,
        False,
    ),
    ("106010 106014 106011", rf"Deny inbound (?:\((?P<reason>[^)]*)\) )?{_P} src {_S} dst {_D}{_TYPE}",
     "net", REFUSE, False),
    (
        "106012",
        r"Deny IP from (?P<src>\S+) to (?P<dst>[^\s,]+), (?P<reason>IP options: ?.*)",
        "net",
        REFUSE,
        False,
    ),
    ("106013", rf"(?P<reason>Dropping echo request) from {_A} to PAT address {_B}", "net", REFUSE,
     False),
    (
        "106015",
        rf"Deny (?P<proto>TCP) \((?P<reason>no connection)\) from {_A} to {_B}{_FLAGS}{_ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106016",
        rf"(?P<reason>Deny IP spoof) from \((?P<src>[^()\s]+)\) to (?P<dst>\S+){_ON}",
        "net",
        REFUSE,
        False,
    ),
    ("106017", r"(?P<reason>Deny IP due to Land Attack) from (?P<src>\S+) to (?P<dst>\S+)", "net",
     REFUSE, False),
    (
        "106018",
        r"(?P<proto>ICMP) packet type (?P<icmp_type>\d+) denied by outbound list (?P<acl>\S+) "
        r"src (?P<src>\S+) dest (?P<dst>\S+)",
        "net",
        REFUSE,
        False,
    ),
    (
        "106020",
        r"(?P<reason>Deny IP teardrop fragment \(size = \d+, offset = \d+\)) from "
        r"(?P<src>\S+) to (?P<dst>\S+)",
        "net",
        REFUSE,
        False,
    ),
    (
        "106021 106022",
        rf"Deny {_P} (?P<reason>reverse path check|connection spoof) from (?P<src>\S+) to "
        rf"(?P<dst>\S+){_ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106023",
        rf"Deny {_P} src {_S} dst {_D}{_TYPE} by access-group \"(?P<acl>[^\"]*)\"{_HASH}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106100",
        rf"access-list (?P<acl>\S+) (?P<verdict>permitted|denied|est-allowed) {_P} "
        r"(?P<srcif>[^\s/]+)/(?P<src>[^\s()]+)\((?P<srcport>\d+)\)(?:\((?P<srcuser>[^()]*)\))? ->"
        r" (?P<dstif>[^\s/]+)/(?P<dst>[^\s()]+)\((?P<dstport>\d+)\)(?:\((?P<dstuser>[^()]*)\))? "
        r"hit-cnt (?P<hits>\d+) (?P<interval>first hit|\d+-second interval)(?: (?P<hashes>\[.*\]))?",
        "net",
        TRAFFIC,
        None,
    ),
    (
        "106102 106103",
        rf"access-list (?P<acl>\S+) (?P<verdict>permitted|denied) {_P} for user '?(?P<user>.*?)'? "
        r"(?P<srcif>[^\s/]+)/(?P<src>[^\s()]+)\((?P<srcport>\d+)\) ->"
        r" (?P<dstif>[^\s/]+)/(?P<dst>[^\s()]+)\((?P<dstport>\d+)\) "
        r"hit-cnt (?P<hits>\d+) (?P<interval>first hit|\d+-second interval)(?: (?P<hashes>\[.*\]))?",
        "net",
        TRAFFIC,
        None,
    ),
    ("110002 110003", rf"(?P<reason>[\w -]+?) for {_P} from {_S} to {_end('dst', named=False)}",
     "net", FAIL, False),
    (
        "209003 209004 209005",
        r"(?P<reason>.*?): src = (?P<src>[^\s,]+), dest = (?P<dst>[^\s,]+), proto = (?P<proto>\w+)"
        r",(?P<rest>.*)",
        "net",
        REFUSE,
        False,
    ),
    (
        "313001 313008",
        r"Denied (?P<proto>ICMP(?:v6)?) type=(?P<icmp_type>\d+), code=(?P<icmp_code>\d+) from "
        rf"(?P<src>\S+){_ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "313004",
        r"Denied (?P<proto>ICMP) type=(?P<icmp_type>\d+), from (?:laddr )?(?P<src>\S+)"
        rf"{_ON} to (?P<dst>[^\s]+): (?P<reason>no matching session)",
        "net",
        REFUSE,
        False,
    ),
    (
        "313005",
        rf"(?P<reason>No matching connection for ICMP error message): (?P<proto>icmp) src {_S} "
        rf"dst {_D}{_TYPE} on (?P<on>\S+) interface\. +Original IP payload: (?P<payload>.*)",
        "net",
        REFUSE,
        False,
    ),
    (
        "402114 402115 402116 402117 402118 402119",
        r"IPSEC: (?P<reason>Received an? .*?) from (?P<src>[0-9a-fA-F:.]+)(?: \(user= "
        r"?(?P<user>[^()]*)\))? to (?P<dst>[0-9a-fA-F:.]+?)\.?(?: (?P<rest>.*))?",
        "net",
        REFUSE,
        False,
    ),
    (
        "419001 419002 410001 434001 434002 434004 434007 324301",
        rf"(?P<reason>SFR requested [\w ]+?|Dropping|Dropped|Duplicate) "
        rf"{_P}(?: packet| SYN| DNS \w+| flow)?,? from {_S} to {_D}"
        r"(?:[,;]? (?P<rest>.*))?",
        "net",
        REFUSE,
        False,
    ),
    (
        "500004",
        rf"(?P<reason>Invalid transport field) for protocol=(?P<proto>\w+), from {_A} to {_B}",
        "net",
        REFUSE,
        False,
    ),
    ("507003", rf"{_P} flow from {_S} to {_D} (?P<reason>terminated by inspection engine.*)", "net",
     REFUSE, False),
    (
        "710001 710002",
        rf"{_P} access (?P<verdict>requested|permitted) from {_A} to {_D}",
        "net",
        OPEN,
        True,
    ),
    ("710003", rf"{_P} access (?P<verdict>denied)(?P<reason> by ACL)? from {_A} to {_D}", "net",
     REFUSE, False),
    ("710004", rf"{_P} (?P<reason>connection limit exceeded) from {_A} to {_D}(?: .*)?", "net",
     REFUSE, False),
    (
        "710005 710006",
        rf"{_P} request (?P<verdict>discarded) from {_A} to {_D}",
        "net",
        REFUSE,
        False,
    ),
    # -- what the firewall found ---------------------------------------------------------------
    (
        "338001 338002 338003 338004 338005 338006 338007 338008 338201 338202 338203 338204",
        r"(?P<title>Dynamic Filter (?P<verdict>permitted|monitored|dropped|action|blocked) "
        rf"(?:\w+ ?)?listed {_P} traffic) from {_SM} to {_DM}, (?P<rest>.*)",
        "finding",
        CREATE,
        None,
    ),
    (
        "400",
        r"(?P<title>(?:IDS|IPS):\d+ .*?) from (?P<src>[0-9a-fA-F:.]+) to "
        rf"(?P<dst>[0-9a-fA-F:.]+){_ON}",
        "finding",
        CREATE,
        None,
    ),
    (
        "733100 733104 733105",
        r"\[? *(?P<object>[^\]]*?) *\]? (?P<title>drop rate-\d+ exceeded|[\w ]+ exceeded)\. "
        r"?(?P<rest>.*)",
        "finding",
        CREATE,
        None,
    ),
    (
        "733101",
        r"(?P<title>(?P<what>Host|Object|Subnet) (?P<object>\S+) is (?:attacking|targeted))\. "
        r"(?P<rest>.*)",
        "finding",
        CREATE,
        None,
    ),
    (
        "733102 733103",
        r"(?P<title>Threat-detection (?:adds|removes)) host (?P<src>\S+) (?:to|from) shun list",
        "finding",
        CREATE,
        None,
    ),
    ("401004", r"(?P<title>Shunned packet): (?P<src>\S+) ==> (?P<dst>\S+)"
     rf"{_ON}", "net", REFUSE, False),
    # -- the web and files ---------------------------------------------------------------------
    (
        "304001",
        r"(?:(?P<who>[^\s@()]+)@)?(?P<src>[\w.:-]+)(?:\((?P<srcuser>[^()]*)\))? Accessed "
        r"(?P<what>(?:JAVA )?URL) (?:(?P<who2>[^\s@:]+)@)?(?P<dst>[\w.-]+|[0-9a-fA-F:.]+?):"
        r"(?P<url>.*)",
        "http",
        GET,
        True,
    ),
    (
        "304002",
        r"Access denied URL (?P<url>.*) SRC (?P<src>\S+)(?:\((?P<srcuser>[^()]*)\))? DEST "
        rf"(?P<dst>[^\s:]+)(?::(?P<rest>\S+))?(?:{_ON})?",
        "http",
        GET,
        False,
    ),
    (
        "303002",
        rf"(?P<proto>FTP) connection from {_S} to {_D}, user (?P<user>\S*) "
        r"(?P<what>Stored|Retrieved) file (?P<file>.*)",
        "ftp",
        GET,
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
    ("113004", rf"{_AAA} Successful ?: server = +(?P<server>\S+) [:,] [uU]ser = (?P<user>.*)",
     "login", LOGON, True),
    (
        "113005 113016",
        rf"(?:{_AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"server = +(?P<server>\S+) ?: user = (?P<user>.*?) ?: user IP = (?P<src>[0-9a-fA-F:.]+)",
        "login",
        LOGON,
        False,
    ),
    (
        "113005 113016",
        rf"(?:{_AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"server = +(?P<server>\S+) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    ("113012", rf"{_AAA} Successful ?: (?P<server>local database) ?: user = (?P<user>.*)", "login",
     LOGON, True),
    (
        "113015 113017",
        rf"(?:{_AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"(?P<server>local database) ?: user = (?P<user>.*?) ?: user IP = (?P<src>[0-9a-fA-F:.]+)",
        "login",
        LOGON,
        False,
    ),
    (
        "113015 113017",
        rf"(?:{_AAA} Rejected|AAA credentials rejected) ?: reason = (?P<reason>[^:]*?) ?: "
        r"(?P<server>local database) ?: user = (?P<user>.*)",
        "login",
        LOGON,
        False,
    ),
    ("113008", r"AAA transaction status (?P<reason>ACCEPT) ?: user = (?P<user>.*)", "login", LOGON,
     True),
    ("113008", r"AAA transaction status (?P<reason>REJECT) ?: user = (?P<user>.*)", "login", LOGON,
     False),
    ("113010", r"(?P<reason>AAA challenge received) for user (?P<user>.*) from server (?P<server>\S+)",
     "login", 6, None),
    ("113014", r"(?P<reason>AAA authentication server not accessible) ?: server = (?P<server>\S+) ?: "
     r"user = (?P<user>.*)", "login", LOGON, False),
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
        rf"(?:Authentication succeeded|Authorization permitted|Auth start) for user '?(?P<user>.*?)'?"
        rf" from {_A} to {_B}(?:{_ON})?",
        "login",
        LOGON,
        True,
    ),
    (
        "109006 109008 109024 109025",
        rf"(?P<reason>Authentication failed|Authorization denied(?: \(acl=[^)]*\))?"
        rf"|Authorization denied from) for user '?(?P<user>.*?)'? from {_A} to {_B}"
        rf"(?:{_ON})?(?: using (?P<proto>\w+))?",
        "login",
        LOGON,
        False,
    ),
    (
        "716038 716039",
        rf"{_GROUP}Authentication: (?P<verdict>successful|rejected), Session Type: "
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
    ("113006", r"User (?P<user>.*) (?P<reason>locked out on exceeding .*)", "account", LOCK, True),
    ("113007", r"User (?P<user>.*) unlocked by (?P<actor>.*)", "account", UNLOCK, True),
    ("502101", r"New user added to local dbase: Uname: (?P<user>.*) Priv: (?P<level>\d+) Encpass: .*",
     "account", CREATE, True),
    ("502102", r"User deleted from local dbase: Uname: (?P<user>.*) Priv: (?P<level>\d+) Encpass: .*",
     "account", DELETE, True),
    (
        "502103",
        r"(?P<reason>User priv level changed): Uname: (?P<user>.*) From: (?P<from>\d+) "
        r"To: (?P<to>\d+)",
        "account",
        ANY,
        True,
    ),
    # -- VPN sessions --------------------------------------------------------------------------
    (
        "113019",
        r"Group = (?P<group>[^,]*), Username = (?P<user>.*), IP = (?P<src>[\w.:-]+), "
        r"Session disconnected\. Session Type: (?P<service>.*?), Duration: (?P<age>[\w: ]+), "
        r"Bytes xmt: (?P<xmt>\d+), Bytes rcv: (?P<rcv>\d+), Reason: (?P<reason>.*)",
        "tunnel",
        CLOSE,
        True,
    ),
    (
        "722051",
        rf"{_GROUP}IPv4 Address <?(?P<assigned>[\d.]*)>? IPv6 address <?(?P<assigned6>[\w:]*)>? "
        r"assigned to session",
        "tunnel",
        OPEN,
        True,
    ),
    ("722022 716001 113039 716059", rf"{_GROUP}(?P<reason>.*)", "tunnel", OPEN, True),
    ("722023 716002 722012 722028 722037", rf"{_GROUP}(?P<reason>.*)", "tunnel", CLOSE, True),
    ("113029 113038 722006 722020", rf"{_GROUP}(?P<reason>.*)", "tunnel", ANY, False),
    ("716 722 113", rf"{_GROUP}(?P<reason>.*)", "tunnel", ANY, None),
    (
        "721016 721018",
        r"\((?P<unit>[^()]*)\) WebVPN session for client user (?P<user>.*), (?:IP|IPv4) "
        r"(?P<src>\S+) has been (?P<verb>created|deleted)\.",
        "tunnel",
        ANY,
        True,
    ),
    (
        "734001",
        r"DAP: User (?P<user>.*), Addr (?P<src>[\w.:]+), Connection (?P<service>[^:]*): The "
        r"following DAP records were selected for this connection: (?P<policy>.*)",
        "tunnel",
        ANY,
        True,
    ),
    (
        "602303 602304",
        r"IPSEC: (?P<reason>An? (?P<way>inbound|outbound) .*?) between (?P<src>\S+) and "
        r"(?P<dst>\S+) \(user= (?P<user>.*)\) has been (?P<verb>created|deleted)\.",
        "tunnel",
        ANY,
        True,
    ),
    (
        "750 751",
        r"Local:(?P<dst>\S+):(?P<dstport>\d+) Remote:(?P<src>\S+):(?P<srcport>\d+) "
        r"Username:(?P<user>\S+)(?: IKEv2 Group:(?P<group>\S+))?(?: IPv4 Address="
        r"(?P<assigned>\S+) IPv6 address=(?P<assigned6>\S+))? (?P<reason>.*)",
        "tunnel",
        ANY,
        None,
    ),
    ("713119 713120 713049", rf"{_IKE}(?P<reason>.*)", "tunnel", OPEN, True),
    ("713050 713259", rf"{_IKE}(?P<reason>.*)", "tunnel", CLOSE, True),
    ("713 714 715", rf"{_IKE}(?P<reason>.*)", "tunnel", ANY, None),
    # -- what administrators did ---------------------------------------------------------------
    ("111008", r"User '(?P<user>.*?)' executed the '(?P<command>.*)' command\.?", "command", ANY,
     True),
    ("111009", r"User '(?P<user>.*?)' executed cmd: (?P<command>.*)", "command", ANY, True),
    (
        "111010",
        r"User '(?P<user>.*?)', running '(?P<service>[^']*)' from IP (?P<src>[0-9a-fA-F:.]+), "
        r"executed '(?P<command>.*)'\.?",
        "command",
        ANY,
        True,
    ),
    (
        "111001 111002 111003 111004 111005 111007",
        r"(?P<command>(?:Begin|(?P<src>\S+) (?:[Ee]rase|end)) configuration):? ?(?P<reason>.*)",
        "command",
        ANY,
        True,
    ),
)


def _shapes() -> Iterator[tuple[str, Shape]]:
    for uids, pattern, kind, activity, allowed in _TABLE:
        shape = Shape(re.compile(pattern), kind, activity, allowed)
        for uid in uids.split():
            yield uid, shape


def _by_number() -> dict[str, tuple[Shape, ...]]:
    found: dict[str, tuple[Shape, ...]] = {}
    for uid, shape in _shapes():
        found[uid] = (*found.get(uid, ()), shape)
    return found


SHAPES: Mapping[str, tuple[Shape, ...]] = MappingProxyType(_by_number())
"""The forms of a message by its number, or by the first three digits of it."""
SOURCES: tuple[()] = ()
"""None: a part of `cisco_asa`."""


def shaped(uid: str, text: str) -> tuple[Shape, dict[str, str]] | None:
    """The form of a message and its parts; None for one of no known form."""
    for shape in (*SHAPES.get(uid, ()), *SHAPES.get(uid[:3], ())):
        match = shape.pattern.fullmatch(text)
        if match:
            return shape, {name: part for name, part in match.groupdict().items() if part}
    return None


_IP_MARK = re.compile(r"(?<![\w<])IP (?:= |<)?[0-9a-fA-F:.]{3,}")


def ambiguous(uid: str, kind: str, text: str) -> bool:
    """Whether a VPN message names more than one address where the peer's should stand.

    User names and client types are chosen by whoever connects, and may hold
    `> IP <6.6.6.6>`: which of two is the product's own cannot be told. 716059 names
    the address that a session was resumed from as well.
    """
    most = 2 if uid == "716059" else 1
    return kind == "tunnel" and len(_IP_MARK.findall(text)) > most
