"""Suppressions: who silenced what, why, and until when; pure rules over findings.

A finding that a suppression covers still becomes an alert in gold.alert, with the
suppression's id, but none of its revisions goes to the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec

from alerts.correlation.entry import COLUMN
from alerts.domain.entity import Entity, Holder, fields_of, micros

SUPPRESS, UNSUPPRESS = "suppress", "unsuppress"
"""Actions of gold.alert_action that begin and end a suppression."""

ANY = "*"
_SLACK = 24 * 3600 * 1_000_000
"""How long an expired one is kept, microseconds: so far may partitions of a backlog be apart."""


class Suppression(msgspec.Struct, frozen=True):
    """What is silenced: the rule's id or title, the entity, fields; all that are given must fit.

    Patterns know `*` and `?` and no case; an entity may be a network (10.1.0.0/16).
    `expires` is compared with the arrival of a finding, microseconds.
    """

    suppression_id: str
    expires: int
    rule: str = ANY
    entity: str = ANY
    fields: dict[str, str] = {}

    def covers(self, row: Mapping[str, Any], entity: Entity, holder: Holder | None) -> bool:
        """Whether a finding about `entity` is silenced."""
        # Arrival, not the wall clock: a job that catches up silences what it would have silenced
        # live.
        if micros(row["received_at"]) >= self.expires:
            return False
        if not any(_fits(self.rule, row[name]) for name in ("rule_id", "rule_title")):
            return False
        if self.entity != ANY and not any(
            _fits(self.entity, n) for n in _names(row, entity, holder)
        ):
            return False
        carried = fields_of(row)
        return all(
            _fits(pattern, carried.get(name) or row.get(COLUMN.get(name, name)))
            for name, pattern in self.fields.items()
        )


def suppression_of(action: Mapping[str, Any]) -> Suppression:
    """The suppression that a row of gold.alert_action asks for."""
    return Suppression(
        suppression_id=action["alert_id"],
        expires=micros(action["expires_at"]),
        rule=action["rule_id"] or ANY,
        entity=action.get("entity") or ANY,
        fields=fields_of(action),
    )


def apply_suppressions(
    known: dict[str, Suppression], actions: Iterable[Mapping[str, Any]], clock: int
) -> None:
    """Begin and end suppressions as asked, in order of asking; drop what expired by `clock`.

    `clock`: how far arrivals have come, microseconds, so a job that catches up
    silences what came before the expiry and nothing that came after.
    """
    # A suppression may end in the batch that begins it; the id breaks ties the same on a retry.
    for action in sorted(actions, key=lambda a: (micros(a["at"]), a["action_id"])):
        if action["action"] == SUPPRESS and action.get("expires_at") is not None:
            known[action["alert_id"]] = suppression_of(action)
        elif action["action"] == UNSUPPRESS:
            known.pop(action["alert_id"], None)
    for name, suppression in list(known.items()):
        if clock >= suppression.expires + _SLACK:
            del known[name]


def covering(
    known: Iterable[Suppression],
    row: Mapping[str, Any],
    entity: Entity,
    holder: Holder | None,
) -> str | None:
    """Id of the suppression that silences a finding, None for none; of several the first by id."""
    fitting = [
        suppression.suppression_id
        for suppression in known
        if suppression.covers(row, entity, holder)
    ]
    # Any order would do, but it has to be the same one when the batch is tried again.
    return min(fitting, default=None)


def _names(row: Mapping[str, Any], entity: Entity, holder: Holder | None) -> list[str]:
    # A person may know the thing by its address or its host; the entity is only one of its names.
    named = [entity.value, *(row.get(n) for n in ("ip", "host_name", "user_name", "dst_ip"))]
    if holder is not None:
        named += [holder.mac, holder.hostname]
    return [name for name in named if name]


def _fits(pattern: str, value: Any) -> bool:
    if value is None:
        return False
    text = str(value)
    # A network first: as a pattern of characters its slash would fit no address.
    network = _network(pattern)
    if network is not None:
        try:
            return ip_address(text) in network
        except ValueError:
            return False
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _network(pattern: str) -> Any:
    if "/" not in pattern:
        return None
    try:
        # People write 10.1.2.3/16 as well as 10.1.0.0/16.
        return ip_network(pattern, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # This translation goes back on no star, so no value can make a pattern slow.
    return re.compile(translate(pattern.replace("[", "[[]")), re.IGNORECASE)
