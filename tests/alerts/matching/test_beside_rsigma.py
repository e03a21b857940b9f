"""The benchmark's rules, written back as Sigma, say what our predicates say."""

from __future__ import annotations

import pytest

from alerts.rulepack.predicate import ANY_RUN, All, Either, Not, Test
from alerts.rulepack.rule_pack import Rule, RulePack
from bench.beside_rsigma import Unsayable, sayable, sigma_of

PATH, LINE = "process.path", "process.cmd_line"


def test_a_tree_is_written_as_selections_and_a_condition() -> None:
    node = All((
        Either((Test(PATH, "endswith", "\\cmd.exe"), Test(PATH, "endswith", "\\net.exe"))),
        Not(Test(LINE, "contains", "a*?")),
        Test(LINE, "like", parts=(("text", "x\\"), (ANY_RUN, ""), ("text", "y"))),
    ))  # fmt: skip
    assert sigma_of("r", node)["detection"] == {
        "s0": {f"{PATH}|endswith": ["\\\\cmd.exe", "\\\\net.exe"]},
        "s1": {f"{LINE}|contains": "a\\*\\?"},
        "s2": {LINE: "x\\\\*y"},
        "condition": "((s0) and not s1 and s2)",
    }


def test_what_sigma_has_no_word_for_is_left_out_and_not_bent() -> None:
    listed = Rule(id="l", title="t", predicate=Test("time", "hour", 3))
    plain = Rule(id="p", title="t", predicate=Test(LINE, "eq", "a", cased=True))
    with pytest.raises(Unsayable, match="hour"):
        sigma_of("l", listed.predicate)
    assert sayable(RulePack(rules=(listed, plain))).rules == (plain,)
    assert sigma_of("p", plain.predicate)["detection"]["s0"] == {f"{LINE}|cased": "a"}
