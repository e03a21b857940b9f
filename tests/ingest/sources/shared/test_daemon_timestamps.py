"""Times at the start of lines: read, and written again in the same form."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ingest.sources.shared.daemon_timestamps import read_clock, write_clock

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "time", "quality"),
    [
        ("Mon Mar  2 10:00:00 2026", "2026-03-02T09:00:00+00:00", "assumed_zone"),
        ("Mon Mar 02 10:00:00.5 2026", "2026-03-02T09:00:00.500000+00:00", "assumed_zone"),
        ("Mon Mar  2 10:00:00 2026 us=12", "2026-03-02T09:00:00.000012+00:00", "assumed_zone"),
        ("2026-03-02T10:00:00.123456789Z", "2026-03-02T10:00:00.123456+00:00", "exact"),
        ("2026-03-02 10:00:00,123", "2026-03-02T09:00:00.123000+00:00", "assumed_zone"),
        ("2026-03-02  9:00:00", "2026-03-02T08:00:00+00:00", "assumed_zone"),
        ("2026-03-02T10:00:00.065-0600", "2026-03-02T16:00:00.065000+00:00", "exact"),
        ("2026-03-02 10:00:00 UTC", "2026-03-02T10:00:00+00:00", "exact"),
        ("260302  9:00:00", "2026-03-02T08:00:00+00:00", "assumed_zone"),
        ("20260302-10:00:00", "2026-03-02T09:00:00+00:00", "assumed_zone"),
        ("69a55fa0", "2026-03-02T10:00:00+00:00", "exact"),
        ("69a55fa0.0a1b2c3d", "2026-03-02T10:00:00.169552+00:00", "exact"),
        ("@4000000069a55faa0a1b2c3d", "2026-03-02T10:00:00.169552+00:00", "exact"),
        ("1772445600", "2026-03-02T10:00:00+00:00", "exact"),
        ("1772445600123456", "2026-03-02T10:00:00.123456+00:00", "exact"),
        ("02/Mar/2026:10:00:00 +0100", "2026-03-02T09:00:00+00:00", "exact"),
        ("Mar 02 10:00:00", "2026-03-02T09:00:00+00:00", "assumed_year"),
        ("Mon Mar  2 10:00:00.250", "2026-03-02T09:00:00.250000+00:00", "assumed_year"),
        ("Mar 30 10:00:00", "2025-03-30T08:00:00+00:00", "assumed_year"),
        ("Foo Bar  2 10:00:00 2026", "2026-03-02T12:00:00+00:00", "received"),
        ("2026-13-40 10:00:00", "2026-03-02T12:00:00+00:00", "received"),
        ("", "2026-03-02T12:00:00+00:00", "received"),
        ("@ffffffffffffffffffffffff", "2026-03-02T12:00:00+00:00", "received"),
    ],
)
def test_a_time_is_read_and_its_quality_told(text: str, time: str, quality: str) -> None:
    stamp = read_clock(text, BERLIN, NOW)
    assert (stamp.time.isoformat(), stamp.quality) == (time, quality)
    assert stamp.original == (None if quality == "exact" else text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Mon Mar  2 10:00:00 2026", "Wed May  6 09:08:09 2026"),
        ("Mon Mar 02 10:00:00.5 2026", "Wed May 06 09:08:09.1 2026"),
        ("2026-03-02T10:00:00.123456Z", "2026-05-06T07:08:09.123456Z"),
        ("2026-03-02  8:25:38", "2026-05-06  9:08:09"),
        ("2026-03-02 10:00:00,123", "2026-05-06 09:08:09,123"),
        ("2026-03-02T10:00:00+02:00", "2026-05-06T09:08:09+02:00"),
        ("260302  8:25:38", "260506  9:08:09"),
        ("20260302-10:00:00", "20260506-09:08:09"),
        ("1772445600.5", "1778051289.1"),
        ("1772445600123456", "1778051289123456"),
        ("02/Mar/2026:10:00:00 +0100", "06/May/2026:08:08:09 +0100"),
        ("Mar 02 10:00:00", "May 06 09:08:09"),
        ("Mon Mar  2 10:00:00", "Wed May  6 09:08:09"),
        ("69a55fa0.0a1b2c3d", "69fae8d9.075bca00"),
        ("@4000000069a55faa0a1b2c3d", "@4000000069fae8e3075bca00"),
    ],
)
def test_a_time_is_written_as_the_old_one_was(text: str, written: str) -> None:
    when = datetime(2026, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    assert write_clock(text, when, BERLIN) == written


def test_what_is_no_time_is_not_written() -> None:
    when = datetime(2026, 5, 6, tzinfo=UTC)
    assert write_clock("yesterday", when, BERLIN) is None
    assert write_clock("2026-03-02T10:00:00+99:99", when, BERLIN) is None
