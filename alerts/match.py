"""Events -> findings: route by log source, look for each rule's literals, confirm exactly."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import ahocorasick_rs
import pyarrow as pa
import pyarrow.compute as pc

from alerts.finding import (
    FIELD_CHARS,
    RULE_FAILED,
    event_schema,
    finding_schema,
    identity,
    one_line,
)
from alerts.pack import PackStore, Rule, RulePack
from alerts.predicate import (
    All,
    Either,
    Node,
    RowTest,
    Test,
    at,
    fold,
    holds,
    paths_of,
    present,
    row_test,
    text_of,
)
from infra.errors import Fatal
from ingest.tables import HEARTBEAT

LIVE_MODES = ("live", "replay")
"""Modes whose events may raise live alerts; an import of old logs may not."""

_ROUTING = ("class_uid", "source", "mode", "dead_letter_reason", "duplicate_of")


@dataclass
class _Ready:
    """A rule with what it takes to run it; `broken` says why it cannot be built."""

    rule: Rule
    test: RowTest | None = None
    broken: str = ""
    shown: tuple[str, ...] = ()

    def looks_at(self, class_uid: int | None, source: str) -> bool:
        """Whether events of this class and source concern the rule."""
        rule = self.rule
        return (not rule.classes or class_uid in rule.classes) and (
            not rule.sources or source in rule.sources
        )


@dataclass
class _Scan:
    """The literals that rules look for in one column; `rules` are the readers of each."""

    automaton: ahocorasick_rs.AhoCorasick
    rules: list[list[int]]


@dataclass
class _Columns:
    """Columns of a batch as Python lists, each converted once and only if asked for."""

    batch: pa.RecordBatch
    lists: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, path: str) -> list[Any]:
        if path not in self.lists:
            self.lists[path] = column(self.batch, path)
        return self.lists[path]


def column(batch: pa.RecordBatch, path: str) -> list[Any]:
    """The values at `path`, one a row, None where missing, lists where it crosses a list."""
    name, *rest = path.split(".")
    index = batch.schema.get_field_index(name)
    if index < 0:
        return [None] * batch.num_rows
    array = batch.column(index)
    while rest and pa.types.is_struct(array.type):
        step = rest.pop(0)
        if array.type.get_field_index(step) < 0:
            return [None] * batch.num_rows
        array = pc.struct_field(array, step)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    return [at({"": v}, ".".join(["", *rest])) if rest else v for v in array.to_pylist()]


class Matcher:
    """All rules of a pack, ready to run over batches of silver.event.

    A rule that throws is set aside for the rest of the batch and named by a
    finding of rule `headgate-rule-failed`; the others run on.
    """

    def __init__(self, pack: RulePack, modes: Collection[str] = LIVE_MODES) -> None:
        self.pack_hash = pack.hash
        self.modes = pa.array(sorted(modes), pa.string())
        paths = sorted({p for rule in pack.rules for p in paths_of(rule.predicate)})
        self._paths = paths
        slots = {path: slot for slot, path in enumerate(paths)}
        self._rules = [_ready(rule, slots) for rule in pack.rules]
        self._scans, self._unfiltered = _prefilter(self._rules)
        self._routes: dict[tuple[int | None, str], frozenset[int]] = {}

    def match(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Findings of gold.finding's schema, by row and then by rule id."""
        columns = _Columns(batch)
        routed = self._route(batch, columns)
        if not routed:
            return pa.RecordBatch.from_pylist([], schema=finding_schema())
        hits, failures = self._confirm(self._candidates(columns, routed), columns)
        rows = [self._finding(columns, row, self._rules[rule]) for row, rule in hits]
        rows += [self._failure(columns, *failure) for failure in failures]
        return pa.RecordBatch.from_pylist(rows, schema=finding_schema())

    def _route(self, batch: pa.RecordBatch, columns: _Columns) -> dict[int, frozenset[int]]:
        """Row -> rules of its class and source, for the rows that rules may see."""
        missing = [name for name in _ROUTING if name not in batch.schema.names]
        if missing:
            raise Fatal(f"a batch of silver.event lacks {missing}; select all its columns")
        seen = pc.and_(
            pc.and_(
                batch.column("dead_letter_reason").is_null(), batch.column("duplicate_of").is_null()
            ),
            pc.is_in(batch.column("mode"), self.modes),
        )
        classes, sources = columns["class_uid"], columns["source"]
        routed = {}
        for row in pc.indices_nonzero(seen).to_pylist():
            rules = self._rules_for(classes[row], sources[row])
            if rules:
                routed[row] = rules
        return routed

    def _rules_for(self, class_uid: int | None, source: str) -> frozenset[int]:
        key = (class_uid, source)
        if key not in self._routes:
            self._routes[key] = frozenset(
                number
                for number, ready in enumerate(self._rules)
                if source != HEARTBEAT and ready.looks_at(class_uid, source)
            )
        return self._routes[key]

    def _candidates(
        self, columns: _Columns, routed: Mapping[int, frozenset[int]]
    ) -> list[tuple[int, int]]:
        """(row, rule) pairs worth confirming, in that order."""
        pairs = {
            (row, rule) for row, rules in routed.items() for rule in (rules & self._unfiltered)
        }
        wanted = frozenset().union(*routed.values())
        for path, scan in self._scans.items():
            if wanted.isdisjoint(r for rules in scan.rules for r in rules):
                continue
            for row, rule in _scan(scan, columns[path], list(routed)):
                if rule in routed[row]:
                    pairs.add((row, rule))
        return sorted(pairs)

    def _confirm(
        self, candidates: list[tuple[int, int]], columns: _Columns
    ) -> tuple[list[tuple[int, int]], list[tuple[int, _Ready, str]]]:
        lists = _Slots(self._paths, columns)
        hits: list[tuple[int, int]] = []
        failed: dict[int, tuple[int, _Ready, str]] = {}
        for row, number in candidates:
            if number in failed:
                continue
            ready = self._rules[number]
            try:
                if ready.test is None:
                    raise ValueError(ready.broken)
                if ready.test(lists, row):
                    hits.append((row, number))
            except Exception as error:  # whatever one rule throws must not stop the others
                failed[number] = (row, ready, f"{type(error).__name__}: {error}")
        return hits, [failed[number] for number in sorted(failed)]

    def _finding(self, columns: _Columns, row: int, ready: _Ready) -> dict[str, Any]:
        rule = ready.rule
        role, ip = _role(columns, row, rule.roles)
        event_uid = columns["event_uid"][row]
        return self._common(columns, row) | {
            "finding_id": identity(rule.id, event_uid),
            "rule_id": rule.id,
            "rule_version": rule.version,
            "rule_title": rule.title,
            "level": rule.level,
            "feeds": list(rule.feeds),
            "alerting": rule.alerting,
            "role": role,
            "ip": ip,
            "host_name": columns["host_name"][row] or columns["device.hostname"][row],
            "user_name": columns["user_name"][row],
            "dst_ip": columns["dst_ip"][row],
            "fields": _shown(columns, row, ready.shown),
            "snippet": _snippet(columns, row),
        }

    def _failure(self, columns: _Columns, row: int, ready: _Ready, reason: str) -> dict[str, Any]:
        """The finding that a rule threw; it is about the rule, so it names no address."""
        rule, event_uid = ready.rule, columns["event_uid"][row]
        title = one_line(f"Rule '{rule.title}' failed: {reason}")
        return self._common(columns, row) | {
            "finding_id": identity(RULE_FAILED, rule.id, event_uid),
            "rule_id": RULE_FAILED,
            "rule_version": rule.version,
            "rule_title": title,
            "level": "high",
            "feeds": [],
            "alerting": True,
            "role": "rule",
            "fields": {"rule_id": rule.id, "error": one_line(reason)},
            "snippet": title,
        }

    def _common(self, columns: _Columns, row: int) -> dict[str, Any]:
        taken = {
            "event_uid": "event_uid",
            "event_time": "time",
            "received_at": "received_at",
            "class_uid": "class_uid",
            "source": "source",
            "mode": "mode",
            "scope": "scope",
        }
        return {name: columns[path][row] for name, path in taken.items()} | {
            "kind": "event",
            "pack": self.pack_hash,
        }


