"""The text of a rule before it is a file: does it compile, where not, and do its tests pass?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.model_rule_files import read_models
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.rule_tests import RuleTestOutcome, check_rules
from alerts.rulebook.style import StyleWarning, lint_files
from alerts.rulepack.locations import rule_folders, store_folder
from alerts.rulepack.rule_pack import Correlation, ModelRule, Query, Rule
from infra.config.settings import Settings
from infra.errors import Usage

_TextRule: TypeAlias = Rule | Correlation | Query | ModelRule

MOST_TEST_EVENTS = 10_000
"""Events of one rule's tests that are made where somebody waits for the answer."""
DRAFT_FILE = "draft.yml"
_PARSER_LINE = re.compile(r"\bline (\d+)\b")
_QUOTED = re.compile(r"['`\"]([^'`\"\n]{1,200})['`\"]")


@dataclass(frozen=True)
class TextProblem:
    """Why a text is no rule, and what to do; `line`: where, from 1, None where that is not known.
    """  # fmt: skip

    rule: str
    reason: str
    remedy: str
    line: int | None


@dataclass(frozen=True)
class CheckedText:
    """What a text holds. `untested`: ids of rules whose tests need Spark, or are too large;
    `odd`: what is odd about it though it loads."""

    rules: tuple[_TextRule, ...]
    problems: tuple[TextProblem, ...]
    outcomes: tuple[RuleTestOutcome, ...]
    untested: tuple[str, ...]
    odd: tuple[StyleWarning, ...]

    @property
    def ids(self) -> frozenset[str]:
        """Ids of its rules."""
        return frozenset(rule.id for rule in self.rules)


def check_text(settings: Settings, text: str, *, tests: bool = True) -> CheckedText:
    """Compile a text as a file of rules, beside those in force, and run the tests it brings.

    Nothing is kept. A rule in force that has the id of one in the text counts as replaced.
    """
    with TemporaryDirectory(prefix="headgate-draft-") as folder:
        path = Path(folder) / DRAFT_FILE
        # As bytes: line ends stay as they were typed.
        path.write_bytes(text.encode("utf-8"))
        compiled = compiled_text(settings, path)
        models = read_models([path], {}, levels=settings.alerts.levels)
        odd = tuple(lint_files([path]))
    mine = {i: s for i, s in compiled.sources.items() if s.path == path}
    refused = [(r.rule, r.reason, r.remedy) for r in compiled.refused if r.path == str(path)]
    refused += [("model", bad.reason, "put the text right") for bad in models.refused]
    problems = [
        TextProblem(rule, reason, remedy.replace(f"{folder}/", ""), _line(text, rule, reason))
        for rule, reason, remedy in refused
    ]
    outcomes: list[RuleTestOutcome] = []
    untested: list[str] = []
    if tests:
        able, untested = testable(compiled, mine)
        # `check_rules` takes no ids for all rules.
        outcomes = check_rules(compiled, able) if able else []
        outcomes += check_models(models) if models.sources else []
    rules = [source.rule for source in mine.values()]
    every = (*rules, *(source.rule for source in models.sources.values()))
    return CheckedText(every, tuple(problems), tuple(outcomes), tuple(untested), odd)


def compiled_text(settings: Settings, path: Path) -> Compiled:
    """A draft's file compiled alone, or beside the rules in force where it needs them."""
    levels, store = settings.alerts.levels, store_folder(settings)
    compiled = compile_rules([path], levels=levels, store=store)
    if not compiled.refused:
        return compiled
    # A correlation counts rules of other files, a filter narrows them, and a value may stand in a
    # folder's `placeholders.yml`.
    return compile_rules([path, *rule_folders(settings)], levels=levels, store=store)


def testable(compiled: Compiled, ids: Iterable[str]) -> tuple[list[str], list[str]]:
    """Which rules' tests can be run here and now, and which need Spark or would take long."""
    able: list[str] = []
    unable: list[str] = []
    for rule_id in ids:
        source = compiled.sources[rule_id]
        many = sum(map(_events, (*source.match, *source.no_match)))
        fits = many <= MOST_TEST_EVENTS and not isinstance(source.rule, Query)
        (able if fits else unable).append(rule_id)
    return able, unable


def _events(test: Any) -> int:
    """How many events a test makes; one that is written wrongly makes few, and fails."""
    if not isinstance(test, list):
        return 1
    times = (step.get("times", 1) if isinstance(step, Mapping) else 1 for step in test)
    return sum(n if isinstance(n, int) else 1 for n in times)


def require_good(checked: CheckedText) -> None:
    """Raises `Usage` unless the text holds a rule, all of it compiles and no test fails."""
    if checked.problems:
        first = checked.problems[0]
        where = f"line {first.line}: " if first.line else ""
        raise Usage(f"the text is refused: {where}{first.reason}; {first.remedy}")
    if not checked.rules:
        raise Usage("the text holds no rule; see docs/how-to/write-a-sigma-rule.md")
    failed = [outcome for outcome in checked.outcomes if not outcome.passed]
    if failed:
        first_failed = failed[0]
        must = "match" if first_failed.must_match else "not match"
        raise Usage(
            f"'{first_failed.title}' fails its own test {first_failed.number}, which must {must}: "
            f"{first_failed.detail}; correct the rule or the test"
        )


def _line(text: str, rule: str, reason: str) -> int | None:
    """The line that a refusal is about, as far as it says so."""
    lines = text.splitlines()
    if reason.startswith("not YAML") and (marks := _PARSER_LINE.findall(reason)):
        # The last mark is the problem's; those before say where its surroundings begin.
        return min(int(marks[-1]), max(len(lines), 1))
    quoted = _QUOTED.findall(reason)
    # `product: linux, service: sshdd` stands on no line as a whole: its last word is tried too.
    words = [*quoted, *(last[-1] for word in quoted if (last := word.split()))]
    return next((n for word in [*words, rule] if (n := _first(lines, word)) is not None), None)


def _first(lines: Collection[str], word: str) -> int | None:
    if not word:
        return None
    # `x` is no part of `linux`.
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    return next((n for n, line in enumerate(lines, 1) if whole.search(line)), None)
