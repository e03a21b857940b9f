"""`headgate rules test`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from alerts.cli import spark_rules
from alerts.compiler.compiler import RefusedRule
from alerts.compiler.model_rule_files import Models
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.outcome_reports import RefusedFile, junit, sarif
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import compiled_rules, rule_id_of
from alerts.rulebook.rule_tests import RuleTestOutcome
from alerts.rulebook.rules_anywhere import rules_at
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows
from infra.process.text_output import printable

_RULE_FILES = (".yml", ".yaml", ".py")
_Tested = tuple[list[RuleTestOutcome], list[RefusedFile], int]
"""What the tests came to, which rules are refused, and how many rules bring no test."""


def build(verbs: Any) -> None:
    """Add `test`."""
    tested = verbs.add_parser("test", help="run the events that rules bring as their tests")
    tested.add_argument(
        "rule",
        nargs="*",
        metavar="RULE",
        help="id or name, or any file or folder of rules; none: all rules in force",
    )
    add_output_option(tested, "junit", "sarif")
    tested.set_defaults(run=test_rules)


def test_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules test`: exit code 1 when a test fails or a rule is refused."""
    outcomes: list[RuleTestOutcome] = []
    refused: list[RefusedFile] = []
    untested = 0
    names = [rule for rule in args.rule if not _is_path(rule)]
    runs = [_in_force(names, settings)] if names or not args.rule else []
    runs += [_at(Path(rule), settings) for rule in args.rule if _is_path(rule)]
    for more_outcomes, more_refused, more_untested in runs:
        outcomes += more_outcomes
        refused += more_refused
        untested += more_untested
    _print(outcomes, refused, args.output)
    passed = sum(outcome.passed for outcome in outcomes)
    without = f"; {untested} rules bring no test" if untested else ""
    print(f"{passed} of {len(outcomes)} tests passed{without}", file=sys.stderr)
    for rule in refused:
        # A rule is what strangers publish: its words must not steer the terminal.
        print(printable(f"refused: {rule.rule} ({rule.path}): {rule.reason}"), file=sys.stderr)
    return 1 if refused or passed < len(outcomes) else 0


def _is_path(rule: str) -> bool:
    path = Path(rule)
    if path.exists():
        return True
    if path.suffix in _RULE_FILES or "/" in rule:
        raise Usage(f"{rule}: no such file or folder of rules")
    return False


def _in_force(names: list[str], settings: Settings) -> _Tested:
    """The tests of rules by id or name; without names those of all rules."""
    compiled, models = compiled_rules(settings), model_rules(settings)
    named = [(name, models.named(name)) for name in names]
    only = {rule_id_of(compiled, name) for name, model in named if model is None}
    judged = {model.rule.id for _, model in named if model is not None}
    outcomes = []
    if only or not names:
        outcomes += spark_rules.checked(compiled, only, settings)
    if judged or not names:
        outcomes += check_models(models, judged)
    if names:
        return outcomes, [], len(only | judged) - _rules_of(outcomes)
    refused = _refused(compiled.refused, models)
    return outcomes, refused, len(compiled.sources) + len(models.sources) - _rules_of(outcomes)


def _at(path: Path, settings: Settings) -> _Tested:
    """The tests of the rules in a file or folder."""
    rules = rules_at(path, settings)
    outcomes = []
    if rules.ids:
        outcomes += spark_rules.checked(rules.compiled, rules.ids, settings)
    outcomes += check_models(rules.models)
    refused = _refused(rules.refused, rules.models)
    count = len(rules.ids) + len(rules.models.sources)
    if not count and not refused:
        raise Usage(f"{path}: no rule is in there; see docs/how-to/write-a-sigma-rule.md")
    return outcomes, refused, count - _rules_of(outcomes)


def _refused(rules: Iterable[RefusedRule], models: Models) -> list[RefusedFile]:
    return [
        *(RefusedFile(r.rule, Path(r.path), f"{r.reason}; {r.remedy}") for r in rules),
        *(RefusedFile(bad.path.stem, bad.path, bad.reason) for bad in models.refused),
    ]


def _rules_of(outcomes: list[RuleTestOutcome]) -> int:
    return len({outcome.rule_id for outcome in outcomes})


def _print(outcomes: list[RuleTestOutcome], refused: list[RefusedFile], form: str) -> None:
    if form == "junit":
        print(junit(outcomes, refused))
        return
    if form == "sarif":
        print_document(sarif(outcomes, refused), indent=2)
        return
    rows = [outcome.row for outcome in outcomes if form != "table" or not outcome.passed]
    if rows or form != "table":
        print_rows(rows, form)
