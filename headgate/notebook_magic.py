"""`%%headgate`: a cell of SQL in a notebook, after `%load_ext headgate`.

    %%headgate busy --as-of 2026-11-20T14:00:00Z
    SELECT src_ip, count(*) AS events FROM silver.events GROUP BY 1

The result is shown, and bound to `busy`. Tab completes tables, views and the columns of those that
the cell names. It asks the `Headgate` that the notebook calls `hg`, else
opens the lake of the settings and calls it so.
"""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Any, NoReturn

from headgate.result import QueryResult
from infra.errors import Usage


class _Line(argparse.ArgumentParser):
    """Options of the magic's first line; what is wrong is a sentence and ends no kernel."""

    def error(self, message: str) -> NoReturn:
        """Raise `Usage` in place of ending the process."""
        raise Usage(f"%%headgate: {message}")


def register_magic(shell: Any) -> None:
    """Give an IPython shell the magic."""

    def headgate(line: str, cell: str) -> QueryResult:
        """One SELECT in Spark SQL over the lake: [NAME] [--as-of INSTANT] [--engine ENGINE]."""
        return run_cell(line, cell, shell.user_ns)

    shell.register_magic_function(headgate, "cell", "headgate")
    # Imported here: IPython is there when a shell is, and comes with an extra.
    from IPython.core.completer import SimpleCompletion, context_matcher

    def matcher(context: Any) -> Any:
        words = cell_words(context.full_text, context.token)
        return {"completions": [SimpleCompletion(word, type="sql") for word in words]}

    shell.Completer.custom_matchers.append(context_matcher()(matcher))


def cell_words(cell: str, begun: str) -> list[str]:
    """Tables, views, and columns of those that the cell names, which begin like `begun`; none
    outside a cell of the magic."""
    if not cell.lstrip().startswith("%%headgate"):
        return []
    # The declared ones: to complete a word must not open a lake.
    from infra.delta.catalog import catalog, views

    tables = catalog()
    mentioned = {word.lower() for word in re.findall(r"[A-Za-z_]\w*\.\w+", cell)}
    # A view has no declared columns: those of the tables that it reads are likely its own.
    read = {
        table
        for name in mentioned
        for table in tables
        if table == name or (name in views() and table in views()[name].sql)
    }
    columns = {column.name for table in read for column in tables[table].columns}
    every = {*tables, *views(), *columns}
    return sorted(word for word in every if word.startswith(begun.lower()))


def run_cell(line: str, cell: str, names: dict[str, Any]) -> QueryResult:
    """The result of a cell; bound in `names` where the line has a name. Raises `Usage`."""
    options = _parser().parse_args(shlex.split(line))
    if options.name is not None and not options.name.isidentifier():
        raise Usage(f"%%headgate {options.name}: is no name of a variable")
    if "hg" not in names:
        # Imported here: to load the extension must not start an engine.
        from headgate.client import open_client

        names["hg"] = open_client(None, None, None)
    lake = names["hg"]
    if not callable(getattr(lake, "sql", None)):
        raise Usage("%%headgate: the notebook's 'hg' is no open lake; hg = headgate.open()")
    result: QueryResult = lake.sql(cell.strip(), engine=options.engine, as_of=options.as_of)
    if options.name is not None:
        names[options.name] = result
    return result


def _parser() -> _Line:
    parser = _Line(prog="%%headgate", add_help=False)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--as-of")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    return parser
