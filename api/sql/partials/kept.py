"""Partial aggregates that an engine keeps between statements, of each day of a table.

A dashboard asks the same again and again, of a table in which most files stay as they are. Druid
keeps results by segment for this; here a segment is all files whose first row is of one day. Of
files that are new their part alone is counted, and of a day that lost a file, as when files are
merged, the whole. Files that lie only partly within the times asked for are read each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count

import duckdb

from api.sql.partials.split import FILES, PARTIALS, Split, TimeBound
from infra.delta.plain_files import Bounds, PlainFile
from infra.delta.view_refresh import NearFiles

_LEAST_ROWS = 500_000
"""Fewer are counted anew as fast."""
_SHARE = 8
"""Partial aggregates of more than one row in so many save too little for what they take."""
_FEW = 1_000
"""So many rows of them are always kept."""
_MOST_PIECES = 16
"""Tables that the partial aggregates of one day are in, before they are made one."""
_MOST_REFUSED = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_Instant = tuple[str, str, datetime]
"""A column, a sign, and the instant that its times are on that side of."""


class _NotKept(Exception):
    """Its partial aggregates are not to be kept: they are too many, or cannot be told apart."""


@dataclass
class _Segment:
    """Of which files partial aggregates are kept, and in which tables."""

    files: frozenset[str] = frozenset()
    pieces: list[str] = field(default_factory=list)


class KeptAggregates:
    """What one engine keeps. Not safe to share between threads."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, most_bytes: int) -> None:
        self._engine = engine
        self.most_bytes = most_bytes
        self.least_rows = _LEAST_ROWS
        self.most_pieces = _MOST_PIECES
        self.few = _FEW
        self._segments: OrderedDict[tuple[str, date | None], _Segment] = OrderedDict()
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._names = count()

    def answering(self, split: Split, table: NearFiles, asked: Sequence[Bounds]) -> str | None:
        """SQL that answers a statement from kept aggregates, which are brought up to date first.

        None where that saves nothing. `asked`: between which bounds the rows lie that it asks for,
        on top of `split.bounds`. What is wrong with a statement is said when it is answered as it
        stands.
        """
        column = _times_of(split, table)
        shape = f"{table.table.folder} {column} {split.partial}"
        files = [file for file in table.listed if file.may_have(asked)]
        if shape in self._refused or sum(file.rows for file in files) < self.least_rows:
            return None
        try:
            bounds = self._instants(split.bounds)
            within, partly = _by_day(files, table.listed, column, bounds)
            tables = [
                piece
                for day, whole in within.items()
                for piece in self._brought_up(shape, day, whole, split, table)
            ]
        except (_NotKept, duckdb.Error):
            self._refuse(shape)
            return None
        parts = [f'SELECT * FROM "{name}"' for name in tables]
        if partly or not parts:
            parts.append(f"SELECT * FROM ({_partial(split, table, partly, bounds)})")
        return _over(parts, split.final)

    def taken(self) -> int:
        """Bytes that kept tables take."""
        ((taken,),) = self._engine.execute(
            "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        ).fetchall()
        return int(taken)

    def clear(self) -> bool:
        """Give up everything; False where there is nothing."""
        held = bool(self._segments)
        while self._segments:
            self._drop(self._segments.popitem()[1].pieces)
        return held

    def _brought_up(
        self,
        shape: str,
        day: date | None,
        files: Sequence[PlainFile],
        split: Split,
        table: NearFiles,
    ) -> list[str]:
        """The tables with the partial aggregates of exactly these files."""
        names = frozenset(file.path for file in files)
        segment = self._segments.setdefault((shape, day), _Segment())
        self._segments.move_to_end((shape, day))
        if not segment.files <= names:
            # A count of a file that is gone cannot be taken out of a sum.
            self._drop(segment.pieces)
            segment.files, segment.pieces = frozenset(), []
        new = [file for file in files if file.path not in segment.files]
        if new:
            segment.pieces.append(self._counted(split, table, new))
            segment.files = names
            self._make_room(shape)
        if len(segment.pieces) > self.most_pieces:
            self._unite(split, segment)
        return segment.pieces

    def _counted(self, split: Split, table: NearFiles, files: Sequence[PlainFile]) -> str:
        rows = sum(file.rows for file in files)
        name = f"hg kept {next(self._names)}"
        partial = _partial(split, table, files, ())
        for column, kind, *_ in self._engine.execute(f"DESCRIBE {partial}").fetchall():
            if column in split.sums and kind in ("DOUBLE", "FLOAT"):
                raise _NotKept
        self._engine.execute(f'CREATE TABLE "{name}" AS {partial}')
        ((made,),) = self._engine.execute(f'SELECT count(*) FROM "{name}"').fetchall()
        if made > max(self.few, rows // _SHARE):
            self._drop([name])
            raise _NotKept
        return name

    def _make_room(self, shape: str) -> None:
        """Give up what was not asked for the longest time, but nothing of this statement.

        Raises `_NotKept` where that alone takes too much.
        """
        while self.taken() > self.most_bytes:
            oldest = next((key for key in self._segments if key[0] != shape), None)
            if oldest is None:
                raise _NotKept
            self._drop(self._segments.pop(oldest).pieces)

    def _unite(self, split: Split, segment: _Segment) -> None:
        name = f"hg kept {next(self._names)}"
        parts = [f'SELECT * FROM "{piece}"' for piece in segment.pieces]
        self._engine.execute(f'CREATE TABLE "{name}" AS {_over(parts, split.merged)}')
        self._drop(segment.pieces)
        segment.pieces = [name]

    def _refuse(self, shape: str) -> None:
        for key in [key for key in self._segments if key[0] == shape]:
            self._drop(self._segments.pop(key).pieces)
        self._refused[shape] = None
        if len(self._refused) > _MOST_REFUSED:
            self._refused.popitem(last=False)

    def _instants(self, bounds: Sequence[TimeBound]) -> list[_Instant]:
        """The bounds with their values; raises `_NotKept` for one that Python's years have not."""
        if not bounds:
            return []
        # Reckoned once: between two files `now()` would be another.
        values = ", ".join(f"epoch_us(CAST({bound.value} AS TIMESTAMPTZ))" for bound in bounds)
        (row,) = self._engine.execute(f"SELECT {values}").fetchall()
        try:
            instants = [_EPOCH + timedelta(microseconds=value) for value in row]
        except (OverflowError, TypeError):
            raise _NotKept from None
        return [
            (bound.column, bound.sign, instant)
            for bound, instant in zip(bounds, instants, strict=True)
        ]

    def _drop(self, tables: Sequence[str]) -> None:
        for name in tables:
            self._engine.execute(f'DROP TABLE "{name}"')


def _times_of(split: Split, table: NearFiles) -> str | None:
    """The column by whose days files are put together."""
    times = [name for name, kind in table.table.columns if kind == "TIMESTAMPTZ"]
    bounded = [bound.column for bound in split.bounds]
    chosen = [name for name in times if name in bounded] or times
    return chosen[0] if chosen else None


def _by_day(
    files: Sequence[PlainFile],
    listed: Sequence[PlainFile],
    column: str | None,
    bounds: Sequence[_Instant],
) -> tuple[Mapping[date | None, list[PlainFile]], list[PlainFile]]:
    """Files of days of which the table has no other that reaches out of the bounds, and the rest.

    Of a day on which the bounds begin the files would be others each time that they move on.
    """
    cut = {_day(file, column) for file in listed if not _lies_within(file, bounds)}
    within: dict[date | None, list[PlainFile]] = {}
    rest = []
    for file in files:
        day = _day(file, column)
        if day in cut:
            rest.append(file)
        else:
            within.setdefault(day, []).append(file)
    return within, rest


def _day(file: PlainFile, column: str | None) -> date | None:
    first = file.span(column)[0] if column else None
    return first.date() if first else None


def _lies_within(file: PlainFile, bounds: Sequence[_Instant]) -> bool:
    return all(_all_rows(file, *bound) for bound in bounds)


def _all_rows(file: PlainFile, column: str, sign: str, instant: datetime) -> bool:
    first, last = file.span(column)
    if first is None or last is None or file.nulls(column) != 0:
        return False
    return {
        ">=": first >= instant,
        ">": first > instant,
        "<=": last <= instant,
        "<": last < instant,
    }[sign]


def _partial(
    split: Split,
    table: NearFiles,
    files: Sequence[PlainFile],
    bounds: Sequence[_Instant],
) -> str:
    """The partial aggregates of these files, of rows within the bounds alone."""
    conditions = " AND ".join(_condition(*bound) for bound in bounds)
    rows = table.exactly(files) + (f" WHERE {conditions}" if conditions else "")
    return f'WITH "{FILES}" AS NOT MATERIALIZED ({rows}) {split.partial}'


def _condition(column: str, sign: str, instant: datetime) -> str:
    micros = (instant - _EPOCH) // timedelta(microseconds=1)
    return f'"{column}" {sign} make_timestamptz({micros})'


def _over(parts: Sequence[str], select: str) -> str:
    return f'WITH "{PARTIALS}" AS NOT MATERIALIZED ({" UNION ALL ".join(parts)}) {select}'
