"""Changing alerts over REST: what is asked for becomes a revision, and nobody is overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.desk import TOKEN, Desk, alert_of, audited
from tests.api.test_app import problem

pytestmark = pytest.mark.full

ANN, VIC = "ann-s-own-token", "vic-s-own-token"


@pytest.fixture(scope="module")
def desk(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """Alerts a1 to a9, each about a device of its own."""
    home = tmp_path_factory.mktemp("desk")
    shutil.copytree(empty_tables, home / "lake")
    keys = []
    for name, role, token in (("ann", "analyst", ANN), ("vic", "viewer", VIC)):
        file = home / f"{name}.token"
        file.write_text(token)
        file.chmod(0o600)
        keys.append({"name": name, "role": role, "token_file": file})
    running = Desk(Lake(spark, load(home=home, api={"token": TOKEN, "keys": keys})))
    running.batch(*[alert_of(f"02:00:00:00:00:0{n}", n) for n in range(1, 10)])
    yield running
    running.app.state.services.close()


@pytest.fixture
def ann(desk: Desk) -> TestClient:
    return desk.client(ANN)


def ids(desk: Desk, *numbers: int) -> list[str]:
    items = desk.client().get("/api/v1/alerts", params={"limit": 500}).json()["items"]
    by_device = {item["entity"]["value"]: item["alert_id"] for item in items}
    return [by_device[f"02:00:00:00:00:0{n}"] for n in numbers]


def change(client: TestClient, alert_id: str, etag: str, **fields: Any) -> Any:
    return client.patch(f"/api/v1/alerts/{alert_id}", json=fields, headers={"If-Match": etag})


def test_a_change_waits_for_the_job_and_is_a_revision_then(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 1)
    asked = {"status": "closed", "verdict": "false_positive", "assignee": "me", "note": "a scanner"}
    answered = change(ann, name, desk.etag(name), **asked)
    assert answered.status_code == 200, answered.text
    told = answered.json()
    assert [(one["action"], one["value"]) for one in told["requests"]] == [
        ("assign", "ann"),
        ("close", "false_positive"),
    ]
    assert told["standing"] == {"status": "closed", "assignee": "ann", "verdict": "false_positive"}
    assert told["visible"]["driver_runs"] is False
    assert "no driver runs job alert" in told["visible"]["when"]
    assert desk.body(name)["state"] == "open"
    assert told["etag"] == answered.headers["etag"] == desk.etag(name) == '"1.2"'

    (revision,) = desk.batch()
    body = desk.body(name)
    assert (revision["activity"], revision["reason"]) == ("close", "closed")
    assert (body["state"], body["assignee"], body["verdict"]) == ("closed", "ann", "false_positive")
    assert (body["comment"], body["changed_by"]) == ("a scanner", "ann")
    assert desk.etag(name) == '"2"'
    acts = [row for row in audited(desk.lake.settings) if row["target"] == name]
    assert [(row["who"], row["act"]) for row in acts] == [
        ("ann", "alert.assign"),
        ("ann", "alert.close"),
    ]


def test_two_analysts_on_one_alert_overwrite_nothing_and_the_second_is_told_who_did_what(
    desk: Desk, ann: TestClient
) -> None:
    (name,) = ids(desk, 2)
    etag = desk.etag(name)
    assert change(ann, name, etag, status="closed", verdict="benign").status_code == 200
    second = change(desk.client(), name, etag, status="closed", verdict="true_positive")
    detail = problem(second, 412)["detail"]
    assert "ann closed it as benign at 20" in detail
    assert second.headers["etag"] == desk.etag(name) == '"1.1"'
    desk.batch()
    # The same is told once the request has become a revision.
    later = change(desk.client(), name, etag, verdict="true_positive")
    assert "ann closed it as benign at 20" in problem(later, 412)["detail"]
    assert change(desk.client(), name, desk.etag(name), verdict="true_positive").status_code == 200
    desk.batch()
    assert desk.body(name)["verdict"] == "true_positive"


def test_a_revision_that_nobody_asked_for_is_told_as_the_job_s(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 3)
    etag = desk.etag(name)
    desk.batch(alert_of("02:00:00:00:00:03", 400))
    detail = problem(change(ann, name, etag, status="closed"), 412)["detail"]
    assert "job alert made revision 2 (count)" in detail
    assert change(ann, name, "*", assignee="me").status_code == 200


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({}, {"status": "closed"}, 428, "send If-Match"),
        ({"If-Match": "rubbish"}, {"status": "closed"}, 422, "is no ETag of an alert"),
        ({"If-Match": "*"}, {}, 422, "nothing to change"),
        ({"If-Match": "*"}, {"status": None}, 422, "nothing to change"),
        ({"If-Match": "*"}, {"verdict": "banana"}, 422, "body.verdict"),
        ({"If-Match": "*"}, {"status": "shut"}, 422, "body.status"),
        ({"If-Match": "*"}, {"asignee": "bob"}, 422, "body.asignee"),
        ({"If-Match": "*"}, {"assignee": "b\u0000b"}, 422, "printable"),
        ({"If-Match": "*"}, {"note": "x" * 10_001}, 422, "body.note"),
    ],
)
def test_a_change_that_cannot_be_says_why(
    desk: Desk, ann: TestClient, headers: dict[str, str], body: dict[str, Any], status: int,
    said: str,
) -> None:  # fmt: skip
    (name,) = ids(desk, 4)
    answered = ann.patch(f"/api/v1/alerts/{name}", json=body, headers=headers)
    assert said in problem(answered, status)["detail"]


def test_an_id_may_be_shortened_where_it_is_unique(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 4)
    assert ann.get(f"/api/v1/alerts/{name[:12]}").json()["alert"]["alert_id"] == name
    assert change(ann, name[:12], "*", assignee="bob").json()["alert_id"] == name
    for absent in ("zzzz", name[:3], "no%20such"):
        assert "no alert" in problem(ann.get(f"/api/v1/alerts/{absent}"), 404)["detail"]
    assert "no alert" in problem(change(ann, "zzzz", "*", status="closed"), 404)["detail"]


def test_who_may_only_look_changes_nothing(desk: Desk) -> None:
    (name,) = ids(desk, 4)
    viewer = desk.client(VIC)
    assert viewer.get(f"/api/v1/alerts/{name}").status_code == 200
    detail = problem(change(viewer, name, "*", status="closed"), 403)["detail"]
    assert detail == "key 'vic' has role 'viewer'; this needs 'analyst'"
    plan = {"ids": [name], "change": {"status": "closed"}}
    assert viewer.post("/api/v1/alerts/bulk/preview", json=plan).status_code == 403
    assert viewer.post(f"/api/v1/alerts/{name}/notes", json={"text": "x"}).status_code == 403


def test_many_are_changed_as_they_were_counted_and_an_act_can_be_undone(
    desk: Desk, ann: TestClient
) -> None:
    names = ids(desk, 5, 6, 7)
    plan = {"ids": names, "change": {"status": "closed", "verdict": "test", "note": "a drill"}}
    counted = ann.post("/api/v1/alerts/bulk/preview", json=plan).json()
    assert (counted["alerts"], counted["unchanged"], counted["refused"]) == (3, 0, 0)
    assert counted["by_level"] == [{"value": "high", "alerts": 3}]
    wrong = ann.post("/api/v1/alerts/bulk", json={"token": counted["token"], "alerts": 30})
    assert "30 are named, 3 were counted" in problem(wrong, 422)["detail"]
    foreign = desk.client().post(
        "/api/v1/alerts/bulk", json={"token": counted["token"], "alerts": 3}
    )
    assert problem(foreign, 404)["detail"].startswith("token:")

    # Somebody takes one of them meanwhile: that one is left as it is, and named.
    assert change(desk.client(), names[0], "*", assignee="bob").status_code == 200
    act = {"token": counted["token"], "alerts": 3}
    done = ann.post("/api/v1/alerts/bulk", json=act).json()
    assert (done["alerts"], done["skipped"], done["requests"]) == (2, [names[0]], 2)
    assert problem(ann.post("/api/v1/alerts/bulk", json=act), 404)["detail"].startswith("token:")
    desk.batch()
    assert [desk.body(name)["state"] for name in names] == ["open", "closed", "closed"]

    assert change(desk.client(), names[1], "*", verdict="benign").status_code == 200
    undone = ann.post(f"/api/v1/acts/{done['act_id']}/undo").json()
    assert (undone["alerts"], undone["skipped"]) == (1, [names[1]])
    twice = ann.post(f"/api/v1/acts/{done['act_id']}/undo")
    assert "was undone already" in problem(twice, 409)["detail"]
    desk.batch()
    bodies = [desk.body(name) for name in names]
    assert [body["state"] for body in bodies] == ["open", "closed", "open"]
    assert (bodies[2]["verdict"], bodies[1]["verdict"]) == (None, "benign")
    listed = {act["act_id"]: act for act in ann.get("/api/v1/acts").json()["items"]}
    assert listed[done["act_id"]]["undone_by"] == undone["act_id"]
    assert listed[undone["act_id"]]["undoes"] == done["act_id"]
    assert listed[done["act_id"]]["change"]["note"] == "a drill"


def test_a_filter_selects_what_a_list_with_it_shows(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 8)
    assert change(ann, name, "*", assignee="carol", verdict="suspicious").status_code == 200
    desk.batch()
    for query in (
        {"assignee": "carol"},
        {"verdict": "suspicious"},
        {"q": "00:08 "[:-1], "status": "open", "assignee": "CAROL"},
        {"entity": "02:00:00:00:00:08"},
        {"host": "HOST-02:00:00:00:00:08", "ip": "10.0.0.5", "user": "root", "tag": "t1110"},
        {"rule": "guessing", "verdict": "suspicious", "since": "2025-03-01", "until": "now"},
    ):
        items = ann.get("/api/v1/alerts", params=query).json()["items"]
        assert [item["alert_id"] for item in items] == [name], query
        chosen = {k: v for k, v in query.items() if k not in ("host", "ip", "user", "tag")}
        if chosen:
            plan = {"filter": chosen, "change": {"status": "closed"}}
            counted = ann.post("/api/v1/alerts/bulk/preview", json=plan).json()
            assert counted["sample"] == [name], counted
    everything = {"filter": {}, "change": {"status": "closed"}}
    refused = ann.post("/api/v1/alerts/bulk/preview", json=everything)
    assert "selects every alert" in problem(refused, 422)["detail"]
    both = {"ids": [name], "filter": {"q": "x"}, "change": {"status": "closed"}}
    answered = ann.post("/api/v1/alerts/bulk/preview", json=both)
    assert "ids or filter" in problem(answered, 422)["detail"]


def test_notes_are_listed_in_order_also_while_they_wait(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 9)
    path = f"/api/v1/alerts/{name}/notes"
    left = ann.post(path, json={"text": "asked the owner"})
    assert left.status_code == 201
    assert left.json()["note"]["waiting"] is True
    desk.batch()
    assert desk.body(name)["comment"] == "asked the owner"
    assert change(ann, name, "*", verdict="benign", note="it is his").status_code == 200
    notes = ann.get(path).json()["items"]
    assert [(n["text"], n["action"], n["waiting"], n["who"]) for n in notes] == [
        ("asked the owner", "note", False, "ann"),
        ("it is his", "verdict", True, "ann"),
    ]
    assert desk.body(name)["lifecycle"] == "new", "a note alone judges nothing"


def test_a_reopened_alert_has_no_verdict(desk: Desk, ann: TestClient) -> None:
    (name,) = ids(desk, 9)
    assert change(ann, name, "*", status="closed", verdict="benign").status_code == 200
    assert change(ann, name, "*", status="open").json()["standing"]["verdict"] is None
    desk.batch()
    assert (desk.body(name)["state"], desk.body(name)["verdict"]) == ("open", None)
