"""Events -> findings: route by log source, look for each rule's literals, confirm exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from alerts.domain.finding import SUBJECTS, event_schema, finding_schema
from alerts.matching.column_access import EventColumns, Flags, Numbers, Picked
from alerts.matching.confirmation import Confirmation, ReadyRule, Rules
from alerts.matching.few_rows import FEW, FewRows
from alerts.matching.finding_rows import FindingRows
from alerts.matching.plan_sample import PlanSample
from alerts.matching.prefilter import SAMPLE_ROWS, AtomCounts, PrefilterPlan, count
from alerts.matching.routing import ROUTING, LogSource, Routed, Router
from alerts.rulepack.derived_fields import inputs
from alerts.rulepack.predicate import paths_of
from alerts.rulepack.row_predicate import Remembered, ValueTest, row_test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from ingest.parsing.source import LIVE_MODES

DEAR = 1.0
"""Candidates an event above which it is worth asking again what is rare."""

LONGEST_WAIT = 1_000_000
"""Events after which it is asked again at the latest, if it is dear still."""

_FINDING = (
    *("event_uid", "time", "received_at", "scope", "tenant_uid", "message", "device"),
    *("src_ip", "dst_ip", "user_name", "host_name"),
    *SUBJECTS,
)


class Cost(NamedTuple):
    """What a rule has cost a matcher so far."""

    rows: int
    """Events of its log source."""
    candidates: int
    """Of these, events that were confirmed one by one."""
    hits: int
    seconds: float
    """Time spent confirming."""


class Matcher:
    """All rules of a pack, ready to run over batches of silver.event.

    A rule that throws is set aside for the rest of the batch and named by a
    finding of rule `headgate-rule-failed`; the others run on.
    """

    def __init__(
        self, pack: RulePack, modes: Collection[str] = LIVE_MODES, sample_rows: int = SAMPLE_ROWS
    ) -> None:
        self.pack_hash = pack.hash
        self._router = Router(pack.rules, modes)
        self._paths = sorted({path for rule in pack.rules for path in _paths(rule)})
        slots = {path: slot for slot, path in enumerate(self._paths)}
        remembered = Remembered()
        self._rules = pack.rules
        ready = [_ready(rule, slots, remembered) for rule in pack.rules]
        self._confirmation = Confirmation(ready, slots)
        self._findings = FindingRows(pack.rules, pack.hash)
        self._nodes = [None if rule.test is None else rule.node for rule in ready]
        by_value = (
            (n, node and ValueTest.of(node, remembered)) for n, node in enumerate(self._nodes)
        )
        self._by_value = {number: test for number, test in by_value if test}
        self._sample_rows = sample_rows
        self._census = AtomCounts()
        self._sample = PlanSample(self._paths)
        self._plan: PrefilterPlan | None = None
        self._few: FewRows | None = None
        self._since = [0, 0]
        self._wait = 0
        self._tried = np.zeros(len(self._rules), np.int64)
        self._hits: Counter[int] = Counter()

    def match(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Findings of gold.finding's schema, by row and then by rule id."""
        routed = self._router.route(batch)
        if not len(routed.rows):
            return pa.RecordBatch.from_pylist([], schema=finding_schema())
        columns = EventColumns(batch, routed.rows)
        rows, places, wanted = self._candidates(columns, routed)
        picked = Picked(columns, places, self._paths, rows)
        hits, thrown = self._confirmation.confirm(picked, wanted)
        self._hits.update([rule for _, rule in hits])
        failures = [(place, rule, reason) for rule, (place, reason) in sorted(thrown.items())]
        if not hits and not failures:
            return pa.RecordBatch.from_pylist([], schema=finding_schema())
        # What a finding shows is read of the rows that were hit alone, fewer than were tried.
        hit_places = sorted({*(hit[0] for hit in hits), *(failure[0] for failure in failures)})
        shown = picked.only(hit_places)
        nth = {place: number for number, place in enumerate(hit_places)}
        return self._findings.made(
            shown,
            [(nth[place], rule) for place, rule in hits],
            [(nth[place], rule, reason) for place, rule, reason in failures],
        )

    def costs(self) -> dict[str, Cost]:
        """What each rule has cost since this matcher was made, by rule id."""
        return {
            rule.id: Cost(rows, candidates, hits, seconds)
            for rule, rows, candidates, hits, seconds in zip(
                self._rules,
                self._router.events().tolist(),
                self._tried.tolist(),
                map(self._hits.__getitem__, range(len(self._rules))),
                self._confirmation.seconds,
                strict=True,
            )
        }

    def remembered(self) -> tuple[int, int]:
        """Events that were confirmed so far, and of these those of which the answer was known."""
        return self._confirmation.wanted, self._confirmation.known

    def _candidates(
        self, columns: EventColumns, routed: Routed
    ) -> tuple[Numbers | None, Sequence[int], list[Rules]]:
        """Rows worth confirming, in order, where they stand among the routed ones, and the rules
        for which each is; the rows are None where none is looked for by its number."""
        plan = self._planned(columns, routed)
        rows: Numbers | None = None
        if len(routed.rows) <= FEW:
            places, of_rows = self._few_rows(plan).worth(columns, *_groups(routed))
            every = list(chain.from_iterable(of_rows))
            rules = np.fromiter(every, np.int64, len(every))
        else:
            rules, by_row = plan.pairs(columns, routed.rows, routed.wanted)
            allowed = routed.rules[routed.groups[by_row], rules]
            rows, of_rows = _by_row(rules[allowed], by_row[allowed])
            places, rules = columns.places_of(rows), rules[allowed]
        self._since[0] += len(routed.rows)
        # A rule without a gate has every row; no other plan would change that.
        self._since[1] += int(np.count_nonzero(plan.gates[rules]))
        self._tried += np.bincount(rules, minlength=len(self._rules))
        return rows, places, of_rows

    def _few_rows(self, plan: PrefilterPlan) -> FewRows:
        """What small batches remember, as long as the plan is in force."""
        if self._few is None:
            self._few = FewRows(plan, self._router.rules_for)
        return self._few

    def _planned(self, columns: EventColumns, routed: Routed) -> PrefilterPlan:
        """The plan in force; a new one when a batch can tell what is rare, and the old one is
        blind or dear. It waits four times as long each time, so planning stays cheap."""
        rows, candidates = self._since
        enough = len(routed.rows) >= self._sample_rows
        dear = not self._census.rows or candidates > DEAR * rows
        if enough and rows >= self._wait and dear:
            # Of the wait and not of what was seen: batches of some hundred rows see little.
            self._wait = min(4 * max(self._wait, len(routed.rows)), LONGEST_WAIT)
            self._plan_anew(columns, routed.wanted)
        elif len(routed.rows) <= FEW and not self._sample.done:
            self._sample.add(columns, routed.wanted)
            if taken := self._sample.taken():
                self._plan_anew(*taken)
        if self._plan is None:
            self._plan = PrefilterPlan.of(self._nodes, self._census, self._by_value)
        return self._plan

    def _plan_anew(self, columns: EventColumns, wanted: Flags) -> None:
        nodes = (self._nodes[n] for n in np.flatnonzero(wanted).tolist())
        count(nodes, columns, len(columns.rows), self._census)
        self._plan, self._few, self._since = None, None, [0, 0]


