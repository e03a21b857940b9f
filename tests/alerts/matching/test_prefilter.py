"""What is sought instead of a rule never hides a match, whatever is rare, listed or missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.matching.column_access import EventColumns, column
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.matching.prefilter import AtomCounts, PrefilterPlan, choices_of, count, gates_of
from alerts.rulepack.predicate import (
    ANY_ONE,
    ANY_RUN,
    All,
    Either,
    Node,
    Not,
    Test,
    at,
    fold,
    leaf,
    present,
)
from alerts.rulepack.required_literals import Needle, needles_of
from alerts.rulepack.rule_pack import Rule, RulePack
from tests.examples import examples

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
PIECES = (
    "",
    "a",
    "A",
    "ab",
    "abc",
    "Σ",
    "ς",
    "İ",
    "ß",
    "\u212a",
    "\u017f",
    "k",
    "S",
    "\x00",
    "\n",
    "é",
    "1",
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
TEXT_FIELDS = (
    "message",
    "user.name",
    "src_endpoint.ip",
    "answers.rdata",
    "unmapped:key",
    "{user.name}\\{message or abc}",
    "{user.name or abc}",
    "process.hashes#",
    "process.hashes#md5",
    "message?one=abc&two=a",
)
FIELDS = (*TEXT_FIELDS, "status_id", "is_mfa", "time", "http_request.x_forwarded_for", "no.such")
EXPRESSIONS: tuple[str, ...] = (
    "abc",
    "(?i)abk",
    "(?i)ABC+a",
    "aab?",
    "^abca*$",
    "(abc|b)a",
    "abc|\u017f",
    "[]a]bc",
    "a{0}",
)
EXPRESSIONS += (
    r"\x61bc",
    r"abc\.",
    "(?s)abc.a",
    "(?:(?i)ABC)",
    r"\Qabc\E",
    "abc{0,2}",
    "ab+c",
    "é(?i)",
)
NUMBERS = (
    "number",
    "lt",
    "lte",
    "gt",
    "gte",
    "ne",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
)
NETWORKS = ("10.0.0.0/8", "10.0.0.1/32", "10.0.0.0/30", "0.0.0.0/0", "fd00::/8")
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.1.1", "100.0.0.1", "fd00::1", "10.0.0."])


def _parts() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    text = TEXT.map(lambda t: ("text", t))
    joker = st.sampled_from([(ANY_RUN, ""), (ANY_ONE, "")])
    return st.lists(st.one_of(text, joker), max_size=4).map(tuple)


def one_test() -> st.SearchStrategy[Test]:
    field, cased = st.sampled_from(FIELDS), st.booleans()
    compared = st.sampled_from(["eq", "contains", "startswith", "endswith"])
    refers = st.sampled_from(["ref", "ref_contains", "ref_startswith", "ref_endswith"])
    return st.one_of(
        st.builds(Test, field, compared, TEXT, cased),
        st.builds(lambda f, c, p: Test(f, "like", None, c, p), field, cased, _parts()),
        st.builds(Test, field, st.just("re"), st.sampled_from(EXPRESSIONS)),
        st.builds(Test, field, st.just("cidr"), st.sampled_from(NETWORKS)),
        st.builds(Test, field, st.sampled_from(NUMBERS), st.sampled_from([0, 1, 3, 9, 12, 2025])),
        st.builds(Test, field, st.sampled_from(["bool", "exists"]), st.booleans()),
        st.builds(Test, field, refers, st.sampled_from(FIELDS), cased),
    )


def _tree(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    many = st.lists(children, max_size=3).map(tuple)
    return st.one_of(many.map(All), many.map(Either), children.map(Not))


NODES = st.recursive(one_test(), _tree, max_leaves=8)
HASH = st.fixed_dictionaries(
    {"algorithm": st.sampled_from(["MD5", "SHA-256", None]), "value": TEXT}
)
JSON = st.sampled_from(
    ['{"key":"abc"}', '{"key":["A",1,null]}', '{"key":{"a":"b"}}', "{", "[]", '{"key":1}']
)


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    maybe = st.none() | TEXT
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 8))):
        text = draw(maybe)
        event: dict[str, Any] = {
            "event_uid": f"e{number}",
            "time": NOON,
            "received_at": NOON,
            "source": draw(st.sampled_from(["s", "s", "t"])),
            "mode": draw(st.sampled_from(["live", "live", "import"])),
            "class_uid": draw(st.sampled_from([1, 1, 2, None])),
            "message": text,
            "user": draw(st.none() | st.fixed_dictionaries({"name": maybe | st.just(text)})),
            "src_endpoint": draw(st.none() | st.fixed_dictionaries({"ip": maybe | ADDRESSES})),
            "answers": draw(
                st.none()
                | st.lists(st.none() | st.fixed_dictionaries({"rdata": maybe}), max_size=3)
            ),
            "http_request": {"x_forwarded_for": draw(st.none() | st.lists(maybe, max_size=2))},
            "process": {"hashes": draw(st.none() | st.lists(HASH, max_size=2))},
            "status_id": draw(st.none() | st.integers(0, 3)),
            "is_mfa": draw(st.none() | st.booleans()),
            "unmapped": draw(st.none() | JSON),
        }
        made.append(event)
    return made


def pack_of(nodes: Sequence[Node], **keys: Any) -> RulePack:
    rules = [Rule(id=f"r{n:03}", title="t", predicate=node, **keys) for n, node in enumerate(nodes)]
    return RulePack(rules=tuple(rules))


def found(matcher: Matcher, batch: Any) -> set[tuple[str, str]]:
    return {(f["rule_id"], f["event_uid"]) for f in matcher.match(batch).to_pylist()}


@examples(100)
@given(st.lists(NODES, max_size=12), events(), events(), st.sampled_from([1, 3, 1000]))
def test_whatever_was_seen_before_the_matcher_equals_plain_evaluation(
    nodes: list[Node], before: list[dict[str, Any]], rows: list[dict[str, Any]], sample: int
) -> None:
    pack = pack_of(nodes)
    matcher = Matcher(pack, sample_rows=sample)
    for seen in (before, rows, rows[1:]):
        assert found(matcher, event_batch(seen)) == brute_force(pack, seen)
    assert found(matcher, event_batch(rows).slice(1)) == brute_force(pack, rows[1:])


@examples(300)
@given(one_test(), st.one_of(TEXT, ADDRESSES))
def test_what_is_sought_for_a_test_is_in_every_value_that_satisfies_it(
    test: Test, value: str
) -> None:
    checks = {
        "anywhere": str.__contains__,
        "start": str.startswith,
        "end": str.endswith,
        "whole": str.__eq__,
    }
    if needles_of(test) and leaf(test)(value):
        for needle in needles_of(test):
            assert checks[needle.place](fold(value), needle.text)
    else:
        assert not (test.op in ("eq", "contains") and test.value) or not leaf(test)(value)


@examples(200)
@given(
    st.from_regex(r"(\(\?i\))?(a|bc|\(d\)|[ks-]|\.|e[?+*]|f\{0,1\}|g\|){1,8}", fullmatch=True),
    st.data(),
)
def test_texts_taken_from_an_expression_are_in_all_it_matches(
    expression: str, data: st.DataObject
) -> None:
    value = data.draw(st.from_regex(expression.removeprefix("(?i)"), fullmatch=True))
    test = Test("message", "re", expression)
    assert leaf(test)(value)
    assert all(needle.text in fold(value) for needle in needles_of(test))


@examples(100)
@given(events(), st.sampled_from(FIELDS))
def test_the_different_values_of_a_column_are_those_of_its_rows(
    rows: list[dict[str, Any]], path: str
) -> None:
    batch = event_batch(rows)
    chosen = np.arange(0, len(rows), 2)
    distinct = EventColumns(batch, chosen).distinct(path)
    got = sorted(
        (int(row), str(value))
        for value, low, high in zip(
            distinct.to_list(), distinct.bounds[:-1], distinct.bounds[1:], strict=True
        )
        for row in distinct.rows[low:high]
    )
    wanted = sorted(
        (row, str(value)) for row in chosen.tolist() for value in present(at(rows[row], path))
    )
    assert [row for row, _ in got] == [row for row, _ in wanted]
    assert len(column(batch, path, chosen)) == len(chosen)
    if path in TEXT_FIELDS and path != "unmapped:key":
        assert got == wanted


@pytest.mark.parametrize("start", [0, 1])
def test_a_field_of_a_missing_struct_is_missing_whatever_lies_there(start: int) -> None:
    parent = pa.StructArray.from_arrays(
        [pa.array(["d", "e", "f"])], names=["path"], mask=pa.array([False, True, False])
    )
    process = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), parent],
        names=["path", "parent"],
        mask=pa.array([False, False, True]),
    )
    columns = EventColumns(pa.RecordBatch.from_arrays([process], names=["process"]).slice(start))
    assert columns.texts("process.path") == ["a", "b", None][start:]
    assert columns.texts("process.parent.path") == ["d", None, None][start:]
    assert columns.distinct("process.path").to_list() == ["a", "b"][start:]


def test_a_rule_is_sought_by_the_rarest_thing_it_requires() -> None:
    usual, rare = Test("message", "contains", "powershell"), Test("user.name", "eq", "eve")
    rows = [
        {"event_uid": str(n), "message": "powershell", "user": {"name": "bob"}} for n in range(9)
    ]
    census = AtomCounts()
    assert gates_of(All((usual, rare)), census)[0].atoms == choices_of(usual)[0]
    count([All((usual, rare))], EventColumns(event_batch(rows)), len(rows), census)
    assert gates_of(All((usual, rare)), census)[0].atoms == (Needle("user.name", "eve", "whole"),)


@pytest.mark.parametrize(
    "node",
    [
        Not(Test("message", "eq", "x")),
        Either((Test("message", "eq", "x"), Not(Test("message", "eq", "y")))),
        Test("message", "exists", False),
        Test("message", "ref", "user.name"),
        Either(()),
        All(()),
    ],
    ids=str,
)
def test_a_rule_that_requires_nothing_looks_at_every_event(node: Node) -> None:
    plan = PrefilterPlan.of([node], AtomCounts())
    batch = event_batch([{"event_uid": str(n)} for n in range(3)])
    rules, rows = plan.pairs(EventColumns(batch), np.arange(3), np.array([True]))
    assert (rules.tolist(), rows.tolist()) == ([0, 0, 0], [0, 1, 2])


def test_a_row_is_confirmed_only_where_all_gates_let_it_through() -> None:
    node = All((Test("message", "contains", "one"), Test("user.name", "contains", "two")))
    rows = [
        {"event_uid": str(n), "message": m, "user": {"name": u}}
        for n, (m, u) in enumerate([("one", "two"), ("one", "x"), ("x", "two")] * 40)
    ]
    columns, census = EventColumns(event_batch(rows)), AtomCounts()
    count([node], columns, len(rows), census)
    _, passed = PrefilterPlan.of([node], census).pairs(
        columns, np.arange(len(rows)), np.array([True])
    )
    assert passed.tolist() == list(range(0, 120, 3))


def test_a_matcher_tells_what_each_rule_has_cost() -> None:
    pack = pack_of([Test("message", "contains", "x"), Test("message", "contains", "y")])
    common = {"source": "s", "mode": "live", "time": NOON, "received_at": NOON, "class_uid": 1}
    matcher = Matcher(pack)
    for text in ("x", "a", "x"):
        matcher.match(event_batch([common | {"event_uid": text, "message": text}]))
    costs = matcher.costs()
    assert costs["r000"][:3] == (3, 2, 2)
    assert costs["r001"][:3] == (3, 0, 0)
    assert costs["r000"].seconds > 0
