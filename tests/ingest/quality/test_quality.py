"""`headgate quality`: good rows pass, and each kind of bad row fails what it should."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from alerts.lifecycle.alert_job import alert
from alerts.matching.detection import ingest_and_detect
from alerts.tables import ALERT, FINDING
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Retryable, Usage
from infra.kafka.client import Broker, ensure_topics
from infra.runtime.outbox_flusher import flush_outbox
from infra.runtime.scheduled_tasks import Every
from infra.streaming.lake import Lake
from ingest.parsing.ocsf import KINDS
from ingest.quality import cli
from ingest.quality.measurements import RANGES, Written, measure_written, presence
from ingest.quality.outcome import Outcome
from ingest.quality.outcome_store import QualityState, outcome_history, quality_folder, quality_lock
from ingest.quality.required_columns import ONE_OF, REQUIRED
from ingest.quality.run import run as run_all
from ingest.quality.self_events import of_outcomes
from ingest.quality.source_silence import Silence
from ingest.quality.suites import ADDRESS, Suite, class_expectations, freshness, volume
from ingest.quality.validate import check, validate
from ingest.tables import EVENT
from ingest.tables_quality import DRIFT, QUALITY
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.ingest.conforms import CLASSES, EXPORT, faults, misfits
from tests.ingest.logs import good, reason

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOOD = {
    "event_uid": "r0#0", "source": "sshd", "class_uid": 3002, "activity_id": 1, "type_uid": 300201,
    "type_uid_of_class": 300201, "src_ip": "10.0.0.1", "lag_seconds": 2.0,
    "damaged_json": None,
}  # fmt: skip


def rows(*more: dict[str, Any], good: int = 200) -> pd.DataFrame:
    """Many good rows and `more`, each good but for what it names."""
    plain = [{**GOOD, "event_uid": f"r{number}#0"} for number in range(good)]
    return pd.DataFrame(
        plain + [{**GOOD, "event_uid": f"bad{n}#0", **row} for n, row in enumerate(more)]
    )


def shares(**dead: int) -> pd.DataFrame:
    """Sources with 100 rows each."""
    return pd.DataFrame(
        [
            {"source": name.replace("__", ":"), "rows": 100, "dead": n, "dead_share": n / 100}
            for name, n in dead.items()
        ],
        columns=["source", "rows", "dead", "dead_share"],
    )


def failed(frame: pd.DataFrame, sources: pd.DataFrame) -> dict[str, Outcome]:
    return {one.expectation: one for one in check(Written(frame, sources)) if not one.passed}


def test_good_rows_pass_every_expectation() -> None:
    v6, none = {"src_ip": "2001:db8::7"}, {"src_ip": None}
    outcomes = check(Written(rows(v6, none), shares(sshd=5, zeek__conn=0, zeek__made_up=0)))
    assert len(outcomes) == 14
    assert [one for one in outcomes if not one.passed or one.unexpected] == []
    assert {one.checked for one in outcomes} == {202, 201, 3, 0}


@pytest.mark.parametrize(
    ("bad", "said", "example"),
    [
        ({"event_uid": "r7#0"}, "event_uid is there once", "r7#0"),
        ({"event_uid": None}, "event_uid is there", ""),
        ({"class_uid": 9999, "type_uid_of_class": 300201}, "class_uid is a class we write", "9999"),
        ({"type_uid": 300299}, "type_uid is class_uid * 100 + activity_id", "300299"),
        ({"src_ip": "10.0.0.256"}, "src_ip is an address, where there is one", "10.0.0.256"),
        ({"src_ip": "localhost"}, "src_ip is an address, where there is one", "localhost"),
        (
            {"damaged_json": "r7#0: more"},
            "more and unmapped are JSON, where they are there",
            "r7#0: more",
        ),
    ],
)
def test_a_bad_row_fails_its_own_expectation_alone(
    bad: dict[str, Any], said: str, example: str
) -> None:
    found = failed(rows(bad), shares(sshd=0))
    assert list(found) == [said]
    assert found[said].unexpected >= 1
    assert example in found[said].examples


def test_a_wrong_clock_is_borne_up_to_one_in_a_hundred() -> None:
    early, ahead = {"lag_seconds": 401 * 86400.0}, {"lag_seconds": -90000.0}
    assert failed(rows(early, ahead), shares(sshd=0)) == {}
    ((said, one),) = failed(rows(early, ahead, ahead), shares(sshd=0)).items()
    assert said.startswith("time lies from 400 days before arrival")
    assert one.unexpected == 3


def test_a_source_that_cannot_be_read_is_named() -> None:
    found = failed(rows(), shares(sshd=0, zeek__dns=6, no_such_source=100))
    assert sorted(found) == [
        "dead letters are at most 5% of each source",
        "source is one that can be read",
    ]
    assert found["source is one that can be read"].examples == (
        "no_such_source: 100 dead letters of 100"
    )
    told = found["dead letters are at most 5% of each source"].examples
    assert told == "no_such_source: 100 dead letters of 100, zeek:dns: 6 dead letters of 100"


def test_nothing_written_is_not_well() -> None:
    assert [one.passed for one in check(Written(rows(good=0), shares()))] == [False]


@pytest.mark.parametrize(
    ("text", "is_address"),
    [("0.0.0.0", True), ("255.249.19.9", True), ("::1", True), ("fe80::1:2", True),
     ("1.2.3", False), ("1.2.3.4.", False), ("1.2.3.4.5", False),
     ("FE80::1", False), ("a:b", False), ("", False)],
)  # fmt: skip
def test_what_looks_like_an_address(text: str, is_address: bool) -> None:
    assert bool(re.search(ADDRESS, text)) is is_address


@pytest.mark.full
def test_the_command_reads_the_table_and_its_exit_code_tells(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    beat = event("beat", 0) | {"source": "_heartbeat"}
    frame = lake.spark.createDataFrame(
        [event("a", 0), event("b", 1), event("b", 2), beat], EVENT.schema
    )
    frame.coalesce(1).write.format("delta").mode("append").save(lake.path(EVENT))

    found = measure_written(lake.settings, AT, AT + timedelta(minutes=2))
    assert sorted(found.rows["event_uid"]) == ["a", "b"]
    assert set(found.rows["lag_seconds"]) == {2.0}

    assert run(lake.settings, "--until", "2026-11-20T12:02:00Z") == 0
    assert capsys.readouterr().out.startswith("ok ")
    assert run(lake.settings, "--output", "json") == 1
    told = {one["expectation"]: one["passed"] for one in json.loads(capsys.readouterr().out)}
    assert [name for name, passed in told.items() if not passed] == ["event_uid is there once"]
    assert run(lake.settings, "--rows", "1") == 0
    assert "looked at the newest 1 of 3 rows" in capsys.readouterr().err
    with pytest.raises(Usage, match="--since noon: write an instant"):
        run(lake.settings, "--since", "noon")


@pytest.mark.parametrize("column", ["more", "unmapped"])
def test_a_row_whose_json_is_damaged_is_named_and_ends_no_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    settings = load(home=tmp_path)
    torn = event("torn", 1) | {column: '{"file": {"na'}
    whole = event("whole", 0) | {"more": '{"file": {"name": "x"}}', "unmapped": "{}"}
    assert isinstance(settings.lake_root, Path)
    append_rows(settings.lake_root, EVENT, [whole, torn])
    assert run(settings, "--output", "json") == 1
    printed = json.loads(capsys.readouterr().out)
    (told,) = [one for one in printed if not one["passed"]]
    assert told["expectation"] == "more and unmapped are JSON, where they are there"
    assert (told["unexpected"], told["examples"]) == (1, f"torn: {column}")


def event(uid: str, minutes: int) -> dict[str, Any]:
    at = AT + timedelta(minutes=minutes)
    return {
        "event_uid": uid, "record_ids": [uid], "source": "sshd", "mode": "live", "time": at,
        "received_at": at + timedelta(seconds=2), "activity_id": 1, "category_uid": 3,
        "class_uid": 3002, "class_name": "Authentication", "type_uid": 300201, "severity_id": 1,
        "src_ip": "10.0.0.1", "user": {"name": "root"}, "service": {"name": "sshd"},
    }  # fmt: skip


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.build(parser.add_subparsers())
    args = parser.parse_args(["quality", *words])
    code: int = args.run(args, settings)
    return code


def of_class(uid: int, *rows: dict[str, Any]) -> dict[str, Outcome]:
    """What does not hold for a frame with a good row of a class and `rows`, by expectation."""
    required = [(name,) for name in REQUIRED.get(uid, ())] + list(ONE_OF.get(uid, ()))
    plain = {
        **dict.fromkeys(RANGES),
        "event_uid": "good#0",
        "activity_id": 1,
        "category_uid": uid // 1000,
        "severity_id": 1,
        "status_id": 1,
        "action_id": None,
        "disposition_id": None,
        "duration": None,
        **{presence(group): 1 for group in required},
    }
    numbered = [{**plain, "event_uid": f"bad{n}#0", **row} for n, row in enumerate(rows)]
    frame = pd.DataFrame([plain, *numbered])
    suite = Suite("class", frame, class_expectations(uid, frame), "event_uid")
    return {one.expectation: one for one in validate([suite]) if not one.passed}


def test_what_a_class_requires_is_that_of_ocsf() -> None:
    ours = {column.name for column in EVENT.columns}
    for uid in KINDS:
        theirs = EXPORT["classes"][CLASSES[uid]]
        required = {
            name
            for name, about in theirs["attributes"].items()
            if about.get("requirement") == "required" and not about.get("profile")
        } - OF_ALL
        assert set(REQUIRED.get(uid, ())) == required, CLASSES[uid]
        groups = (theirs.get("constraints") or {}).get("at_least_one", [])
        whole = tuple(sorted(name for name in groups if "." not in name))
        assert {tuple(sorted(group)) for group in ONE_OF.get(uid, ())} == (
            {whole} if whole else set()
        )
    assert {"user", "actor", "src_endpoint", "process", "finding_info"} <= ours


OF_ALL = {
    "activity_id", "category_uid", "class_uid", "type_uid", "severity_id", "time", "metadata",
    "osint", "cloud",
}  # fmt: skip
"""What all classes require, and what only profiles do."""


def test_an_event_without_what_its_class_requires_is_named() -> None:
    assert of_class(3002) == {}
    found = of_class(3002, {"has_user": None}, {"has_dst_endpoint_or_service": None})
    assert sorted(found) == ["dst_endpoint or service is there", "user is there"]
    assert found["user is there"].examples == "bad0#0"
    assert found["user is there"].unexpected == 1


def test_one_in_a_hundred_may_lack_what_its_class_requires() -> None:
    assert of_class(3002, {"has_user": None}, *[{}] * 120) == {}


@pytest.mark.parametrize(
    ("uid", "bad", "said"),
    [
        (3002, {"activity_id": 55}, "activity_id is a value of its class"),
        (3002, {"activity_id": None}, "activity_id is there"),
        (3002, {"status_id": 4}, "status_id is a value of its class"),
        (4001, {"severity_id": 7}, "severity_id is a value of its class"),
        (4001, {"category_uid": 3}, "category_uid is a value of its class"),
        (4001, {"src_port": 65536}, "src_endpoint.port is at least 0 and at most 65535"),
        (4002, {"http_code": -1}, "http_response.code is at least 0 and at most 999"),
        (4001, {"bytes_in": -5}, "traffic.bytes_in is at least 0"),
    ],
)
def test_a_value_outside_of_its_class_is_named(uid: int, bad: dict[str, Any], said: str) -> None:
    found = of_class(uid, bad)
    assert list(found) == [said]
    assert of_class(2004, {"status_id": 4}) == {}


def test_an_hour_unlike_the_same_hour_last_week_is_named() -> None:
    frame = pd.DataFrame(
        [("quiet", 10, 1000, 0.01), ("loud", 6000, 1000, 6.0), ("same", 900, 1000, 0.9),
         ("small", 0, 5, None)],
        columns=["source", "now", "before", "ratio"],
    )  # fmt: skip
    (one,) = validate([volume(frame, AT)])
    assert not one.passed
    assert one.examples == (
        "quiet: 10 events, 1000 a week before, loud: 6000 events, 1000 a week before"
    )
    assert (one.checked, one.since, one.until) == (3, AT, AT + timedelta(hours=1))


def test_a_silent_source_fails_its_freshness() -> None:
    found = (
        Silence("sshd", AT, 7200.0, 60.0, 600.0, "its longest pause was 60 s"),
        Silence("zeek:dns", AT, 60.0, 60.0, 600.0, "fine"),
        Silence("new", AT, 7200.0, 0.0, None, "no habit yet"),
    )
    (one,) = validate([freshness(found, AT)])
    assert not one.passed
    assert one.unexpected == 1
    assert one.examples.startswith("sshd: nothing since 2026-11-20 12:00:00 UTC, for 2.0 h")
    assert [each.passed for each in validate([freshness(found[1:], AT)])] == [True]


def outcome(passed: bool, unexpected: int = 0) -> Outcome:
    return Outcome("device is there", passed, 10, unexpected, "e1" if unexpected else "")


def test_a_failure_is_told_when_it_begins_updated_while_it_lasts_and_closed() -> None:
    state = QualityState()
    hours = [AT + timedelta(hours=n) for n in range(5)]
    results = (outcome(True), outcome(False, 3), outcome(False, 4), outcome(True), outcome(True))
    told = [list(of_outcomes([one], state, at)) for one, at in zip(results, hours, strict=True)]
    assert [[one["activity"] for one in said] for said in told] == [
        [], ["create"], ["update"], ["close"], [],
    ]  # fmt: skip
    assert len({one["finding"] for said in told for one in said}) == 1
    assert len({one["uid"] for said in told for one in said}) == 3
    row = good("headgate", json.dumps(told[1][0]))
    assert (row["class_uid"], row["activity_id"], row["severity_id"]) == (2004, 1, 3)
    assert row["message"] == "events: device is there: not so for 3 of 10, for example e1"
    assert json.loads(row["unmapped"])["unexpected"] == 3
    assert [
        fault
        for said in told
        for one in said
        for fault in faults(good("headgate", json.dumps(one)))
    ] == []
    assert misfits(row) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "other"}, "kind: not one of"),
        ({"activity": 7}, "activity: not one of"),
        ({"level": None}, "level: not one of"),
        ({"uid": ""}, "uid: missing, or no text"),
        ({"message": ["x"]}, "message: missing, or no text"),
    ],
)
def test_a_record_of_headgate_is_strict(change: dict[str, Any], said: str) -> None:
    (one,) = of_outcomes([outcome(False, 1)], QualityState(), AT)
    assert said in reason("headgate", json.dumps({**one, **change}))


@pytest.mark.full
def test_a_run_is_kept_told_and_becomes_an_alert(lake: Lake, broker: Broker) -> None:
    settings = load(
        home=lake.settings.home,
        kafka={"bootstrap": broker.address, "topic_prefix": "q.", "tick_topic": "q.tick",
               "alerts_topic": "q.alerts", "progress_topic": "q.progress"},
    )  # fmt: skip
    lake = Lake(lake.spark, settings)
    ensure_topics(settings)
    bad = [event(f"e{n}", 0) | {"severity_id": 42, "user": None, "service": None} for n in (1, 2)]
    lake.spark.createDataFrame(bad, EVENT.schema).coalesce(1).write.format("delta").mode(
        "append"
    ).save(lake.path(EVENT))
    now = AT + timedelta(hours=1)

    ran = run_all(settings, now)
    assert {one.name for one in ran.outcomes if not one.passed} == {
        "class 3002 Authentication: user is there",
        "class 3002 Authentication: dst_endpoint or service is there",
        "class 3002 Authentication: severity_id is a value of its class",
    }
    assert ran.told == 3
    assert run_all(settings, now + timedelta(hours=1)).told == 0, "nothing new came"

    assert flush_outbox(lake, QUALITY, lake.spool / "quality") == len(ran.outcomes)
    assert flush_outbox(lake, DRIFT, lake.spool / "drift") == 1
    connection = connect(settings.lake_root)
    kept = outcome_history(connection, None, None, failed=True)
    assert [row["expectation"] for row in kept] == [
        "dst_endpoint or service is there",
        "severity_id is a value of its class",
        "user is there",
    ]
    assert {row["run_at"] for row in kept} == {now}

    ingest_and_detect(lake, once=True).wait()
    alert(lake, once=True).wait()
    found = lake.read(FINDING).where("rule_id <> '_heartbeat'").collect()
    assert [row["rule_title"] for row in found] == ["Data quality check failed"] * 3
    assert {row["fields"]["finding_info.title"] for row in found} == {
        f"Data quality: {row['expectation']}" for row in kept
    }
    alerts = lake.read(ALERT).collect()
    assert [row["rule_id"] for row in alerts] == [found[0]["rule_id"]] * 3
    assert len({row["entity_value"] for row in alerts}) == 3, "none is folded into another"


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    with (
        quality_lock(quality_folder(settings)),
        pytest.raises(Retryable, match="another quality run"),
    ):
        run_all(settings)


@pytest.mark.full
def test_a_command_runs_every_so_often_and_ends_with_us(tmp_path: Path) -> None:
    said: list[str] = []
    settings = load(home=tmp_path)
    every = Every("tables", ("tables",), 0.02, settings, said.append).start()
    log = tmp_path / "tables.log"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (log.exists() and log.stat().st_size):
        time.sleep(0.1)
    every.stop()
    assert "silver.event" in log.read_text()
    assert said == []
    wrong = Every("wrong", ("nonsense",), 0.02, settings, said.append).start()
    while time.monotonic() < end and not said:
        time.sleep(0.1)
    wrong.stop()
    assert "no command 'nonsense'" in said[0]
    assert Every("never", ("tables",), 0, settings, said.append).start().stop() is None


@pytest.mark.full
def test_what_a_command_fails_with_is_told_once_until_it_is_another(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "maintenance.log"
    settings = load(home=tmp_path)
    every = Every("maintenance", ("compact",), 0.01, settings, said.append, again=inf).start()
    end = time.monotonic() + 90
    while time.monotonic() < end and not (log.exists() and log.read_text().count("\n") > 1):
        time.sleep(0.1)
    every.stop()
    assert len(log.read_text().splitlines()) > 1
    (told,) = said
    assert told.startswith("maintenance: headgate: ")
    assert "there is no lake here" in told


OFFLINE = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print("asked for the network:", event, arguments[-1])
sys.addaudithook(refuse)
from tests.ingest.quality.test_quality import rows, shares, check, Written
print(all(one.passed for one in check(Written(rows(), shares(sshd=0)))))
"""


@pytest.mark.full
def test_a_check_asks_nothing_of_a_network_and_shows_no_progress(tmp_path: Path) -> None:
    # A file: under `python -c` PySpark takes an import for a doctest of its own and ends at once.
    script = tmp_path / "offline.py"
    script.write_text(OFFLINE)
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=400, check=True,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout == "True\n"
    assert "Calculating" not in done.stderr
