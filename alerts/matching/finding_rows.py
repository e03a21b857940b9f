"""Findings as rows of gold.finding, made column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

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

_OF_RULE = ("rule_id", "rule_version", "rule_title", "level", "feeds", "alerting", "kind", "pack")

_FEW = 1 << 12
"""Findings for which nulls are kept at hand."""

_Hit = tuple[int, int]
"""The place of a row among the picked ones, and the number of a rule."""


class FindingRows:
    """What the findings of a pack's rules are made of.

    What a rule says is one row of Arrow, and what an event says is taken as it lies: with
    thousands of findings a second, a dictionary for each would cost more than finding them.
    """

    def __init__(self, rules: Sequence[Rule], pack_hash: str) -> None:
        self._rules = [_Shown(rule) for rule in rules]
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
        self._of_rule = pa.RecordBatch.from_pylist(rows, schema=kinds)

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
        of_rule = self._of_rule.take(pa.array(rules, pa.int32()))
        columns = dict(zip(_OF_RULE, of_rule.columns, strict=True))
        columns |= _taken(picked, places)
        uids = list(map(framed, picked["event_uid"]))
        roles = _roles(picked, places, shown)
        texts = {
            # From rule and event alone: the same batch tried again gives the same ids.
            "finding_id": [
                rule.identity(uids[place]) for rule, place in zip(shown, places, strict=True)
            ],
            "role": [role for role, _ in roles],
            "ip": [ip for _, ip in roles],
            "host_name": _by_place(_hosts(picked), places),
            "user_name": _by_place([named(user) for user in picked["user_name"]], places),
            "snippet": _by_place([_snippet(picked, row) for row in range(len(uids))], places),
        }
        columns |= {name: pa.array(values, pa.string()) for name, values in texts.items()}
        columns["fields"] = _fields(picked, places, shown)
        every = dict(zip(_kinds(), _nulls(len(hits)), strict=True)) | columns
        return pa.RecordBatch.from_arrays(list(every.values()), schema=finding_schema())

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

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.roles = tuple((role, f"{role}.ip") for role in rule.roles)
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
    batch, kinds = picked.batch, _kinds()
    schema = batch.schema
    there = {name: path for name, path in _TAKEN.items() if schema.get_field_index(path) >= 0}
    taken = batch.select(list(there.values())).take(pa.array(picked.rows[places]))
    return {
        # Spark and Parquet may hand over other kinds of text and time than a finding has.
        name: column if column.type == kinds[name] else column.cast(kinds[name])
        for name, column in zip(there, taken.columns, strict=True)
    }


@lru_cache(maxsize=1)
def _kinds() -> dict[str, pa.DataType]:
    """The columns of a finding, with their types."""
    return {field.name: field.type for field in finding_schema()}


def _by_place(values: Sequence[str | None], places: Iterable[int]) -> list[str | None]:
    return [values[place] for place in places]


def _roles(
    picked: Picked, places: Sequence[int], rules: Sequence[_Shown]
) -> list[tuple[str, str | None]]:
    """For each finding the first endpoint that has an address, else the first."""
    # Most rules of a pack name the same endpoints: what they say of an event is asked once.
    chosen: dict[tuple[tuple[str, str], ...], list[tuple[str, str | None]]] = {}
    for roles in {rule.roles for rule in rules}:
        columns = [picked[path] for _, path in roles]
        if not any(map(any, columns)):
            # Most process starts name no address.
            chosen[roles] = [(roles[0][0], None)] * len(picked.rows)
            continue
        ips = zip(*columns, strict=True)
        chosen[roles] = [_role(roles, of_row) for of_row in ips]
    return [chosen[rule.roles][place] for rule, place in zip(rules, places, strict=True)]


def _role(roles: Sequence[tuple[str, str]], ips: Sequence[str | None]) -> tuple[str, str | None]:
    # The finding is joined to the leases by this address, so an endpoint with one goes first.
    having = ((role, ip) for (role, _), ip in zip(roles, ips, strict=True) if ip)
    return next(having, (roles[0][0], None))


def _hosts(picked: Picked) -> list[str | None]:
    names = zip(picked["host_name"], picked["device.hostname"], strict=True)
    return [named(host or of_device) for host, of_device in names]


def _fields(picked: Picked, places: Sequence[int], rules: Sequence[_Shown]) -> pa.Array:
    """For each finding the fields that made its rule match, each with its text."""
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
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(keys, pa.string()), pa.array(texts, pa.string())
    )


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


def _snippet(picked: Picked, row: int) -> str:
    """What an event says of itself, and the URL, command line or query that it is about."""
    message = picked["message"][row]
    if not message:
        names = ("source", "src_ip", "dst_ip", "user_name", "host_name")
        message = " ".join(f"{name}={picked[name][row]}" for name in names if picked[name][row])
    line = single_line(message)
    about = [single_line(text, FIELD_CHARS) for path in SUBJECTS if (text := picked[path][row])]
    # Most messages name it already, but not behind where they are cut.
    missing = single_line(" ".join(text for text in about if text not in line), FIELD_CHARS)
    if not missing:
        return line
    return f"{single_line(message, SNIPPET_CHARS - len(missing) - 2)}: {missing}"


def _nulls(count: int) -> Sequence[pa.Array]:
    """Nulls of each kind of column, so many."""
    return _few_nulls(count) if count <= _FEW else _nulls_of(count).columns


@lru_cache(maxsize=512)
def _few_nulls(count: int) -> Sequence[pa.Array]:
    columns: list[pa.Array] = _many_nulls()[:count].columns
    return columns


@lru_cache(maxsize=1)
def _many_nulls() -> pa.RecordBatch:
    # Nulls of nested kinds have many buffers, so those of small batches are made once.
    return _nulls_of(_FEW)


def _nulls_of(count: int) -> pa.RecordBatch:
    schema = finding_schema()
    return pa.RecordBatch.from_arrays(
        [pa.nulls(count, kind.type) for kind in schema], schema=schema
    )
