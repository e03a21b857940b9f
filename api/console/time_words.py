"""Times as people type them into an address: -24h, now, today, yesterday, a date, an instant."""

from __future__ import annotations

from datetime import UTC, datetime

from infra.config.time_args import time_of


def earliest(name: str, text: str, now: datetime) -> datetime | None:
    """The instant that a word means, a day being its beginning; None for none.

    A time of day without a zone is one of UTC, as the pages show it. Raises `Usage` that names
    the parameter.
    """
    word = text.strip()
    if not word:
        return None
    try:
        instant = datetime.fromisoformat(word)
    except ValueError:
        return time_of(name, word, now)
    is_day = len(word) == len("2026-11-20")
    return time_of(name, word, now) if instant.tzinfo or is_day else instant.replace(tzinfo=UTC)
