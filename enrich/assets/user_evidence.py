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
MOST = 90
"""However many witnesses agree: what they say stays below a lease."""

AGREES = 10
"""What each further kind of witness adds that names the same user, or the same device."""

EVIDENCE = 10
"""Event uids that an answer names, the strongest witnesses' first."""


@dataclass(frozen=True)
class Kind:
    """A kind of witness. `strength`: 0 to 100 at the instant itself; `reach`: how long after it
    a witness without an end counts, its strength falling to half by then; `early`: how long
    before it, at half its strength. What was given away at that instant was nobody's before."""

    strength: int
    reach: timedelta
    says: str
    early: timedelta = timedelta(minutes=15)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "vpn": Kind(
            80, timedelta(hours=24), "the VPN server gave the address to this user", timedelta(0)
        ),
        "logon": Kind(70, timedelta(hours=12), "logged on at the machine itself"),
        # A ticket is good for ten hours unless a domain says otherwise (Microsoft, "Maximum
        # lifetime for user ticket"; MIT krb5.conf, ticket_lifetime: a day).
        "kerberos": Kind(60, timedelta(hours=10), "asked for a Kerberos ticket from the address"),
        "vpn_client": Kind(50, timedelta(hours=24), "opened a VPN session from the address"),
        "network_logon": Kind(50, timedelta(hours=4), "logged on elsewhere from the address"),
        # The account is one of the machine that was logged in to.
        "ssh": Kind(30, timedelta(hours=1), "logged in elsewhere by SSH from the address"),
        # Names a device and no user: stands in where the DHCP server's own log is missing.
        "dhcp": Kind(80, timedelta(0), "Zeek saw the lease being granted", timedelta(0)),
    }
)

EARLY = max(kind.early for kind in KINDS.values())
REACH = max(kind.reach for kind in KINDS.values())
LONGEST = timedelta(days=31)
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
class Seen:
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
    return round(kind.strength * (1 - 0.5 * (age / kind.reach if kind.reach else 0.0)))


def users(witnesses: Iterable[Witness], at: datetime) -> list[Seen]:
    """The users that witnesses name, the likeliest first; those of a device, not of an address
    that changed hands (see `WITNESSES_SQL`)."""
    named = [one for one in witnesses if one.user_name]
    return _ranked(named, at, _account)


def devices(witnesses: Iterable[Witness], at: datetime) -> list[Seen]:
    """The devices that Zeek saw an address leased to, the likeliest first."""
    named = [one for one in witnesses if one.kind == "dhcp" and one.mac]
    return _ranked(named, at, lambda one: one.mac or "")


def _account(witness: Witness) -> str:
    """What tells two users apart: the name alone. The same person is CORP\\ann, ann@corp.example
    and ann to different witnesses, and only some of them know a SID."""
    return (witness.user_name or "").lower().rpartition("\\")[2].partition("@")[0]


def _ranked(
    witnesses: Sequence[Witness], at: datetime, key: Callable[[Witness], str]
) -> list[Seen]:
    found: dict[str, list[tuple[int, Witness]]] = {}
    for one in witnesses:
        if (told := strength(one, at)) > 0:
            found.setdefault(key(one), []).append((told, one))
    seen = [_together(name, told) for name, told in found.items()]
    return sorted(seen, key=lambda one: (-one.strength, -one.last.timestamp(), one.name))


def _together(name: str, told: list[tuple[int, Witness]]) -> Seen:
    """What several witnesses of one user say together."""
    ordered = sorted(told, key=lambda one: (-one[0], -one[1].time.timestamp(), one[1].event_uid))
    best, first = ordered[0]
    kinds = tuple(dict.fromkeys(one.kind for _, one in ordered))
    evidence = tuple(dict.fromkeys(one.event_uid for _, one in ordered))[:EVIDENCE]
    return Seen(
        name=first.mac if first.kind == "dhcp" and first.mac else name,
        domain=next((one.user_domain for _, one in ordered if one.user_domain), None),
        uid=next((one.user_uid for _, one in ordered if one.user_uid), None),
        strength=min(MOST, best + AGREES * (len(kinds) - 1)),
        kinds=kinds,
        first=min(one.time for _, one in told),
        last=max(one.time for _, one in told),
        evidence=evidence,
        reason="; ".join(KINDS[kind].says for kind in kinds),
    )


WITNESSES_SQL = """
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
ORDER BY w.time DESC, w.event_uid, w.kind LIMIT 2000
"""
"""Witnesses of one device that can tell of the instant `$at`, the newest first, for DuckDB.

`$mac`: the device, by any address it held when the witness saw it, or by a host name it gave
itself; null: no lease is known, so `$ip` in `$scope` stands for it. `$host`: a host whose own
logons count. Null where there is none; the instants are those of `window`.
"""


def window(at: datetime) -> dict[str, datetime]:
    """The instants that `WITNESSES_SQL` asks for, within those that can be written."""
    return {
        "at": at,
        "since": _moved(at, -REACH),
        "oldest": _moved(at, -LONGEST),
        "until": _moved(at, EARLY),
    }


def _moved(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at
