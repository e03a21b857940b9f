"""Which lines the tests try each source with: counted from the tests, not written by hand."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ingest.parsing.source import source_modules, sources
from tests.docs.tried_versions import VERSIONS
from tests.ingest.logs import FILES, SAMPLES, lines
from tests.ingest.sources.test_forgery import ALL
from tests.ingest.sources.test_new_services import SAMPLES as RECORDS

_TESTS = Path(__file__).parents[1] / "ingest"
_READING = frozenset({"good", "row", "rows", "reason"})
"""Functions of `tests/ingest/logs.py` that give a record to a source."""
_SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`])|\n\n")
# `FortiOS 5 to 7`, `2.7x`, `R81.20`, `versions 2 to 8`; not numbers of RFCs and pages.
_VERSION = re.compile(
    r"\b(?:[Vv]ersions? \d|\d{1,2}\.\d{1,2}x?\b|R\d{2}|(?!RFC\b)[A-Z][A-Za-z-]+ \d{1,2}(?:\.\d+)?"
    r"(?: (?:to|and) \d|,| |$)|\(syslog|in JSON|ndjson)"
)


def counts() -> tuple[Counter[str], Counter[str]]:
    """Lines of the files in `samples/`, and records written into tests, by source."""
    captured: Counter[str] = Counter()
    for source, path, _ in FILES:
        captured[source] += len(lines(path))
    for path in (SAMPLES / "saas_cloud").glob("*.jsonl"):
        captured[path.stem] += len(path.read_bytes().splitlines())
    written = Counter(record.source for record in RECORDS)
    for kind in ALL:
        written[kind.source] += len(kind.lines) + len(kind.imitated)
    for path in sorted(_TESTS.rglob("*.py")):
        written.update(_named(ast.parse(path.read_text("utf-8"))))
    return captured, written


def _named(tree: ast.AST) -> Iterator[str]:
    """The source of each call that gives it a record."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            if node.func.id in _READING and isinstance(first, ast.Constant):
                yield str(first.value)


def versions(text: str) -> str:
    """The sentences of a docstring that say which versions or forms it is about."""
    clean = re.sub(r"https?://\S+", "", text)
    said = [" ".join(part.split()) for part in _SENTENCE.split(clean) if _VERSION.search(part)]
    return " ".join(said)[:300].replace("|", "\\|")


def table() -> Iterator[str]:
    """A row for each source."""
    captured, written = counts()
    of_module = {
        source.name: inspect.getdoc(module) or ""
        for module in source_modules()
        for source in getattr(module, "SOURCES", ())
    }
    yield "\n## Lines tried\n"
    yield (
        "Counted by `make docs`: lines of files in `samples/`, records written into the tests of "
        "`tests/ingest/` (at least: lists of records count as one), and what the source itself "
        "says of versions and forms.\n"
    )
    yield "| source | captured | written | versions and forms |\n|---|---|---|---|"
    for name in sorted(sources()):
        if ":" in name and not captured[name]:
            continue  # a log of a family whose own row has them
        row = (f"`{name}`", captured[name] or "", written[name] or "")
        # A log of a family comes as the family does.
        about = VERSIONS.get(name.partition(":")[0]) or versions(of_module.get(name, ""))
        yield f"| {' | '.join(map(str, row))} | {about} |"
