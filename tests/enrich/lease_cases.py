"""What DHCP does, case by case: the lines of a server, and who held the address.

A letter a column is who holds it, in lower case if only the client says so (a claim), '.' is
nobody. docs/explanation/leases.md shows the same drawings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enrich.dhcp.lease_rules import (
    ACK,
    DECLINE,
    EXPIRE,
    INFORM,
    LONGEST_LEASE_SECONDS,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    SECOND_US,
    UNANSWERED,
    LeaseEvent,
    Session,
)

START = 1_795_228_800
A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
PRIVATE = "da:a1:19:00:00:0a"  # the second hex digit says: made up by the device itself
DUID = "duid:00:04:4c:4c:45:44:00:10:80:33:b2:c0:4f:48:33:32:00:00"
LETTERS = {A: "A", B: "B", C: "C", PRIVATE: "P", DUID: "D"}
MARKS = {
    OFFER: "o",
    REQUEST: "?",
    DECLINE: "d",
    ACK: "+",
    NAK: "x",
    RELEASE: "r",
    INFORM: "i",
    EXPIRE: "e",
}

IP, OTHER, V6 = "10.0.0.1", "10.0.9.1", "2001:db8::5"
SITE, BRANCH = "site", "branch"
Address = tuple[str, str]
HERE, ROAMED, THERE = (SITE, IP), (SITE, OTHER), (BRANCH, IP)


def us(second: float) -> int:
    """Seconds of a case as microseconds since 1970."""
    return round((START + second) * SECOND_US)


def said(
    second: float,
    mac: str | None,
    activity: int = ACK,
    lease: int = 10,
    at: Address = HERE,
    server: str | None = "dhcp1",
    hostname: str | None = None,
    received: float | None = None,
) -> LeaseEvent:
    """A line of the server's log."""
    uid = f"{at}/{second:09.1f}/{mac}/{activity}/{server}"
    arrival = us(second if received is None else received)
    return LeaseEvent(uid, *at, mac, hostname, activity, us(second), arrival, lease, server)


@dataclass(frozen=True)
class Case:
    """Lines, the holder of each address column by column, and why each session ended."""

    name: str
    lines: tuple[LeaseEvent, ...]
    held: dict[Address, str]
    ended: tuple[str, ...]
    unit: int = 1
    names: tuple[str | None, ...] | None = field(default=None)
    """Host names of the sessions, where the case is about them."""


def letter(session: Session | None) -> str:
    """How a drawing shows who holds an address."""
    if session is None:
        return "."
    shown = LETTERS[session.mac]
    return shown.lower() if session.ended == UNANSWERED else shown


def instants(case: Case, picture: str) -> list[int]:
    """The middle of each column of a picture, and of twenty more that must be free."""
    return [us((n + 0.5) * case.unit) for n in range(len(picture) + 20)]


def drawing(case: Case) -> str:
    """The case as text: what was said of each client, and who held the address."""
    shown = []
    for (scope, ip), picture in case.held.items():
        mine = [line for line in case.lines if (line.scope, line.ip) == (scope, ip)]
        shown.append(f"{ip} in {scope}" + (f", a column is {case.unit} s" * (case.unit != 1)))
        told = [(LETTERS.get(one.mac or "", "-"), one.server) for one in mine]
        several = len({server for _, server in told}) > 1
        for who in dict.fromkeys(told):
            name = " ".join(filter(None, (who[0], who[1] if several else None)))
            theirs = [one for one, other in zip(mine, told, strict=True) if other == who]
            shown.append(f"{name:8} {_marks(theirs, case)}")
        shown.append(f"{'held by':8} {picture}")
    return "\n".join(shown)


def _marks(lines: list[LeaseEvent], case: Case) -> str:
    columns: dict[int, str] = {}
    for line in lines:
        column = (line.time_us - us(0)) // SECOND_US // case.unit
        assert column not in columns, f"{case.name}: two marks in column {column}"
        columns[column] = MARKS[line.activity]
    return "".join(columns.get(n, " ") for n in range(max(columns) + 1))