@dataclass
class _Slots:
    """Columns by slot number, converted when a test first reads them."""

    paths: Sequence[str]
    columns: _Columns

    def __getitem__(self, slot: int) -> list[Any]:
        return self.columns[self.paths[slot]]


def _ready(rule: Rule, slots: Mapping[str, int]) -> _Ready:
    shown = tuple(dict.fromkeys([*_positive(rule.predicate), *rule.carry]))
    try:
        return _Ready(rule, row_test(rule.predicate, slots), "", shown)
    except (ValueError, KeyError) as error:
        return _Ready(rule, None, str(error), shown)


def _positive(node: Node) -> Iterator[str]:
    """Fields whose values made the rule match: those not under a `not`."""
    if isinstance(node, Test):
        yield node.field
    elif isinstance(node, All | Either):
        for part in node.of:
            yield from _positive(part)


def _prefilter(rules: Sequence[_Ready]) -> tuple[dict[str, _Scan], frozenset[int]]:
    """A scan for each column with literals, and the rules that have none."""
    readers: dict[str, dict[str, list[int]]] = defaultdict(dict)
    unfiltered = []
    for number, ready in enumerate(rules):
        if not ready.rule.literals:
            unfiltered.append(number)
            continue
        for path, text in ready.rule.literals:
            readers[path].setdefault(text, []).append(number)
    scans = {
        path: _Scan(ahocorasick_rs.AhoCorasick(list(texts)), list(texts.values()))
        for path, texts in readers.items()
    }
    return scans, frozenset(unfiltered)


