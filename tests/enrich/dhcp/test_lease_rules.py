"""The lease rules, one address at a time. Drawings: a letter is who holds it, '.' is nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp.lease_rules import (
    ACK,
    DECLINE,
    EXPIRE,
    EXPIRED,
    NAK,
    RELEASE,
    SECOND_US,
    LeaseEvent,
    Segment,
    Session,
    Timeline,
    ended_so_far,
    replay,
)
from enrich.dhcp.tracker_state import diff

START = 1_795_228_800
A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
LETTERS = {A: "A", B: "B", C: "C"}


def line(
    second: float,
    mac: str | None,
    activity: int = ACK,
    lease: int = 10,
    uid: str | None = None,
    received: float | None = None,
    hostname: str | None = None,
) -> LeaseEvent:
    time_us = int((START + second) * SECOND_US)
    return LeaseEvent(
        event_uid=uid or f"{second}/{mac}/{activity}",
        scope="site",
        ip="10.0.0.1",
        mac=mac,
        hostname=hostname,
        activity=activity,
        time_us=time_us,
        received_us=time_us if received is None else int((START + received) * SECOND_US),
        lease_seconds=lease,
    )


def drawn(timeline: Timeline, seconds: int = 30) -> str:
    """One letter a second, from the middle of each."""
    half = SECOND_US // 2
    at = [timeline.at((START + n) * SECOND_US + half) for n in range(seconds)]
    return "".join("." if s is None else LETTERS[s.mac] for s in at).rstrip(".")


def ends(timeline: Timeline) -> list[str]:
    return [session.ended for session in timeline.sessions]


# 0         1         2
# 012345678901234567890123456789
CASES = {
    "a lease runs out by itself": ([line(2, A)], "..AAAAAAAAAA", ["expired"]),
    "a renewal extends": ([line(0, A), line(5, A)], "AAAAAAAAAAAAAAA", ["expired"]),
    "a renewal at the last instant extends": ([line(0, A), line(10, A)], "A" * 20, ["expired"]),
    "a grant after the end is another session": (
        [line(0, A, lease=4), line(6, A, lease=4)],
        "AAAA..AAAA",
        ["expired", "expired"],
    ),
    "a shorter lease shortens": ([line(0, A, lease=20), line(5, A, lease=3)], "A" * 8, ["expired"]),
    "the holder releases": ([line(0, A), line(4, A, RELEASE)], "AAAA", ["released"]),
    "a release by somebody else is ignored": (
        [line(0, A), line(4, B, RELEASE)],
        "A" * 10,
        ["expired"],
    ),
    "a release without a name is ignored": (
        [line(0, A), line(4, None, RELEASE)],
        "A" * 10,
        ["expired"],
    ),
    "a decline ends": ([line(0, A), line(1, A, DECLINE)], "A", ["declined"]),
    "a NAK to the holder ends": ([line(0, A), line(6, A, NAK)], "AAAAAA", ["refused"]),
    "a NAK to another is about a wish": ([line(0, A), line(6, B, NAK)], "A" * 10, ["expired"]),
    "the server expires": ([line(0, A), line(7, None, EXPIRE)], "AAAAAAA", ["expired"]),
    "an expiry of somebody else's lease": ([line(0, A), line(7, B, EXPIRE)], "A" * 10, ["expired"]),
    "another client takes over": (
        [line(0, A), line(4, B)],
        "AAAABBBBBBBBBB",
        ["taken over", "expired"],
    ),
    "a client without a name takes over": ([line(0, A), line(4, None)], "AAAA", ["taken over"]),
    "an answer to an INFORM grants nothing": ([line(0, A), line(4, B, lease=0)], "A" * 10, None),
    "a release and the next grant in one second": (
        [line(0, A), line(4, A, RELEASE, uid="8"), line(4, B, uid="9")],
        "AAAABBBBBBBBBB",
        ["released", "expired"],
    ),
    "the same, the lines exchanged on their way": (
        [line(0, A), line(4, B, uid="8"), line(4, A, RELEASE, uid="9")],
        "AAAABBBBBBBBBB",
        ["taken over", "expired"],
    ),
    "release and lease again in one second": (
        [line(0, A), line(4, A, RELEASE, uid="9"), line(4, A, uid="10")],
        "A" * 14,
        ["released", "expired"],
    ),
    "renew and release in one second": (
        [line(0, A), line(4, A, uid="9"), line(4, A, RELEASE, uid="10")],
        "AAAA",
        ["released"],
    ),
    "what arrived first comes first": (
        [line(0, A), line(4, A, RELEASE, received=4.1), line(4, A, received=4.2)],
        "A" * 14,
        ["released", "expired"],
    ),
    "grant and release in one second": (
        [line(4, A, uid="8"), line(4, A, RELEASE, uid="9")],
        "",
        [],
    ),
    "an expiry of the old lease in the second of the new one": (
        [line(0, A, lease=4), line(4, None, EXPIRE, uid="9"), line(4, B, uid="8")],
        "AAAABBBBBBBBBB",
        ["expired", "expired"],
    ),
    "offers and requests are talk": ([line(0, A, 2), line(1, A, 3)], "", []),
}


@pytest.mark.parametrize(("lines", "picture", "reasons"), CASES.values(), ids=CASES.keys())
def test_rules(lines: list[LeaseEvent], picture: str, reasons: list[str] | None) -> None:
    timeline = replay(lines)
    assert drawn(timeline) == picture
    assert reasons is None or ends(timeline) == reasons
    assert replay(reversed(lines)) == timeline


def test_evidence_is_the_grant_the_newest_renewals_and_the_end() -> None:
    renewals = [line(n, A, uid=f"r{n}") for n in range(1, 9)]
    timeline = replay([line(0, A, uid="grant"), *renewals, line(9, A, RELEASE, uid="bye")])
    assert timeline.sessions[0].evidence == ("grant", "r6", "r7", "r8", "bye")


def test_the_newest_name_a_client_gave_is_kept() -> None:
    lines = [line(0, A, hostname="old"), line(2, A, hostname="new"), line(4, A)]
    assert replay(lines).sessions[0].hostname == "new"


def test_a_lease_without_end_is_bounded() -> None:
    lease = replay([line(0, A, lease=10**12)]).sessions[0]
    assert lease.end_us - lease.start_us == (2**32 - 1) * SECOND_US


lines_of_an_address = st.lists(
    st.builds(
        line,
        second=st.integers(0, 40),
        mac=st.sampled_from([A, B, C]),
        activity=st.sampled_from([ACK, ACK, ACK, RELEASE, DECLINE, NAK, EXPIRE]),
        lease=st.sampled_from([3, 10, 25]),
        uid=st.uuids().map(str),
    ),
    max_size=14,
)


@given(lines_of_an_address, st.randoms(use_true_random=False))
def test_an_address_has_one_holder_at_a_time_in_any_order(lines, random) -> None:
    timeline = replay(lines)
    edges = [t for s in timeline.sessions for t in (s.start_us, s.end_us)]
    assert edges == sorted(edges)
    assert all(s.start_us < s.end_us for s in timeline.sessions)
    random.shuffle(lines)
    assert replay(lines) == timeline


def painted(segments: list[Segment], times: list[int]) -> list[tuple[str, str] | None]:
    """Who holds the address at each instant, the highest rev winning: the naive way."""
    answers = []
    for time_us in times:
        over = [s for s in segments if s.seg_start <= time_us < s.seg_end]
        best = max(over, key=lambda s: s.rev, default=None)
        held = best is not None and best.mac is not None
        answers.append((best.mac, best.session_id) if held else None)
    return answers


def told(timeline: Timeline, times: list[int]) -> list[tuple[str, str] | None]:
    found = [timeline.at(t) for t in times]
    return [None if s is None else (s.mac, s.session_id) for s in found]


def view(segments: list[Segment]) -> dict[str, tuple[object, ...]]:
    """silver.dhcp_session in plain Python: what the newest row says of each session."""
    newest = {s.session_id: s for s in sorted(segments, key=lambda s: s.rev) if s.session_id}
    return {
        uid: (s.session_start, s.session_end, s.event_uids, s.ended)
        for uid, s in newest.items()
        if s.session_end > s.session_start
    }


def sessions(timeline: Timeline) -> dict[str, tuple[object, ...]]:
    return {s.session_id: (s.start_us, s.end_us, s.evidence, s.ended) for s in timeline.sessions}


TIMES = [START * SECOND_US + n * SECOND_US // 2 for n in range(160)]


@given(lines_of_an_address, lines_of_an_address, st.sampled_from([2, 7, 10**6]))
def test_the_difference_painted_over_the_old_gives_the_new(first, second, longest) -> None:
    empty = Timeline("site", "10.0.0.1")
    old, new = replay(first), replay([*first, *second])
    span = longest * SECOND_US
    said = diff(empty, old, 1, 1, max_span_us=span)
    more = diff(old, new, 2, len(said) + 1, max_span_us=span)
    assert painted(said, TIMES) == told(old, TIMES)
    assert painted([*said, *more], TIMES) == told(new, TIMES)
    assert view([*said, *more]) == sessions(new)
    assert all(s.seg_end - s.seg_start <= span for s in more)
    assert diff(new, new, 3, 99) == []


def test_a_takeover_says_that_the_old_lease_ended() -> None:
    # old  AAAAAAAAAA
    # new  AAAABBBBBBBBBB     one lease row for B, one row of no length that ends A
    old = replay([line(0, A)])
    rows = diff(old, replay([line(0, A), line(4, B)]), known_at_us=7, next_rev=7)
    assert [(r.kind, r.mac, (r.seg_end - r.seg_start) // SECOND_US) for r in rows] == [
        ("lease", B, 10),
        ("free", None, 0),
    ]
    assert rows[1].session_end == rows[0].seg_start
    assert [r.rev for r in rows] == [7, 8]


def test_a_renewal_says_only_what_it_adds() -> None:
    rows = diff(replay([line(0, A)]), replay([line(0, A), line(6, A)]), 1, 1)
    assert [(r.kind, r.seg_start, r.seg_end) for r in rows] == [
        ("extend", (START + 10) * SECOND_US, (START + 16) * SECOND_US)
    ]
    assert rows[0].session_start == START * SECOND_US


def test_a_release_frees_the_rest_and_names_the_session() -> None:
    rows = diff(replay([line(0, A)]), replay([line(0, A), line(4, A, RELEASE)]), 1, 1)
    (row,) = rows
    assert (row.kind, row.mac, row.ended) == ("free", None, "released")
    assert (row.seg_end - row.seg_start, row.session_end) == (6 * SECOND_US, row.seg_start)


def test_an_earlier_grant_that_comes_late_withdraws_the_session_it_replaces() -> None:
    # known   ....AAAAAAAAAA       the grant at 4 turns out to have been a renewal
    # late    AAAAAAAAAAAAAA
    old, new = replay([line(4, A)]), replay([line(0, A), line(4, A)])
    rows = diff(old, new, 1, 1)
    gone = [r for r in rows if r.session_id == old.sessions[0].session_id]
    assert [(r.seg_start, r.session_end) for r in gone] == [(gone[0].session_start,) * 2]
    assert view(rows) == sessions(new)


def test_a_session_keeps_its_identity() -> None:
    one = replay([line(0, A)]).sessions[0]
    assert isinstance(one, Session)
    assert one.session_id == replay([line(0, A), line(3, A)]).sessions[0].session_id
    assert one.session_id != replay([line(1, A)]).sessions[0].session_id


@pytest.mark.parametrize(
    ("ended", "complete", "so_far"),
    [
        (EXPIRED, 99, None),  # it may still be renewed
        (EXPIRED, None, None),  # nothing is known of the log
        (EXPIRED, 100, EXPIRED),
        ("released", 99, "released"),
        (None, 100, None),
    ],
)
def test_a_lease_that_still_runs_has_not_ended(
    ended: str | None, complete: int | None, so_far: str | None
) -> None:
    assert ended_so_far(ended, 100, complete) == so_far
    assert ended_so_far(ended, None, complete) == ended
