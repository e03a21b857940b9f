"""Every command that prints rows or a record prints them for programs as well."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from infra.process.table_output import OUTPUT_FORMS
from infra.runtime.command_registry import COMMANDS

SENTENCE = "does one thing and says so in a sentence, or nothing"
RUNS_ON = "runs until it is stopped"
TOKEN = "prints a token alone, so that a script can take it"
FILE = "its output is a file's content or a file's name"
NO_ROWS = {
    "up": RUNS_ON,
    "run": RUNS_ON,
    "api": RUNS_ON,
    "demo": RUNS_ON,
    "mcp": RUNS_ON,
    "listen": RUNS_ON,
    "notebook": RUNS_ON,
    "replay": RUNS_ON,
    "webhooks deliver": RUNS_ON,
    "alerts tell-early": RUNS_ON,
    "backup create": FILE,
    "backup restore": SENTENCE,
    "completion": FILE,
    "console-link": TOKEN,
    "evidence export": FILE,
    "export": FILE,
    "import": SENTENCE,
    "install": FILE,
    "parse": "prints OCSF objects, which are JSON",
    "rules drop": SENTENCE,
    "rules navigator": FILE,
    "rules promote": SENTENCE,
    "rules rollback": SENTENCE,
    "rules new": FILE,
    "rules schema": FILE,
    "report run": FILE,
    "report due": FILE,
    "keys add": TOKEN,
    "keys rotate": TOKEN,
    "keys remove": SENTENCE,
    "accounts put": SENTENCE,
    "accounts remove": SENTENCE,
    "alerts close": SENTENCE,
    "gaps accept": SENTENCE,
    "indicators remove": SENTENCE,
    "jobs resume": SENTENCE,
    "kafka topics": SENTENCE,
    "models retrain": SENTENCE,
    "models use": SENTENCE,
    "suppress add": SENTENCE,
    "suppress remove": SENTENCE,
    "triage": SENTENCE,
    "webhooks retry": SENTENCE,
    "webhooks test": SENTENCE,
}
"""Commands without rows, and why."""
DOCUMENTS = {
    "alerts show": {"text", "json"},
    "alerts tail": {"line", "json"},
    "erase": {"text", "json"},
    "evidence verify": {"text", "json"},
    "explain": {"text", "json"},
    "reparse": {"text", "json"},
    "rules import": {"text", "json"},
}
"""Commands whose answer is one nested document, or one line after the other."""


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, object]]:
    """The commands at the ends of the tree, with the forms they print."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for word, inner in action.choices.items():
            yield from leaves(inner, f"{name} {word}")
    if not below or parser.get_default("run"):
        forms = [a.choices for a in parser._actions if "--output" in a.option_strings]
        yield name, forms[0] if forms else None


def every_command() -> dict[str, object]:
    forms: dict[str, object] = {}
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog="headgate")
        inner = parser.add_subparsers(dest="command", required=True)
        command.load()(inner)
        forms |= dict(leaves(inner.choices[name], name))
    return forms


@pytest.mark.parametrize(("name", "forms"), every_command().items())
def test_a_command_prints_its_rows_in_every_form(name: str, forms: object) -> None:
    if name in NO_ROWS:
        assert forms is None, f"{name} has --output: take it out of NO_ROWS"
    elif name in DOCUMENTS:
        assert set(forms or ()) == DOCUMENTS[name]  # type: ignore[call-overload]
    else:
        assert set(OUTPUT_FORMS) <= set(forms or ()), name  # type: ignore[call-overload]


def test_every_exception_is_a_command() -> None:
    assert (NO_ROWS.keys() | DOCUMENTS.keys()) - every_command().keys() == set()
