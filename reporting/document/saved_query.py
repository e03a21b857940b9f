"""The answer of a saved query, for its report; who can ask one says so when the program begins.

Queries are checked, limited and run by what serves the API, which reports do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.config.settings import Settings
from infra.errors import Fatal
from reporting.interval import Interval


@dataclass(frozen=True)
class SavedAnswer:
    """Columns by name with their Spark type, and rows in their order.

    `truncated_by`: the limit that cut it (rows, bytes), None for a whole answer. `versions`: the
    tables as they were read, where that is known. `bounded`: whether the query has :since or
    :until, so that it is of the interval at all.
    """

    sql: str
    doc: str
    who: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    truncated_by: str | None
    bounded: bool
    versions: Mapping[str, int] = field(default_factory=dict)


AskSavedQuery = Callable[[Settings, str, Interval], SavedAnswer]
"""Asks the query of a name over an interval; raises `Usage` for an unknown one."""

_ask: list[AskSavedQuery] = []


def register_saved_queries(ask: AskSavedQuery) -> None:
    """Let reports be made of saved queries."""
    _ask[:] = [ask]


def ask_saved_query(settings: Settings, name: str, interval: Interval) -> SavedAnswer:
    """The answer of a saved query."""
    if not _ask:
        raise Fatal("saved queries cannot be asked from here; use the command headgate")
    return _ask[0](settings, name, interval)
