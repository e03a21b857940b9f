"""Correlation rules as files: every Sigma type compiles, runs, chains, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.rulebook.rule_tests import check_rules

ID = "00000000-0000-4000-8000-{:012d}"
EVENT = {"class_uid": 3002, "message": "login", "user.name": "bob", "src_endpoint.ip": "10.0.0.5"}


def rule(
    number: int, name: str, service: dict[str, str] | None = None, **keys: Any
) -> dict[str, Any]:
    return {
        "title": f"Rule {number}",
        "id": ID.format(number),
        "name": name,
        "logsource": service or {"product": "ocsf"},
        "detection": {"s": {"message|contains": keys.pop("text", "login")}, "condition": "s"},
    }


def above(
    number: int, rules: list[str], own: dict[str, Any] | None = None, **keys: Any
) -> dict[str, Any]:
    return {
        "title": f"Correlation {number}",
        "id": ID.format(number),
        "name": f"c{number}",
        "correlation": {
            "type": "event_count",
            "rules": rules,
            "group-by": ["user.name"],
            "timespan": "1m",
            "condition": {"gte": 2},
        }
        | keys,
        "headgate": own or {},
    }


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    def write(*documents: dict[str, Any]) -> Compiled:
        (tmp_path / "rules.yml").write_text(yaml.safe_dump_all(documents), "utf-8")
        return compile_rules([tmp_path])

    return write


def ports(*values: int, every: int = 1) -> list[dict[str, Any]]:
    return [
        {"event": EVENT | {"dst_endpoint.port": value}, "start_seconds": n * every}
        for n, value in enumerate(values)
    ]


PORT = {"field": "dst_endpoint.port"}


@pytest.mark.parametrize(
    ("keys", "match", "no_match"),
    [
        ({}, ports(1, 1), ports(1)),
        ({"condition": {"gt": 2}}, ports(1, 1, 1), ports(1, 1)),
        ({"condition": {"eq": 3}}, ports(1, 1, 1), ports(1, 1)),
        ({"condition": {"gt": 1, "lte": 3}}, ports(1, 1), ports(1)),
        (
            {"type": "value_sum", "condition": PORT | {"gte": 50, "lt": 60}},
            ports(50),
            ports(40, 20),
        ),
        (
            {
                "type": "value_count",
                "condition": {"field": ["dst_endpoint.port", "user.name"], "gte": 2},
            },
            ports(1, 2),
            ports(1, 1),
        ),
        ({"condition": {"lte": 1}}, ports(1), None),
        ({"condition": {"neq": 1}}, ports(1, 1), ports(1)),
        ({"type": "value_count", "condition": PORT | {"gte": 2}}, ports(1, 2), ports(1, 1)),
        ({"type": "value_sum", "condition": PORT | {"gt": 99.5}}, ports(60, 40), ports(60, 39)),
        ({"type": "value_avg", "condition": PORT | {"lt": 50}}, ports(60, 20), ports(60, 50)),
        ({"type": "value_median", "condition": PORT | {"eq": 5}}, ports(9, 1), ports(9, 2)),
        (
            {"type": "value_percentile", "condition": PORT | {"gte": 90, "percentile": 75}},
            ports(1, 1, 90, 99, 99),
            ports(1, 1, 1, 99),
        ),
    ],
)
def test_every_type_and_condition_runs_from_its_file(
    compiled: Any, keys: dict[str, Any], match: Any, no_match: Any
) -> None:
    tests = {name: [t] for name, t in (("match", match), ("no_match", no_match)) if t}
    result = compiled(rule(1, "login"), above(2, ["login"], {"tests": tests}, **keys))
    assert not result.refused
    outcomes = check_rules(result)
    assert outcomes
    assert [o for o in outcomes if not o.passed] == []


@pytest.mark.parametrize("condition", [{"eq": 0}, {"lt": 1}])
def test_no_heartbeat_for_an_hour_is_an_absence(compiled: Any, condition: dict[str, int]) -> None:
    def beats(*minutes: int, user: str = "ann") -> list[dict[str, Any]]:
        return [{"event": EVENT | {"user.name": user}, "start_seconds": 60 * m} for m in minutes]

    tests = {
        # Another's beat ends the story: ann was silent for an hour by then.
        "match": [[*beats(0, 50), *beats(111, user="bob")], beats(0, 61)],
        "no_match": [beats(0), [*beats(0, 50, 100), *beats(110, user="bob")], beats(0, 60)],
    }
    keys = {"timespan": "1h", "condition": condition}
    result = compiled(rule(1, "beat"), above(2, ["beat"], {"tests": tests}, **keys))
    assert not result.refused
    outcomes = check_rules(result)
    assert len(outcomes) == 5
    assert [o for o in outcomes if not o.passed] == []


def test_first_seen_is_a_value_count_of_ours(compiled: Any) -> None:
    step = {"event": EVENT | {"process.name": "a.exe"}}
    own = {
        "type": "first_seen",
        "learn": "1d",
        "tests": {
            "match": [
                [step, {"event": EVENT | {"process.name": "b.exe"}, "start_seconds": 90_000}]
            ],
            "no_match": [[step, step | {"start_seconds": 90_000}], [step]],
        },
    }
    keys = {
        "type": "value_count",
        "timespan": "14d",
        "condition": {"field": "process.name", "gte": 1},
    }
    result = compiled(rule(1, "started"), above(2, ["started"], own, **keys))
    assert not result.refused
    (made,) = result.pack.correlations
    assert (made.type, made.timespan_seconds, made.learn_seconds) == (
        "first_seen",
        1_209_600,
        86_400,
    )
    assert [o for o in check_rules(result) if not o.passed] == []


def test_a_chain_counts_results_and_sums_their_numbers(compiled: Any) -> None:
    burst = [{"event": EVENT, "times": 5, "start_seconds": start} for start in (0, 100, 200)]
    tests = {"match": [burst], "no_match": [burst[:2]]}
    result = compiled(
        rule(1, "login"),
        above(2, ["login"], condition={"gte": 5}, timespan="10s"),
        above(
            3,
            ["c2"],
            {"tests": tests},
            type="value_sum",
            timespan="10m",
            condition={"field": "event_count", "gte": 15},
        ),
    )
    assert not result.refused
    assert result.pack.described(ID.format(2)).feeds == (ID.format(3),)
    assert [o for o in check_rules(result) if not o.passed] == []


def test_a_name_is_the_column_of_each_rules_own_log_source(compiled: Any) -> None:
    result = compiled(
        rule(1, "web", {"category": "webserver"}),
        rule(2, "plain"),
        above(
            3,
            ["web", "plain"],
            **{
                "group-by": ["who"],
                "aliases": {"who": {"web": "c-ip", "plain": "dst_endpoint.ip"}},
            },
        ),
    )
    assert not result.refused
    (made,) = result.pack.correlations
    assert made.aliases == {
        "who": {ID.format(1): "src_endpoint.ip", ID.format(2): "dst_endpoint.ip"}
    }


@pytest.mark.parametrize(
    ("keys", "own", "named"),
    [
        ({"type": "value_percentile", "condition": PORT | {"gte": 1}}, {}, "percentile None"),
        ({"condition": {"gte": 1, "percentile": 5}}, {}, "percentile with event_count"),
        ({"condition": {"gte": 60_000}}, {}, "60000"),
        ({"condition": {"field": "nofield", "gte": 1}}, {}, "nofield"),
        ({"type": "value_sum", "condition": {"field": ["a", "b"], "gte": 1}}, {}, "['a', 'b']"),
        ({"type": "temporal", "condition": {"lt": 1}}, {}, "asks for an absence"),
        ({"condition": {"lt": 0}}, {}, "asks for an absence"),
        ({"type": "temporal", "condition": "login and not login"}, {}, "can never be true"),
        ({"type": "temporal", "condition": "not login"}, {}, "where none of its rules fires"),
        (
            {"type": "temporal_ordered", "condition": "login or not login"},
            {},
            "where none of its rules fires",
        ),
        ({"condition": {"gte": 3, "lt": 3}}, {}, "no number is gte 3 and lt 3"),
        ({"condition": {"gt": 3, "lt": 4}}, {}, "no number is gt 3 and lt 4"),
        ({"condition": {"gte": 1, "lte": float("nan")}}, {}, "'nan' in a range"),
        ({"condition": {"gte": 1, "lte": "many"}}, {}, "'many' in a range"),
        ({"condition": {"gte": 1, "gt": 1}}, {}, "gt, gte"),
        ({"condition": {"eq": 1, "gt": 1}}, {}, "gt, eq"),
        ({"condition": {"gte": 1, "lte": 60_000}}, {}, "60000"),
        (
            {"type": "value_count", "condition": PORT | {"gte": 1, "lte": 2}},
            {"type": "first_seen"},
            "with a range",
        ),
        (
            {"type": "value_count", "condition": {"field": ["message", "mac"], "gte": 1}},
            {"type": "first_seen"},
            "several fields",
        ),
        ({}, {"type": "newest"}, "newest"),
        ({}, {"type": "first_seen"}, "event_count"),
        ({}, {"learn": "1d"}, "learn"),
        (
            {"type": "value_count", "condition": PORT | {"gte": 1}},
            {"type": "first_seen", "learn": "soon"},
            "soon",
        ),
    ],
)
def test_what_cannot_run_is_refused_by_name(
    compiled: Any, keys: dict[str, Any], own: dict[str, Any], named: str
) -> None:
    result = compiled(rule(1, "login"), above(2, ["login"], own, **keys))
    assert not result.pack.correlations
    assert named in result.refused[0].reason
    assert result.refused[0].remedy


def test_correlations_that_count_each_other_are_refused(compiled: Any) -> None:
    result = compiled(rule(1, "login"), above(2, ["login", "c3"]), above(3, ["c2"]))
    assert not result.pack.correlations
    assert {r.rule for r in result.refused} == {ID.format(2), ID.format(3)}
    assert "its own findings" in result.refused[0].reason


def steps(*texts: str) -> list[dict[str, Any]]:
    return [
        {"event": EVENT | {"message": text}, "start_seconds": second}
        for second, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("kind", "rules", "match", "no_match"),
    [
        ("temporal", None, steps("c", "a"), steps("a", "b")),
        ("temporal", ["a", "b", "c"], steps("c", "b"), steps("c", "c")),
        ("temporal_ordered", ["a", "b", "c"], steps("b", "c"), steps("c", "b", "a")),
    ],
)
def test_a_temporal_condition_may_be_an_expression_over_rules(
    compiled: Any, kind: str, rules: list[str] | None, match: Any, no_match: Any
) -> None:
    tests = {"match": [match], "no_match": [no_match]}
    top = above(4, rules or [], {"tests": tests}, type=kind, condition="(a or b) and c")
    if rules is None:
        # The specification lets the condition alone name them.
        del top["correlation"]["rules"]
    result = compiled(*(rule(n, name, text=name) for n, name in enumerate("abc", 1)), top)
    assert not result.refused
    (made,) = result.pack.correlations
    assert made.rules == (ID.format(1), ID.format(2), ID.format(3))
    assert made.any_of == ((ID.format(1), ID.format(3)), (ID.format(2), ID.format(3)))
    assert [o for o in check_rules(result) if not o.passed] == []


@pytest.mark.parametrize(
    ("kind", "rules", "condition", "match", "no_match"),
    [
        ("temporal", "ab", "a and not b", ["a", "aa"], ["b", "ab", "ba", "aba"]),
        ("temporal_ordered", "ab", "a and not b", ["a", "ba"], ["ab", "bab"]),
        ("temporal_ordered", "ba", "a and not b", ["a", "ab"], ["ba", "bab"]),
        ("temporal_ordered", "abc", "a and not b and c", ["ac", "bac", "acb"], ["abc", "ab"]),
        ("temporal", "abc", "a and not (b or c)", ["a"], ["ab", "ca", "b"]),
        ("temporal", "abc", "a and not (b and c)", ["a", "ab", "ca"], ["abc", "cab", "b"]),
        ("temporal", "abc", "a and not b or c and not not b", ["a", "bc"], ["ab", "c"]),
        ("temporal", "abc", "a AND NOT (b OR c)", ["a"], ["ab", "ca", "b"]),
    ],
)
def test_an_expression_may_rule_out_what_fires_in_the_same_timespan(
    compiled: Any, kind: str, rules: str, condition: str, match: list[str], no_match: list[str]
) -> None:
    tests = {"match": [steps(*m) for m in match], "no_match": [steps(*n) for n in no_match]}
    top = above(4, list(rules), {"tests": tests}, type=kind, condition=condition)
    result = compiled(*(rule(n, name, text=name) for n, name in enumerate("abc", 1)), top)
    assert not result.refused
    assert [o for o in check_rules(result) if not o.passed] == []


def test_an_expression_that_comes_true_in_too_many_ways_is_refused(compiled: Any) -> None:
    names = [f"r{n}" for n in range(10)]
    pairs = " and ".join(f"({a} or {b})" for a in names for b in names if a < b)
    free = " and ".join(f"(r{n} or s{n})" for n in range(8))
    below = [rule(n, name) for n, name in enumerate([*names, *(f"s{n}" for n in range(8))], 10)]
    result = compiled(
        *below,
        above(1, names, type="temporal", condition=pairs),
        above(2, [f"{w}{n}" for w in "rs" for n in range(8)], type="temporal", condition=free),
    )
    assert {refused.rule for refused in result.refused} >= {ID.format(2)}
    assert "more than 100 ways" in result.refused[-1].reason


def test_a_range_through_an_alias_of_yaml_is_that_of_each_rule(tmp_path: Path) -> None:
    text = yaml.safe_dump_all([rule(1, "login")])
    for number in (2, 3):
        text += "---\n" + yaml.safe_dump(above(number, ["login"], condition={"gte": 2, "lte": 4}))
    (tmp_path / "rules.yml").write_text(text, "utf-8")
    result = compile_rules([tmp_path])
    assert [made.upper for made in result.pack.correlations] == [("lte", 4), ("lte", 4)]


def test_what_a_pack_does_not_use_is_not_in_it(compiled: Any) -> None:
    """Packs of before keep their hash, and rules their version."""
    result = compiled(rule(1, "login"), above(2, ["login"]))
    written = result.pack.to_json()
    assert not any(name in written for name in (b'"upper"', b'"fields"', b'"any_of"', b'"none_of"'))
    ranged = compiled(rule(1, "login"), above(2, ["login"], condition={"gte": 1, "lt": 3})).pack
    assert type(ranged).from_json(ranged.to_json()) == ranged
