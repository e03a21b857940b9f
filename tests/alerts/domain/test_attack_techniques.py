"""ATT&CK's techniques: where each stands, and that rules tag them where ATT&CK has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import alerts.rules
from alerts.domain.attack import TACTICS, techniques_of
from alerts.domain.attack_techniques import _TECHNIQUES, placed, technique_name

RULES = sorted(Path(next(iter(alerts.rules.__path__))).rglob("*.yml"))


def test_every_technique_stands_under_tactics_in_their_order() -> None:
    assert len(_TECHNIQUES) == 216, "techniques of ATT&CK 18.1 that are in force"
    order = list(TACTICS)
    for uid, (name, *tactics) in _TECHNIQUES.items():
        assert name, uid
        assert tactics, uid
        assert tactics == sorted(set(tactics), key=order.index), uid


@pytest.mark.parametrize(
    ("uid", "tagged", "where"),
    [
        ("T1112", ["persistence"], {"persistence"}),
        ("T1112", [], {"persistence", "defense-evasion"}),
        ("T1176.001", ["execution"], {"persistence"}),
        ("T9999", ["impact"], {"impact"}),
    ],
)
def test_a_technique_stands_where_attack_has_it(
    uid: str, tagged: list[str], where: set[str]
) -> None:
    assert placed(uid, tagged) == where


def test_rules_that_come_along_tag_techniques_and_their_tactics_alike() -> None:
    assert len(RULES) > 80
    for rule in RULES:
        tags = re.findall(r"^\s+- (attack\.\S+)", rule.read_text("utf-8"), re.MULTILINE)
        tactics, techniques = techniques_of(tags)
        for uid in techniques:
            assert technique_name(uid), f"{rule.name}: {uid} is none of ATT&CK"
            assert placed(uid, tactics) <= set(tactics), f"{rule.name}: {uid} stands elsewhere"
        for tactic in tactics:
            stands = any(tactic in placed(uid, [tactic]) for uid in techniques)
            assert stands or not techniques, f"{rule.name}: no technique of {tactic}"
