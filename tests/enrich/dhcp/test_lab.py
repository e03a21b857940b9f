"""The lab: what real DHCP servers wrote, against what the clients did and noted.

Taking each address's last lease, without time, is right for a third of these actions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from enrich.attribution.asof_join import flatten
from enrich.dhcp.lease_rules import LEASE_ACTIVITIES, SECOND_US, LeaseEvent, Segment, replay
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from ingest import parse

LAB = Path(__file__).parents[3] / "samples" / "lab"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LIMITS = TrackerLimits(late_us=600 * SECOND_US, max_lease_us=86400 * SECOND_US)

# folder, log, source, whose truth, seconds of a lease
LOGS = {
    "dhcpd, RFC 3164": ("dhcpd", "syslog_rfc3164.log", "isc_dhcpd", "dhcpd", 45),
    "dhcpd, RFC 5424": ("dhcpd", "syslog_rfc5424.log", "isc_dhcpd", "dhcpd", 45),
    "kea": ("kea", "kea-dhcp4.log", "kea_dhcp4", "kea", 45),
    "dnsmasq, RFC 3164": ("dnsmasq", "syslog_rfc3164.log", "dnsmasq", "dnsmasq", 120),
    "dnsmasq, RFC 5424": ("dnsmasq", "syslog_rfc5424.log", "dnsmasq", "dnsmasq", 120),
    # This one was written from the sessions, without renewals: only its ends end a lease.
    "windows": ("windows", "DhcpSrvLog-Fri.log", "windows_dhcp", "dhcpd", 86400),
}
LEASED = [f"10.77.0.{n}" for n in range(100, 105)]
every_log = pytest.mark.parametrize("log", LOGS)


def zone_of(folder: str) -> str:
    """The zone of the times that name none."""
    zone: str = json.loads((LAB / folder / "manifest.json").read_text())["naive_tz"]
    return zone


@cache
def lines(log: str) -> tuple[LeaseEvent, ...]:
    folder, file, source, _, lease = LOGS[log]
    zone = zone_of(folder)
    found = []
    for number, raw in enumerate((LAB / folder / file).read_bytes().splitlines()):
        for event in parse(raw, source, tz=zone, now=NOW):
            if event.get("class_uid") == 4004 and event["activity_id"] in LEASE_ACTIVITIES:
                found.append(to_line(number, event, lease, trust=source == "kea_dhcp4"))
    return tuple(found)


def to_line(number: int, event: dict[str, Any], lease: int, trust: bool) -> LeaseEvent:
    client = event["src_endpoint"]
    return LeaseEvent(
        event_uid=f"{number:06}",
        scope="lab",
        ip=client["ip"],
        mac=client.get("mac"),
        hostname=client.get("hostname"),
        activity=event["activity_id"],
        time_us=event["time"] * 1000,
        received_us=event["time"] * 1000,
        lease_seconds=event.get("lease_dur") or 0 if trust else lease,
    )


def truth(log: str, kind: str) -> list[dict[str, Any]]:
    text = (LAB / LOGS[log][3] / f"truth_{kind}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def delayed(
    found: Iterable[LeaseEvent], delay: Callable[[random.Random], float]
) -> list[LeaseEvent]:
    chance = random.Random(7)
    return [
        LeaseEvent(
            e.event_uid,
            e.scope,
            e.ip,
            e.mac,
            e.hostname,
            e.activity,
            e.time_us,
            e.received_us + int(delay(chance) * SECOND_US),
            e.lease_seconds,
        )
        for e in found
    ]


ARRIVALS: dict[str, Callable[[random.Random], float]] = {
    "in order": lambda chance: 0.0,
    "shuffled by 5 s": lambda chance: chance.uniform(0, 5),
    "20 s late": lambda chance: 20.0,
    "a fifth of them 90 s late": lambda chance: 90.0 if chance.random() < 0.2 else 0.0,
}


def stream(arrived: list[LeaseEvent]) -> list[Segment]:
    """The rows of a stream of one-second batches, its state written and read each time."""
    state = TrackerBucket(LIMITS)
    said: list[Segment] = []
    rest = sorted(arrived, key=lambda e: e.received_us)
    while rest:
        until = rest[0].received_us + SECOND_US
        batch = [e for e in rest if e.received_us < until]
        rest = rest[len(batch) :]
        said += state.advance(batch, [until])
        state = decode_bucket(encode_bucket(state), LIMITS)
    return said


def holders(said: list[Segment], actions: list[dict[str, Any]]) -> list[str | None]:
    """Whose the address was at each action: the highest revision that covers the instant."""
    answers = []
    for action in actions:
        t = int(action["t"] * SECOND_US)
        over = [s for s in said if s.ip == action["ip"] and s.seg_start <= t < s.seg_end]
        best = max(over, key=lambda s: s.rev, default=None)
        answers.append(best.mac if best else None)
    return answers


@every_log
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_every_action_is_attributed_to_the_device_that_did_it(log: str, arrival: str) -> None:
    actions = truth(log, "actions")
    said = stream(delayed(lines(log), ARRIVALS[arrival]))
    assert holders(said, actions) == [action["mac"] for action in actions]
    assert not [s for s in said if s.kind == "too_late"]


@every_log
def test_every_action_is_attributed_by_the_whole_log_at_once(log: str) -> None:
    timelines = {ip: replay([e for e in lines(log) if e.ip == ip]) for ip in LEASED}
    for action in truth(log, "actions"):
        session = timelines[action["ip"]].at(int(action["t"] * SECOND_US))
        assert session is not None, action
        assert session.mac == action["mac"], action


@every_log
def test_the_stream_tells_the_sessions_of_the_whole_log(log: str) -> None:
    late = delayed(lines(log), ARRIVALS["a fifth of them 90 s late"])
    newest = {s.session_id: s for s in stream(late) if s.session_id}
    told = {
        (s.ip, s.session_id, s.session_start, s.session_end, s.ended)
        for s in newest.values()
        if s.session_end > s.session_start
    }
    addresses = {e.ip for e in late}
    timelines = [replay([e for e in late if e.ip == ip]) for ip in addresses]
    assert told == {
        (t.ip, s.session_id, s.start_us, s.end_us, s.ended) for t in timelines for s in t.sessions
    }


@every_log
def test_few_rows_say_it(log: str) -> None:
    said = stream(list(lines(log)))
    assert len(said) <= 1.5 * len(lines(log))
    revs = [s.rev for s in said]
    assert revs == sorted(set(revs))


HEARD_LATER = {("02:42:ac:77:0d:10", "10.77.0.103", 1795229436)}
"""dnsmasq granted this one 4 s before: its client did not hear the first three ACKs."""


def expected(log: str) -> list[tuple[str, str, float, float]]:
    """Sessions as a server's log can show them: (address, mac, start, end).

    A client that vanished and came back to its own running lease renewed it, as far as the
    server knows; one that vanished holds its lease until that runs out or another gets it. The
    written Windows log ends each session where the client ended it.
    """
    whole = log == "windows"
    lease = LOGS["dhcpd, RFC 3164"][4] if whole else LOGS[log][4]
    found: list[dict[str, Any]] = []
    for session in sorted(truth(log, "sessions"), key=lambda s: (s["ip"], s["start"])):
        last = found[-1] if found and not whole else None
        if (
            last is not None
            and (last["ip"], last["mac"]) == (session["ip"], session["mac"])
            and last["ended"] != "released"
            and session["start"] <= last["last_ack"] + lease + 1  # the log has whole seconds
        ):
            last.update({name: session[name] for name in ("end", "last_ack", "ended")})
        else:
            found.append(dict(session))
    for session, following in zip(found, [*found[1:], None], strict=True):
        if session["ended"] != "released" and not whole:
            end = session["last_ack"] + lease
            if following and following["ip"] == session["ip"]:
                end = min(end, following["start"])
            session["end"] = end
    return [(s["ip"], s["mac"], s["start"], s["end"]) for s in found]


@every_log
def test_sessions_are_those_the_clients_noted_to_two_seconds(log: str) -> None:
    got = [
        (ip, s.mac, s.start_us / SECOND_US, s.end_us / SECOND_US)
        for ip in sorted({e.ip for e in lines(log)})
        for s in replay([e for e in lines(log) if e.ip == ip]).sessions
    ]
    noted = expected(log)
    if log == "dhcpd, RFC 5424":  # a client came 0.3 s after its lease had run out
        assert len(got) == len(noted) + 1
        at = next(n for n, (a, b) in enumerate(zip(got, noted, strict=False)) if a[3] < b[3] - 2)
        (ip, mac, start, _), (*_, end) = got[at : at + 2]
        got[at : at + 2] = [(ip, mac, start, end)]
    assert [session[:2] for session in got] == [session[:2] for session in noted]
    for mine, theirs in zip(got, noted, strict=True):
        heard_later = (theirs[1], theirs[0], int(theirs[2])) in HEARD_LATER
        assert mine[2] == pytest.approx(theirs[2], abs=5 if heard_later else 2), theirs
        assert mine[3] == pytest.approx(theirs[3], abs=2), theirs


@every_log
def test_the_as_of_search_finds_the_same_holders(log: str) -> None:
    import numpy as np

    actions = truth(log, "actions")
    said = [s for s in stream(list(lines(log))) if s.seg_end > s.seg_start]
    for ip in {s.ip for s in said}:
        mine = [s for s in said if s.ip == ip]
        columns = [
            np.array([getattr(s, name) for s in mine]) for name in ("seg_start", "seg_end", "rev")
        ]
        starts, ends, who = flatten(*columns)
        for action in (a for a in actions if a["ip"] == ip):
            t = int(action["t"] * SECOND_US)
            n = int(np.searchsorted(starts, t, side="right")) - 1
            assert t < ends[n]
            assert mine[who[n]].mac == action["mac"]
