"""Who gets which address: two DHCP servers by RFC 2131, and clients that come, move and go."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from headgate.lab.day import Holding


@dataclass(frozen=True)
class Message:
    """What a server saw or answered: `kind` as RFC 2131 names it, in lower case.

    `remark`: selecting, busy, elsewhere or full, where the kind alone does not say it.
    """

    time: float
    kind: str
    mac: str
    ip: str | None
    name: str
    remark: str = ""


@dataclass(frozen=True)
class Stay:
    """A device is in a network from `start` until `end`, and goes by `leaving`: it releases its
    address, or vanishes without a word."""

    device: str
    mac: str
    network: str
    start: float
    end: float
    leaving: str


@dataclass(frozen=True)
class Use:
    """A device was there with an address, from `start` until `end`."""

    device: str
    mac: str
    network: str
    ip: str
    start: float
    end: float


@dataclass
class _Held:
    mac: str
    device: str
    start: float
    end: float


@dataclass
class Network:
    """A DHCP server with its pool. `lease` in seconds; `messages` is its log."""

    name: str
    pool: Sequence[str]
    lease: int
    messages: list[Message] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    books: dict[str, _Held] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    """Which address a client had last."""

    def holder(self, ip: str, now: float) -> _Held | None:
        """Whose lease of the address runs; one that has run out is closed by the way."""
        held = self.books.get(ip)
        if held is not None and held.end <= now:
            self.close(ip, held.end, "expired")
            return None
        return held

    def close(self, ip: str, now: float, why: str) -> None:
        """The lease of an address ends."""
        held = self.books.pop(ip)
        self.holdings.append(Holding(ip, held.mac, held.device, held.start, now, why))

    def choose(self, mac: str, now: float, dice: random.Random) -> str | None:
        """The address the client has or had, else any that is free; None when the pool is full."""
        free = []
        for ip in self.pool:
            held = self.holder(ip, now)
            if held is not None and held.mac == mac:
                return ip
            if held is None:
                free.append(ip)
        old = self.last.get(mac)
        return old if old in free else dice.choice(free) if free else None

    def grant(self, ip: str, stay: Stay, now: float) -> None:
        """The client has the address for another lease."""
        held = self.holder(ip, now)
        if held is not None and held.mac == stay.mac:
            held.end = now + self.lease
        else:
            self.books[ip] = _Held(stay.mac, stay.device, now, now + self.lease)
        self.last[stay.mac] = ip


class Play:
    """Lets the stays of all devices happen, in the order of time."""

    def __init__(self, networks: Sequence[Network], dice: random.Random) -> None:
        self.networks = {network.name: network for network in networks}
        self._dice = dice
        self._plans: list[tuple[float, int, str, Stay, str, float]] = []
        self._numbers = count()

    def run(self, stays: Sequence[Stay], end: float) -> None:
        """Everything up to `end`; leases that run on then end there in no log, but in the truth."""
        for stay in stays:
            self._plan(stay.start, "join", stay)
        while self._plans and self._plans[0][0] < end:
            now, _, what, stay, ip, since = heapq.heappop(self._plans)
            getattr(self, f"_{what}")(now, stay, ip, since)
        for network in self.networks.values():
            for ip in list(network.books):
                network.close(ip, network.books[ip].end, "expired")
            network.messages.sort(key=lambda message: message.time)

    def _plan(self, when: float, what: str, stay: Stay, ip: str = "", since: float = 0.0) -> None:
        # The number parts plans of one instant: a heap cannot compare stays.
        heapq.heappush(self._plans, (when, next(self._numbers), what, stay, ip, since))

    def _log(self, when: float, kind: str, stay: Stay, ip: str | None, remark: str = "") -> None:
        message = Message(when, kind, stay.mac, ip, stay.device, remark)
        self.networks[stay.network].messages.append(message)

    def _join(self, now: float, stay: Stay, *_: object) -> None:
        network = self.networks[stay.network]
        elsewhere = [n.last[stay.mac] for n in self.networks.values() if stay.mac in n.last]
        # Most clients ask for what they had before they send a DISCOVER (INIT-REBOOT).
        if elsewhere and self._dice.random() < 0.5:
            wished = network.last.get(stay.mac) or elsewhere[-1]
            if wished in network.pool:
                held = network.holder(wished, now)
                if held is None or held.mac == stay.mac:
                    self._log(now, "request", stay, wished)
                    self._granted(now + 0.02, stay, wished)
                    return
                self._refuse(now, stay, wished, "busy")
            else:
                self._refuse(now, stay, wished, "elsewhere")
            now += 1.0
        ip = network.choose(stay.mac, now, self._dice)
        if ip is None:
            self._log(now, "discover", stay, None, "full")
            later = now + self._dice.uniform(60, 300)
            if later < stay.end - 60:
                self._plan(later, "join", stay)
            return
        self._log(now, "discover", stay, None)
        self._log(now + 0.05, "offer", stay, ip)
        self._plan(now + 0.3, "select", stay, ip)

    def _refuse(self, now: float, stay: Stay, ip: str, why: str) -> None:
        self._log(now, "request", stay, ip, why)
        self._log(now + 0.01, "nak", stay, ip, why)

    def _select(self, now: float, stay: Stay, ip: str, _: float) -> None:
        held = self.networks[stay.network].holder(ip, now)
        if held is not None and held.mac != stay.mac:
            self._refuse(now, stay, ip, "busy")
            self._plan(now + 2, "join", stay)
            return
        self._log(now, "request", stay, ip, "selecting")
        self._granted(now + 0.01, stay, ip)

    def _granted(self, now: float, stay: Stay, ip: str, since: float = 0.0) -> None:
        network = self.networks[stay.network]
        network.grant(ip, stay, now)
        self._log(now, "ack", stay, ip)
        renewal = now + network.lease / 2
        if renewal < stay.end:
            self._plan(renewal, "renew", stay, ip, since or now)
        else:
            self._plan(stay.end, "leave", stay, ip, since or now)

    def _renew(self, now: float, stay: Stay, ip: str, since: float) -> None:
        self._log(now, "request", stay, ip)
        self._granted(now + 0.01, stay, ip, since)

    def _leave(self, now: float, stay: Stay, ip: str, since: float) -> None:
        network = self.networks[stay.network]
        network.uses.append(Use(stay.device, stay.mac, stay.network, ip, since, now))
        if stay.leaving == "release":
            self._log(now, "release", stay, ip)
            network.close(ip, now, "released")
