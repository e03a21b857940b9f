"""Rules on the benign day: alerts as job `alert` makes them, and few of bundled rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.backtest.fold import Brief
from headgate.cli import main
from headgate.lab.rule_noise import (
    BAR,
    SEVERE,
    alerts_of_day,
    by_level,
    by_rule,
    chosen_rules,
    host_days,
)
from headgate.lab.site import ADMIN, HOSTS
from headgate.lab.write import make_day, shortened, write_day
from infra.config.settings import load

LOGIN = "33333333-0000-4000-8000-000000000042"
RULE = f"""
title: A login
name: a_login
id: {LOGIN}
logsource: {{product: linux, service: sshd}}
detection:
  accepted: {{activity_id: 1, status_id: 1}}
  people: {{user.name: [hal, gita], src_endpoint.ip|exists: true}}
  condition: accepted and people
level: medium
---
title: Two logins
id: {LOGIN[:-1]}3
correlation:
  type: event_count
  rules: [a_login]
  group-by: [device]
  timespan: 15m
  generate: true
  condition: {{gte: 2}}
level: high
"""


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, float], Path]:
    def written(seed: int, hours: float) -> Path:
        folder = tmp_path_factory.mktemp("lab") / "day"
        write_day(shortened(make_day(seed), hours), folder)
        return folder

    return written


def test_alerts_name_the_device_and_correlations_count(
    write: Callable[[int, float], Path], tmp_path: Path
) -> None:
    rule = tmp_path / "login.yml"
    rule.write_text(RULE)
    settings = load(home=tmp_path)
    compiled = chosen_rules(rule, settings)
    assert compiled.refused == ()
    folder = write(2, 24)
    # Windows and Zeek have most lines, and none is of the rule.
    for log in folder.glob("[wz]*.log"):
        log.write_text("")
    alerts = alerts_of_day(folder, compiled, settings)
    assert {alert.level for alert in alerts} == {"medium", "high"}
    assert {alert.entity_value for alert in alerts} == {ADMIN.mac}
    assert by_rule(alerts, compiled)[0]["rule"] == "Two logins"


def test_bundled_rules_are_quiet_in_the_morning(
    write: Callable[[int, float], Path], tmp_path: Path
) -> None:
    folder = write(1, 8.5)
    settings = load(home=tmp_path)
    alerts = alerts_of_day(folder, chosen_rules(None, settings), settings)
    assert sum(alert.level in SEVERE for alert in alerts) <= BAR * host_days(folder)
    assert any(alert.level == "medium" for alert in alerts), "nothing was matched at all"


@pytest.mark.full
def test_bundled_rules_hold_the_bar_over_a_working_week(
    write: Callable[[int, float], Path], tmp_path: Path
) -> None:
    settings = load(home=tmp_path)
    compiled = chosen_rules(None, settings)
    days = [write(seed, 24) for seed in (1, 2, 3, 4, 5)]
    severe = sum(
        alert.level in SEVERE for day in days for alert in alerts_of_day(day, compiled, settings)
    )
    assert severe / sum(map(host_days, days)) <= BAR


def brief(rule_id: str, level: str, about: str) -> Brief:
    return Brief(
        alert_id=f"{rule_id}-{about}", rule_id=rule_id, level=level, entity_type="device",
        entity_value=about, key=about, first=0, last=0, received=0, count=1, status="leased",
        title="T",
    )  # fmt: skip


def test_alerts_are_counted_by_level() -> None:
    alerts = [brief("a", "high", "x"), brief("a", "high", "y"), brief("b", "critical", "x")]
    rows = {row["level"]: row for row in by_level(alerts, 10)}
    assert rows["high"] == {"level": "high", "alerts": 2, "per_host_day": 0.2, "rules": 1}
    assert rows["low"]["alerts"] == 0
    assert rows["high and critical"]["per_host_day"] == 0.3


def test_a_path_without_rules_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "alerts", str(tmp_path), "--rules", str(tmp_path / "none")]) == 2
    assert "no such file or folder of rules" in capsys.readouterr().err


def test_the_command_counts(
    write: Callable[[int, float], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = tmp_path / "login.yml"
    rule.write_text(RULE)
    folder = write(1, 1)
    assert main(["lab", "alerts", str(folder), "--rules", str(rule), "--output", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[-1] == {
        "level": "high and critical", "alerts": 0, "per_host_day": 0.0, "rules": 0,
    }  # fmt: skip
    assert f"2 rules (0 refused), {len(HOSTS)} hosts" in err
