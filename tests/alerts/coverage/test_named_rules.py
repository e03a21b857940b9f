"""Rules that the settings name: one that there is not is said, with what may have been meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.coverage.named_rules import say_unknown_rules, unknown_rules
from infra.config.settings import load
from infra.errors import Usage
from infra.runtime.check_registry import registered_findings


@pytest.fixture(scope="module")
def rule() -> tuple[str, str]:
    """Id and name of a bundled rule."""
    source = next(s for s in compile_rules([BUNDLED]).sources.values() if s.rule.name)
    return source.rule.id, source.rule.name


def test_ids_of_rules_and_of_our_own_alerts_are_known(
    tmp_path: Path, rule: tuple[str, str]
) -> None:
    alerts = {"preliminary_rules": {rule[0]: True}, "budgets": {"headgate-incident": 5}}
    assert unknown_rules(load(home=tmp_path, alerts=alerts)) == {}
    assert unknown_rules(load(home=tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_slip_is_said_with_the_nearest_id_at_start_and_by_the_doctor(
    tmp_path: Path, rule: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rule_id, name = rule
    slip = rule_id[:-1] + ("0" if rule_id[-1] != "0" else "1")
    settings = load(
        home=tmp_path,
        alerts={"preliminary_rules": {slip: True, "zzz": False}, "budgets": {name: 5}},
    )
    meant = f"write '{rule_id}' for rule {name}, if that is meant"
    none = "'headgate rules list' shows their ids"
    assert unknown_rules(settings) == {
        f"alerts.preliminary_rules '{slip}'": meant,
        "alerts.preliminary_rules 'zzz'": none,
        f"alerts.budgets '{name}'": meant,
    }
    say_unknown_rules(settings)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(
        f"alerts.preliminary_rules '{slip}': no rule has this id, so it is without effect; {meant}"
    )
    assert len(lines) == 3
    rules = [each for each in registered_findings(settings) if each.what == "rules"]
    assert [each.remedy for each in rules] == [meant, none, meant]


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(Usage, match=r"alerts.preliminary_levels.0 = 'hihg': .*'high'"):
        load(alerts={"preliminary_levels": ["hihg"]})
