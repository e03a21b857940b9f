"""Which findings of a batch are told as preliminary alerts; pure rules over findings.

A finding that is has `answer_by`: until when job `alert` says what became of it. The mark is made
where the finding is, so what is told and what is answered are the same rows of gold.finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from alerts.domain.entity import entity_of, event_instant, micros
from alerts.domain.finding import finding_schema
from alerts.lifecycle.suppression import Suppression, covering
from alerts.rulepack.rule_pack import Rule, RulePack
from infra.config.settings import Settings

MOST = 50
"""Of so many events as a worker takes at once; the rest is told by its alert alone."""

Overrides = tuple[tuple[str, bool], ...]
"""Rules whose findings are, or are not, told early whatever their level, by id."""


class Selection(msgspec.Struct, frozen=True):
    """What a batch tells early. The driver decides it, so a retry marks the same findings.

    `answer_by`: microseconds since 1970. `levels`: of rules; `rules`: exceptions from that.
    `suppressions`: those in force, as far as they are known before an alert is made. `every`:
    all findings of these rules are marked, as another process tells some of them. `ahead`: findings
    that were told before their batch, which are marked in any case.
    """

    answer_by: int
    levels: tuple[str, ...]
    rules: Overrides = ()
    suppressions: tuple[Suppression, ...] = ()
    every: bool = False
    ahead: tuple[str, ...] = ()


def chosen_now(
    settings: Settings,
    now: float,
    suppressions: Iterable[Suppression] = (),
    *,
    every: bool = False,
    ahead: tuple[str, ...] = (),
) -> Selection:
    """What the settings want told early of what is found at `now`, seconds since 1970."""
    alerts = settings.alerts
    return Selection(
        answer_by=round((now + alerts.preliminary_seconds) * 1_000_000),
        levels=alerts.preliminary_levels,
        rules=tuple(sorted(alerts.preliminary_rules.items())),
        suppressions=tuple(suppressions),
        every=every,
        ahead=ahead,
    )


def selection_of(decided: dict[str, Any] | None) -> Selection | None:
    """What a batch decided, read from its JSON; None: nothing is told early."""
    return None if decided is None else msgspec.convert(decided, Selection)


def marks_all(decision: dict[str, Any] | None, settings: Settings) -> bool:
    """Whether a batch that decided so marks each finding that the settings of now want told."""
    chosen = selection_of(decision)
    wanted = chosen_now(settings, 0.0, every=True)
    return chosen is not None and (chosen.every, chosen.levels, chosen.rules) == (
        wanted.every,
        wanted.levels,
        wanted.rules,
    )


def is_selected(rule: Rule, levels: tuple[str, ...], overrides: Mapping[str, bool]) -> bool:
    """Whether findings of a rule are told early.

    Never those of a rule that makes no alert, runs in shadow, or asks besides of whom it is about:
    whether such a finding counts is known only with its holder.
    """
    if not rule.alerting or rule.in_shadow or rule.confirm is not msgspec.UNSET:
        return False
    return overrides.get(rule.id, rule.level in levels)


def selected_rules(
    pack: RulePack, levels: tuple[str, ...], overrides: Mapping[str, bool]
) -> pa.Array:
    """Ids of the rules of a pack whose findings are told early."""
    ids = [rule.id for rule in pack.rules if is_selected(rule, levels, overrides)]
    return pa.array(ids, pa.string())


def early_findings(findings: pa.RecordBatch, rules: pa.Array, chosen: Selection) -> pa.RecordBatch:
    """The findings of one pass, those that are told early with `answer_by`; `rules`: the selected.

    Of a rule the first one about each address, host or user: the others would be answered as
    merged into it. None that a suppression covers, and `MOST` at most, in order of time.
    """
    wanted = pc.and_(pc.is_in(findings.column("rule_id"), rules), findings.column("alerting"))
    numbers = [n for n, is_wanted in enumerate(wanted.to_pylist()) if is_wanted]
    known = set(chosen.ahead)
    ids = findings.column("finding_id").to_pylist() if known else []
    ahead = {n for n, finding_id in enumerate(ids) if finding_id in known}
    if not numbers and not ahead:
        return findings
    taken = findings.take(pa.array(numbers, pa.int64()))
    rows = dict(zip(numbers, taken.to_pylist(), strict=True))
    answer_by = event_instant(chosen.answer_by)
    first = set(numbers if chosen.every else _first_ones(rows, chosen)) | ahead
    marks = [answer_by if number in first else None for number in range(findings.num_rows)]
    place = findings.schema.get_field_index("answer_by")
    field = finding_schema().field("answer_by")
    return findings.set_column(place, field, pa.array(marks, field.type))


def _first_ones(rows: Mapping[int, Mapping[str, Any]], chosen: Selection) -> list[int]:
    seen = set()
    numbers = []
    # In the order in which job `alert` folds them, which makes an alert of the first.
    for number, row in sorted(rows.items(), key=lambda item: _order(item[1])):
        entity = entity_of(row, None)
        key = (row["rule_id"], entity.key)
        if key in seen or covering(chosen.suppressions, row, entity, None) is not None:
            continue
        seen.add(key)
        numbers.append(number)
    return numbers[:MOST]


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    return micros(row["event_time"]), row["finding_id"]
