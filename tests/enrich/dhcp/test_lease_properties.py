"""What must hold for any history of any addresses, however it is delivered, cut and restarted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp.lease_rules import (
    ACK,
    INFORM,
    LEASE_ACTIVITIES,
    SECOND_US,
    LeaseEvent,
    Segment,
    Timeline,
    replay,
)
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from tests.examples import examples

START = 1_795_228_800
LATE_SECONDS = 120
LIMITS = TrackerLimits(late_us=LATE_SECONDS * SECOND_US, max_lease_us=300 * SECOND_US)
MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c")
ADDRESSES = (("site", "10.0.0.1"), ("site", "10.0.0.2"), ("branch", "10.0.0.1"))
Address = tuple[str, str]


def line(
    number: int,
    second: int,
    delay: float,
    address: Address,
    mac: str | None,
    activity: int,
    lease: int,
    server: str | None,
) -> LeaseEvent:
    happened = (START + second) * SECOND_US
    arrived = happened + round(delay * SECOND_US)
    fields = (*address, mac, None, activity, happened, arrived, lease, server)
    return LeaseEvent(f"{number:04}", *fields)


one_line = st.tuples(
    st.integers(0, 900),
    st.one_of(st.just(0.0), st.floats(0, LATE_SECONDS - 2)),
    st.sampled_from(ADDRESSES),
    st.sampled_from([*MACS, *MACS, None]),
    st.sampled_from([*LEASE_ACTIVITIES, *[5] * 6]),
    st.sampled_from([0, 5, 30, 200, 1000]),
    st.sampled_from(["dhcp1", "dhcp2", None]),
)
histories = st.lists(one_line, max_size=40).map(
    lambda found: [line(number, *fields) for number, fields in enumerate(found)]
)
cuts = st.lists(st.integers(0, 12), max_size=8)


def batches(history: Iterable[LeaseEvent], sizes: Iterable[int]) -> list[list[LeaseEvent]]:
    """The lines in order of arrival, cut into batches of these sizes and the rest."""
    rest = sorted(history, key=lambda e: (e.received_us, e.event_uid))
    cut = []
    for size in sizes:
        cut.append(rest[:size])
        rest = rest[size:]
    return [*cut, rest]


def streamed(
    history: list[LeaseEvent],
    sizes: Iterable[int],
    buckets: int = 1,
    restart: bool = True,
    idle_seconds: int = 150,
) -> list[Segment]:
    """All rows of a stream, whose state goes through its blob between batches, until all is over.

    Addresses go to buckets in turn; a heartbeat reaches them all, at last every `idle_seconds`.
    """
    states = [TrackerBucket(LIMITS) for _ in range(buckets)]
    said: list[Segment] = []
    known = START * SECOND_US
    brought = [(batch, 0) for batch in batches(history, sizes)]
    for batch, idle in [*brought, *[([], idle_seconds)] * (2000 // idle_seconds + 1)]:
        known = max([known, *[e.received_us for e in batch]]) + idle * SECOND_US
        for n in range(buckets):
            mine = [e for e in batch if ADDRESSES.index((e.scope, e.ip)) % buckets == n]
            said += states[n].advance(mine, [known])
            if restart:
                states[n] = decode_bucket(encode_bucket(states[n]), LIMITS)
    return said


def timelines(history: list[LeaseEvent]) -> dict[Address, Timeline]:
    return {key: replay([e for e in history if (e.scope, e.ip) == key]) for key in ADDRESSES}


def instants(history: list[LeaseEvent]) -> list[int]:
    """Every edge that any answer can have, and the instants right before and after it."""
    edges = {START * SECOND_US}
    for timeline in timelines(history).values():
        edges |= {edge for s in timeline.sessions for edge in (s.start_us, s.end_us)}
    last = (START + 900 + 1000) * SECOND_US
    return sorted({t + n for t in edges for n in (-1, 0, 1) if t < last})


Answers = dict[Address, list[tuple[str, str] | None]]


def painted(said: list[Segment], times: list[int]) -> Answers:
    """Who holds each address at each instant: the highest revision that covers it."""
    answers: Answers = {}
    for key in ADDRESSES:
        mine = sorted((s for s in said if (s.scope, s.ip) == key), key=lambda s: s.rev)
        canvas: list[tuple[str, str] | None] = [None] * len(times)
        for row in mine:
            for n, time_us in enumerate(times):
                if row.seg_start <= time_us < row.seg_end:
                    canvas[n] = (row.mac, row.session_id) if row.mac else None
        answers[key] = canvas
    return answers


def held(history: list[LeaseEvent], times: list[int]) -> Answers:
    """The same by the rules, from the whole history at once."""
    found: Answers = {}
    for key, timeline in timelines(history).items():
        at = [timeline.at(t) for t in times]
        found[key] = [None if s is None else (s.mac, s.session_id) for s in at]
    return found


def leases(said: list[Segment]) -> set[tuple[object, ...]]:
    """The leases as the newest rows tell them."""
    newest = {(s.scope, s.ip, s.session_id): s for s in said if s.session_id}
    return {
        (*key, s.session_start, s.session_end, s.ended, s.event_uids)
        for key, s in newest.items()
        if s.session_end > s.session_start
    }


@given(histories)
@examples(200)
def test_an_address_has_one_holder_at_a_time(history) -> None:
    for timeline in timelines(history).values():
        assert all(s.start_us < s.end_us for s in timeline.sessions)
        assert all(a.end_us <= b.start_us for a, b in pairwise(timeline.sessions))


@given(histories, st.randoms(use_true_random=False))
def test_the_rules_do_not_see_the_order_they_are_given(history, chance) -> None:
    shuffled = [*history]
    chance.shuffle(shuffled)
    assert timelines(shuffled) == timelines(history)


@given(histories, cuts, st.sampled_from([150, 400, 3000]))
@examples(150)
def test_the_stream_tells_what_the_whole_log_tells(history, sizes, idle_seconds) -> None:
    times = instants(history)
    said = streamed(history, sizes, idle_seconds=idle_seconds)
    assert not [s for s in said if s.kind == "too_late"]
    assert painted(said, times) == held(history, times)
    assert leases(said) == {
        (*key, s.session_id, s.start_us, s.end_us, s.ended, s.evidence)
        for key, timeline in timelines(history).items()
        for s in timeline.sessions
    }


@given(histories, cuts, st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_arrival(history, sizes, chance) -> None:
    late = [
        line(
            n,
            (e.time_us // SECOND_US) - START,
            chance.uniform(0, LATE_SECONDS - 2),
            (e.scope, e.ip),
            e.mac,
            e.activity,
            e.lease_seconds,
            e.server,
        )
        for n, e in enumerate(_apart(history))
    ]
    times = instants(late)
    assert painted(streamed(late, sizes), times) == held(_apart(history), times)


def _apart(history: list[LeaseEvent]) -> list[LeaseEvent]:
    """One line a second of an address: within an instant the arrival tells the order."""
    return list({(e.scope, e.ip, e.time_us): e for e in history}.values())


@given(histories, cuts, cuts)
def test_the_cuts_of_batches_change_no_answer(history, some, others) -> None:
    times = instants(history)
    assert painted(streamed(history, some), times) == painted(streamed(history, others), times)


@given(histories, cuts)
def test_a_restart_between_batches_changes_no_row(history, sizes) -> None:
    assert streamed(history, sizes) == streamed(history, sizes, restart=False)


@given(histories, cuts, st.sampled_from([2, 3]))
def test_the_number_of_buckets_changes_no_answer(history, sizes, buckets) -> None:
    times = instants(history)
    one, several = streamed(history, sizes), streamed(history, sizes, buckets)
    assert painted(several, times) == painted(one, times)
    assert leases(several) == leases(one)


def test_what_explains_an_acknowledgement_may_be_settled_before_it() -> None:
    # INFORM at 0, its ACK at 1; at 181 the line at 0 is settled, the one at 1 is not yet.
    said = [(0, 8, 0), (1, 5, 1000), (181, 4, 0)]
    history = [
        line(n, second, 0.0, ADDRESSES[0], MACS[n // 2], activity, lease, "dhcp1")
        for n, (second, activity, lease) in enumerate(said)
    ]
    assert leases(streamed(history, [1, 1])) == set()


FORGOTTEN_CONTEXT: dict[
    str, tuple[list[tuple[int, float, str, int, str]], list[tuple[str, int, int]]]
] = {
    # C's line at 150 is that of dhcp1's peer about the grant at 100. That dhcp2 had given C the
    # address at 0, too, is no part of it: at 268 that line is settled.
    "the last grant is the last one": (
        [
            (0, 0, "C", ACK, "dhcp2"),
            (20, 0, "A", ACK, "dhcp1"),
            (100, 0, "C", ACK, "dhcp1"),
            (130, 0, "A", ACK, "dhcp1"),
            (150, 118, "C", ACK, "dhcp2"),
        ],
        [("C", 0, 20), ("A", 20, 100), ("C", 100, 130), ("A", 130, 430)],
    ),
    # An INFORM of long ago does not make a grant of what a peer says of an overtaken one.
    "an old inform explains nothing": (
        [
            (0, 0, "A", INFORM, "dhcp1"),
            (70, 0, "A", ACK, "dhcp1"),
            (80, 0, "C", ACK, "dhcp1"),
            (85, 118, "A", ACK, "dhcp2"),
        ],
        [("A", 70, 80), ("C", 80, 380)],
    ),
    "two clients inform at once": (
        [
            (0, 0, "A", INFORM, "dhcp1"),
            (1, 0, "C", INFORM, "dhcp1"),
            (2, 0, "C", ACK, "dhcp1"),
            (50, 118, "A", ACK, "dhcp1"),
        ],
        [],
    ),
    # The INFORM at 0 must not come to count again once the one at 1 and its answer are settled.
    "an inform is asked again": (
        [
            (0, 0, "A", INFORM, "dhcp1"),
            (1, 0, "A", INFORM, "dhcp1"),
            (2, 0, "A", ACK, "dhcp1"),
            (50, 118, "A", ACK, "dhcp1"),
        ],
        [("A", 50, 350)],
    ),
}


@pytest.mark.parametrize("case", FORGOTTEN_CONTEXT)
def test_what_is_settled_no_longer_decides_about_an_acknowledgement(case: str) -> None:
    lines, leases_expected = FORGOTTEN_CONTEXT[case]
    history = [
        line(n, second, delay, ADDRESSES[0], MACS["A-C".index(mac)], activity, 300, server)
        for n, (second, delay, mac, activity, server) in enumerate(lines)
    ]
    times = instants(history)
    assert painted(streamed(history, [1] * len(history)), times) == held(history, times)
    assert [
        (s.mac, s.start_us // SECOND_US - START, s.end_us // SECOND_US - START)
        for s in timelines(history)[ADDRESSES[0]].sessions
    ] == [(MACS["A-C".index(mac)], start, end) for mac, start, end in leases_expected]


# Few instants and long leases, so that lines often have others that explain them.
exchanges = st.lists(
    st.tuples(
        st.integers(0, 25).map(lambda tens: 10 * tens),
        st.sampled_from([0.0, LATE_SECONDS - 2.0]),
        st.just(ADDRESSES[0]),
        st.sampled_from(MACS[:2]),
        st.sampled_from([ACK, ACK, INFORM]),
        st.just(300),
        st.sampled_from(["dhcp1", "dhcp2"]),
    ),
    min_size=4,
    max_size=14,
).map(lambda fields: [line(number, *drawn) for number, drawn in enumerate(fields)])


@given(exchanges)
@examples(150)
def test_servers_of_a_pair_and_answers_to_informs_end_in_what_the_whole_log_tells(history) -> None:
    times = instants(history)
    assert painted(streamed(history, [1] * len(history)), times) == held(history, times)
