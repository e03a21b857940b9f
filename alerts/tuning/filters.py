"""Filters that would have removed false positives of a rule and no true one; plain arithmetic.

A condition is one field and one value; a filter has one condition, or two that one event must both
satisfy. Proposed is what removes most for each condition, stable and narrow fields first. What
names a host alone says where something was seen, not what: it has to have evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from itertools import combinations
from typing import Any

from alerts.domain.verdict import NOISE_VERDICTS, TRUE_VERDICTS
from alerts.rulepack.predicate import Test, at, holds, present

FIELDS = (
    "process.parent.path", "actor.process.path", "process.path", "user.name", "actor.user.name",
    "device.hostname", "host_name", "src_endpoint.ip", "src_endpoint.hostname", "dst_endpoint.ip",
    "dst_endpoint.hostname", "query.hostname", "service.name", "app_name", "win_service.name",
    "job.name", "module.file.path", "file.path", "script.path", "reg_key.path", "reg_value.path",
    "share", "api.service.name", "api.operation", "finding_info.title", "tls.sni",
    "http_request.url.hostname", "http_request.user_agent", "http_request.url.path",
    "process.parent.cmd_line", "actor.process.cmd_line", "process.cmd_line",
)  # fmt: skip
"""Fields that a filter may ask, the most stable first: no ids, times or ports."""

WHERE_SEEN = frozenset({"device.hostname", "host_name"})
"""Fields that say where an event was seen, not what happened: a filter of nothing else makes its
rule blind on a whole host."""

MOST = 10
"""Proposals at most."""
SEVERAL = 3
"""Alerts judged false or benign from which on a host is taken for noisy by itself."""
# Eighty conditions make 3,160 pairs, each of which is held against all alerts.
_CANDIDATES, _PAIRED = 2_000, 80
_SHORTEST, _LONGEST = 4, 300
_OPS = ("eq", "cidr", "endswith", "startswith", "contains")
"""The narrowest first."""
_ADDRESSES = ("src_endpoint.ip", "dst_endpoint.ip")
_NAMES = ("src_endpoint.hostname", "dst_endpoint.hostname", "query.hostname", "tls.sni",
          "http_request.url.hostname")  # fmt: skip
_COMMANDS = ("process.parent.cmd_line", "actor.process.cmd_line", "process.cmd_line")


@dataclass(frozen=True)
class JudgedAlert:
    """An alert, its verdict (None: not judged) and its events as silver.event has them."""

    alert_id: str
    verdict: str | None
    events: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, order=True)
class Condition:
    """One question of a filter; `op` is one of eq, cidr, endswith, startswith, contains."""

    field: str
    op: str
    value: str

    @property
    def test(self) -> Test:
        """The same as the matcher asks it."""
        return Test(self.field, self.op, self.value)


@dataclass(frozen=True)
class Proposal:
    """A filter, and the alerts it would have hidden: ids by verdict, '' for those not judged."""

    conditions: tuple[Condition, ...]
    hidden: Mapping[str, tuple[str, ...]] = field(hash=False)

    @property
    def removed(self) -> int:
        """False positives and benign alerts that it removes."""
        return sum(len(self.hidden.get(verdict, ())) for verdict in NOISE_VERDICTS)

    @property
    def wide(self) -> str:
        """How wide it is where it names a host alone, else ''."""
        if not _names_a_host_alone(self.conditions):
            return ""
        all_hidden = sum(map(len, self.hidden.values()))
        seldom = "" if self.removed >= SEVERAL else "; nothing narrower removes them all"
        return (
            f"hides whatever the rule finds on this host: {self.removed} of {all_hidden} alerts "
            f"there are judged false or benign{seldom}"
        )


def filter_matches(conditions: Sequence[Condition], event: Mapping[str, Any]) -> bool:
    """Whether a filter of these conditions takes the event from its rule."""
    return all(holds(condition.test, event) for condition in conditions)


def hides(conditions: Sequence[Condition], alert: JudgedAlert) -> bool:
    """Whether nothing of the alert would have been left; one without events is never hidden."""
    return bool(alert.events) and all(filter_matches(conditions, event) for event in alert.events)


def propose(alerts: Sequence[JudgedAlert], most: int = MOST) -> list[Proposal]:
    """The best filters, each of which removes something that the ones before leave.

    None takes a single event of an alert that was judged true. Alerts without events are neither
    removed nor protected: the caller has to say how many they are.
    """
    ordered = sorted(alerts, key=lambda alert: alert.alert_id)
    noise = [alert for alert in ordered if alert.verdict in NOISE_VERDICTS and alert.events]
    true = [e for alert in ordered if alert.verdict in TRUE_VERDICTS for e in alert.events]
    ranked = sorted(_fitting(noise, true), key=lambda fit: _rank(*fit))
    proposals: list[Proposal] = []
    taken = 0
    for conditions, removed in ranked:
        # A filter that adds nothing to those above it would only make the list longer.
        if removed & ~taken and len(proposals) < most:
            taken |= removed
            proposals.append(Proposal(conditions, hidden_by(conditions, ordered)))
    return proposals


def hidden_by(
    conditions: Sequence[Condition], alerts: Sequence[JudgedAlert]
) -> dict[str, tuple[str, ...]]:
    """Ids of the alerts that a filter hides, by verdict, '' for none."""
    hidden: dict[str, list[str]] = {}
    for alert in alerts:
        if hides(conditions, alert):
            hidden.setdefault(alert.verdict or "", []).append(alert.alert_id)
    return {verdict: tuple(ids) for verdict, ids in sorted(hidden.items())}


def _fitting(
    noise: Sequence[JudgedAlert], true: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[tuple[Condition, ...], int]]:
    """Filters that take no true event, with the noise they remove as bits."""
    unsafe: list[tuple[Condition, int, int]] = []
    for condition in _candidates(noise):
        removed = _bits([hides((condition,), alert) for alert in noise])
        if not removed:
            continue
        struck = _bits([filter_matches((condition,), event) for event in true])
        if not struck:
            yield (condition,), removed
        if struck or condition.field in WHERE_SEEN:
            unsafe.append((condition, removed, struck))
    # Those that strike true events by themselves: a safe one needs no second condition, but a host
    # is narrower with one.
    unsafe.sort(key=lambda known: (-known[1].bit_count(), _narrowness(known[0])))
    for (first, by_first, first_true), (second, by_second, second_true) in combinations(
        unsafe[:_PAIRED], 2
    ):
        if first.field != second.field and by_first & by_second and not first_true & second_true:
            yield tuple(sorted((first, second), key=_narrowness)), by_first & by_second


def _bits(flags: Sequence[bool]) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _rank(conditions: tuple[Condition, ...], removed: int) -> tuple[Any, ...]:
    noise, count = removed.bit_count(), len(conditions)
    if _names_a_host_alone(conditions):
        # One or two alerts say nothing of a host: it comes last, for what nothing else removes.
        # More do, but what tells the same of what happened is to come first.
        count += 1
        if noise < SEVERAL:
            return 1, 0.0, 0, [_narrowness(condition) for condition in conditions]
    return 0, -noise / count, count, [_narrowness(condition) for condition in conditions]


def _names_a_host_alone(conditions: Sequence[Condition]) -> bool:
    return all(condition.field in WHERE_SEEN for condition in conditions)


def _narrowness(condition: Condition) -> tuple[int, int, int, str]:
    place = FIELDS.index(condition.field)
    return place, _OPS.index(condition.op), -len(condition.value), condition.value


def _candidates(noise: Sequence[JudgedAlert]) -> list[Condition]:
    """Conditions that hold for some event of the noise, those of stable fields first."""
    made: dict[Condition, None] = {}
    events = [event for alert in noise for event in alert.events]
    for name in FIELDS:
        values = sorted({text for event in events for text in _texts(at(event, name))})
        for value in values:
            made[Condition(name, "eq", value)] = None
        wider: dict[Condition, set[str]] = {}
        for value in values:
            for condition in _wider(name, value):
                wider.setdefault(condition, set()).add(value)
        # What holds for one value alone says no more than the value itself.
        made |= {condition: None for condition, held in wider.items() if len(held) > 1}
    return sorted(made, key=_narrowness)[:_CANDIDATES]


def _texts(value: Any) -> Iterator[str]:
    for item in present(value):
        # Lone surrogates cannot be written; Sigma gives '' and '-' meanings of their own.
        plain = isinstance(item, str) and not re.search(r"[\ud800-\udfff]", item)
        if plain and item.strip() not in ("", "-") and len(item) <= _LONGEST:
            yield item


def _wider(name: str, value: str) -> Iterator[Condition]:
    """Conditions that hold for a value and its like."""
    if name in _ADDRESSES:
        yield from _networks(name, value)
    elif name in _NAMES:
        domain = value[value.index(".") :] if "." in value else ""
        # A domain below a registered one: `.com` would hide half the world.
        if domain.count(".") > 1:
            yield Condition(name, "endswith", domain)
    elif name in _COMMANDS:
        # Shorter words stand in command lines of every kind.
        words = re.findall(r"[^\s\"']{8,}", value)
        yield from (Condition(name, "contains", word) for word in words)
    elif last := re.search(r"[\\/][^\\/]+$", value):
        if len(last[0]) > _SHORTEST:
            yield Condition(name, "endswith", last[0])
        if last.start() >= _SHORTEST:
            yield Condition(name, "startswith", value[: last.start() + 1])


def _networks(name: str, value: str) -> Iterator[Condition]:
    try:
        version = ip_address(value).version
        # One network of a site, as sites mostly cut them.
        prefix = 24 if version == 4 else 64
        yield Condition(name, "cidr", str(ip_network(f"{value}/{prefix}", strict=False)))
    except ValueError:
        return
