"""Each notebook runs from top to bottom on the demo's lake, with `import headgate` alone."""

from __future__ import annotations

import ast
import json
import tarfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.full import rest_full

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OTHERS = {"headgate", "datetime"}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A home with the demo's tables, for one notebook alone."""
    with tarfile.open(ROOT / "tests" / "upgrade" / "home.tar.xz") as packed:
        packed.extractall(tmp_path / "home", filter="data")
    (tmp_path / "rules").mkdir()
    return tmp_path


@pytest.mark.parametrize("path", rest_full(1, NOTEBOOKS), ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_HOME", str(demo / "home"))
    monkeypatch.setenv("HEADGATE_CONFIG", str(ROOT / "samples" / "demo" / "headgate.toml"))
    monkeypatch.setenv("HEADGATE_ALERTS__RULES", json.dumps([str(demo / "rules")]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(demo)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert not (demo / ".headgate").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_like_a_lesson_and_imports_the_public_face_alone(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown"
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    imported = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for cell in code
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= OTHERS
    assert "headgate" in imported
    prose = len(notebook.cells) - len(code)
    assert prose * 2 >= len(code)
