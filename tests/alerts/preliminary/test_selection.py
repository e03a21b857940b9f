"""Which findings are told early: pure rules, and that they change nothing of what is found."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.domain.entity import entity_of, micros
from alerts.domain.finding import event_schema, finding_schema
from alerts.lifecycle.suppression import Suppression
from alerts.matching.detection import detection
from alerts.preliminary.selection import (
    MOST,
    Selection,
    chosen_now,
    early_findings,
    is_selected,
    marks_all,
    selected_rules,
    selection_of,
)
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from infra.config.settings import load
from tests.alerts.lifecycle.test_alert_fold import NOON, RULE, finding
from tests.examples import examples

LEVELS = ("high", "critical")
BY = NOON + timedelta(minutes=2)
CHOSEN = Selection(micros(BY), LEVELS)


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows of gold.finding as detection gives them."""
    names = set(finding_schema().names) - {"holder"}
    cut = [{name: value for name, value in row.items() if name in names} for row in rows]
    return pa.RecordBatch.from_pylist(cut, schema=finding_schema())


def told(*rows: dict[str, Any], chosen: Selection = CHOSEN, rules: tuple[str, ...] = ("r",)) -> Any:
    """The findings' event uids that are told early, in their order."""
    result = early_findings(batch(*rows), pa.array(rules, pa.string()), chosen).to_pylist()
    assert {row["answer_by"] for row in result} <= {None, BY}
    return [row["event_uid"] for row in result if row["answer_by"] is not None]


@pytest.mark.parametrize(
    ("changed", "overrides", "selected"),
    [
        ({}, {}, True),
        ({"level": "critical"}, {}, True),
        ({"level": "medium"}, {}, False),
        ({"level": "medium"}, {"r": True}, True),
        ({}, {"r": False}, False),
        ({"alerting": False}, {"r": True}, False),
        ({"shadow": True}, {"r": True}, False),
        ({"confirm": Test("device.owner", "eq", "ann")}, {"r": True}, False),
    ],
)
def test_a_rule_is_told_early_by_its_level_or_by_name_and_never_what_only_its_holder_decides(
    changed: dict[str, Any], overrides: dict[str, bool], selected: bool
) -> None:
    rule = msgspec.structs.replace(RULE, **changed)
    assert is_selected(rule, LEVELS, overrides) is selected
    assert selected_rules(RulePack(rules=(rule,)), LEVELS, overrides).to_pylist() == (
        ["r"] if selected else []
    )


def test_a_finding_that_was_told_before_its_batch_is_marked_whatever_else_is_chosen() -> None:
    rows = [finding(1), finding(2), finding(3, rule_id="q"), finding(4, ip="10.0.0.6")]
    ahead = tuple(rows[number]["finding_id"] for number in (1, 2))
    assert told(*rows, chosen=msgspec.structs.replace(CHOSEN, ahead=ahead)) == [
        "e1",
        "e2",
        "e3",
        "e4",
    ]
    assert told(*rows, chosen=Selection(micros(BY), (), ahead=ahead), rules=()) == ["e2", "e3"]


def test_a_batch_marks_all_only_where_it_chose_all_by_the_settings_of_now(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    every = msgspec.to_builtins(chosen_now(settings, 0.0, every=True, ahead=("f",)))
    assert marks_all(every, settings)
    assert not marks_all(None, settings)
    assert not marks_all(msgspec.to_builtins(chosen_now(settings, 0.0)), settings)
    for alerts in ({"preliminary_levels": ["critical"]}, {"preliminary_rules": {"r": True}}):
        assert not marks_all(every, load(home=tmp_path, alerts=alerts))


def test_of_a_rule_the_first_finding_about_each_entity_is_told() -> None:
    rows = [finding(2), finding(1), finding(3, ip="10.0.0.6"), finding(4, scope="other")]
    assert told(*rows) == ["e1", "e3", "e4"]
    assert told(finding(1), finding(2, rule_id="q"), rules=("r", "q")) == ["e1", "e2"]
    assert told(finding(1), rules=()) == []
    assert told(finding(1, alerting=False)) == []
    assert told() == []


def test_what_a_suppression_covers_is_not_told() -> None:
    later = micros(NOON + timedelta(days=1))
    chosen = msgspec.structs.replace(
        CHOSEN, suppressions=(Suppression("s", later, entity="10.0.0.0/24"),)
    )
    assert told(finding(1), finding(2, ip="10.0.1.5"), chosen=chosen) == ["e2"]


def test_a_storm_is_told_in_part() -> None:
    rows = [finding(n, ip=f"10.0.{n // 250}.{n % 250}") for n in range(3 * MOST)]
    assert told(*reversed(rows)) == [f"e{n}" for n in reversed(range(MOST))]


def test_a_selection_comes_back_from_the_decisions_of_a_batch_as_it_was() -> None:
    chosen = Selection(5, LEVELS, (("r", False),), (Suppression("s", 7, fields={"a": "b*"}),))
    plain = json.loads(json.dumps(msgspec.to_builtins(chosen)))
    assert selection_of(plain) == chosen
    assert selection_of(None) is None


_IPS = st.sampled_from(["10.0.0.5", "10.0.0.6", None])
_LINES = st.lists(
    st.tuples(st.sampled_from(["bad one", "bad two", "good"]), _IPS, st.integers(0, 30)),
    max_size=30,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a pack of three rules, and the pack's hash."""
    folder = tmp_path_factory.mktemp("packs")
    rules = (
        rule("high", "high", "bad"),
        rule("medium", "medium", "two"),
        rule("off", "critical", "one"),
    )
    return folder, PackStore(folder).put(RulePack(rules=rules))


def rule(name: str, level: str, word: str) -> Rule:
    predicate = Test("message", "contains", word)
    return Rule(id=name, title=name, level=level, alerting=True, predicate=predicate)


@given(lines=_LINES)
@examples(60)
def test_what_is_told_early_is_of_the_findings_that_the_alert_is_made_of(
    store: tuple[Path, str], lines: list[tuple[str, str | None, int]]
) -> None:
    folder, pack = store
    rows = [
        {
            "event_uid": f"u{number}",
            "message": text,
            "src_ip": ip,
            "src_endpoint": {"ip": ip},
            "time": NOON + timedelta(seconds=second),
            "received_at": NOON,
            "source": "sshd",
            "mode": "live",
            "class_uid": 3002,
            "record_ids": [],
        }
        for number, (text, ip, second) in enumerate(lines)
    ]
    events = pa.RecordBatch.from_pylist(rows, schema=event_schema())
    chosen = Selection(micros(BY), LEVELS, (("off", False),))
    spool = str(folder / "spool")
    plain, _ = detection(str(folder), pack, spool)(events)
    early, _ = detection(str(folder), pack, spool, chosen)(events)
    without = early.to_pylist()
    marks = [row.pop("answer_by") for row in without]
    assert without == [
        {name: value for name, value in row.items() if name != "answer_by"}
        for row in plain.to_pylist()
    ]
    told_rows = [row for row, mark in zip(without, marks, strict=True) if mark is not None]
    # Of each entity that rule `high` saw, one: the first in time.
    expected = Counter(entity_of(row, None).key for row in without if row["rule_id"] == "high")
    assert Counter(entity_of(row, None).key for row in told_rows) == Counter(expected.keys())
    assert {row["rule_id"] for row in told_rows} <= {"high"}
