"""The messages of Cisco's firewalls: their numbers, their words, what they mean.

https://www.cisco.com/c/en/us/td/docs/security/asa/syslog/asa-syslog.html . Each pattern
matches the whole message. Names, URLs and reasons that others choose are bounded by
words of the product's own on both sides, or stand at the very end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from ingest.sources.cisco.asa_identity import PEOPLE
from ingest.sources.cisco.asa_patterns import (
    DST,
    FLAGS,
    FROM,
    HASH,
    HITS,
    MAPPED_D,
    MAPPED_S,
    ON,
    PROTO,
    SPAN,
    SRC,
    TAIL,
    TO,
    TYPE,
    end,
)
from ingest.sources.shared.firewall import CLOSE, FAIL, OPEN, REFUSE, TRAFFIC

_CREATE, _DELETE, _LOCK, _UNLOCK, _ANY = 1, 6, 9, 12, 99
_PUT, _GET = 1, 2


class Shape(NamedTuple):
    """What messages of one form become: a kind of event, its activity, and the verdict.

    `allowed` is whether it was let pass, or succeeded; None where that is not the
    point, or a group `verdict` says it.
    """

    pattern: re.Pattern[str]
    kind: str
    activity: int
    allowed: bool | None


_TABLE: tuple[tuple[str, str, str, int, bool | None], ...] = (
    # -- connections ---------------------------------------------------------------------------
    (
        "302013 302015 302303 302033 302035 302017",
        rf"Built (?P<way>inbound|outbound) {PROTO}(?: state-bypass)? connection (?P<conn>\d+) "
        rf"(?:for|from) {MAPPED_S} to {MAPPED_D}(?: \((?P<user>[^()]*)\))?(?: (?P<reason>.*))?",
        "net",
        OPEN,
        True,
    ),
    (
        "302014 302016 302304 302036 302018",
        rf"Teardown {PROTO}(?: state-bypass)? connection (?P<conn>\d+) (?:for|from) {FROM}"
        rf"(?: (?P<srcname>\S+))? to {TO}(?: (?P<dstname>(?!duration)\S+))?{SPAN}"
        rf" bytes (?P<bytes>\d+){TAIL}",
        "net",
        CLOSE,
        None,
    ),
    (
        # faddr, gaddr, laddr: the foreign address, the global (translated) and the local one.
        "302020",
        r"Built (?P<way>inbound|outbound) (?P<proto>ICMPv?6?) connection for faddr "
        rf"{SRC} gaddr (?P<gaddr>\S+) laddr {DST}(?: ?\((?P<user>[^()]*)\))?"
        r"(?: type (?P<icmp_type>\d+) code (?P<icmp_code>\d+))?(?: (?P<reason>.*))?",
        "net",
        OPEN,
        True,
    ),
    (
        "302021",
        rf"Teardown (?P<proto>ICMPv?6?) connection for faddr {SRC} gaddr (?P<gaddr>\S+) laddr {DST}"
        r"(?: ?\((?P<user>[^()]*)\))?(?: type (?P<icmp_type>\d+) code (?P<icmp_code>\d+))?"
        r"(?: (?P<reason>.*))?",
        "net",
        CLOSE,
        None,
    ),
    (
        "302022 302024 302026",
        rf"Built (?P<role>\w+) +stub {PROTO} connection for {MAPPED_S} to {MAPPED_D}",
        "net",
        OPEN,
        True,
    ),
    (
        "302023 302025 302027",
        rf"Teardown stub {PROTO} connection for {FROM} to {TO}{SPAN} forwarded bytes "
        r"(?P<bytes>\d+)(?: (?P<reason>.*))?",
        "net",
        CLOSE,
        None,
    ),
    # A local host is what the firewall keeps of each address that it has connections of.
    ("609001", r"Built local-host (?P<srcif>[^\s:]+):(?P<src>\S+)", "net", OPEN, None),
    (
        "609002",
        rf"Teardown local-host (?P<srcif>[^\s:]+):(?P<src>\S+){SPAN}",
        "net",
        CLOSE,
        None,
    ),
    (
        "305011 305009",
        rf"Built (?P<nat>\w+) (?:{PROTO} )?translation from {FROM} to (?P<mapif>[^\s:(]+)"
        r"(?:\([^)]*\))?:(?P<map>[^\s/]+)(?:/(?P<mapport>\d+))?",
        "net",
        OPEN,
        None,
    ),
    (
        "305012 305010",
        rf"Teardown (?P<nat>\w+) (?:{PROTO} )?translation from {FROM} to (?P<mapif>[^\s:(]+)"
        rf"(?:\([^)]*\))?:(?P<map>[^\s/]+)(?:/(?P<mapport>\d+))?{SPAN}",
        "net",
        CLOSE,
        None,
    ),
    (
        "305006",
        rf"(?P<nat>[\w ]+?) translation creation failed for {PROTO} src {FROM} dst {TO}{TYPE}",
        "net",
        FAIL,
        False,
    ),
    (
        "305013",
        rf"(?P<reason>Asymmetric NAT rules matched for forward and reverse flows); Connection for "
        rf"{PROTO} src {FROM} dst {TO}{TYPE} denied due to NAT reverse path failure",
        "net",
        REFUSE,
        False,
    ),
    (
        "805001 805002",
        rf"(?P<reason>Offloaded {PROTO} Flow for connection|(?P<proto2>\w+) Flow is no longer "
        rf"offloaded for connection) (?P<conn>\d+) from {MAPPED_S} to {MAPPED_D}",
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
        rf"Inbound (?P<proto>TCP) connection denied from {SRC} to {DST}{FLAGS}{ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106002",
        rf"{PROTO} Connection denied by (?P<reason>outbound list \S+) src {SRC} dest {DST}",
        "net",
        REFUSE,
        False,
    ),
    ("106006", rf"Deny inbound (?P<proto>UDP) from {SRC} to {DST}{ON}", "net", REFUSE, False),
    (
        "106007",
        rf"Deny inbound (?P<proto>UDP) from {SRC} to {DST} due to (?P<reason>.*)",
        "net",
        REFUSE,
        False,
    ),
    (
        "106010 106014 106011",
        rf"Deny inbound (?:\((?P<reason>[^)]*)\) )?{PROTO} src {FROM} dst {TO}{TYPE}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106012",
        r"Deny IP from (?P<src>\S+) to (?P<dst>[^\s,]+), (?P<reason>IP options: ?.*)",
        "net",
        REFUSE,
        False,
    ),
    (
        "106013",
        rf"(?P<reason>Dropping echo request) from {SRC} to PAT address {DST}",
        "net",
        REFUSE,
        False,
    ),
    (
        # Common without any attack: a packet that comes after its connection was closed looks so.
        "106015",
        rf"Deny (?P<proto>TCP) \((?P<reason>no connection)\) from {SRC} to {DST}{FLAGS}{ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106016",
        rf"(?P<reason>Deny IP spoof) from \((?P<src>[^()\s]+)\) to (?P<dst>\S+){ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106017",
        r"(?P<reason>Deny IP due to Land Attack) from (?P<src>\S+) to (?P<dst>\S+)",
        "net",
        REFUSE,
        False,
    ),
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
        rf"Deny {PROTO} (?P<reason>reverse path check|connection spoof) from (?P<src>\S+) to "
        rf"(?P<dst>\S+){ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "106023",
        rf"Deny {PROTO} src {FROM} dst {TO}{TYPE} by access-group \"(?P<acl>[^\"]*)\"{HASH}",
        "net",
        REFUSE,
        False,
    ),
    (
        # Comes with the first packet of a flow, then as a count once an interval.
        "106100",
        rf"access-list (?P<acl>\S+) (?P<verdict>permitted|denied|est-allowed) {PROTO} "
        r"(?P<srcif>[^\s/]+)/(?P<src>[^\s()]+)\((?P<srcport>\d+)\)(?:\((?P<srcuser>[^()]*)\))? ->"
        r" (?P<dstif>[^\s/]+)/(?P<dst>[^\s()]+)\((?P<dstport>\d+)\)(?:\((?P<dstuser>[^()]*)\))? "
        + HITS,
        "net",
        TRAFFIC,
        None,
    ),
    (
        "106102 106103",
        rf"access-list (?P<acl>\S+) (?P<verdict>permitted|denied) {PROTO} for user "
        r"'?(?P<user>.*?)'? (?P<srcif>[^\s/]+)/(?P<src>[^\s()]+)\((?P<srcport>\d+)\) ->"
        r" (?P<dstif>[^\s/]+)/(?P<dst>[^\s()]+)\((?P<dstport>\d+)\) " + HITS,
        "net",
        TRAFFIC,
        None,
    ),
    (
        "110002 110003",
        rf"(?P<reason>[\w -]+?) for {PROTO} from {FROM} to {end('dst', named=False)}",
        "net",
        FAIL,
        False,
    ),
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
        rf"(?P<src>\S+){ON}",
        "net",
        REFUSE,
        False,
    ),
    (
        "313004",
        r"Denied (?P<proto>ICMP) type=(?P<icmp_type>\d+), from (?:laddr )?(?P<src>\S+)"
        rf"{ON} to (?P<dst>[^\s]+): (?P<reason>no matching session)",
        "net",
        REFUSE,
        False,
    ),
    (
        "313005",
        rf"(?P<reason>No matching connection for ICMP error message): (?P<proto>icmp) src {FROM} "
        rf"dst {TO}{TYPE} on (?P<on>\S+) interface\. +Original IP payload: (?P<payload>.*)",
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
        rf"{PROTO}(?: packet| SYN| DNS \w+| flow)?,? from {FROM} to {TO}"
        r"(?:[,;]? (?P<rest>.*))?",
        "net",
        REFUSE,
        False,
    ),
    (
        "500004",
        rf"(?P<reason>Invalid transport field) for protocol=(?P<proto>\w+), from {SRC} to {DST}",
        "net",
        REFUSE,
        False,
    ),
    (
        "507003",
        rf"{PROTO} flow from {FROM} to {TO} (?P<reason>terminated by inspection engine.*)",
        "net",
        REFUSE,
        False,
    ),
    (
        # 710: to the firewall itself, not through it.
        "710001 710002",
        rf"{PROTO} access (?P<verdict>requested|permitted) from {SRC} to {TO}",
        "net",
        OPEN,
        True,
    ),
    (
        "710003",
        rf"{PROTO} access (?P<verdict>denied)(?P<reason> by ACL)? from {SRC} to {TO}",
        "net",
        REFUSE,
        False,
    ),
    (
        "710004",
        rf"{PROTO} (?P<reason>connection limit exceeded) from {SRC} to {TO}(?: .*)?",
        "net",
        REFUSE,
        False,
    ),
    (
        "710005 710006",
        rf"{PROTO} request (?P<verdict>discarded) from {SRC} to {TO}",
        "net",
        REFUSE,
        False,
    ),
    # -- what the firewall found ---------------------------------------------------------------
    (
        # The Botnet Traffic Filter: lists of addresses and names that Cisco keeps.
        "338001 338002 338003 338004 338005 338006 338007 338008 338201 338202 338203 338204",
        r"(?P<title>Dynamic Filter (?P<verdict>permitted|monitored|dropped|action|blocked) "
        rf"(?:\w+ ?)?listed {PROTO} traffic) from {MAPPED_S} to {MAPPED_D}, (?P<rest>.*)",
        "finding",
        _CREATE,
        None,
    ),
    (
        # 400000 to 400051, the signatures that every firewall has built in.
        "400",
        r"(?P<title>(?:IDS|IPS):\d+ .*?) from (?P<src>[0-9a-fA-F:.]+) to "
        rf"(?P<dst>[0-9a-fA-F:.]+){ON}",
        "finding",
        _CREATE,
        None,
    ),
    (
        "733100 733104 733105",
        r"\[? *(?P<object>[^\]]*?) *\]? (?P<title>drop rate-\d+ exceeded|[\w ]+ exceeded)\. "
        r"?(?P<rest>.*)",
        "finding",
        _CREATE,
        None,
    ),
    (
        "733101",
        r"(?P<title>(?P<what>Host|Object|Subnet) (?:(?P<src>[0-9a-fA-F:.]+) is attacking"
        r"|(?P<dst>[0-9a-fA-F:.]+) is targeted|(?P<object>\S+) is (?:attacking|targeted)))\. "
        r"(?P<rest>.*)",
        "finding",
        _CREATE,
        None,
    ),
    (
        "733102 733103",
        r"(?P<title>Threat-detection (?:adds|removes)) host (?P<src>\S+) (?:to|from) shun list",
        "finding",
        _CREATE,
        None,
    ),
    (
        "401004",
        r"(?P<title>Shunned packet): (?P<src>\S+) ==> (?P<dst>\S+)"
        rf"{ON}",
        "net",
        REFUSE,
        False,
    ),
)


def _shapes() -> Iterator[tuple[str, Shape]]:
    for uids, pattern, kind, activity, allowed in (*_TABLE, *PEOPLE):
        shape = Shape(re.compile(pattern), kind, activity, allowed)
        for uid in uids.split():
            yield uid, shape


@cache
def shapes() -> Mapping[str, tuple[Shape, ...]]:
    """The forms of a message by its number, or by the first three digits of it."""
    # When the first message comes: patterns take longer to compile than all else here to import.
    results: dict[str, tuple[Shape, ...]] = {}
    for uid, shape in _shapes():
        results[uid] = (*results.get(uid, ()), shape)
    return MappingProxyType(results)


def shaped(uid: str, text: str) -> tuple[Shape, dict[str, str]] | None:
    """The form of a message and its parts; None for one of no known form."""
    # The number first: a form for a whole range of numbers says less.
    for shape in (*shapes().get(uid, ()), *shapes().get(uid[:3], ())):
        # `fullmatch` throughout: a message with other words at its end is of another version.
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
