"""Which rows of a batch rules may see, and which rules: by mode and log source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.matching.column_access import Flags, Numbers
from alerts.rulepack.rule_pack import Rule
from infra.errors import Fatal
from ingest.tables import HEARTBEAT

LogSource: TypeAlias = tuple[int | None, str]
"""Class and source of an event, which say what rules look at it."""

ROUTING = ("class_uid", "source", "mode", "dead_letter_reason", "duplicate_of")
"""Columns that say which rules may see an event."""

REPEATED = 1_000
"""Rows up to which a batch is compared with earlier ones of one log source."""

_ALIKE = ROUTING[:3]

_MOST_ALIKE = 64
"""Log sources and modes that are remembered."""


@dataclass
class Routed:
    """Rows that rules may see: for each its group, and which rules look at a group's events."""

    rows: Numbers
    groups: Numbers
    rules: Flags
    pairs: list[LogSource]
    """Class and source of each group."""
    wanted: Flags
    """The rules that look at some group."""


class _Alike(NamedTuple):
    """A class, source and mode that all rows of a batch had, as columns of `REPEATED` rows."""

    columns: tuple[pa.Array, ...]
    pairs: list[LogSource]
    rules: Flags
    seen: bool

    def has(self, columns: Sequence[pa.Array], count: int) -> bool:
        """Whether these columns of so many rows have no other values."""
        # Bytes are compared in a tenth of the time that a function of Arrow takes to be called.
        return all(
            column.equals(repeated.slice(0, count))
            for column, repeated in zip(columns, self.columns, strict=True)
        )


class Router:
    """The log sources and modes of a pack's rules."""

    def __init__(self, rules: Sequence[Rule], modes: Collection[str]) -> None:
        self._rules = rules
        self._modes = pa.array(sorted(modes), pa.string())
        self._routes: dict[LogSource, Flags] = {}
        self._events: dict[LogSource, int] = {}
        self._alike: dict[tuple[int | str | None, ...], _Alike] = {}
        self._last: _Alike | None = None
        self._numbers, self._zeros = np.arange(REPEATED), np.zeros(REPEATED, np.int64)
        for shared in (self._numbers, self._zeros):
            shared.setflags(write=False)

    def route(self, batch: pa.RecordBatch) -> Routed:
        """The rows that some rule may see, by class and source."""
        missing = [name for name in ROUTING if batch.schema.get_field_index(name) < 0]
        if missing:
            raise Fatal(f"a batch of silver.event lacks {missing}; select all its columns")
        return self._as_before(batch) or self._anew(batch)

    def rules_for(self, pair: LogSource) -> Flags:
        """The rules that look at events of a class and source."""
        if pair not in self._routes:
            _, source = pair
            # Heartbeats are rows of ours that show a source is alive; no rule may match them.
            looks = [source != HEARTBEAT and looks_at(rule, pair) for rule in self._rules]
            self._routes[pair] = np.array(looks, bool)
        return self._routes[pair]

    def events(self) -> Numbers:
        """Of each rule how many events of its log sources there were so far."""
        events = np.zeros(len(self._rules), np.int64)
        for pair, count in self._events.items():
            events[self.rules_for(pair)] += count
        return events

    def _as_before(self, batch: pa.RecordBatch) -> Routed | None:
        """The rows of a small batch that has the class, source and mode of an earlier one."""
        count = batch.num_rows
        if not 0 < count <= REPEATED:
            return None
        columns = [batch.column(name) for name in _ALIKE]
        alike = self._last
        if alike is None or not alike.has(columns, count):
            alike = self._alike.get(tuple(column[0].as_py() for column in columns))
            if alike is None or not alike.has(columns, count):
                return None
            self._last = alike
        rows, groups = self._numbers[:count], self._zeros[:count]
        if not alike.seen:
            rows = rows[:0]
        elif (valid := _valid(batch)) is not None:
            rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
        self._count(alike.pairs[0], len(rows))
        return Routed(rows, groups, alike.rules, alike.pairs, alike.rules[0])

    def _anew(self, batch: pa.RecordBatch) -> Routed:
        # Nulls as a code of their own: an event without a class may still concern a rule of a
        # source.
        classes = batch.column("class_uid").dictionary_encode(null_encoding="encode")
        sources = batch.column("source").dictionary_encode(null_encoding="encode")
        names, uids = sources.dictionary.to_pylist(), classes.dictionary.to_pylist()
        if len(names) == len(uids) == 1:
            pairs, groups = np.zeros(1, np.int64), np.zeros(batch.num_rows, np.int64)
        else:
            codes = sources.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            # One number for both codes: `np.unique` sorts plain numbers, not rows of two.
            codes *= len(uids)
            codes += classes.indices.to_numpy(zero_copy_only=False)
            pairs, groups = np.unique(codes, return_inverse=True)
        numbers = [divmod(pair, len(uids)) for pair in pairs.tolist()]
        named = [(uids[uid], names[name]) for name, uid in numbers]
        rules = np.zeros((len(named), len(self._rules)), bool)
        for group, pair in enumerate(named):
            rules[group] = self.rules_for(pair)
        seen = self._seen(batch)
        if len(named) != 1:
            # Most events concern no rule; they are dropped before any of their columns is read.
            rows = np.flatnonzero(seen & np.asarray(rules.any(axis=1))[groups])
            of_groups = np.bincount(groups[rows], minlength=len(named)).tolist()
            for pair, count in zip(named, of_groups, strict=True):
                self._count(pair, count)
        else:
            rows = np.flatnonzero(seen) if rules.any() else groups[:0]
            self._count(named[0], len(rows))
            self._remember(batch, named, rules)
        return Routed(rows, groups, rules, named, np.asarray(rules.any(axis=0)))

    def _remember(self, batch: pa.RecordBatch, pairs: list[LogSource], rules: Flags) -> None:
        """Keep class, source and mode of a small batch that has one of each."""
        if batch.num_rows > REPEATED or len(modes := batch.column("mode").unique()) != 1:
            return
        if len(self._alike) >= _MOST_ALIKE:
            self._alike.clear()
        firsts = [batch.column(name)[0] for name in _ALIKE]
        seen = bool(rules.any()) and bool(pc.is_in(modes, self._modes)[0].as_py())
        self._alike[tuple(first.as_py() for first in firsts)] = _Alike(
            tuple(pa.repeat(first, REPEATED) for first in firsts), pairs, rules, seen
        )

    def _seen(self, batch: pa.RecordBatch) -> Flags:
        """Which events may raise alerts, whatever the rules."""
        seen = pc.is_in(batch.column("mode"), self._modes)
        if (valid := _valid(batch)) is not None:
            seen = pc.and_(seen, valid)
        flags: Flags = seen.to_numpy(zero_copy_only=False)
        return flags

    def _count(self, pair: LogSource, events: int) -> None:
        self._events[pair] = self._events.get(pair, 0) + events


def _valid(batch: pa.RecordBatch) -> pa.Array | None:
    """Which rows are neither dead letters nor duplicates; None where all are."""
    valid = None
    for name in ("dead_letter_reason", "duplicate_of"):
        column = batch.column(name)
        # Most batches have neither, and a call into Arrow costs as much as hundreds of events.
        if column.null_count < len(column):
            valid = column.is_null() if valid is None else pc.and_(valid, column.is_null())
    return valid


def looks_at(rule: Rule, source: LogSource) -> bool:
    """Whether events of this class and source concern the rule."""
    class_uid, name = source
    return (not rule.classes or class_uid in rule.classes) and (
        not rule.sources or name in rule.sources
    )
