"""Years that nobody wrote, zones that nobody named, and times that cannot be."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.settings import load
from ingest.parsing.source import ParseSettings
from ingest.parsing.timestamps import MONTHS, like_iso, of_epoch, stamp_epoch, stamp_rfc3164
from tests.ingest.logs import NOW, good

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("written", "arrived", "expected"),
    [
        ("Dec 31 23:59:59", "2026-01-01T00:00:02Z", "2025-12-31T23:59:59Z"),
        ("Jan  1 00:00:01", "2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z"),
        ("Jan  1 00:00:01", "2025-12-31T23:59:58Z", "2026-01-01T00:00:01Z"),
        ("Mar  2 09:00:00", "2026-03-02T09:00:01Z", "2026-03-02T09:00:00Z"),
        ("Mar  4 09:00:00", "2026-03-02T09:00:01Z", "2025-03-04T09:00:00Z"),
        ("Feb 29 12:00:00", "2026-03-02T09:00:01Z", "2024-02-29T12:00:00Z"),
        ("Feb 29 12:00:00", "2103-03-02T09:00:01Z", "2096-02-29T12:00:00Z"),
    ],
)
def test_the_year_comes_from_the_arrival(written: str, arrived: str, expected: str) -> None:
    row = good("sshd", f"{written} h sshd[1]: x", now=at(arrived))
    assert row["time"] == at(expected)
    assert row["time_quality"] == "assumed_year"
    assert row["metadata"]["original_time"] == written


@pytest.mark.parametrize("scale", [1, 10**3, 10**6])
def test_an_epoch_of_a_year_that_cannot_be_is_not_read_at_another_scale(scale: int) -> None:
    for seconds in (100_000_000_001, 253_402_300_799):
        for number in (seconds * scale, float(seconds * scale), str(seconds * scale)):
            stamp = stamp_epoch(number, NOW)
            assert (stamp.time, stamp.quality) == (NOW, "received")
            assert stamp.original == str(number)
    for seconds in (1_600_000_000, 99_999_999_999, -1_600_000_000):
        stamp = stamp_epoch(seconds * scale, NOW)
        assert (stamp.time, stamp.quality) == (of_epoch(seconds), "exact")


@pytest.mark.parametrize("written", ["Feb 30 09:00:00", "Xyz  1 09:00:00", "Mar  2 25:00:00"])
def test_a_day_that_does_not_exist_gives_the_arrival(written: str) -> None:
    row = good("sshd", f"{written} h sshd[1]: x")
    assert (row["time"], row["time_quality"]) == (NOW, "received")
    assert row["metadata"]["original_time"] == written


def test_the_hour_that_comes_twice_is_the_one_in_which_the_line_came() -> None:
    written = "Oct 25 02:30:00"
    for arrived in ("2026-10-25T00:30:05Z", "2026-10-25T01:30:05Z"):
        row = good("sshd", f"{written} h sshd[1]: x", tz="Europe/Berlin", now=at(arrived))
        assert row["time"] == at(arrived) - timedelta(seconds=5)
    later = good("sshd", f"{written} h sshd[1]: x", tz="Europe/Berlin", now=NOW)
    assert later["time"] == at("2026-10-25T00:30:00Z")


def test_the_zone_comes_from_the_host_the_source_or_its_family() -> None:
    settings = ParseSettings.of(
        load(
            sources={
                "sshd": {"tz": "Europe/Berlin", "hosts": {"nyc": "America/New_York"}},
                "zeek": {"tz": "Asia/Tokyo"},
            }
        )
    )

    def hour(source: str, raw: str, **headers: bytes) -> int:
        return int(good(source, raw, settings=settings, headers=headers)["time"].hour)

    assert hour("sshd", "Mar  2 09:00:00 h sshd[1]: x") == 8
    assert hour("sshd", "Mar  2 09:00:00 nyc sshd[1]: x") == 14
    assert hour("sudo", "Mar  2 09:00:00 nyc sudo: x") == 9
    assert hour("sshd", "Mar  2 09:00:00 nyc sshd[1]: x", tz=b"Asia/Tokyo") == 0
    assert hour("sshd", "Mar  2 09:00:00 nyc sshd[1]: x", tz=b"../etc/passwd") == 14
    conn = '{"ts":"2026-03-02T09:00:00","id.orig_h":"10.0.0.5","id.resp_h":"10.0.0.6"}'
    assert hour("zeek:conn", conn) == 0
    kea = "2026-03-02 09:00:00.1 INFO  [a/1.2] DHCP4_STARTED x"
    assert hour("kea_dhcp4", kea, host=b"nyc") == 9


def test_the_scope_comes_from_the_host_else_it_is_the_first_without_hosts() -> None:
    settings = ParseSettings.of(
        load(
            scopes=[
                {"name": "branch", "networks": ["10.0.0.0/8"], "hosts": ["gw", "kea_dhcp4"]},
                {"name": "main", "networks": ["10.0.0.0/8"]},
                {"name": "other", "networks": ["10.0.0.0/8"]},
            ]
        )
    )
    assert settings.scope("gw", "dnsmasq") == "branch"
    assert settings.scope(None, "kea_dhcp4") == "branch"
    assert settings.scope("vm", "dnsmasq") == "main"
    assert settings.scope("vm", "dnsmasq", relay="gw") == "branch"
    assert settings.scope("gw", "dnsmasq", relay="10.0.0.1") == "branch"
    assert ParseSettings().scope("vm", "dnsmasq") is None
    trail = '{"eventName":"GetX","eventSource":"x"}'
    row = good("aws_cloudtrail", trail, settings=settings, headers={"host": b"gw"})
    assert row["scope"] == "branch"
    row = good("dnsmasq", "Mar  2 09:00:00 gw dnsmasq-dhcp[1]: x", settings=settings)
    assert row["scope"] == "branch"


@pytest.mark.parametrize(
    ("ts", "time"),
    [
        ("1e300", None),
        ("-1e300", None),
        ("-62135596800.0", None),
        ("-2208988801", None),
        ('"10000-01-01T00:00:00Z"', None),
        ('"1899-12-31T23:59:59Z"', None),
        ('"soon"', None),
        ('"NaN"', None),
        ("null", None),
        ("[]", None),
        ("true", None),
        ("-1.5", "1969-12-31T23:59:58.5Z"),
        ("99999999999.0", "5138-11-16T09:46:39Z"),
        # So many seconds nobody means: they count milliseconds, or nanoseconds.
        ("1772442000123", "2026-03-02T09:00:00.123Z"),
        ("9223372036854775807", "2262-04-11T23:47:16.854775Z"),
        ('"1900-01-01T00:00:00Z"', "1900-01-01T00:00:00Z"),
        ('"9999-12-31T23:59:59.999999Z"', "9999-12-31T23:59:59.999999Z"),
        ('"2026-03-02T09:00:00.123456789+0530"', "2026-03-02T03:30:00.123456Z"),
    ],
)
def test_absurd_times_are_kept_or_replaced_by_the_arrival(ts: str, time: str | None) -> None:
    raw = f'{{"ts":{ts},"id.orig_h":"10.0.0.5","id.resp_h":"10.0.0.6","duration":1.5}}'
    row = good("zeek:conn", raw)
    assert row["time"] == (at(time) if time else NOW)
    assert row["time_quality"] == ("exact" if time else "received")
    original = json.loads(ts)
    if time is None and original is not None:
        assert row["metadata"]["original_time"] == str(original)


@pytest.mark.parametrize("stamp", ["-", "9999-12-31T23:59:59-23:00", "2026-13-01T00:00:00Z"])
def test_syslog_without_a_readable_time_gets_the_arrival(stamp: str) -> None:
    row = good("sshd", f"<86>1 {stamp} h sshd 1 - - x")
    assert (row["time"], row["time_quality"]) == (NOW, "received")


def as_rfc3164(when: datetime, zone: ZoneInfo) -> str:
    """`when` as syslog writes it, without year and zone."""
    local = when.astimezone(zone)
    return f"{MONTHS[local.month - 1]} {local.day:2d} {local:%H:%M:%S}"


@given(
    when=st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1), timezones=st.just(UTC)),
    lag=st.timedeltas(timedelta(hours=-20), timedelta(days=300)),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"]),
)
def test_a_time_without_year_is_found_again(when: datetime, lag: timedelta, zone: str) -> None:
    known = ZoneInfo(zone)
    when = when.replace(microsecond=0)
    found = stamp_rfc3164(as_rfc3164(when, known), known, when + lag)
    # In the hour that comes twice, one of the two is meant.
    assert found.time in (when, when - timedelta(hours=1), when + timedelta(hours=1))
    assert as_rfc3164(found.time, known) == as_rfc3164(when, known)


@given(seconds=st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_none(seconds: float) -> None:
    found = of_epoch(seconds)
    assert found is None or found.tzinfo is UTC


@given(when=st.datetimes(timezones=st.just(UTC)))
def test_iso_is_written_like_it_was(when: datetime) -> None:
    if 1900 < when.year < 9999:
        assert like_iso("2026-01-01T00:00:00.000000Z", when, BERLIN) == (
            f"{when.year:04d}-{when:%m-%dT%H:%M:%S.%f}Z"
        )
