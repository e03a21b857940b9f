"""Every command imports what all packages register: that must not bring Spark or Arrow with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import Fatal
from reporting.reports import listed_report, reports
from tests.full import rest_full

HEAVY = {"pyspark", "pyarrow", "pandas", "numpy", "duckdb", "sqlglot", "fastapi", "sigma"}


def test_a_command_line_that_is_only_read_loads_no_engine() -> None:
    code = "import sys, headgate.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    modules = set(loaded.stdout.split())
    assert "infra.delta.catalog" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize(
    ("modules", "spared"),
    rest_full(
        2,
        [
            (
                "reporting.cli.report, reporting.document.archive",
                {"matplotlib", "pyarrow", "jinja2"},
            ),
            ("alerts.explain.explain", {"sigma", "pyarrow", "pandas", "pyspark"}),
            (
                "api.services.entities.leases, api.services.entities.user_evidence",
                {"fastapi", "pandas", "duckdb", "pyspark"},
            ),
            ("reporting.cli.ledger", {"pyspark", "pyarrow", "pandas", "numpy", "sqlglot"}),
        ],
    ),
)
def test_what_answers_one_question_loads_nothing_for_others(modules: str, spared: set[str]) -> None:
    code = f"import sys, headgate.packages, {modules}\nfrom reporting.reports import reports\n"
    # What makes tables of the lake known to DuckDB is part of each such command.
    code += "from pathlib import Path\nfrom infra.delta.duckdb_views import definitions\n"
    code += "reports()\ndefinitions(Path('lake'))\n"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}print(*sys.modules)"], capture_output=True, text=True
    )
    assert loaded.returncode == 0, loaded.stderr
    assert set(loaded.stdout.split()) & spared == set()


def test_a_report_is_listed_as_its_module_says() -> None:
    for listed in reports().values():
        module = listed.load()
        words = (module.NAME, module.DOC, getattr(module, "SUBJECT", None))
        assert words == (listed.name, listed.doc, listed.subject)
    assert {"daily", "device", "query"} <= reports().keys()


def test_a_report_whose_name_is_no_text_is_not_left_out_in_silence(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tally.py"
    file.write_text('NAME: str = "tally"\nDOC = "How many."\n')
    assert listed_report(file).name == "tally"
    file.write_text('NAME = "tal" + str()\nDOC = "How many."\n')
    with pytest.raises(Fatal, match=r"tally\.py: write NAME out as a text"):
        listed_report(file)


def test_values_are_bound_without_pandas() -> None:
    code = """
import sys, duckdb
from infra.delta.duckdb_views import without_pandas
with without_pandas():
    assert duckdb.connect().execute("SELECT $n + 1", {"n": 1}).fetchall() == [(2,)]
print("pandas" in sys.modules)
duckdb.connect().execute("SELECT $n + 1", {"n": 1})
print("pandas" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.split() == ["False", "True"], ran.stderr
