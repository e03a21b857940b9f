"""What is remembered of an address after its state was lost: as much as the state did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enrich.dhcp.lease_rules import ACK, DECLINE, RELEASE, SECOND_US, LeaseEvent, Segment
from enrich.dhcp.state_bootstrap import cut_of
from enrich.dhcp.state_reconstruction import recall
from enrich.dhcp.tracker_state import TrackerBucket
from tests.enrich.dhcp.test_tracker_state import IPS, LIMITS, MACS, line, us

END = 700
"""Long enough for lines before the cut, which lies two minutes before the loss."""

history = st.lists(
    st.builds(
        line,
        second=st.integers(0, END),
        mac=st.sampled_from(MACS[:2]),
        activity=st.sampled_from([ACK, ACK, ACK, ACK, RELEASE, DECLINE]),
        lease=st.sampled_from([50, 300, 20_000]),
        late=st.integers(0, 55),
        ip=st.sampled_from(IPS[:2]),
        uid=st.uuids().map(str),
    ),
    min_size=5,
    max_size=40,
)


def batches(lines: list[LeaseEvent], seconds: range) -> list[tuple[list[LeaseEvent], int]]:
    """Lines by the batch in which they arrive, with the heartbeat at its end."""
    return [
        (
            [e for e in lines if us(s) < e.received_us <= us(s + seconds.step)],
            us(s + seconds.step),
        )
        for s in seconds
    ]


def recalled(said: list[Segment], lines: list[LeaseEvent], known_us: int) -> TrackerBucket:
    """A state made of what was said and the lines it was said of, as `enrich.dhcp.state_bootstrap`
    does."""
    state = TrackerBucket(LIMITS)
    state.known_at_us = state.finished_us = known_us
    state.swept_us = known_us
    state.last_rev = max((row.rev for row in said), default=0)
    cut = cut_of(known_us, LIMITS)
    late = {uid for row in said if row.kind == "too_late" for uid in row.event_uids or ()}
    for ip in IPS:
        rows = [row for row in said if row.ip == ip]
        mine = [e for e in lines if e.ip == ip and e.event_uid not in late]
        found = recall("site", ip, rows, [e for e in mine if e.time_us >= cut.since_us], cut)
        assert found.played
        if not found.address.empty:
            state.addresses["site", ip] = found.address
            state.enter(found.address, found.address.timeline())
    return state


@given(history, st.integers(3, END // 20))
def test_a_state_made_of_what_was_said_goes_on_as_the_lost_one_would(lines, cuts) -> None:
    steps = batches(lines, range(-20, END + 60, 20))
    state = TrackerBucket(LIMITS)
    said: list[Segment] = []
    for found, finished in steps[:cuts]:
        said += state.advance(found, [finished])
    seen = [e for found, _ in steps[:cuts] for e in found]
    again = recalled(said, seen, state.finished_us or 0)
    for found, finished in steps[cuts:]:
        assert again.advance(found, [finished]) == state.advance(found, [finished])


def test_a_lease_that_another_device_took_over_long_ago_does_not_run() -> None:
    # That A's lease ended at 10 is said by a row that reaches no farther than 10.
    lines = [line(0, lease=20_000), line(10, MACS[1], lease=20_000)]
    state = TrackerBucket(LIMITS)
    said = state.advance(lines, [us(END)])
    again = recalled(said, lines, us(END))
    assert list(again.addresses) == [("site", IPS[0])]
    assert again.advance([], [us(END + 3600)]) == state.advance([], [us(END + 3600)])


def test_lines_that_are_gone_leave_the_session_as_it_was_said() -> None:
    # A from 0, B takes over at 550; the lines of both are no longer in the table
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0, lease=600), line(550, MACS[1], lease=600)], [us(600)])
    found = recall("site", IPS[0], said, [], cut_of(us(600), LIMITS))
    assert found.played is False
    sessions = found.address.timeline().sessions
    assert [(s.mac, s.start_us, s.end_us) for s in sessions] == [(MACS[1], us(550), us(1150))]
    assert found.address.painted_us >= us(1150)


def test_a_lease_painted_in_part_is_remembered_as_painted_in_part() -> None:
    state = TrackerBucket(LIMITS)
    said = state.advance([line(0, lease=86_400)], [us(300)])
    found = recall("site", IPS[0], said, [line(0, lease=86_400)], cut_of(us(300), LIMITS))
    assert found.address.painted_us == max(row.seg_end for row in said)
    assert found.address.painted_us == LIMITS.ahead_us // SECOND_US * SECOND_US + us(0)
