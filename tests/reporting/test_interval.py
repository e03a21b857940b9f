"""Intervals as people write them, in a zone, and the period before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from infra.errors import Usage
from reporting.interval import parse_interval

NOW = datetime(2026, 11, 25, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "start", "end"),
    [
        ("2026-W47", "UTC", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("2026-12", "UTC", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("2026-11-20", "Europe/Berlin", "2026-11-19T23:00", "2026-11-20T23:00"),
        # The clocks go back on this day: it has 25 hours.
        ("2026-10-25", "Europe/Berlin", "2026-10-24T22:00", "2026-10-25T23:00"),
        ("yesterday", "UTC", "2026-11-24T00:00", "2026-11-25T00:00"),
        ("yesterday", "America/New_York", "2026-11-23T05:00", "2026-11-24T05:00"),
        ("last-week", "UTC", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("last-month", "UTC", "2026-10-01T00:00", "2026-11-01T00:00"),
    ],
)
def test_an_interval_is_of_whole_days_in_its_zone(
    text: str, zone: str, start: str, end: str
) -> None:
    interval = parse_interval(text, zone, NOW)
    assert f"{interval.start:%Y-%m-%dT%H:%M}" == start
    assert f"{interval.end:%Y-%m-%dT%H:%M}" == end


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("2026-03", "2026-02-01 to 2026-03-01 UTC"),
        ("2026-W01", "2025-12-22 to 2025-12-29 UTC"),
        ("2026-11-20", "2026-11-19 to 2026-11-20 UTC"),
        ("2026-11-20T06:00/2026-11-20T18:00", "2026-11-19 1800 to 2026-11-20 0600 UTC"),
    ],
)
def test_the_period_before_is_as_long(text: str, before: str) -> None:
    assert str(parse_interval(text).before) == before


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(Usage, match="zone Mars/Base: no such zone"):
        parse_interval("2026-11", "Mars/Base")
    with pytest.raises(Usage, match=r"zone \.\./etc"):
        parse_interval("2026-11", "../etc")