def _scan(scan: _Scan, values: Sequence[Any], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(row, rule) for each literal found; all rows are joined and searched in one call."""
    texts, owners = [], []
    for row in rows:
        for value in present(values[row]):
            texts.append(fold(text_of(value)))
            owners.append(row)
    if not texts:
        return
    starts = [0, *accumulate(len(text) + 1 for text in texts)]
    haystack = "\n".join(texts)
    for literal, start, _ in scan.automaton.find_matches_as_indexes(haystack, overlapping=True):
        row = owners[bisect_right(starts, start) - 1]
        for rule in scan.rules[literal]:
            yield row, rule


def _role(columns: _Columns, row: int, roles: Sequence[str]) -> tuple[str, str | None]:
    """The first endpoint that has an address, else the first."""
    for role in roles:
        ip = columns[f"{role}.ip"][row]
        if ip:
            return role, ip
    return roles[0], None


def _shown(columns: _Columns, row: int, paths: Iterable[str]) -> dict[str, str]:
    shown = {}
    for path in paths:
        values = present(columns[path][row])
        if values:
            shown[path] = one_line(", ".join(text_of(v) for v in values[:10]), FIELD_CHARS)
    return shown


def _snippet(columns: _Columns, row: int) -> str:
    message = columns["message"][row]
    if message:
        return one_line(message)
    names = ("source", "src_ip", "dst_ip", "user_name", "host_name")
    told = [f"{name}={columns[name][row]}" for name in names if columns[name][row]]
    return one_line(" ".join(told))


def arrow_matcher(
    store_folder: str, pack_hash: str, modes: Collection[str] = LIVE_MODES
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`; the worker loads the pack by its hash."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = matcher_of(store_folder, pack_hash, tuple(modes))
        for batch in batches:
            yield matcher.match(batch)

    return run


@lru_cache(maxsize=4)
def matcher_of(store_folder: str, pack_hash: str, modes: tuple[str, ...] = LIVE_MODES) -> Matcher:
    """The matcher of a stored pack; workers live on and make it once."""
    return Matcher(PackStore(Path(store_folder)).get(pack_hash), modes)


def brute_force(
    pack: RulePack, events: Iterable[Mapping[str, Any]], modes: Collection[str] = LIVE_MODES
) -> set[tuple[str, str]]:
    """(rule id, event_uid) of every match, one test after the other: what `Matcher` must equal."""
    return {
        (rule.id, event["event_uid"])
        for event in events
        if event.get("dead_letter_reason") is None
        and event.get("duplicate_of") is None
        and event["source"] != HEARTBEAT
        and event["mode"] in modes
        for rule in pack.rules
        if (not rule.classes or event.get("class_uid") in rule.classes)
        and (not rule.sources or event["source"] in rule.sources)
        and holds(rule.predicate, event)
    }


def event_batch(events: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Nested dictionaries as a batch of silver.event; raises `Fatal` on a name it does not have."""
    schema = event_schema()
    for event in events:
        for name, value in event.items():
            index = schema.get_field_index(name)
            if index < 0:
                raise Fatal(f"silver.event has no column '{name}'")
            _known(name, value, schema.field(index).type)
    return pa.RecordBatch.from_pylist([dict(event) for event in events], schema=schema)


def _known(path: str, value: Any, kind: pa.DataType) -> None:
    if isinstance(value, list) and pa.types.is_list(kind):
        for item in value:
            _known(path, item, kind.value_type)
    elif isinstance(value, Mapping) and pa.types.is_struct(kind):
        for name, inner in value.items():
            index = kind.get_field_index(name)
            if index < 0:
                raise Fatal(f"silver.event has no '{path}.{name}'")
            _known(f"{path}.{name}", inner, kind.field(index).type)
