"""DHCP servers that nobody recorded: random pools, clients, zones, and what four products log.

A server and its clients are played by the protocol (RFC 2131), and each message is worded as
dhcpd, Kea, dnsmasq and Windows word it (formats: those of the parsers' own references). What the
server gave to whom is noted on the way: it is the truth that our answer is compared with, and
nothing here uses our rules.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

ZONES = ("UTC", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Dublin")
FOLDS = {
    "America/St_Johns": datetime(2026, 11, 1, 4, 30, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 4, 4, 15, tzinfo=UTC),
    "Europe/Dublin": datetime(2026, 10, 25, 1, tzinfo=UTC),
}
"""When clocks go back, and naive times come twice: by an hour, or by half of one (Lord Howe)."""
LEASES = (30, 90, 240, 900, 3600, 28_800)
PRODUCTS = ("dhcpd", "dhcpd-5424", "dnsmasq", "dnsmasq-5424", "kea", "windows")
NAMES = ("lt", "printer", "cam", "phone (old)", "núñez", "")


@dataclass(frozen=True)
class Message:
    """What a server did: `kind` as RFC 2131 names it, in lower case. `said` is its remark."""

    time: float
    kind: str
    mac: str
    ip: str | None = None
    name: str = ""
    said: str = ""


@dataclass
class Held:
    """A client had an address from `start` until `end`, by the server's own books."""

    ip: str
    mac: str
    start: float
    end: float
    ended: str = "expired"


@dataclass
class Client:
    """A device and what it believes to have."""

    mac: str
    name: str
    pool: int
    ip: str | None = None
    until: float = 0.0
    turn: int = 0
    """Grows whenever its plans change: what was planned before is then void."""


@dataclass
class Lab:
    """A server with its pools. `messages` is its log, `held` what it gave, `used` what devices did:
    (time, address, hardware address)."""

    seed: int
    zone: str
    lease: int
    start: float
    seconds: float
    pools: list[list[str]]
    clients: list[Client]
    messages: list[Message] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    used: list[tuple[float, str, str]] = field(default_factory=list)

    def free_at(self, ip: str, time: float, margin: float) -> bool:
        """Whether nobody had an address, by the server, for `margin` seconds around an instant."""
        mine = (held for held in self.held if held.ip == ip)
        return not any(h.start - margin <= time < h.end + margin for h in mine)


def lab(seed: int) -> Lab:
    """A random network, played for about a dozen leases. The same for the same seed."""
    dice = random.Random(seed)
    lease = dice.choice(LEASES)
    first = dice.randrange(1, 200)
    pools = [
        [f"10.{dice.randrange(256)}.{net}.{first + n}" for n in range(dice.randrange(2, 6))]
        for net in range(dice.randrange(1, 3))
    ]
    clients = [
        Client(_mac(dice, n), f"{name}{n}" if (name := dice.choice(NAMES)) else "", 0)
        for n in range(dice.randrange(3, 9))
    ]
    day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=dice.randrange(360))
    start = day.timestamp() + dice.uniform(0, 86_400)
    zone = dice.choice(ZONES)
    if zone in FOLDS and dice.random() < 0.5:
        start = FOLDS[zone].timestamp() - dice.uniform(0, 12 * lease)
    made = Lab(seed, zone, lease, start, 12.0 * lease, pools, clients)
    _Play(made, dice).run()
    return made


def _mac(dice: random.Random, number: int) -> str:
    octets = [2, 0x42, dice.randrange(256), dice.randrange(256), dice.randrange(256), number]
    return ":".join(f"{octet:02x}" for octet in octets)


