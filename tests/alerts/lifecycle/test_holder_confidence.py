"""Confidence of the holders in a batch of job `alert`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from alerts.domain.entity import micros
from alerts.lifecycle import holder_confidence
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.holder_confidence import (
    ServerWatch,
    decided_in,
    decided_servers,
    judge_holders,
)
from enrich.attribution.server_liveness import ServerLiveness
from infra.config.settings import load
from tests.enrich.rows import IP, SCOPE, A, B, at, finding


def row(second: float, mac: str | None, rev: int, **holder: Any) -> dict[str, Any]:
    """An attributed finding as the state gets it."""
    told = {"ip": IP, "scope": SCOPE, "mac": mac, "status": "leased" if mac else "none"}
    lease = {"lease_start": at(0), "lease_end": at(3600), "complete_up_to": at(0)} if mac else {}
    return finding(second, holder=told | lease | holder) | {
        "row_kind": "finding",
        "attr_rev": rev,
        "rule_id": "r",
    }


def test_a_batch_s_statements_about_one_finding_are_each_other_s_rivals() -> None:
    rows = [row(60, B, 2, lease_start=at(50)), row(60, A, 1), row(70, A, 1)]
    judge_holders(rows, micros(at(65)), ServerLiveness(), load().scopes)
    told = {(r["finding_id"], r["attr_rev"]): r["holder"] for r in rows}
    assert [rival["mac"] for rival in told["f60", 2]["rivals"]] == [A]
    assert told["f60", 1]["rivals"] == told["f70", 1]["rivals"] == []
    assert (told["f70", 1]["confidence"], told["f60", 2]["confidence"]) == (98, 93)
    assert told["f70", 1]["complete_up_to"] == at(65)


def test_a_silent_server_makes_a_batch_s_none_doubtful() -> None:
    heard = ServerLiveness.of([(SCOPE, "dhcp-1", at(-90_000))])
    rows = [row(60, None, -1, complete_up_to=at(80))]
    judge_holders(rows, 0, heard, load().scopes)
    (told,) = rows
    assert (told["holder"]["certainty"], told["holder"]["confidence"]) == ("doubtful", 35)
    assert "DHCP server dhcp-1 had said nothing since" in told["holder"]["reason"]
    assert told["holder"]["servers"] == [{"server": "dhcp-1", "last_line_at": at(-90_000)}]


def test_a_holder_that_was_judged_elsewhere_stays() -> None:
    judged = {"confidence": 12, "certainty": "doubtful", "reason": "as it was."}
    rows = [row(60, A, 1, **judged)]
    judge_holders(rows, micros(at(65)), ServerLiveness(), load().scopes)
    assert {name: rows[0]["holder"][name] for name in judged} == judged


def test_ticks_say_how_far_the_dhcp_log_is_complete_and_never_less() -> None:
    def tick(second: float) -> dict[str, Any]:
        return {"row_kind": "tick", "target": None, "event_time": at(second)}

    wait = 20_000_000
    bucket = BucketState()
    assert bucket.dhcp_known([row(1, A, 1)], wait) == 0
    assert bucket.dhcp_known([tick(100), tick(90)], wait) == micros(at(120))
    again = BucketState.decode(bucket.encode())
    assert again.dhcp_known([tick(50)], wait) == micros(at(120))


def test_what_the_driver_decided_of_a_batch_is_read_by_its_tasks(tmp_path: Path) -> None:
    file = tmp_path / "alert" / "batches" / "7.json"
    file.parent.mkdir(parents=True)
    lines = [[SCOPE, "dhcp-1", at(5).isoformat()]]
    file.write_text(json.dumps({holder_confidence.DHCP_SERVERS_DECISION: lines}))
    assert decided_servers(tmp_path).before(SCOPE, at(9)) is None, (
        "outside a batch nothing was decided"
    )
    (server,) = decided_in(file).before(SCOPE, at(9)) or ()
    assert (server.server, server.last_line_at) == ("dhcp-1", at(5))
    assert decided_in(file).before(SCOPE, at(1)) == ()
    assert decided_in(tmp_path / "none.json").before(SCOPE, at(9)) is None
    # A batch of that number again, as in a lake that was restored.
    file.write_text(json.dumps({holder_confidence.DHCP_SERVERS_DECISION: []}))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert decided_in(file).before(SCOPE, at(9)) == ()


def test_nothing_is_known_of_servers_before_the_lake_answered(tmp_path: Path) -> None:
    watch = ServerWatch(load(home=tmp_path))
    assert watch.current() is None
    watch._thread.join(20)
    assert watch.current() is None, "there is no lake here"
