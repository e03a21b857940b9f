"""What comes too late: lines for the tracker, findings for the join. Through the real jobs."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from alerts.cli.reattribution import show
from alerts.domain.entity import micros
from alerts.lifecycle.alert_job import alert
from alerts.reattribution import history_repair as mending
from alerts.reattribution.history_repair import repair_history, told_of_left_out
from alerts.reattribution.repair_job import repair, repair_now
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import ALERT, FINDING
from enrich.attribution.segment_corrections import CorrectionStamp
from enrich.dhcp.sessions_job import sessions
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from headgate.cli import main
from infra.config.settings import ScopeSettings, load
from infra.delta.retention import Applied, note_retention
from infra.errors import Fatal, Usage
from infra.kafka.client import Broker, ensure_topics
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.lifecycle.test_alert_fold import PACK
from tests.enrich.rows import (
    IP,
    SCOPE,
    A,
    B,
    at,
    detected,
    dhcp,
    finding,
    finished,
    known,
    put,
    segment,
)

PACE = {
    "watermark_seconds": 2,
    "wait_seconds": 10,
    "allowed_lateness_seconds": 600,
    "alert_buckets": 2,
}


def seen(second: float, **other: Any) -> dict[str, Any]:
    """A finding that may become an alert."""
    return (
        finding(second, event_uid=f"e{second:g}", rule_version="v", rule_title="Guessing")
        | {"pack": "0" * 32, "kind": "event", "mode": "live", "source": "sshd"}
        | {"alerting": True, "snippet": "Failed password"}
        | other
    )


def beat(second: float) -> dict[str, Any]:
    return detected(second) | {"mode": "live"}


@pytest.fixture
def live(lake: Lake, broker: Broker, request: pytest.FixtureRequest) -> Lake:
    """The lake of a test, its alerts going to topics of its own."""
    name = request.node.name[:20]
    topics = {"alerts_topic": f"{name}.alerts", "progress_topic": f"{name}.progress"}
    settings = load(
        home=lake.settings.home, kafka={"bootstrap": broker.address, **topics}, jobs=PACE
    )
    ensure_topics(settings)
    return Lake(lake.spark, settings)


def holders(lake: Lake) -> list[tuple[Any, ...]]:
    rows = lake.read(ATTRIBUTION).orderBy("finding_id", "rev").collect()
    return [(row.finding_id, row.holder.mac, row.via) for row in rows]


# lines    A0........................................      leased for two hours
#          A0........B1000...........................      B's line arrived at 3000
# finding                 x1500
@pytest.mark.soak
def test_a_line_that_was_too_late_corrects_leases_findings_and_alerts(live: Lake) -> None:
    late = dhcp(1000, B, lease=7200, late=2000)
    put(live, EVENT, [dhcp(0, A, lease=7200), finished(2000), late, finished(3000)])
    sessions(live, once=True).wait()
    assert live.read(DHCP_SEGMENT).where("kind = 'too_late'").first().mac == B
    put(live, FINDING, [seen(1500), beat(2000)])
    alert(live, once=True).wait()
    assert holders(live) == [("f1500", A, "join")]
    first = live.read(ATTRIBUTION).first()
    assert (first.holder.confidence, first.holder.certainty) != (None, None)

    versions = live.version(DHCP_SEGMENT), live.version(ATTRIBUTION)
    dry = repair_history(live, dry=True)
    assert (dry.changed, dry.findings) == (1, 1)
    assert (live.version(DHCP_SEGMENT), live.version(ATTRIBUTION)) == versions

    done = repair_history(live)
    assert (done.addresses, done.changed, done.leases, done.findings) == (1, 1, 2, 1)
    rows = live.read(DHCP_SEGMENT).where("kind = 'repair'").orderBy("rev").collect()
    spans = [
        (row.mac, row.seg_start.replace(tzinfo=UTC), row.seg_end.replace(tzinfo=UTC))
        for row in rows
    ]
    # B's lease, and a word of no length on where A's ends.
    assert spans == [(B, at(1000), at(8200)), (A, at(1000), at(1000))]
    assert holders(live) == [("f1500", A, "join"), ("f1500", B, "repair")]
    told = live.read(ATTRIBUTION).where("via = 'repair'").first()
    assert [(rival.kind, rival.mac) for rival in told.holder.rivals] == [("superseded", A)]
    assert told.holder.reason.startswith(f"the DHCP log gives {IP} to {B}")

    alert(live, once=True).wait()
    revisions = live.read(ALERT).orderBy("revision").collect()
    assert [(r.revision, r.reason, r.entity_value, r.previous_entity) for r in revisions] == [
        (1, "first", A, None),
        (2, "attribution", B, A),
    ]
    body = json.loads(revisions[1].body)["attribution"]
    assert (body["mac"], body["previous"]["mac"]) == (B, A)
    assert body["certainty"] in ("certain", "likely", "doubtful")
    assert body["rivals"][0]["mac"] == A

    # Whatever is asked, all is as the lines say now.
    versions = live.version(DHCP_SEGMENT), live.version(ATTRIBUTION)
    again = repair_history(live, ip=IP, since=at(0), until=at(9999))
    assert (again.addresses, again.changed, again.findings) == (1, 0, 0)
    assert (live.version(DHCP_SEGMENT), live.version(ATTRIBUTION)) == versions


@pytest.mark.full
def test_a_finding_too_late_for_the_join_is_attributed_marked_and_counted(live: Lake) -> None:
    """CloudTrail, twenty minutes behind the DHCP log in arrival time, too."""
    put(live, DHCP_SEGMENT, [segment(0, 600, A, 0, 1), known(1800)])
    put(live, FINDING, [seen(1000, ip="203.0.113.1"), beat(1800)])
    put(live, EVENT, [finished(1800)])
    alert(live, once=True).wait()
    put(live, FINDING, [seen(300, late=300), beat(1900)])
    put(live, DHCP_SEGMENT, [known(1900)])
    alert(live, once=True).wait()
    assert "f300" not in {uid for uid, _, _ in holders(live)}

    repair(live, once=True).wait()
    assert ("f300", A, "late") in holders(live)
    row = live.read(ATTRIBUTION).where("finding_id = 'f300'").first()
    assert (row.holder.status, row.holder.certainty) == ("leased", "certain")
    ledger = (live.spool / "ledger").glob("repair-*.json")
    assert sum(json.loads(row.read_text("utf-8"))["rows_late"] for row in ledger) == 1


# leases     A0.......................600
#            A0...........B101.5......600      known at 150
# findings            x100 x101 x102           three of A within a minute; then only two
@pytest.mark.full
def test_an_alert_of_a_correlation_that_a_late_lease_disproves_is_closed(live: Lake) -> None:
    pack = PackStore(store_folder(live.settings)).put(PACK)
    three = [seen(n, pack=pack, feeds=["c"]) for n in (100, 101, 102)]
    put(live, DHCP_SEGMENT, [segment(0, 600, A, 0, 1), known(120)])
    put(live, FINDING, [*three, beat(120)])
    put(live, EVENT, [finished(120)])
    alert(live, once=True).wait()
    (found,) = live.read(FINDING).where("rule_id = 'c'").collect()

    put(live, DHCP_SEGMENT, [segment(101.5, 600, B, 150, 2), known(200)])
    put(live, FINDING, [beat(200)])
    put(live, EVENT, [finished(200)])
    repair(live, once=True).wait()
    assert ("f102", B, "correction") in holders(live)
    alert(live, once=True).wait()
    (told,) = live.read(ATTRIBUTION).where(F.col("finding_id") == found.finding_id).collect()
    assert (told.via, told.holder, told.event_time) == ("disproved", None, found.event_time)
    alert(live, once=True).wait()

    revisions = live.read(ALERT).where("rule_id = 'c'").orderBy("revision").collect()
    assert [(r.revision, r.activity, r.reason, r.entity_value) for r in revisions] == [
        (1, "create", "first", A),
        (2, "close", "attribution", A),
    ]
    assert "none of them did it" in json.loads(revisions[1].body)["summary"]
    assert live.read(FINDING).where("rule_id = 'c'").count() == 1


@pytest.mark.full
def test_the_job_repairs_imported_history_and_leaves_a_note(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    repair_now(lake)
    said = capsys.readouterr().err
    assert "history not repaired, again in due time: Fatal: job sessions has not said" in said
    put(lake, DHCP_SEGMENT, [known(9000)])
    put(lake, EVENT, [dhcp(0, A, lease=600, mode="import"), dhcp(600, B, mode="import")])
    put(lake, FINDING, [seen(100), seen(700)])
    none = {"role": "src_endpoint", "rev": -1, "via": "join", "holder": {"status": "none"}}
    told = [none | {"finding_id": f"f{n}", "event_time": at(n)} for n in (100, 700)]
    put(lake, ATTRIBUTION, [row | {"attributed_at": at(n)} for n, row in enumerate(told)])
    version = lake.version(DHCP_SEGMENT)
    dry = repair_history(lake, dry=True)
    assert (dry.changed, dry.leases, dry.findings) == (1, 2, 1), "B had it for 30 s"
    assert lake.version(DHCP_SEGMENT) == version
    repair_now(lake)
    assert holders(lake) == [("f100", None, "join"), ("f100", A, "repair"), ("f700", None, "join")]
    found = lake.read(DHCP_SEGMENT).where("kind = 'repair'").orderBy("seg_start").collect()
    assert [row.mac for row in found] == [A, B]
    repair_now(lake)
    (audited,) = (lake.spool / "audit").glob("repair-*.json")
    row = json.loads(audited.read_text("utf-8"))
    detail = json.loads(row["detail"])
    assert (row["act"], row["outcome"]) == ("repair", "ok")
    assert (detail["by"], detail["addresses"], detail["changed"]) == ("job repair", 1, 1)


# configured   static
# leases       A0......600
# finding          x100          said at once, since nobody waits for a lease of it
@pytest.mark.full
def test_an_address_set_by_hand_that_dhcp_gave_away_is_put_in_doubt_once(lake: Lake) -> None:
    site = ScopeSettings(name=SCOPE, networks=("10.0.0.0/24",), static=(IP,))
    lake = Lake(lake.spark, lake.settings.model_copy(update={"scopes": (site,)}))
    put(lake, DHCP_SEGMENT, [segment(0, 600, A, 0, 1), known(700)])
    put(lake, FINDING, [seen(100), seen(650), seen(100, ip="10.0.0.9", finding_id="other")])
    told = {"role": "src_endpoint", "rev": -1, "via": "outside", "holder": {"status": "static"}}
    for uid, second in (("f100", 100), ("f650", 650)):
        row = told | {"finding_id": uid, "event_time": at(second), "attributed_at": at(second)}
        put(lake, ATTRIBUTION, [row])
    done = repair_history(lake)
    assert (done.changed, done.findings) == (0, 1)
    row = lake.read(ATTRIBUTION).where("via = 'repair'").first()
    assert (row.finding_id, row.rev) == ("f100", 1)
    held = row.holder
    assert (held.status, held.mac, held.session_id) == ("static", None, f"lease of {A}")
    assert [(rival.kind, rival.mac) for rival in held.rivals] == [("leased", A)]
    assert (held.confidence, held.certainty) == (35, "doubtful")
    assert held.reason.endswith(f"yet the DHCP log gave it to {A}.")
    assert repair_history(lake).findings == 0


@pytest.mark.parametrize(
    ("kept", "days"),
    [
        ({}, None),
        ({"silver_days": 30}, 30),
        ({"silver_days": 30, "sources": {"kea_dhcp4": 10, "zeek": 0}}, 10),
        ({"sources": {"kea_dhcp4": 40}}, 40),
    ],
)
def test_retention_says_since_when_every_line_is_there(
    kept: Any, days: int | None, tmp_path: Path
) -> None:
    """A line's time may be five minutes after the arrival by which it is kept."""
    now, settings = (
        CorrectionStamp(known_us=0, learned_us=micros(at(0))),
        load(home=tmp_path, retention=kept),
    )
    folder = settings.lake_root / EVENT.path
    folder.mkdir(parents=True)
    assert mending.kept_since(settings, now) == (
        0 if days is None else micros(at(300 - days * 86400))
    )
    # What a shorter one took out stays out.
    note_retention(folder, Applied(None, {"kea_dhcp4": at(-5 * 86400)}))
    assert mending.kept_since(settings, now) == micros(at(300 - 5 * 86400))


