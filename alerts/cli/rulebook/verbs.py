"""`headgate rules`: which module each of its verbs has. Nothing else is imported here."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from infra.runtime.command_registry import Build

VERBS: dict[str, tuple[str, ...]] = {
    "alerts.cli.rules": ("list", "preview", "reach", "navigator"),
    "alerts.cli.rulebook.imports": ("import",),
    "alerts.cli.rulebook.packs": ("packs", "rollback"),
    "alerts.cli.rulebook.switches": ("enable", "disable"),
    "alerts.cli.rulebook.shadow": ("shadow", "promote", "drop"),
    "alerts.cli.backtest": ("backtest", "backtests"),
    "alerts.cli.cost": ("cost",),
    "alerts.cli.coverage": ("coverage",),
    "alerts.cli.rule_tests": ("test",),
    "alerts.cli.new_rule": ("new",),
    "alerts.cli.tuning": ("scorecard", "tune"),
    "alerts.cli.rulebook.thresholds": ("thresholds",),
    "alerts.cli.rulebook.lint": ("lint", "schema"),
}
"""The verbs of each module, in the order of the help."""


def build(subparsers: Any, modules: tuple[str, ...] = tuple(VERBS)) -> None:
    """Register `headgate rules` with its verbs, or with those of some modules alone."""
    rules = subparsers.add_parser("rules", help="list, test, switch rules on and off")
    verbs = rules.add_subparsers(dest="verb", required=True)
    for module in modules:
        import_module(module).build(verbs)


def build_of(verb: str) -> Build | None:
    """`build` with the module of one verb: one that switches a rule needs no Spark, no DuckDB.

    None where there is no such verb; the whole command then says which there are.
    """
    for module, verbs in VERBS.items():
        if verb in verbs:
            return partial(build, modules=(module,))
    return None
