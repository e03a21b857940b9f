"""Who used a device then: what the witnesses say together, ranked below the lease.

A lease proves which device had an address. Who sat at it is told by others, each in its own
way, and none of them proves it: so every answer names its witnesses and how far to trust them.
Plain Python, and the SQL that finds the witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

LEASE = 100
MOST_WITNESSES = 90
"""However many witnesses agree: what they say stays below a lease."""

AGREES = 10
"""What each further kind of witness adds that names the same user, or the same device."""

_EVIDENCE = 10
"""Event uids that an answer names, the strongest witnesses' first."""


@dataclass(frozen=True)
class _Kind:
    """A kind of witness. `strength`: 0 to 100 at the instant itself; `reach`: how long after it
    a witness without an end counts, its strength falling to half by then; `early`: how long
    before it, at half its strength. What was given away at that instant was nobody's before."""

    strength: int
    reach: timedelta
    says: str
    early: timedelta = timedelta(minutes=15)


KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "vpn": _Kind(
            80, timedelta(hours=24), "the VPN server gave the address to this user", timedelta(0)
        ),
        "logon": _Kind(70, timedelta(hours=12), "logged on at the machine itself"),
        # A ticket is good for ten hours unless a domain says otherwise (Microsoft, "Maximum
        # lifetime for user ticket"; MIT krb5.conf, ticket_lifetime: a day).
        "kerberos": _Kind(60, timedelta(hours=10), "asked for a Kerberos ticket from the address"),
        "vpn_client": _Kind(50, timedelta(hours=24), "opened a VPN session from the address"),
        "network_logon": _Kind(50, timedelta(hours=4), "logged on elsewhere from the address"),
        # The account is one of the machine that was logged in to.
        "ssh": _Kind(30, timedelta(hours=1), "logged in elsewhere by SSH from the address"),
        # Names a device and no user: stands in where the DHCP server's own log is missing.
        "dhcp": _Kind(80, timedelta(0), "Zeek saw the lease being granted", timedelta(0)),
    }
)

_EARLY = max(kind.early for kind in KINDS.values())
_REACH = max(kind.reach for kind in KINDS.values())
_LONGEST = timedelta(days=31)
"""How long ago a witness may have begun that names its end: VPN sessions and leases."""


