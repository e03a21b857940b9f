"""The example for Airflow is a program, and what it runs is a command of ours."""

from __future__ import annotations

import ast
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "infra" / "deploy" / "airflow" / "headgate_reports.py.txt"


def test_the_example_runs_what_makes_due_reports_once_at_a_time() -> None:
    calls = [node for node in ast.walk(ast.parse(EXAMPLE.read_text("utf-8")))
             if isinstance(node, ast.Call)]  # fmt: skip
    given = {
        keyword.arg: ast.literal_eval(keyword.value)
        for call in calls
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    assert given["bash_command"] == "headgate report due"
    assert (given["max_active_runs"], given["catchup"]) == (1, False)