HOUR = 3600
CASES = (
    Case("grant", (said(2, A),), {HERE: "..AAAAAAAAAA"}, ("expired",)),
    Case("renew", (said(0, A), said(5, A)), {HERE: "AAAAAAAAAAAAAAA"}, ("expired",)),
    Case(
        "rebind by the other server",
        (said(0, A), said(9, A, server="dhcp2")),
        {HERE: "AAAAAAAAAAAAAAAAAAA"},
        ("expired",),
    ),
    Case("release", (said(0, A), said(4, A, RELEASE)), {HERE: "AAAA"}, ("released",)),
    Case(
        "release by somebody else",
        (said(0, A), said(4, B, RELEASE)),
        {HERE: "AAAAAAAAAA"},
        ("expired",),
    ),
    Case("decline", (said(0, A), said(1, A, DECLINE)), {HERE: "A"}, ("declined",)),
    Case("refused renewal", (said(0, A), said(6, A, NAK)), {HERE: "AAAAAA"}, ("refused",)),
    Case("refused wish", (said(0, A), said(6, B, NAK)), {HERE: "AAAAAAAAAA"}, ("expired",)),
    Case(
        "expiry by the server",
        (said(0, A, lease=86400), said(7, None, EXPIRE)),
        {HERE: "AAAAAAA"},
        ("expired",),
    ),
    Case(
        "offer",
        (said(0, A, OFFER), said(1, B, OFFER), said(2, B, REQUEST), said(3, B)),
        {HERE: "...BBBBBBBBBB"},
        ("expired",),
    ),
    Case(
        "vanished client",
        (said(0, A), said(5, A), said(18, B)),
        {HERE: "AAAAAAAAAAAAAAA...BBBBBBBBBB"},
        ("expired", "expired"),
    ),
    Case(
        "takeover",
        (said(0, A), said(4, B), said(6, A, RELEASE)),
        {HERE: "AAAABBBBBBBBBB"},
        ("taken over", "expired"),
    ),
    Case(
        "one address in two sites",
        (said(0, A), said(2, B, at=THERE), said(4, A, RELEASE), said(5, A, RELEASE, at=THERE)),
        {HERE: "AAAA", THERE: "..BBBBBBBBBB"},
        ("released", "expired"),
    ),
    Case(
        "roaming client",
        (said(0, A, lease=20), said(4, A, at=ROAMED), said(12, A, at=ROAMED), said(25, B)),
        {HERE: "AAAAAAAAAAAAAAAAAAAA.....BBBBBBBBBB", ROAMED: "....AAAAAAAAAAAAAAAAAA"},
        ("expired", "expired", "expired"),
    ),
    Case(
        "lost acknowledgement",
        (said(0, A, REQUEST), said(1, A), said(4, A, REQUEST), said(5, A)),
        {HERE: ".AAAAAAAAAAAAAA"},
        ("expired",),
    ),
    Case(
        "lost line of an acknowledgement, proven by a renewal",
        (said(20, A, REQUEST, lease=400), said(200, A, REQUEST), said(210, A, lease=100)),
        {HERE: "..AAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
        ("expired",),
        unit=10,
    ),
    Case(
        "lost line of an acknowledgement, proven by a release",
        (said(20, A, REQUEST, lease=400), said(120, A, RELEASE)),
        {HERE: "..AAAAAAAAAA"},
        ("released",),
        unit=10,
    ),
    Case(
        "request without an answer",
        (said(20, A, REQUEST, lease=400), said(180, B, OFFER), said(190, B, lease=50)),
        {HERE: "........aaaaaaaaaa.BBBBB"},
        ("unanswered", "expired"),
        unit=10,
    ),
    Case(
        "request repeated without an answer",
        (
            said(0, A, REQUEST, lease=200),
            said(10, A, REQUEST, lease=200),
            said(30, A, REQUEST, lease=200),
            said(170, A, REQUEST, lease=200),
        ),
        {HERE: ".........aaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
        ("unanswered",),
        unit=10,
    ),
    Case(
        "request that turns out to have been refused",
        (said(20, A, REQUEST, lease=400), said(150, A, NAK)),
        {HERE: "...................."},
        (),
        unit=10,
    ),
    Case(
        "request for what another holds",
        (said(0, A, lease=100), said(20, B, REQUEST, lease=400)),
        {HERE: "AAAAAAAAAA"},
        ("expired",),
        unit=10,
    ),
    Case(
        "static reservation",
        (said(0, A, lease=LONGEST_LEASE_SECONDS), said(6, A, RELEASE), said(9, A)),
        {HERE: "AAAAAA...AAAAAAAAAA"},
        ("released", "expired"),
    ),
    Case(
        "one reservation for two network cards",
        (said(0, A, lease=30), said(5, B, lease=30), said(11, A, lease=30), said(14, A, RELEASE)),
        {HERE: "AAAAABBBBBBAAA"},
        ("taken over", "taken over", "released"),
    ),
    Case(
        "answer to an inform",
        (said(0, A), said(4, A, INFORM), said(5, A), said(12, B, INFORM), said(13, B)),
        {HERE: "AAAAAAAAAA"},
        ("expired",),
    ),
    Case(
        "failover pair that both log",
        (
            said(0, A),
            said(2, A, server="dhcp2"),
            said(6, A),
            said(7, A, RELEASE),
            said(8, B),
            said(9, A, server="dhcp2"),
            said(11, B, server="dhcp2"),
        ),
        {HERE: "AAAAAAA.BBBBBBBBBBBBB"},
        ("released", "expired"),
    ),
    Case(
        "lease longer than the longest span",
        (said(0, A, lease=5 * HOUR), said(4 * HOUR, A, RELEASE)),
        {HERE: "AAAAAAAAAAAAAAAAAAAAAAAA"},
        ("released",),
        unit=600,
    ),
    Case(
        "no host name",
        (said(0, A), said(4, A)),
        {HERE: "AAAAAAAAAAAAAA"},
        ("expired",),
        names=(None,),
    ),
    Case(
        "changed host name",
        (said(0, A, hostname="old"), said(4, A, hostname="new"), said(6, A)),
        {HERE: "AAAAAAAAAAAAAAAA"},
        ("expired",),
        names=("new",),
    ),
    Case(
        "randomised hardware address",
        (
            said(0, A, hostname="phone"),
            said(4, PRIVATE, at=ROAMED, hostname="phone"),
            said(12, PRIVATE),
        ),
        {HERE: "AAAAAAAAAA..PPPPPPPPPP", ROAMED: "....PPPPPPPPPP"},
        ("expired", "expired", "expired"),
        names=("phone", None, "phone"),
    ),
    Case(
        "DHCPv6 client without a hardware address",
        (said(0, DUID, at=(SITE, V6)), said(5, DUID, at=(SITE, V6)), said(9, A, at=(SITE, V6))),
        {(SITE, V6): "DDDDDDDDDAAAAAAAAAA"},
        ("taken over", "expired"),
    ),
    Case(
        "clock of the server three minutes behind",
        (
            said(0, A, lease=300, received=180),
            said(100, A, RELEASE, received=280),
            said(110, B, lease=300, received=290),
        ),
        {HERE: "AAAAAAAAAA.BBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"},
        ("released", "expired"),
        unit=10,
    ),
)
