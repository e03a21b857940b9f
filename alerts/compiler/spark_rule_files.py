"""Rules in Spark SQL and as Python functions, as far as they can be read without Spark.

What only Spark can tell, such as a column that is not there, `alerts.spark_rules.plan` finds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from alerts.compiler.sigma_to_predicate import Untranslatable
from infra.config.bounded_yaml import yaml_document
from infra.storage.state_file import JsonLayout, StateFile

SQL = "sql"
FUNCTION = "function"
KINDS = (SQL, FUNCTION)
"""Values of `type:` that make a rule one of these."""

RULE = "rule"
"""Name of the function in a rule's Python file."""

FUNCTIONS = "functions"
"""Folder of the rule store with the Python files that were imported, by rule id."""

MOST_WINDOW = 7 * 86_400
_SPAN = re.compile(r"([1-9]\d{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Asked(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a rule of these kinds says beside Sigma's header: see
    `alerts.rulepack.rule_pack.Query`."""

    type: str
    query: str = ""
    window: str = ""
    slide: str = ""
    group_by: tuple[str, ...] = msgspec.field(default=(), name="group-by")

    @property
    def window_seconds(self) -> int:
        """Length of its windows; 0: it tells of single events."""
        return _seconds("window", self.window)

    @property
    def slide_seconds(self) -> int:
        """How often a window begins."""
        return _seconds("slide", self.slide) or self.window_seconds


def is_query(document: Mapping[str, Any]) -> bool:
    """Whether a rule's document is one of SQL or of a function."""
    return document.get("type") in KINDS


def taken_fields(document: dict[str, Any], path: Path) -> Asked:
    """What the rule of a file asks, taken out of its document, so that Sigma's header is left.

    Raises `Untranslatable` for what cannot run.
    """
    names = [field.encode_name for field in msgspec.structs.fields(Asked)]
    results = {name: document.pop(name) for name in names if name in document}
    try:
        declared = msgspec.convert(results, Asked)
    except msgspec.ValidationError as error:
        raise Untranslatable(str(error), f"its keys are {', '.join(names)}") from None
    for name in ("detection", "logsource"):
        if name in document:
            raise Untranslatable(f"`{name}` in a rule of type {declared.type}", "remove it")
    check_window(declared)
    if declared.type == SQL:
        # Most packs have no rule in SQL, and its parser takes long to be imported.
        from alerts.compiler.sql_check import check_sql

        check_sql(declared.query)
    elif path.suffix != ".py":
        # Python that runs in the driver is let in by a person, not by a file that lies somewhere.
        raise Untranslatable(
            "a function in a YAML file", "write a Python file, and headgate rules import FILE.py"
        )
    else:
        check_function(declared.query)
    return declared


def _seconds(key: str, text: str) -> int:
    """A span such as 90s, 10m, 1h or 1d in seconds, 0 for none; raises `Untranslatable`."""
    if not text:
        return 0
    match = _SPAN.fullmatch(text)
    if match is None:
        raise Untranslatable(f"{key}: '{text}'", "a span such as 90s, 10m, 1h or 1d")
    return int(match[1]) * _SECONDS[match[2]]


def check_window(declared: Asked) -> None:
    """Raise `Untranslatable` unless its window, slide and groups fit together."""
    window, slide = declared.window_seconds, declared.slide_seconds
    if not window:
        if declared.slide or declared.group_by:
            raise Untranslatable("slide or group-by without a window", "add `window: 10m`")
        return
    if window > MOST_WINDOW:
        raise Untranslatable(f"window: {declared.window}", f"at most {MOST_WINDOW // 86_400}d")
    # Only then do windows begin at the same instants as the slots that are looked at again.
    if slide > window or window % slide:
        raise Untranslatable(
            f"slide: {declared.slide}", f"a whole part of the window, which is {declared.window}"
        )
    # Without a group a window has one row at most, and nothing tells what it is about.
    if not declared.group_by:
        raise Untranslatable(
            "a window without group-by", "name the columns that tell its rows apart, as a list"
        )


def check_function(source: str) -> None:
    """Raise `Untranslatable` unless the Python source has a function `rule` of one parameter.

    The source is read and not run.
    """
    try:
        # Parsed and not imported: nothing of a file may run before a person lets it in.
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise Untranslatable(f"not Python: {error}", "correct the file") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == RULE:
            needed = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
            if needed == 1:
                return
    raise Untranslatable(
        f"it has no function {RULE} of one parameter", f"add `def {RULE}(events): ...`"
    )


def document_of(path: Path) -> dict[str, Any]:
    """The rule in a Python file: the header in its docstring, as YAML, with the source as query.

    Raises `Untranslatable`, or `ValueError` or `yaml.YAMLError` for what cannot be read.
    """
    source = path.read_text("utf-8")
    try:
        docstring = ast.get_docstring(ast.parse(source))
    except (SyntaxError, ValueError) as error:
        raise Untranslatable(f"not Python: {error}", "correct the file") from None
    header = yaml_document(docstring) if docstring else None
    if not isinstance(header, dict):
        raise Untranslatable(
            "its docstring is no header", "begin the file with title, id, level, ... as YAML"
        )
    if header.get("type", FUNCTION) != FUNCTION or "query" in header:
        raise Untranslatable("a header of another type", f"leave `type` out, or say {FUNCTION}")
    return {**header, "type": FUNCTION, "query": source}


def imported(store: Path | None) -> list[Path]:
    """The Python files that `headgate rules import` put into a rule store, in order."""
    # Sorted, so that the pack and its hash do not depend on the file system.
    return sorted((store / FUNCTIONS).glob("*.py")) if store is not None else []


def inputs_file(path: Path) -> StateFile[list[str]]:
    """Where `headgate rules import` keeps what the function in a rule's Python file looks at."""
    remedy = f"import the rule's Python file {path.name} again: headgate rules import"
    file = path.with_suffix(".sees.json")
    return StateFile(file, list[str], remedy, layout=JsonLayout.COMPACT)


def sees_of(path: Path) -> tuple[str, ...]:
    """What the function in a file looks at, as SELECTs; nothing for one that was not imported."""
    return tuple(inputs_file(path).read() or ())