class _Play:
    """The server's books, and what clients do next, by time."""

    def __init__(self, made: Lab, dice: random.Random) -> None:
        self.lab, self.dice = made, dice
        self.books: dict[str, Held] = {}
        self.bad: dict[str, float] = {}
        self.last: dict[tuple[str, int], str] = {}
        self.plans: list[tuple[float, int, Client, str, int]] = []
        self.number = count()

    def run(self) -> None:
        for client in self.lab.clients:
            client.pool = self.dice.randrange(len(self.lab.pools))
            self.plan(client, self.lab.start + self.dice.uniform(0, self.lab.lease), "join")
        end = self.lab.start + self.lab.seconds
        while self.plans and self.plans[0][0] < end:
            time, _, client, what, turn = heapq.heappop(self.plans)
            if turn == client.turn:
                getattr(self, what)(client, time)
        self.lab.messages.sort(key=lambda message: message.time)

    def plan(self, client: Client, time: float, what: str) -> None:
        heapq.heappush(self.plans, (time, next(self.number), client, what, client.turn))

    def log(self, time: float, kind: str, client: Client, ip: str | None, said: str = "") -> None:
        self.lab.messages.append(Message(time, kind, client.mac, ip, client.name, said))

    # -- the server -----------------------------------------------------------------------------

    def holder(self, ip: str, time: float) -> Held | None:
        held = self.books.get(ip)
        return held if held is not None and time < held.end else None

    def choose(self, client: Client, time: float) -> str | None:
        """The address the client has, or had, or any that is free; as servers choose."""
        pool = self.lab.pools[client.pool]
        own = [ip for ip in pool if (h := self.holder(ip, time)) and h.mac == client.mac]
        free = [ip for ip in pool if not self.holder(ip, time) and self.bad.get(ip, 0) <= time]
        old = self.last.get((client.mac, client.pool))
        return own[0] if own else old if old in free else self.dice.choice(free or [None])

    def give(self, client: Client, ip: str, time: float) -> None:
        held = self.holder(ip, time)
        if held is not None and held.mac == client.mac:
            held.end = time + self.lab.lease
        else:
            held = Held(ip, client.mac, time, time + self.lab.lease)
            self.books[ip] = held
            self.lab.held.append(held)
        self.last[client.mac, client.pool] = ip

    def close(self, ip: str, time: float, why: str) -> None:
        held = self.books.pop(ip)
        held.end, held.ended = time, why

    # -- what clients do ------------------------------------------------------------------------

    def join(self, client: Client, time: float) -> None:
        """DISCOVER, OFFER, REQUEST, ACK; or a wish for the old address first (INIT-REBOOT)."""
        gap = self.dice.choice((0.001, 0.02, 0.3, 1.1))
        old = self.last.get((client.mac, 1 - client.pool)) or self.last.get(
            (client.mac, client.pool)
        )
        if old is not None and self.dice.random() < 0.4:
            if self.reboot(client, old, time, gap):
                return
            time += gap * 2
        ip = self.choose(client, time)
        if ip is None:
            self.log(time, "discover", client, None, "full")
            self.plan(client, time + self.dice.uniform(0.05, 0.3) * self.lab.lease, "join")
            return
        self.log(time, "discover", client, None)
        self.log(time + gap, "offer", client, ip)
        # Another may be given the address meanwhile: the server decides at the REQUEST.
        client.ip = ip
        self.plan(client, time + 2 * gap, "select")

    def reboot(self, client: Client, ip: str, time: float, gap: float) -> bool:
        held = self.holder(ip, time + gap)
        here = ip in self.lab.pools[client.pool]
        good = here and (held is None or held.mac == client.mac) and self.bad.get(ip, 0) <= time
        self.log(time, "request", client, ip, "" if good else "busy" if here else "elsewhere")
        if not good:
            self.log(time, "nak", client, ip, "busy" if here else "elsewhere")
            return False
        self.granted(client, ip, time)
        return True

    def select(self, client: Client, time: float) -> None:
        ip = client.ip or ""
        held = self.holder(ip, time)
        if held is not None and held.mac != client.mac:
            self.log(time, "request", client, ip, "busy")
            self.log(time, "nak", client, ip, "busy")
            self.plan(client, time + 1, "join")
            return
        self.log(time, "request", client, ip, "selecting")
        self.granted(client, ip, time)

    def granted(self, client: Client, ip: str, time: float) -> None:
        self.log(time + 0.0005, "ack", client, ip)
        self.give(client, ip, time + 0.0005)
        client.ip, client.until = ip, time + self.lab.lease
        chance = self.dice.random()
        lease = self.lab.lease
        if chance < 0.04:
            self.plan(client, time + 0.9, "decline")
            return
        if chance < 0.16:
            stays = self.dice.uniform(0.05, 0.95) * lease
            self.plan(client, time + stays, self.dice.choice(("release", "vanish", "roam")))
        elif chance < 0.22:
            stays = lease * 0.4
            self.plan(client, time + stays, "inform")
        else:
            stays = lease * self.dice.choice((0.5, 0.5, 0.5, 0.875))
            self.plan(client, time + stays, "renew")
        for _ in range(4):
            at = time + self.dice.uniform(0, stays)
            self.lab.used.append((at, ip, client.mac))

    def renew(self, client: Client, time: float) -> None:
        ip = client.ip or ""
        self.log(time, "request", client, ip)
        self.granted(client, ip, time)

    def inform(self, client: Client, time: float) -> None:
        self.log(time, "inform", client, client.ip)
        self.log(time + 0.001, "informed", client, client.ip)
        self.plan(client, time + self.lab.lease * 0.1, "renew")

    def decline(self, client: Client, time: float) -> None:
        ip = client.ip or ""
        self.log(time, "decline", client, ip)
        self.close(ip, time, "declined")
        self.bad[ip] = time + 3 * self.lab.lease
        self.last.pop((client.mac, client.pool), None)
        self.leave(client, time + 10)

    def release(self, client: Client, time: float) -> None:
        self.log(time, "release", client, client.ip)
        self.close(client.ip or "", time, "released")
        self.leave(client, time + self.dice.uniform(1, 2 * self.lab.lease))

    def vanish(self, client: Client, time: float) -> None:
        """It goes away without a word; back before or after its lease has run out."""
        self.leave(client, time + self.dice.uniform(1, 2 * self.lab.lease))

    def roam(self, client: Client, time: float) -> None:
        """To the other network, where the old address is no good; its lease runs on."""
        client.pool = self.dice.randrange(len(self.lab.pools))
        self.leave(client, time + self.dice.uniform(1, 5))

    def leave(self, client: Client, back: float) -> None:
        client.ip = None
        client.turn += 1
        self.plan(client, back, "join")


