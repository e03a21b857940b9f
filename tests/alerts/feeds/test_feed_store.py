"""What a feed's file counts along is what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from alerts.feeds.feed_store import FeedObject, FeedStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_objects_are_counted_along_through_all_that_comes_and_goes(tmp_path: Path) -> None:
    file = tmp_path / "feed.sqlite"

    def there() -> int:
        """As a process that opens the file anew counts them."""
        other = FeedStore(file, "origin")
        try:
            return other.objects()
        finally:
            other.close()

    def broken() -> Iterator[FeedObject]:
        yield FeedObject("e3/a", NOW)
        raise OSError("broke off")

    store = FeedStore(file, "origin")
    assert store.objects() == 0
    with store.page():
        store.put([FeedObject("e1/a", NOW), FeedObject("e1/b", NOW), FeedObject("e2/a", NOW)])
        store.put([FeedObject("e1/a", NOW)])
    assert store.objects() == there() == 3
    with store.page():
        store.forget("e1/")
        store.put([FeedObject("e1/a", NOW)])
    assert store.objects() == there() == 2
    with pytest.raises(OSError, match="broke off"), store.page():
        store.put(broken())
    assert store.objects() == there() == 2
    with store.page():
        store.clear()
    assert store.objects() == there() == 0
    store.close()


def test_a_feed_of_many_events_is_not_counted_anew_with_each(tmp_path: Path) -> None:
    store = FeedStore(tmp_path / "feed.sqlite", "origin")
    asked: list[str] = []
    store._db.set_trace_callback(asked.append)
    for number in range(50):
        with store.page():
            store.put([FeedObject(f"e{number}/a", NOW)])
        assert store.objects() == number + 1
    store.close()
    assert sum("count(" in text for text in asked) == 1
