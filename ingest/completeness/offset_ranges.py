"""Which offsets of a partition bronze has: holes in them, and messages that stand there twice.

Offsets are counted in blocks, a bit for each, so that a long table fits into little memory. As a
rule records came since they were last looked at, and the files of before are passed over by what
the log says of their arrivals; what seems to be missing is then looked for in all of the table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import duckdb

    from infra.streaming.kafka_offsets import TopicPartitionKey

# Blocks that match the bits of an offset, so that DuckDB finds them by a shift.
BITS = 16
BLOCK = 1 << BITS
"""Offsets of a block: a bit each, 8 KB."""
BLOCKS_AT_ONCE = 32
"""Blocks whose offsets are fetched at once, to tell where their holes are."""

Span = tuple[int, int]
"""Offsets, `[first, end)`."""


@dataclass(frozen=True)
class Stretch:
    """Offsets of a partition that bronze should have, `[first, end)`.

    `topic_id`: what its records are named by; a topic made anew gives its offsets once more.
    """

    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    holes: Literal["all", "inside", "none"] = "all"
    """Which of its holes count: inside: not one at its beginning, for bronze may begin later;
    none: it is looked at for what stands twice."""
    before: str = ""
    """What its first records are named by, where another partition's log lost its end since."""

    @property
    def place(self) -> TopicPartitionKey:
        """Its partition."""
        return self.topic, self.partition

    def ids(self, named: str) -> str:
        """How ids of its records begin, of those that are named so."""
        return f"{named or self.topic_id}:{self.partition}:"

    @property
    def blocks(self) -> range:
        """The blocks it lies in."""
        some = self.first < self.end
        return range(self.first >> BITS, ((self.end - 1) >> BITS) + 1) if some else range(0)

    def part(self, block: int) -> Span:
        """What of a block is in it."""
        return max(self.first, block << BITS), min(self.end, (block + 1) << BITS)


@dataclass(frozen=True)
class CountedStretch:
    """What bronze has of a stretch."""

    stretch: Stretch
    records: int
    """Different offsets of it."""
    holes: tuple[Span, ...]
    twice: Mapping[int, int]
    """Rows that stand there once more, by block, also of offsets before it that came lately."""


def count_ranges(
    connection: duckdb.DuckDBPyConnection, stretches: Sequence[Stretch], since: datetime | None
) -> list[CountedStretch]:
    """What bronze has of each stretch. `since`: arrivals from which on it is looked at first."""
    if not stretches:
        return []
    counted = _counted(connection, stretches, since)
    short = [
        n
        for n, stretch in enumerate(stretches)
        if stretch.holes != "none" and _short(stretch, counted[n])
    ]
    if since is not None and short:
        again = _counted(connection, [stretches[n] for n in short], None)
        counted |= {n: _beside(again[index], counted[n]) for index, n in enumerate(short)}
    holes = _holes(connection, stretches, counted)
    return [_counted_stretch(stretch, counted[n], holes[n]) for n, stretch in enumerate(stretches)]


@dataclass(frozen=True)
class _Block:
    within: int = 0
    """Different offsets that lie in the stretch."""
    twice: int = 0
    """Rows of the stretch that stand there once more."""
    before: int = 0
    """The same of offsets before the stretch."""


_Counted = dict[int, _Block]

_PLAN = """
CREATE OR REPLACE TEMP TABLE stretch (
  n INTEGER, topic VARCHAR, part INTEGER, named VARCHAR, also VARCHAR, first BIGINT, "end" BIGINT
)
"""
# Offsets alone do not do: a topic made anew gives them again to other messages.
_OURS = "(starts_with(r.record_id, s.named) OR starts_with(r.record_id, s.also))"
# A bitstring counts each offset once, however often its row is there. Its bounds are given: DuckDB
# would else take them from statistics, and refuse where there are none.
_COUNT = """
SELECT s.n, r."offset" >> {bits} AS block, count(*),
       bit_count(bitstring_agg((r."offset" & {low})::INTEGER, 0, {low})),
       count(*) FILTER (WHERE r."offset" >= s.first),
       coalesce(bit_count(bitstring_agg((r."offset" & {low})::INTEGER, 0, {low})
                          FILTER (WHERE r."offset" >= s.first)), 0)
FROM bronze.record r JOIN stretch s ON r.topic = s.topic AND r."partition" = s.part
WHERE r."offset" < s."end" AND {where} AND {ours}
GROUP BY ALL
"""
_OFFSETS = """
SELECT DISTINCT s.n, r."offset" AS at
FROM bronze.record r JOIN stretch s ON r.topic = s.topic AND r."partition" = s.part
     JOIN lacking l ON l.n = s.n AND l.block = r."offset" >> {bits}
WHERE r."offset" >= s.first AND r."offset" < s."end" AND {ours}
  AND r."offset" >= {first} AND r."offset" < {end}
"""


def _counted(
    connection: duckdb.DuckDBPyConnection, stretches: Sequence[Stretch], since: datetime | None
) -> dict[int, _Counted]:
    _plan(connection, stretches)
    # In all of the table rows of before would be counted with each stretch again.
    where = (
        f'r."offset" >= s.first AND r."offset" >= {min(stretch.first for stretch in stretches)}'
        if since is None
        else f"r.received_at >= TIMESTAMPTZ '{since.isoformat()}'"
    )
    sql = _COUNT.format(bits=BITS, low=BLOCK - 1, where=where, ours=_OURS)
    counteds: dict[int, _Counted] = {n: {} for n in range(len(stretches))}
    for n, block, rows, different, ours, within in connection.execute(sql).fetchall():
        # Rows before the stretch, less how many different ones these are.
        before = (rows - ours) - (different - within)
        counteds[n][block] = _Block(within, ours - within, before)
    return counteds


