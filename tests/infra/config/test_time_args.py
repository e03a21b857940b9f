"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.time_args import instant_utc, time_of
from infra.errors import Usage

NOW = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW),
        ("-24h", NOW - timedelta(hours=24)),
        ("90m", NOW - timedelta(minutes=90)),
        ("+7d", NOW + timedelta(days=7)),
        ("2w", NOW - timedelta(weeks=2)),
        ("today", datetime(2026, 11, 20, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 11, 19, tzinfo=UTC)),
        # In Berlin the next day has begun already.
        ("today Europe/Berlin", datetime(2026, 11, 20, 23, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20 +02:00", datetime(2026, 11, 19, 22, tzinfo=UTC)),
        ("2026-07-01 Europe/Berlin", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-11-20T12:00:00Z", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("2026-11-20 12:00:00+01:00", datetime(2026, 11, 20, 11, tzinfo=UTC)),
        ("2026-11-20 12:00 Europe/Berlin", datetime(2026, 11, 20, 11, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_as_a_person_means_it(text: str, wanted: datetime) -> None:
    assert time_of("since", text, NOW) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "24", "-h", "24x", "2026-11-20T12:00:00", "2026-13-01", "0000-01-01"),
        *("0001-01-01", "1899-12-31", "9901-01-01", "9999-12-31T23:59:59Z"),
        *("999999999d", "+999999999w", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
        *("yesterday Mars/Olympus", "2026-11-20 ../../etc/passwd", "1e999", "NaN", "\ud800"),
        *("0.5", "0", "1700000000", "-1", "1.5e9"),
    ],
)
def test_what_is_no_time_is_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(Usage, match=r"^since "):
        time_of("since", text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_time_in_utc_or_refused(text: str) -> None:
    try:
        moment = time_of("since", text, NOW)
    except Usage:
        return
    assert moment.utcoffset() == timedelta(0)


@given(st.datetimes(datetime(1900, 1, 1), datetime(9900, 12, 31), timezones=st.just(UTC)))
def test_an_instant_means_itself(moment: datetime) -> None:
    assert time_of("since", moment.isoformat(), NOW) == moment


def test_a_time_of_day_without_a_zone_is_of_utc_where_that_is_promised() -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert instant_utc("--since", "2026-11-20T12:00:00") == noon
    assert instant_utc("--since", "2026-11-20T13:00:00+01:00") == noon
    assert instant_utc("--since", "2026-11-20") == noon.replace(hour=0)
    assert instant_utc("--since", "-24h") < instant_utc("--since", "now")
    with pytest.raises(Usage, match="--since tomorow: write an instant"):
        instant_utc("--since", "tomorow")
