"""State by bucket: late lines, cuts, pieces, what is forgotten, and the blob."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp.lease_rules import (
    ACK,
    DECLINE,
    NAK,
    RELEASE,
    SECOND_US,
    LeaseEvent,
    Segment,
    replay,
)
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits, diff
from infra.errors import Fatal
from tests.lines_run import lines_run

START = 1_795_228_800
LIMITS = TrackerLimits(late_us=60 * SECOND_US, max_lease_us=3600 * SECOND_US)
MACS = ["02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"]
IPS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def us(second: float) -> int:
    return int((START + second) * SECOND_US)


def line(
    second: float,
    mac: str = MACS[0],
    activity: int = ACK,
    lease: int = 30,
    late: float = 0.0,
    ip: str = IPS[0],
    uid: str | None = None,
) -> LeaseEvent:
    uid = uid or f"{ip}/{second}/{mac}/{activity}"
    times = (us(second), us(second + late))
    return LeaseEvent(uid, "site", ip, mac, None, activity, *times, lease)


lines_with_delays = st.lists(
    st.builds(
        line,
        second=st.integers(0, 150),
        mac=st.sampled_from(MACS),
        activity=st.sampled_from([ACK, ACK, ACK, RELEASE, DECLINE, NAK]),
        lease=st.sampled_from([5, 30, 100]),
        late=st.floats(0, 55),
        ip=st.sampled_from(IPS),
        uid=st.uuids().map(str),
    ),
    max_size=25,
)


def cut(lines: list[LeaseEvent], sizes: Iterable[int]) -> list[list[LeaseEvent]]:
    """Batches in order of arrival, sizes as given, the rest in one."""
    rest = sorted(lines, key=lambda e: (e.received_us, e.event_uid))
    batches = []
    for size in sizes:
        batches.append(rest[:size])
        rest = rest[size:]
    return [*batches, rest]


def run(batches: list[list[LeaseEvent]], restart: bool = True) -> list[Segment]:
    """All rows; between batches the state goes through its blob, as in Spark."""
    said: list[Segment] = []
    state = TrackerBucket(LIMITS)
    for batch in batches:
        said += state.advance(batch, [max(e.received_us for e in batch)] if batch else [])
        if restart:
            state = decode_bucket(encode_bucket(state), LIMITS)
    return said


TIMES = [us(n / 2) for n in range(600)]


def overlay(segments: list[Segment]) -> dict[str, list[tuple[str | None, str | None] | None]]:
    """Who holds each address at each instant, painted the naive way."""
    answers: dict[str, list[tuple[str | None, str | None] | None]] = {}
    for ip in IPS:
        mine = sorted((s for s in segments if s.ip == ip), key=lambda s: s.rev)
        canvas: list[tuple[str | None, str | None] | None] = [None] * len(TIMES)
        for row in mine:
            holder = (row.mac, row.session_id) if row.mac else None
            for n, time_us in enumerate(TIMES):
                if row.seg_start <= time_us < row.seg_end:
                    canvas[n] = holder
        answers[ip] = canvas
    return answers


def truth(lines: list[LeaseEvent]) -> dict[str, list[tuple[str | None, str | None] | None]]:
    """The same from the whole log at once."""
    answers = {}
    for ip in IPS:
        timeline = replay([e for e in lines if e.ip == ip])
        found = [timeline.at(t) for t in TIMES]
        answers[ip] = [None if s is None else (s.mac, s.session_id) for s in found]
    return answers


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=6))
def test_what_is_painted_equals_the_whole_log_at_once(lines, sizes) -> None:
    assert overlay(run(cut(lines, sizes))) == truth(lines)


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=4))
def test_addresses_do_not_meet(lines, sizes) -> None:
    alone = [s for ip in IPS for s in run(cut([e for e in lines if e.ip == ip], sizes))]
    assert overlay(alone) == overlay(run(cut(lines, [])))


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=4))
def test_a_retry_and_a_restart_give_the_same_rows(lines, sizes) -> None:
    batches = cut(lines, sizes)
    assert run(batches, restart=True) == run(batches, restart=False)
    shuffled = [list(reversed(batch)) for batch in batches]
    assert run(shuffled) == run(batches)


@given(lines_with_delays, st.lists(st.integers(0, 6), max_size=6))
def test_time_and_revisions_never_run_back(lines, sizes) -> None:
    said = run(cut(lines, sizes))
    assert [s.known_at for s in said] == sorted(s.known_at for s in said)
    assert [s.rev for s in said] == sorted({s.rev for s in said})
    assert all(s.rev >= s.known_at for s in said)


@given(lines_with_delays)
def test_the_sessions_told_are_those_of_the_log(lines) -> None:
    newest = {s.session_id: s for s in run(cut(lines, [5, 5, 5])) if s.session_id}
    told = {
        (s.ip, uid, s.session_start, s.session_end, s.ended)
        for uid, s in newest.items()
        if s.session_end > s.session_start
    }
    timelines = [replay([e for e in lines if e.ip == ip], ip=ip) for ip in IPS]
    assert told == {
        (t.ip, s.session_id, s.start_us, s.end_us, s.ended) for t in timelines for s in t.sessions
    }


def test_the_same_line_twice_says_nothing_new() -> None:
    state = TrackerBucket(LIMITS)
    assert len(state.advance([line(0), line(0)])) == 1
    assert state.advance([line(0)]) == []


def test_a_line_later_than_allowed_is_named_and_changes_nothing() -> None:
    # arrival   0 ........ 100
    # time      0   30       the release at 30 comes at 100, 60 s are allowed
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0, lease=200), line(100, ip=IPS[1])], [us(100)])
    before = encode_bucket(state)
    late = state.advance([line(30, activity=RELEASE, late=70)])
    assert [(s.kind, s.event_uids, s.seg_end - s.seg_start, s.session_id) for s in late] == [
        ("too_late", (f"{IPS[0]}/30/{MACS[0]}/{RELEASE}",), 0, None)
    ]
    assert decode_bucket(before, LIMITS).addresses == state.addresses
    assert late[0].rev > said[-1].rev


def test_an_address_that_changes_hands_all_the_time_costs_no_square_of_it() -> None:
    # Ten clients a second for ten minutes, each taking the address over.
    changes = [line(n / 10, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(800)]

    def after(count: int) -> Callable[[], list[Segment]]:
        was, now = replay(changes[: count - 1]), replay(changes[:count])
        return lambda: diff(was, now, us(600), 1)

    assert lines_run(after(800)) < 8 * lines_run(after(200))
    rows = after(800)()
    # The lease of the last client, and a note that the one before it is over.
    taken = changes[-1].time_us
    assert [(row.kind, row.mac, row.seg_start) for row in rows] == [
        ("lease", changes[-1].mac, taken),
        ("free", None, taken),
    ]


def test_a_late_release_takes_back_what_was_said() -> None:
    # said   AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
    # then   AAAAAAAAAA....................   the release at 10 comes at 50
    state = TrackerBucket(LIMITS)
    state.advance([line(0)], [us(40)])
    (row,) = state.advance([line(10, activity=RELEASE, late=40)], [us(50)])
    assert (row.kind, row.seg_start, row.seg_end) == ("free", us(10), us(30))
    assert (row.known_at, row.learned_at) == (us(50), us(50))


def test_time_waits_for_what_ingest_has_not_finished() -> None:
    # Two partitions catch up: one is an hour ahead, ingest says it is done up to 10.
    state = TrackerBucket(LIMITS)
    ahead = state.advance([line(3600, ip=IPS[1])], [us(10)])
    behind = state.advance([line(12)], [us(14)])
    assert [s.known_at for s in (*ahead, *behind)] == [us(10), us(12)]
    assert {s.kind for s in (*ahead, *behind)} == {"lease"}


def test_a_large_batch_says_when_each_line_became_known() -> None:
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0), line(20), line(1800, ip=IPS[1])], [us(3600)])
    assert [s.known_at for s in said] == [us(0), us(20), us(1800)]


def test_a_lease_longer_than_a_segment_comes_in_pieces_as_time_goes_on() -> None:
    week = 7 * 86400
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0, lease=week)], [us(1)])
    for minute in range(0, week // 60 + 1, 7):
        known = us(minute * 60)
        said += state.advance([], [known])
        reach = max(s.seg_end for s in said)
        assert reach >= min(us(week), known + LIMITS.max_lease_us // 2)
        state = decode_bucket(encode_bucket(state), LIMITS)
    longest = max(s.seg_end - s.seg_start for s in said)
    assert longest <= LIMITS.max_lease_us
    assert {s.session_end for s in said} == {us(week)}
    assert [s.kind for s in said[2:]] == ["extend"] * len(said[2:])
    spans = sorted((s.seg_start, s.seg_end) for s in said)
    assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_a_device_that_renews_often_has_few_rows_with_a_span() -> None:
    state = TrackerBucket(LIMITS)
    said: list[Segment] = []
    renewals = range(0, 5 * 3600, 100)
    for second in renewals:
        said += state.advance([line(second, lease=3600)], [us(second)])
        assert max(s.seg_end for s in said) >= us(second) + LIMITS.max_lease_us // 2
        assert said[-1].session_end == us(second + 3600)
        state = decode_bucket(encode_bucket(state), LIMITS)
    said += state.advance([], [us(7 * 3600)])
    assert len({s.session_id for s in said}) == 1
    spans = sorted((s.seg_start, s.seg_end) for s in said if s.seg_start != s.seg_end)
    assert len(spans) < len(renewals) // 8
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert (spans[0][0], spans[-1][1]) == (us(0), us(renewals[-1] + 3600))
    assert state.addresses == {}


def test_a_long_lease_released_between_pieces_is_freed_as_far_as_it_was_said() -> None:
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0, lease=86400)], [us(1)])
    freed = state.advance([line(600, activity=RELEASE)], [us(600)])
    assert max(s.seg_end for s in freed) == max(s.seg_end for s in said)
    later = state.advance([], [us(90_000)])
    assert later == []


def test_what_is_over_is_forgotten() -> None:
    state = TrackerBucket(LIMITS)
    state.advance([line(0, lease=10), line(0, ip=IPS[1], lease=3000)], [us(1)])
    state.advance([], [us(500)])
    assert list(state.addresses) == [("site", IPS[1])]
    state.advance([], [us(4000)])
    assert state.addresses == {}


def test_revisions_grow_after_an_address_was_forgotten() -> None:
    state = TrackerBucket(LIMITS)
    first = state.advance([line(0, lease=10)], [us(500)])
    again = state.advance([line(501)], [us(501)])
    assert again[0].rev > first[-1].rev


def test_a_state_of_another_version_is_refused_by_name() -> None:
    state = TrackerBucket(LIMITS)
    state.advance([line(0)])
    blob = bytearray(encode_bucket(state))
    blob[blob.index(b"sessions") + len(b"sessions")] = 9
    with pytest.raises(Fatal, match="version 9, this release reads 1"):
        decode_bucket(bytes(blob), LIMITS)


@pytest.mark.parametrize(
    "blob", [b"", b"something else", encode_bucket(TrackerBucket(LIMITS))[:-1]]
)
def test_a_damaged_state_is_refused_by_name(blob: bytes) -> None:
    with pytest.raises(Fatal, match="job sessions: its state"):
        decode_bucket(blob, LIMITS)


@given(lines_with_delays)
def test_the_blob_holds_all_of_the_state(lines) -> None:
    state = TrackerBucket(LIMITS)
    state.advance(lines)
    again = decode_bucket(encode_bucket(state), LIMITS)
    assert encode_bucket(again) == encode_bucket(state)
    assert again.last_rev == state.last_rev
    assert {key: a.timeline() for key, a in again.addresses.items()} == {
        key: a.timeline() for key, a in state.addresses.items()
    }
