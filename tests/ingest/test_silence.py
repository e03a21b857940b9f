"""A source that stops for longer than it ever did is named, once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from infra.settings import Settings, load
from ingest.quality.record import State
from ingest.quality.report import of_silences
from ingest.silence import Silence, finished, silences, span
from tests.ingest.logs import good

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def heard(**minutes: Sequence[float]) -> duckdb.DuckDBPyConnection:
    """bronze.record with a record of each source so many minutes before AT."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA bronze")
    connection.execute("CREATE SCHEMA silver")
    connection.execute(
        "CREATE TABLE bronze.record (source TEXT, mode TEXT, received_at TIMESTAMPTZ)"
    )
    connection.execute('CREATE TABLE silver.event (source TEXT, "time" TIMESTAMPTZ)')
    for source, ago in minutes.items():
        name, _, mode = source.partition("__")
        rows = [[name, mode or "live", AT - timedelta(minutes=one)] for one in ago]
        connection.executemany("INSERT INTO bronze.record VALUES (?, ?, ?)", rows)
    return connection


def every(minutes: float, until: float, times: int = 30) -> list[float]:
    """Minutes ago at which a source was heard: `times` times, last `until` minutes ago."""
    return [until + minutes * n for n in range(times)]


def judged(connection: duckdb.DuckDBPyConnection, **sources: int) -> dict[str, Silence]:
    settings: Settings = load(
        home=Path("nowhere"),
        sources={name: {"silent_minutes": minutes} for name, minutes in sources.items()},
    )
    return {one.source: one for one in silences(connection, settings, AT)}


def test_a_silence_longer_than_any_before_is_broken_and_no_other() -> None:
    found = judged(heard(slow=every(90, 80), quick=every(1, 25), steady=every(1, 5)))
    assert {name: one.broken for name, one in found.items()} == {
        "slow": False,  # it was silent for 90 minutes before
        "quick": True,
        "steady": False,  # nothing is silent before ten minutes
    }
    assert found["quick"].seconds == 25 * 60
    assert found["quick"].longest == 60
    assert found["slow"].allowed == 90 * 60
    assert "longest pause was 60 s, at least 10 min" in found["quick"].sentence()


def test_the_longest_pause_counts_wherever_it_was() -> None:
    often = [*every(1, 200, 20), *every(1, 60, 20)]
    assert not judged(heard(nightly=often))["nightly"].broken
    assert judged(heard(nightly=[one + 90 for one in often]))["nightly"].broken


def test_a_source_without_a_habit_is_not_judged_unless_the_operator_does() -> None:
    few = heard(rare=every(5, 600, 9))
    assert judged(few)["rare"].allowed is None
    assert "no habit yet" in judged(few)["rare"].why
    assert judged(few, rare=60)["rare"].broken
    assert not judged(few, rare=601)["rare"].broken


def test_the_operators_word_wins_for_a_source_or_its_family() -> None:
    lake = heard(**{"zeek:dns": every(1, 25), "sshd": every(1, 25)})
    assert not judged(lake, zeek=30)["zeek:dns"].broken
    assert judged(lake, zeek=0)["zeek:dns"].allowed is None
    assert judged(lake, zeek=30)["sshd"].broken


def test_imports_replays_and_the_platform_itself_have_no_silence() -> None:
    lake = heard(a__import=every(1, 99), b__replay=every(1, 99), headgate=every(1, 99))
    assert judged(lake) == {}


def test_what_was_not_heard_for_a_month_is_forgotten_and_the_future_is_not_seen() -> None:
    lake = heard(old=every(1, 31 * 1440), ahead=[*every(1, 25), -60])
    assert list(judged(lake)) == ["ahead"]
    assert judged(lake)["ahead"].seconds == 25 * 60


def test_finished_is_the_newest_heartbeat() -> None:
    lake = heard()
    assert finished(lake) is None
    lake.execute("INSERT INTO silver.event VALUES ('_heartbeat', ?), ('sshd', ?)", [AT, AT])
    assert finished(lake) == AT


def silent(newest: datetime, at: datetime, allowed: float = 600.0) -> Silence:
    return Silence("sshd", newest, (at - newest).total_seconds(), 60.0, allowed, "because")


def test_one_silence_is_told_once_and_its_end_once() -> None:
    state = State()
    told = []
    newest = AT
    for hour in (0, 1, 2, 3):
        at = AT + timedelta(hours=hour)
        told.append(list(of_silences([silent(newest, at)], state, at)))
    heard_again = AT + timedelta(hours=4)
    told.append(list(of_silences([silent(heard_again, heard_again)], state, heard_again)))
    later = heard_again + timedelta(hours=1)
    told.append(list(of_silences([silent(heard_again, later)], state, later)))
    assert [[one["activity"] for one in said] for said in told] == [
        [],
        ["create"],
        [],
        [],
        ["close"],
        ["create"],
    ]
    created, closed, again = told[1][0], told[4][0], told[5][0]
    assert created["finding"] == closed["finding"] != again["finding"]
    assert len({one["uid"] for one in (created, closed, again)}) == 3


def test_a_run_that_was_cut_off_tells_the_same_silence_under_the_same_uid() -> None:
    def told(at: datetime) -> str:
        (one,) = of_silences([silent(AT, at)], State(), at)
        return str(one["uid"])

    assert told(AT + timedelta(hours=1)) == told(AT + timedelta(hours=2))


def test_a_record_of_a_silence_is_a_finding_about_the_platform() -> None:
    import json

    at = AT + timedelta(hours=1)
    (one,) = of_silences([silent(AT, at)], State(), at)
    row = good("headgate", json.dumps(one))
    assert (row["class_uid"], row["activity_id"], row["severity_id"]) == (2004, 1, 4)
    assert row["metadata"]["event_code"] == "source_silent"
    assert row["finding_info"]["title"] == "Source sshd is silent"
    assert json.loads(row["unmapped"])["silent_source"] == "sshd"


@pytest.mark.parametrize(
    ("seconds", "said"), [(59, "59 s"), (600, "10.0 min"), (7200, "2.0 h"), (200000, "2.3 d")]
)
def test_spans_are_told_as_people_do(seconds: float, said: str) -> None:
    assert span(seconds) == said
