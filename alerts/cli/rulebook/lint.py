"""`headgate rules lint`: what is odd about rules that load all the same."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from alerts.compiler.rule_files import rule_files
from alerts.rulebook.outcome_reports import sarif_log, sarif_result
from alerts.rulebook.style import STYLE_CODES, StyleWarning, lint_files
from alerts.rulepack.locations import rule_folders
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows


def build(verbs: Any) -> None:
    """Add `lint` below `headgate rules`."""
    parser = verbs.add_parser(
        "lint",
        help="warnings about a rule's text, each with a code",
        description="Reads YAML files of rules, in force or not. What does not load is listed by "
        "'headgate rules list'; this is about what loads and is odd. Exit code 1 when something "
        "is warned of.",
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files or folders; none: those in force"
    )
    parser.add_argument("--ignore", default="", metavar="CODES", help="such as HG005,HG010")
    parser.add_argument("--codes", action="store_true", help="list the codes and what they mean")
    add_output_option(parser, "sarif")
    parser.set_defaults(run=lint_rules)

    schema = verbs.add_parser(
        "schema", help="a JSON Schema of rules for editors: log sources and their fields"
    )
    schema.set_defaults(run=print_schema)


def lint_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules lint`: exit code 1 when there is a warning."""
    if args.codes:
        rows = [{"code": code, "meaning": meaning} for code, meaning in STYLE_CODES.items()]
        print_rows(rows, "json" if args.output == "sarif" else args.output)
        return 0
    ignored = {code.strip() for code in args.ignore.split(",") if code.strip()}
    if unknown := sorted(ignored - STYLE_CODES.keys()):
        raise Usage(f"--ignore {', '.join(unknown)}: no such code; --codes lists them")
    files = _files(args.paths or [p for p in rule_folders(settings) if p.exists()])
    warnings = [w for w in lint_files(files) if w.code not in ignored]
    _print(warnings, args.output)
    print(f"{len(warnings)} warnings in {len(files)} files", file=sys.stderr)
    return 1 if warnings else 0


def print_schema(_: argparse.Namespace, __: Settings) -> int:
    """`headgate rules schema`."""
    from alerts.rulebook.editor_schema import editor_schema

    print_document(editor_schema(), indent=1)
    return 0


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Usage(f"{path}: no such file or folder of rules")
        files += rule_files(path) if path.is_dir() else [path]
    return files


def _print(warnings: list[StyleWarning], form: str) -> None:
    if form != "sarif":
        columns = ("code", "rule", "path", "line", "detail")
        if warnings or form != "table":
            print_rows([warning.row for warning in warnings], form, columns)
        return
    places = {code: number for number, code in enumerate(STYLE_CODES)}
    results = [
        sarif_result(w.code, places, f"{w.rule}: {w.detail}", w.path, w.line, "warning")
        for w in warnings
    ]
    print_document(sarif_log("headgate rules lint", STYLE_CODES, results), indent=2)
