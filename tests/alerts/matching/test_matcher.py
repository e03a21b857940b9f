"""The matcher equals plain evaluation, whatever the rules and the events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtest.history_match import matchers
from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.domain.finding import RULE_FAILED, finding_schema, identity, single_line
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher, columns_read
from alerts.rulebook.rule_tests import complete
from alerts.rulepack.predicate import (
    ANY_ONE,
    ANY_RUN,
    All,
    Either,
    Node,
    Not,
    Test,
    holds,
    literals_of,
)
from alerts.rulepack.row_predicate import Remembered, row_test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from bench.recorded_mix import recorded_batches, recorded_pack
from infra.errors import Fatal
from ingest.parsing.source import LIVE_MODES
from ingest.tables import EVENT
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
PIECES = ("", "a", "A", "ab", "Σ", "σς", "İ", "ß", "\x00", "\n", ".*", "é", "x y", "10.0.0.1")
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
FIELDS = ("message", "user.name", "src_endpoint.ip", "answers.rdata", "status_id", "is_mfa")


def _tests() -> st.SearchStrategy[Node]:
    field = st.sampled_from(FIELDS)
    cased = st.booleans()
    text = st.builds(
        Test, field, st.sampled_from(["eq", "contains", "startswith", "endswith"]), TEXT, cased
    )
    parts = st.lists(
        st.one_of(st.just((ANY_RUN, "")), st.just((ANY_ONE, "")), TEXT.map(lambda t: ("text", t))),
        max_size=4,
    )
    like = st.builds(lambda f, c, p: Test(f, "like", None, c, tuple(p)), field, cased, parts)
    other = st.one_of(
        st.builds(Test, field, st.sampled_from(["number", "gt", "lte", "ne"]), st.integers(0, 2)),
        st.builds(Test, field, st.just("exists"), st.booleans()),
        st.builds(Test, field, st.just("bool"), st.booleans()),
        st.builds(Test, field, st.just("re"), st.sampled_from(["a+$", "(?i)B", "^x", "."])),
        st.builds(Test, field, st.just("cidr"), st.sampled_from(["10.0.0.0/8", "fd00::/8"])),
        st.builds(Test, field, st.sampled_from(["ref", "ref_contains"]), field, cased),
    )
    return st.one_of(text, like, other)


def _tree(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    many = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(many.map(All), many.map(Either), children.map(Not))


NODES = st.recursive(_tests(), _tree, max_leaves=6)
CLASSES = st.sampled_from([(), (1,), (1, 2)])
SOURCES = st.sampled_from([(), ("s",)])


@st.composite
def packs(draw: st.DrawFn) -> RulePack:
    rules = []
    for number in range(draw(st.integers(0, 4))):
        node = draw(NODES)
        rule = Rule(
            id=f"r{number}",
            title="t",
            predicate=node,
            literals=literals_of(node),
            classes=draw(CLASSES),
            sources=draw(SOURCES),
        )
        rules.append(rule)
    return RulePack(rules=tuple(rules))


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(0, 6))):
        event: dict[str, Any] = {
            "event_uid": f"e{number}",
            "time": NOON,
            "received_at": NOON,
            "source": draw(st.sampled_from(["s", "t", "_heartbeat"])),
            "mode": draw(st.sampled_from(["live", "replay", "import"])),
            "class_uid": draw(st.sampled_from([1, 2, None])),
            "dead_letter_reason": draw(st.sampled_from([None, None, None, "bad"])),
            "duplicate_of": draw(st.sampled_from([None, None, None, "e0"])),
            "message": draw(st.none() | TEXT),
            "user": draw(st.none() | st.fixed_dictionaries({"name": st.none() | TEXT})),
            "src_endpoint": draw(st.none() | st.fixed_dictionaries({"ip": st.none() | TEXT})),
            "answers": draw(
                st.none() | st.lists(st.fixed_dictionaries({"rdata": st.none() | TEXT}), max_size=3)
            ),
            "status_id": draw(st.none() | st.integers(0, 2)),
            "is_mfa": draw(st.none() | st.booleans()),
        }
        made.append(event)
    return made


@examples(150)
@given(packs(), events())
def test_the_matcher_equals_plain_evaluation(pack: RulePack, rows: list[dict[str, Any]]) -> None:
    found = Matcher(pack).match(event_batch(rows)).to_pylist()
    pairs = [(row["rule_id"], row["event_uid"]) for row in found]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == brute_force(pack, rows)


BUNDLED_RULES = compile_rules([BUNDLED])


def bundled_events() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for source in BUNDLED_RULES.sources.values():
        if not isinstance(source.rule, Rule):
            continue
        for test in (*source.match, *source.no_match):
            event = complete(test, source.rule.classes, source.rule.sources)
            rows.append(event | {"event_uid": f"e{len(rows)}"})
    return rows


@examples(12)
@given(st.data())
def test_bundled_rules_equal_plain_evaluation_on_mutated_events(data: st.DataObject) -> None:
    rows = bundled_events()
    for row in rows:
        name = data.draw(
            st.sampled_from(["status_id", "class_uid", "src_endpoint", "api", "query"])
        )
        other = data.draw(st.sampled_from(rows))
        row[name] = other.get(name)
    found = Matcher(BUNDLED_RULES.pack).match(event_batch(rows)).to_pylist()
    assert {(r["rule_id"], r["event_uid"]) for r in found} == brute_force(BUNDLED_RULES.pack, rows)


def one_rule(node: Node, **keys: Any) -> RulePack:
    rule = Rule(id="r", title="Rule", level="high", predicate=node, literals=literals_of(node))
    return RulePack(rules=(msgspec.structs.replace(rule, **keys),))


def event(**columns: Any) -> dict[str, Any]:
    return {
        "event_uid": "e1",
        "source": "s",
        "mode": "live",
        "time": NOON,
        "received_at": NOON,
        "class_uid": 1,
    } | columns


def test_a_finding_names_rule_event_endpoint_and_what_matched() -> None:
    pack = one_rule(
        All((Test("user.name", "eq", "bob"), Not(Test("message", "contains", "ok")))),
        alerting=True,
        feeds=("c",),
        carry=("dst_endpoint.ip",),
        version="v",
    )
    row = event(
        message="line one\nline \x1b[31mtwo",
        user={"name": "Bob"},
        user_name="Bob",
        host_name="h",
        scope="site",
        src_endpoint={"ip": "10.0.0.5"},
        dst_endpoint={"ip": "10.0.0.9"},
        dst_ip="10.0.0.9",
    )
    (found,) = Matcher(pack).match(event_batch([row])).to_pylist()
    assert found["finding_id"] == identity("r", "e1")
    assert (found["role"], found["ip"], found["scope"]) == ("src_endpoint", "10.0.0.5", "site")
    assert dict(found["fields"]) == {"user.name": "Bob", "dst_endpoint.ip": "10.0.0.9"}
    assert found["snippet"] == "line one\\nline \\x1b[31mtwo"
    assert found["pack"] == pack.hash
    assert found["feeds"] == ["c"]
    assert found["alerting"]
    assert found["kind"] == "event"
    assert found["event_time"] == NOON
    assert found["user_name"] == "Bob"
    assert found["dst_ip"] == "10.0.0.9"


def test_the_role_falls_back_to_the_next_endpoint_with_an_address() -> None:
    pack = one_rule(Test("message", "eq", "x"))
    rows = [
        event(event_uid="a", message="x", device={"ip": "10.0.0.7"}),
        event(event_uid="b", message="x", src_endpoint={"hostname": "h"}),
    ]
    found = Matcher(pack).match(event_batch(rows)).to_pylist()
    assert [(f["role"], f["ip"]) for f in found] == [("device", "10.0.0.7"), ("src_endpoint", None)]


def test_imports_raise_findings_only_when_asked() -> None:
    pack = one_rule(Test("message", "eq", "x"))
    batch = event_batch([event(message="x", mode="import")])
    assert Matcher(pack).match(batch).num_rows == 0
    assert Matcher(pack, modes=("import",)).match(batch).num_rows == 1


@pytest.mark.parametrize(
    "broken",
    [
        Test("message", "re", "(a"),
        Test("message", "nonsense", "a"),
        Test("message", "gt", "a"),
        Test("message", "cidr", "a"),
        Test("unmapped:", "eq", "a"),
    ],
    ids=lambda t: f"{t.field} {t.op}",
)
def test_a_rule_that_throws_is_named_by_a_finding_and_the_others_run_on(broken: Test) -> None:
    bad = Rule(id="bad", title="Bad", predicate=broken)
    good = Rule(id="good", title="Good", predicate=Test("message", "eq", "a"))
    rows = [event(event_uid=f"e{n}", message="a") for n in range(3)]
    matcher = Matcher(RulePack(rules=(bad, good)))
    found = matcher.match(event_batch(rows)).to_pylist()
    assert [f["rule_id"] for f in found] == ["good"] * 3 + [RULE_FAILED]
    failure = found[-1]
    assert "Bad" in failure["rule_title"]
    assert dict(failure["fields"])["rule_id"] == "bad"
    assert failure["alerting"]
    assert failure["ip"] is None
    assert matcher.match(event_batch(rows)).to_pylist() == found


def test_a_worker_loads_the_pack_by_its_hash(tmp_path: Path) -> None:
    name = PackStore(tmp_path).put(one_rule(Test("message", "eq", "x")))
    batches = [event_batch([event(message="x")]), event_batch([]), event_batch([event()])]
    found = list(matchers(str(tmp_path), [name], LIVE_MODES)(iter(batches)))
    assert [b.num_rows for b in found] == [1, 0, 0]
    assert all(b.schema == finding_schema() for b in found)


def test_a_batch_without_the_routing_columns_is_refused() -> None:
    batch = pa.RecordBatch.from_pylist([{"event_uid": "e"}])
    with pytest.raises(Fatal, match="dead_letter_reason"):
        Matcher(one_rule(Test("message", "eq", "x"))).match(batch)


def test_columns_that_no_rule_names_are_not_needed() -> None:
    names = ["event_uid", "time", "received_at", "class_uid", "source", "mode"]
    names += ["dead_letter_reason", "duplicate_of", "message"]
    batch = event_batch([event(message="x")]).select(names)
    assert Matcher(one_rule(Test("message", "eq", "x"))).match(batch).num_rows == 1


def test_the_columns_a_pack_reads_give_the_same_findings_as_all_columns() -> None:
    pack = BUNDLED_RULES.pack
    batch = event_batch(bundled_events())
    needed = columns_read(pack)
    assert set(needed) < set(batch.schema.names)
    found = Matcher(pack).match(batch)
    assert found.num_rows
    assert Matcher(pack).match(batch.select(needed)).equals(found)


def test_an_unknown_name_in_an_event_is_refused() -> None:
    with pytest.raises(Fatal, match=r"src_endpoint\.ipp"):
        event_batch([event(src_endpoint={"ipp": "x"})])
    assert "message" in {c.name for c in EVENT.columns}


@given(st.text())
def test_a_snippet_is_one_printable_line(text: str) -> None:
    line = single_line(text)
    assert len(line) <= 300
    assert line.isprintable() or not line


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_identities_of_different_parts_differ(one: list[str], other: list[str]) -> None:
    assert (identity(*one) == identity(*other)) is (one == other)


def test_recorded_events_give_the_same_pairs_as_plain_evaluation() -> None:
    pack = recorded_pack(60)
    matcher = Matcher(pack)
    for batch in recorded_batches(400, 100):
        pairs = {(f["rule_id"], f["event_uid"]) for f in matcher.match(batch).to_pylist()}
        assert pairs == brute_force(pack, batch.to_pylist())


def test_what_is_remembered_of_values_stays_bounded_and_right() -> None:
    node = All((Test("message", "contains", "a"), Not(Test("message", "endswith", "b"))))
    remembered = Remembered(most=3)
    test = row_test(All((node, Test("user.name", "exists", True))), {"message": 0, "user.name": 1},
                    remembered)  # fmt: skip
    for text in ("a", "ab", "b", "xa", "A", "aB", None, ["b", "a"], 7, "a" * 5000) * 3:
        event = {"message": text, "user": {"name": "x"}}
        assert test([[text], ["x"]], 0) is holds(node, event), text
        assert remembered.count <= 3
