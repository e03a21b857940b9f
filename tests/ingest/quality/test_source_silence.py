"""A source that stops for longer than it ever did is named, once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import LEDGER
from infra.streaming.lake import Lake
from ingest.completeness import rollup_coverage as rollup
from ingest.quality import source_silence
from ingest.quality.outcome_store import QualityState, quality_folder
from ingest.quality.self_events import of_silences
from ingest.quality.silence_baseline import (
    OUTAGE,
    SourceActivity,
    Unknown,
    merged_intervals,
    outages,
    without_ticks,
)
from ingest.quality.silence_rules import finished
from ingest.quality.source_silence import Silence, silences, span_text
from ingest.tables import RECORD
from ingest.tables_quality import LANDED, RECOUNT
from tests.ingest.logs import good

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def heard(**minutes: Sequence[float]) -> duckdb.DuckDBPyConnection:
    """bronze.record with a record of each source so many minutes before AT; by topic, or by file
    where its name ends in `_files`."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA bronze")
    connection.execute("CREATE SCHEMA silver")
    connection.execute(
        "CREATE TABLE bronze.record (source TEXT, mode TEXT, received_at TIMESTAMPTZ, topic TEXT, "
        'partition INT, "offset" BIGINT)'
    )
    connection.execute('CREATE TABLE silver.event (source TEXT, "time" TIMESTAMPTZ)')
    for source, ago in minutes.items():
        name, _, mode = source.partition("__")
        topic = None if name.endswith("_files") else f"logs.{name}"
        rows = [
            [name, mode or "live", AT - timedelta(minutes=one), topic, 0, n]
            for n, one in enumerate(sorted(ago, reverse=True))
        ]
        connection.executemany("INSERT INTO bronze.record VALUES (?, ?, ?, ?, ?, ?)", rows)
    return connection


def every(minutes: float, until: float, times: int = 30) -> list[float]:
    """Minutes ago at which a source was heard: `times` times, last `until` minutes ago."""
    return [until + minutes * n for n in range(times)]


def ticks(connection: duckdb.DuckDBPyConnection, ago: Sequence[float]) -> None:
    """Heartbeats so many minutes before AT."""
    rows = [[AT - timedelta(minutes=one)] for one in ago]
    connection.executemany("INSERT INTO silver.event VALUES ('_heartbeat', ?)", rows)


def judged(
    connection: duckdb.DuckDBPyConnection, home: Path = Path("nowhere"), **sources: int
) -> dict[str, Silence]:
    settings: Settings = load(
        home=home,
        sources={name: {"silent_minutes": minutes} for name, minutes in sources.items()},
    )
    return {one.source: one for one in silences(connection, settings, AT)}


def test_every_table_that_is_asked_is_listed() -> None:
    texts = [Path(module.__file__ or "").read_text("utf-8") for module in (source_silence, rollup)]
    named = set(re.findall(r"(?:FROM|JOIN) ((?:bronze|silver|gold|ops)\.\w+)", " ".join(texts)))
    assert named | {RECOUNT.name} == set(source_silence.ASKED)


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


DAY = 1440.0
DEAD = [*every(1, 9 * DAY, 60), *every(1, 5 * DAY, 1440), *every(1, 2 * DAY, 60)]
"""Heard, dead for three days, heard for a day, dead for three, heard for an hour, dead for two."""


def told(home: Path, *ago: float) -> None:
    """Runs of the past named `sshd` silent so many minutes before AT."""
    state = QualityState()
    for one in ago:
        at = AT - timedelta(minutes=one)
        (said,) = of_silences([silent(at - timedelta(hours=1), at)], state, at)
        assert said["activity"] == "create"
        state.silent.clear()
    state.save(quality_folder(load(home=home)))


def test_a_pause_that_was_told_as_a_silence_is_no_habit(tmp_path: Path) -> None:
    lake = heard(sshd=DEAD)
    assert not judged(lake, tmp_path)["sshd"].broken, "it was never told, so it is its habit"
    told(tmp_path, 7 * DAY, 3 * DAY)
    found = judged(lake, tmp_path)["sshd"]
    assert found.broken
    assert found.longest == 60
    assert "not counted: 3.0 d since" in found.sentence()
    assert "(reported as silent)" in found.sentence()
    assert judged(lake, tmp_path, sshd=3 * 1440)["sshd"].allowed == 3 * 86400


