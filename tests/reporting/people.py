"""Two people and two devices in every layer of a lake, for erasures of one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from alerts.delivery.webhook_queue import Queue, enqueue, queue_file
from infra.delta.catalog import table
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row
from reporting.erasure.request import ErasureRequest
from reporting.erasure.run import Waiting, wait_for_jobs

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
MAC, OTHER_MAC = "aa:bb:cc:dd:ee:01", "aa:bb:cc:dd:ee:02"
ANNA = ErasureRequest("user", "Anna", reason="request 17")
TITLE = "Many failed logins of anna"
BODY: dict[str, Any] = {
    "alert_id": "a1",
    "revision": 1,
    "title": TITLE,
    "rule": {"id": "r"},
    "entity": {"type": "user", "value": "CORP\\anna"},
}


def add(lake: Lake, name: str, *rows: dict[str, Any]) -> None:
    lake.add(table(name), rows, "test")


def event(uid: str, user: str, mac: str) -> dict[str, Any]:
    return {
        "event_uid": f"{uid}:0",
        "record_ids": [uid],
        "source": "sshd",
        "time": AT,
        "received_at": AT,
        "user_name": user,
        "mac": mac,
        "user": {"name": user, "groups": ["staff"]},
        "message": f"login of {user}",
    }


def person(uid: str, **said: Any) -> dict[str, Any]:
    origin = {"inventory": "hr", "valid_from": AT, "loaded_at": AT, "file": "u", "line": 1}
    return {"user_id": uid, "gone": False, **origin, **said}


def tell_of_people(lake: Lake) -> None:
    """Two people, two devices, in every layer; one record names anna in no readable form."""
    raw = {"r1": b"sshd: anna from 10.0.0.1", "r2": b"sshd: bob", "r3": b"\x1f\x8b\x00packed"}
    record = {"source": "sshd", "mode": "live", "received_at": AT}
    add(lake, "bronze.record", *({**record, "record_id": n, "raw": raw[n]} for n in raw))
    add(lake, "silver.event", event("r1", "anna", MAC), event("r2", "bob", OTHER_MAC))
    add(lake, "silver.event", event("r3", "CORP\\Anna", MAC))
    add(
        lake,
        "silver.user_version",
        person("7", name="anna", full_name="Anna Smith", aliases=["corp\\anna"]),
        person("8", name="bob", full_name="Bob Smith", aliases=[]),
    )
    add(
        lake,
        "silver.dhcp_segment",
        {"ip": "10.0.0.1", "mac": MAC, "hostname": "annas-mac", "kind": "lease", "rev": 1},
        {"ip": "10.0.0.2", "mac": OTHER_MAC, "hostname": "pc2", "kind": "lease", "rev": 1},
    )
    add(
        lake,
        "gold.finding",
        {"finding_id": "f1", "event_uid": "r1:0", "snippet": "a login", "fields": {"user": "anna"}},
        {"finding_id": "f2", "event_uid": "r2:0", "snippet": "a login", "fields": {"user": "bob"}},
    )
    add(
        lake,
        "gold.attribution",
        {"finding_id": "f1", "holder": {"mac": MAC, "evidence": ["r1:0"]}},
        {"finding_id": "f2", "holder": {"mac": OTHER_MAC}},
    )
    first = {"revision": 1, "activity": "create", "sequence": 1}
    of_bob = json.dumps(BODY | {"alert_id": "a2", "title": "bob", "entity": None})
    add(lake, "gold.alert", {**first, "alert_id": "a1", "body": json.dumps(BODY)})
    add(lake, "gold.alert", {**first, "alert_id": "a2", "body": of_bob})
    add(lake, "ops.audit", {"at": AT, "who": "cli", "detail": '{"sql": "... = \'ANNA\'"}'})
    put_row(lake.spool / "audit", "x", {"at": AT.isoformat(), "target": "user anna"})
    queue = Queue(queue_file(lake.settings))
    enqueue(queue._db, ["pager"], ("a1", 1), TITLE, json.dumps(BODY).encode(), 0.0)
    queue.close()


def quiet(line: str) -> None:
    """Nobody watches."""


def meanwhile(work: Callable[[], None]) -> Waiting:
    """Waits for jobs that are behind, and once does some work, before the tables are gone through
    again."""
    left = [work]

    def wait(lake: Lake, seconds: float, tell: Callable[[str], None]) -> dict[str, list[str]]:
        behind = wait_for_jobs(lake, seconds, tell)
        while left:
            left.pop()()
        return behind

    return wait
