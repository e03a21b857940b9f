"""The one printer of rows: every command prints its tables with `print_rows`.

A terminal gets a table that fits it; a pipe gets one line a row, or JSON, JSON lines or CSV.
Outsiders choose some of the values, so nothing of theirs may steer a terminal.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from infra.process.text_output import harmless, json_text, printable

OUTPUT_FORMS = ("table", "json", "ndjson", "csv")

_Row = Mapping[str, Any]
_Shown = Mapping[str, Callable[[Any], str]]
"""How a column's values are written in a table, where that differs from the value itself."""

_GAP = "  "
WIDE = "wide"
"""The form of commands whose table has the columns that a person looks at first: all of them."""

_LEAST = 10
"""A column is folded, but not below this: then each row becomes a block of lines."""
_WORDS_LEAST = 20
"""So much is left to a column of words before ids and other single words are broken."""
_FORMER = {"text": "table", "line": "table"}
"""Forms of a release before this one."""


def add_output_option(parser: argparse.ArgumentParser, *more: str, default: str = "table") -> None:
    """Add `--output` with the forms that every command has, and `more` that only this one has."""
    forms = (*OUTPUT_FORMS, *more)
    every = "; wide: a table with every column" if WIDE in more else ""
    parser.add_argument(
        "--output",
        type=_form,
        choices=forms,
        default=default,
        help=f"how to print it (default: {default}{every})",
    )


def _form(text: str) -> str:
    """A form as it is called today."""
    now = _FORMER.get(text)
    if now is not None:
        print(f"headgate: --output {text} is called --output {now} now", file=sys.stderr)
    return now or text


def print_rows(
    rows: Sequence[_Row],
    form: str = "table",
    columns: Sequence[str] = (),
    *,
    brief: Sequence[str] = (),
    shown: _Shown | None = None,
    style: Callable[[_Row], str] | None = None,
    out: TextIO | None = None,
) -> None:
    """Write rows in one of `OUTPUT_FORMS` or `WIDE`; without `columns`, the first row names them.

    `brief` are the columns of form `table`, where these are not all; `style` gives a row of a
    table its colour, which only a terminal sees.
    """
    stream = out or sys.stdout
    names = list(columns or (rows[0] if rows else ()))
    if form in ("table", WIDE):
        names = list(brief) if brief and form == "table" else names
        _print_table(stream, names, rows, shown or {}, style)
    elif form == "csv":
        _print_csv(stream, names, rows)
    elif form == "ndjson":
        for row in rows:
            print(json_text({name: row[name] for name in names}), file=stream)
    elif form == "json":
        print(json_text([{name: row[name] for name in names} for row in rows]), file=stream)
    else:
        raise ValueError(f"no form '{form}'; there are {', '.join(OUTPUT_FORMS)}")


def print_document(value: Any, *, out: TextIO | None = None, indent: int | None = None) -> None:
    """Write one value as JSON, on one line unless it is indented."""
    print(json_text(value, indent=indent), file=out or sys.stdout)


def print_lines(lines: Sequence[str] | Iterator[str], *, out: TextIO | None = None) -> None:
    """Write lines of text that may hold what outsiders chose."""
    for line in lines:
        print(printable(line), file=out or sys.stdout)


def _print_csv(stream: TextIO, names: Sequence[str], rows: Sequence[_Row]) -> None:
    # Programs get the bytes as they are; a person who looks at them is not steered by them.
    text: Callable[[Any], str] = _csv_on_terminal if stream.isatty() else harmless
    # By default rows end with "\r\n", of which line tools leave "\r" in the last cell.
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([text(name) for name in names])
    writer.writerows([[text(row[name]) for name in names] for row in rows])


def _csv_on_terminal(value: Any) -> str:
    return printable(harmless(value))


def _print_table(
    stream: TextIO,
    names: Sequence[str],
    rows: Sequence[_Row],
    shown: _Shown,
    style: Callable[[_Row], str] | None,
) -> None:
    if not rows:
        return
    cells = [[_cell(name, row[name], shown) for name in names] for row in rows]
    right = [_numeric(row[name] for row in rows) for name in names]
    names = [printable(name) for name in names]
    if not stream.isatty():
        for line in _lines(names, cells, right):
            print(line, file=stream)
        return
    # Imported for a terminal alone: a script that reads our output need not wait for it.
    from rich.console import Console

    console = Console(file=stream, width=terminal_width(), highlight=False)
    styles = [style(row) if style else "" for row in rows]
    console.print(_laid_out(names, cells, right, styles, console.width))