@dataclass(frozen=True)
class Witness:
    """One row of silver.witness."""

    kind: str
    time: datetime
    until: datetime | None
    event_uid: str
    source: str
    user_name: str | None = None
    user_domain: str | None = None
    user_uid: str | None = None
    mac: str | None = None
    host: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Witness:
        """A witness from a row that has at least its columns."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class UserSeen:
    """A user, or a device, and how much speaks for it at an instant."""

    name: str
    domain: str | None
    uid: str | None
    strength: int
    kinds: tuple[str, ...]
    first: datetime
    last: datetime
    evidence: tuple[str, ...]
    reason: str


def strength(witness: Witness, at: datetime) -> int:
    """How much one witness tells about an instant, 0 (nothing) to 100.

    All of it inside its span, or at its instant; falling to half over its kind's reach; half
    for a little while before; nothing beyond.
    """
    kind = KINDS.get(witness.kind)
    if kind is None:
        return 0
    if at < witness.time:
        return kind.strength // 2 if witness.time - at <= kind.early else 0
    if witness.until is not None:
        return kind.strength if at < witness.until else 0
    age = at - witness.time
    if age > kind.reach:
        return 0
    # `dhcp` has no reach: it counts at its instant alone.
    return round(kind.strength * (1 - 0.5 * (age / kind.reach if kind.reach else 0.0)))


def users(witnesses: Iterable[Witness], at: datetime) -> list[UserSeen]:
    """The users that witnesses name, the likeliest first; those of a device, not of an address
    that changed hands (see `WITNESSES_SQL`)."""
    named = [witness for witness in witnesses if witness.user_name]
    return _ranked(named, at, _account)


def devices(witnesses: Iterable[Witness], at: datetime) -> list[UserSeen]:
    """The devices that Zeek saw an address leased to, the likeliest first."""
    named = [witness for witness in witnesses if witness.kind == "dhcp" and witness.mac]
    return _ranked(named, at, lambda witness: witness.mac or "")


def _account(witness: Witness) -> str:
    """What tells two users apart: the name alone. The same person is CORP\\ann, ann@corp.example
    and ann to different witnesses, and only some of them know a SID."""
    return (witness.user_name or "").lower().rpartition("\\")[2].partition("@")[0]


def _ranked(
    witnesses: Sequence[Witness], at: datetime, key: Callable[[Witness], str]
) -> list[UserSeen]:
    seens: dict[str, list[tuple[int, Witness]]] = {}
    for witness in witnesses:
        if (witness_row := strength(witness, at)) > 0:
            seens.setdefault(key(witness), []).append((witness_row, witness))
    seen = [_together(name, witness_row) for name, witness_row in seens.items()]
    return sorted(
        seen, key=lambda witness: (-witness.strength, -witness.last.timestamp(), witness.name)
    )


def _together(name: str, witnesses: list[tuple[int, Witness]]) -> UserSeen:
    """What several witnesses of one user say together."""
    ordered = sorted(
        witnesses,
        key=lambda witness: (-witness[0], -witness[1].time.timestamp(), witness[1].event_uid),
    )
    best, first = ordered[0]
    kinds = tuple(dict.fromkeys(witness.kind for _, witness in ordered))
    evidence = tuple(dict.fromkeys(witness.event_uid for _, witness in ordered))[:_EVIDENCE]
    return UserSeen(
        name=first.mac if first.kind == "dhcp" and first.mac else name,
        domain=next((witness.user_domain for _, witness in ordered if witness.user_domain), None),
        uid=next((witness.user_uid for _, witness in ordered if witness.user_uid), None),
        strength=min(MOST_WITNESSES, best + AGREES * (len(kinds) - 1)),
        kinds=kinds,
        first=min(witness.time for _, witness in witnesses),
        last=max(witness.time for _, witness in witnesses),
        evidence=evidence,
        reason="; ".join(KINDS[kind].says for kind in kinds),
    )


MOST_ASKED = 2_000
"""Witnesses of one instant that are looked at, the newest: a busy server has more."""

# A later statement (`rev`) may have given the address to somebody else for that instant: what was
# seen then tells nothing of this device.
WITNESSES_SQL = f"""
WITH told AS (
  SELECT * FROM silver.dhcp_segment
  WHERE mac = $mac AND kind <> 'heartbeat' AND seg_start <= $until AND seg_end > $oldest
),
names AS (
  SELECT DISTINCT lower(hostname) AS name FROM told WHERE hostname IS NOT NULL
)
SELECT w.kind, w.time, w.until, w.event_uid, w.source, w.user_name, w.user_domain, w.user_uid,
       w.mac, w.host
FROM silver.witness w
WHERE w.time >= $oldest AND w.time <= $until AND (w.time >= $since OR w.until > $at) AND (
  w.ip IN (SELECT ip FROM told) AND EXISTS (
    SELECT 1 FROM told
    WHERE told.ip = w.ip AND (w.scope IS NULL OR w.scope = told.scope)
      AND told.seg_start <= w.time AND told.seg_end > w.time
      AND NOT EXISTS (
        SELECT 1 FROM silver.dhcp_segment n
        WHERE n.scope = told.scope AND n.ip = told.ip AND n.rev > told.rev
          AND n.kind <> 'heartbeat' AND n.seg_start <= w.time AND n.seg_end > w.time))
  OR w.mac = $mac
  OR w.host IN (SELECT name FROM names)
  OR split_part(w.host, '.', 1) IN (SELECT name FROM names)
  OR w.host = lower($host) OR split_part(w.host, '.', 1) = lower($host)
  OR ($mac IS NULL AND w.ip = $ip AND ($scope IS NULL OR w.scope IS NULL OR w.scope = $scope))
)
ORDER BY w.time DESC, w.event_uid, w.kind LIMIT {MOST_ASKED + 1}
"""
"""Witnesses of one device that can tell of the instant `$at`, the newest first, for DuckDB.

`$mac`: the device, by any address it held when the witness saw it, or by a host name it gave
itself; null: no lease is known, so `$ip` in `$scope` stands for it. `$host`: a host whose own
logons count. Null where there is none; the instants are those of `window`. One more than
`MOST_ASKED` says that there are others, which nobody looks at.
"""


def window(at: datetime) -> dict[str, datetime]:
    """The instants that `WITNESSES_SQL` asks for, within those that can be written."""
    return {
        "at": at,
        "since": _moved(at, -_REACH),
        "oldest": _moved(at, -_LONGEST),
        "until": _moved(at, _EARLY),
    }


def _moved(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        # Near the first and the last instant that can be written.
        return at
