"""Findings as rows of gold.finding, made column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.domain.finding import (
    FIELD_CHARS,
    RULE_FAILED,
    SNIPPET_CHARS,
    SUBJECTS,
    finding_schema,
    framed,
    identities,
    identity,
    named,
    single_line,
)
from alerts.matching.column_access import Picked
from alerts.rulepack.indicator_match import hit_fields as indicator_shown
from alerts.rulepack.predicate import (
    All,
    Either,
    Node,
    Test,
    listed_in,
    present,
    tests_of,
    text_of,
)
from alerts.rulepack.rule_pack import Rule

_OF_EVENT = {
    "event_uid": "event_uid",
    "event_time": "time",
    "received_at": "received_at",
    "class_uid": "class_uid",
    "source": "source",
    "mode": "mode",
    "scope": "scope",
    "tenant_uid": "tenant_uid",
}
"""Columns of a finding that are the event's, whatever the finding is about."""

_TAKEN = _OF_EVENT | {"dst_ip": "dst_ip"}

_READ = ("event_uid", "host_name", "user_name", "message")
"""Columns of an event that every finding reads."""

_PATHS = tuple(dict.fromkeys([*_TAKEN.values(), *_READ]))

_OF_RULE = ("rule_id", "rule_version", "rule_title", "level", "feeds", "alerting", "kind", "pack")

_FEW, _MOST_BEGUN = 1 << 12, 512
"""Findings whose columns are kept as they begin, and for how many counts of them."""

_CALLS_COUNT = 512
"""Findings up to which a call into Arrow costs more than what it saves."""

_Endpoints = tuple[tuple[str, str], ...]
"""Endpoints that a rule names, each with the path of its address."""

_Hit = tuple[int, int]
"""The place of a row among the picked ones, and the number of a rule."""


