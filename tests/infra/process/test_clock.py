"""What is believed of the time of day, held against any history of a system's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.process.clock import BELIEVED_AFTER, TOLERANCE, ForwardClock, spoken

DAY = 86_400.0
BEGIN = 1_795_000_000.0


@dataclass
class Machine:
    """Its two clocks: `steady` counts, `off` is what a hand did to the other."""

    steady: float = 1000.0
    off: float = 0.0

    def clock(self) -> ForwardClock:
        return ForwardClock(lambda: self.true + self.off, lambda: self.steady)

    @property
    def true(self) -> float:
        return BEGIN + self.steady

    def passes(self, clock: ForwardClock, seconds: float) -> None:
        """Time goes by, and the clock is looked at each minute."""
        while seconds > 0:
            step = min(60.0, seconds)
            self.steady += step
            seconds -= step
            clock.now()


def at(clock: ForwardClock) -> float:
    return clock.now().timestamp()


@pytest.mark.parametrize("jump", [DAY, -DAY, 2 * TOLERANCE, 3650 * DAY])
def test_a_jump_that_does_not_last_moves_nothing(jump: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.off = jump
    machine.passes(clock, BELIEVED_AFTER / 2)
    assert at(clock) == pytest.approx(machine.true)
    assert clock.jumped == pytest.approx(jump)
    machine.off = 0.0
    machine.passes(clock, 3 * BELIEVED_AFTER)
    assert at(clock) == pytest.approx(machine.true)
    assert clock.jumped == 0
    first, second = clock.new_jumps()
    assert spoken(jump) in first
    assert second == "the clock is right again"
    assert clock.new_jumps() == []


def test_a_clock_that_was_set_back_is_told_once_whatever_is_believed() -> None:
    machine = Machine()
    clock = machine.clock()
    for off, back in ((DAY, False), (0.0, True), (-DAY, True), (0.0, False), (-1.0, False)):
        machine.off = off
        machine.passes(clock, 120)
        assert clock.went_back() is back, off
        assert not clock.went_back()


def test_a_jump_that_lasts_is_believed() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.off = DAY
    machine.passes(clock, BELIEVED_AFTER + 120)
    assert at(clock) == pytest.approx(machine.true + DAY)
    assert clock.jumped == 0
    assert clock.new_jumps()[-1] == "the clock is believed, 24.0 hours ahead"


def test_a_second_jump_has_to_last_by_itself() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.off = DAY
    machine.passes(clock, BELIEVED_AFTER - 120)
    machine.off = 2 * DAY
    machine.passes(clock, BELIEVED_AFTER - 120)
    assert at(clock) == pytest.approx(machine.true)


def test_a_clock_that_is_slowly_put_right_is_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(100):
        machine.off += TOLERANCE / 2
        machine.passes(clock, 60)
    assert at(clock) == pytest.approx(machine.true + 50 * TOLERANCE)
    assert clock.new_jumps() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 5.0, -5.0, DAY, -DAY, 7200.0]), st.floats(1, BELIEVED_AFTER / 3)
        ),
        max_size=12,
    )
)
def test_jumps_that_come_and_go_are_never_believed(
    history: list[tuple[float, float]],
) -> None:
    machine = Machine()
    clock = machine.clock()
    for off, seconds in history:
        machine.off = off
        machine.passes(clock, seconds)
        assert abs(at(clock) - machine.true) <= TOLERANCE
        machine.off = 0.0
        machine.passes(clock, seconds)
        assert at(clock) == pytest.approx(machine.true)


def test_the_clock_of_this_machine_is_believed() -> None:
    clock = ForwardClock()
    before, now, after = datetime.now(UTC), clock.now(), datetime.now(UTC)
    assert (before - now).total_seconds() < 0.1
    assert (now - after).total_seconds() < 0.1
    assert clock.jumped == 0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (DAY * 3650, "3650.0 days ahead"),
        (-DAY, "24.0 hours back"),
        (90 * 60, "90.0 minutes ahead"),
        (-61, "61 seconds back"),
    ],
)
def test_jumps_are_told_as_a_person_would(seconds: float, said: str) -> None:
    assert spoken(seconds) == said
