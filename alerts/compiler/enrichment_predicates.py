"""What a rule asks of whom an event is about: the holder of its address, the asset, the person.

The event does not have it, so a rule's condition is split: what the event can tell is matched at
once, the rest is confirmed in job `alert`, when it is known whose address it was. A finding that
is not confirmed stays in gold.finding and counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from alerts.compiler.sigma_to_predicate import Untranslatable, all_of
from alerts.domain.batch_files import batch_file
from alerts.domain.entity import holder_of, micros
from alerts.domain.finding import CONFIRMED
from alerts.rulepack.event_paths import is_enriched
from alerts.rulepack.predicate import All, Node, holds, tests_of
from alerts.rulepack.rule_pack import Query, Rule, RulePack
from enrich.assets.index import AssetIndex, index_of
from enrich.assets.index_store import index_path, newest_index
from infra.config.settings import Settings
from infra.errors import Fatal

_Row = dict[str, Any]
_Packs = Callable[[str], RulePack]
Confirms = Mapping[str, Node]
"""What rules want confirmed, by rule id; rules that want nothing are not in it."""


def split_predicate(node: Node) -> tuple[Node, Node | None]:
    """What the event can tell of a condition, and what is to be confirmed (None: nothing).

    Raises `Untranslatable` where both are not joined by `and` at the top.
    """
    raw: list[Node] = []
    enriched: list[Node] = []
    for part in _conjuncts(node):
        asks = {is_enriched(test.field) for test in tests_of(part)}
        # An `or` over both could be true by what is not known yet: it can be split only at an
        # `and`.
        if len(asks) > 1:
            names = sorted(t.field for t in tests_of(part) if is_enriched(t.field))
            raise Untranslatable(
                f"{names[0]} beside fields of the event under `or`, `not` or one selection's list",
                "give it a selection of its own, and say `... and that_selection` in the condition",
            )
        (enriched if True in asks else raw).append(part)
    if not enriched:
        return node, None
    # Such a rule would make a finding of every event, to be confirmed one by one.
    if not raw:
        raise Untranslatable(
            "it asks nothing of the event itself", "add a selection over the event's fields"
        )
    return all_of(raw), all_of(enriched)


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, All):
        for part in node.of:
            yield from _conjuncts(part)
    else:
        yield node


def confirms_of(pack: RulePack) -> Confirms:
    """What the rules of a pack want confirmed."""
    every: tuple[Rule | Query, ...] = (*pack.rules, *pack.queries)
    return {rule.id: rule.confirm for rule in every if rule.confirm is not msgspec.UNSET}


def who(row: Mapping[str, Any], index: AssetIndex | None) -> _Row:
    """Whom an attributed finding is about, as `holder`, `asset` and `person`.

    As they were when it happened; null where nothing is known, or no inventory was loaded.
    """
    holder = holder_of(row)
    lines: _Row = {"holder": None if holder is None else msgspec.to_builtins(holder)}
    if index is None:
        return lines | {"asset": None, "person": None}
    event_us = micros(row["event_time"])
    leased = holder is not None and holder.status == "leased"
    asset = index.asset(
        event_us,
        mac=holder.mac if holder is not None and leased else None,
        hostname=holder.hostname if holder is not None and leased else None,
        ip=row.get("ip"),
        scope=row.get("scope"),
        leased=leased,
    )
    # Without a proven holder the host that the log names itself is the next best.
    if asset is None and row.get("host_name"):
        asset = index.asset(event_us, hostname=row["host_name"])
    return lines | {"asset": asset, "person": index.user(event_us, row.get("user_name"))}


class Confirming:
    """Says of findings whether their rules' packs confirm them. Pickles."""

    def __init__(self, packs: _Packs) -> None:
        self._packs = packs
        self._known: dict[str, Confirms] = {}

    def asked(self, row: Mapping[str, Any]) -> Node | None:
        """What a finding's rule wants confirmed; None: nothing, or its pack is lost."""
        pack = row["pack"]
        if pack not in self._known:
            try:
                self._known[pack] = confirms_of(self._packs(pack))
            except Fatal:
                # A lost pack cannot say what it wanted; its findings count, as nothing is lost
                # then.
                self._known[pack] = {}
        return self._known[pack].get(row["rule_id"])

    def holds(self, row: Mapping[str, Any], index: AssetIndex | None) -> bool:
        """Whether a finding counts: its rule wants nothing confirmed, or it is."""
        asked = self.asked(row)
        return asked is None or holds(asked, who(row, index))

    def counting(self, rows: Iterable[_Row], index: Callable[[], AssetIndex | None]) -> list[_Row]:
        """Rows of the alert state, of findings with whether they are `CONFIRMED`.

        One that is not stays among them: it is kept whose address it was, and an earlier
        attribution may have been confirmed. `index` is asked when a row needs it.
        """
        kept = []
        for row in rows:
            free = row["row_kind"] != "finding" or self.asked(row) is None
            # `index` is a function, as most batches hold no such finding and need not open it.
            kept.append(row if free else row | {CONFIRMED: self.holds(row, index())})
        return kept


INVENTORIES = "inventories"
"""Decision of a batch of job `alert`: the versions of the inventories that it reads."""


def decided_index(settings: Settings) -> AssetIndex | None:
    """The inventories that the driver decided on for the micro-batch that this task belongs to."""
    file = batch_file(settings.checkpoint_root)
    if file is None:
        return None
    name = json.loads(file.read_text("utf-8")).get(INVENTORIES)
    return None if name is None else index_of(str(index_path(settings, name)))


def inventories(settings: Settings) -> AssetIndex | None:
    """The inventories as they are now, for rules over history: they know what was true when."""
    file = newest_index(settings)
    return None if file is None else index_of(file)