def _laid_out(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    styles: Sequence[str],
    width: int,
) -> Any:
    """Rows for a terminal: a table whose cells are folded, or blocks where it is too narrow."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    widths = fitted_widths(names, cells, width)
    if widths is None:
        return Group(*(_block(names, row, style) for row, style in zip(cells, styles, strict=True)))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, numeric, wide in zip(names, right, widths, strict=True):
        table.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", width=wide
        )
    for row, style in zip(cells, styles, strict=True):
        # As `Text`: rich would read a plain string as markup, and outsiders choose some of them.
        table.add_row(*[Text(text, style) for text in row])
    return table


def fitted_widths(
    names: Sequence[str], cells: Sequence[Sequence[str]], width: int
) -> list[int] | None:
    """Each column's width in a table of `width` characters; None where it cannot be that narrow.

    The widest columns are folded, and as long as these keep `_WORDS_LEAST` only columns of several
    words: a broken id or number is hard to read and cannot be copied.
    """
    natural = _widths(names, cells)
    room = width - len(_GAP) * len(names)
    if sum(natural) <= room:
        return natural
    words = [any(" " in row[place] for row in cells) for place in range(len(names))]
    single = sum(wide for wide, several in zip(natural, words, strict=True) if not several)
    most = _cap(
        [wide for wide, several in zip(natural, words, strict=True) if several], room - single
    )
    if most >= _WORDS_LEAST:
        return [min(w, most) if several else w for w, several in zip(natural, words, strict=True)]
    most = _cap(natural, room)
    return [min(wide, most) for wide in natural] if most >= _LEAST else None


def _cap(widths: Sequence[int], room: int) -> int:
    """The most that each of these columns may have, so that they have `room` together."""
    left = sorted(widths)
    while left and left[0] * len(left) <= room:
        room -= left.pop(0)
    return room // len(left) if left else max(widths, default=room)


def _block(names: Sequence[str], row: Sequence[str], style: str) -> Any:
    """A row as lines of name and value; what says nothing is left out."""
    from rich.table import Table
    from rich.text import Text

    block = Table.grid(padding=(0, 2, 0, 0))
    block.add_column(no_wrap=True, style="bold")
    block.add_column(overflow="fold")
    for name, text in zip(names, row, strict=True):
        if text:
            block.add_row(Text(name), Text(text, style))
    block.add_row("", "")
    return block


def terminal_table(
    rows: Sequence[_Row],
    columns: Sequence[str],
    *,
    shown: _Shown | None = None,
    style: Callable[[_Row], str] | None = None,
) -> Any:
    """Rows as something `rich` can show again and again, as a live display does."""
    cells = [[_cell(name, row[name], shown or {}) for name in columns] for row in rows]
    right = [_numeric(row[name] for row in rows) for name in columns]
    styles = [style(row) if style else "" for row in rows]
    return _laid_out(columns, cells, right, styles, terminal_width())


def terminal_width() -> int:
    """Columns of the terminal, or what COLUMNS says."""
    return shutil.get_terminal_size().columns


def _lines(
    names: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> Iterator[str]:
    """A line a row: nothing is folded to the width of a screen that is not there."""
    widths = _widths(names, cells)
    for row in [names, *cells]:
        fitted = [
            text.rjust(wide) if numeric else text.ljust(wide)
            for text, wide, numeric in zip(row, widths, right, strict=True)
        ]
        yield _GAP.join(fitted).rstrip()


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(name), *(len(row[index]) for row in cells)) if cells else len(name)
        for index, name in enumerate(names)
    ]


def _cell(name: str, value: Any, shown: _Shown) -> str:
    if name in shown and value is not None:
        return printable(shown[name](value))
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return printable(", ".join(value))
    return printable(value)


def _numeric(values: Iterator[Any]) -> bool:
    """Whether a column holds numbers, which stand on the right."""
    there = [value for value in values if value is not None]
    return bool(there) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in there
    )
