"""Every command imports what all packages register: that must not bring Spark or Arrow with it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"pyspark", "pyarrow", "pandas", "numpy", "duckdb", "sqlglot", "fastapi", "sigma"}


def test_a_command_line_that_is_only_read_loads_no_engine() -> None:
    code = "import sys, headgate.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    modules = set(loaded.stdout.split())
    assert "infra.delta.catalog" in modules
    assert modules & HEAVY == set()
