"""What `headgate rules` does with rules in SQL and Python: each starts Spark when it must."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from alerts.compiler.compiler import Compiled
from alerts.rulepack.rule_pack import Query
from infra.config.settings import Settings

if TYPE_CHECKING:
    from alerts.rulebook.rule_tests import RuleTestOutcome


def checked(compiled: Compiled, only: Collection[str], settings: Settings) -> list[RuleTestOutcome]:
    """The tests of all rules, or of some; Spark is started for the first that needs it."""
    from alerts.rulebook.rule_tests import check_rules

    with ExitStack() as stack:

        def spark() -> Any:
            from alerts.spark_rules.rule_tests import running

            return stack.enter_context(running(settings))

        return check_rules(compiled, only, cache(spark))


def preview_spark_rule(
    settings: Settings, query: Query, since: datetime, limit: int
) -> tuple[list[dict[str, Any]], int, int]:
    """As `alerts.spark_rules.rule_tests.preview`."""
    from alerts.spark_rules import rule_tests

    return rule_tests.preview_query(settings, query, since, limit)


def import_function(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules import FILE.py`."""
    from alerts.rulebook import import_function as query_import

    imported = query_import.import_function(settings, args.folder)
    if args.output == "json":
        print(
            json.dumps(
                {
                    "rule": imported.query.id,
                    "tests": imported.tests,
                    "pack": imported.pack,
                },
                indent=2,
            )
        )
    print(
        f"rule {imported.query.id} passed {imported.tests} tests; it "
        "runs from the next batch on "
        f"(rule pack {imported.pack})",
        file=sys.stderr,
    )
    return 0