# -- the logs ------------------------------------------------------------------------------------

Word = Callable[[Message, Lab], Iterator[str]]


def _dhcpd(m: Message, made: Lab) -> Iterator[str]:
    named = f"{m.mac} ({m.name})" if m.name else m.mac
    remark = {"busy": f": lease {m.ip} unavailable.", "elsewhere": ": wrong network."}
    if m.kind == "discover":
        full = ": network 10.0.0.0/8: no free leases" if m.said else ""
        yield f"DHCPDISCOVER from {named} via eth1{full}"
    elif m.kind == "offer":
        yield f"DHCPOFFER on {m.ip} to {named} via eth1"
    elif m.kind == "request":
        server = " (10.0.0.1)" if m.said == "selecting" else ""
        yield f"DHCPREQUEST for {m.ip}{server} from {named} via eth1{remark.get(m.said, '')}"
    elif m.kind == "ack":
        yield f"DHCPACK on {m.ip} to {named} via eth1"
    elif m.kind == "nak":
        yield f"DHCPNAK on {m.ip} to {m.mac} via eth1"
    elif m.kind == "release":
        yield f"DHCPRELEASE of {m.ip} from {named} via eth1 (found)"
    elif m.kind == "decline":
        yield f"DHCPDECLINE of {m.ip} from {named} via eth1: abandoned"
    elif m.kind == "inform":
        yield f"DHCPINFORM from {m.ip} via eth1"
    elif m.kind == "informed":
        yield f"DHCPACK to {m.ip} ({m.mac}) via eth1"


