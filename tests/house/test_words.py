"""Words that a newcomer can search for: telling locals, public names of one sense."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("headgate", "infra", "ingest", "enrich", "alerts", "reporting", "api")

VAGUE = frozenset({"found", "told", "said", "one", "at"})
"""Names for want of a better word: they tell how a thing came, not what it is."""

SHARED = 0.06
"""The largest share of public names that two or more modules define."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text("utf-8"))


def bound_in_functions(node: ast.AST, inside: bool = False) -> Iterator[tuple[str, int]]:
    """Names that functions and comprehensions bind; parameters and fields of classes are not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and inside:
            yield child.id, child.lineno
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.comprehension)
        yield from bound_in_functions(
            child, function or (inside and not isinstance(child, ast.ClassDef))
        )


def public_names(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [statement.name]
        elif isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_a_local_variable_says_what_it_holds() -> None:
    vague = [
        f"{path}:{line} {name}"
        for path, module in modules()
        for name, line in bound_in_functions(module)
        if name in VAGUE
    ]
    assert vague == []


def test_a_public_name_means_one_thing() -> None:
    defined: defaultdict[str, set[str]] = defaultdict(set)
    for path, module in modules():
        for name in public_names(module):
            defined[name].add(path)
    shared = {name: sorted(paths) for name, paths in defined.items() if len(paths) > 1}
    assert len(defined) > 1000, "the modules were not read"
    assert len(shared) / len(defined) < SHARED, shared
