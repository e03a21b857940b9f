"""Users, hosts and domains that are called so, in whichever case, for who types a name."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from alerts.domain.entity import NORMAL
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow
from infra.errors import Usage

LOOKED_BACK = timedelta(days=7)
"""How old the events are in which names are looked for; leases and alerts count whenever."""
MOST = 20
_MOST_ROWS = 2_000
"""That are looked at, of whole names first: a short beginning may be that of very many."""

_OF_EVENTS: dict[str, Literal["user", "host"]] = {
    "user_name": "user",
    "actor": "user",
    "host_name": "host",
    "src_host": "host",
}
"""Whose name a column of the answer is."""
_EVENTS = f"""
SELECT user_name, actor.user.name AS actor, host_name, src_endpoint.hostname AS src_host,
       coalesce({{domain}}, FALSE) AS domain, max(time) AS last,
       coalesce({{domain}}, FALSE) OR list_contains([lower(user_name), lower(actor.user.name),
         lower(host_name), lower(src_endpoint.hostname)], $name) AS whole
FROM silver.events
WHERE time >= $since AND time < $until
  AND (starts_with(lower(user_name), $name) OR starts_with(lower(actor.user.name), $name)
       OR starts_with(lower(host_name), $name)
       OR starts_with(lower(src_endpoint.hostname), $name) OR {{domain}})
GROUP BY ALL ORDER BY whole DESC, last DESC LIMIT {_MOST_ROWS}
"""
_DOMAIN = "(lower(query.hostname) = $name OR ends_with(lower(query.hostname), '.' || $name))"
_LEASES = f"""
SELECT 'host' AS kind, hostname AS value, max(known_at) AS last, lower(hostname) = $name AS whole
FROM silver.dhcp_segment
WHERE starts_with(lower(hostname), $name) AND kind <> 'heartbeat'
GROUP BY ALL ORDER BY whole DESC, last DESC LIMIT {_MOST_ROWS}
"""
_ALERTS = f"""
SELECT asked.kind, $typed AS value, max(event_time) AS last FROM {INDEX} alert,
  (SELECT unnest(['user', 'host']) AS kind) asked
WHERE list_contains(alert.names, asked.kind || '|' || $name) GROUP BY ALL
"""


_Named = Literal["user", "host", "domain"]
_Seen = tuple[_Named, str, datetime]
"""Kind, value, and when it was last seen."""


class EntityName(NamedTuple):
    """What is called so. `value`: as the tables write it; `last`: when it was last seen."""

    kind: _Named
    value: str
    last: datetime
    whole: bool
    """It is what was typed, but for case; else it begins so."""


def address_of(typed: str) -> tuple[Literal["ip", "mac"], str] | None:
    """What kind of address was typed, and how the tables write it; None: a name."""
    kinds: tuple[Literal["ip", "mac"], ...] = ("ip", "mac")
    for kind in kinds:
        with suppress(Usage):
            return kind, NORMAL[kind](typed)
    return None


def entities_named(reader: Reader, typed: str, now: datetime) -> list[EntityName]:
    """Users and hosts by this name, or beginning so, and the domain: whole names and newest first.

    At most `MOST` + 1, so that a caller can tell that there are more.
    """
    name = typed.lower()
    last: dict[tuple[_Named, str], datetime] = {}
    for kind, value, seen in [
        *_in_events(reader, name, now),
        *_in(reader, _LEASES, {"name": name}, "silver.dhcp_segment"),
    ]:
        last[kind, value] = max(seen, last.get((kind, value), seen))
    named = [EntityName(*key, seen, key[1].lower() == name) for key, seen in last.items()]
    # The index of alerts has names in lower case: it tells only of what nothing else does.
    whole = {each.kind for each in named if each.whole}
    for kind, value, seen in _in(reader, _ALERTS, {"name": name, "typed": typed}, INDEX):
        if kind not in whole:
            named.append(EntityName(kind, value, seen, True))
    named.sort(key=lambda each: (not each.whole, -each.last.timestamp(), each.kind, each.value))
    return named[: MOST + 1]


def _in_events(reader: Reader, name: str, now: datetime) -> list[_Seen]:
    span = (now - LOOKED_BACK, now)
    rows = reader.rows(
        # A name without a dot is no domain: any would end with `.com`.
        _EVENTS.format(domain=_DOMAIN if "." in name else "FALSE"),
        {"name": name, "since": span[0], "until": span[1]},
        needs=("silver.event", "silver.events"),
        within={"silver.event": ("time", *span)},
        narrow=True,
    )
    return [seen for row in rows for seen in _names_in(row, name)]


def _names_in(row: ReaderRow, name: str) -> list[_Seen]:
    names: list[_Seen] = [
        (kind, row[column], row["last"])
        for column, kind in _OF_EVENTS.items()
        if row[column] and row[column].lower().startswith(name)
    ]
    return [*names, ("domain", name, row["last"])] if row["domain"] else names


def _in(reader: Reader, sql: str, params: ReaderRow, table: str) -> list[_Seen]:
    rows = reader.rows(sql, params, needs=(table,))
    return [(row["kind"], row["value"], row["last"]) for row in rows]