def _dnsmasq(m: Message, made: Lab) -> Iterator[str]:
    if m.kind == "discover":
        yield f"DHCPDISCOVER(br0) {m.mac} {'no address available' if m.said else ''}"
    elif m.kind == "request" and m.said in ("busy", "elsewhere"):
        yield f"DHCPREQUEST(br0) {m.ip} {m.mac} "
    elif m.kind == "nak":
        said = "address in use" if m.said == "busy" else "wrong network"
        yield f"DHCPNAK(br0) {m.ip} {m.mac} {said}"
    elif m.kind in ("ack", "informed"):
        yield f"DHCPACK(br0) {m.ip} {m.mac} {m.name}"
    else:
        yield f"DHCP{m.kind.upper()}(br0) {m.ip} {m.mac} "


def _kea(m: Message, made: Lab) -> Iterator[str]:
    client = f"[hwtype=1 {m.mac}], cid=[01:{m.mac}], tid=0x{int(m.time * 1e3) & 0xFFFFFFFF:x}"
    if m.kind == "offer":
        yield (
            f"INFO  [kea-dhcp4.leases/7.1] DHCP4_LEASE_ADVERT {client}: lease {m.ip} will be "
            "advertised"
        )
    elif m.kind == "ack":
        yield (
            f"INFO  [kea-dhcp4.leases/7.1] DHCP4_LEASE_ALLOC {client}: lease {m.ip} has been "
            f"allocated for {made.lease} seconds"
        )
    elif m.kind == "release":
        yield (
            f"INFO  [kea-dhcp4.leases/7.1] DHCP4_RELEASE {client}: address {m.ip} was released "
            "properly."
        )
    elif m.kind == "decline":
        yield (
            f"INFO  [kea-dhcp4.dhcp4/7.1] DHCP4_DECLINE_LEASE Received DHCPDECLINE for addr {m.ip} "
            f"from client {client}. The lease will be unavailable for 86400 seconds."
        )


_WINDOWS = {
    "ack": (10, "Assign"),
    "release": (12, "Release"),
    "nak": (15, "NACK"),
    "decline": (13, "Conflict"),
}


def _windows(m: Message, made: Lab) -> Iterator[str]:
    if m.kind in _WINDOWS:
        code, word = _WINDOWS[m.kind]
        name = f"{m.name}.corp.example" if m.name else ""
        mac = m.mac.replace(":", "").upper()
        yield f"{code},{{date}},{{clock}},{word},{m.ip},{name},{mac},,7,0,,,,,,,,,0"


SOURCES = {
    "dhcpd": ("isc_dhcpd", _dhcpd, "dhcpd[7]: "),
    "dhcpd-5424": ("isc_dhcpd", _dhcpd, "dhcpd 7 - - "),
    "dnsmasq": ("dnsmasq", _dnsmasq, "dnsmasq-dhcp[7]: "),
    "dnsmasq-5424": ("dnsmasq", _dnsmasq, "dnsmasq-dhcp 7 - - "),
    "kea": ("kea_dhcp4", _kea, ""),
    "windows": ("windows_dhcp", _windows, ""),
}


def log_of(made: Lab, product: str) -> list[tuple[float, bytes]]:
    """The server's log as a product writes it: the instant and the line, in order."""
    _, word, program = SOURCES[product]
    zone = ZoneInfo(made.zone)
    found = []
    for message in made.messages:
        local = datetime.fromtimestamp(message.time, UTC).astimezone(zone)
        for text in word(message, made):
            found.append((message.time, _line(product, program, text, local).encode()))
    return found


def _line(product: str, program: str, text: str, local: datetime) -> str:
    if product == "kea":
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {text}"
    if product == "windows":
        return text.format(date=f"{local:%m/%d/%y}", clock=f"{local:%H:%M:%S}")
    if product.endswith("5424"):
        return f"<30>1 {local.isoformat(timespec='microseconds')} gw {program}{text}"
    return f"{local:%b} {local.day:2} {local:%H:%M:%S} gw {program}{text}"
