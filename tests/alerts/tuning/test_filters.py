"""Proposed filters: what they may never do, and that a written one does what was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts.compiler.compiler import compile_rules
from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rulepack.rule_pack import Rule, RulePack
from alerts.tuning.filter_file import filter_text, log_source_of
from alerts.tuning.filters import (
    SEVERAL,
    Condition,
    JudgedAlert,
    Proposal,
    hidden_by,
    propose,
)
from tests.alerts.history import LOGIN, login, rules_in
from tests.examples import examples

TEXTS = st.sampled_from(
    ["C:\\Windows\\a.exe", "C:\\Windows\\b.exe", "a*", "a?b", "*", "\\*", "x\\", "a\\\\b", "ann",
     "ANN", "a\x07\x1b[2J", "é\u202e", "\U0001f600", "'\"", "%x%", "null", "1", "yes", " -", ""]
) | st.text(max_size=6)  # fmt: skip
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.9.0.1", "fe80::1", "no address"])
EVENTS = st.builds(
    lambda path, host, ip: {
        "process": {"path": path}, "device": {"hostname": host}, "src_endpoint": {"ip": ip},
    },
    TEXTS, TEXTS, ADDRESSES,
)  # fmt: skip
VERDICTS = st.sampled_from(
    ["true_positive", "suspicious", "false_positive", "benign", "test", None]
)
ALERTS = st.lists(st.tuples(VERDICTS, st.lists(EVENTS, max_size=3)), max_size=8).map(
    lambda drawn: [
        JudgedAlert(f"a{n}", verdict, tuple(events)) for n, (verdict, events) in enumerate(drawn)
    ]
)


def event(**more: Any) -> dict[str, Any]:
    return {"user": {"name": "svc"}, "process": {"path": "/usr/bin/backup"}, **more}


def judged(*alerts: tuple[str | None, Mapping[str, Any]]) -> list[JudgedAlert]:
    return [JudgedAlert(f"a{n}", verdict, (e,)) for n, (verdict, e) in enumerate(alerts)]


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rule, Path]:
    folder = rules_in(tmp_path_factory.mktemp("rules"))
    (made,) = compile_rules([folder]).pack.rules
    return made, folder


def written(rule: tuple[Rule, Path], conditions: Sequence[Condition], folder: Path) -> Rule:
    """The rule as it is compiled with the filter."""
    source = log_source_of(rule[1] / "logins.yml", LOGIN)
    text = filter_text(
        rule[0], source, conditions, owner="ann", reason="tested", expires=date(2999, 1, 1)
    )
    folder.mkdir(exist_ok=True)
    (folder / "filter.yml").write_text(text, "utf-8")
    compiled = compile_rules([rule[1], folder])
    assert compiled.refused == ()
    return compiled.pack.rules[0]


@examples(100)
@given(alerts=ALERTS)
def test_no_filter_takes_an_event_of_an_alert_that_was_true(alerts: list[JudgedAlert]) -> None:
    proposals = propose(alerts)
    assert proposals == propose(alerts[::-1])
    for proposal in proposals:
        assert proposal.removed > 0
        assert len(proposal.conditions) <= 2
        assert not {"true_positive", "suspicious"} & proposal.hidden.keys()
        for alert in alerts:
            if alert.verdict in ("true_positive", "suspicious"):
                alone = [JudgedAlert("x", "x", (each,)) for each in alert.events]
                assert hidden_by(proposal.conditions, alone) == {}


@examples(40)
@given(alerts=ALERTS)
def test_a_written_filter_hides_in_the_matcher_what_was_counted(
    alerts: list[JudgedAlert], tmp_path_factory: pytest.TempPathFactory, rule: tuple[Rule, Path]
) -> None:
    folder = tmp_path_factory.mktemp("filters")
    for proposal in propose(alerts)[:2]:
        matcher = Matcher(RulePack(rules=(written(rule, proposal.conditions, folder),)))
        hidden: dict[str, list[str]] = {}
        for alert in alerts:
            rows = [login(f"e{n}", n) | dict(e) for n, e in enumerate(alert.events)]
            if rows and not matcher.match(event_batch(rows)).num_rows:
                hidden.setdefault(alert.verdict or "", []).append(alert.alert_id)
        assert {name: tuple(ids) for name, ids in sorted(hidden.items())} == proposal.hidden


def best(alerts: list[JudgedAlert]) -> Proposal:
    return propose(alerts)[0]


def test_the_most_stable_field_and_the_whole_value_come_first() -> None:
    proposal = best(judged(("false_positive", event()), ("benign", event()), (None, event())))
    assert proposal.conditions == (Condition("process.path", "eq", "/usr/bin/backup"),)
    assert proposal.removed == 2
    assert proposal.hidden[""] == ("a2",)


def test_two_conditions_are_proposed_where_each_alone_would_hide_a_true_alert() -> None:
    other_user, other_path = {"name": "mallory"}, {"path": "/bin/sh"}
    proposal = best(
        judged(
            ("false_positive", event()),
            ("true_positive", event(user=other_user)),
            ("true_positive", event(process=other_path)),
        )
    )
    assert [c.field for c in proposal.conditions] == ["process.path", "user.name"]


def test_a_network_or_a_folder_is_proposed_where_several_values_share_it() -> None:
    addresses = [{"src_endpoint": {"ip": f"10.0.0.{n}"}} for n in range(3)]
    proposal = best(judged(*(("false_positive", e) for e in addresses)))
    assert proposal.conditions == (Condition("src_endpoint.ip", "cidr", "10.0.0.0/24"),)
    paths = [{"process": {"path": f"C:\\Tools\\{n}.exe"}} for n in "abc"]
    proposal = best(judged(*(("false_positive", e) for e in paths)))
    assert proposal.conditions == (Condition("process.path", "startswith", "C:\\Tools\\"),)


def seen_on(host: str, **more: Any) -> dict[str, Any]:
    return {"device": {"hostname": host}, **more}


def test_a_host_alone_is_proposed_last_and_only_for_what_nothing_narrower_removes() -> None:
    lookup = {"query": {"hostname": "cdn.example"}}
    false, true = (
        ("false_positive", seen_on("sensor-1", **lookup)),
        (
            "true_positive",
            seen_on("sensor-2", query={"hostname": "evil.example"}),
        ),
    )
    (proposal,) = propose(judged(false, true))
    assert proposal.conditions == (Condition("query.hostname", "eq", "cdn.example"),)
    assert proposal.wide == ""
    # The same name was looked up by somebody else who meant harm: then both together.
    (proposal,) = propose(judged(false, ("true_positive", seen_on("sensor-2", **lookup))))
    assert [c.field for c in proposal.conditions] == ["device.hostname", "query.hostname"]
    # Where the event has nothing else, the host is named, and how wide that is.
    bare = judged(("false_positive", seen_on("sensor-1")), (None, seen_on("sensor-1")))
    (proposal,) = propose(bare)
    assert proposal.conditions == (Condition("device.hostname", "eq", "sensor-1"),)
    assert proposal.wide == (
        "hides whatever the rule finds on this host: 1 of 2 alerts there are judged false or "
        "benign; nothing narrower removes them all"
    )


def test_a_host_on_which_several_alerts_were_false_comes_after_what_tells_as_much() -> None:
    names = [{"query": {"hostname": f"{n}.example"}} for n in range(6)]
    scanner = judged(*(("false_positive", seen_on("scanner", **name)) for name in names))
    first = best(scanner)
    assert first.conditions == (Condition("device.hostname", "eq", "scanner"),)
    assert first.wide.endswith("6 of 6 alerts there are judged false or benign")
    same = judged(*(("benign", seen_on("scanner", **names[0])) for _ in range(6)))
    assert best(same).conditions == (Condition("query.hostname", "eq", "0.example"),)


@examples(60)
@given(alerts=ALERTS)
def test_no_host_alone_stands_before_what_removes_as_much(alerts: list[JudgedAlert]) -> None:
    for place, proposal in enumerate(proposals := propose(alerts)):
        if proposal.wide and proposal.removed < SEVERAL:
            assert all(later.wide for later in proposals[place:])
        if proposal.wide:
            assert all(later.wide or later.removed < proposal.removed or len(later.conditions) == 2
                       for later in proposals[place:])  # fmt: skip


def test_alerts_without_events_are_neither_removed_nor_in_the_way() -> None:
    lost = [JudgedAlert("lost", "false_positive", ()), JudgedAlert("true", "true_positive", ())]
    assert propose(lost) == []
    assert best([*lost, *judged(("false_positive", event()))]).removed == 1


def test_a_filter_whose_day_is_over_is_refused_and_its_rule_runs_without_it(
    tmp_path: Path, rule: tuple[Rule, Path]
) -> None:
    source = log_source_of(rule[1] / "logins.yml", LOGIN)
    conditions = [Condition("user.name", "eq", "root")]
    text = filter_text(
        rule[0], source, conditions, owner="ann", reason="a test", expires=date(2020, 1, 1)
    )
    (tmp_path / "filter.yml").write_text(text, "utf-8")
    compiled = compile_rules([rule[1], tmp_path])
    assert compiled.pack.rules[0].predicate == rule[0].predicate
    (refused,) = compiled.refused
    assert refused.reason == "it ended on 2020-01-01"
    document = yaml.safe_load(text)
    assert (document["author"], document["description"]) == ("ann", "a test")
    # As people type it: without quotes YAML reads a date.
    (tmp_path / "filter.yml").write_text(text.replace("'2020-01-01'\n", "2020-01-01\n"), "utf-8")
    assert compile_rules([rule[1], tmp_path]).refused[0].reason == "it ended on 2020-01-01"
    (tmp_path / "filter.yml").write_text(text.replace("'2020-01-01'\n", "2999-01-01\n"), "utf-8")
    typed = compile_rules([rule[1], tmp_path])
    assert typed.refused == ()
    assert typed.pack.rules[0].predicate != rule[0].predicate
