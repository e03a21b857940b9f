"""Small batches set by until together they tell what is rare.

A gate is chosen by how often its texts occur, and some hundred events hardly tell that of a text
in one of a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from alerts.matching.column_access import EventColumns, Flags

ENOUGH = 8_000
"""Events that tell what is rare; so many are held at most, and a batch more."""


class PlanSample:
    """The first events of a matcher that sees small batches alone.

    `paths` are those that its rules read; no other column is held.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._names = {path.partition(".")[0] for path in paths}
        self._batches: list[pa.RecordBatch] = []
        self._wanted: list[Flags] = []
        self.done = False

    def add(self, columns: EventColumns, wanted: Flags) -> None:
        """Set the chosen rows of a batch by; `wanted` are the rules that look at some."""
        names = [name for name in columns.batch.schema.names if name in self._names]
        # The chosen rows alone: of a large batch that hardly concerns a rule little is held.
        batch = columns.batch.select(names).take(pa.array(columns.rows))
        if self._batches and batch.schema != self._batches[0].schema:
            self._drop()
        self._batches.append(batch)
        self._wanted.append(wanted)

    def taken(self) -> tuple[EventColumns, Flags] | None:
        """All of it, once there is enough: columns, and the rules they concern; then it is done."""
        if sum(batch.num_rows for batch in self._batches) < ENOUGH:
            return None
        whole = pa.Table.from_batches(self._batches).combine_chunks().to_batches()[0]
        wanted = np.logical_or.reduce(self._wanted)
        self._drop()
        self.done = True
        return EventColumns(whole), wanted

    def _drop(self) -> None:
        self._batches, self._wanted = [], []
