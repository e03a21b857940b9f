"""Sources are found by the text of their modules, and only these are loaded."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import ingest.sources
from ingest.parsing.source import source_modules

ROOT = Path(ingest.sources.__file__).parents[2]
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


def test_sources_are_found_in_an_archive_as_executors_have_it(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for folder in ("ingest", "infra"):
            for file in (ROOT / folder).rglob("*"):
                if file.suffix in (".py", ".json"):
                    packed.write(file, file.relative_to(ROOT))
    # Not from the checkout, which an editable installation would find first.
    text = f"import sys; sys.path.insert(0, {str(archive)!r}); sys.meta_path = [\n" + (
        "    finder for finder in sys.meta_path if 'editable' not in str(finder).lower()]\n"
        "from ingest.parsing.source import lookup\n"
        "import ingest\nprint(ingest.__file__, lookup('sshd').name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.stdout.split(), done.stderr) == (
        [str(archive / "ingest" / "__init__.py"), "sshd"],
        "",
    )


def test_looking_up_a_source_loads_nothing_of_spark_or_arrow() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
