"""Where jobs stand: read from what Spark says, judged against targets, told without Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli import main
from infra.config.settings import Settings, load
from infra.process import log
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import (
    JobStatus,
    Memory,
    end_unwanted,
    judge_jobs,
    read_status,
    verdict,
    with_ages,
    write_status,
)
from infra.runtime.monitor import resident, waits
from infra.streaming.progress import Pulse, Unread, durations, newest_from, state, unread, watermark

KAFKA = {
    "description": "KafkaV2[SubscribePattern[logs\\..*]]",
    "startOffset": {"logs.sshd": {"0": 400, "1": 10}},
    "endOffset": {"logs.sshd": {"0": 500, "1": 10}},
    "latestOffset": {"logs.sshd": {"0": 700, "1": 10}, "logs.new": {"0": 5}},
}
STATEFUL = [
    {"numRowsTotal": 16, "memoryUsedBytes": 8448, "numRowsDroppedByWatermark": 0},
    {"numRowsTotal": 502, "memoryUsedBytes": 509664, "numRowsDroppedByWatermark": 3},
]
"""As Spark 4.2 told them of jobs ingest and alert."""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path)


def log_of(folder: Path, versions: range) -> Path:
    made = folder / "_delta_log"
    made.mkdir(parents=True)
    for version in versions:
        file = made / f"{version:020d}.json"
        file.write_text("{}")
        os.utime(file, (1000 + version, 1000 + version))
    return made


def delta(folder: Path, version: int, index: int = -1) -> dict[str, object]:
    end = {"reservoirVersion": version, "index": index, "isStartingVersion": False}
    return {"description": f"DeltaSource[file:{folder}]", "endOffset": end}


def test_kafka_messages_not_taken_are_counted_over_partitions_and_new_topics() -> None:
    assert unread({"sources": [KAFKA]}) == Unread(messages=205)


def test_delta_commits_not_taken_have_a_count_and_an_age(tmp_path: Path) -> None:
    log_of(tmp_path / "a", range(8, 21))
    log_of(tmp_path / "b", range(3))
    behind = {"sources": [delta(tmp_path / "a", 15), delta(tmp_path / "b", 3)]}
    assert unread(behind, now=1100.0) == Unread(commits=6, seconds=85.0)
    half = {"sources": [delta(tmp_path / "a", 15, index=4)]}
    assert unread(half, now=1100.0) == Unread(commits=5, seconds=84.0)
    assert unread({"sources": [delta(tmp_path / "b", 3)]}) == Unread(commits=0, seconds=0.0)


@given(first=st.integers(0, 9), more=st.integers(0, 40))
def test_the_newest_version_is_found_without_listing(tmp_path_factory, first, more) -> None:
    made = log_of(tmp_path_factory.mktemp("log"), range(first, first + more + 1))
    assert newest_from(made, first) == first + more


def test_state_and_phases_are_plain_numbers() -> None:
    told = {
        "stateOperators": STATEFUL,
        "durationMs": {"triggerExecution": 899, "addBatch": 585},
        "eventTime": {"watermark": "2026-11-21T21:15:38.000Z"},
    }
    kept = state(told)
    assert (kept.rows, kept.bytes, kept.dropped) == (518, 518112, 3)
    assert durations(told) == {"triggerExecution": 0.899, "addBatch": 0.585}
    assert watermark(told).timestamp() == 1795295738.0
    assert watermark({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}) is None


def test_what_is_written_is_read_back_whole(home: Settings) -> None:
    one = JobStatus(
        "ingest", "running", at=5.0, written={"silver.event": 3}, memory=Memory(jvm=7), cap=9
    )
    write_status(home, one)
    assert read_status(home) == {"ingest": one}


def test_a_status_is_by_the_clock_of_those_who_read_it() -> None:
    one = JobStatus("ingest", "running", at=1000.0, progressed_at=990.0, complete_to=None)
    told = with_ages(one, 86_400.0)
    assert (told.at, told.progressed_at, told.complete_to) == (87_400.0, 87_390.0, None)
    assert verdict("ingest", told, 60.0, 87_401.0).missed is None
    assert with_ages(one, 0.0) is one


def test_a_status_of_another_version_is_read_as_far_as_it_is_known(home: Settings) -> None:
    write_status(home, JobStatus("ingest", "running", at=5.0))
    file = home.home / "status" / "ingest.json"
    told = json.loads(file.read_text()) | {"later": 1}
    del told["cap"]
    file.write_text(json.dumps(told))
    assert read_status(home)["ingest"] == JobStatus("ingest", "running", at=5.0)


def test_a_file_that_a_power_cut_left_empty_counts_as_not_there(home: Settings) -> None:
    write_status(home, JobStatus("ingest", "running", at=5.0))
    (home.home / "status" / "alert.json").write_text("")
    (home.home / "status" / "repair.json").write_text('{"at": 1.0}')
    assert list(read_status(home)) == ["ingest"]


FINE = JobStatus("ingest", "running", at=1000.0, pid=7, started_at=900.0, progressed_at=990.0)


@pytest.mark.parametrize(
    ("status", "missed"),
    [
        (FINE, None),
        (replace(FINE, state="waiting"), None),
        (replace(FINE, progressed_at=939.0), "no progress for 61 s, target 60 s"),
        (replace(FINE, at=900.0), "its driver (process 7) has said nothing for 100 s"),
        (replace(FINE, state="failed", why="poison"), "stopped for good: poison"),
        (replace(FINE, state="stopped"), "its driver was stopped (headgate up starts it)"),
        (replace(FINE, progressed_at=None), "no batch since it was started 100 s ago"),
        (
            replace(FINE, state="backoff", progressed_at=900.0, failures=2, why="no broker"),
            "no progress for 100 s, target 60 s; it failed 2 times: no broker",
        ),
        (None, "no driver reports it; is it running (headgate up)?"),
    ],
)
def test_a_job_misses_its_target_by_a_sentence(status: JobStatus | None, missed: str) -> None:
    assert verdict("ingest", status, 60.0, 1000.0).missed == missed


def test_each_job_has_a_target_of_its_own(tmp_path: Path) -> None:
    settings = load(home=tmp_path, targets={"repair": 5})
    late = replace(FINE, progressed_at=994.0)
    found = judge_jobs(settings, ("ingest", "repair"), {"ingest": late, "repair": late}, 1000.0)
    assert [one.missed is None for one in found] == [True, False]


def test_a_job_that_nobody_wants_is_judged_only_while_it_runs(home: Settings) -> None:
    once = replace(FINE, job="files", state="stopped")
    told = {"ingest": FINE, "files": once, "extra": replace(FINE, job="extra")}
    found = judge_jobs(home, ("ingest",), told, 1000.0)
    assert [(one.job, one.missed) for one in found] == [("ingest", None), ("extra", None)]


def test_what_a_kill_left_of_a_job_that_nobody_wants_is_ended(home: Settings) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    pids = {"ingest": gone.pid, "files": gone.pid, "rollup": os.getpid()}
    for job, pid in pids.items():
        write_status(home, replace(FINE, job=job, pid=pid))
    end_unwanted(home, {"ingest"})
    states = {name: one.state for name, one in read_status(home).items()}
    assert states == {"ingest": "running", "files": "stopped", "rollup": "running"}
    judged = judge_jobs(home, ("ingest",), read_status(home), 10_000.0)
    assert [one.job for one in judged] == ["ingest", "rollup"]


def test_memory_is_that_of_the_jvm_and_the_workers_below_it(tmp_path: Path) -> None:
    jvm = shutil.copy("/bin/sh", tmp_path / "java")
    # The second sleep is a command beside the jobs: no worker of the JVM's.
    script = f"{jvm} -c 'sleep 60 & wait' & sleep 60 & wait"
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True) as driver:
        try:
            family = psutil.Process(driver.pid)
            end = time.monotonic() + 20
            while sorted(one.name() for one in family.children(recursive=True)) != [
                "java",
                "sleep",
                "sleep",
            ]:
                assert time.monotonic() < end
                time.sleep(0.01)
            (java,) = (one for one in family.children() if one.name() == "java")
            (worker,) = java.children()
            assert resident(family) == (java.memory_info().rss, worker.memory_info().rss)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def test_what_cannot_be_handed_on_misses_the_target_once_that_lasts() -> None:
    pulse = Pulse()
    for at in (100.0, 105.0, 190.0):
        pulse.ended(3, at, "alerts could not be published now: no right to write")
    assert (pulse.held_since, pulse.done_at) == (100.0, 190.0)
    one = JobStatus("alert", "running", at=190.0, batch=3, progressed_at=190.0)
    one = replace(one, held_back=pulse.held_back, held_since=pulse.held_since)
    assert verdict("alert", one, 120.0, 190.0).missed is None
    assert verdict("alert", one, 60.0, 190.0).missed == (
        "what it wrote is not handed on for 90 s: alerts could not be published now: "
        "no right to write"
    )
    pulse.ended(4, 195.0)
    assert (pulse.held_since, pulse.held_back) == (None, "")


def test_status_exits_1_and_names_what_misses(home: Settings, capsys) -> None:
    now = time.time()
    for name in wanted_jobs(home):
        write_status(home, JobStatus(name, "running", at=now, batch=3, progressed_at=now))
    arguments = ["--home", str(home.home), "status", "--output", "json"]
    assert main(arguments) == 0
    assert all(row["missed"] is None for row in json.loads(capsys.readouterr().out))
    write_status(home, JobStatus("alert", "failed", at=now, why="batch 3 failed 6 times in a row"))
    assert main(arguments) == 1
    told = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["alert"]["missed"] == "stopped for good: batch 3 failed 6 times in a row"
    assert main(["--home", str(home.home), "status"]) == 1
    assert "batch 3 failed" in " ".join(capsys.readouterr().out.split())


def test_status_is_one_look_and_following_it_needs_a_terminal(home: Settings, capsys) -> None:
    now = time.time()
    for name in wanted_jobs(home):
        write_status(home, JobStatus(name, "running", at=now, batch=3, progressed_at=now))
    status = ["--home", str(home.home), "status"]
    for more in ([], ["--once"]):
        assert main([*status, *more]) == 0
        header = " ".join(capsys.readouterr().out.splitlines()[0].split())
        assert header == "job state batch rows seconds unread regime missed"
    assert main([*status, "--output", "wide"]) == 0
    assert "oldest_unread_commit_seconds" in capsys.readouterr().out.splitlines()[0].split()
    assert main([*status, "--watch"]) == 2
    assert "--watch needs a terminal" in capsys.readouterr().err


def test_what_a_driver_that_is_gone_left_is_not_told_as_if_it_were_so_now(
    home: Settings, capsys
) -> None:
    now = time.time()
    one = JobStatus("ingest", "running", at=now, batch=3, unread_messages=7, cap=9, rows=5)
    arguments = ["--home", str(home.home), "status", "--output", "json"]
    for age, left, cap in ((0.0, 7, 9), (20.0, None, None)):
        write_status(home, replace(one, at=now - age))
        main(arguments)
        (told,) = (row for row in json.loads(capsys.readouterr().out) if row["job"] == "ingest")
        assert (told["unread"], told["cap"], told["batch"], told["rows"]) == (left, cap, 3, 5)


def test_status_tells_the_lag_of_event_time_apart_from_that_of_arrival(home, capsys) -> None:
    now = time.time()
    for name in wanted_jobs(home):
        write_status(home, JobStatus(name, "running", at=now, progressed_at=now))
    counts = JobStatus(
        "rollup", "running", at=now, progressed_at=now, complete_to=now, event_at=now - 900
    )
    write_status(home, with_ages(counts, 5.0))
    assert main(["--home", str(home.home), "status", "--output", "json"]) == 0
    told = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["ingest"]["event_time_lag_seconds"] is None
    assert 894 <= told["rollup"]["event_time_lag_seconds"] < 950
    assert told["rollup"]["arrival_time_lag_seconds"] < 50
    assert told["rollup"]["event_lag"] == told["rollup"]["event_time_lag_seconds"]
    assert told["rollup"]["lag"] == told["rollup"]["arrival_time_lag_seconds"]


@pytest.mark.parametrize(
    ("former", "state"),
    [("given up", "failed"), ("pausing", "backoff"), ("waiting", "waiting")],
)
def test_a_status_file_of_the_release_before_is_read_and_written_in_its_words(
    home: Settings, former: str, state: str, capsys
) -> None:
    file = home.home / "status" / "alert.json"
    file.parent.mkdir(parents=True)
    before = f'{{"job": "alert", "standing": "{former}", "at": 5.0, "why": "poison"}}'
    file.write_text(before, "utf-8")
    status = read_status(home)["alert"]
    assert (status.state, status.at, status.why) == (state, 5.0, "poison")
    write_status(home, status)
    assert json.loads(before).items() <= json.loads(file.read_bytes()).items()
    assert main(["--home", str(home.home), "status", "--output", "json"]) == 1
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["job"] == "alert")
    assert (row["state"], row["standing"]) == (state, former)


def test_only_a_job_that_was_given_up_is_resumed(home: Settings, capsys) -> None:
    write_status(home, JobStatus("alert", "running", at=time.time()))
    assert main(["--home", str(home.home), "jobs", "resume", "alert"]) == 2
    assert "was not stopped for good (it is running)" in capsys.readouterr().err
    write_status(home, JobStatus("alert", "failed", at=time.time(), why="poison"))
    assert main(["--home", str(home.home), "jobs", "resume", "alert"]) == 0
    assert (home.home / "spool" / "resume" / "alert").exists()
    (audit,) = (home.home / "spool" / "audit").glob("*.json")
    assert json.loads(audit.read_text())["act"] == "job.resume"


def test_a_line_for_a_person_steers_no_terminal(capsys) -> None:
    log.say("job ingest: failed: \x1b[2Jhello\nroot")
    assert capsys.readouterr().err == "job ingest: failed: \\x1b[2Jhello\\nroot\n"


def test_a_line_of_json_carries_job_and_batch() -> None:
    assert json.loads(log.log_line_json("job alert: running", {}))["job"] == "alert"
    token = log.batch_in_hand.set(("ingest", 12))
    try:
        said = json.loads(log.log_line_json("no broker", {"seconds": 1.5}))
    finally:
        log.batch_in_hand.reset(token)
    assert (said["job"], said["batch"], said["seconds"]) == ("ingest", 12, 1.5)
    assert said["message"] == "no broker"
    assert said["at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("message", "available", "active", "idle"),
    [
        ("Waiting for data to arrive", False, False, True),
        ("Waiting for next trigger", False, False, True),
        ("Processing new data", True, True, False),
        ("Initializing sources", False, False, False),
        ("Initializing StreamExecution", False, False, False),
    ],
)
def test_a_query_that_has_yet_to_look_does_not_wait(message, available, active, idle) -> None:
    said = {"message": message, "isDataAvailable": available, "isTriggerActive": active}
    assert waits(said) is idle