@pytest.mark.full
def test_a_silence_that_was_told_three_times_is_a_habit_after_all(tmp_path: Path) -> None:
    def nights(home: Path, *ago: float) -> Silence:
        told(home, *ago)
        days = [minute + night * DAY for night in range(4) for minute in every(1, 700, 240)]
        return judged(heard(sshd=days), home)["sshd"]

    assert nights(tmp_path / "2", 3.3 * DAY, 2.3 * DAY, 1.3 * DAY).broken is False
    # Two of the three nights were told; the third, which was not, is a habit by itself.
    assert nights(tmp_path / "1", 2.3 * DAY, 1.3 * DAY).broken is False
    lake = heard(sshd=[*every(1, 700, 60), *every(1, 2 * DAY, 60), *every(1, 4 * DAY, 60)])
    told(tmp_path / "0", 3 * DAY, DAY)
    assert judged(lake, tmp_path / "0")["sshd"].broken


def test_what_was_told_is_kept_for_thirty_days() -> None:
    state = QualityState()
    list(of_silences([silent(AT, AT + timedelta(hours=1))], state, AT + timedelta(hours=1)))
    assert state.told == {"sshd": ["2026-11-20T13:00:00+00:00"]}
    list(of_silences([], state, AT + timedelta(days=30)))
    assert state.told
    list(of_silences([], state, AT + timedelta(days=31)))
    assert state.told == {}


@pytest.mark.full
def test_a_time_in_which_nothing_at_all_arrived_is_no_pause_of_a_source() -> None:
    #  sshd, okta and ticks: every minute, but for 8 hours       sshd: silent for an hour
    minutes = [*every(1, 60, 300), *every(1, 60 + 300 + 480, 300)]
    lake = heard(sshd=minutes, okta=[*every(1, 1, 60), *minutes])
    ticks(lake, [*every(1, 1, 60), *minutes])
    found = judged(lake)["sshd"]
    assert found.broken
    assert found.longest == pytest.approx(60, abs=61)
    assert "(nothing arrived at all)" in found.why
    assert not judged(lake)["okta"].broken

    running = heard(sshd=minutes, okta=[*every(1, 1, 60), *minutes])
    ticks(running, every(1, 1, 60 + 300 + 480 + 300))
    assert not judged(running)["sshd"].broken, "it was quiet while the platform was not"


def test_nobody_is_silent_for_the_time_in_which_nothing_arrived() -> None:
    lake = heard(sshd=every(1, 482, 300), okta=every(1, 482, 300))
    ticks(lake, [*every(1, 482, 300), *every(0.5, 0, 4)])
    found = judged(lake)["sshd"]
    assert (found.broken, found.seconds) == (False, 482 * 60)
    assert found.known < 120
    assert "8.0 h of it unknown" in found.sentence()


