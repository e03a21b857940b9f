"""Sources are found by the text of their modules, and only these are loaded."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import ingest.sources
from ingest.parsing.source import source_modules

LOADED = """
import sys
from ingest.parsing.source import lookup
lookup("sshd")
print(*sorted(name for name in ("numpy", "pandas", "pyarrow", "pyspark") if name in sys.modules))
"""


def test_every_module_that_lists_sources_is_found() -> None:
    names = (m.name for m in pkgutil.walk_packages(ingest.sources.__path__, "ingest.sources."))
    listing = [name for name in names if hasattr(import_module(name), "SOURCES")]
    assert len(listing) > 40
    assert [module.__name__ for module in source_modules()] == sorted(listing)


def test_looking_up_a_source_loads_nothing_of_spark_or_arrow() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
