"""What notebooks, scripts and rules import.

    import headgate

    hg = headgate.open()
    hg.sql("SELECT class_name, count(*) AS events FROM silver.events GROUP BY 1").pandas()
    hg.lease("10.20.30.117", "2026-11-20T14:05:07Z")

The names in `__all__` are promised: they keep their meaning within a major version. Nothing else
is. Importing this starts neither Spark nor DuckDB; what needs them loads them when it is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate import old_paths
from infra.errors import Fatal, HeadgateError, Retryable, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from alerts.spark_rules.notebook import function_rule, rule_from, sql_rule
    from headgate import charts
    from headgate.client import Headgate
    from headgate.lake_tables import LakeTable
    from headgate.result import QueryResult
    from headgate.rules import BacktestReport, RuleBook, RuleDraft

__all__ = [
    "BacktestReport",
    "Fatal",
    "Headgate",
    "HeadgateError",
    "LakeTable",
    "QueryResult",
    "Retryable",
    "RuleBook",
    "RuleDraft",
    "Usage",
    "charts",
    "function_rule",
    "open",
    "rule_from",
    "sql_rule",
]

_FROM = {
    "BacktestReport": "headgate.rules",
    "Headgate": "headgate.client",
    "LakeTable": "headgate.lake_tables",
    "QueryResult": "headgate.result",
    "RuleBook": "headgate.rules",
    "RuleDraft": "headgate.rules",
    "function_rule": "alerts.spark_rules.notebook",
    "rule_from": "alerts.spark_rules.notebook",
    "sql_rule": "alerts.spark_rules.notebook",
}
"""Where a name is defined: loaded when it is first used, as some need Spark's library."""

old_paths.install()


def open(
    home: str | Path | None = None,
    config: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
) -> Headgate:
    """The lake of a home, to read from and to work with its rules.

    `home`: its folder (none: that of the settings, `.headgate` by default). `config`: the settings'
    file (none: as the command `headgate` finds it). `spark`: a session to use; none: one is started
    when something needs Spark. Makes nothing: raises `Usage` where there is no lake, naming the
    place it looked at and lakes that lie near.
    """
    from headgate.client import open_client

    return open_client(home, config, spark)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext headgate` in a notebook: gives it `%%headgate`."""
    from headgate.notebook_magic import register_magic

    register_magic(shell)


def __getattr__(name: str) -> Any:
    """A promised name that is loaded when it is asked for."""
    if name == "charts":
        from importlib import import_module

        return import_module("headgate.charts")
    if name not in _FROM:
        raise AttributeError(f"headgate has no '{name}'; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    """What is promised, for completion."""
    return list(__all__)
