"""Rules for a notebook: the objects that backtests and the live job run.

from headgate import rule_from, sql_rule

rule = sql_rule("SELECT event_uid FROM event WHERE status_id = 2 AND user_name = 'root'")
rule.findings(spark.table("silver.event").where("time >= '2026-11-20'")).show()
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alerts.compiler.compiler import compile_rules
from alerts.compiler.spark_rule_files import (
    FUNCTION,
    SQL,
    Asked,
    check_function,
    check_window,
)
from alerts.compiler.sql_check import check_sql
from alerts.rulepack.rule_pack import Query
from alerts.spark_rules.rule import QueryRule
from infra.errors import Usage

DRAFT = "draft"
"""Id of a rule that has no file yet."""


def rule_from(path: str | Path) -> QueryRule:
    """The rule in a file, YAML with SQL or Python; raises `Usage` when it is refused."""
    compiled = compile_rules([Path(path)])
    for refused in compiled.refused:
        raise Usage(f"{path} is refused: {refused.reason}; {refused.remedy}")
    if len(compiled.pack.queries) != 1:
        raise Usage(f"{path}: {len(compiled.pack.queries)} rules in SQL or Python; give one")
    return QueryRule(compiled.pack.queries[0])


def sql_rule(
    query: str, *, window: str = "", slide: str = "", group_by: Sequence[str] = ()
) -> QueryRule:
    """A draft in SQL over `event`; the words are those of a rule's file.

    Raises `Untranslatable` for what is no SELECT over `event` alone.
    """
    check_sql(query)
    return _draft(Asked(SQL, query, window, slide, tuple(group_by)))


def function_rule(
    source: str, *, window: str = "", slide: str = "", group_by: Sequence[str] = ()
) -> QueryRule:
    """A draft from the source of a function `rule(events)`, with all that it imports."""
    check_function(source)
    return _draft(Asked(FUNCTION, source, window, slide, tuple(group_by)))


def _draft(declared: Asked) -> QueryRule:
    check_window(declared)
    return QueryRule(
        Query(
            id=DRAFT,
            title=DRAFT,
            type=declared.type,
            text=declared.query,
            window_seconds=declared.window_seconds,
            slide_seconds=declared.slide_seconds,
            group_by=declared.group_by,
        )
    )
