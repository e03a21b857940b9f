"""The streaming job itself: random histories, cuts and restarts; and the labs, live."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from alerts.tables import FINDING
from enrich.attribution.stream_join import correct
from enrich.dhcp.lease_rules import (
    ACK,
    DECLINE,
    EXPIRE,
    INFORM,
    LEASE_ACTIVITIES,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    LeaseEvent,
    Timeline,
    replay,
)
from enrich.dhcp.sessions_job import sessions
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import JobSettings, load
from infra.streaming.lake import Lake
from ingest.parsing.source import ParseSettings
from ingest.tables import EVENT
from tests.enrich.attribution.attributed import attribute
from tests.enrich.dhcp.test_lab import LOGS, truth, zone_of
from tests.enrich.rows import START, A, B, detected, dhcp, finding, finished, put
from tests.ingest.logs import lines as sample
from tests.ingest.logs import rows as parsed

LATE_SECONDS = 120
JOBS = {"allowed_lateness_seconds": LATE_SECONDS, "max_lease_seconds": 300, "session_buckets": 3}
SITES, IPS = ("default", "branch"), ("10.0.0.1", "10.0.0.2", "2001:db8::5")
WEIGHTS = {
    ACK: 10,
    RELEASE: 3,
    REQUEST: 3,
    OFFER: 2,
    DECLINE: 1,
    NAK: 1,
    INFORM: 1,
    EXPIRE: 1,
}
Row = dict[str, Any]


def chance() -> random.Random:
    """Another history each time; SOAK_SEED repeats one."""
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SOAK_SEED={seed}")
    return random.Random(seed)


def history(dice: random.Random, size: int, seconds: int) -> list[Row]:
    """DHCP lines of a few addresses, each up to `LATE_SECONDS` late."""
    found = []
    for number in range(size):
        activity = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        late = dice.choice((0.0, dice.uniform(0, 5), dice.uniform(0, LATE_SECONDS - 2)))
        found.append(
            dhcp(
                dice.randrange(seconds),
                dice.choice((A, B, "02:00:00:00:00:0c")),
                activity,
                dice.choice((5, 40, 200, 1000)),
                dice.choice(IPS),
                late,
                event_uid=f"{number:05}",
                scope=dice.choice(SITES),
                host_name=dice.choice(("dhcp1", "dhcp2")),
                metadata={"product": {"name": "dnsmasq"}},
            )
        )
    return found


def micros(row: Row, name: str) -> int:
    return (row[name] - START) // timedelta(microseconds=1)


def expected(rows: list[Row]) -> dict[tuple[str, str], Timeline]:
    """What the rules say of the whole history at once, times from `START` on."""
    lines: dict[tuple[str, str], list[LeaseEvent]] = {}
    for row in rows:
        key = (row["scope"], row["src_ip"])
        talk = row["activity_id"] in (OFFER, REQUEST, INFORM)
        if talk and ":" in row["src_ip"]:
            continue
        lines.setdefault(key, []).append(
            LeaseEvent(
                row["event_uid"],
                *key,
                row["mac"],
                None,
                row["activity_id"],
                micros(row, "time"),
                micros(row, "received_at"),
                JOBS["max_lease_seconds"] if row["lease_dur"] is None else row["lease_dur"],
                row["host_name"],
            )
        )
    return {key: replay(found) for key, found in lines.items()}


def told(lake: Lake) -> list[Row]:
    rows = lake.read(DHCP_SEGMENT).where("kind <> 'heartbeat'").collect()
    return [row.asDict(recursive=True) for row in rows]


def since(value: Any) -> int:
    """A time of a row, in microseconds from `START` on."""
    return int((value.replace(tzinfo=UTC) - START) // timedelta(microseconds=1))


@pytest.mark.soak
@pytest.mark.parametrize("nth", range(int(os.environ.get("SOAK_ROUNDS", "5"))))
def test_any_history_however_cut_and_restarted_tells_what_the_whole_log_tells(
    lake: Lake, tmp_path: Path, nth: int
) -> None:
    dice = chance()
    lake = Lake(lake.spark, load(home=tmp_path, jobs=JOBS))
    rows = history(dice, size=dice.randrange(20, 250), seconds=900)
    rest = sorted(rows, key=lambda row: (row["received_at"], row["event_uid"]))
    while rest:
        size = dice.randrange(1, len(rest) + 1)
        batch, rest = rest[:size], rest[size:]
        put(lake, EVENT, dice.sample(batch, len(batch)))
        put(lake, EVENT, [finished((batch[-1]["received_at"] - START).total_seconds())])
        if dice.random() < 0.6:
            sessions(lake, once=True).wait()
    for second in range(1100, 2700, 150):
        put(lake, EVENT, [finished(second)])
    sessions(lake, once=True).wait()
    rows_told = told(lake)
    assert not [row for row in rows_told if row["kind"] == "too_late"]
    keys = [(row["scope"], row["ip"], row["rev"]) for row in rows_told]
    assert len(set(keys)) == len(keys)
    for key, timeline in expected(rows).items():
        mine = [row for row in rows_told if (row["scope"], row["ip"]) == key]
        compare(mine, timeline)


def compare(rows: list[Row], timeline: Timeline) -> None:
    """Rows of one address against its timeline, at every edge and beside it."""
    spans = [(since(r["seg_start"]), since(r["seg_end"]), r["rev"], r) for r in rows]
    edges = {edge for start, end, *_ in spans for edge in (start, end)}
    edges |= {edge for s in timeline.sessions for edge in (s.start_us, s.end_us)}
    for time_us in sorted({t + n for t in edges for n in (-1, 0, 1)}):
        over = [span for span in spans if span[0] <= time_us < span[1]]
        best = max(over, key=lambda span: span[2])[3] if over else {"mac": None}
        session = timeline.at(time_us)
        assert best["mac"] == (session.mac if session else None), time_us
    newest = {r["session_id"]: r for *_, r in sorted(spans, key=lambda s: s[2]) if r["session_id"]}
    assert sorted(
        (since(r["session_start"]), since(r["session_end"]), r["evidence"]["ended"])
        for r in newest.values()
        if r["session_end"] > r["session_start"]
    ) == [(s.start_us, s.end_us, s.ended) for s in timeline.sessions]


# -- the labs, live ---------------------------------------------------------------------------

Delay = Callable[[random.Random], float]
PROMPT: Delay = lambda dice: 0.0  # noqa: E731 - a table of delays reads best
ARRIVALS: dict[str, tuple[Delay, Delay]] = {
    "in order": (PROMPT, PROMPT),
    "both shuffled by 5 s": (lambda d: d.uniform(0, 5), lambda d: d.uniform(0, 5)),
    "DHCP 20 s late": (lambda d: 20.0, PROMPT),
    "events 20 s late": (PROMPT, lambda d: 20.0),
    "a fifth of DHCP 90 s late": (lambda d: 90.0 if d.random() < 0.2 else 0.0, PROMPT),
}
LABS = ("dhcpd, RFC 5424", "kea", "dnsmasq, RFC 5424")


def lab_lines(dice: random.Random, delay: Delay) -> list[Row]:
    """The DHCP lines of all three labs, each lab a site, some delayed."""
    found = []
    for log in LABS:
        folder, file, source, _, lease = LOGS[log]
        known = ParseSettings(
            zones={source: zone_of(folder)}, leases={source: lease}, scopes=((folder, ()),)
        )
        read = parsed(source, *sample(f"lab/{folder}/{file}"), settings=known)
        for number, row in enumerate(read):
            if row["class_uid"] == 4004 and row["activity_id"] in LEASE_ACTIVITIES:
                late = timedelta(seconds=delay(dice))
                uid = f"{folder}/{number:06}"
                found.append(row | {"event_uid": uid, "received_at": row["time"] + late})
    return found


def lab_actions(dice: random.Random, delay: Delay) -> tuple[list[Row], dict[str, str]]:
    """What the clients did as findings, and who did it."""
    found, who = [], {}
    for log in LABS:
        for number, action in enumerate(truth(log, "actions")):
            second, uid = action["t"] - START.timestamp(), f"{LOGS[log][0]}/{number}"
            found.append(
                finding(second, action["ip"], delay(dice), finding_id=uid, scope=LOGS[log][0])
            )
            who[uid] = action["mac"]
    return found, who


@pytest.mark.soak
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_each_action_of_the_labs_goes_to_its_device_live(
    lake: Lake, tmp_path: Path, arrival: str
) -> None:
    dice, jobs = random.Random(7), JobSettings(correct_seconds=600)
    rows = lab_lines(dice, ARRIVALS[arrival][0])
    findings, who = lab_actions(dice, ARRIVALS[arrival][1])
    arrived = sorted(r["received_at"] for r in (*rows, *findings))
    newest: dict[str, tuple[int, str | None]] = {}

    def learn(batch: DataFrame, _: int) -> None:
        for row in batch.where("holder IS NOT NULL").collect():
            rev = row["rev"] if "rev" in row else row["attr_rev"]
            held = (rev, row["holder"]["mac"])
            newest[row["finding_id"]] = max(newest.get(row["finding_id"], (-2, None)), held)

    def join(how: Callable[..., DataFrame]) -> None:
        joined = how(lake.stream(FINDING), lake.stream(DHCP_SEGMENT), jobs)
        joined.writeStream.foreachBatch(learn).option(
            "checkpointLocation", str(tmp_path / how.__name__)
        ).trigger(availableNow=True).start().awaitTermination(200)

    steps = [arrived[len(arrived) * n // 4 - 1] for n in (1, 2, 3, 4)]
    before = min(arrived) - timedelta(seconds=1)
    for until in [*steps, steps[-1] + timedelta(seconds=700)]:
        second = (until - START).total_seconds()
        new = [r for r in rows if before < r["received_at"] <= until]
        put(lake, EVENT, [*new, finished(second)])
        sessions(lake, once=True).wait()
        put(lake, FINDING, [f for f in findings if before < f["received_at"] <= until])
        put(lake, FINDING, [detected(second)])
        join(attribute)
        join(correct)
        before = until
    assert len(who) > 1000
    assert {uid: mac for uid, (_, mac) in newest.items() if uid in who} == who
