"""Which small files of a table become one: plain arithmetic, so that it can be proven.

Files grow by tiers: those of about one size are put together once there are enough of
them, so a row is written again only a few times in its life, however many batches come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

FAN_IN = 8
"""So many files of one tier become one of the next."""

TIER = 3
"""A tier reaches over sizes up to 2**TIER apart, as much as FAN_IN files of one are larger."""

SPANS = 8
"""Into so many spans a retention is cut: a file goes when its newest row does, so its oldest
stays by at most a span longer."""


@dataclass(frozen=True)
class CompactionPiece:
    """A file: its name, its bytes, and its place in the order in which rows came."""

    name: str
    size: int
    order: int


def plan(
    pieces: Sequence[CompactionPiece], target: int, fan_in: int = FAN_IN
) -> list[tuple[CompactionPiece, ...]]:
    """Groups of files that each become one, of at most `target` bytes together.

    A group holds neighbours in order, of one tier. What is left over waits for more.
    """
    tiers: dict[int, list[CompactionPiece]] = {}
    for piece in sorted(pieces, key=lambda piece_row: (piece_row.order, piece_row.name)):
        # A larger one finds hardly a partner with which it stays below the target.
        if piece.size <= target // 2:
            tiers.setdefault(int(log2(max(1, piece.size))) // TIER, []).append(piece)
    groups = []
    for tier in tiers.values():
        group: list[CompactionPiece] = []
        for piece in tier:
            if sum(piece_row.size for piece_row in group) + piece.size > target:
                groups.append(tuple(group))
                group = []
            group.append(piece)
            if len(group) == FAN_IN**2:
                groups.append(tuple(group))
                group = []
        groups.append(tuple(group))
    return [group for group in groups if len(group) >= fan_in or _full(group, target)]


def plan_in_spans(
    pieces: Sequence[CompactionPiece], target: int, span: int, now: int
) -> list[tuple[CompactionPiece, ...]]:
    """The same where rows go by their age: a file has rows of one span of time only.

    `span` and `now`: in the unit of `order`, which is the age of a piece's newest row.
    """
    spans: dict[int, list[CompactionPiece]] = {}
    for piece in pieces:
        spans.setdefault(piece.order // span, []).append(piece)
    # Into a span that is over hardly anything comes that what is left over could wait for.
    return [
        group
        for number, inside in sorted(spans.items())
        for group in plan(inside, target, FAN_IN if (number + 1) * span > now else 2)
    ]


def _full(group: Sequence[CompactionPiece], target: int) -> bool:
    """Few, but together as large as a file shall be."""
    return len(group) > 1 and sum(piece.size for piece in group) > target // 2
