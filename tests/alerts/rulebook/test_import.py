"""`headgate rules import`: what loads, what is refused and why, what can never fire."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import __main__
from alerts.compiler.compiler import compile_rules
from alerts.domain.attack import layer
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.rulebook.public_rules import look_through, summary_json, summary_text
from alerts.rulebook.rule_choice import RuleCriteria
from alerts.rulebook.rule_tests import complete
from infra.config.settings import Settings, load
from infra.errors import Usage
from tests.alerts.public_rules import REFUSED, RULES, document


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder as a clone of public rules is: rules in folders, other YAML, a licence."""
    folder = tmp_path / "clone"
    for number, rule in enumerate(RULES):
        path = folder / "rules" / f"part{number % 7}" / f"rule_{number}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document(number, rule), "utf-8")
    for number, rule in enumerate(REFUSED):
        path = folder / "rules" / f"bad_{number}.yml"
        path.write_text(document(1000 + number, rule), "utf-8")
    (folder / ".github").mkdir()
    (folder / ".github" / "ci.yml").write_text("on: push\n", "utf-8")
    (folder / "LICENSE.md").write_text("A licence\n", "utf-8")
    return folder


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["rules", *words])
    code: int = args.run(args, settings)
    return code


def test_every_style_of_public_rules_loads(clone: Path) -> None:
    report = look_through(clone, ())
    expected = {f"bad_{number}.yml" for number in range(len(REFUSED))}
    assert {Path(r.path).name for r in report.compiled.refused} == expected
    assert len(report.loaded) == len(RULES) >= 60


SIMPLE = """\
title: {name}
name: {name}
id: 44444444-0000-4000-8000-00000000000{number}
status: {status}
level: {level}
logsource: {{product: {product}, category: process_creation}}
detection:
  tool: {{Image|endswith: /{name}}}
  condition: tool
"""
BURST = """\
title: Much of wget
id: 44444444-0000-4000-8000-000000000009
status: test
level: high
correlation:
  {type: event_count, rules: [wget], group-by: [Computer], timespan: 5m, condition: {gte: 5}}
"""


def test_only_what_is_wanted_is_imported_and_what_is_left_out_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, into = tmp_path / "clone", tmp_path / "into"
    folder.mkdir()
    rules = (
        *(("curl", "stable", "high", "linux"), ("wget", "experimental", "low", "linux")),
        *(("cmd", "deprecated", "high", "windows"), ("calc", "unsupported", "low", "nowhere")),
        ("notepad", "test", "low", "windows"),
    )
    for number, (name, status, level, product) in enumerate(rules):
        values = {"status": status, "level": level, "product": product}
        (folder / f"{name}.yml").write_text(SIMPLE.format(number=number, name=name, **values))
    (folder / "burst.yml").write_text(BURST)

    usual = look_through(folder, ())
    assert {s.rule.name or s.rule.title for s in usual.loaded} == {
        *("curl", "wget", "notepad", "Much of wget")
    }
    assert usual.left_out == {"status deprecated": 1, "status unsupported": 1}
    assert usual.compiled.refused == ()
    asked = look_through(folder, (), RuleCriteria(statuses=("deprecated", "unsupported")))
    assert [s.rule.name for s in asked.loaded] == ["cmd"]
    assert len(asked.compiled.refused) == 1

    assert (
        run(load(home=tmp_path), *("import", str(folder), "--level", "high", "--into", str(into)))
        == 0
    )
    shown = capsys.readouterr().out.splitlines()
    assert {"left out 1: level low", "left out 1: status deprecated"} <= set(shown)
    # The correlation is of a level that is wanted, and nothing without the rule that it counts.
    assert {path.name for path in into.glob("*.yml")} == {"curl.yml", "burst.yml", "wget.yml"}


def test_refused_rules_are_grouped_by_reason_with_examples_and_remedies(clone: Path) -> None:
    groups = {group.kind: group for group in look_through(clone, ()).groups}
    assert set(groups) == {rule["refused"] for rule in REFUSED}
    field = groups["field without a mapping"]
    assert field.named == {"NoSuchField": 1}
    assert all(example.remedy for group in groups.values() for example in group.examples)
    assert sum(group.count for group in groups.values()) == len(REFUSED)


def test_a_rule_whose_sources_nobody_configured_can_never_fire(clone: Path) -> None:
    report = look_through(clone, ("zeek", "okta"))
    needs = {source.rule.sources[0] for source in report.never if hasattr(source.rule, "sources")}
    assert {"windows_xml", "aws_cloudtrail"} <= needs
    assert not needs & {"okta", "zeek:smb_files"}
    assert look_through(clone, ()).never == ()


