"""Counts by window are those of the events, however they come. The judge is SQL in DuckDB."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from enrich.rollup.jobs import for_counting, logins, rollup, tell_again
from enrich.rollup.reconcile import counted_in, recount_hours
from enrich.rollup.reconcile import waiting as waiting_hours
from enrich.rollup.topic import Topic
from enrich.rollup.unpublished import UnpublishedHours, unpublished_hours
from enrich.tables import DHCP_SEGMENT
from enrich.tables_rollup import LOGIN_SESSION, ROLLUP
from headgate.cli import main
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import commit, newest_version
from infra.delta.retention import Applied, note_retention
from infra.errors import Retryable, Usage
from infra.kafka.client import Broker, ensure_topics
from infra.kafka.transactions import read_all
from infra.streaming.batch import Batch
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.merge import merge
from ingest.completeness.rollup_coverage import span
from ingest.quality.measurements import _volumes
from ingest.quality.source_silence import silences
from ingest.reparse.recount import Recounts, of_counts
from ingest.reparse.reparse import reparse
from ingest.tables import EVENT, RECORD
from ingest.tables_quality import RECOUNT
from reporting.document.request import ReportRequest
from reporting.figures.daily import figures
from reporting.interval import Interval
from tests.enrich.rows import IP, SCOPE, A, at, finished, put, rows, segment
from tests.ingest.reparse.test_reparse import BEGIN, Line, dead, dns, sshd

HOUR = 3600
DAY = 24 * HOUR


def event(second: float, late: float = 1, **other: Any) -> dict[str, Any]:
    """A login from 10.0.0.1 as a row of silver.event; its id is its second."""
    return {
        "event_uid": f"e{second:g}/{late:g}/{other.get('source')}",
        "source": "sshd",
        "mode": "live",
        "time": at(second),
        "received_at": at(second + late),
        "scope": SCOPE,
        "class_uid": 3002,
        "activity_id": 1,
        "status_id": 2,
        "src_ip": IP,
        "user_name": "ann",
        "host_name": "gate",
    } | other


FIRST = [
    *[event(n, dst_ip=f"192.0.2.{n // 60 % 4}", traffic={"bytes": 9}) for n in range(0, 900, 60)],
    event(5, status_id=1, src_ip="203.0.113.9", traffic={"bytes": 2**63 - 1}),
    event(6, src_ip="203.0.113.8", mac=A, host_name=None),
    event(7, src_ip=None, host_name=None),
    event(8, dead_letter_reason="not JSON", class_uid=0),
    event(9, duplicate_of="e8"),
    event(10, mode="import"),
    event(9999, late=-9000),  # a clock that is far ahead
    finished(1000),
]
MORE = [event(30), event(901), event(2000), event(4 * HOUR), finished(4 * HOUR)]
LATE = [
    event(40, late=4 * HOUR, source="okta"),
    event(-90 * DAY, late=90 * DAY + 4 * HOUR + 30),
    finished(4 * HOUR + 60),
]

_AT = "least(time, received_at + INTERVAL 5 MINUTE)"
_OF_A_CLASS = "source, mode, class_uid, activity_id, status_id, count(*) AS events"
_ARRIVED = "min(received_at) AS first_at, max(received_at) AS last_at"
JUDGED = {
    "gold.rollup_hour": f"""
        SELECT date_trunc('hour', {_AT}) AS window_start, {_OF_A_CLASS}, {_ARRIVED},
               CASE WHEN src_ip LIKE '10.%' THEN src_ip ELSE coalesce(mac, host_name) END AS device,
               sum(traffic.bytes)::BIGINT AS bytes, count(DISTINCT dst_ip) AS destinations
        FROM silver.events GROUP BY ALL""",
    "gold.rollup_minute": f"""
        SELECT date_trunc('minute', {_AT}) AS window_start, {_OF_A_CLASS}, {_ARRIVED},
               sum(traffic.bytes)::BIGINT AS bytes
        FROM silver.events GROUP BY ALL""",
    "gold.arrival_minute": f"""
        SELECT date_trunc('minute', received_at) AS window_start, source, mode, {_ARRIVED},
               count(*) FILTER (WHERE dead_letter_reason IS NULL AND duplicate_of IS NULL)
                 AS events,
               count(*) FILTER (WHERE dead_letter_reason IS NOT NULL) AS dead,
               count(*) FILTER (WHERE duplicate_of IS NOT NULL) AS repeated
        FROM silver.event WHERE source <> '_heartbeat' GROUP BY ALL""",
}
NONE: dict[str, int] = dict.fromkeys(JUDGED, 0)


def differences(lake: Lake) -> dict[str, int]:
    """How many rows of each view the judge does not have, and the other way round."""
    connection = connect(lake.settings.lake_root)
    found = {}
    for view, sql in JUDGED.items():
        asked = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0")
        names = ", ".join(column[0] for column in asked.description)
        ours, theirs = f"(SELECT {names} FROM {view})", f"(SELECT {names} FROM ({sql}))"
        both = f"({ours} EXCEPT ALL {theirs}) UNION ALL ({theirs} EXCEPT ALL {ours})"
        found[view] = len(connection.execute(both).fetchall())
    connection.close()
    return found


def ask(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    connection = connect(lake.settings.lake_root)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@dataclass
class Story:
    """A lake whose events came bit by bit, and how far the counts were from them after each."""

    lake: Lake
    stages: list[dict[str, int]] = field(default_factory=list)

    def comes(self, *events: dict[str, Any]) -> None:
        """Events arrive; the job counts them."""
        records = [
            {"record_id": one["event_uid"], **one}
            for one in events
            if one["source"] != "_heartbeat"
        ]
        put(self.lake, RECORD, records)
        put(self.lake, EVENT, list(events))
        rollup(self.lake, once=True).wait()
        self.stages.append(differences(self.lake))


@pytest.fixture(scope="module")
def story(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    home = tmp_path_factory.mktemp("counted")
    shutil.copytree(empty_tables, home / "lake")
    told = Story(Lake(spark, load(home=home, jobs={"rollup_allowed_lateness_seconds": 600})))
    for events in (FIRST, MORE, LATE, [finished(8 * HOUR)]):
        told.comes(*events)
    return told


@pytest.mark.full
def test_counts_are_those_of_the_events_after_each_batch_and_restart(story: Story) -> None:
    assert story.stages[:2] == [NONE, NONE]
    assert ask(story.lake, "SELECT max(destinations) FROM gold.rollup_hour") == [(4,)]


@pytest.mark.full
def test_what_came_too_late_is_counted_once_its_hour_of_arrival_is_compared(story: Story) -> None:
    assert story.stages[2] == {
        "gold.rollup_hour": 2,
        "gold.rollup_minute": 2,
        "gold.arrival_minute": 0,
    }
    assert story.stages[3] == NONE
    told = "SELECT sum(missing), sum(recounted), sum(unmended), max(hour) FROM ops.rollup_check"
    assert ask(story.lake, told) == [(2, 2, 0, datetime(2026, 11, 21, 9, tzinfo=UTC))]


@pytest.mark.full
def test_the_commit_of_a_merge_names_its_batch(story: Story) -> None:
    folder = story.lake.folder(ROLLUP)
    found = [commit(folder, n) for n in range(newest_version(folder) + 1)]
    batches = [one.marker["batch"] for one in found if one.operation == "MERGE" and one.marker]
    assert batches == sorted(set(batches))
    assert len(batches) >= len(story.stages)


@pytest.mark.full
def test_checks_answer_the_same_with_counts_and_without(story: Story) -> None:
    settings = story.lake.settings
    until = at(5 * HOUR)
    interval = Interval(at(-600), at(4 * HOUR + 5))
    answers = []
    connection = connect(settings.lake_root)
    for _ in range(2):
        volumes = _volumes(connection, datetime(2026, 11, 21, 2, tzinfo=UTC))
        heard = silences(connection, settings, until)
        reported = figures(ReportRequest(settings, connection, interval, interval.end)).sources
        start, end = span(connection, interval.start, interval.end)
        found = volumes[["source", "now", "before"]].values.tolist()
        answers.append((found, heard, reported, start < end))
        connection.execute(
            "CREATE OR REPLACE VIEW ops.rollup_check AS SELECT now() AS hour LIMIT 0"
        )
    counted, fallen_back = answers
    assert (counted[3], fallen_back[3]) == (True, False)
    assert counted[:3] == fallen_back[:3]
    assert counted[0][0][1] > 10
    assert {one.source for one in counted[1]} == {"okta", "sshd"}


@pytest.mark.full
def test_counting_anew_changes_nothing_that_was_right(story: Story) -> None:
    before = ask(story.lake, "SELECT * EXCLUDE (destination_sketch) FROM gold.rollup ORDER BY ALL")
    found = recount_hours(story.lake, at(0), at(HOUR))
    assert (found.hours, found.missing, found.unmended) == (2, 0, 0)
    assert found.recounted
    after = ask(story.lake, "SELECT * EXCLUDE (destination_sketch) FROM gold.rollup ORDER BY ALL")
    assert after == before


@pytest.mark.full
def test_what_is_counted_anew_goes_out_as_well(story: Story, broker: Broker) -> None:
    kafka = {"bootstrap": broker.address, "rollups_topic": "counted-anew"}
    lake = Lake(story.lake.spark, load(home=story.lake.settings.home, kafka=kafka))
    ensure_topics(lake.settings, jobs=("rollup",))
    found = recount_hours(lake, at(0), at(HOUR))  # as the command does it, beside the job
    noted = [hour for _, hours in unpublished_hours(lake.settings) for hour in hours]
    assert sorted(noted) == sorted(found.recounted)
    tell_again(lake, Topic(lake.settings))
    assert list(unpublished_hours(lake.settings)) == []
    kept = counted_in(lake, found.recounted).where("source <> '_heartbeat'").collect()
    told = list(read_all(lake.settings, "counted-anew"))
    assert len({message.key() for message in told}) == len(kept) > 0
    said = sum(json.loads(message.value() or b"")["events"] for message in told)
    assert said == sum(row["events"] for row in kept)


def test_what_is_noted_once_more_while_it_is_told_is_told_again(tmp_path: Path) -> None:
    settings = load(home=tmp_path, kafka={"rollups_topic": "counts"})
    untold = UnpublishedHours(settings, [("rollup", at(0))])
    untold.note()
    ((file, _),) = unpublished_hours(settings)
    untold.note()  # as a recount does after its commit
    file.unlink()
    ((again_, hours),) = unpublished_hours(settings)
    assert hours == [("rollup", at(0))]
    again_.unlink()
    assert list(unpublished_hours(settings)) == []


@pytest.mark.full
def test_hours_that_retention_has_emptied_keep_their_counts(story: Story) -> None:
    settings = load(home=story.lake.settings.home, retention={"silver_days": 0.5})
    version = story.lake.version(ROLLUP)
    found = recount_hours(Lake(story.lake.spark, settings), at(0), at(HOUR))
    assert found.recounted == []
    assert found.unmended > 0
    assert story.lake.version(ROLLUP) == version
    with pytest.raises(Usage, match="compared up to 2026-11-21T10:00:00"):
        recount_hours(story.lake, at(0), at(10 * HOUR))


@pytest.mark.full
def test_the_command_lists_hours_that_differed(
    story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(story.lake.settings.home)]
    lately = ["--since", "2026-11-21T09:00:00Z"]
    assert main([*home, "rollup", "checks", *lately, "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["hour"], row["missing"]) == ("2026-11-21T09:00:00+00:00", 2)
    assert main([*home, "rollup", "recount", "--since", "2026-11-21T00:00:00Z"]) == 2
    assert "--since and --until" in capsys.readouterr().err


def test_a_batch_is_merged_once_and_takes_the_place_of_what_has_its_key(lake: Lake) -> None:
    def count(events: int, **other: Any) -> dict[str, Any]:
        window = {"window_start": at(0), "window_end": at(60)}
        return (
            {"grain": "minute", "source": "sshd", "mode": "live", "events": events} | window | other
        )

    def batch(number: int, *found: dict[str, Any], look_back: bool = False) -> bool:
        run = Batch(
            "rollup", "query", number, f"digest {number}", lake.settings.checkpoint_root / "rollup",
            look_back, datetime.now(UTC), "",
        )  # fmt: skip
        return merge(lake, rows(lake.spark, ROLLUP, list(found)).persist(), ROLLUP, run)

    assert batch(0, count(1), count(2, device="a"), look_back=True)
    assert batch(1, count(5), count(3, device="b"))
    version = newest_version(lake.folder(ROLLUP))
    assert not batch(1, count(7), look_back=True)
    assert newest_version(lake.folder(ROLLUP)) == version
    assert batch(2)
    held = ask(lake, "SELECT device, events FROM gold.rollup ORDER BY events")
    assert held == [("a", 2), ("b", 3), (None, 5)]


def test_beside_alerts_counting_leaves_a_core_free(lake: Lake) -> None:
    for second in range(2):
        put(lake, DHCP_SEGMENT, [segment(second, second + 30, A, second, rev=1)])
    beside, alone = for_counting(lake, once=False), for_counting(lake, once=True)
    assert beside.read(DHCP_SEGMENT).rdd.getNumPartitions() == 1
    assert alone.read(DHCP_SEGMENT).rdd.getNumPartitions() > 1


@pytest.mark.full
def test_logins_without_a_long_pause_are_one_session_of_the_device(lake: Lake) -> None:
    # A holds 10.0.0.1 from 0 to 3 h      x x  x      x              x    (pauses: 30 min)
    lake = Lake(
        lake.spark, load(home=lake.settings.home, jobs={"rollup_allowed_lateness_seconds": 600})
    )
    put(lake, DHCP_SEGMENT, [segment(0, 3 * HOUR, A, 0, 1)])
    first = [event(10), event(900), event(1800, status_id=1), event(2 * HOUR, activity_id=2)]
    other = [
        event(20, user_name="bob", src_ip="203.0.113.9"),
        event(30, user_name=None),
        event(40, class_uid=4001),
        event(50, mode="import"),
    ]
    put(lake, EVENT, [*first, *other, finished(2 * HOUR)])
    logins(lake, once=True).wait()
    put(lake, EVENT, [event(6 * HOUR), finished(6 * HOUR)])
    logins(lake, once=True).wait()
    told = ask(
        lake,
        "SELECT user_name, device, started_at, ended_at, logins, failures, logoffs, events, hosts, "
        "mac FROM gold.login_session ORDER BY started_at",
    )
    assert told == [
        ("ann", IP, at(10), at(1800), 1, 2, 0, 3, ["gate"], A),
        ("bob", "gate", at(20), at(20), 0, 1, 0, 1, ["gate"], None),
        ("ann", IP, at(2 * HOUR), at(2 * HOUR), 0, 0, 1, 1, ["gate"], A),
    ]
    assert lake.read(LOGIN_SESSION).columns == [one.name for one in LOGIN_SESSION.columns]


def test_counts_go_out_whole_under_the_key_of_their_window(lake: Lake, broker: Broker) -> None:
    settings = load(
        home=lake.settings.home, kafka={"bootstrap": broker.address, "rollups_topic": "rollups"}
    )
    window = {"window_start": at(0), "window_end": at(60), "first_at": at(1), "last_at": at(2)}
    told = [
        {"grain": "minute", "source": "sshd", "mode": "live", "events": 3, **window},
        {"grain": "arrival_minute", "source": "_heartbeat", "mode": "live", "dead": 1, **window},
    ]
    ensure_topics(settings, jobs=("rollup",))
    assert Topic(settings).send(rows(lake.spark, ROLLUP, told)) == 1
    reader = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "counts",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe(["rollups"])
    message = reader.poll(30)
    reader.close()
    assert message is not None
    key, value = json.loads(message.key() or b""), json.loads(message.value() or b"")
    assert set(key) == set(ROLLUP.key)
    assert (value["events"], value["window_start"]) == (3, "2026-11-21T02:40:00Z")
    assert (
        timedelta(0) < datetime.fromisoformat(value["window_end"]) - at(0) <= timedelta(minutes=1)
    )


@pytest.mark.full
def test_hours_wait_for_an_import_that_arrived_in_them_and_is_not_in(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    def imports(**told: Any) -> None:
        (began / "7.json").write_text(json.dumps({"received_at": at(2 * HOUR).isoformat(), **told}))

    lake = Lake(
        lake.spark, load(home=lake.settings.home, jobs={"rollup_allowed_lateness_seconds": 600})
    )
    began = lake.settings.checkpoint_root / "import" / "batches"
    began.mkdir(parents=True)
    imports()
    story = Story(lake)
    story.comes(event(0), event(4 * HOUR), finished(8 * HOUR))
    story.comes(finished(8 * HOUR + 60))
    last = "SELECT max(hour) FROM ops.rollup_check"
    assert ask(lake, last) == [(datetime(2026, 11, 21, 3, tzinfo=UTC),)]
    assert "counts are compared up to 2026-11-21T04:00Z only" in capsys.readouterr().err
    imports(in_ledger=True)
    story.comes(event(-9 * DAY, late=9 * DAY + 2 * HOUR, mode="import"), finished(8 * HOUR + 90))
    assert ask(lake, last) == [(datetime(2026, 11, 21, 9, tzinfo=UTC),)]
    assert story.stages[-1] == NONE


@pytest.mark.full
def test_hours_that_a_shorter_retention_has_emptied_keep_their_counts(story: Story) -> None:
    # Only noted: the rows stay for the other tests.
    folder = story.lake.folder(EVENT)
    note_retention(folder, Applied(datetime.now(UTC)))
    version = story.lake.version(ROLLUP)
    try:
        found = recount_hours(story.lake, at(0), at(HOUR))
    finally:
        (folder / "_expired").unlink()
    assert found.recounted == []
    assert found.unmended > 0
    assert story.lake.version(ROLLUP) == version


@pytest.mark.full
def test_what_a_reparse_changed_is_counted_anew_and_nobody_takes_its_counts_before(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.settings = load(home=lake.settings.home, jobs={"rollup_allowed_lateness_seconds": 600})
    line = Line(lake)
    day = Interval(BEGIN - timedelta(hours=12), BEGIN + timedelta(hours=12))

    def goes_on(hours: int) -> None:
        line._received = hours * HOUR
        line.receive(dns(hours * HOUR))
        rollup(lake, once=True).wait()

    def told() -> tuple[int, int, datetime]:
        connection = connect(lake.settings.lake_root)
        try:
            request = ReportRequest(lake.settings, connection, day, day.end)
            row = {each["source"]: each for each in figures(request).sources}["sshd"]
            return row["events"], row["dead"], span(connection, day.start, day.end)[0]
        finally:
            connection.close()

    line.receive(*[sshd(n) for n in range(9)])
    dead(lake, "event_uid = 's3#0'")
    path = lake.path(EVENT)
    moved = "time = time - INTERVAL 3 HOURS WHERE event_uid = 's4#0'"
    lake.spark.sql(f"UPDATE delta.`{path}` SET {moved}")
    goes_on(5)
    goes_on(8)
    assert (told(), differences(lake)) == ((8, 1, BEGIN), NONE)

    reparse(lake, "sshd", BEGIN)
    wrong = differences(lake)
    assert wrong["gold.arrival_minute"] == 2, "a dead letter less, an event more"
    assert wrong["gold.rollup_hour"] > 0
    assert told()[:2] == (9, 0), "events are asked where counts are out of date"
    assert main(["--home", str(lake.settings.home), "rollup", "checks"]) == 0
    assert "to be counted anew, as events were changed: 1 hours" in capsys.readouterr().err

    lock = JobLock(lake.settings.checkpoint_root / "reparse", "reparse")
    goes_on(9)
    assert differences(lake) != NONE, "more of it may change"
    with pytest.raises(Retryable, match="reparse is changing events"):
        recount_hours(lake, BEGIN, BEGIN + timedelta(hours=1))
    lock.release()

    goes_on(10)
    assert (told(), differences(lake)) == ((9, 0, BEGIN), NONE)
    assert waiting_hours(lake) == {}
    version = lake.version(RECOUNT)
    reparse(lake, "sshd", BEGIN)
    assert lake.version(RECOUNT) == version, "nothing differs, nothing is asked"


@pytest.mark.full
def test_hours_that_are_not_compared_yet_are_counted_anew_when_they_are(lake: Lake) -> None:
    # A dead letter that becomes an event: as many rows as before, which no comparison finds.
    lake.settings = load(home=lake.settings.home, jobs={"rollup_allowed_lateness_seconds": 600})
    story = Story(lake)
    story.comes(event(0), event(1, dead_letter_reason="not JSON", class_uid=0), finished(600))
    hour = datetime(2026, 11, 21, 2, tzinfo=UTC)
    Recounts(lake, "reparse").ask([(hour, hour)])
    lake.spark.sql(
        f"UPDATE delta.`{lake.path(EVENT)}` SET dead_letter_reason = NULL, class_uid = 3002 "
        "WHERE dead_letter_reason IS NOT NULL"
    )
    story.comes(finished(8 * HOUR))
    story.comes(finished(8 * HOUR + 60))
    assert story.stages[-1] == NONE


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ({}, "job rollup makes them anew with its next comparison (every 60 min)"),
        (
            {"rollup_trigger_seconds": 0},
            "rollup recount --since 2026-11-20T12:00:00Z --until 2026-11-20T14:00:00Z",
        ),
        ({"rollup_check_minutes": 0}, "job rollup is off"),
    ],
)
def test_it_is_said_who_counts_anew(tmp_path: Path, jobs: dict[str, Any], said: str) -> None:
    settings = load(home=tmp_path, jobs=jobs)
    (sentence,) = of_counts(settings, [BEGIN, BEGIN + timedelta(hours=1)])
    assert said in sentence
    assert list(of_counts(settings, [])) == []
