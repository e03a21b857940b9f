"""What a question gave, in the form one wants to go on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infra.errors import Usage
from infra.process.text_output import cell, printable

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10
"""Rows that a result shows of itself."""


class QueryResult:
    """Rows with named columns. They lie in memory as Arrow and are turned into what is asked for.

    `truncated`: whether there were more rows than the limit of the question; `total`: how many
    there were in all, None where nobody counted. `versions`: of a question about the past, the
    version at which each table was read.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        truncated: bool = False,
        total: int | None = None,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self._table = table
        self.truncated = truncated or (total is not None and total > table.num_rows)
        self.total = total
        self.versions = dict(versions or {})

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._table.column_names)

    def arrow(self) -> pa.Table:
        """As an Arrow table."""
        return self._table

    def pandas(self) -> pd.DataFrame:
        """As a pandas DataFrame; instants are aware and UTC."""
        frame: pd.DataFrame = self._table.to_pandas()
        return frame

    def polars(self) -> Any:
        """As a polars DataFrame; raises `Usage` where polars is not installed."""
        try:
            # Optional and slow to import, so only when it is asked for.
            import polars
        except ImportError:
            raise Usage("polars is not installed; install it, or take .pandas()") from None
        return polars.from_arrow(self._table)

    def rows(self) -> list[dict[str, Any]]:
        """As dictionaries; instants are aware and UTC."""
        return [_utc(row) for row in self._table.to_pylist()]

    def value(self) -> Any:
        """The only value of a result of one row and one column; else raises `Usage`."""
        if (len(self), len(self.columns)) != (1, 1):
            raise Usage(f"{len(self)} rows of {len(self.columns)} columns are not one value")
        return self.rows()[0][self.columns[0]]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        more = f", cut: {self._more()}" if self.truncated else ""
        head = f"{len(self):,} rows of {', '.join(self.columns)}{more}"
        # Cut before it is turned into pandas: a result may have a hundred thousand rows.
        shown = self._table.slice(0, SHOWN).to_pandas().to_string(max_colwidth=60)
        return f"{head}\n{shown}"

    def _more(self) -> str:
        return "there are more" if self.total is None else f"there are {self.total:,}"

    def _repr_html_(self) -> str:
        more = f" (cut: {self._more()})" if self.truncated else ""
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        part = f"; the first {SHOWN}" if len(self) > SHOWN else ""
        count = f"<p>{rows}{more}{part}:</p>"
        return count + _html_table(self._table.slice(0, SHOWN))


_LEFT = 'style="text-align: left"'
_LONGEST_CELL = 160
_LOUD_LEVELS = ("high", "critical")


def _html_table(table: pa.Table) -> str:
    """Few rows as a person reads them: the zone in the head, nothing for null, parts as JSON."""
    columns = [(field.name, pa.types.is_timestamp(field.type)) for field in table.schema]
    heads = [f"{name} (UTC)" if is_time else name for name, is_time in columns]
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in heads)
    body = "".join(
        f"<tr>{''.join(_cell(name, _utc(value)) for name, value in row.items())}</tr>"
        for row in table.to_pylist()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Without groups of digits: a port or a class is no quantity.
        number = f"{value:.6g}" if isinstance(value, float) else str(value)
        return f'<td style="text-align: right">{number}</td>'
    text = _time_text(value) if isinstance(value, datetime) else cell(value)
    short = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "\u2026"
    # Escaped, and no letter hidden: what stands in a log may have been written by an attacker.
    shown = escape(printable(short))
    # In bold and by its name, so that it is seen without colours.
    loud = name == "level" and value in _LOUD_LEVELS
    return f"<td {_LEFT}>{f'<b>{shown}</b>' if loud else shown}</td>"


def _time_text(instant: datetime) -> str:
    part = f".{instant.microsecond // 1000:03}" if instant.microsecond else ""
    return f"{instant:%Y-%m-%d %H:%M:%S}{part}"


def result_of(
    rows: list[dict[str, Any]], columns: list[str] | None = None, *, total: int | None = None
) -> QueryResult:
    """A result from dictionaries, all with the same keys. `columns`: their names if there is no
    row. `total`: how many rows there are in all."""
    # Arrow cannot infer columns from no rows, and a notebook wants their names all the same.
    if not rows:
        return QueryResult(pa.table({name: pa.nulls(0) for name in columns or []}), total=total)
    return QueryResult(pa.Table.from_pylist(rows), total=total)


def _utc(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Arrow gives times the zone of the column; to compare and print them they are all in UTC.
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _utc(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_utc(each) for each in value]
    return value