def test_only_one_repair_of_history_runs_at_a_time(lake: Lake) -> None:
    held = JobLock(lake.settings.checkpoint_root / mending.REPAIR_JOB, mending.REPAIR_JOB)
    try:
        with pytest.raises(Fatal, match="job mend already runs"):
            repair_history(lake)
    finally:
        held.release()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ip", "10.0.0"], "--ip 10.0.0: not an IP address"),
        (["--since", "noon"], "--since noon: write an instant"),
        (
            ["--since", "2026-11-21T02:00:00Z", "--until", "2026-11-21T01:00:00Z"],
            "not before --until",
        ),
    ],
)
def test_the_command_names_what_is_wrong(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repair", *words]) == Usage.exit_code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv"])
def test_what_a_repair_came_to_is_told(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    show({"run": "r", "changed": 3}, form)
    printed = capsys.readouterr().out
    assert "changed" in printed
    assert "3" in printed


def test_of_thousands_of_findings_that_stay_some_are_named_and_all_counted() -> None:
    names = [f"finding f{n} stays as it was attributed: its alert is damaged" for n in range(1_500)]
    few, many = list(told_of_left_out(names[:2])), list(told_of_left_out(names))
    assert [line.startswith(name) for line, name in zip(few, names, strict=False)] == [True, True]
    assert len(many) == 21
    assert many[-1].startswith("1,480 more findings stay as they were attributed")
    assert list(told_of_left_out([])) == []
