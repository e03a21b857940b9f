"""A repair of what the alert state has forgotten: the alert goes on where it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alerts.domain.finding import identity
from alerts.lifecycle.alert_json import is_disproved
from alerts.lifecycle.alert_lookup import counting
from infra.config.settings import load
from tests.alerts.lifecycle.test_alert_fold import (
    Bucket,
    action,
    body,
    counted,
    finding,
    leased,
    retold,
    tick,
)

SETTINGS = load()
LATER = 400_000
"""Seconds after which the state remembers no alert of the first minutes."""


def repaired(second: float, alert: dict[str, Any], mac: str = "bb") -> dict[str, Any]:
    """The finding of that second, attributed anew, with the alert as the table has it."""
    row = finding(second, leased(mac), rev=9, via="repair")
    return row | {"alert": json.dumps(alert["body"])}


def test_a_forgotten_alert_is_revised_and_not_made_again() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(finding(0))
    bucket.step(tick(LATER))
    (second,) = bucket.alerts(repaired(0, first))
    assert (second["alert_id"], second["revision"]) == (first["alert_id"], 2)
    assert (second["reason"], second["entity_value"], second["previous_entity"]) == (
        "attribution",
        "bb",
        "aa",
    )
    told = body(second)
    assert told["attribution"]["previous"]["mac"] == "aa"
    assert told["evidence"] == body(first)["evidence"]
    assert bucket.alerts(repaired(0, second)) == [], "the same again says nothing"


#   release before: an alert.    this release: a repair, and the same again after a restart.
def test_an_alert_that_the_release_before_wrote_is_revised_and_not_told_twice() -> None:
    bucket, current = Bucket(), Bucket()
    (first,) = bucket.alerts(finding(0))
    (same,) = current.alerts(finding(0))
    words = ("schema_version", "change_type", "alert_status", "attribution_status")
    first["body"] = {name: value for name, value in first["body"].items() if name not in words}
    bucket.step(tick(LATER))
    current.step(tick(LATER))
    (second,) = bucket.alerts(repaired(0, first))
    assert current.alerts(repaired(0, same)) == [second], "what was told before leaves no mark"
    assert (second["alert_id"], second["revision"]) == (first["alert_id"], 2)
    assert second["body"]["alert_status"] == "new"
    assert bucket.alerts(repaired(0, second), finding(0)) == [], "the same again says nothing"


def test_of_a_forgotten_alert_only_the_findings_in_question_move() -> None:
    bucket = Bucket(count_every_seconds=1)
    (first,) = bucket.alerts(finding(0))
    (counted,) = bucket.alerts(finding(10), finding(20), tick(30))
    assert counted["count"] == 3
    bucket.step(tick(LATER))
    moved = {row["entity_value"]: row for row in bucket.alerts(repaired(10, counted))}
    assert moved.keys() == {"aa", "bb"}
    assert (moved["aa"]["alert_id"], moved["aa"]["revision"]) == (first["alert_id"], 3)
    assert (moved["aa"]["count"], moved["bb"]["count"]) == (2, 1)
    assert moved["bb"]["alert_id"] == identity("default", "r", "e10")
    assert [e["event_uid"] for e in body(moved["aa"])["evidence"]] == ["e0", "e20"]
    assert body(moved["aa"])["evidence_total"] == 2


def test_an_alert_that_is_remembered_knows_better_than_what_comes_along() -> None:
    bucket = Bucket(count_every_seconds=1)
    (first,) = bucket.alerts(finding(0))
    bucket.alerts(finding(10), tick(30))
    rows = {row["entity_value"]: row for row in bucket.alerts(repaired(0, first))}
    assert (rows["aa"]["revision"], rows["aa"]["count"]) == (3, 1)


def asked(
    what: str, alert: dict[str, Any], second: float = LATER + 5, **keys: Any
) -> dict[str, Any]:
    """What a person asks of an alert, with its body as the table has it."""
    row = action(alert["alert_id"], what, second, **keys)
    return row | {
        "rule_id": alert["rule_id"],
        "target": alert["rule_id"],
        "alert": json.dumps(alert["body"]),
    }


#   Friday: an alert.    Monday: the job has forgotten it, and somebody looks at it.
def test_a_person_may_judge_and_close_an_alert_that_was_forgotten() -> None:
    bucket = Bucket()
    (first,) = bucket.alerts(finding(0))
    bucket.step(tick(LATER))
    (out,) = bucket.step(action(first["alert_id"], "close", LATER + 1))
    assert out["out"] == "refused", "without the body nobody knows it any more"
    (second,) = bucket.alerts(asked("close", first, value="true_positive", comment="seen"))
    assert (second["revision"], second["activity"], second["reason"]) == (2, "close", "closed")
    (third,) = bucket.alerts(asked("assign", first, LATER + 6, value="ann"))
    assert third["revision"] == 3, "it is remembered again, and knows better than what comes along"
    told = body(third)
    assert (told["state"], told["verdict"], told["assignee"]) == ("closed", "true_positive", "ann")


@pytest.mark.parametrize(
    "rows",
    [
        [finding(0)],
        [finding(0), finding(10), finding(70, user_name="eve", dst_ip="192.0.2.1")],
        [finding(0, {"ip": "10.0.0.5", "status": "none", "evidence": []}, host_name=None)],
        [finding(0, {"status": "unknown"}, ip=None, user_name=None)],
        [finding(0, {"status": "unknown"}, ip=None, host_name=None, user_name="eve")],
        [counted(0), counted(1), counted(2)],
    ],
)
def test_what_is_asked_changes_nothing_else_of_a_forgotten_alert(
    rows: list[dict[str, Any]],
) -> None:
    bucket = Bucket(count_every_seconds=1)
    *_, newest = bucket.alerts(*rows) + bucket.alerts(tick(300))
    bucket.step(tick(LATER))
    (again,) = bucket.alerts(asked("verdict", newest, value="benign"))
    before, now = body(newest), body(again)
    changed = {name for name in before if before[name] != now[name]}
    acts = {"activity", "type_uid", "reason", "revision", "verdict", "lifecycle"}
    acts |= {"change_type", "alert_status"}
    assert changed <= acts | {"changed_by", "changed_at"}
    assert now["verdict"] == "benign"
    same = ("src_ip", "entity_value", "title", "count", "event_time", "pack", "status")
    assert [newest[name] for name in same] == [again[name] for name in same]


def test_an_alert_that_was_disproved_is_opened_again_after_it_was_forgotten() -> None:
    bucket = Bucket()
    bucket.step(*[counted(s) for s in (0, 1, 2)])
    (out,) = bucket.step(counted(2, "bb", rev=4))
    (closed,) = bucket.alerts(retold(out))
    bucket.step(tick(LATER))
    (judged,) = bucket.alerts(asked("verdict", closed, value="benign"))
    assert body(judged)["summary"] == body(closed)["summary"]
    assert (judged["activity"], body(judged)["state"]) == ("update", "closed")
    (opened,) = bucket.alerts(asked("reopen", judged, LATER + 9))
    assert body(opened)["state"] == "open"


def test_an_alert_that_was_judged_after_it_was_disproved_still_is() -> None:
    bucket = Bucket()
    bucket.step(*[counted(s) for s in (0, 1, 2)])
    (out,) = bucket.step(counted(2, "bb", rev=4))
    (closed,) = bucket.alerts(retold(out))
    (judged,) = bucket.alerts(action(closed["alert_id"], "verdict", value="benign", target="c"))
    assert judged["activity"] == "update"
    assert [is_disproved(body(row)) for row in (closed, judged)] == [True, True]
    (opened,) = bucket.alerts(action(closed["alert_id"], "reopen", target="c"))
    assert not is_disproved(body(opened))


def known(finding: dict[str, Any], was: dict[str, Any], *alerts: dict[str, Any]) -> Any:
    """The body that comes along with a finding which was about `was`."""
    row = {"event_time": finding["event_time"], "was": {"holder": was}}
    return counting([body(alert) for alert in alerts], finding, row, SETTINGS)


#   aa  e0, e10         both on one alert, which e0 made
#   bb  e0              by a correction within the hour: an alert of its own
#   ... days ...
#   cc  e0              by a repair of history
@pytest.mark.parametrize(("now", "of_aa"), [("cc", None), ("aa", 2)])
def test_a_repair_revises_the_alert_that_a_finding_counts_on_and_not_the_one_it_left(
    now: str, of_aa: int | None
) -> None:
    bucket = Bucket()
    bucket.step(finding(0), finding(10))
    rows = {row["entity_value"]: row for row in bucket.alerts(finding(0, leased("bb"), rev=2))}
    bucket.step(tick(LATER))
    for order in (("aa", "bb"), ("bb", "aa")):
        brought = known(finding(0), leased("bb"), *[rows[mac] for mac in order])
        assert brought["alert_id"] == rows["bb"]["alert_id"]
        assert brought["made"]["alert_id"] == rows["aa"]["alert_id"]
    moved = repaired(0, rows["bb"], now) | {"alert": json.dumps(brought)}
    told = {row["alert_id"]: row for row in bucket.alerts(moved, tick(LATER + 300))}
    after = told[rows["bb"]["alert_id"]]
    if of_aa is None:
        assert told.keys() == {rows["bb"]["alert_id"]}
        assert (after["entity_value"], after["previous_entity"]) == ("cc", "bb")
    else:
        assert (after["activity"], after["reason"]) == ("close", "superseded")
        assert told[rows["aa"]["alert_id"]]["count"] == of_aa


#   acme and globex each have 10.0.0.5, of which no lease was known.  Days later acme's is.
def test_a_repair_takes_no_finding_to_another_tenants_alert_of_that_address() -> None:
    bucket, free = Bucket(), {"ip": "10.0.0.5", "status": "none", "evidence": []}
    found = [finding(0, free, uid=name, tenant_uid=name) for name in ("acme", "globex")]
    rows = {row["tenant_uid"]: row for row in bucket.alerts(*found)}
    bucket.step(tick(LATER))
    for order in (("acme", "globex"), ("globex", "acme")):
        brought = known(found[0], free, *[rows[name] for name in order])
        assert brought["alert_id"] == rows["acme"]["alert_id"]
    assert known(found[0], free, rows["globex"]) is None
    moved = repaired(0, rows["acme"]) | found[0] | {"holder": leased("bb"), "attr_rev": 9}
    (told,) = bucket.alerts(moved | {"alert": json.dumps(brought)})
    assert (told["alert_id"], told["tenant_uid"]) == (rows["acme"]["alert_id"], "acme")


#   bb has an alert, to which e0 goes: that of aa, which e0 made, is closed.  Days later e0 is aa's.
def test_an_id_is_not_given_again_after_its_alert_was_forgotten() -> None:
    bucket = Bucket()
    bucket.step(finding(0), finding(10, leased("bb")))
    rows = {row["entity_value"]: row for row in bucket.alerts(finding(0, leased("bb"), rev=2))}
    assert (rows["aa"]["activity"], rows["bb"]["count"]) == ("close", 2)
    bucket.step(tick(LATER))
    brought = known(finding(0), leased("bb"), *rows.values())
    told = bucket.alerts(repaired(0, rows["bb"], "aa") | {"alert": json.dumps(brought)})
    assert {row["entity_value"]: row["revision"] for row in told} == {"aa": 1, "bb": 3}
    assert rows["aa"]["alert_id"] not in {row["alert_id"] for row in told}


def test_an_alert_whose_findings_count_no_more_takes_none_back() -> None:
    bucket = Bucket()
    bucket.step(finding(0))
    gone = finding(0, leased("bb"), rev=2) | {"confirmed": False}
    (closed,) = bucket.alerts(gone)
    bucket.step(tick(LATER))
    brought = known(finding(0), leased("bb"), closed)
    (told,) = bucket.alerts(repaired(0, closed, "cc") | {"alert": json.dumps(brought)})
    assert told["alert_id"] != closed["alert_id"]
    assert (told["revision"], told["activity"], told["entity_value"]) == (1, "create", "cc")


def test_two_sites_with_one_address_have_each_its_own_alert() -> None:
    bucket = Bucket()
    nobody = {"status": "none"}
    north, south = finding(0, nobody, scope="north"), finding(1, nobody, scope="south", uid="s")
    rows = {row["body"]["dedup_key"].split("|")[2]: row for row in bucket.alerts(north, south)}
    later = finding(1, nobody, scope="south", uid="late")
    spanning = json.loads(json.dumps(body(rows["north"])))
    spanning["window_end"] = body(rows["south"])["window_end"]
    row = {"event_time": later["event_time"], "was": {"holder": nobody}}
    for bodies in ([spanning, body(rows["south"])], [body(rows["south"]), spanning]):
        held = counting(bodies, later, row, SETTINGS)
        assert held is not None
        assert held["alert_id"] == rows["south"]["alert_id"]
    assert counting([spanning], later, row, SETTINGS) is None