def gap(
    connection: duckdb.DuckDBPyConnection,
    first: int,
    accepted: float,
    after: float | None = None,
    before: float | None = None,
    source: str | None = None,
) -> None:
    """A gap of sshd's topic that a person accepted, with times in minutes before AT."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS ops")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS ops.gap (topic TEXT, partition INT, from_offset BIGINT, "
        "accepted_at TIMESTAMPTZ, source TEXT, lost_after TIMESTAMPTZ, lost_before TIMESTAMPTZ)"
    )
    times = [None if one is None else AT - timedelta(minutes=one) for one in (after, before)]
    row = ["logs.sshd", 0, first, AT - timedelta(minutes=accepted), source, *times]
    connection.execute("INSERT INTO ops.gap VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def test_a_pause_in_which_messages_were_lost_is_none() -> None:
    minutes = [*every(1, 60 + 60 + 300, 60), *every(1, 60, 60)]
    lake = heard(sshd=minutes, okta=minutes)
    lake.execute('UPDATE bronze.record SET "offset" = "offset" + 500 WHERE "offset" >= 60')
    gap(lake, 60, accepted=60)  # as a release before noted it
    found = judged(lake)
    assert (found["sshd"].broken, found["okta"].broken) == (True, False)
    assert "(its messages were lost)" in found["sshd"].why


@pytest.mark.parametrize("mark", [True, False], ids=["behind a mark", "behind a record"])
@pytest.mark.parametrize("anew", [True, False], ids=["made anew", "one topic"])
def test_when_messages_were_lost_is_taken_from_the_gap_itself(mark: bool, anew: bool) -> None:
    """The offset before it is mostly a transaction's mark, or may also be a record of the topic
    that had the name before."""

    def lost(**sources: Sequence[float]) -> duckdb.DuckDBPyConnection:
        lake = heard(**sources)
        if anew:
            at = AT - timedelta(days=20)
            row = ["sshd", "replay", at, "logs.sshd", 0, 59]
            lake.execute("INSERT INTO bronze.record VALUES (?, ?, ?, ?, ?, ?)", row)
        gap(lake, 61 if mark else 60, accepted=30, after=360, before=60, source="sshd")
        return lake

    before = every(1, 360, 60)
    one = judged(lost(sshd=before))["sshd"]
    assert (one.seconds, one.unknown) == (360 * 60, 300 * 60), "nothing came behind the gap yet"
    again = judged(lost(sshd=[*every(1, 12, 48), *before]))["sshd"]
    assert (again.broken, again.longest) == (True, 60), "no pause of five hours is its habit"
    assert "(its messages were lost)" in again.why


def by_files(lake: duckdb.DuckDBPyConnection, *sources: str) -> None:
    """ops.file with a file of each source."""
    lake.execute("CREATE SCHEMA IF NOT EXISTS ops")
    lake.execute("CREATE TABLE ops.file (job TEXT, mode TEXT, source TEXT, found_at TIMESTAMPTZ)")
    rows = [["files", "live", name, AT] for name in sources]
    lake.executemany("INSERT INTO ops.file VALUES (?, ?, ?, ?)", rows)


def batches(
    lake: duckdb.DuckDBPyConnection, *ago: float, job: str = "ingest", takes: float = 0.02
) -> None:
    """Batches of a job in ops.ledger that began so many minutes before AT and took so many."""
    lake.execute("CREATE SCHEMA IF NOT EXISTS ops")
    lake.execute(
        "CREATE TABLE IF NOT EXISTS ops.ledger (job TEXT, started_at TIMESTAMPTZ, finished_at "
        "TIMESTAMPTZ)"
    )
    began = [AT - timedelta(minutes=one) for one in ago]
    rows = [[job, one, one + timedelta(minutes=takes)] for one in began]
    lake.executemany("INSERT INTO ops.ledger VALUES (?, ?, ?)", rows)


#                  900         300                  60         0 minutes ago
#  driver           | runs      | down               | runs     |
#  sshd, by topic   | each minute, all day                      |
#  trail, by file   | each 5 min|                    | each 5 min, first all files until then
def outage(*, until: float) -> duckdb.DuckDBPyConnection:
    """The driver was down and the broker was not; ingest has got as far as `until` minutes ago."""
    trail = [*every(5, 305, 120), *every(5, 5, 12)]
    lake = heard(sshd=every(1, until, 900 - int(until)), trail_files=trail)
    ticks(lake, every(1, until, 900 - int(until)))
    by_files(lake, "trail_files")
    batches(lake, *every(1, 300, 600), *every(1, 0, 60))
    return lake


def test_what_was_read_from_files_was_heard_also_ahead_of_where_ingest_has_got() -> None:
    at = AT - timedelta(minutes=180)
    lake, settings = outage(until=180), load(home=Path("nowhere"))
    found = {one.source: one for one in silences(lake, settings, at)}
    assert not found["trail_files"].broken
    assert found["trail_files"].seconds == 0
    assert found["sshd"].newest == at, "what came by a topic is looked at when ingest is there"
    # Nor is it a silence for who asks how it was then, as no driver ran.
    then = {one.source: one for one in silences(lake, settings, at, now=at)}["trail_files"]
    assert (then.broken, then.seconds) == (False, 125 * 60)
    assert then.known == pytest.approx(5 * 60, abs=60)


@pytest.mark.full
def test_a_time_in_which_no_driver_read_its_files_is_no_pause_of_a_source() -> None:
    found = judged(outage(until=0))
    assert found["trail_files"].longest == pytest.approx(5 * 60, abs=60)
    assert "(its files were not read)" in found["trail_files"].why
    later = outage(until=0)
    later.execute(
        "DELETE FROM bronze.record WHERE topic IS NULL AND received_at > $1",
        [AT - timedelta(minutes=55)],
    )
    assert judged(later)["trail_files"].broken, "real silence is seen soon"


def test_a_source_by_topic_has_paused_whether_a_driver_ran_or_not() -> None:
    minutes = [*every(1, 301, 300), *every(1, 0, 60)]
    lake = heard(sshd=minutes, okta=every(1, 0, 900), trail_files=minutes)
    by_files(lake, "trail_files")
    batches(lake, *every(1, 300, 600), *every(1, 0, 60))
    found = judged(lake)
    assert found["sshd"].longest == 242 * 60
    assert found["trail_files"].longest < 3 * 60


@pytest.mark.parametrize(
    ("ago", "job", "takes"), [(every(10, 55, 26), "files", 0.02), ([301], "ingest", 242)]
)
def test_a_driver_ran_while_job_files_had_batches_or_one_took_long(
    ago: Sequence[float], job: str, takes: float
) -> None:
    minutes = [*every(1, 301, 300), *every(1, 0, 60)]
    lake = heard(okta=every(1, 0, 900), trail_files=minutes)
    by_files(lake, "trail_files")
    batches(lake, *every(1, 301, 600), *every(1, 0, 59))
    assert judged(lake)["trail_files"].longest < 3 * 60
    batches(lake, *ago, job=job, takes=takes)
    assert judged(lake)["trail_files"].longest == 242 * 60


def test_a_lake_of_ours_tells_when_no_driver_read_files(lake: Lake) -> None:
    def at(minute: float) -> datetime:
        return AT - timedelta(minutes=minute)

    record = {"record_id": "r", "mode": "live", "raw": b""}
    by_topic = {"source": "sshd", "topic": "logs.sshd", "partition": 0}
    minutes = [*every(1, 300, 30), *every(1, 0, 60)]
    records = [
        *({**record, "source": "trail", "received_at": at(one)} for one in minutes),
        *({**record, **by_topic, "offset": n, "received_at": at(n)} for n in range(330)),
    ]
    lake.add(RECORD, records, "test")
    file = {"folder": "f", "path": "p", "size": 1, "state": "taken", "source": "trail"}
    file |= {"job": "files", "mode": "live", "found_at": AT, "modified_at": AT}
    lake.add(LANDED, [file], "test")
    batch = {"job": "ingest", "query_id": "q", "replayed": False}
    ran = [
        {**batch, "batch_id": n, "started_at": at(one), "finished_at": at(one - 0.1)}
        for n, one in enumerate(minutes)
    ]
    lake.add(LEDGER, ran, "test")
    connection = connect(lake.settings.lake_root, needs=("ops.file", "ops.ledger"))
    try:
        found = {one.source: one for one in silences(connection, lake.settings, at(120))}
    finally:
        connection.close()
    assert found["sshd"].newest == at(120)
    assert (found["trail"].newest, found["trail"].seconds) == (AT, 0)
    assert found["trail"].longest < 3 * 60
    assert "4.0 h since" in found["trail"].why


@given(
    lists=st.lists(
        st.lists(st.integers(0, 90), min_size=1, unique=True).map(sorted), min_size=1, max_size=3
    ),
    beats=st.lists(st.integers(0, 90), unique=True).map(sorted),
    until=st.integers(50, 90),
)
def test_an_outage_is_every_long_time_without_a_source_and_a_tick(
    lists: list[list[int]], beats: list[int], until: int
) -> None:
    """Until where ingest has got, of which files that were read are ahead."""
    beats = [beat for beat in beats if beat <= until]

    def at(five: int) -> datetime:  # steps of five minutes
        return AT + five * OUTAGE / 3

    sources = []
    for heard_at in lists:
        long = [(at(a), at(b)) for a, b in pairwise(heard_at) if b - a > 3]
        sources.append(SourceActivity("s", at(heard_at[0]), at(heard_at[-1]), 10, 60, long))
    found = set(without_ticks(outages(sources, at(0), at(until)), [at(n) for n in beats]))
    # The judge: from the first tick to the last, what lies between things heard.
    low, high = (beats[0], beats[-1]) if beats else (0, 0)
    points = sorted({*beats, *(n for one in lists for n in one if low <= n <= high)})
    expected = {(at(a), at(b)) for a, b in pairwise(points) if b - a > 3}
    assert found == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=8))
def test_unknown_times_that_overlap_count_once(spans: list[tuple[int, int]]) -> None:
    def at(minute: int) -> datetime:
        return AT + timedelta(minutes=minute)

    intervals = [(at(start), at(start + length)) for start, length in spans]
    minutes = {n for start, length in spans for n in range(start, start + length)}
    inside = Unknown(intervals[::3], intervals[1::3], intervals[2::3]).within((at(10), at(40)))
    assert inside == 60 * len(minutes & set(range(10, 40)))
    assert sum((b - a).total_seconds() for a, b in merged_intervals(intervals)) == 60 * len(minutes)


def test_a_silence_that_was_told_lasts_until_the_source_is_heard() -> None:
    since = {"old": AT - timedelta(days=31), "fading": AT - timedelta(minutes=29 * DAY)}
    lake = heard(old=every(1, 31 * DAY), fading=every(1, 29 * DAY, 3), okta=every(1, 0))
    settings = load(home=Path("nowhere"))
    found = {one.source: one for one in silences(lake, settings, AT, since)}
    assert [name for name, one in found.items() if one.broken] == ["fading", "old"]
    assert found["old"].newest == since["old"]
    never = load(home=Path("nowhere"), sources={"old": {"silent_minutes": 0}})
    assert [one.broken for one in silences(lake, never, AT, since)] == [True, False, False]
    lake.execute(
        "INSERT INTO bronze.record (source, mode, received_at) VALUES ('old', 'live', ?)", [AT]
    )
    again = {one.source: one for one in silences(lake, settings, AT, since)}
    assert (again["old"].newest, again["old"].broken) == (AT, False)


def test_finished_is_the_newest_heartbeat() -> None:
    lake = heard()
    assert finished(lake) is None
    lake.execute("INSERT INTO silver.event VALUES ('_heartbeat', ?), ('sshd', ?)", [AT, AT])
    assert finished(lake) == AT


def silent(newest: datetime, at: datetime, allowed: float = 600.0) -> Silence:
    return Silence("sshd", newest, (at - newest).total_seconds(), 60.0, allowed, "because")


def test_one_silence_is_told_once_and_its_end_once() -> None:
    state = QualityState()
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
        (one,) = of_silences([silent(AT, at)], QualityState(), at)
        return str(one["uid"])

    assert told(AT + timedelta(hours=1)) == told(AT + timedelta(hours=2))


def test_a_record_of_a_silence_is_a_finding_about_the_platform() -> None:
    import json

    at = AT + timedelta(hours=1)
    (one,) = of_silences([silent(AT, at)], QualityState(), at)
    row = good("headgate", json.dumps(one))
    assert (row["class_uid"], row["activity_id"], row["severity_id"]) == (2004, 1, 4)
    assert row["metadata"]["event_code"] == "source_silent"
    assert row["finding_info"]["title"] == "Source sshd is silent"
    assert json.loads(row["unmapped"])["silent_source"] == "sshd"


@pytest.mark.parametrize(
    ("seconds", "said"), [(59, "59 s"), (600, "10.0 min"), (7200, "2.0 h"), (200000, "2.3 d")]
)
def test_spans_are_told_as_people_do(seconds: float, said: str) -> None:
    assert span_text(seconds) == said