def test_author_and_licence_stay_with_the_rule_and_its_file(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "own"
    home = load(home=tmp_path)
    assert run(home, "import", str(clone), "--into", str(into), "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["copied_files"] == len(RULES)
    assert (into / "LICENSE.md").read_text("utf-8") == "A licence\n"
    again = compile_rules([into])
    assert not again.refused
    assert {(r.author, r.license) for r in again.pack.rules} == {
        ("A. Tester, B. Tester", "DRL-1.1")
    }
    original = next(clone.rglob("rule_3.yml"))
    assert next(into.rglob("rule_3.yml")).read_bytes() == original.read_bytes()


def test_the_report_is_told_as_json_and_as_text(clone: Path) -> None:
    report = look_through(clone, ("okta",))
    told: dict[str, Any] = json.loads(json.dumps(summary_json(report)))
    assert told["loaded"] == len(RULES)
    assert told["refused"] == len(REFUSED)
    assert told["licenses"] == {"DRL-1.1": len(RULES)}
    assert {group["reason"] for group in told["refused_by_reason"]} == {
        rule["refused"] for rule in REFUSED
    }
    text = "\n".join(summary_text(report))
    assert "NoSuchField (1)" in text
    assert "never fires" in text


def test_the_command_imports_and_says_what_to_do_next(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = load(home=tmp_path)
    assert run(home, "import", str(clone), "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["loaded"] == len(RULES)
    assert run(home, "import", str(clone), "--into", str(tmp_path / "own")) == 0
    assert "alerts.rules" in capsys.readouterr().err


@pytest.mark.parametrize("into", [None, "inside"])
def test_a_folder_that_cannot_be_used_is_a_usage_error(clone: Path, into: str | None) -> None:
    folder = clone if into else clone / "nowhere"
    with pytest.raises(Usage, match="lies inside" if into else "no such folder"):
        run(load(home=clone.parent), "import", str(folder), "--into", str(clone / "inside"))


def test_imported_rules_match_what_they_describe_and_equal_plain_evaluation(clone: Path) -> None:
    pack = look_through(clone, ()).compiled.pack
    sysmon = {"source": "windows_xml", "metadata.product.name": "Sysmon"}
    rows = [
        complete(
            sysmon | {"event_uid": "registry", "class_uid": 201002, "metadata.event_code": "13",
            "reg_value.path": r"HKU\S\Software\Microsoft\Windows\CurrentVersion\Run",
            "reg_value.name": "x", "reg_value.data": r"C:\Users\a\AppData\e.exe"}
        ),
        complete(
            sysmon | {"event_uid": "access", "class_uid": 1007, "metadata.event_code": "10",
            "process.path": r"C:\Windows\system32\LSASS.exe",
            "unmapped": r'{"GrantedAccess":"0x1410","CallTrace":"C:\\x\\dbgcore.dll+1"}'}
        ),
        complete(
            sysmon | {"event_uid": "hash", "class_uid": 1007, "metadata.event_code": "1",
            "process": {"hashes": [
                {"algorithm": "Imphash", "value": "0123456789abcdef0123456789abcdef"}]}}
        ),
        complete(
            {"source": "aws_cloudtrail", "event_uid": "cloud", "class_uid": 6003,
            "api.operation": "CreateUser", "api.service.name": "iam.amazonaws.com",
            "unmapped": '{"requestParameters":{"userName":"ADMIN2"}}'}
        ),
    ]  # fmt: skip
    found = Matcher(pack).match(event_batch(rows)).to_pylist()
    pairs = {(row["rule_id"], row["event_uid"]) for row in found}
    assert pairs == brute_force(pack, rows)
    assert {uid for _, uid in pairs} == {"registry", "access", "hash", "cloud"}


def test_hundreds_of_rules_compile_at_a_pace_that_takes_thousands_in_a_minute(
    tmp_path: Path,
) -> None:
    count = 320
    for number in range(count):
        path = tmp_path / f"{number}.yml"
        path.write_text(document(number, RULES[number % len(RULES)]), "utf-8")
    begin = time.process_time()
    assert len(compile_rules([tmp_path]).pack.rules) == count
    assert (time.process_time() - begin) / count * 3800 < 120


def test_coverage_is_a_navigator_layer_of_the_rules_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(load(home=tmp_path), "navigator") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["versions"]["layer"] == "4.5"
    assert shown["domain"] == "enterprise-attack"
    assert len(shown["techniques"]) > 10
    assert all(one["techniqueID"].startswith("T1") for one in shown["techniques"])


def test_a_technique_scores_its_rules_and_a_parent_shows_its_parts() -> None:
    rules = [("b", ("T1059.001", "T1059.001")), ("a", ("T1059.001",)), ("c", ("T1003",))]
    techniques = {one["techniqueID"]: one for one in layer(rules)["techniques"]}
    assert techniques["T1059.001"]["score"] == 2
    assert techniques["T1059.001"]["comment"] == "a\nb"
    assert "score" not in techniques["T1059"]
    assert techniques["T1059"]["showSubtechniques"]
    assert techniques["T1003"]["score"] == 1
