"""Which of the rules that an event may satisfy it does, remembered by the texts they read.

A program is started with the same words again and again, under the same parent. So the rules that
are worth a try on an event, as far as plain columns of text decide them, are asked together, and
once for each combination of values. The key is the values themselves, whole: what is remembered
is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeAlias

import pyarrow as pa

from alerts.domain.finding import event_schema
from alerts.matching.column_access import Picked
from alerts.rulepack.derived_fields import JSON_COLUMNS
from alerts.rulepack.predicate import Node, paths_of, tests_of
from alerts.rulepack.row_predicate import RowTest

MOST, MOST_CHARS = 100_000, 40_000_000
"""Combinations of values that are remembered for all rules, and characters in their values."""

_LONGEST = 2_000
"""Characters of one combination; longer ones, such as scripts, hardly come twice."""

Rules: TypeAlias = tuple[int, ...]
"""Numbers of rules, in order."""

Failures: TypeAlias = dict[int, tuple[int, str]]
"""By rule that threw: at which place, and what."""


@dataclass
class ReadyRule:
    """A rule's tree with what it takes to ask it; `broken` says why it cannot be built."""

    node: Node
    test: RowTest | None = None
    broken: str = ""


@dataclass
class _Together:
    """Rules that are worth a try on the same event: by which columns texts alone decide some."""

    by_text: Rules
    others: Rules
    slots: tuple[int, ...]
    known: dict[tuple[str | None, ...], Rules] = field(default_factory=dict)


class Confirmation:
    """The rules of a pack, asked of rows. What is remembered begins anew when it is full.

    `slots` are the numbers of the paths in what is picked of a batch; `seconds` is the time each
    rule has taken so far.
    """

    def __init__(self, rules: Sequence[ReadyRule], slots: Mapping[str, int]) -> None:
        self.most, self.most_chars = MOST, MOST_CHARS
        self.count = self.chars = 0
        self.wanted = self.known = 0
        """Rows that were tried, and those of which the answer was known."""
        self.seconds = [0.0] * len(rules)
        self._rules = rules
        decided = (_decided_by(ready) for ready in rules)
        self._slots = [{slots[path] for path in paths} for paths in decided]
        self._together: dict[Rules, _Together] = {}

    def confirm(
        self, picked: Picked, wanted: Sequence[Rules]
    ) -> tuple[list[tuple[int, int]], Failures]:
        """Hits as (place, rule), in order, and the rules that threw.

        `wanted` says of each place which rules to ask. A rule that throws is asked no more.
        """
        hits: list[tuple[int, int]] = []
        failures: Failures = {}
        self.wanted += len(wanted)
        for place, rules in enumerate(wanted):
            together = self._together.get(rules) or self._new(rules)
            texts = tuple([picked[slot][place] for slot in together.slots])
            held = together.known.get(texts)
            if held is None:
                held = self._asked(together.by_text, picked, place, failures)
                # Of a rule that threw nothing is known.
                if not failures or failures.keys().isdisjoint(rules):
                    self._remember(together, texts, held)
            else:
                self.known += 1
            if together.others:
                more = self._asked(together.others, picked, place, failures)
                held = tuple(sorted(held + more))
            for rule in held:
                hits.append((place, rule))
        if failures:
            # Whether an answer was remembered must not decide what a batch gives.
            hits = [hit for hit in hits if hit[1] not in failures or hit[0] < failures[hit[1]][0]]
        return hits, failures

    def _asked(self, rules: Rules, picked: Picked, place: int, failures: Failures) -> Rules:
        held: list[int] = []
        for rule in rules:
            if rule in failures:
                continue
            ready, began = self._rules[rule], perf_counter()
            try:
                # A rule that cannot be built fails at its first row, like one that throws.
                if ready.test is None:
                    raise ValueError(ready.broken)
                if ready.test(picked, place):
                    held.append(rule)
            except Exception as error:  # whatever one rule throws must not stop the others
                # At the row where it threw: the finding then has an event to point to, the same on
                # a retry.
                failures[rule] = (place, f"{type(error).__name__}: {error}")
            self.seconds[rule] += perf_counter() - began
        return tuple(held)

    def _new(self, rules: Rules) -> _Together:
        self._make_room(0)
        slots = [self._slots[rule] for rule in rules]
        together = self._together[rules] = _Together(
            tuple(rule for rule, of in zip(rules, slots, strict=True) if of),
            tuple(rule for rule, of in zip(rules, slots, strict=True) if not of),
            tuple(sorted(set().union(*(of for of in slots if of)))),
        )
        self.count += 1
        return together

    def _remember(self, together: _Together, texts: tuple[str | None, ...], held: Rules) -> None:
        chars = sum(len(text) for text in texts if text)
        if chars > _LONGEST:
            return
        self._make_room(chars)
        # Where all was forgotten just now, this is as well, and is asked again.
        together.known[texts] = held
        self.count += 1
        self.chars += chars

    def _make_room(self, chars: int) -> None:
        if self.count >= self.most or self.chars + chars > self.most_chars:
            self._together.clear()
            self.count = self.chars = 0


def _decided_by(ready: ReadyRule) -> set[str]:
    """The columns a rule reads, if all are plain text and nothing else decides it."""
    if ready.test is None or any(test.op == "listed" for test in tests_of(ready.node)):
        return set()
    paths = paths_of(ready.node)
    return paths if all(map(_is_text, paths)) else set()


def _is_text(path: str) -> bool:
    """Whether silver.event has one text a row at a path, and no whole document."""
    if path in JSON_COLUMNS:
        return False
    kind = pa.struct(list(event_schema()))
    for step in path.split("."):
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            return False
        kind = kind.field(step).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
