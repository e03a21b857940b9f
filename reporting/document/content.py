"""The parts of a report, without their looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from markupsafe import Markup

from reporting.document.arrival import Arrival
from reporting.interval import Interval

Row = Mapping[str, Any]
Kind = Literal[
    "text",
    "word",
    "code",
    "number",
    "decimal",
    "hundredth",
    "share",
    "seconds",
    "bytes",
    "clock",
    "level",
    "bar",
]
Tone = Literal["", "good", "bad"]


@dataclass(frozen=True)
class Column:
    """A column of a table. `kind`: how a value is shown (word: on one line; seconds: a span;
    share: 0 to 1; bar: a number beside a bar)."""

    key: str
    title: str
    kind: Kind = "text"
    bad: bool = False
    """Whether any value but 0 is marked."""


@dataclass(frozen=True)
class Tile:
    """One figure of the head. `before`: the same of the period before; None: not comparable."""

    label: str
    value: int | float | str | None
    before: int | float | None = None
    kind: Kind = "number"
    tone: Tone = ""


@dataclass(frozen=True)
class Words:
    """Sentences, each a paragraph; with `listed`, points of a list."""

    sentences: Sequence[str]
    listed: bool = False


@dataclass(frozen=True)
class Table:
    """Rows that are shown and kept as CSV under `key`; without a row, `empty` is said.

    `whole`: how many rows there were before a limit cut them; None: these are all.
    """

    key: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    note: str = ""
    empty: str = ""
    sums: Row | None = None
    whole: int | None = None


@dataclass(frozen=True)
class Chart:
    """A picture and its figures; `svg` None: there is nothing to draw and `empty` is said."""

    key: str
    svg: Markup | None
    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    caption: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Raw:
    """HTML of a report's own, with the rows that it shows. Whoever makes it has escaped it."""

    key: str
    html: Markup
    columns: Sequence[Column] = ()
    rows: Sequence[Row] = ()


Block = Words | Table | Chart | Raw


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    title: str
    blocks: Sequence[Block]
    intro: str = ""
    beside: bool = False
    """Whether its charts stand two in a row."""


@dataclass(frozen=True)
class Report:
    """A whole report, before it has a form."""

    name: str
    title: str
    interval: Interval
    made_at: datetime
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()
    lead: Sequence[str] = ()
    """Sentences above everything."""
    subject: str = ""
    headline: str = ""
    """What stands above it in place of title and subject: what happened, where an id says
    nothing."""
    tenant: str | None = None
    """Over whose rows alone it was made; None: over all."""
    arrival: Arrival | None = None
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    """Further files by name, such as a layer for the ATT&CK Navigator."""
    wide: bool = False
    """Whether it is printed across the page: something in it is as wide as that."""

    def data(self) -> dict[str, tuple[Sequence[Column], Sequence[Row]]]:
        """Columns and rows of each table and chart, by key."""
        kept = [
            block
            for section in self.sections
            for block in section.blocks
            if not isinstance(block, Words) and block.columns
        ]
        named = {block.key: (block.columns, block.rows) for block in kept}
        # A block's key names its CSV file: of two one would be lost.
        if len(named) < len(kept):
            raise ValueError(f"report {self.name}: two blocks of one key")
        return named