def _beside(whole: _Counted, late: _Counted) -> _Counted:
    """What all of the table has of a stretch, with what came lately before it: the former does not
    look there."""
    return {
        block: replace(whole.get(block, _Block()), before=late.get(block, _Block()).before)
        for block in {*whole, *late}
    }


def _plan(connection: duckdb.DuckDBPyConnection, stretches: Sequence[Stretch]) -> None:
    connection.execute(_PLAN)
    rows = [
        (
            n,
            *stretch.place,
            stretch.ids(stretch.topic_id),
            stretch.ids(stretch.before),
            stretch.first,
            stretch.end,
        )
        for n, stretch in enumerate(stretches)
    ]
    connection.executemany("INSERT INTO stretch VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _short(stretch: Stretch, counted: _Counted) -> bool:
    """Whether offsets seem to be missing."""
    return sum(block.within for block in counted.values()) < stretch.end - stretch.first


def _holes(
    connection: duckdb.DuckDBPyConnection,
    stretches: Sequence[Stretch],
    counted: dict[int, _Counted],
) -> dict[int, list[Span]]:
    """The holes of each stretch, ascending: of blocks without any row, and inside of others."""
    holes: dict[int, list[Span]] = {n: [] for n in counted}
    lacking: list[tuple[int, int]] = []
    for n, stretch in enumerate(stretches):
        for block in stretch.blocks if stretch.holes != "none" else ():
            begin, end = stretch.part(block)
            held = counted[n].get(block)
            # A block without any row is one hole, however long: no need to fetch its offsets.
            if held is None or not held.within:
                holes[n].append((begin, end))
            elif held.within < end - begin:
                lacking.append((n, block))
    _plan(connection, stretches)
    for index in range(0, len(lacking), BLOCKS_AT_ONCE):
        for n, span in _inside(connection, stretches, lacking[index : index + BLOCKS_AT_ONCE]):
            holes[n].append(span)
    return {n: _joined(sorted(spans)) for n, spans in holes.items()}


def _inside(
    connection: duckdb.DuckDBPyConnection,
    stretches: Sequence[Stretch],
    lacking: Sequence[tuple[int, int]],
) -> Iterator[tuple[int, Span]]:
    connection.execute("CREATE OR REPLACE TEMP TABLE lacking (n INTEGER, block BIGINT)")
    connection.executemany("INSERT INTO lacking VALUES (?, ?)", lacking)
    blocks = [block for _, block in lacking]
    # As literals of the statement: files are passed over by their smallest and largest offset.
    bounds: dict[str, Any] = {"first": min(blocks) << BITS, "end": (max(blocks) + 1) << BITS}
    rows = connection.execute(_OFFSETS.format(bits=BITS, ours=_OURS, **bounds)).fetchnumpy()
    for n, block in lacking:
        begin, end = stretches[n].part(block)
        missing = np.ones(end - begin, dtype=bool)
        asarray = np.asarray(rows["at"], dtype=np.int64)[np.asarray(rows["n"]) == n]
        missing[asarray[(asarray >= begin) & (asarray < end)] - begin] = False
        # Where the flags change, a hole begins or ends.
        edges = np.flatnonzero(np.diff(np.concatenate(([0], missing.astype(np.int8), [0]))))
        for first, last in edges.reshape(-1, 2).tolist():
            yield n, (begin + first, begin + last)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans in order, those that touch as one."""
    joined_spans: list[Span] = []
    for begin, end in spans:
        if joined_spans and joined_spans[-1][1] >= begin:
            joined_spans[-1] = (joined_spans[-1][0], max(joined_spans[-1][1], end))
        else:
            joined_spans.append((begin, end))
    return joined_spans


def _counted_stretch(stretch: Stretch, counted: _Counted, holes: list[Span]) -> CountedStretch:
    if stretch.holes == "inside" and holes and holes[0][0] == stretch.first:
        # Bronze may begin later than the partition, as after retention.
        holes = holes[1:]
    times = {block: block_row.twice + block_row.before for block, block_row in counted.items()}
    return CountedStretch(
        stretch,
        records=sum(block_row.within for block_row in counted.values()),
        holes=tuple(holes) if stretch.holes != "none" else (),
        twice={block: more for block, more in sorted(times.items()) if more},
    )


def without(holes: Sequence[Span], known: Sequence[Span]) -> list[Span]:
    """What is left of holes, ascending, without spans that are known."""
    left: list[Span] = []
    taken = _joined(sorted(known))
    begins, ends = [first for first, _ in taken], [last for _, last in taken]
    for begin, end in holes:
        latest = begin
        # Only the spans that reach into the hole: a person may have accepted thousands, and the
        # marks of transactions leave as many holes.
        for first, last in taken[bisect_right(ends, begin) : bisect_left(begins, end)]:
            if first > latest:
                left.append((latest, first))
            latest = max(latest, last)
        if latest < end:
            left.append((latest, end))
    return left


def merged_ranges(spans: Sequence[Span], most: int) -> list[Span]:
    """Spans in order as no more than so many, of which each reaches over what is between those that
    are nearest to each other."""
    if len(spans) <= most:
        return list(spans)
    between = np.array([later[0] - span[1] for span, later in pairwise(spans)])
    ends = [*np.sort(np.argsort(between, kind="stable")[len(spans) - most :]).tolist()]
    begins = [0, *(end + 1 for end in ends)]
    return [
        (spans[first][0], spans[last][1])
        for first, last in zip(begins, [*ends, len(spans) - 1], strict=True)
    ]


def block_of(block: int) -> Span:
    """The offsets of a block."""
    return block << BITS, (block + 1) << BITS


def offset_count(spans: Sequence[Span]) -> int:
    """How many offsets."""
    return sum(end - begin for begin, end in spans)
