"""What compiles, what is refused, and what each modifier means."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from alerts.compiler.compiler import BUNDLED, Compiled, compile_rules
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.rulebook.rule_tests import check_rules, complete
from infra.errors import Fatal

ID = "00000000-0000-4000-8000-00000000000{}"


def rule(number: int = 1, detection: Any = None, **keys: Any) -> dict[str, Any]:
    return {
        "title": f"Rule {number}",
        "id": ID.format(number),
        "logsource": {"product": "ocsf"},
        "detection": detection or {"selection": {"message": "x"}, "condition": "selection"},
        "level": "high",
    } | keys


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    def run(*rules: Any, **options: Any) -> Compiled:
        for number, one in enumerate(rules):
            text = one if isinstance(one, str) else yaml.safe_dump(one)
            (tmp_path / f"{number}.yml").write_text(text, "utf-8")
        return compile_rules([tmp_path], **options)

    return run


def matches(compiled: Compiled, event: dict[str, Any]) -> bool:
    """Both ways of running a rule, which must agree."""
    assert not compiled.refused
    whole = complete(event)
    found = Matcher(compiled.pack).match(event_batch([whole])).num_rows
    assert found == len(brute_force(compiled.pack, [whole]))
    return bool(found)


MODIFIERS = [
    ({"message": "Abc"}, {"message": "aBC"}, True),
    ({"message": "Abc"}, {"message": "abcd"}, False),
    ({"message|cased": "Abc"}, {"message": "Abc"}, True),
    ({"message|cased": "Abc"}, {"message": "abc"}, False),
    ({"message": "a*c?e"}, {"message": "A--CxE"}, True),
    ({"message": "a*c?e"}, {"message": "A--CE"}, False),
    ({"message": r"a\*c"}, {"message": "a*c"}, True),
    ({"message": r"a\*c"}, {"message": "abc"}, False),
    ({"message|contains": "b.d"}, {"message": "aB.Dc"}, True),
    ({"message|contains": "b.d"}, {"message": "abxdc"}, False),
    ({"message|contains|cased": "B"}, {"message": "abc"}, False),
    ({"message|startswith": "ab"}, {"message": "ABc"}, True),
    ({"message|startswith": "ab"}, {"message": "cab"}, False),
    ({"message|endswith": "bc"}, {"message": "aBC"}, True),
    ({"message|endswith": "bc"}, {"message": "bca"}, False),
    ({"message|contains": ["x", "b"]}, {"message": "abc"}, True),
    ({"message|contains|all": ["a", "b"]}, {"message": "b a"}, True),
    ({"message|contains|all": ["a", "x"]}, {"message": "b a"}, False),
    ({"message|re": "a.c$"}, {"message": "xabc"}, True),
    ({"message|re": "a.c"}, {"message": "ABC"}, False),
    ({"message|re|i": "a.c"}, {"message": "ABC"}, True),
    ({"message|re": "a.c"}, {"message": "a\nc"}, False),
    ({"message|re|s": "a.c"}, {"message": "a\nc"}, True),
    ({"message|re|m": "^c"}, {"message": "a\nc"}, True),
    ({"src_endpoint.ip|cidr": "10.0.0.0/8"}, {"src_endpoint.ip": "10.200.0.1"}, True),
    ({"src_endpoint.ip|cidr": "10.0.0.0/8"}, {"src_endpoint.ip": "11.0.0.1"}, False),
    ({"src_endpoint.ip|cidr": "fd00::/8"}, {"src_endpoint.ip": "fd00::1"}, True),
    ({"src_endpoint.ip|cidr": "10.0.0.0/8"}, {"src_endpoint.ip": "10.0.0.x"}, False),
    ({"user.name|exists": True}, {"user.name": "a"}, True),
    ({"user.name|exists": True}, {}, False),
    ({"user.name|exists": False}, {}, True),
    ({"user.name": None}, {}, True),
    ({"user.name": None}, {"user.name": "a"}, False),
    ({"user.name": ""}, {"user.name": ""}, True),
    ({"user.name": ""}, {}, False),
    ({"src_endpoint.port": 22}, {"src_endpoint.port": 22}, True),
    ({"src_endpoint.port": "22"}, {"src_endpoint.port": 22}, True),
    ({"status_code": 404}, {"status_code": "404"}, True),
    ({"status_code": 404}, {"status_code": "four"}, False),
    ({"duration|gt": 5}, {"duration": 6}, True),
    ({"duration|gt": 5}, {"duration": 5}, False),
    ({"duration|gte": 5}, {"duration": 5}, True),
    ({"duration|lt": 5}, {"duration": 4}, True),
    ({"duration|lt": 5}, {"duration": 5}, False),
    ({"duration|lte": 5}, {"duration": 5}, True),
    ({"duration|lt": 5}, {}, False),
    ({"message|neq": "a"}, {"message": "b"}, True),
    ({"message|neq": "a"}, {"message": "A"}, False),
    ({"message|neq": "a"}, {}, True),
    ({"is_mfa": False}, {"is_mfa": False}, True),
    ({"is_mfa": False}, {}, False),
    ({"user.name|fieldref": "actor.user.name"}, {"user.name": "A", "actor.user.name": "a"}, True),
    ({"user.name|fieldref": "actor.user.name"}, {"user.name": "a", "actor.user.name": "b"}, False),
    ({"user.name|fieldref": "actor.user.name"}, {"user.name": "a"}, False),
    (
        {"message|fieldref|startswith": "user.name"},
        {"message": "abc", "user.name": "AB"},
        True,
    ),
    ({"message|base64": "foo"}, {"message": "Zm9v"}, True),
    ({"message|base64offset|contains": "foobar"}, {"message": "Zm9vYmF6"}, False),
    ({"message|base64offset|contains": "foobar"}, {"message": "AGZvb2Jhcg=="}, True),
    ({"message|wide|base64": "a"}, {"message": "YQA="}, True),
    ({"message|windash|contains": " -e "}, {"message": "x /e y"}, True),
    ({"answers.rdata": "10.0.0.1"}, {"answers": [{"rdata": "a"}, {"rdata": "10.0.0.1"}]}, True),
    ({"answers.rdata": "10.0.0.1"}, {"answers": [{"rdata": "a"}, {}]}, False),
    ({"answers.rdata|exists": True}, {"answers": []}, False),
    ({"message": "ΑΣ"}, {"message": "ας"}, False),
    ({"message|contains": "Σ"}, {"message": "ΑΣ"}, True),
]


@pytest.mark.parametrize(("selection", "event", "expected"), MODIFIERS, ids=str)
def test_a_modifier_means_what_sigma_says(
    compiled: Any, selection: dict[str, Any], event: dict[str, Any], expected: bool
) -> None:
    detection = {"selection": selection, "condition": "selection"}
    assert matches(compiled(rule(1, detection)), event) is expected


@pytest.mark.parametrize(("selection", "event", "expected"), MODIFIERS, ids=str)
def test_not_is_true_exactly_where_the_selection_is_not(
    compiled: Any, selection: dict[str, Any], event: dict[str, Any], expected: bool
) -> None:
    detection = {"selection": selection, "condition": "not selection"}
    assert matches(compiled(rule(1, detection)), event) is not expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a and b", False),
        ("a or b", True),
        ("a and not b", True),
        ("not (a and b)", True),
        ("1 of sel_*", True),
        ("all of sel_*", False),
        ("1 of them", True),
        ("all of them", False),
        ("(a or b) and (sel_1 or sel_2) and not (b or sel_2)", True),
    ],
)
def test_conditions_combine_selections(compiled: Any, condition: str, expected: bool) -> None:
    detection = {
        "a": {"message": "yes"},
        "b": {"message": "no"},
        "sel_1": {"message|contains": "y"},
        "sel_2": {"message|contains": "n"},
        "condition": condition,
    }
    assert matches(compiled(rule(1, detection)), {"message": "yes"}) is expected


def test_keywords_are_found_in_the_text_columns(compiled: Any) -> None:
    pack = compiled(rule(1, {"words": ["evil", 4711], "condition": "words"}))
    assert matches(pack, {"message": "an EVIL thing"})
    assert matches(pack, {"unmapped": '{"pid":4711}'})
    assert not matches(pack, {"message": "fine", "status": "evil"})


def test_a_log_source_limits_classes_and_programs(compiled: Any) -> None:
    detection = {"any": {"User|exists": True}, "condition": "any"}
    pack = compiled(rule(1, detection, logsource={"product": "linux", "service": "sshd"}))
    event = {"class_uid": 3002, "service.name": "sshd", "user.name": "a"}
    assert matches(pack, event)
    assert matches(pack, event | {"source": "syslog"})
    assert not matches(pack, event | {"service.name": "sudo"})
    sudo = compiled(rule(1, detection, logsource={"product": "linux", "service": "sudo"}))
    ran = {"metadata.product.name": "sudo", "actor.user.name": "a"}
    assert matches(sudo, ran | {"class_uid": 1007})
    assert not matches(sudo, ran | {"class_uid": 4001})


REFUSED = [
    (
        rule(1, {"s": {"src_endpoint.ipp": "x"}, "condition": "s"}),
        "src_endpoint.ipp",
        "src_endpoint.ip",
    ),
    (rule(1, {"s": {"Imagee": "x"}, "condition": "s"}), "Imagee", ""),
    (rule(1, logsource={"product": "windows", "category": "nothing"}), "log source", ""),
    (rule(1, {"s": {"message|re": r"(a)\1"}, "condition": "s"}), "(a)", "RE2"),
    (rule(1, {"s": {"message|re": "(?=a)b"}, "condition": "s"}), "(?=a)b", "RE2"),
    (rule(1, {"s": {"message|nonsense": "a"}, "condition": "s"}), "nonsense", "endswith, exists"),
    (rule(1, {"s": {"message|expand": "%admins%"}, "condition": "s"}), "admins", "placeholders"),
    (rule(1, {"s": {"message": "a"}, "condition": "t"}), "t", ""),
    (
        rule(1, {"s": {"message": "a"}, "condition": "s |count() > 5"}),
        "pipe",
        "write-a-correlation",
    ),
    (rule(1, {"s": {"message": "a"}}), "condition", ""),
    (
        rule(1, {"s": {"message": "a"}, "condition": {"gte": 1}}),
        "condition is a mapping",
        "write-a-correlation",
    ),
    (rule(1, {"s": {"src_endpoint.ip|cidr": "10.0.0.1/8"}, "condition": "s"}), "CIDR", ""),
    (rule(1, headgate={"role": "nobody"}), "nobody", "src_endpoint"),
    (rule(1, headgate={"tset": {}}), "tset", "tests"),
    ({k: v for k, v in rule(1).items() if k != "id"}, "no id", "uuid"),
    ("title: [unclosed", "not YAML", "correct"),
    ("\x00", "not YAML", "correct"),
    ("- a list", "not a mapping", "title"),
    ("title: only", "", ""),
]


@pytest.mark.parametrize(("broken", "named", "remedy"), REFUSED, ids=lambda v: str(v)[:60])
def test_a_broken_rule_is_refused_alone_with_reason_and_remedy(
    compiled: Any, broken: Any, named: str, remedy: str
) -> None:
    result = compiled(broken, rule(2))
    assert [r.id for r in result.pack.rules] == [ID.format(2)]
    (refused,) = result.refused
    assert named in refused.reason
    assert refused.reason
    assert remedy in refused.remedy
    assert refused.remedy
    assert refused.path.endswith("0.yml")


def test_the_second_rule_with_an_id_is_refused(compiled: Any) -> None:
    result = compiled(rule(1), rule(1, title="Again"))
    assert [r.title for r in result.pack.rules] == ["Rule 1"]
    assert "taken" in result.refused[0].reason


def test_a_bundled_rule_without_tests_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yml").write_text(yaml.safe_dump(rule(1)), "utf-8")
    monkeypatch.setattr("alerts.compiler.drafts.BUNDLED", tmp_path)
    (refused,) = compile_rules([tmp_path]).refused
    assert "tests" in refused.reason


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="no such rule folder"):
        compile_rules([tmp_path / "nowhere"])


def correlation(number: int, counted: list[str], **keys: Any) -> dict[str, Any]:
    return {
        "title": f"Correlation {number}",
        "id": ID.format(number),
        "level": "high",
        "correlation": {
            "type": "event_count",
            "rules": counted,
            "group-by": ["device"],
            "timespan": "1m",
            "condition": {"gte": 3},
        }
        | keys,
    }


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rules": ["nobody"]}, "nobody"),
        ({"group-by": ["src_endpoint.ipp"]}, "src_endpoint.ipp"),
        ({"type": "value_count"}, "field"),
        ({"timespan": "soon"}, "soon"),
        ({"type": "temporal", "condition": "first and second"}, ""),
        ({"rules": [ID.format(2)]}, "own findings"),
    ],
)
def test_a_correlation_we_cannot_run_is_refused(
    compiled: Any, keys: dict[str, Any], named: str
) -> None:
    result = compiled(rule(1, name="first"), correlation(2, ["first"], **keys))
    assert not result.pack.correlations
    assert len(result.pack.rules) == 1
    assert named in result.refused[0].reason


def test_correlations_above_a_refused_rule_are_refused_too(compiled: Any) -> None:
    broken = rule(1, {"s": {"nofield": 1}, "condition": "s"}, name="first")
    above = correlation(2, ["first"]) | {"name": "second"}
    result = compiled(broken, above, correlation(3, ["second"]), rule(4))
    assert [r.id for r in result.pack.rules] == [ID.format(4)]
    assert {r.rule for r in result.refused} == {ID.format(1), ID.format(2), ID.format(3)}


def test_a_correlation_mutes_the_rules_it_counts_unless_it_generates(compiled: Any) -> None:
    quiet = compiled(rule(1, name="first"), correlation(2, ["first"]))
    assert [r.alerting for r in quiet.pack.rules] == [False]
    loud = compiled(rule(1, name="first"), correlation(2, ["first"], generate=True))
    assert [r.alerting for r in loud.pack.rules] == [True]
    assert loud.pack.rules[0].feeds == (ID.format(2),)


def test_only_chosen_levels_alert(compiled: Any) -> None:
    low = rule(1, level="low")
    assert not compiled(low).pack.rules[0].alerting
    assert compiled(low, levels=("low",)).pack.rules[0].alerting


def test_a_rule_switched_off_leaves_the_pack_but_stays_known(compiled: Any) -> None:
    result = compiled(
        rule(1, name="first"), correlation(2, ["first"]), disabled=(ID.format(1), "unknown")
    )
    assert not result.pack.rules
    assert len(result.pack.correlations) == 1
    assert not result.sources[ID.format(1)].enabled
    assert not result.refused


def test_a_correlation_carries_the_fields_it_needs(compiled: Any) -> None:
    counting = correlation(
        2,
        ["first"],
        type="value_count",
        condition={"gte": 3, "field": "dst_endpoint.ip"},
        **{"group-by": ["user.name"]},
    )
    result = compiled(rule(1, name="first"), counting)
    assert result.pack.rules[0].carry == ("dst_endpoint.ip", "user.name")


def test_every_bundled_rule_compiles_with_tags_tests_and_words() -> None:
    result = compile_rules([BUNDLED])
    assert not result.refused
    assert len(result.pack.rules) >= 17
    assert len(result.pack.correlations) >= 2
    for source in result.sources.values():
        described = source.rule
        about_attacks = "product: headgate" not in source.path.read_text("utf-8")
        assert described.techniques or not about_attacks, described.title
        assert described.tactics or not about_attacks, described.title
        assert described.falsepositives
        assert described.description
        assert described.name
        assert source.match
        assert source.no_match


def test_every_bundled_rule_passes_its_own_tests() -> None:
    outcomes = check_rules(compile_rules([BUNDLED]))
    assert [o for o in outcomes if not o.passed] == []
    assert len(outcomes) > 80


def test_a_wrong_test_of_a_rule_is_found(compiled: Any) -> None:
    tests = {"match": [{"message": "y"}, {"mesage": "x"}], "no_match": [{"message": "x"}]}
    outcomes = check_rules(compiled(rule(1, headgate={"tests": tests})))
    assert [o.passed for o in outcomes] == [False, False, False]
    assert "mesage" in outcomes[1].detail


def test_operators_may_be_in_capitals_unless_a_selection_is_named_so(tmp_path: Path) -> None:
    document = {
        "title": "Capitals",
        "id": str(UUID(int=7 + (4 << 76) + (8 << 60))),
        "logsource": {"category": "process_creation", "product": "windows"},
        "detection": {
            "a": {"Image": "a.exe"},
            "NOT": {"CommandLine": "b"},
            "condition": ["a AND NOT", "a OR NOT"],
        },
    }
    (tmp_path / "rule.yml").write_text(yaml.safe_dump(document), "utf-8")
    capitals = compile_rules([tmp_path])
    assert not capitals.refused
    document["detection"]["condition"] = ["a and NOT", "a or NOT"]  # type: ignore[index]
    (tmp_path / "rule.yml").write_text(yaml.safe_dump(document), "utf-8")
    assert compile_rules([tmp_path]).pack == capitals.pack
