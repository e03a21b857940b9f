"""A cluster's workers import our code from an archive, by a path that begins where they stand."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.spark.session import project_root

pytestmark = pytest.mark.full

LAYERS = ("alerts", "enrich", "infra", "ingest")
"""Packages of which functions run on workers."""

IMPORT = """
import importlib, sys
sys.path.insert(0, "code.zip")
for module in sys.argv[1:]:
    found = importlib.import_module(module).__file__
    assert found is None or found.startswith("code.zip/"), found
"""


def test_all_code_can_be_imported_from_an_archive(tmp_path: Path) -> None:
    root = project_root()
    files = [file for layer in LAYERS for file in (root / layer).rglob("*") if file.is_file()]
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(root))
    modules = [
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if file.suffix == ".py" and file.stem != "__main__"
    ]
    assert len(modules) > 300
    ran = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT, *modules], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
