"""What Sigma has beyond single columns: derived fields, filters, placeholders, parts of a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.rulebook.rule_tests import complete
from alerts.rulepack.derived_fields import derived, inputs
from alerts.rulepack.predicate import (
    ANY_RUN,
    Either,
    Node,
    Not,
    Test,
    at,
    holds,
    literals_of,
    paths_of,
)
from alerts.rulepack.rule_pack import Rule, RulePack
from tests.examples import examples

ID = "00000000-0000-4000-8000-00000000000{}"


def rule(detection: dict[str, Any], number: int = 1, **keys: Any) -> dict[str, Any]:
    return {
        "title": f"Rule {number}",
        "id": ID.format(number),
        "logsource": {"product": "ocsf"},
        "detection": detection,
        "level": "high",
    } | keys


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    def run(*rules: Any, placeholders: str = "") -> Compiled:
        for number, one in enumerate(rules):
            (tmp_path / f"{number}.yml").write_text(yaml.safe_dump(one), "utf-8")
        if placeholders:
            (tmp_path / "placeholders.yml").write_text(placeholders, "utf-8")
        return compile_rules([tmp_path])

    return run


def matches(result: Compiled, event: dict[str, Any]) -> bool:
    """Both ways of running, which must agree."""
    assert not result.refused, result.refused
    whole = complete(event)
    found = Matcher(result.pack).match(event_batch([whole])).num_rows
    assert found == len(brute_force(result.pack, [whole]))
    return bool(found)


NOON = datetime(2025, 3, 5, 14, 7, tzinfo=timezone(timedelta(hours=2)))

CASES = [
    ({"time|hour": 12}, {"time": NOON}, True),
    ({"time|hour": 14}, {"time": NOON}, False),
    ({"time|minute": 7}, {"time": NOON}, True),
    ({"time|day": 5}, {"time": NOON}, True),
    ({"time|week": 10}, {"time": NOON}, True),
    ({"time|month": [1, 3]}, {"time": NOON}, True),
    ({"time|year": 2025}, {"time": NOON}, True),
    ({"message|year": 2025}, {"message": "2025-01-01T00:00:00Z"}, True),
    ({"message|year": 2025}, {"message": "no time"}, False),
    ({"message|utf16le|base64offset|contains": "ab"}, {"message": "YQBiAA=="}, True),
    ({"message|utf16be|base64": "a"}, {"message": "AGE="}, True),
    ({"message|utf16|base64": "a"}, {"message": "//5hAA=="}, True),
    ({"message|re|i|m|s": "^b.c$"}, {"message": "a\nB\nC\nd"}, True),
    ({"message|fieldref|endswith": "user.name"}, {"message": "x-bob", "user.name": "BOB"}, True),
    ({"message|fieldref|contains": "user.name"}, {"message": "xBobx", "user.name": "bob"}, True),
    ({"message|neq": ["a", "b"]}, {"message": "c"}, True),
    ({"message|neq": ["a", "b"]}, {"message": "B"}, False),
    ({"unmapped:GrantedAccess": "0x1010"}, {"unmapped": '{"GrantedAccess":"0X1010"}'}, True),
    ({"unmapped:GrantedAccess": "0x1010"}, {"unmapped": '{"Granted":"0x1010"}'}, False),
    ({"unmapped:GrantedAccess": "0x1010"}, {"unmapped": "not json"}, False),
    ({"unmapped:GrantedAccess": None}, {}, True),
    ({"unmapped:a.b": "x"}, {"unmapped": '{"a":{"b":["y","X"]}}'}, True),
    ({"unmapped:a.b": "x"}, {"unmapped": '{"a.b":"x"}'}, True),
    ({"unmapped:a.b": 7}, {"unmapped": '{"a":[{"b":7},{"b":8}]}'}, True),
    ({"unmapped:a.b|gt": 7}, {"unmapped": '{"a":[{"b":7},{"b":8}]}'}, True),
    ({"unmapped:a": True}, {"unmapped": '{"a":true}'}, True),
    ({"unmapped:a|contains": '"b":"c'}, {"unmapped": '{"a": {"b": "cd"}}'}, True),
    ({"unmapped:p|endswith": r"\x.exe"}, {"unmapped": r'{"p":"C:\\X.EXE"}'}, True),
    ({"more:driver.file.path|contains": "evil"}, {"more": '{"driver":{"file":{"path":"EVIL"}}}'},
     True),
    ({r"{user.domain}\{user.name}": r"corp\ann"}, {"user": {"domain": "CORP", "name": "Ann"}},
     True),
    ({r"{user.domain}\{user.name}|contains": "p\\a"}, {"user": {"domain": "CORP", "name": "Ann"}},
     True),
    ({r"{user.domain}\{user.name}": r"corp\ann"}, {"user": {"name": "ann"}}, False),
    ({r"{user.domain}\{user.name or (d)}|endswith": "(D)"}, {"user": {"domain": "CORP"}}, True),
    ({r"\{user.name}|endswith": r"\ann"}, {"user": {"name": "Ann"}}, True),
    ({r"\{user.name}|endswith": r"\ann"}, {"user": {"name": "joann"}}, False),
    ({r"\{user.name}": "ann"}, {"user": {"name": "Ann"}}, False),
    ({"file.hashes#|contains": "IMPHASH=0aF"},
     {"file": {"hashes": [{"algorithm": "Imphash", "value": "0af1"}]}}, True),
    ({"file.hashes#|contains": "MD5=0aF"},
     {"file": {"hashes": [{"algorithm": "Imphash", "value": "0af1"}]}}, False),
    ({"file.hashes#sha-1": "ab"}, {"file": {"hashes": [{"algorithm": "SHA-1", "value": "AB"}]}},
     True),
    ({"connection_info.direction?Outbound=true&Inbound=false": True},
     {"connection_info": {"direction": "Outbound"}}, True),
    ({"connection_info.direction?Outbound=true&Inbound=false": "false"},
     {"connection_info": {"direction": "Outbound"}}, False),
    ([{"message": "a"}, {"user.name": "b"}], {"user.name": "B"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("selection", "event", "expected"), CASES, ids=str)
def test_a_test_means_what_sigma_says(
    compiled: Any, selection: Any, event: dict[str, Any], expected: bool
) -> None:
    detection = {"selection": selection, "condition": "selection"}
    assert matches(compiled(rule(detection)), event) is expected


@pytest.mark.parametrize(("selection", "event", "expected"), CASES, ids=str)
def test_not_is_true_exactly_where_the_selection_is_not(
    compiled: Any, selection: Any, event: dict[str, Any], expected: bool
) -> None:
    detection = {"selection": selection, "condition": "not selection"}
    assert matches(compiled(rule(detection)), event) is not expected


def test_all_keywords_must_occur_each_anywhere(compiled: Any) -> None:
    result = compiled(rule({"words": {"|all": ["evil", r"C:\temp"]}, "condition": "words"}))
    assert matches(result, {"message": "EVIL", "unmapped": r'{"p":"c:\\TEMP\\x"}'})
    assert not matches(result, {"message": "evil"})


PLACEHOLDERS = 'admins: [ann, "svc*"]\nnothing: []\n'


@pytest.mark.parametrize(("name", "expected"), [("ANN", True), ("svc-7", True), ("bob", False)])
def test_a_placeholder_stands_for_each_of_its_values(
    compiled: Any, name: str, expected: bool
) -> None:
    detection = {"s": {"user.name|expand": "%admins%"}, "condition": "s"}
    result = compiled(rule(detection), placeholders=PLACEHOLDERS)
    assert matches(result, {"user.name": name}) is expected


def test_a_placeholder_without_values_is_refused_by_name(compiled: Any) -> None:
    detection = {"s": {"user.name|expand": "%nothing%"}, "condition": "s"}
    (refused,) = compiled(rule(detection), placeholders=PLACEHOLDERS).refused
    assert "%nothing%" in refused.reason
    assert "placeholders.yml" in refused.remedy


def test_a_file_of_placeholders_that_is_none_is_refused_alone(compiled: Any) -> None:
    result = compiled(rule({"s": {"message": "x"}, "condition": "s"}), placeholders="- a\n")
    assert len(result.pack.rules) == 1
    assert "mapping" in result.refused[0].reason


def a_filter(names: Any, number: int = 9, **keys: Any) -> dict[str, Any]:
    return {
        "title": "Leave out backup",
        "id": ID.format(number),
        "logsource": {"product": "ocsf"},
        "filter": {"rules": names, "own": {"user.name": "backup"}, "condition": "not own"} | keys,
    }


@pytest.mark.parametrize("names", ["any", [ID.format(1)], ["short"]])
def test_a_filter_is_demanded_besides_of_the_rules_it_names(compiled: Any, names: Any) -> None:
    detection = {"s": {"message": "x"}, "condition": "s"}
    result = compiled(rule(detection, name="short"), a_filter(names))
    assert matches(result, {"message": "x", "user.name": "ann"})
    assert matches(result, {"message": "x"})
    assert not matches(result, {"message": "x", "user.name": "Backup"})


def test_a_filter_of_another_log_source_concerns_no_rule_and_is_refused(compiled: Any) -> None:
    other = a_filter("any") | {"logsource": {"product": "windows"}}
    result = compiled(rule({"s": {"message": "x"}, "condition": "s"}), other)
    assert len(result.pack.rules) == 1
    assert "filters no rule" in result.refused[0].reason


def test_a_broken_filter_is_refused_and_its_rules_run_unfiltered(compiled: Any) -> None:
    broken = a_filter("any", own={"nofield": "x"})
    result = compiled(rule({"s": {"message": "x"}, "condition": "s"}), broken)
    assert len(result.pack.rules) == 1
    (refused,) = result.refused
    assert refused.rule == ID.format(9)
    assert "nofield" in refused.reason


def test_a_number_of_a_code_is_a_text_to_look_for(compiled: Any) -> None:
    source = {"product": "windows", "service": "security"}
    result = compiled(rule({"s": {"EventID": 4719}, "condition": "s"}, logsource=source))
    (one,) = result.pack.rules
    assert one.literals == (("metadata.event_code", "4719"),)


def test_what_marks_a_log_source_is_not_what_a_rule_is_looked_for_by(compiled: Any) -> None:
    source = {"product": "windows", "category": "registry_set"}
    detection = {"s": {"TargetObject|contains": r"\Evil\Key"}, "condition": "s"}
    (one,) = compiled(rule(detection, logsource=source)).pack.rules
    assert one.literals
    assert {path for path, _ in one.literals} == {
        "reg_key.path", "reg_value.path", "reg_value.name", "more"
    }  # fmt: skip


def test_a_rule_of_a_whole_product_is_looked_for_by_its_value_and_not_by_its_logs(
    compiled: Any,
) -> None:
    detection = {"s": {"Image|endswith": r"\evil.exe"}, "condition": "s"}
    (one,) = compiled(rule(detection, logsource={"product": "windows"})).pack.rules
    assert {text for _, text in one.literals} <= {r"\evil.exe", "evil.exe"}


@pytest.mark.parametrize("field", ["UserName", "ProcessId", "SessionID", "IpAddress"])
def test_a_list_of_hundreds_of_values_is_taken_of_a_whole_product(
    compiled: Any, field: str
) -> None:
    values = [f"x{number}" for number in range(400)]
    result = compiled(
        rule({"s": {field: values}, "condition": "s"}, logsource={"product": "windows"})
    )
    assert not result.refused


PIECES = (
    "",
    "a",
    "B",
    "\\",
    "a\\b",
    '"',
    "Σ",
    "é",
    "k",
    "=",
    "MD5",
    "(d)",
    "true",
    "1",
    ",",
    "x y",
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
DERIVED = (
    "unmapped:a", "unmapped:a.b", "more:a", r"{user.domain}\{user.name}",
    r"{user.domain}\{user.name or (d)}", r"\{user.name}", "file.hashes#", "file.hashes#md5",
    "user.domain?a=true&B=false", "user.name",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | TEXT | st.integers(-2, 12) | st.booleans() | st.floats(0, 2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "a.b"]), VALUES, max_size=3)


def nodes() -> st.SearchStrategy[Node]:
    field = st.sampled_from(DERIVED)
    op = st.sampled_from(["eq", "contains", "startswith", "endswith", "ref", "ref_contains"])
    text = st.builds(
        lambda f, o, t, c: Test(f, o, "user.name" if o.startswith("ref") else t, c),
        field, op, TEXT, st.booleans(),
    )  # fmt: skip
    like = st.builds(
        lambda f, a, b: Test(f, "like", None, False, (("text", a), (ANY_RUN, ""), ("text", b))),
        field, TEXT, TEXT,
    )  # fmt: skip
    there = st.builds(Test, field, st.just("exists"), st.booleans())
    leaves = text | like | there
    return st.recursive(
        leaves,
        lambda inner: inner.map(Not) | st.lists(inner, min_size=1, max_size=3).map(
            lambda some: Either(tuple(some))
        ),
        max_leaves=4,
    )  # fmt: skip


@st.composite
def events(draw: st.DrawFn, uid: str = "e") -> dict[str, Any]:
    hashes = st.fixed_dictionaries(
        {
            "algorithm": st.none() | st.sampled_from(["MD5", "SHA-1", "md5"]),
            "value": st.none() | TEXT,
        }
    )
    name = st.none() | TEXT
    return complete({"event_uid": uid}) | {
        "unmapped": draw(st.none() | OBJECTS.map(lambda o: msgspec.json.encode(o).decode())),
        "more": draw(st.none() | OBJECTS.map(lambda o: msgspec.json.encode(o).decode())),
        "user": draw(st.none() | st.fixed_dictionaries({"domain": name, "name": name})),
        "file": {"hashes": draw(st.none() | st.lists(hashes, max_size=3))},
    }


@examples(300)
@given(nodes(), events())
def test_the_matcher_equals_plain_evaluation_of_derived_fields(
    node: Node, event: dict[str, Any]
) -> None:
    one = Rule(id="r", title="t", predicate=node, literals=literals_of(node))
    pack = RulePack(rules=(one,))
    found = Matcher(pack).match(event_batch([event])).to_pylist()
    assert {(f["rule_id"], f["event_uid"]) for f in found} == brute_force(pack, [event])
    assert bool(found) is holds(node, event)
    assert paths_of(node) <= {path for field in DERIVED for path in inputs(field)}


@pytest.mark.parametrize("field", ["unmapped:", "{user.name", "user.name?a", "{a} {"])
def test_a_misspelt_derived_field_is_an_error(field: str) -> None:
    with pytest.raises(ValueError, match="'"):
        derived(field)


def test_a_row_is_parsed_once_however_many_rules_look_into_it() -> None:
    text = msgspec.json.encode({"a": "x", "b": datetime(2025, 1, 1, tzinfo=UTC)}).decode()
    event = {"unmapped": text}
    assert [at(event, f"unmapped:{key}") for key in "abc"] == ["x", "2025-01-01T00:00:00Z", None]
