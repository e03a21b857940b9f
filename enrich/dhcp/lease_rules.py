"""Who held an address, from the lines a DHCP server wrote. Plain Python, no Spark.

The rules, for one address in one scope; docs/explanation/leases.md draws each case:

- An ACK grants: the client holds the address from the ACK until the ACK's time plus its lease.
- An ACK to the holder while the lease runs (its last instant included) renews: the end becomes
  that ACK's time plus its lease. Only a server that hands out a shorter lease shortens it.
- An ACK to another client takes the address over: the old session ends at that instant. Not so
  the line of a failover peer about a grant that has been overtaken since: an ACK by another
  server than the one that gave the client this address less than `EXCHANGE_US` before.
- An ACK without a client takes over, too, but names nobody: no session follows.
- An ACK that answers an INFORM is not a lease: it has none, or follows the INFORM of the client.
- RELEASE and DECLINE by the holder end its session; by anybody else they are ignored, as
  servers do, or one host could end another's lease in our books.
- A NAK to the holder for its address ends its session: the server has taken the address back,
  and the client must stop using it (RFC 2131, 3.1 and 4.3.2). A NAK to anybody else is about an
  address that client wished for.
- An EXPIRE by the server ends the session of the client it names, or of whoever holds the
  address when it names none.
- A REQUEST is a wish. For an address that nobody holds, it becomes a claim when nothing answers
  it for `EXCHANGE_US`: by then a client without an answer has started over (RFC 2131, 3.1), so
  the ACK was given and its line lost. A claim ends as `unanswered`, an hour later at most, or
  when the server offers or gives the address to anybody. If the server treats the client as
  holder (ACK, RELEASE, EXPIRE), the lease is proven and began with the REQUEST; by a NAK or a
  DECLINE there never was one.
- DISCOVER and OFFER are talk.

A client that roams to another address keeps its old lease until these rules end it: the server
still reserves that address for it, and nobody else can have used it. The key of the state is the
address, so the new lease is not seen from here; nothing is attributed wrongly by it.

Two lines of one instant (RFC 3164 has whole seconds, and even with milliseconds a renewal and a
release can share one) are taken in the order of the server's log, as far as it can be known: by
arrival at the broker, then by record id, whose offset counts up. Both belong to the line and
stay the same however often and in whatever order it is handed in. No order by kind would do:
"release, then lease again" and "renew, then release" both happen within a second, and only the
log tells which it was. Between two clients the order hardly matters: whoever was granted the
address last holds it, and the other's release is ignored. Only an EXPIRE comes before all else
of its instant (no lease runs out in the instant in which it is granted), and then what clients
ask, since it comes before its answer.

All times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM, EXPIRE = range(2, 10)
"""OCSF `activity_id` of DHCP Activity (class 4004) that the rules look at."""
TALK = (OFFER, REQUEST, INFORM)
LEASE_ACTIVITIES = (DECLINE, ACK, NAK, RELEASE, EXPIRE, *TALK)

_Instant = TypeVar("_Instant", int, datetime)

EXPIRED, TAKEN_OVER, UNANSWERED = "expired", "taken over", "unanswered"
_ENDED = {DECLINE: "declined", NAK: "refused", RELEASE: "released", EXPIRE: EXPIRED}

SECOND_US = 1_000_000
FOREVER_US = 253_402_300_799 * SECOND_US  # the last second of the year 9999
LONGEST_LEASE_SECONDS = 2**32 - 1  # RFC 2131 writes a lease without end like this
EXCHANGE_US = 60 * SECOND_US
"""How far apart lines may be that one explains the other. A client asks for 60 s before it starts
over (RFC 2131, 3.1); the clocks of a failover pair differ by less (dhcpd refuses a peer's)."""
LONGEST_CLAIM_SECONDS = 3600  # nobody said how long it is; an hour is a short lease
# Of a lease that runs for months the first renewals tell nothing, and what it is proven by must not
# grow with it.
RENEWALS_KEPT = 3


def ended_so_far(ended: str | None, end: _Instant | None, complete: _Instant | None) -> str | None:
    """Why a lease ended by `complete`, how far its log was known; None while it still ran.

    Until then one that will run out may be renewed, though its span already says `expired`.
    """
    runs = ended == EXPIRED and end is not None and (complete is None or end > complete)
    return None if runs else ended


class LeaseEvent(msgspec.Struct, frozen=True, array_like=True):
    """A line of a DHCP server about one address.

    `mac` names the client: its hardware address, lower case with colons; `duid:` and its DUID
    where DHCPv6 tells no other, `id:` and the client identifier where DHCPv4 does. `server` is
    the host that logged, if known.
    """

    event_uid: str
    scope: str
    ip: str
    mac: str | None
    hostname: str | None
    activity: int
    time_us: int
    received_us: int
    lease_seconds: int
    server: str | None = None


class Session(msgspec.Struct, frozen=True, array_like=True):
    """A client held the address in `[start_us, end_us)`.

    `ended` says why it ends there: expired (the lease ran out, or will if nothing else
    comes), released, taken over, declined, refused, or unanswered: a claim, for which only the
    client itself speaks. `evidence` are event uids: the grant (or the REQUEST that became a
    claim), at most `RENEWALS_KEPT` newest renewals, and the line that ended it.
    """

    session_id: str
    mac: str
    hostname: str | None
    start_us: int
    end_us: int
    evidence: tuple[str, ...]
    ended: str = EXPIRED


class Timeline(msgspec.Struct, frozen=True):
    """Sessions of one address, in order, never two at a time.

    `painted_us`: how far they have been said in segments; what lies beyond is said later.
    """

    scope: str
    ip: str
    sessions: tuple[Session, ...] = ()
    painted_us: int = FOREVER_US

    def at(self, time_us: int) -> Session | None:
        """The session that covers an instant, if any."""
        return next((s for s in self.sessions if s.start_us <= time_us < s.end_us), None)


LEASE, EXTEND, FREE, TOO_LATE = "lease", "extend", "free", "too_late"


class Segment(msgspec.Struct, frozen=True):
    """A row of silver.dhcp_segment, times in microseconds. The highest `rev` is true."""

    scope: str | None
    ip: str | None
    seg_start: int | None
    seg_end: int | None
    mac: str | None
    hostname: str | None
    session_id: str | None
    session_start: int | None
    session_end: int | None
    known_at: int
    learned_at: int
    rev: int
    kind: str
    event_uids: tuple[str, ...] | None = None
    ended: str | None = None


def too_late(event: LeaseEvent, known_at_us: int, rev: int) -> Segment:
    """The row that names a line which came after its time was settled. It covers nothing."""
    return Segment(
        scope=event.scope,
        ip=event.ip,
        seg_start=event.time_us,
        seg_end=event.time_us,
        mac=event.mac,
        hostname=event.hostname,
        session_id=None,
        session_start=None,
        session_end=None,
        known_at=known_at_us,
        learned_at=event.received_us,
        rev=rev,
        kind=TOO_LATE,
        event_uids=(event.event_uid,),
    )


def session_id(scope: str, ip: str, mac: str, start_us: int) -> str:
    """Identity of a lease: the same wherever and whenever it is computed."""
    # A separator that no field has, or two leases could come to one text.
    text = "\x1f".join((scope, ip, mac, str(start_us)))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def order(event: LeaseEvent) -> tuple[int, int, int, int, str]:
    """Sort key of lines of one address. It does not depend on the order they are handed in.

    Of two ids that differ in an offset only, the longer one is the later.
    """
    uid, activity = event.event_uid, event.activity
    kind = 0 if activity == EXPIRE else 1 if activity in TALK else 2
    return (event.time_us, kind, event.received_us, len(uid), uid)


def replay(
    events: Iterable[LeaseEvent], base: Session | None = None, *, scope: str = "", ip: str = ""
) -> Timeline:
    """The timeline of one address: `base`, the session that ran before, and what followed.

    The order of `events` does not matter; all must be of one address. `scope` and `ip` name
    it where there may be no event. Sessions of no length are left out. Where `base` stands for
    earlier lines, all lines of the last `EXCHANGE_US` before later ones must be in `events`.
    """
    play = _Play(base)
    for line in sorted(events, key=order):
        scope, ip = line.scope, line.ip
        play.take(line)
    if play.held is not None:
        play.done.append(play.held)
    return Timeline(scope, ip, tuple(s for s in play.done if s.end_us > s.start_us))


def idle_lines(events: Sequence[LeaseEvent], base: Session | None) -> set[str]:
    """Uids of ACKs that grant nothing because of what was said before them, and of used INFORMs.

    Without what explains them they would grant: who forgets that must forget them, too.
    """
    servers = {line.server for line in events if line.activity == ACK}
    # An ACK without a lease grants nothing by itself; any other needs an ACK of a second server, or
    # an INFORM, in front of it.
    if len(servers) < 2 and all(line.activity != INFORM for line in events):
        return set()
    play = _Play(base)
    for line in sorted(events, key=order):
        play.take(line)
    return play.idle


class _Play:
    """An address being played: who holds it, what is over, and what was just said."""

    __slots__ = ("acked", "done", "held", "idle", "informed")

    def __init__(self, base: Session | None) -> None:
        self.held = base
        self.done: list[Session] = []
        self.informed: dict[str | None, LeaseEvent] = {}
        self.acked: dict[str, LeaseEvent] = {}
        self.idle: set[str] = set()

    def take(self, line: LeaseEvent) -> None:
        """The next line, in the order of `order`."""
        held, activity = self.held, line.activity
        if activity == ACK:
            if self._grants_nothing(line):
                self.idle.add(line.event_uid)
            else:
                self.held = self._grant(line)
        elif activity == REQUEST:
            self._ask(line)
        elif activity == INFORM:
            self._inform(line)
        elif held is None or line.time_us >= held.end_us:
            return
        elif activity == OFFER:
            if held.ended == UNANSWERED:
                self._close(held, line, UNANSWERED)
        elif activity in _ENDED and (
            held.mac == line.mac or (line.mac is None and activity == EXPIRE)
        ):
            self._end(held, line)

    def _end(self, held: Session, line: LeaseEvent) -> None:
        if held.ended == UNANSWERED:
            if line.activity in (NAK, DECLINE):
                self.held = None  # what was claimed was never given
                return
            held = _proven(held)
        self._close(held, line, _ENDED[line.activity])

    def _close(self, held: Session, line: LeaseEvent, reason: str) -> None:
        self.held = None
        self.done.append(
            msgspec.structs.replace(
                held, end_us=line.time_us, ended=reason, evidence=(*held.evidence, line.event_uid)
            )
        )

    def _ask(self, line: LeaseEvent) -> None:
        """A REQUEST, unless somebody else holds the address or the holder has a lease."""
        held, mac = self.held, line.mac
        if mac is None:
            return
        self.informed.pop(mac, None)
        claim, own = _claim(line, mac), held is not None and held.mac == mac
        if held is None:
            self.held = claim
        elif line.time_us > held.end_us or (line.time_us == held.end_us and not own):
            self.done.append(held)
            self.held = claim
        elif own and held.ended == UNANSWERED:
            # At once it asks again since it heard nothing; later, to keep what it has.
            at_once = line.time_us < held.start_us
            self.held = claim if at_once else _renewed(held, line, max(held.end_us, claim.end_us))

    def _inform(self, line: LeaseEvent) -> None:
        """An INFORM takes the place of its client's former one, which explains nothing more."""
        former = self.informed.get(line.mac)
        if former is not None:
            self.idle.add(former.event_uid)
        self.informed[line.mac] = line

    def _grants_nothing(self, ack: LeaseEvent) -> bool:
        """Whether an ACK answers an INFORM, or repeats a peer's grant that was overtaken."""
        if ack.lease_seconds <= 0:
            return True
        if ack.mac is None:
            return False
        inform = self.informed.pop(ack.mac, None)
        if inform is not None and _explains(inform, ack):
            self.idle.add(inform.event_uid)
            return True
        if ack.server is None:
            return False
        last, held = self.acked.get(ack.mac), self.held
        overtaken = held is not None and held.mac != ack.mac and ack.time_us < held.end_us
        by_peer = last is not None and last.server != ack.server and _explains(last, ack)
        if overtaken and by_peer:
            return True
        # However long ago the last grant was: the next line is compared with this one.
        self.acked[ack.mac] = ack
        return False

    def _grant(self, ack: LeaseEvent) -> Session | None:
        end_us = ack.time_us + min(ack.lease_seconds, LONGEST_LEASE_SECONDS) * SECOND_US
        held = self.held
        if held is not None and held.ended == UNANSWERED and ack.time_us < held.start_us:
            held = None  # this is the answer, or another client's
        if held is not None and held.mac == ack.mac and ack.time_us <= held.end_us:
            return _renewed(_proven(held), ack, end_us)
        if held is not None and ack.time_us < held.end_us:
            self._close(held, ack, UNANSWERED if held.ended == UNANSWERED else TAKEN_OVER)
        elif held is not None:
            self.done.append(held)
        if ack.mac is None:
            return None
        return Session(
            session_id=session_id(ack.scope, ack.ip, ack.mac, ack.time_us),
            mac=ack.mac,
            hostname=ack.hostname,
            start_us=ack.time_us,
            end_us=end_us,
            evidence=(ack.event_uid,),
        )


def _explains(earlier: LeaseEvent, ack: LeaseEvent) -> bool:
    """Whether a line is recent enough to explain an ACK.

    An older one must change nothing: the state forgets it (`AddressState.settle`), and history
    must give the same answer.
    """
    return ack.time_us - earlier.time_us < EXCHANGE_US


def _claim(request: LeaseEvent, mac: str) -> Session:
    """What a REQUEST becomes if nothing answers it. Of no length if the lease is that short."""
    seconds = min(request.lease_seconds, LONGEST_CLAIM_SECONDS)
    return Session(
        session_id=session_id(request.scope, request.ip, mac, request.time_us),
        mac=mac,
        hostname=request.hostname,
        start_us=request.time_us + EXCHANGE_US,
        end_us=request.time_us + seconds * SECOND_US,
        evidence=(request.event_uid,),
        ended=UNANSWERED,
    )


def _proven(held: Session) -> Session:
    """A claim as the lease it was: from its REQUEST on. A lease as it is."""
    if held.ended != UNANSWERED:
        return held
    # A claim begins an exchange after its REQUEST (`_claim`).
    return msgspec.structs.replace(held, start_us=held.start_us - EXCHANGE_US, ended=EXPIRED)


def _renewed(held: Session, line: LeaseEvent, end_us: int) -> Session:
    # The grant stays first: by it a repair tells whether the lease's own line is still there.
    renewals = (*held.evidence[1:], line.event_uid)[-RENEWALS_KEPT:]
    return msgspec.structs.replace(
        held,
        end_us=end_us,
        hostname=line.hostname or held.hostname,
        evidence=(held.evidence[0], *renewals),
    )
