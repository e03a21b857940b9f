"""Between which values the rows lie that a statement asks of each table, before any is read.

A question about a day needs the files of that day, but DuckDB's Delta extension opens those of all
days: it compares no time that has a zone with what the log says of a file. What a statement asks of
a table, through views, joins and subqueries, DuckDB's optimizer knows. It is asked for its plan
over tables of the same columns that have no rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb

from api.sql.macros import macro_statements
from infra.delta.duckdb_views import Definition, bare_engine, needed
from infra.delta.plain_files import Bounds

_VALUE = r"'[^']*'::TIMESTAMP WITH TIME ZONE|'[^']*'|-?\d+"
_COMPARED = re.compile(rf"(\w+)(>=|<=|=|>|<)({_VALUE})")
_FIRST = re.compile(rf"(?:{_COMPARED.pattern} AND )*{_COMPARED.pattern}(?= AND \(|$)")
"""With what the optimizer's text of a column's filters begins where it compares the column itself.
What comes after is no bound."""
_QUOTED = re.compile(r"'[^']*'")


class Planner:
    """Plans statements over tables without rows. Not safe to share between threads."""

    def __init__(self, catalogue: Sequence[Definition]) -> None:
        self._catalogue = catalogue
        self._engine = bare_engine(memory="64MB", threads=1)
        for macro in macro_statements():
            self._engine.execute(macro)
        # That tables have no rows must decide nothing.
        self._engine.execute("SET disabled_optimizers = 'statistics_propagation'")
        self._engine.execute("SET explain_output = 'all'")
        self._engine.execute("SET enable_external_access = false")
        self._engine.execute("SET lock_configuration = true")
        self._made: set[str] = set()

    def bounds(self, sql: str, tables: Collection[str]) -> dict[str, list[Bounds]]:
        """Of each table below `tables`, the bounds of its rows in each place where it is read.

        Rows outside of all of them have no part in the answer. A table that is not named is read
        whole, as is one with bounds of no column.
        """
        try:
            self._make(tables)
            plans = dict(self._engine.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall())
        except duckdb.Error:
            return {}  # what is wrong with it is said when it is run
        typed = Counter(table for table, _ in _scans(json.loads(plans["logical_plan"])))
        bounds: dict[str, list[Bounds]] = {}
        for table, filters in _scans(json.loads(plans["physical_plan"])):
            bounds.setdefault(table, []).append(_bounds(filters))
        # A place that the optimizer dropped may be read all the same where a table has rows.
        return {table: places for table, places in bounds.items() if len(places) >= typed[table]}

    def _make(self, tables: Collection[str]) -> None:
        for definition in needed(tables, self._catalogue):
            if definition.name in self._made:
                continue
            layer, _, _ = definition.name.partition(".")
            self._engine.execute(f'CREATE SCHEMA IF NOT EXISTS "{layer}"')
            if definition.folder is None:
                self._engine.execute(f"CREATE VIEW {definition.name} AS {definition.sql}")
            else:
                columns = ", ".join(f'"{name}" {kind}' for name, kind in definition.columns)
                self._engine.execute(f"CREATE TABLE {definition.name} ({columns})")
            self._made.add(definition.name)


def _scans(plan: Any) -> Iterator[tuple[str, Sequence[str]]]:
    """Each place of a plan where a table is read: its name, and the filters, a column each."""
    for node in plan if isinstance(plan, list) else [plan]:
        details: Mapping[str, Any] = node.get("extra_info") or {}
        if table := str(details.get("Table", "")):
            filters = details.get("Filters") or []
            name = table.replace('"', "").partition(".")[2]
            yield name, [filters] if isinstance(filters, str) else filters
        yield from _scans(node.get("children", []))


def _bounds(filters: Sequence[str]) -> Bounds:
    """What the filters of one place say of columns; those that say something else are left out."""
    bounds: dict[str, tuple[Any, Any]] = {}
    for text in filters:
        # A quote in a text is written twice, which no comparison here has: no text looks like one.
        first = _FIRST.match(text)
        # Of an alternative either side may be true.
        if first is None or " OR " in _QUOTED.sub("", text):
            continue
        for column, sign, written in _COMPARED.findall(first[0]):
            low, high = bounds.get(column, (None, None))
            if (value := _value(written)) is None:
                continue
            # The ends are taken in: a file too many costs less than to be exact.
            bounds[column] = (
                low if sign[0] == "<" else _nearer(max, low, value),
                high if sign[0] == ">" else _nearer(min, high, value),
            )
    return bounds


def _nearer(choose: Any, known: Any, value: Any) -> Any:
    return value if known is None else choose(known, value)


def _value(written: str) -> Any:
    if written.endswith("ZONE"):
        try:
            return datetime.fromisoformat(written.split("'")[1])
        except ValueError:
            return None  # `infinity`, or a year that Python has not
    return written[1:-1] if written.startswith("'") else int(written)
