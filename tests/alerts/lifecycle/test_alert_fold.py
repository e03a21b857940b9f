"""The fold: findings into alerts, corrections into revisions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import alerts
from alerts.domain.alert import MAX_REFS
from alerts.domain.finding import RULE_FAILED, identity
from alerts.lifecycle.bucket_state import HEADER, BucketState
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Correlation, Rule, RulePack
from alerts.tables import ALERT, FINDING
from infra.config.settings import AlertSettings
from infra.errors import Fatal
from tests.examples import examples

# Pictures of the console show the same shift as of today (tests.console.screenshots).
NOON = datetime.fromisoformat(os.environ.get("HEADGATE_TESTS_NOON", "2025-03-01T12:00:00+00:00"))
DETECTED = int((NOON + timedelta(seconds=100)).timestamp()) * 1_000_000
SCHEMA = json.loads((Path(alerts.__file__).parent / "alert.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
RULE = Rule(
    id="r",
    title="Guessing",
    level="high",
    tags=("attack.t1110",),
    tactics=("credential-access",),
    techniques=("T1110",),
    predicate=Test("message", "eq", "x"),
    alerting=True,
    feeds=("c",),
)
COUNT = Correlation(
    id="c",
    title="Many",
    type="event_count",
    rules=("r",),
    group_by=("device",),
    timespan_seconds=60,
    count=3,
    level="critical",
    alerting=True,
)
PACK = RulePack(rules=(RULE,), correlations=(COUNT,))
TWO_DAYS = msgspec.structs.replace(COUNT, timespan_seconds=2 * 86_400)
LONG = RulePack(rules=(RULE,), correlations=(TWO_DAYS,))


def leased(mac: str, ip: str = "10.0.0.5", **keys: Any) -> dict[str, Any]:
    return {
        "ip": ip,
        "scope": "default",
        "mac": mac,
        "hostname": f"host-{mac}",
        "session_id": f"s-{mac}",
        "lease_start": NOON - timedelta(hours=1),
        "lease_end": NOON + timedelta(hours=1),
        "known_at": NOON,
        "status": "leased",
        "evidence": ["dhcp-1"],
    } | keys


NONE = {"ip": "10.0.0.5", "status": "none", "complete_up_to": NOON, "evidence": []}


def finding(second: float, holder: Any = None, rev: int = 1, **keys: Any) -> dict[str, Any]:
    uid = keys.pop("uid", f"e{second}")
    at = NOON + timedelta(seconds=second)
    return {
        "row_kind": "finding",
        "target": "r",
        "finding_id": identity("r", uid),
        "rule_id": "r",
        "rule_version": "v",
        "rule_title": "Guessing",
        "level": "high",
        "kind": "event",
        "pack": PACK.hash,
        "feeds": ["c"],
        "alerting": True,
        "event_uid": uid,
        "event_time": at,
        "received_at": at + timedelta(seconds=1),
        "source": "sshd",
        "mode": "live",
        "role": "src_endpoint",
        "scope": "default",
        "ip": "10.0.0.5",
        "host_name": "server",
        "user_name": "root",
        "dst_ip": None,
        "fields": {"user.name": "root"},
        "snippet": f"line {uid}",
        "holder": leased("aa") if holder is None else holder,
        "attr_rev": rev,
        "via": "join",
    } | keys


def tick(second: float) -> dict[str, Any]:
    time = NOON + timedelta(seconds=second)
    return {"row_kind": "tick", "target": None, "event_time": time}


def action(alert_id: str, what: str, second: float = 100, **keys: Any) -> dict[str, Any]:
    return {
        "row_kind": "action",
        "target": "r",
        "action_id": f"{what}@{second}",
        "alert_id": alert_id,
        "rule_id": "r",
        "action": what,
        "value": None,
        "comment": None,
        "who": "ann",
        "at": NOON + timedelta(seconds=second),
    } | keys


def load(pack_hash: str) -> RulePack:
    packs = {pack.hash: pack for pack in (PACK, LONG)}
    if pack_hash not in packs:
        raise Fatal(f"no pack {pack_hash}")
    return packs[pack_hash]


class Bucket:
    """A bucket whose state goes through bytes between batches; every body is checked."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AlertSettings(**settings)
        self.blob = BucketState().encode()
        self.revisions: dict[str, int] = {}

    def step(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        state = BucketState.decode(self.blob)
        outputs = state.step(rows, load, self.settings, DETECTED)
        self.blob = state.encode()
        for output in outputs:
            if output["out"] == "alert":
                self._check(output["row"])
        return outputs

    def alerts(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [o["row"] for o in self.step(*rows) if o["out"] == "alert"]

    def _check(self, row: dict[str, Any]) -> None:
        VALIDATOR.validate(row["body"])
        assert set(row) == {column.name for column in ALERT.columns}
        expected = self.revisions.get(row["alert_id"], 0) + 1
        assert row["revision"] == expected, "revisions count up without a gap"
        self.revisions[row["alert_id"]] = expected


def body(row: dict[str, Any]) -> dict[str, Any]:
    return dict(row["body"])


def test_the_schema_is_valid_and_its_fields_are_those_of_the_design() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    (row,) = Bucket().alerts(finding(0))
    designed = """alert_id tenant revision activity mode rule attack severity severity_id risk_score
        event_time window_start window_end detected_at entity entities attribution title summary
        count dedup_key evidence evidence_total lineage class_uid"""
    assert set(designed.split()) <= set(body(row))


def test_the_first_finding_makes_an_alert_with_the_lease_that_proves_it() -> None:
    (row,) = Bucket(tenant="acme").alerts(finding(0))
    assert row["alert_id"] == identity("acme", "r", "e0")
    assert (row["revision"], row["activity"], row["reason"]) == (1, "create", "first")
    assert (row["entity_type"], row["entity_value"], row["status"]) == ("device", "aa", "leased")
    told = body(row)
    assert told["attribution"]["session_id"] == "s-aa"
    assert told["attribution"]["lease_start"] == "2025-03-01T11:00:00.000000Z"
    assert told["attack"][0]["technique"] == {"uid": "T1110"}
    assert told["class_uid"] == 2004
    assert told["severity_id"] == 4
    assert told["detected_at"] == "2025-03-01T12:01:40.000000Z"
    assert told["evidence"][0]["event_uid"] == "e0"
    assert "10.0.0.5 was leased to aa" in told["summary"]
    assert {"type": "user", "value": "root"} in told["entities"]


@pytest.mark.parametrize(
    ("holder", "columns", "expected", "status"),
    [
        (NONE, {}, ("ip", "10.0.0.5"), "none"),
        ({"status": "outside"}, {}, ("ip", "10.0.0.5"), "outside"),
        ({"status": "unknown"}, {"ip": None}, ("host", "server"), "unknown"),
        ({"status": "unknown"}, {"ip": None, "host_name": None}, ("user", "root"), "unknown"),
        (
            {"status": "unknown"},
            {"ip": None, "host_name": None, "user_name": None},
            ("event", "e0"),
            "unknown",
        ),
    ],
)
def test_without_a_lease_the_alert_says_so_and_names_what_is_known(
    holder: Any, columns: dict[str, Any], expected: tuple[str, str], status: str
) -> None:
    (row,) = Bucket().alerts(finding(0, holder, **columns))
    assert (row["entity_type"], row["entity_value"]) == expected
    assert row["status"] == status
    if status == "none":
        assert "complete up to 2025-03-01T12:00:00.000000Z" in body(row)["summary"]


def test_repeats_inside_the_window_count_and_are_told_seldom() -> None:
    bucket = Bucket(count_every_seconds=300)
    assert len(bucket.alerts(finding(0))) == 1
    assert bucket.alerts(finding(10), finding(20)) == []
    assert bucket.alerts(tick(290)) == []
    (row,) = bucket.alerts(tick(302))
    assert (row["activity"], row["reason"], row["count"]) == ("update", "count", 3)
    assert body(row)["evidence_total"] == 3
    assert bucket.alerts(tick(900)) == [], "nothing new, nothing told"


def test_a_batch_gives_one_revision_an_alert() -> None:
    (row,) = Bucket().alerts(*[finding(s) for s in range(30)])
    assert row["count"] == 30
    assert len(body(row)["evidence"]) == 10
    assert body(row)["evidence_total"] == 30
    assert row["risk_score"] > 75


def test_after_the_window_a_repeat_is_a_new_alert() -> None:
    bucket = Bucket(dedup_seconds=60)
    (first,) = bucket.alerts(finding(0))
    assert bucket.alerts(finding(60)) == []
    (second,) = bucket.alerts(finding(61))
    assert second["alert_id"] != first["alert_id"]


def test_devices_users_and_sites_do_not_mix() -> None:
    rows = [
        finding(0),
        finding(1, leased("bb")),
        finding(2, NONE, scope="a"),
        finding(3, NONE, scope="b"),
    ]
    assert len(Bucket().alerts(*rows)) == 4


def test_the_same_finding_again_changes_nothing() -> None:
    bucket = Bucket(count_every_seconds=1)
    bucket.step(finding(0))
    assert bucket.alerts(finding(0), finding(0, leased("bb"), rev=1), tick(1000)) == []


def test_a_finding_that_does_not_alert_is_not_remembered() -> None:
    bucket = Bucket()
    empty = bucket.blob
    assert bucket.alerts(finding(0, alerting=False)) == []
    state = BucketState.decode(bucket.blob)
    assert len(state.encode()) < len(empty) + 40


#   rev 1: device aa        rev 2, late DHCP line: it was bb
def test_a_correction_keeps_the_id_and_names_the_old_and_the_new_holder() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(finding(0))
    (second,) = bucket.alerts(finding(0, leased("bb"), rev=2, via="correction"))
    assert second["alert_id"] == first["alert_id"]
    assert second["revision"] == 2
    assert (second["activity"], second["reason"]) == ("update", "attribution")
    assert (second["entity_value"], second["previous_entity"]) == ("bb", "aa")
    told = body(second)["attribution"]
    assert told["mac"] == "bb"
    assert told["previous"]["mac"] == "aa"
    assert told["previous"]["session_id"] == "s-aa"
    assert "It named aa before" in body(second)["summary"]
    assert bucket.alerts(finding(0, leased("bb"), rev=2)) == []


def test_a_lease_that_becomes_known_replaces_none() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(finding(0, NONE, rev=-1))
    (second,) = bucket.alerts(finding(0, leased("aa"), rev=7, via="late"))
    assert (first["status"], second["status"]) == ("none", "leased")
    assert second["previous_entity"] == "10.0.0.5"


def test_a_correction_and_its_finding_in_one_batch_give_the_truth_at_once() -> None:
    (row,) = Bucket().alerts(finding(0), finding(0, leased("bb"), rev=2))
    assert row["revision"] == 1
    assert row["entity_value"] == "bb"
    assert row["previous_entity"] is None


def test_a_correction_that_comes_before_its_finding_wins() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(finding(0, leased("bb"), rev=2, via="correction"))
    assert bucket.alerts(finding(0, leased("aa"), rev=1)) == []
    assert row["entity_value"] == "bb"


def test_a_newer_statement_about_the_same_device_is_silent() -> None:
    bucket = Bucket()
    bucket.step(finding(0))
    assert bucket.alerts(finding(0, leased("aa", session_id="s2"), rev=2)) == []


def test_when_some_findings_move_the_alert_lets_them_go() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(*[finding(s) for s in (0, 1, 2)])
    moved = bucket.alerts(finding(0, leased("bb"), rev=2))
    assert len(moved) == 2
    old, new = sorted(moved, key=lambda row: row["entity_value"])
    assert old["alert_id"] == first["alert_id"]
    assert old["count"] == 2
    assert old["entity_value"] == "aa"
    assert old["reason"] == "attribution"
    assert "e0" not in {e["event_uid"] for e in body(old)["evidence"]}
    assert new["entity_value"] == "bb"
    assert new["activity"] == "create"
    assert new["alert_id"] != first["alert_id"]


def test_when_the_device_has_an_alert_already_the_moved_one_closes_in_its_favour() -> None:
    bucket = Bucket()
    first, second = bucket.alerts(finding(0), finding(1, leased("bb")))
    rows = {row["alert_id"]: row for row in bucket.alerts(finding(0, leased("bb"), rev=2))}
    closed, kept = rows[first["alert_id"]], rows[second["alert_id"]]
    assert closed["activity"] == "close"
    assert closed["reason"] == "superseded"
    assert closed["previous_entity"] == "aa"
    assert closed["count"] == 1
    assert body(closed)["superseded_by"] == second["alert_id"]
    assert kept["count"] == 2
    assert kept["reason"] == "attribution"


def test_close_assign_verdict_and_reopen_are_revisions() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(finding(0))
    name = row["alert_id"]
    (assigned,) = bucket.alerts(action(name, "assign", value="bob"))
    assert (assigned["activity"], assigned["reason"]) == ("update", "assigned")
    assert body(assigned)["assignee"] == "bob"
    (judged,) = bucket.alerts(action(name, "verdict", 101, value="true_positive"))
    assert body(judged)["verdict"] == "true_positive"
    (closed,) = bucket.alerts(action(name, "close", 102, comment="done"))
    assert (closed["activity"], body(closed)["state"]) == ("close", "closed")
    assert body(closed)["comment"] == "done"
    (opened,) = bucket.alerts(action(name, "reopen", 103))
    assert (opened["activity"], body(opened)["state"]) == ("update", "open")
    assert body(opened)["verdict"] is None


def test_after_a_close_what_happens_next_is_a_new_alert_and_what_was_before_is_not() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(finding(0))
    bucket.step(action(row["alert_id"], "close", 100))
    assert bucket.alerts(finding(50)) == []
    (other,) = bucket.alerts(finding(150))
    assert other["alert_id"] != row["alert_id"]


def test_an_action_on_an_alert_nobody_knows_is_handed_back() -> None:
    (out,) = Bucket().step(action("0" * 32, "close"))
    assert out["out"] == "refused"
    assert "no longer" in out["row"]["reason"]


def test_an_alert_expires_a_day_after_its_last_activity() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(finding(0))
    bucket.step(tick(86_000))
    assert bucket.alerts(action(row["alert_id"], "assign", 86_001, value="bob"))
    bucket.step(tick(86_001 + 86_300))
    assert bucket.alerts(action(row["alert_id"], "close", 86_001 + 86_301))
    bucket.step(tick(400_000))
    (out,) = bucket.step(action(row["alert_id"], "close", 400_001))
    assert out["out"] == "refused"


def test_a_correlation_in_the_same_bucket_gives_a_finding_that_makes_its_own_alert() -> None:
    bucket = Bucket()
    outputs = bucket.step(*[finding(s, target="c") for s in (0, 1, 2)])
    (row,) = [o["row"] for o in outputs if o["out"] == "finding"]
    assert set(row) <= {column.name for column in FINDING.columns}
    (alert,) = [o["row"] for o in outputs if o["out"] == "alert"]
    back = row | {"row_kind": "finding", "target": "c", "attr_rev": -1, "via": "outside"}
    assert bucket.alerts(back) == [], "it was folded when it was told"
    assert alert["level"] == "critical"
    assert alert["entity_value"] == "aa"
    assert alert["window_start"] == NOON
    assert body(alert)["evidence_total"] == 3
    (out,) = bucket.step(*[counted(s, "bb", rev=4) for s in (0, 1, 2)])
    (second,) = bucket.alerts(retold(out))
    assert second["alert_id"] == alert["alert_id"]
    assert second["revision"] == 2
    assert (second["previous_entity"], second["entity_value"]) == ("aa", "bb")


def counted(second: float, mac: str = "aa", rev: int = 1, **keys: Any) -> dict[str, Any]:
    """A finding as the correlation gets it."""
    via = "join" if rev == 1 else "correction"
    return finding(second, leased(mac), rev=rev, target="c", via=via, **keys)


def retold(output: dict[str, Any]) -> dict[str, Any]:
    """A row of gold.attribution about a correlation's finding, as it comes back."""
    assert output["out"] == "attribution"
    row = output["row"]
    told: dict[str, Any] = json.loads(row["finding"])
    for name in ("event_time", "received_at", "window_start"):
        told[name] = datetime.fromisoformat(told[name])
    told["evidence"] = [e | {"time": datetime.fromisoformat(e["time"])} for e in told["evidence"]]
    state = {"row_kind": "finding", "target": "c", "attr_rev": row["rev"]}
    return told | state | {"holder": row["holder"], "via": row["via"]}


def test_what_people_ask_makes_no_finding_of_a_backlog_too_late() -> None:
    bucket = Bucket()
    bucket.step(action("another", "close", 4 * 3600))
    rows = [row for s in (0, 1, 2) for row in bucket.alerts(counted(s))]
    assert [row["rule_id"] for row in rows] == ["c"]


#   aa  0  1  2           told, and for two days each of them may turn out to be another's
#   ... a day and two hours ...
#   aa  0  1     bb 2
def test_an_alert_is_remembered_as_long_as_its_correlation_may_be_corrected() -> None:
    bucket = Bucket()
    (alert,) = bucket.alerts(*[counted(s, pack=LONG.hash) for s in (0, 1, 2)])
    bucket.step(tick(26 * 3600))
    (out,) = bucket.step(counted(2, "bb", rev=4, pack=LONG.hash))
    (closed,) = bucket.alerts(retold(out))
    assert (closed["alert_id"], closed["activity"]) == (alert["alert_id"], "close")


def test_an_alert_of_a_finding_that_goes_to_and_fro_has_an_id_of_its_own_each_time() -> None:
    bucket = Bucket(count_every_seconds=1)
    bucket.step(finding(0), finding(10))
    told = []
    for rev, mac in enumerate(["bb", "aa", "bb", "aa", "bb"], 2):
        told += bucket.alerts(finding(0, leased(mac), rev))
    made = [row["alert_id"] for row in told if row["entity_value"] == "bb" and row["revision"] == 1]
    assert len(made) == len(set(made)) == 3


@pytest.mark.parametrize(("dedup_hours", "count"), [(48, 2), (12, 1)])
def test_an_alert_is_remembered_as_long_as_repeats_count_on_it(
    dedup_hours: int, count: int
) -> None:
    bucket = Bucket(dedup_seconds=dedup_hours * 3600, count_every_seconds=1)
    (first,) = bucket.alerts(finding(0, leased("aa")))
    assert bucket.alerts(tick(30 * 3600)) == []
    (again,) = bucket.alerts(finding(30 * 3600, leased("aa")))
    assert (again["alert_id"] == first["alert_id"], again["count"]) == (count == 2, count)


#   aa  0  1  2        three times: an alert
#   aa  0  1     bb 2  neither did it three times
def test_an_alert_about_what_nobody_did_alone_closes_and_says_so() -> None:
    bucket = Bucket()
    (alert,) = bucket.alerts(*[counted(s) for s in (0, 1, 2)])
    (out,) = bucket.step(counted(2, "bb", rev=4))
    (closed,) = bucket.alerts(retold(out))
    told = body(closed)
    assert closed["alert_id"] == alert["alert_id"]
    assert (closed["activity"], closed["reason"], told["state"]) == (
        "close",
        "attribution",
        "closed",
    )
    assert "of several devices: none of them did it" in told["summary"]
    assert bucket.alerts(retold(out)) == []
    (opened,) = bucket.alerts(action(alert["alert_id"], "reopen") | {"target": "c"})
    assert body(opened)["state"] == "open"
    assert "none of them" not in body(opened)["summary"]


def test_what_happens_after_it_was_disproved_is_a_new_alert() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(*[counted(s) for s in (0, 1, 2)])
    (out,) = bucket.step(counted(1, "bb", rev=4))
    bucket.step(retold(out))
    (again,) = bucket.step(counted(1.5))
    (second,) = bucket.alerts(retold(again))
    assert second["alert_id"] != first["alert_id"]
    assert (second["revision"], second["activity"], second["entity_value"]) == (1, "create", "aa")
    assert body(second)["evidence_total"] == 3


def test_an_alert_that_lost_evidence_to_another_device_shows_what_is_left() -> None:
    bucket = Bucket()
    (alert,) = bucket.alerts(*[counted(s) for s in (0, 1, 2, 3)])
    (out,) = bucket.step(counted(1, "bb", rev=4))
    (second,) = bucket.alerts(retold(out))
    told = body(second)
    assert second["alert_id"] == alert["alert_id"]
    assert (second["activity"], second["reason"], told["state"]) == (
        "update",
        "attribution",
        "open",
    )
    assert [event["event_uid"] for event in told["evidence"]] == ["e0", "e2", "e3"]
    assert (told["evidence_total"], told["entity"]["value"]) == (3, "aa")


def test_an_alert_keeps_what_stands_when_another_finding_of_it_is_disproved() -> None:
    bucket = Bucket()
    (alert,) = bucket.alerts(*[counted(s) for s in (0, 1, 2)])
    bucket.step(*[counted(s) for s in (100, 101, 102)])
    (out,) = bucket.step(counted(101, "bb", rev=4))
    (second,) = bucket.alerts(retold(out))
    told = body(second)
    assert second["alert_id"] == alert["alert_id"]
    assert (second["activity"], told["state"], second["count"]) == ("update", "open", 1)
    assert [event["event_uid"] for event in told["evidence"]] == ["e0", "e1", "e2"]


def test_a_failing_rule_makes_one_alert_about_itself() -> None:
    rows = [
        finding(
            s,
            {"status": "unknown"},
            target=RULE_FAILED,
            rule_id=RULE_FAILED,
            role="rule",
            ip=None,
            host_name=None,
            user_name=None,
            fields={"rule_id": "bad"},
        )
        for s in (0, 1)
    ]
    (row,) = Bucket().alerts(*rows)
    assert (row["entity_type"], row["entity_value"], row["count"]) == ("rule", "bad", 2)


def test_an_alert_is_still_told_when_its_pack_is_lost() -> None:
    (row,) = Bucket().alerts(finding(0, pack="f" * 32))
    assert row["rule_name"] == "Guessing"
    assert body(row)["rule"]["tags"] == []


OLD_STATE = Path(__file__).parent / "alert_state_1.bin"
"""A bucket as version 1 wrote it: two alerts of r, one assigned to ann, and two entries of c."""


def test_a_state_of_version_1_is_read_and_goes_on() -> None:
    bucket = Bucket(count_every_seconds=300)
    bucket.blob = OLD_STATE.read_bytes()
    assert bucket.blob.startswith(b"HGALERT\x01")
    old = identity("default", "r", "e0")
    bucket.revisions = {old: 2, identity("default", "r", "e20"): 1}
    (row,) = bucket.alerts(finding(30), tick(500))
    assert (row["alert_id"], row["revision"], row["count"]) == (old, 3, 3)
    assert body(row)["assignee"] == "ann"
    assert body(row)["lifecycle"] == "triaged"
    assert bucket.blob.startswith(HEADER)
    (fired,) = [o for o in bucket.step(finding(2, target="c")) if o["out"] == "finding"]
    assert fired["row"]["rule_id"] == "c", "its correlation remembers the two before"


def test_a_state_of_version_2_is_read_and_goes_on() -> None:
    """Its correlations' findings came back through gold.finding before they were folded."""
    bucket = Bucket(count_every_seconds=300)
    bucket.blob = (Path(__file__).parent / "alert_state_2.bin").read_bytes()
    assert bucket.blob.startswith(b"HGALERT\x02")
    old = identity("default", "r", "e0")
    bucket.revisions = {old: 2, identity("default", "r", "e20"): 1}
    (row,) = bucket.alerts(finding(30), tick(700))
    assert (row["alert_id"], row["revision"], row["count"]) == (old, 3, 2)
    assert bucket.blob.startswith(HEADER)
    outputs = bucket.step(finding(2, target="c"))
    assert [o["out"] for o in outputs] == ["finding", "alert"]
    told = outputs[0]["row"] | {"finding_id": "told-before", "event_uid": "told-before"}
    before = told | {"row_kind": "finding", "target": "c", "attr_rev": -1, "via": "outside"}
    (alert,) = bucket.alerts(before, tick(1_100))
    assert alert["count"] == 2, "what it told but had not folded is folded when it comes back"


@pytest.mark.parametrize("holder", [leased("aa"), NONE])
def test_a_correlation_that_is_told_a_thousand_times_counts_each_time_once(holder: Any) -> None:
    """An alert remembers a thousand findings by id; beyond them it only counts."""
    bucket = Bucket(dedup_seconds=10**9, count_every_seconds=1)
    bucket.blob = with_refs(MAX_REFS, holder)
    bucket.revisions = {identity("default", "c", "e0.0"): 1}
    outputs = bucket.step(*[finding(s, holder, target="c") for s in (0, 1, 2)])
    (row,) = [o["row"] for o in outputs if o["out"] == "finding"]
    back = row | {"row_kind": "finding", "target": "c", "attr_rev": -1, "via": "outside"}
    told = [o["row"] for o in outputs if o["out"] == "alert"] + bucket.alerts(back, tick(500))
    assert told[-1]["count"] == MAX_REFS + 1


def with_refs(count: int, holder: Any) -> bytes:
    """A bucket with an alert of `c` that that many findings count on."""
    bucket = Bucket()
    rows = [
        finding(n / 100, holder, target="c") | {"rule_id": "c", "finding_id": f"c{n}"}
        for n in range(count)
    ]
    bucket.step(*rows)
    return bucket.blob


def test_new_triaged_closed_and_what_a_person_said_survives_a_correction() -> None:
    bucket = Bucket()
    first, second = bucket.alerts(finding(0), finding(1, leased("bb")))
    assert body(first)["lifecycle"] == "new"
    (taken,) = bucket.alerts(action(first["alert_id"], "assign", value="ann"))
    assert body(taken)["lifecycle"] == "triaged"
    judged = action(first["alert_id"], "close", 101, value="true_positive", comment="seen")
    (closed,) = bucket.alerts(judged)
    assert body(closed)["lifecycle"] == "closed"
    rows = {row["alert_id"]: row for row in bucket.alerts(finding(0, leased("bb"), rev=2))}
    assert body(rows[first["alert_id"]])["verdict"] == "true_positive"
    kept = body(rows[second["alert_id"]])
    assert (kept["assignee"], kept["verdict"], kept["comment"]) == ("ann", "true_positive", "seen")
    assert kept["state"] == "open", "its own findings were never judged"


def test_a_closed_alert_that_is_another_devices_stays_closed_with_its_verdict() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(finding(0))
    bucket.step(action(row["alert_id"], "close", value="false_positive"))
    (moved,) = bucket.alerts(finding(0, leased("bb"), rev=2))
    told = body(moved)
    assert (told["state"], told["verdict"], told["entity"]["value"]) == (
        "closed",
        "false_positive",
        "bb",
    )


def test_a_superseded_alert_is_not_reopened() -> None:
    bucket = Bucket()
    first, _ = bucket.alerts(finding(0), finding(1, leased("bb")))
    bucket.step(finding(0, leased("bb"), rev=2))
    (out,) = bucket.step(action(first["alert_id"], "reopen", 200))
    assert out["out"] == "refused"
    assert "cannot be asked to reopen" in out["row"]["reason"]


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(Fatal, match="another release wrote it; go back to that one"):
        BucketState.decode(b"HGALERT\x07" + BucketState().encode()[len(HEADER) :])


@examples(60)
@given(st.data())
def test_a_damaged_state_is_refused_by_name(data: st.DataObject) -> None:
    bucket = Bucket()
    bucket.step(*[finding(n) for n in range(5)])
    at = data.draw(st.integers(len(HEADER), len(bucket.blob) - 1))
    cut = data.draw(st.booleans())
    broken = bucket.blob[:at] if cut else bucket.blob[:at] + b"\xff" + bucket.blob[at + 1 :]
    if broken != bucket.blob:
        with pytest.raises(Fatal, match="job alert: its state cannot be read"):
            BucketState.decode(broken)


ROWS = st.lists(
    st.builds(
        lambda s, mac, rev, target: finding(
            s, NONE if mac is None else leased(mac), rev, target=target
        ),
        st.integers(0, 8),
        st.sampled_from(["aa", "bb", None]),
        st.integers(0, 4),
        st.sampled_from(["r", "r", "c"]),
    ),
    max_size=12,
)


@examples(80)
@given(st.lists(ROWS, max_size=4), st.randoms(use_true_random=False))
def test_a_batch_gives_the_same_in_any_order_and_on_a_retry(
    batches: list[list[dict[str, Any]]], shuffle: Any
) -> None:
    one, other = Bucket(), Bucket()
    for batch in batches:
        unlike = {(r["finding_id"], r["attr_rev"], r["target"]): r for r in batch}
        rows: Sequence[dict[str, Any]] = list(unlike.values())
        mixed = list(rows)
        shuffle.shuffle(mixed)
        assert one.step(*rows) == other.step(*mixed)
        assert one.blob == other.blob


@examples(80)
@given(st.lists(ROWS, max_size=5))
def test_every_finding_counts_on_one_alert_of_its_newest_holder(
    batches: list[list[dict[str, Any]]],
) -> None:
    bucket = Bucket(count_every_seconds=1)
    newest: dict[str, dict[str, Any]] = {}
    told: dict[str, dict[str, Any]] = {}
    for batch in [*batches, [tick(5_000)]]:
        own = [row for row in batch if row["target"] in ("r", None)]
        for row in own:
            if row["row_kind"] == "finding":
                known = newest.get(row["finding_id"])
                if known is None or row["attr_rev"] > known["attr_rev"]:
                    newest[row["finding_id"]] = row
                elif row["attr_rev"] == known["attr_rev"]:
                    return  # two statements under one rev: either may count
        for alert in bucket.alerts(*own):
            told[alert["alert_id"]] = alert
    alive = [a for a in told.values() if a["reason"] != "superseded"]
    assert sum(a["count"] for a in alive) == len(newest)
    expected = {row["holder"].get("mac") or row["ip"] for row in newest.values()}
    assert {a["entity_value"] for a in alive} == expected
