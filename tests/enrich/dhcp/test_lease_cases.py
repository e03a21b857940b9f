"""Each case of lease_cases.py: by the rules at once, and as a stream however its lines arrive."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from enrich.dhcp.lease_rules import SECOND_US, UNANSWERED, LeaseEvent, Segment, Timeline, replay
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits
from tests.enrich.lease_cases import CASES, LETTERS, Address, Case, drawing, instants, letter, us

LIMITS = TrackerLimits(late_us=600 * SECOND_US, max_lease_us=3600 * SECOND_US)
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "leases.md"
by_name = {case.name: case for case in CASES}
every_case = pytest.mark.parametrize("case", CASES, ids=by_name)


def by_address(case: Case) -> dict[Address, list[LeaseEvent]]:
    return {key: [e for e in case.lines if (e.scope, e.ip) == key] for key in case.held}


def free_behind(picture: str) -> str:
    return picture + "." * 20


@every_case
def test_the_rules_hold_at_every_instant(case: Case) -> None:
    ended, names = [], []
    for key, lines in by_address(case).items():
        timeline = replay(lines)
        at = instants(case, case.held[key])
        assert "".join(letter(timeline.at(t)) for t in at) == free_behind(case.held[key])
        ended += [session.ended for session in timeline.sessions]
        names += [session.hostname for session in timeline.sessions]
    assert tuple(ended) == case.ended
    assert case.names is None or tuple(names) == case.names


Delay = Callable[[random.Random], float]
ARRIVALS: dict[str, Delay] = {
    "in order": lambda chance: 0.0,
    "shuffled by 5 s": lambda chance: chance.uniform(0, 5),
    "a fifth of them 90 s late": lambda chance: 90.0 if chance.random() < 0.2 else 0.0,
    "in any order": lambda chance: chance.uniform(0, 400),
}


def delayed(case: Case, delay: Delay) -> list[LeaseEvent]:
    chance = random.Random(case.name)
    later = [
        msgspec.structs.replace(e, received_us=e.received_us + round(delay(chance) * SECOND_US))
        for e in case.lines
    ]
    return sorted(later, key=lambda e: e.received_us)


def streamed(lines: list[LeaseEvent], size: int, until_us: int) -> list[Segment]:
    """Rows of batches of so many lines, the state written and read between; then time goes on."""
    state = TrackerBucket(LIMITS)
    told: list[Segment] = []
    for n in range(0, len(lines), size):
        batch = lines[n : n + size]
        told += state.advance(batch, [batch[-1].received_us])
        state = decode_bucket(encode_bucket(state), LIMITS)
    for later_us in range(lines[-1].received_us, until_us, 300 * SECOND_US):
        told += state.advance([], [later_us])
        state = decode_bucket(encode_bucket(state), LIMITS)
    return told


def shown(told: list[Segment], key: Address, time_us: int) -> str:
    """The letter of the highest revision that covers an instant."""
    over = [
        s
        for s in told
        if (s.scope, s.ip) == key and s.seg_start is not None and s.seg_start <= time_us < s.seg_end
    ]
    best = max(over, key=lambda s: s.rev, default=None)
    if best is None or best.mac is None:
        return "."
    newest = max((s for s in told if s.session_id == best.session_id), key=lambda s: s.rev)
    return LETTERS[best.mac].lower() if newest.ended == UNANSWERED else LETTERS[best.mac]


@every_case
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("size", [1, 100], ids=["line by line", "in one batch"])
def test_a_stream_holds_it_however_the_lines_arrive(case: Case, arrival: str, size: int) -> None:
    lines = delayed(case, ARRIVALS[arrival])
    told = streamed(lines, size, us(len(max(case.held.values(), key=len)) * case.unit) + 1)
    assert not [row for row in told if row.kind == "too_late"]
    for key, picture in case.held.items():
        at = instants(case, picture)
        assert "".join(shown(told, key, t) for t in at) == free_behind(picture)
    newest = {row.session_id: row for row in told if row.session_id}
    assert {
        (row.session_id, row.session_start, row.session_end, row.ended, row.event_uids)
        for row in newest.values()
        if row.session_end > row.session_start
    } == {
        (s.session_id, s.start_us, s.end_us, s.ended, s.evidence)
        for lines in by_address(case).values()
        for s in replay(lines).sessions
    }


@every_case
def test_the_page_draws_the_case(case: Case) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"### {case.name[0].upper()}{case.name[1:]}\n" in page
    assert f"```text\n{drawing(case)}\n```" in page


def test_a_lease_of_a_claim_keeps_its_identity_when_it_is_proven() -> None:
    case = by_name["lost line of an acknowledgement, proven by a renewal"]
    claim, proven = replay(case.lines[:1]), replay(case.lines)
    assert isinstance(proven, Timeline)
    assert claim.sessions[0].session_id == proven.sessions[0].session_id
    assert claim.sessions[0].evidence == proven.sessions[0].evidence[:1]
    assert claim.sessions[0].start_us == proven.sessions[0].start_us + 60 * SECOND_US