def _groups(routed: Routed) -> tuple[list[LogSource], list[int] | None]:
    """The groups that rules look at, in an order of their own, and of which each row is."""
    if len(routed.pairs) == 1:
        return routed.pairs, None
    numbers = routed.groups[routed.rows].tolist()
    there = sorted(set(numbers), key=lambda number: str(routed.pairs[number]))
    place = {number: nth for nth, number in enumerate(there)}
    return [routed.pairs[number] for number in there], [place[number] for number in numbers]


def _by_row(rules: Numbers, rows: Numbers) -> tuple[Numbers, list[Rules]]:
    """Pairs of a rule and a row as the rows, in order, and the rules of each, in order."""
    order = np.lexsort((rules, rows))
    different, starts = np.unique(rows[order], return_index=True)
    listed, bounds = rules[order].tolist(), [*starts.tolist(), len(rows)]
    return different, [tuple(listed[start:end]) for start, end in pairwise(bounds)]


def _paths(rule: Rule) -> set[str]:
    """The columns a rule reads; none when it names a field that is misspelt, see `_ready`."""
    try:
        return paths_of(rule.predicate)
    except ValueError:
        # The rule is told as broken when it is run; the columns of the others are still needed.
        return set()


def _ready(rule: Rule, slots: Mapping[str, int], remembered: Remembered) -> ReadyRule:
    try:
        return ReadyRule(rule.predicate, row_test(rule.predicate, slots, remembered))
    except (ValueError, KeyError) as error:
        # Kept as broken and not refused: one rule must not keep a whole pack from running.
        return ReadyRule(rule.predicate, None, str(error))


def columns_read(pack: RulePack) -> list[str]:
    """Columns of silver.event that the rules of a pack and their findings need, for a `select`
    before `mapInArrow`: what is not read needs not be carried to the workers."""
    # Top-level columns: Spark's column pruning does the rest inside Parquet.
    needed = {leaf.partition(".")[0] for leaf in leaves_read(pack)}
    return [name for name in event_schema().names if name in needed]


def leaves_read(pack: RulePack) -> list[str]:
    """The same, of structs the leaves alone; of what lies in a list, the list."""
    needed = {*ROUTING, *_FINDING}
    for rule in pack.rules:
        needed.update(f"{role}.ip" for role in rule.roles)
        paths = {*_paths(rule), *rule.carry}
        needed.update(_leaf(path) for read in paths for path in inputs(read))
    return sorted(needed)


def _leaf(path: str) -> str:
    """The path as far as it leads through structs."""
    name, *steps = path.split(".")
    index = event_schema().get_field_index(name)
    kind = event_schema().field(index).type if index >= 0 else pa.null()
    for position, step in enumerate(steps):
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            return ".".join([name, *steps[:position]])
        kind = kind.field(step).type
    return path


# More than one: a batch that is tried again runs the pack that it began with, while the next ones
# have a newer pack already.
@lru_cache(maxsize=4)
def matcher_of(store_folder: str, pack_hash: str, modes: tuple[str, ...] = LIVE_MODES) -> Matcher:
    """The matcher of a stored pack; workers live on and make it once."""
    return Matcher(PackStore(Path(store_folder)).get(pack_hash), modes)
