"""The floor plan holds: rooms are small, imports go round nowhere, the bottom knows no top."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from infra.spark.session import project_root

ROOT = project_root()
PACKAGES = ("headgate", "reporting", "api", "alerts", "enrich", "ingest", "infra")
MOST_MODULES = 20
ROOMY = {"ingest/sources/windows": 25}

UPPER = re.compile(
    r"\b(?:headgate|reporting|api|alerts|enrich|ingest)\.[a-z_]+(?:\.[a-z_]+)*"
    r"|\b(?:bronze|silver|gold)\.[a-z_]+"
)
NAMED = {
    "infra/config": "descriptions of settings, which name topics, tables and other settings",
    "infra/runtime/sizing.py": "keys of the results of benchmarks, which are called by tables",
    "infra/delta/catalog.py": "the remedy where nothing is registered",
    "infra/spark/worker_daemon.py": "a process of its own, in which nothing is registered",
    "infra/supply_chain": "the address of a service, api.osv.dev",
    "infra/cli/doctor.py": "a setting",
    "infra/cli/install.py": "names of systemd's units and of the file with the settings",
}
"""Strings of `infra` that name something above it all the same, and why."""

PRIVATES = re.compile(
    r"\._(?:jvm|jdf|jsc|jsparkSession|jsq|jconf|jrdd|gateway|active_spark_context)\b"
)


def modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {_dotted(file): file for file in files}


def _dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(name: str, file: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a module imports, inside functions too."""
    asked: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            asked |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = parts & known.keys()
            # `from package import module` is about the module, not about its package.
            asked |= inner if len(inner) == len(parts) else inner | {node.module}
    return (asked & known.keys()) - {name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            place = stack.index(node)
            group, stack[place:] = stack[place:], []
            if len(group) > 1:
                groups.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return groups


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def test_no_files_import_each_other_in_a_circle() -> None:
    known = modules()
    assert len(known) > 400
    assert circles({name: imports(name, file, known) for name, file in known.items()}) == []


def test_no_folder_has_more_modules_than_one_takes_in_at_a_glance() -> None:
    folders = Counter(
        str(file.parent.relative_to(ROOT)) for file in modules().values() if file.stem != "__init__"
    )
    crowded = {
        folder: count
        for folder, count in folders.items()
        if count > ROOMY.get(folder, MOST_MODULES)
    }
    assert crowded == {}


def strings(file: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(file.read_text("utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.value


def test_infra_names_nothing_above_it() -> None:
    named = {
        str(file.relative_to(ROOT)): names
        for name, file in modules().items()
        if name.split(".")[0] == "infra"
        and (names := [found for text in strings(file) for found in UPPER.findall(text)])
    }
    unexplained = {
        file: names for file, names in named.items() if not any(map(file.startswith, NAMED))
    }
    assert unexplained == {}
    assert [place for place in NAMED if not any(file.startswith(place) for file in named)] == []


def test_privates_of_spark_are_touched_in_one_module_alone() -> None:
    touching = {
        str(file.relative_to(ROOT))
        for folder in (*PACKAGES, "bench", "notebooks")
        for file in (ROOT / folder).rglob("*.py")
        if PRIVATES.search(file.read_text("utf-8"))
    }
    assert touching == {"infra/spark/internals.py"}


def test_erasures_are_tested_without_replacing_what_is_private() -> None:
    replaced = [
        f"{file.name}: {line.strip()}"
        for file in (ROOT / "tests" / "reporting").rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if re.search(r"""setattr\(.*["'](?:\w+\.)*_\w+["']""", line)
    ]
    assert replaced == []
