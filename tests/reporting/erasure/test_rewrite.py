"""A person or a device goes from all tables beside the jobs, and a certificate says what went.

The judge reads the Parquet files of each table as plain text, whatever the columns are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from alerts.anomaly.store import BASELINES, baselines_schema
from alerts.delivery.publisher import revisions_of
from alerts.delivery.webhook_queue import Queue, queue_file
from alerts.rulepack.locations import store_folder
from api.sql.runner import Refused, Statements
from infra.config.settings import Settings, load
from infra.delta.catalog import table
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import commit, commit_text
from infra.delta.schema import Column, Table
from infra.delta.time_travel import Committed
from infra.delta.transaction import active_files
from infra.errors import Fatal, Usage
from infra.kafka.client import free_port
from infra.maintenance.compaction_plan import FAN_IN
from infra.maintenance.maintenance import merge_small_files
from infra.storage.paths import Location
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from reporting.cli.erase import finished_erasure
from reporting.erasure import run as erase_run
from reporting.erasure.certificate import sentences
from reporting.erasure.request import ErasureRequest, require_request
from reporting.erasure.run import erase, preview_erasure
from tests.reporting.people import (
    ANNA,
    AT,
    BODY,
    MAC,
    OTHER_MAC,
    add,
    event,
    meanwhile,
    quiet,
    tell_of_people,
)

SEEN = Table("gold.seen", "events that a job saw", (Column("uid", T.StringType(), "an event"),))


@pytest.fixture
def told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """With a broker that does not answer."""
    monkeypatch.setattr(erase_run, "BROKER_SECONDS", 0.2)  # none answers, however long one waits
    nobody = {"bootstrap": f"127.0.0.1:{free_port()}"}
    lake.settings = load(home=lake.settings.home, kafka=nobody)
    tell_of_people(lake)
    return lake


def everything(lake: Lake) -> dict[str, str]:
    """What each table says now, as one text in small letters."""
    said = {}
    for folder in sorted(lake.settings.lake_root.glob("*/*")):
        if (folder / "_delta_log").is_dir():
            rows: list[Any] = []
            for file in active_files(lake.spark, str(folder)):
                rows += pq.read_table(folder / file.name).to_pylist()
            said[f"{folder.parent.name}.{folder.name}"] = repr(rows).lower()
    return said


def holding(lake: Lake, word: str) -> set[str]:
    return {name for name, said in everything(lake).items() if word in said}


def ids(lake: Lake, name: str, column: str) -> list[str]:
    return sorted(row[column] for row in lake.read(table(name)).collect())


def killed_at(name: str) -> Callable[[str], None]:
    def tell(said: str) -> None:
        if said == name:
            raise RuntimeError("killed")

    return tell


def watch(lake: Lake) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("event_uid AS uid"), SEEN, run)

    return lake.each_batch("watch", lake.stream(table("silver.event")), batch, trigger_seconds=None)


@pytest.mark.full
def test_no_row_becomes_younger_by_an_erasure(told: Lake) -> None:
    def files() -> dict[str, datetime]:
        return {file.name: file.written for file in active_files(told.spark, told.path(finding))}

    finding = table("gold.finding")
    (before,) = files().items()
    erase(told, ANNA, quiet, wait_seconds=0)
    (after,) = files().items()
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.full
def test_a_person_goes_from_all_layers_and_alerts_stay(
    told: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def heard(folder: Location, version: int) -> str:
        asked.append((str(folder), version))
        return commit_text(folder, version)

    monkeypatch.setattr("reporting.erasure.rewrite.commit_text", heard)
    told.ensure(SEEN)
    watch(told).wait()
    before = everything(told)
    result = told.settings.home / "api" / "searches" / "x" / "result.parquet"
    result.parent.mkdir(parents=True)
    result.write_bytes(b"anna")
    looked = preview_erasure(told, ANNA, quiet)
    assert everything(told) == before
    assert (looked["results"], result.exists()) == (1, True)
    assert looked["tables"]["silver.event"] == {"removed": 2, "replaced": 0, "files": 2}

    certificate = erase(told, ANNA, quiet, wait_seconds=0)
    # Host names are nobody's account: `annas-mac` is not anna.
    assert holding(told, "anna") == {"silver.dhcp_segment"}
    assert holding(told, "bob") == {name for name, said in before.items() if "bob" in said}
    assert ids(told, "bronze.record", "record_id") == ["r2"]  # r3 as well, by its event
    assert ids(told, "silver.event", "event_uid") == ["r2:0"]
    assert ids(told, "gold.attribution", "finding_id") == ["f2"]  # by its finding
    assert ids(told, "gold.alert", "alert_id") == ["a1", "a2"]
    (alert,) = told.read(table("gold.alert")).where("alert_id = 'a1'").collect()
    assert json.loads(alert["body"]) == BODY | {
        "title": "Many failed logins of [erased]",
        "entity": {"type": "user", "value": "[erased]"},
    }
    waiting = Queue(queue_file(told.settings)).due("pager", 10.0)
    assert waiting is not None
    assert b"anna" not in waiting.body
    assert waiting.title == "Many failed logins of [erased]"
    assert "anna" not in (told.spool / "audit" / "x.json").read_text()

    counts = {
        name: (one["rows_removed"], one["rows_replaced"])
        for name, one in certificate["tables"].items()
    }
    assert counts == {
        "bronze.record": (2, 0),
        "silver.event": (2, 0),
        "silver.user_version": (1, 0),
        "gold.finding": (1, 0),
        "gold.attribution": (1, 0),
        "gold.alert": (0, 1),
        "ops.audit": (0, 1),
    }
    assert certificate["outside"]["spool"] == 1
    assert certificate["outside"]["webhooks"] == 1
    assert (certificate["outside"]["results"], result.parent.exists()) == (1, False)
    assert not finished_erasure(certificate)  # no broker answers here, and that is said
    assert "no Kafka broker answers" in certificate["outside"]["alert_states"]
    written = (told.settings.home / "erasures" / f"{certificate['id']}.txt").read_text()
    assert written.splitlines() == list(sentences(certificate))
    assert "silver.event: 2 rows removed, 0 reworded" in written
    assert "results: 1 removed, whomever they are of" in written
    assert "anna" not in (written + json.dumps(certificate)).lower()

    # Of a log that may be long only what came since it began is read.
    events = table("silver.event")
    assert min(at for path, at in asked if path == str(told.folder(events))) == 2

    # The stream passes over it and goes on; what was there can be read as of then, for a while.
    add(told, "silver.event", event("r4", "bob", OTHER_MAC))
    watch(told).wait()
    seen = sorted(row["uid"] for row in told.read(SEEN).collect())
    assert seen == ["r1:0", "r2:0", "r3:0", "r4:0"]
    again = erase(told, ANNA, quiet, wait_seconds=0)
    assert again["tables"] == {}


@pytest.mark.full
def test_alerts_that_an_erasure_put_in_place_are_not_published_again(told: Lake) -> None:
    alerts = table("gold.alert")
    folder, before = told.folder(alerts), told.version(alerts)
    assert [one.alert_id for one in revisions_of(folder, commit(folder, before))] == ["a2"]
    erase(told, ANNA, quiet, wait_seconds=0)
    after = range(before + 1, told.version(alerts) + 1)
    assert len(after) > 0
    assert [one for each in after for one in revisions_of(folder, commit(folder, each))] == []
    assert [file for version in after for file in told.files_of(alerts, version)] == []


@pytest.mark.full
def test_a_pseudonym_keeps_rows_and_what_belongs_together(told: Lake) -> None:
    wish = ErasureRequest("user", "anna", pseudonymise=True)
    with pytest.raises(RuntimeError, match="killed"):
        erase(told, wish, killed_at("silver.event"), wait_seconds=0)
    certificate = erase(told, wish, quiet, wait_seconds=0)
    assert holding(told, "anna") == {"silver.dhcp_segment"}
    assert ids(told, "silver.event", "event_uid") == ["r1:0", "r2:0", "r3:0"]
    named = {row["user_name"] for row in told.read(table("silver.event")).collect()}
    (pseudonym,) = named - {"bob"}
    assert pseudonym.startswith("person-")
    raw = {r["record_id"]: bytes(r["raw"]) for r in told.read(table("bronze.record")).collect()}
    assert raw == {
        "r1": f"sshd: {pseudonym} from 10.0.0.1".encode(),
        "r2": b"sshd: bob",
        "r3": b"[erased]",  # its event names her, it does not in any form that can be searched
    }
    assert certificate["tables"]["silver.event"]["rows_replaced"] == 2
    assert pseudonym not in json.dumps(certificate)


@pytest.mark.full
def test_a_device_goes_by_its_address_and_its_host_names_when_asked(told: Lake) -> None:
    with pytest.raises(Usage, match="add --yes"):
        require_request(ErasureRequest("device", MAC), yes=False, dry=False)
    for name, entity in (("hers", MAC), ("his", OTHER_MAC)):
        model = store_folder(told.settings) / "models" / name
        model.mkdir(parents=True)
        rows = pa.Table.from_pylist([{"entity": entity}], schema=baselines_schema())
        with pa.ipc.new_file(str(model / BASELINES), rows.schema) as writer:
            writer.write_table(rows)
    wish = ErasureRequest("device", MAC.upper().replace(":", "-"), hostnames=True)
    certificate = erase(told, wish, quiet, wait_seconds=0)
    said = "\n".join(sentences(certificate))
    assert certificate["not_touched"]["models"] == ["_rules/models/hers"]
    assert "model _rules/models/hers has a baseline of it" in said
    assert "jobs logins and rollup remember sessions and counts that are open" in said
    assert holding(told, MAC) == holding(told, "annas-mac") == set()
    assert ids(told, "silver.dhcp_segment", "ip") == ["10.0.0.2"]


@pytest.mark.full
def test_a_run_that_was_killed_goes_on_and_former_versions_can_be_deleted(told: Lake) -> None:
    then = Committed(told.folder(table("silver.event"))).of(2)
    for name in ("gold.finding", "silver.event"):
        with pytest.raises(RuntimeError, match="killed"):
            erase(told, ANNA, killed_at(name), wait_seconds=0)
    lock = JobLock(told.settings.checkpoint_root / "erase", "erase")
    with pytest.raises(Fatal, match="job erase already runs"):
        erase(told, ANNA, quiet)
    lock.release()
    certificate = erase(told, ANNA, quiet, wait_seconds=0, vacuum=True)
    assert holding(told, "anna") == {"silver.dhcp_segment"}
    assert ids(told, "gold.attribution", "finding_id") == ["f2"]
    assert certificate["tables"]["bronze.record"]["rows_removed"] == 2
    assert certificate["tables"]["gold.attribution"]["rows_removed"] == 1
    assert certificate["tables"]["silver.event"]["former_versions_until"] is None
    kept = {file.name for file in told.folder(table("silver.event")).glob("*.parquet")}
    active = active_files(told.spark, told.path(table("silver.event")))
    assert kept == {file.name for file in active}
    # The publisher's place is with the broker, so its files stay as long as maintenance keeps them.
    assert certificate["tables"]["gold.alert"]["former_versions_until"] is not None
    refused(told.settings, then)


def refused(settings: Settings, then: datetime) -> None:
    asking = Statements(settings)
    try:
        with pytest.raises(Refused, match=r"it can no longer be read: 2 of its 2 files"):
            asking.run("SELECT count(*) FROM silver.event", as_of=then)
    finally:
        asking.close()


@pytest.mark.full
def test_jobs_that_are_behind_are_named_and_their_files_stay(told: Lake) -> None:
    told.ensure(SEEN)
    watch(told).wait()
    add(told, "silver.event", event("r5", "anna", MAC))
    certificate = erase(told, ANNA, quiet, wait_seconds=0, vacuum=True)
    assert certificate["jobs_behind"] == {"silver.event": ["watch"]}
    assert "NOT FINISHED: watch has yet to read rows of silver.event" in "\n".join(
        sentences(certificate)
    )
    assert certificate["tables"]["silver.event"]["former_versions_until"] is not None
    # A second run finds no row, and does not call it done.
    again = erase(told, ANNA, quiet, wait_seconds=0)
    assert (again["tables"], again["jobs_behind"]) == ({}, {"silver.event": ["watch"]})
    watch(told).wait()  # its files are still there
    assert "r5:0" in {row["uid"] for row in told.read(SEEN).collect()}
    assert erase(told, ANNA, quiet, wait_seconds=0)["jobs_behind"] == {}


@pytest.mark.full
def test_a_job_that_has_to_read_what_a_later_pass_replaced_is_named(told: Lake) -> None:
    told.ensure(SEEN)
    watch(told).wait()
    late = meanwhile(lambda: add(told, "silver.event", event("r6", "anna", MAC)))
    certificate = erase(told, ANNA, quiet, wait_seconds=0, vacuum=True, wait=late)
    assert ids(told, "silver.event", "event_uid") == ["r2:0"]
    assert certificate["jobs_behind"] == {"silver.event": ["watch"]}
    assert certificate["tables"]["silver.event"]["former_versions_until"] is not None
    watch(told).wait()  # its files are still there
    assert "r6:0" in {row["uid"] for row in told.read(SEEN).collect()}


@pytest.mark.full
def test_files_that_maintenance_merged_and_jobs_have_yet_to_read_stay(told: Lake) -> None:
    told.ensure(SEEN)
    watch(told).wait()
    events = table("silver.event")

    def merged() -> None:
        for number in range(FAN_IN):
            add(told, "silver.event", event(f"n{number}", "bob", OTHER_MAC))
        (added,) = told.files_of(events, told.version(events))
        assert merge_small_files(told, events)[1] == 1
        assert added.name not in {one.name for one in active_files(told.spark, told.path(events))}

    certificate = erase(told, ANNA, quiet, wait_seconds=0, vacuum=True, wait=meanwhile(merged))
    assert certificate["jobs_behind"] == {}
    assert certificate["tables"]["silver.event"]["former_versions_until"] is None
    watch(told).wait()
    assert f"n{FAN_IN - 1}:0" in {row["uid"] for row in told.read(SEEN).collect()}


@pytest.mark.full
def test_rows_that_never_end_are_not_called_done(told: Lake) -> None:
    def coming(lake: Lake, seconds: float, tell: Callable[[str], None]) -> dict[str, list[str]]:
        add(lake, "ops.audit", {"at": AT, "who": "anna"})
        return {}

    certificate = erase(told, ANNA, quiet, wait_seconds=0, wait=coming)
    assert not certificate["settled"]
    assert not finished_erasure(certificate | {"outside": {"alert_states": 0}})
    assert "NOT FINISHED: rows that name it came in" in "\n".join(sentences(certificate))


@pytest.mark.full
def test_an_interrupt_once_a_commit_is_in_takes_no_file_of_the_table(
    told: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Lake.replace

    def interrupted(lake: Lake, *what: Any) -> int:
        replace(lake, *what)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            erase(told, ANNA, quiet, wait_seconds=0)
    everything(told)  # every file that the logs name is there
    certificate = erase(told, ANNA, quiet, wait_seconds=0)
    assert holding(told, "anna") == {"silver.dhcp_segment"}
    assert certificate["tables"]["bronze.record"]["rows_removed"] == 2


@pytest.mark.full
def test_a_run_that_goes_on_takes_the_names_of_the_new_command(told: Lake) -> None:
    of_bob = holding(told, "bob")
    with pytest.raises(RuntimeError, match="killed"):
        erase(
            told,
            ErasureRequest("user", "Anna", also=("bob",)),
            killed_at("bronze.record"),
            wait_seconds=0,
        )
    erase(
        told,
        ErasureRequest("user", "Anna", but=("bob",), also=("annas-mac",)),
        quiet,
        wait_seconds=0,
    )
    assert holding(told, "bob") == of_bob
    assert holding(told, "anna") == set()


@pytest.mark.full
@pytest.mark.parametrize("killed", [False, True])
def test_what_belongs_to_an_event_that_came_later_goes_as_well(told: Lake, killed: bool) -> None:
    add(told, "bronze.record", {"record_id": "r7", "raw": b"\x1f\x8bpacked", "received_at": AT})
    add(told, "gold.finding", {"finding_id": "f7", "event_uid": "r7:0", "snippet": "a login"})
    add(told, "gold.attribution", {"finding_id": "f7"})
    passes: list[str] = []

    def tell(said: str) -> None:
        passes.append(said)
        if said == "silver.event" and passes.count(said) == 1:
            add(told, "silver.event", event("r7", "anna", MAC))
        if killed and passes.count("bronze.record") == 2:
            raise RuntimeError("killed")

    if killed:
        with pytest.raises(RuntimeError, match="killed"):
            erase(told, ANNA, tell, wait_seconds=0)
    erase(told, ANNA, quiet if killed else tell, wait_seconds=0)
    assert ids(told, "bronze.record", "record_id") == ["r2"]
    assert ids(told, "gold.finding", "finding_id") == ["f2"]
    assert ids(told, "gold.attribution", "finding_id") == ["f2"]


@pytest.mark.full
def test_hours_whose_events_went_are_counted_anew(told: Lake) -> None:
    dry = preview_erasure(told, ANNA, quiet)
    assert "ops.recount" not in dry["tables"]
    certificate = erase(told, ANNA, quiet)
    asked = connect(told.settings.lake_root).execute(
        "SELECT hour, happened, asked_by FROM ops.recount"
    )
    assert asked.fetchall() == [(AT, [AT], "erase")]
    assert certificate["recounts"] == 1
    assert any(line.startswith("Counts of 1 hours") for line in sentences(certificate))
    assert erase(told, ANNA, quiet)["recounts"] == 0


@pytest.mark.full
def test_words_alone_change_no_count(told: Lake) -> None:
    wish = ErasureRequest("user", "Anna", pseudonymise=True)
    assert erase(told, wish, quiet)["recounts"] == 0
    assert told.read(table("ops.recount")).count() == 0
