"""Repairs of an address's history: what the stream said, painted over until it is what the
lines say. The judge is the replay of all lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enrich.attribution.asof_join import flatten
from enrich.attribution.segment_corrections import REPAIR, CorrectionStamp, correct_segments
from enrich.dhcp.lease_rules import ACK, RELEASE, SECOND_US, TOO_LATE, LeaseEvent, Segment, replay
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from tests.examples import examples
from tests.lines_run import lines_run

A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
HOUR = 3600
START = 1_780_000_000
LIMITS = TrackerLimits(late_us=600 * SECOND_US, max_lease_us=4 * HOUR * SECOND_US)


def us(second: float) -> int:
    return round((START + second) * SECOND_US)


def line(second: float, mac: str, activity: int = ACK, lease: int = HOUR, late: float = 0):
    return LeaseEvent(
        event_uid=f"{second}/{mac}/{activity}",
        scope="default",
        ip="10.0.0.1",
        mac=mac,
        hostname=None,
        activity=activity,
        time_us=us(second),
        received_us=us(second + late),
        lease_seconds=lease,
    )


def streamed(lines: Sequence[LeaseEvent], until: float) -> list[Segment]:
    """What the tracker says of lines in the order of their arrival."""
    bucket, said = TrackerBucket(LIMITS), []
    for one in sorted(lines, key=lambda one: one.received_us):
        said += bucket.advance([one], [one.received_us])
    return said + bucket.advance([], [us(until)])


def usable(said: Sequence[Segment]) -> list[Segment]:
    return [row for row in said if row.kind not in (TOO_LATE, "heartbeat")]


def repaired(
    said: Sequence[Segment],
    lines: Sequence[LeaseEvent],
    since: float,
    at: float,
    kept: float = -START,
):
    return correct_segments(
        usable(said), lines, us(since), CorrectionStamp(us(at), us(at) + 7), LIMITS, us(kept)
    )


def holders(said: Sequence[Segment], seconds: Sequence[float]) -> list[str | None]:
    rows = [row for row in usable(said) if row.seg_end > row.seg_start]
    columns = ([r.seg_start for r in rows], [r.seg_end for r in rows], [r.rev for r in rows])
    starts, ends, owners = flatten(*(np.array(column, dtype=np.int64) for column in columns))
    spans = list(zip(starts.tolist(), ends.tolist(), owners.tolist(), strict=True))
    return [
        next((rows[n].mac for start, end, n in spans if start <= us(at) < end), None)
        for at in seconds
    ]


def test_a_takeover_that_was_told_too_late_is_put_in_its_place() -> None:
    # lines   A0..............            B's line of 1000 s arrived at 3000: too late
    #         A0......B1000...............
    lines = [line(0, A), line(1000, B, late=2000), line(3100, B)]
    said = streamed(lines, until=3200)
    assert [row.kind for row in said if row.kind == TOO_LATE] == [TOO_LATE]
    assert holders(said, [500, 1500, 3050, 3150]) == [A, A, A, B]

    rows = repaired(said, lines, since=1000, at=3200)
    assert {row.kind for row in rows} == {REPAIR}
    assert holders([*said, *rows], [500, 1500, 3050, 3150]) == [A, B, B, B]
    # A's lease ends where B's began; nothing of what was said before is gone.
    a = replay([lines[0]]).sessions[0].session_id
    (end,) = {row.session_end for row in rows if row.session_id == a}
    assert end == us(1000)
    assert min(row.rev for row in rows) > max(row.rev for row in said)
    assert {row.learned_at for row in rows} == {us(3200) + 7}
    assert repaired([*said, *rows], lines, since=1000, at=3300) == []


def test_the_repair_of_an_address_that_changed_hands_all_the_time_costs_no_square_of_it() -> None:
    lines = [line(n, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(800)]
    cost = lines_run(lambda: repaired([], lines, since=0, at=900))
    assert cost < 8 * lines_run(lambda: repaired([], lines[:200], since=0, at=300))
    rows = repaired([], lines, since=0, at=900)
    assert holders(rows, [0, 399, 799]) == [lines[n].mac for n in (0, 399, 799)]


def test_a_release_that_was_told_too_late_frees_the_address() -> None:
    lines = [line(0, A), line(1000, A, RELEASE, late=1500)]
    said = streamed(lines, until=2600)
    rows = repaired(said, lines, since=1000, at=2600)
    assert holders(said, [900, 1500]) == [A, A]
    assert holders([*said, *rows], [900, 1500]) == [A, None]
    assert rows[0].ended == "released"
    assert repaired([*said, *rows], lines, since=1000, at=2700) == []


def test_a_line_that_was_withdrawn_leaves_no_lease_behind() -> None:
    """A reparse found that a line was no grant: its lease was never there."""
    kept, gone = line(0, A), line(1000, B)
    said = streamed([kept, gone], until=1100)
    rows = repaired(said, [kept], since=1000, at=1200)
    assert holders(said, [500, 1050]) == [A, B]
    assert holders([*said, *rows], [500, 1050, 3599, 3601]) == [A, A, A, None]
    withdrawn = [row for row in rows if row.session_id == replay([gone]).sessions[0].session_id]
    assert {(row.session_end == row.session_start, row.mac) for row in withdrawn} == {(True, None)}


def test_an_address_of_which_nothing_was_said_gets_its_history() -> None:
    """Imported logs: the tracker takes none of them."""
    lines = [line(0, A), line(HOUR, B, lease=60)]
    rows = correct_segments([], lines, us(0), CorrectionStamp(us(9 * HOUR), us(9 * HOUR)), LIMITS)
    assert [(row.mac, row.seg_start, row.seg_end) for row in rows] == [
        (A, us(0), us(HOUR)),
        (B, us(HOUR), us(HOUR + 60)),
    ]


def test_what_the_stream_said_rightly_is_left_alone() -> None:
    # Renewals, a release, a reuse: and the lease that runs is painted on by the tracker itself.
    lines = [line(0, A), line(1800, A), line(2500, A, RELEASE), line(2600, B, lease=24 * HOUR)]
    said = streamed(lines, until=2700)
    assert holders(said, [2000, 2550, 2650]) == [A, None, B]
    assert repaired(said, lines, since=0, at=2700) == []
    assert repaired(said, lines, since=2600, at=9000) == []


def test_a_lease_whose_lines_were_taken_out_by_age_is_not_taken_back() -> None:
    # lines   A0....A1800............      of which those before 1000 s are kept no longer
    #         A0....A1800.B3000..A8000     B's was too late
    lines = [line(0, A), line(1800, A), line(3000, B, late=4000), line(8000, A)]
    said = streamed(lines, until=8100)
    asked = [500, 2000, 3500, 8050]
    assert holders(said, asked) == [A, A, A, A]
    rows = repaired(said, lines[1:], since=0, at=8100, kept=1000)
    assert holders([*said, *rows], asked) == [A, A, B, A]
    assert repaired([*said, *rows], lines[1:], since=0, at=8200, kept=1000) == []


clients = st.sampled_from([A, B, C])
lates = st.sampled_from([0, 0, 0, 5, 1000, 5000])
events = st.builds(
    line,
    second=st.integers(0, 300).map(lambda n: n * 60.0),
    mac=clients,
    activity=st.sampled_from([ACK, ACK, ACK, RELEASE]),
    lease=st.sampled_from([120, 900, HOUR, 8 * HOUR]),
    late=lates,
)
histories = st.lists(events, max_size=12, unique_by=lambda e: (e.time_us, e.mac, e.activity))


@examples(60)
@given(histories, st.integers(0, 300))
def test_a_repaired_history_is_the_one_of_all_lines(lines, minute) -> None:
    """Whatever was late: the repair gives the replay of all lines, and a second finds nothing."""
    end = 400 * 60
    said = streamed(lines, until=end)
    late = [row.seg_start for row in said if row.kind == TOO_LATE]
    since = min([minute * 60, *((at - us(0)) / SECOND_US for at in late)])
    rows = repaired(said, lines, since, at=end)
    truth = replay(lines)
    asked = [n * 60 + 0.5 for n in range(400)]
    told = holders([*said, *rows], asked)
    for at, mac in zip(asked, told, strict=True):
        session = truth.at(us(at))
        assert mac == (session.mac if session else None), at
    assert repaired([*said, *rows], lines, since, at=end) == []
    newest = {}
    for row in sorted(usable([*said, *rows]), key=lambda row: row.rev):
        newest[row.session_id] = (row.session_start, row.session_end)
    for session in truth.sessions:
        if session.end_us > us(since):
            assert newest[session.session_id] == (session.start_us, session.end_us)


@examples(60)
@given(histories, st.integers(0, 300), st.integers(0, 400))
def test_retention_takes_no_lease_back(lines, minute, kept) -> None:
    """What was said in time stays, whichever of the oldest lines are gone."""
    intime = [msgspec.structs.replace(one, received_us=one.time_us) for one in lines]
    end = 400 * 60
    said = streamed(intime, until=end)
    left = [one for one in intime if one.received_us >= us(kept * 60)]
    assert repaired(said, left, minute * 60, at=end, kept=kept * 60) == []
