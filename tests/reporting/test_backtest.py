"""A backtest finds over history what the live job would have found."""

from __future__ import annotations

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.matching.event_rows import brute_force
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from reporting.backtest import backtest
from reporting.interval import parse_interval
from tests.api.story import EVENTS, event, insert

FAILED = {
    "src_ip": "10.0.0.1",
    "src_endpoint": {"ip": "10.0.0.1"},
    "user_name": "root",
    "user": {"name": "root"},
    "activity_id": 1,
    "status_id": 2,
    "service": {"name": "sshd"},
}


def test_a_backtest_finds_what_plain_evaluation_finds_in_the_interval_alone(lake: Lake) -> None:
    pack = compile_rules([BUNDLED]).pack
    rows = [event(f"l{n}", f"12:0{n}", **FAILED) for n in range(3)]
    imported = event("old", "12:04", **FAILED) | {"mode": "import"}
    insert(lake, EVENT, [*EVENTS, *rows, imported, event("after", "14:00", **FAILED)])
    interval = parse_interval("2026-11-20T12:00/2026-11-20T13:30")

    found = {(r["rule_id"], r["event_uid"]) for r in backtest(lake, pack, interval).collect()}

    every = [row.asDict(recursive=True) for row in lake.read(EVENT).collect()]
    expected = brute_force(pack, every, ("live", "replay", "import"))
    assert "after:0" in {uid for _, uid in expected}
    assert found == {pair for pair in expected if pair[1] != "after:0"}
    assert {uid for _, uid in found} >= {"l0:0", "l1:0", "l2:0", "old:0"}
    assert "after:0" not in {uid for _, uid in found}
