"""The Spark SQL that Search offers finds what its page shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from api.services.console.event_search import EventFilter, EventQuestion, events
from api.services.reader import Reader
from api.sql.runner import Statements
from infra.config.settings import Settings
from tests.api.story import EVENTS

SINCE, UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def statements(day_settings: Settings) -> Iterator[Statements]:
    running = Statements(day_settings)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", []),
        ("10.0.0.1", []),
        ("ROOT", []),
        ("it's \\ nothing", []),
        ("", [("user_name", "!=", "root")]),
        ("", [("user_name", "=", "root"), ("source", "~", "SS")]),
        ("", [("dst_port", "!=", "53")]),
        ("", [("dst_port", "=", "22")]),
    ],
)
def test_the_statement_asks_the_same_as_the_page(
    day_settings: Settings,
    statements: Statements,
    text: str,
    filters: list[tuple[str, str, str]],
) -> None:
    asked = EventQuestion(SINCE, UNTIL, text, tuple(EventFilter(*each) for each in filters))
    page, more = events(Reader(day_settings), asked, ("time", "source"), 100, None)
    assert more is None
    rows = statements.run(asked.spark(("time", "source")), max_rows=100).rows
    assert sorted(row[1] for row in rows) == sorted(row["source"] for row in page)
    if not filters and not text:
        assert rows
    assert len(rows) == len(page) <= len(EVENTS)
