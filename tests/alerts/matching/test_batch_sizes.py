"""Small batches take ways of their own; what is found is the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from alerts.matching import few_rows, finding_rows, plan_sample
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.few_rows import FEW
from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import All, Either, Node, Not, Test, literals_of
from alerts.rulepack.rule_pack import Rule, RulePack
from bench.recorded_mix import recorded_batches, recorded_pack
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
TEXTS = (None, "", "cmd.exe", "CMD.EXE", "Σίσυφος", "c:\\a\\cmd.exe", "\x00", "x" * 1_500)


def _event(number: int, message: str | None, name: str | None = None) -> dict[str, Any]:
    return {
        "event_uid": f"e{number}",
        "time": NOON,
        "received_at": NOON,
        "source": "s",
        "mode": "live",
        "class_uid": 1,
        "message": message,
        "user": {"name": name},
    }


def _pack(*nodes: Node) -> RulePack:
    return RulePack(
        rules=tuple(
            Rule(id=f"r{number}", title="t", predicate=node, literals=literals_of(node))
            for number, node in enumerate(nodes)
        )
    )


def _pairs(batches: list[pa.RecordBatch]) -> set[tuple[str, str]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {(row["rule_id"], row["event_uid"]) for row in rows}


def test_findings_do_not_depend_on_the_size_of_the_batches() -> None:
    pack = recorded_pack(100)
    large, small = Matcher(pack), Matcher(pack)
    (batch,) = recorded_batches(FEW + 100, FEW + 100)
    parts = [small.match(batch.slice(start, 250)) for start in range(0, batch.num_rows, 250)]
    findings = large.match(batch)
    assert findings.num_rows
    assert pa.Table.from_batches(parts).to_pylist() == findings.to_pylist()


@pytest.mark.full
def test_findings_do_not_depend_on_the_columns_kept_for_few_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack = recorded_pack(100)
    batches = recorded_batches(400, 50)
    wanted = [Matcher(pack).match(batch) for batch in batches]
    monkeypatch.setattr(finding_rows, "_FEW", 3)
    monkeypatch.setattr(finding_rows, "_MOST_BEGUN", 1)
    matcher = Matcher(pack)
    findings = [matcher.match(batch) for batch in batches]
    assert min(batch.num_rows for batch in findings) <= 3 < max(b.num_rows for b in findings)
    for batch in findings:
        batch.validate(full=True)
    assert [batch.to_pylist() for batch in findings] == [batch.to_pylist() for batch in wanted]


BROAD = (
    Not(Test("message", "contains", "cmd")),
    Not(Either((Test("message", "endswith", ".exe"), Test("message", "exists", True)))),
    All((Test("message", "endswith", "cmd.exe"), Not(Test("message", "startswith", "c:\\")))),
    All((Test("message", "contains", "x"), Not(Test("user.name", "eq", "cmd.exe")))),
)


def test_rules_that_are_asked_value_by_value_see_missing_values_in_any_batch() -> None:
    events = [_event(n, TEXTS[n % len(TEXTS)], TEXTS[n % 3]) for n in range(FEW + 9)]
    pack = _pack(*BROAD)
    matcher = Matcher(pack)
    # Twice, as the first batch is planned without knowing what is rare.
    for _ in range(2):
        for size in (len(events), 300):
            batches = [
                event_batch(events[start : start + size]) for start in range(0, len(events), size)
            ]
            assert _pairs([matcher.match(batch) for batch in batches]) == brute_force(pack, events)


@examples(30)
@given(st.lists(st.lists(st.sampled_from(TEXTS), max_size=12), max_size=5))
def test_what_is_remembered_of_earlier_batches_changes_nothing(
    batches: list[list[str | None]],
) -> None:
    pack = _pack(*BROAD, Test("message", "contains", "ίσ"), Test("user.name", "eq", "CMD.exe"))
    matcher = Matcher(pack)
    for texts in batches:
        events = [_event(n, text, texts[-1 - n]) for n, text in enumerate(texts)]
        assert _pairs([matcher.match(event_batch(events))]) == brute_force(pack, events)


MIXED = (
    *BROAD,
    Test("message", "re", "c.d"),
    Test("answers.rdata", "contains", "cmd"),
    Test("user.name", "exists", True),
    Test("status_id", "eq", 1),
    All((Test("message", "contains", "cmd"), Test("status_id", "gte", 1))),
    Test("{user.name or message}", "endswith", "exe"),
)
SOURCES = ((1, "s"), (2, "s"), (1, "t"), (None, "t"))


@pytest.mark.parametrize("most", [0, few_rows._MOST_SETS])
@examples(30)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(SOURCES), st.sampled_from(TEXTS), st.sampled_from((None, 0, 1))
            ),
            max_size=8,
        ),
        max_size=4,
    )
)
def test_small_batches_of_several_log_sources_equal_plain_evaluation(
    most: int, batches: list[list[tuple[tuple[int | None, str], str | None, int | None]]]
) -> None:
    rules = [
        replace(rule, id=f"{rule.id}-{nth}", classes=classes, sources=sources)
        for nth, (classes, sources) in enumerate(
            [((1,), ()), ((2, 3), ("s",)), ((), ("t", "u")), ((), ())]
        )
        for rule in _pack(*MIXED).rules
    ]
    pack = RulePack(rules=tuple(rules))
    with pytest.MonkeyPatch.context() as patched:
        # With room for none, all is forgotten before each batch.
        patched.setattr(few_rows, "_MOST_SETS", most)
        matcher = Matcher(pack)
        for batch in batches:
            events = [
                {
                    **_event(n, text, text),
                    "class_uid": class_uid,
                    "source": source,
                    "status_id": status,
                    "answers": [{"rdata": text}],
                }
                for n, ((class_uid, source), text, status) in enumerate(batch)
            ]
            assert _pairs([matcher.match(event_batch(events))]) == brute_force(pack, events)


def test_small_batches_together_tell_which_text_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_sample, "ENOUGH", 40)
    rare, usual = Test("user.name", "eq", "x"), Test("message", "contains", "in every event")
    matcher = Matcher(pack := _pack(All((usual, rare))))
    tried = []
    for start in range(0, 90, 10):
        events = [
            _event(n, "is in every event", "x" if n % 30 == 0 else "abc")
            for n in range(start, start + 10)
        ]
        # An event that no rule may see tells nothing, and does not hold the others back.
        events.append(_event(99, "of an import", "x") | {"mode": "import"})
        assert _pairs([matcher.match(event_batch(events))]) == brute_force(pack, events)
        tried.append(matcher.costs()["r0"].candidates)
    # Of the two texts the longer one is taken to be rarer until enough was seen.
    assert tried == [10, 20, 30, 31, 31, 31, 32, 32, 32]
