"""Scheduled reports: a module here is a report, found by itself.

A report's module has four names: `NAME`, as the command takes it; `DOC`, a sentence; `TABLES`, what
it reads; and `compose(request)`, which gives the `Report` (`reporting.document.content`). It may
have `SUBJECT`: what `--subject` has to name, of a dossier about one thing; `OF_TENANT`, where it
can be made over one tenant's rows alone (`request.tenant`): a sentence on what it leaves out; and
`QUESTIONS`: how many it asks, so that also the first of a home tells how far it is. All but
`TABLES` are written out as texts, or a number. How a report looks, and its PDF, JSON and CSV, are
the same for all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

from infra.errors import Fatal, Usage


@dataclass(frozen=True)
class ListedReport:
    """A report as its module's text says it: what draws is loaded by `load` alone."""

    name: str
    doc: str
    subject: str | None
    of_tenant: str | None
    module: str
    questions: int | None = None

    def load(self) -> ModuleType:
        """Its module."""
        return import_module(f"{__name__}.{self.module}")

    def check_subject(self, subject: str) -> None:
        """Raises `Usage` where it needs a subject and has none, or the other way round."""
        if self.subject and not subject.strip():
            raise Usage(f"report {self.name}: give --subject, {self.subject}")
        if subject and not self.subject:
            raise Usage(f"report {self.name}: is about no single thing; leave --subject out")


@cache
def reports() -> MappingProxyType[str, ListedReport]:
    """Every report there is, by name."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return MappingProxyType({report.name: report for report in map(listed_report, files)})


def listed_report(file: Path) -> ListedReport:
    """The report of a module's file; raises `Fatal` where it does not say which it is."""
    constants = dict(_constants(file))
    words = {name: value for name, value in constants.items() if isinstance(value, str)}
    questions = constants.get("QUESTIONS")
    if lacking := [name for name in ("NAME", "DOC") if name not in words]:
        raise Fatal(f"{file}: write {' and '.join(lacking)} out as a text; it is read, not run")
    return ListedReport(
        words["NAME"],
        words["DOC"],
        words.get("SUBJECT"),
        words.get("OF_TENANT"),
        file.stem,
        questions if isinstance(questions, int) else None,
    )


def _constants(file: Path) -> Iterator[tuple[str, str | int]]:
    """The names of a module that are texts or numbers, without running it."""
    for line in ast.parse(file.read_text("utf-8")).body:
        match line:
            case (
                ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Constant(value=str(value) | int(value))
                )
                | ast.AnnAssign(
                    target=ast.Name(id=name), value=ast.Constant(value=str(value) | int(value))
                )
            ):
                yield name, value