class FindingRows:
    """What the findings of a pack's rules are made of.

    What a rule says is one row of Arrow, and what an event says is taken as it lies: with
    thousands of findings a second, a dictionary for each would cost more than finding them.
    """

    def __init__(self, rules: Sequence[Rule], pack_hash: str) -> None:
        endpoints = [tuple((role, f"{role}.ip") for role in rule.roles) for rule in rules]
        # Numbered, as such tuples would be hashed for each finding.
        numbers = {of: number for number, of in enumerate(dict.fromkeys(endpoints))}
        self._endpoints: list[_Endpoints] = list(numbers)
        self._rules = [_Shown(rule, numbers[of]) for rule, of in zip(rules, endpoints, strict=True)]
        self._pack_hash = pack_hash
        schema = finding_schema()
        rows = [
            {
                "rule_id": rule.id,
                "rule_version": rule.version,
                "rule_title": rule.title,
                "level": rule.level,
                "feeds": list(rule.feeds),
                "alerting": rule.alerting,
                "kind": "event",
                "pack": pack_hash,
            }
            for rule in rules
        ]
        kinds = pa.schema([schema.field(name) for name in _OF_RULE])
        of_rule = pa.RecordBatch.from_pylist(rows, schema=kinds)
        # What all rules say alike, such as the pack, is never chosen.
        self._alike = {
            name: of_rule.column(name)
            for name in _OF_RULE[1:]
            if rows and all(row[name] == rows[0][name] for row in rows)
        }
        self._own_names = [name for name in _OF_RULE if name not in self._alike]
        self._own = of_rule.select(self._own_names)
        texts = [name for name in self._own_names if pa.types.is_string(kinds.field(name).type)]
        self._own_texts = {name: of_rule.column(name).to_pylist() for name in texts}
        self._own_others = [name for name in self._own_names if name not in texts]
        self._many: dict[str, pa.Array] = {}
        self._begun: dict[int, dict[str, pa.Array]] = {}

    def made(
        self, picked: Picked, hits: Sequence[_Hit], failures: Sequence[tuple[int, int, str]]
    ) -> pa.RecordBatch:
        """A finding a hit, and then one for each (place, rule, reason) of a rule that threw."""
        if not failures:
            return self._of_hits(picked, hits)
        of_failures = pa.RecordBatch.from_pylist(
            [self._failure(picked, *failure) for failure in failures], schema=finding_schema()
        )
        return pa.concat_batches([self._of_hits(picked, hits), of_failures])

    def _of_hits(self, picked: Picked, hits: Sequence[_Hit]) -> pa.RecordBatch:
        places, rules = [hit[0] for hit in hits], [hit[1] for hit in hits]
        shown = [self._rules[rule] for rule in rules]
        columns = dict(self._begin(len(hits)))
        columns |= _taken(picked, places)
        texts = self._own_columns(rules, columns)
        uids = list(map(framed, picked["event_uid"]))
        roles = self._roles(picked, places, shown)
        # From rule and event alone: the same batch tried again gives the same ids.
        texts["finding_id"] = [
            rule.identity(uids[place]) for rule, place in zip(shown, places, strict=True)
        ]
        texts["role"] = [role for role, _ in roles]
        texts["host_name"] = _by_place(_hosts(picked), places)
        texts["user_name"] = _by_place([named(user) for user in picked["user_name"]], places)
        texts["snippet"] = _by_place(_snippets(picked), places)
        if any(ips := [ip for _, ip in roles]):
            texts["ip"] = ips
        ends, keys, values = _fields(picked, places, shown)
        *of_findings, keyed, valued = _arrays([*texts.values(), keys, values])
        columns |= dict(zip(texts, of_findings, strict=True))
        columns["fields"] = pa.MapArray.from_arrays(pa.array(ends), keyed, valued)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=finding_schema())

    def _own_columns(
        self, rules: Sequence[int], columns: dict[str, pa.Array]
    ) -> dict[str, Sequence[str | None]]:
        """What each finding's rule says: put into `columns`, or given as text."""
        few = len(rules) <= _CALLS_COUNT
        if names := self._own_others if few else self._own_names:
            own = self._own.select(names).take(pa.array(np.array(rules, np.int32)))
            columns |= dict(zip(names, own.columns, strict=True))
        if not few:
            return {}
        return {name: [of[rule] for rule in rules] for name, of in self._own_texts.items()}

    def _begin(self, count: int) -> dict[str, pa.Array]:
        """All columns of so many findings as they are whatever was hit: most of them null."""
        if count > _FEW:
            return self._columns(count)
        if count not in self._begun:
            if len(self._begun) >= _MOST_BEGUN:
                self._begun.clear()
            # Nulls of nested kinds have many buffers, so those of small batches are made once.
            self._many = self._many or self._columns(_FEW)
            self._begun[count] = {name: of.slice(0, count) for name, of in self._many.items()}
        return self._begun[count]

    def _columns(self, count: int) -> dict[str, pa.Array]:
        first = pa.array(np.zeros(count, np.int32))
        return {
            name: self._alike[name].take(first) if name in self._alike else pa.nulls(count, kind)
            for name, kind in _kinds().items()
        }

    def _roles(
        self, picked: Picked, places: Sequence[int], rules: Sequence[_Shown]
    ) -> list[tuple[str, str | None]]:
        """For each finding the endpoint that it is about, with its address."""
        # Most rules of a pack name the same endpoints: what they say of an event is asked once.
        different = {rule.endpoints for rule in rules}
        chosen = {number: _roles_of(picked, self._endpoints[number]) for number in different}
        return [chosen[rule.endpoints][place] for rule, place in zip(rules, places, strict=True)]

    def _failure(self, picked: Picked, row: int, number: int, reason: str) -> dict[str, Any]:
        """The finding that a rule threw; it is about the rule, so it names no address."""
        rule, event_uid = self._rules[number].rule, picked["event_uid"][row]
        title = single_line(f"Rule '{rule.title}' failed: {reason}")
        return {name: picked[path][row] for name, path in _OF_EVENT.items()} | {
            "kind": "event",
            "pack": self._pack_hash,
            # One finding a broken rule and batch, whatever number of its rows would throw.
            "finding_id": identity(RULE_FAILED, rule.id, event_uid),
            "rule_id": RULE_FAILED,
            "rule_version": rule.version,
            "rule_title": title,
            "level": "high",
            "feeds": [],
            "alerting": True,
            "role": "rule",
            "fields": {"rule_id": rule.id, "error": single_line(reason)},
            "snippet": title,
        }


class _Shown:
    """What a finding of a rule shows of its event."""

    def __init__(self, rule: Rule, endpoints: int) -> None:
        self.rule = rule
        self.endpoints = endpoints
        self.paths = tuple(dict.fromkeys([*_positive(rule.predicate), *rule.carry]))
        self.lists = tuple(test for test in tests_of(rule.predicate) if test.op == "listed")
        self.identity: Callable[[bytes], str] = identities(rule.id)


def _positive(node: Node) -> Iterator[str]:
    """Fields whose values made the rule match: those not under a `not`."""
    if isinstance(node, Test):
        # What a list was met with is shown by `_indicator`, with the list's name.
        if node.op != "listed":
            yield node.field
    elif isinstance(node, All | Either):
        for part in node.of:
            yield from _positive(part)


def _taken(picked: Picked, places: Sequence[int]) -> dict[str, pa.Array]:
    """What is the event's in a finding, without a detour through Python."""
    kinds = _kinds()
    if len(places) <= _CALLS_COUNT:
        taken = picked.take_together(_PATHS, _READ, places)
    else:
        taken = picked.take_together(list(_TAKEN.values()), (), places)
        # Of many, a row's texts are read once for all rules that it satisfies.
        picked.read_together(_READ)
    return {
        # Spark and Parquet may hand over other kinds of text and time than a finding has.
        name: column if column.type == kinds[name] else column.cast(kinds[name])
        for name, path in _TAKEN.items()
        if (column := taken.get(path)) is not None
    }


