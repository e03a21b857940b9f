"""`headgate rules test`: raw lines as tests, files from anywhere, reports for build servers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from alerts.cli.rule_tests import build
from alerts.compiler.compiler import compile_rules
from alerts.rulebook.rule_tests import RuleTestOutcome, check_rules
from infra.config.settings import load
from infra.errors import Usage

HEAD = """title: Root refused
name: root_refused
id: 00000000-0000-4000-8000-000000000001
logsource: {product: linux, service: sshd}
detection: {s: {status_id: 2, user.name: root}, condition: s}
headgate:
  tests:
"""
REFUSED = "Mar  5 12:00:00 h sshd[1]: Failed password for root from 10.0.0.5 port 22 ssh2"
LEASE = "Mar  5 12:00:00 h dhcpd: DHCPACK on 10.0.0.5 to aa:bb:cc:dd:ee:ff via eth0"
NTH = REFUSED.replace("port 22", "port 2{n}")
COUNTING = f"""title: Root refused often
id: 00000000-0000-4000-8000-000000000002
correlation:
  {{type: event_count, rules: [root_refused], group-by: [device], timespan: 1m,
   condition: {{gte: 3}}}}
headgate:
  tests:
    match:
      - [{{event: {{source: sshd, line: x}}, times: 3, vary: {{line: "{NTH}"}}}}]
"""


def outcomes(tmp_path: Path, tests: str, logsource: str = "") -> list[RuleTestOutcome]:
    path = tmp_path / "rule.yml"
    head = HEAD.replace("product: linux, service: sshd", logsource) if logsource else HEAD
    path.write_text(head + tests, "utf-8")
    compiled = compile_rules([path])
    assert not compiled.refused
    return check_rules(compiled)


def test_a_raw_line_goes_through_its_parser_and_the_matcher(tmp_path: Path) -> None:
    ann = REFUSED.replace("root", "ann")
    tests = f"""    match: [{{source: sshd, line: "{REFUSED}"}}]
    no_match: [{{source: sshd, line: "{ann}"}}, {{source: sshd, line: "{REFUSED}"}}]
"""
    assert [outcome.passed for outcome in outcomes(tmp_path, tests)] == [True, True, False]


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("{source: sshd, line: garbage}", "sshd cannot read the line: no syslog header"),
        ("{source: sshdd, line: x}", "no source 'sshdd', perhaps 'sshd' is meant"),
        ("{line: x}", "a raw line needs `source`"),
        ("{source: sshd, line: x, user.name: ann}", "a raw line has a source and a line"),
        (f'{{source: isc_dhcpd, line: "{LEASE}"}}', "isc_dhcpd makes an event of class 4004"),
    ],
)
def test_a_line_that_tests_nothing_is_told_with_the_reason(
    tmp_path: Path, test: str, reason: str
) -> None:
    (outcome,) = outcomes(tmp_path, f"    match: [{test}]\n")
    assert not outcome.passed
    assert reason in outcome.detail


def test_a_line_that_cannot_be_read_is_no_proof_that_a_rule_stays_quiet(tmp_path: Path) -> None:
    dead, other = outcomes(
        tmp_path,
        f'    no_match: [{{source: sshd, line: x}}, {{source: isc_dhcpd, line: "{LEASE}"}}]\n',
        "product: ocsf, category: authentication",
    )
    assert not dead.passed
    assert other.passed
    assert "class 4004 (DHCP Activity) of the line, the rule asks 3002" in other.detail


def run(home: Path, *words: str) -> int:
    parser = argparse.ArgumentParser()
    build(parser.add_subparsers())
    args = parser.parse_args(["test", *words])
    code: int = args.run(args, load(home=home))
    return code


def test_any_file_or_folder_is_tested_without_being_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root.yml").write_text(
        HEAD + f'    match: [{{source: sshd, line: "{REFUSED}"}}]\n', "utf-8"
    )
    counting = tmp_path / "count.yml"
    counting.write_text(COUNTING, "utf-8")
    home = tmp_path / "home"
    assert run(home, str(tmp_path)) == 0
    assert "2 of 2 tests passed" in capsys.readouterr().err
    # It counts a rule of the file beside it, whose own tests are not asked for.
    assert run(home, str(counting)) == 0
    assert "1 of 1 tests passed" in capsys.readouterr().err
    assert not home.exists()
    with pytest.raises(Usage, match="no such file or folder"):
        run(home, str(tmp_path / "none.yml"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(Usage, match="no rule is in there"):
        run(home, str(tmp_path / "empty"))


def test_rules_without_tests_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "root.yml"
    path.write_text(HEAD.partition("headgate:")[0], "utf-8")
    assert run(tmp_path / "home", str(path)) == 0
    assert "0 of 0 tests passed; 1 rules bring no test" in capsys.readouterr().err


def test_a_rule_may_count_rules_that_are_in_force(tmp_path: Path) -> None:
    path = tmp_path / "count.yml"
    path.write_text(COUNTING.replace("[root_refused]", "[ssh_login_failed]"), "utf-8")
    assert run(tmp_path / "home", str(path)) == 0


def failing(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    text = HEAD + '    match:\n      - {source: sshd, line: "a\\x01b"}\n'
    (folder / "root.yml").write_text(text, "utf-8")
    (folder / "broken.yml").write_text("title: [", "utf-8")
    return folder


def test_junit_has_a_case_for_each_test_and_each_refused_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = failing(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "home", str(folder), "--output", "junit") == 1
    root = ElementTree.fromstring(capsys.readouterr().out)
    case, broken = root.iter("testcase")
    assert (case.get("file"), case.get("line"), case.get("name")) == (
        "rules/root.yml",
        "9",
        "match 1",
    )
    assert "cannot read the line" in str(case[0].get("message"))
    assert "not YAML" in str(broken[0].get("message"))


def test_sarif_names_rule_file_line_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = failing(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "home", str(folder), "--output", "sarif") == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (sarif_run,) = log["runs"]
    test, broken = sarif_run["results"]
    where = test["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "rules/root.yml"
    assert where["region"] == {"startLine": 9}
    assert test["ruleId"] == "00000000-0000-4000-8000-000000000001"
    rules = sarif_run["tool"]["driver"]["rules"]
    assert rules[broken["ruleIndex"]]["id"] == broken["ruleId"] == "broken"
