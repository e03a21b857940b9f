"""Outcomes of rules' tests as reports that build servers read: JUnit's XML, and SARIF 2.1.0.

SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. JUnit's form has no
standard; what stands here is what Jenkins, GitLab and GitHub's actions have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import yaml

from alerts.rulebook.rule_tests import RuleTestOutcome

_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped, and what may steer a terminal."""
REFUSED = "refused"
"""The rule that results about files stand under which give no rule."""


@dataclass(frozen=True)
class RefusedFile:
    """A rule that does not run: which (id, else file), where and why."""

    rule: str
    path: Path
    reason: str


def junit(outcomes: Sequence[RuleTestOutcome], refused: Sequence[RefusedFile]) -> str:
    """One suite a rule, one case a test; a rule that is refused is an error."""
    root = ElementTree.Element("testsuites", name="headgate rules test")
    suites: dict[str, list[RuleTestOutcome]] = {}
    for outcome in outcomes:
        suites.setdefault(outcome.rule_id, []).append(outcome)
    for rule_id, tests in suites.items():
        failed = sum(not test.passed for test in tests)
        suite = _suite(root, tests[0].title, len(tests), failures=failed)
        for test in tests:
            case = _case(suite, rule_id, _name(test), test.path, _line(test))
            if not test.passed:
                ElementTree.SubElement(case, "failure", message=_xml(test.detail))
    for rule in refused:
        suite = _suite(root, rule.rule, 1, errors=1)
        case = _case(suite, rule.rule, REFUSED, rule.path, None)
        ElementTree.SubElement(case, "error", message=_xml(rule.reason))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode")


def sarif(outcomes: Sequence[RuleTestOutcome], refused: Sequence[RefusedFile]) -> Mapping[str, Any]:
    """A log with one run: a result for each test that failed and each rule that is refused."""
    failed = [outcome for outcome in outcomes if not outcome.passed]
    titles = {outcome.rule_id: outcome.title for outcome in failed}
    titles |= {rule.rule: "a rule that does not load" for rule in refused}
    places = {rule_id: index for index, rule_id in enumerate(titles)}
    results = [
        sarif_result(o.rule_id, places, f"{o.title}: {_name(o)}: {o.detail}", o.path, _line(o))
        for o in failed
    ] + [sarif_result(r.rule, places, f"refused: {r.reason}", r.path, None) for r in refused]
    return sarif_log("headgate rules test", titles, results)


def sarif_log(
    tool: str, titles: Mapping[str, str], results: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """A log with one run. `titles`: of each rule that a result may name, in their order."""
    driver = {
        "name": tool,
        "version": version("headgate"),
        "rules": [
            {"id": rule_id, "shortDescription": {"text": title}}
            for rule_id, title in titles.items()
        ],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": list(results)}],
    }


def sarif_result(
    rule: str,
    places: Mapping[str, int],
    text: str,
    path: Path,
    line: int | None,
    level: str = "error",
) -> dict[str, Any]:
    """A result in a file. `places`: where each rule stands in the log's list."""
    where: dict[str, Any] = {"artifactLocation": {"uri": _uri(path)}}
    if line is not None:
        where["region"] = {"startLine": line}
    return {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": where}],
    }


def _suite(
    root: ElementTree.Element, name: str, tests: int, failures: int = 0, errors: int = 0
) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": str(errors)}
    return ElementTree.SubElement(root, "testsuite", {"name": _xml(name), **counts})


def _case(
    suite: ElementTree.Element, rule: str, name: str, path: Path, line: int | None
) -> ElementTree.Element:
    where = {"file": _xml(str(_shown(path)))} | ({} if line is None else {"line": str(line)})
    return ElementTree.SubElement(
        suite, "testcase", {"classname": _xml(rule), "name": name, **where}
    )


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _name(outcome: RuleTestOutcome) -> str:
    return f"{_key(outcome)} {outcome.number}"


def _key(outcome: RuleTestOutcome) -> str:
    return "match" if outcome.must_match else "no_match"


def _shown(path: Path) -> Path:
    """Relative to the working folder where it lies below: a build server knows no other paths."""
    whole, here = path.resolve(), Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole


def _uri(path: Path) -> str:
    shown = _shown(path)
    # Relative where it can be: code scanning finds a result's line by its path in the repository.
    return shown.as_uri() if shown.is_absolute() else quote(shown.as_posix())


def _line(outcome: RuleTestOutcome) -> int | None:
    """The line of the test in its rule's file, from 1; None where that cannot be told."""
    return _lines(outcome.path).get((outcome.rule_id, _key(outcome), outcome.number))


@cache
def _lines(path: Path) -> Mapping[tuple[str, str, int], int]:
    """The line of each test of a file, by rule, kind and number."""
    if path.suffix not in (".yml", ".yaml"):
        return {}
    try:
        # Nodes share what aliases name, so composing them makes no copies.
        documents = list(yaml.compose_all(path.read_text("utf-8"), yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    lines = {}
    for document in documents:
        rule = getattr(_child(document, "id"), "value", "")
        tests = _child(_child(document, "headgate"), "tests")
        for key in ("match", "no_match"):
            listed = _child(tests, key)
            if isinstance(listed, yaml.SequenceNode):
                for number, test in enumerate(listed.value, 1):
                    lines[str(rule), key, number] = test.start_mark.line + 1
    return lines


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)