@lru_cache(maxsize=1)
def _kinds() -> dict[str, pa.DataType]:
    """The columns of a finding, with their types."""
    return {field.name: field.type for field in finding_schema()}


def _by_place(values: Sequence[str | None], places: Iterable[int]) -> list[str | None]:
    return [values[place] for place in places]


def _arrays(texts: Sequence[Sequence[str | None]]) -> list[pa.Array]:
    """Each of the lists as an array of text."""
    if max(map(len, texts)) > _FEW:
        return [pa.array(values, pa.string()) for values in texts]
    # Parts of one array: to make an array costs as much as a hundred of its texts.
    whole = pa.array(list(chain.from_iterable(texts)), pa.string())
    starts = accumulate(map(len, texts), initial=0)
    return [whole.slice(start, len(values)) for start, values in zip(starts, texts, strict=False)]


def _roles_of(picked: Picked, endpoints: _Endpoints) -> Sequence[tuple[str, str | None]]:
    """For each row the first endpoint that has an address, else the first."""
    columns = [picked[path] for _, path in endpoints]
    if any(map(any, columns)):
        return [_role(endpoints, ips) for ips in zip(*columns, strict=True)]
    # Most process starts name no address.
    return [(endpoints[0][0], None)] * len(picked.rows)


def _role(endpoints: _Endpoints, ips: Sequence[str | None]) -> tuple[str, str | None]:
    # The finding is joined to the leases by this address, so an endpoint with one goes first.
    having = ((role, ip) for (role, _), ip in zip(endpoints, ips, strict=True) if ip)
    return next(having, (endpoints[0][0], None))


def _hosts(picked: Picked) -> list[str | None]:
    hosts = picked["host_name"]
    if not all(hosts):
        of_device = picked["device.hostname"]
        hosts = [host or other for host, other in zip(hosts, of_device, strict=True)]
    return list(map(named, hosts))


def _fields(
    picked: Picked, places: Sequence[int], rules: Sequence[_Shown]
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str], list[str]]:
    """For each finding the fields that made its rule match, each with its text: where those of
    each finding begin, and their names and texts."""
    keys: list[str] = []
    texts: list[str] = []
    ends = [0]
    # Rules of a log source show the same few fields: each is written once an event.
    written = _Written(picked)
    for place, rule in zip(places, rules, strict=True):
        for path in rule.paths:
            text = written[path][place]
            if text is not None:
                keys.append(path)
                texts.append(text)
        if rule.lists:
            for name, text in _indicator(picked, place, rule.lists).items():
                keys.append(name)
                texts.append(text)
        ends.append(len(keys))
    return np.array(ends, np.int32), keys, texts


class _Written(dict[str, list[str | None]]):
    """What a finding shows of a field, by path and row."""

    def __init__(self, picked: Picked) -> None:
        super().__init__()
        self._picked = picked

    def __missing__(self, path: str) -> list[str | None]:
        texts = self[path] = [_written(value) for value in self._picked[path]]
        return texts


def _written(value: Any) -> str | None:
    if value.__class__ is str:
        return single_line(value, FIELD_CHARS)
    values = present(value)
    # The first ten: an event may list thousands, and a finding only shows why it is there.
    whole = ", ".join(text_of(value) for value in values[:10])
    return single_line(whole, FIELD_CHARS) if values else None


def _indicator(picked: Picked, row: int, lists: Iterable[Test]) -> dict[str, str]:
    """What the event met in the first list that it met."""
    for test in lists:
        hit = listed_in(test).hit(picked[test.field][row], picked["time"][row])
        if hit is not None:
            texts = indicator_shown(hit, dict(test.parts)["list"])
            return {name: single_line(text, FIELD_CHARS) for name, text in texts.items()}
    return {}


def _snippets(picked: Picked) -> list[str]:
    """What each event says of itself, and the URL, command line or query that it is about."""
    # Most columns are empty throughout a log source.
    subjects = [texts for path in SUBJECTS if any(texts := picked[path])]
    return [
        _snippet(message or _named(picked, row), [texts[row] for texts in subjects])
        for row, message in enumerate(picked["message"])
    ]


def _named(picked: Picked, row: int) -> str:
    """An event that has no message by its source, addresses and names."""
    names = ("source", "src_ip", "dst_ip", "user_name", "host_name")
    return " ".join(f"{name}={picked[name][row]}" for name in names if picked[name][row])


def _snippet(message: str, subjects: Iterable[str | None]) -> str:
    line = single_line(message)
    about = [single_line(text, FIELD_CHARS) for text in subjects if text]
    # Most messages name it already, but not behind where they are cut.
    missing = single_line(" ".join(text for text in about if text not in line), FIELD_CHARS)
    if not missing:
        return line
    return f"{single_line(message, SNIPPET_CHARS - len(missing) - 2)}: {missing}"
