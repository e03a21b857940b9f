"""`headgate rules lint`: each code where it belongs, and bundled rules without a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alerts.compiler.compiler import BUNDLED
from alerts.rulebook.style import STYLE_CODES, lint_files
from alerts.rulepack.locations import BUNDLED_MODELS
from infra.config.settings import load
from infra.errors import Usage
from tests.alerts.cli.test_rules import run

GOOD = """\
title: A login as root
name: root_login
id: 33333333-0000-4000-8000-000000000001
status: test
description: Somebody logged in as root.
author: A. Tester
date: 2026-11-21
tags: [attack.t1078]
logsource: {product: linux, service: sshd}
detection:
  login:
    user.name: root
    message|contains: session
  condition: login
falsepositives: [Administrators]
level: high
headgate:
  tests: {match: [{user.name: root}], no_match: [{user.name: ann}]}
"""

ODD = {
    "HG000": ("title: A login", "title: [A login"),
    "HG001": ("description: Somebody logged in as root.\n", ""),
    "HG002": ("level: high\n", ""),
    "HG003": ("status: test", "status: good"),
    "HG004": ("falsepositives: [Administrators]\n", ""),
    "HG005": ("[attack.t1078]", "[attack.initial-access]"),
    "HG006": ("author: A. Tester\n", ""),
    "HG007": ("2026-11-21", "2026-11-21\nmodified: 2026-11-20"),
    "HG008": ("as root\nname", "as root.\nname"),
    "HG009": ("no_match: [{user.name: ann}]", "no_match: []"),
    "HG010": ("name: root_login\n", ""),
    "HG011": ("falsepositives: [Administrators]", "falsepositives: [A]\nfalsepositive: [B]"),
    "HG012": ("  condition", "  other: {user.name: ann}\n  condition"),
    "HG013": ("status: test", "status: deprecated"),
    "HG014": ("message|contains: session", "message: '*session*'"),
    "HG016": ("  condition", "  timeframe: 5m\n  condition"),
}


def test_a_good_rule_gets_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "rule.yml"
    for condition in ("login", "1 of log*", "all of them", "not login"):
        path.write_text(GOOD.replace("condition: login", f"condition: {condition}"), "utf-8")
        assert lint_files([path]) == []


@pytest.mark.parametrize("code", ODD)
def test_each_code_is_told_alone_and_where(tmp_path: Path, code: str) -> None:
    path = tmp_path / "rule.yml"
    text = GOOD.replace(*ODD[code])
    assert text != GOOD
    path.write_text(text, "utf-8")
    (warning,) = lint_files([path])
    assert warning.code == code
    assert 1 <= warning.line <= text.count("\n")
    if code == "HG011":
        assert text.splitlines()[warning.line - 1].startswith("falsepositive:")
        assert "falsepositives?" in warning.detail


def test_an_id_of_two_files_is_told(tmp_path: Path) -> None:
    paths = [tmp_path / "a.yml", tmp_path / "b.yml"]
    for path in paths:
        path.write_text(GOOD, "utf-8")
    (warning,) = lint_files(paths)
    assert (warning.code, warning.path, warning.line) == ("HG015", paths[1], 3)
    assert set(STYLE_CODES) == {*ODD, "HG015"}


def test_bundled_rules_are_without_a_warning() -> None:
    files = [*sorted(BUNDLED.glob("*.yml")), *sorted(BUNDLED_MODELS.glob("*.yml"))]
    assert len(files) > 90
    odd = [(w.code, w.path.name, w.detail) for w in lint_files(files)]
    # What Headgate tells of itself is no technique of an attacker.
    assert [o for o in odd if not (o[0] == "HG005" and o[1].startswith("headgate_"))] == []


def test_the_command_prints_rows_and_sarif(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, path = load(home=tmp_path), tmp_path / "rule.yml"
    path.write_text(GOOD.replace("level: high\n", "").replace("name: root_login\n", ""), "utf-8")
    assert run(home, "lint", str(path), "--output", "json") == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["code"], row["path"]) for row in rows] == [
        ("HG010", str(path)),
        ("HG002", str(path)),
    ]
    assert run(home, "lint", str(path), "--output", "sarif") == 1
    (sarif,) = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in sarif["results"]] == ["HG010", "HG002"]
    assert sarif["tool"]["driver"]["rules"][10]["id"] == "HG010"
    assert run(home, "lint", str(path), "--ignore", "HG002,HG010") == 0
    assert run(home, "lint", "--codes", "--output", "csv") == 0
    assert "HG014" in capsys.readouterr().out
    for wrong in (["--ignore", "HG999"], ["/nowhere.yml"]):
        with pytest.raises(Usage):
            run(home, "lint", *wrong)
