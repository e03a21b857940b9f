"""`headgate sources`: what can be read, each with what its parser says of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.process.table_output import add_output_option, print_rows
from ingest.parsing.source import source_modules

if TYPE_CHECKING:
    from infra.config.settings import Settings


class _Listed(NamedTuple):
    """The sources of one parser, and what it reads."""

    names: tuple[str, ...]
    doc: str
    parser: str


def _listing() -> list[_Listed]:
    """Every parser, by the name of its first source."""
    listeds = []
    for module in source_modules():
        # The catalogue is made of the modules' own docstrings, so it cannot fall behind them.
        doc = " ".join((module.__doc__ or "").split("\n\n")[0].split())
        names = tuple(source.name for source in module.SOURCES)
        listeds.append(_Listed(names, doc, f"{module.__name__.replace('.', '/')}.py"))
    return sorted(listeds)


def build(subparsers: Any) -> None:
    """Register `sources`."""
    command = subparsers.add_parser("sources", help="what can be read")
    add_output_option(command, "markdown")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate sources`."""
    if args.output == "markdown":
        print("\n".join(_markdown()))
    elif args.output == "table":
        rows = [
            {"source": entry.names[0], "also": entry.names[1:], "reads": entry.doc}
            for entry in _listing()
        ]
        print_rows(rows)
    else:
        print_rows([entry._asdict() for entry in _listing()], args.output, _Listed._fields)
    return 0


def _markdown() -> Iterator[str]:
    yield "# Sources\n\nMade by `headgate sources --output markdown`; do not edit.\n"
    for entry in _listing():
        names = ", ".join(f"`{name}`" for name in entry.names)
        yield f"- {names}: {entry.doc} `{entry.parser}`"
