"""What BIND says of a client, behind `client 10.0.0.5#53124 (name): `: pattern by pattern.

The words are those of named (https://bind9.readthedocs.io/en/latest/reference.html and its
categories of logging); each pattern covers those of several versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from ingest.parsing.ocsf import ALLOWED, DENIED, FAILURE, LOW, MEDIUM, SUCCESS, address, kept
from ingest.sources.shared.dns import QUERY, RCODES, RESPONSE, TRAFFIC, answered, question
from ingest.sources.shared.http_exchange import PORT, milliseconds, whole

_PASSED, BLOCKED, _DROPPED, _MODIFIED = 1, 2, 6, 4
Columns = dict[str, Any]

_ENTRY = r"(?P<name>\S{1,1100})/(?P<type>[A-Za-z0-9-]{1,20})/(?P<class>[A-Za-z0-9]{1,10})"
# Recursion asked for (+) or not (-), then letters: S signed, E EDNS, T TCP, D DNSSEC wanted, C
# checking off, V and K cookies.
_FLAGS = r"(?P<flags>[+-]\S{0,40})"
_ASKED = re.compile(
    r"query: (?P<name>\S{1,1100}) (?P<class>[A-Za-z0-9]{1,10}) (?P<type>[A-Za-z0-9-]{1,20})"
    rf"(?: {_FLAGS})?(?: \((?P<server>[0-9a-fA-F:.%\w]{{2,64}})(?:#(?P<port>\d{{1,5}}))?\))?"
    r"(?: \[ECS (?P<ecs>[^\]]{1,64})\])?",
    re.ASCII,
)
ANSWERED = re.compile(
    r"(?:UDP: |TCP: )?(?:response: (?P<name>\S{1,1100}) (?P<class>[A-Za-z0-9]{1,10}) "
    r"(?P<type>[A-Za-z0-9-]{1,20})|query: (?P<asked>\S{1,1100}) (?P<in>[A-Za-z0-9]{1,10}) "
    r"(?P<for>[A-Za-z0-9-]{1,20}) response:)(?P<rest>(?: \S{1,64}){0,16})(?P<records> .*)?",
    re.ASCII,
)
"""Also as appliances write the answer behind the question, with its records."""
_RECORD = re.compile(
    r" ?(?P<owner>\S{1,300}) (?P<ttl>\d{1,10}) IN (?P<type>[A-Z0-9]{1,10}) "
    r"(?P<rdata>[^;]{1,500});?",
    re.ASCII,
)
_REFUSED = re.compile(
    rf"query (?:\((?P<from>cache)\) )?'{_ENTRY}' (?P<how>denied|approved)(?P<why> \(.{{1,200}}\))?",
    re.ASCII,
)
_FAILED = re.compile(
    r"query failed \((?P<rcode>[^)]{1,40})\) for (?P<name>\S{1,1100})/(?P<class>[A-Z0-9]{1,10})"
    r"/(?P<type>[A-Z0-9-]{1,20})(?: at (?P<where>\S{1,200}))?",
    re.ASCII,
)
POLICY = re.compile(
    r"(?P<off>disabled )?rpz (?P<trigger>[A-Z-]{2,12}) (?P<policy>[A-Za-z-]{3,20}) "
    r"(?:rewrite|override)?:? ?(?P<entry>\S{1,1100})(?: (?:via|by) (?P<rule>\S{1,1100}))?"
    r"(?P<tail>.{0,300})",
    re.ASCII,
)
# `slip`: some answers go out truncated instead of not at all, so that a true client asks again by
# TCP.
LIMITED = re.compile(
    r"(?P<would>would )?rate limit (?P<how>drop|slip)(?: \S{1,20}){0,4} (?:error )?response to "
    r"(?P<block>\S{1,50})(?: for (?P<name>\S{1,1100}) (?P<class>\S{1,10}) (?P<type>\S{1,20}))?.*",
    re.ASCII,
)
ZONE_REFUSED = re.compile(
    r"(?:bad )?(?:zone transfer|update|update forwarding|notify|transfer)(?: request:)? '"
    r"(?P<zone>[^']{1,1100})'.{0,20}?(?P<how>denied|: .*|failed.*|not .*)",
    re.ASCII,
)
UPDATING = re.compile(
    r"(?:updating|forwarding update for) zone '(?P<zone>[^']{1,1100})': (?P<what>.*)"
)
CHANGED = re.compile(
    r"(?:adding an RR|deleting an RR|deleting rrset|delete all rrsets from name|deleting all "
    r"rrsets from name)(?: at| from)? '(?P<name>[^']{1,1100})' ?(?P<type>[A-Z0-9-]{1,20})?"
    r"(?: (?P<data>.*))?",
    re.ASCII,
)
SENT = re.compile(
    r"transfer of '(?P<zone>[^']{1,1100})': (?P<kind>\S{3,20}) (?P<what>started|ended|question.*)"
    r"(?P<tail>.*)",
    re.ASCII,
)
NOTIFIED = re.compile(r"received notify for zone '(?P<zone>[^']{1,1100})'(?P<tail>.*)", re.ASCII)


def end_of(ip: str | None, port: str | None) -> dict[str, Any] | None:
    """An end of a connection; None where it is no address."""
    ip_address = address((ip or "").partition("%")[0])
    return kept(ip=ip_address, port=whole(port, PORT) if port else None) if ip_address else None


_EventParts = tuple[int, Columns, Columns]
"""The activity, columns (with `query` and `server`), and what is left for `unmapped`."""


def _query(match: re.Match[str]) -> Columns:
    return question(match["name"], match["type"], match["class"])


def _asked(match: re.Match[str]) -> _EventParts:
    flags = match["flags"] or ""
    # BIND's flag T: the question came over TCP.
    protocol = "tcp" if "T" in flags else "udp"
    columns: Columns = {"query": _query(match), "server": end_of(match["server"], match["port"])}
    if flags:
        columns["connection_info"] = {
            "protocol_name": protocol,
            "protocol_num": 6 if protocol == "tcp" else 17,
            "direction_id": 0,
            "direction": "Unknown",
        }
    return QUERY, columns, kept(flags=match["flags"], ecs=match["ecs"])


def _answered(match: re.Match[str]) -> _EventParts:
    tail = f"{match['rest']}{match['records'] or ''}"
    records = [
        {"type": record["type"], "ttl": int(record["ttl"]), "rdata": record["rdata"].strip()}
        for record in islice(_RECORD.finditer(tail), 100)
    ]
    first = _RECORD.search(tail)
    words = (tail[: first.start()] if first else tail).split()
    # Versions differ in the order of the words behind the question.
    code = next((word for word in words if word.upper() in RCODES), None)
    query = question(match["asked"], match["for"], match["in"]) if match["asked"] else None
    columns: Columns = {"query": query or _query(match)} | answered(code)
    if records:
        columns["answers"] = records
    for word in words:
        if word[:1] == "(" and word[-1:] == ")":
            columns["server"] = end_of(*[*word[1:-1].split("#", 1), None][:2])
    flags = next((word for word in words if re.fullmatch(r"[+-]\S*", word)), None)
    left = [word for word in words if word not in (code, flags) and word[:1] != "("]
    return RESPONSE, columns, kept(flags=flags, response=left or None)


def _refused(match: re.Match[str]) -> _EventParts:
    denied = match["how"] == "denied"
    columns: Columns = {"query": _query(match)}
    if denied:
        columns |= answered("REFUSED")
        columns |= {"action_id": DENIED, "disposition_id": BLOCKED, "severity_id": LOW}
    else:
        columns |= {"action_id": ALLOWED, "disposition_id": _PASSED}
    if match["why"]:
        columns["status_detail"] = match["why"].strip(" ()")
    return QUERY, columns, kept(source=match["from"])


def _failed(match: re.Match[str]) -> _EventParts:
    code = match["rcode"]
    columns: Columns = {"query": _query(match)}
    columns |= answered(code) if code in RCODES else {"status_id": FAILURE, "status_detail": code}
    return RESPONSE, columns, kept(where=match["where"])


def _policy(match: re.Match[str]) -> _EventParts:
    """A response policy zone decided."""
    name, *kinds = match["entry"].split("/")
    query = question(name, kinds[0] if kinds else None, kinds[1] if len(kinds) > 1 else None)
    policy = match["policy"].upper()
    columns: Columns = {
        "query": query,
        "firewall_rule": kept(name=match["rule"] or match["entry"], type=match["trigger"]),
    }
    # A zone with `policy disabled` only logs what it would have done.
    if match["off"] or policy == "PASSTHRU":
        columns |= {"action_id": ALLOWED, "disposition_id": _PASSED}
    elif policy in ("LOCAL-DATA", "CNAME"):
        columns |= {"action_id": _MODIFIED, "disposition_id": BLOCKED, "severity_id": LOW}
    else:
        dropped = _DROPPED if policy == "DROP" else BLOCKED
        columns |= {"action_id": DENIED, "disposition_id": dropped, "severity_id": LOW}
        columns |= answered("NXDOMAIN") if policy == "NXDOMAIN" else {}
    more = kept(policy=match["policy"], rpz_disabled=True if match["off"] else None)
    return RESPONSE, columns, more | kept(tail=match["tail"].strip() or None)


def _limited(match: re.Match[str]) -> _EventParts:
    columns: Columns = {}
    if match["name"]:
        columns["query"] = _query(match)
    # `would rate limit`: with `log-only` the answer is sent all the same.
    if not match["would"]:
        columns |= {"action_id": DENIED, "disposition_id": _DROPPED, "severity_id": LOW}
    return RESPONSE, columns, {"block": match["block"], "rate_limit": match["how"]}


def zone_of(text: str) -> Columns:
    """`example.com/IN` or `example.com/AXFR/IN`."""
    name, *kinds = text.split("/")
    kind = kinds[0] if len(kinds) > 1 else None
    return question(name, kind, kinds[-1] if kinds else None)


def _zone_refused(match: re.Match[str]) -> _EventParts:
    columns: Columns = {"query": zone_of(match["zone"]), "status_id": FAILURE}
    if match["how"] == "denied":
        columns |= answered("REFUSED")
        columns |= {"action_id": DENIED, "disposition_id": BLOCKED, "severity_id": MEDIUM}
    else:
        columns["status_detail"] = match["how"].lstrip(": ")
    return TRAFFIC, columns, {}


def _updating(match: re.Match[str]) -> _EventParts:
    """A dynamic update, RR by RR."""
    changed = CHANGED.fullmatch(match["what"])
    columns: Columns = {"query": zone_of(match["zone"]), "status_id": SUCCESS}
    if changed:
        columns["query"] = question(changed["name"], changed["type"])
        if changed["data"]:
            answer = kept(rdata=changed["data"], type=changed["type"])
            columns["answers"] = [answer]
    elif "unsuccessful" in match["what"] or "failed" in match["what"]:
        columns |= {"status_id": FAILURE, "status_detail": match["what"]}
        codes = re.findall(r"\(([A-Z]{5,10})\)", match["what"])
        columns |= answered(codes[-1]) if codes and codes[-1] in RCODES else {}
    return TRAFFIC, columns, {"zone": match["zone"], "update": match["what"]}


def _sent(match: re.Match[str]) -> _EventParts:
    """A transfer of a zone to a client, a whole one (AXFR) or what changed (IXFR)."""
    zone = zone_of(match["zone"])
    zone["type"] = "IXFR" if "IXFR" in match["kind"] else "AXFR"
    columns: Columns = {"query": zone, "status_id": SUCCESS}
    columns |= volume(match["tail"])
    return TRAFFIC, columns, {"transfer": f"{match['kind']} {match['what']}{match['tail']}"}


def volume(text: str) -> Columns:
    """Octets and span at the end of a transfer."""
    match = re.search(r"(\d{1,15}) bytes, (\d{1,9}\.\d{1,3}) secs", text, re.ASCII)
    if match is None:
        return {}
    size = int(match[1])
    return {
        "traffic": {"bytes_in": size, "bytes": size},
        "duration": milliseconds(match[2], 1000),
    }


def _notified(match: re.Match[str]) -> _EventParts:
    return TRAFFIC, {"query": zone_of(match["zone"])}, kept(tail=match["tail"].strip(": ") or None)


CLIENT_MESSAGES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _EventParts]], ...] = (
    (_ASKED, _asked),
    (ANSWERED, _answered),
    (_REFUSED, _refused),
    (_FAILED, _failed),
    (POLICY, _policy),
    (LIMITED, _limited),
    (SENT, _sent),
    (UPDATING, _updating),
    (ZONE_REFUSED, _zone_refused),
    (NOTIFIED, _notified),
)
