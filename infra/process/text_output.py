"""Values of the tables as cells of a terminal or a spreadsheet: attackers choose some of them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet runs."""


def cell(value: Any) -> str:
    """A value as text: nothing for none, JSON for what is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def printable(value: Any) -> str:
    """A cell with control characters written out: a host name must not steer the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cell(value))


def harmless(value: Any) -> str:
    """A cell for CSV: a quote in front stops what a spreadsheet would run as a formula."""
    text = cell(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def for_programs(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], form: str) -> None:
    """Rows on stdout in form `json` (one array), `ndjson` or `csv` (text cells made harmless)."""
    if form == "json":
        print(json.dumps(list(rows)))
    elif form == "ndjson":
        for row in rows:
            print(json.dumps(row))
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[harmless(row[name]) for name in columns] for row in rows])


def lines(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Rows as lines of text in columns, the names first; nothing for no rows."""
    if not rows:
        return
    told = [{name: printable(row[name]) for name in columns} for row in rows]
    widths = {name: max(len(name), *(len(line[name]) for line in told)) for name in columns}
    for line in [dict(zip(columns, columns, strict=True)), *told]:
        yield "  ".join(line[name].ljust(widths[name]) for name in columns).rstrip()
