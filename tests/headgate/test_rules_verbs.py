"""`headgate rules VERB` imports the module of that verb alone."""

from __future__ import annotations

import argparse
import subprocess
import sys

from alerts.cli.rulebook.verbs import VERBS, build, build_of
from infra.runtime.command_registry import COMMANDS, Build

NOT_TO_SWITCH_A_RULE = {"duckdb", "pandas", "ahocorasick_rs", "sqlglot"}
"""Packages that take long to be imported, and that switching a rule has no use for."""


def verbs_of(build: Build) -> list[str]:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    build(subparsers)
    for action in subparsers.choices["rules"]._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    return []


def test_each_verb_is_that_of_its_module() -> None:
    assert verbs_of(build) == [verb for verbs in VERBS.values() for verb in verbs]
    for verbs in VERBS.values():
        for verb in verbs:
            only = build_of(verb)
            assert only is not None
            assert verbs_of(only) == list(verbs)


def test_a_verb_that_there_is_not_is_left_to_the_whole_command() -> None:
    assert COMMANDS["rules"].load_verb("enabel") is None
    assert COMMANDS["rules"].load_verb("--help") is None


def test_switching_a_rule_imports_neither_duckdb_nor_the_matcher() -> None:
    run = (
        "import sys; from headgate.cli import main\n"
        "try: main(['rules', 'enable', '--help'])\n"
        "except SystemExit: print('modules', *sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, check=True
    ).stdout
    usage, _, modules = shown.partition("modules ")
    assert "headgate rules enable" in usage
    assert NOT_TO_SWITCH_A_RULE.isdisjoint(modules.split())
