"""Small batches while keeping up, large ones while catching up, and no flapping between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infra.streaming.rate_controller import (
    BatchSeen,
    Learned,
    Pace,
    RateLimits,
    RateLine,
    begin_regime,
    caps,
    follow,
    restart,
)

LIMITS = RateLimits(
    most=1_000_000,
    least=1_000,
    steady_seconds=2.0,
    behind_seconds=30.0,
    memory=512 * 2**20,
)


@dataclass
class Machine:
    """A job whose batches cost exactly this."""

    fixed: float = 0.5
    per_second: float = 10_000.0
    message_bytes: float = 400.0
    memory_per_byte: float = 1.5
    base: float = 300e6

    def batch(self, messages: int, left: int) -> BatchSeen:
        size = int(messages * self.message_bytes)
        memory = int(self.base + size * self.memory_per_byte)
        return BatchSeen(messages, size, self.fixed + messages / self.per_second, memory, left)


def taught(machine: Machine, *sizes: int) -> Learned:
    learned = Learned()
    for size in sizes:
        learned = learned.seen(machine.batch(size, 0))
    return learned


def test_costs_are_learned_exactly_from_batches_of_two_sizes() -> None:
    learned = taught(Machine(), 500, 4_000, 900)
    assert learned.seconds.fixed == pytest.approx(0.5)
    assert 1 / learned.seconds.slope == pytest.approx(10_000)
    assert learned.bytes.slope == pytest.approx(400)
    assert learned.memory.slope == pytest.approx(1.5)
    assert learned.messages_in(2.5) == pytest.approx(20_000, abs=2)


def test_the_cap_keeps_to_the_memory_it_may_take() -> None:
    hungry = Machine(memory_per_byte=40.0)
    learned = taught(hungry, 500, 4_000, 900)
    _, large = caps(learned, LIMITS)
    grown = large * hungry.message_bytes * hungry.memory_per_byte
    assert grown == pytest.approx(LIMITS.memory, rel=0.01)
    assert large < caps(taught(Machine(), 500, 4_000, 900), LIMITS)[1]


@given(
    batches=st.lists(
        st.builds(
            BatchSeen,
            messages=st.integers(0, 10**7),
            bytes=st.integers(0, 10**10),
            seconds=st.floats(0, 1e4),
            memory=st.integers(0, 10**11),
            left=st.integers(0, 10**9),
        ),
        max_size=40,
    ),
    backlog=st.integers(0, 10**9),
)
def test_whatever_is_seen_the_caps_stay_within_their_limits(batches, backlog) -> None:
    learned = Learned()
    pace = begin_regime(backlog, learned, LIMITS)
    for batch in batches:
        learned = learned.seen(batch)
        pace = follow(pace, batch, learned, LIMITS)
        small, large = caps(learned, LIMITS)
        assert 1 <= small <= large <= LIMITS.most
        assert 1 <= pace.cap <= LIMITS.most


@given(per_second=st.floats(1_000, 50_000), fixed=st.floats(0.1, 1.9), left=st.integers(0, 10**8))
def test_a_backlog_that_stays_changes_the_regime_once_at_most(per_second, fixed, left) -> None:
    machine = Machine(per_second=per_second, fixed=fixed)
    learned = taught(machine, 1_000, 3_000)
    small, large = caps(learned, LIMITS)
    for pace in (Pace("steady", small), Pace("behind", large)):
        changes = 0
        for _ in range(30):
            after = follow(pace, machine.batch(pace.cap, left), learned, LIMITS)
            changes += restart(pace, after)
            pace = after
        assert changes <= 1


def test_one_burst_is_no_outage_and_two_batches_are() -> None:
    machine = Machine()
    learned = taught(machine, 1_000, 3_000)
    small, large = caps(learned, LIMITS)
    steady = Pace("steady", small)
    burst = machine.batch(small, 6 * small)
    once = follow(steady, burst, learned, LIMITS)
    assert not restart(steady, once)
    calm = follow(once, machine.batch(small, 0), learned, LIMITS)
    assert calm == steady
    assert follow(once, burst, learned, LIMITS) == Pace("behind", large)


def test_caught_up_means_small_at_once() -> None:
    machine = Machine()
    learned = taught(machine, 1_000, 3_000)
    small, large = caps(learned, LIMITS)
    behind = Pace("behind", large)
    assert follow(behind, machine.batch(large, small), learned, LIMITS) == behind
    assert follow(behind, machine.batch(large, 0), learned, LIMITS) == Pace("steady", small)


def test_after_an_outage_the_first_batch_is_large_already() -> None:
    learned = taught(Machine(), 1_000, 3_000)
    small, large = caps(learned, LIMITS)
    assert begin_regime(0, learned, LIMITS) == Pace("steady", small)
    assert begin_regime(10 * small, learned, LIMITS) == Pace("behind", large)


def test_less_at_once_when_batches_take_more_memory_than_was_thought() -> None:
    machine = Machine(memory_per_byte=60.0)
    learned = taught(Machine(), 1_000, 3_000)
    pace = begin_regime(10**7, learned, LIMITS)
    assert pace.cap * machine.message_bytes * machine.memory_per_byte > 2 * LIMITS.memory
    batch = machine.batch(pace.cap, 10**7)
    after = follow(pace, batch, learned.seen(batch), LIMITS)
    assert after.regime == "behind"
    assert after.cap * machine.message_bytes * machine.memory_per_byte < 2 * LIMITS.memory


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=30))
def test_a_line_through_points_on_a_line_is_that_line(xs) -> None:
    assume(max(xs) > 2 * min(xs))
    line = RateLine(guess=0.01)
    for x in xs:
        line = line.seen(x, 0.7 + 0.002 * x)
    assert line.slope == pytest.approx(0.002, rel=1e-3)
    assert line.fixed == pytest.approx(0.7, abs=0.05)


def test_batches_of_about_one_size_do_not_make_the_cap_small() -> None:
    """As seen with a million leases waiting: each batch at the cap, and workers that grow."""
    learned = Learned()
    for messages, size, memory in (
        (149_900, 18_835_000, 1_080_000_000),
        (149_985, 18_845_000, 1_230_000_000),
        (150_000, 18_856_000, 1_270_000_000),
    ):
        learned = learned.seen(BatchSeen(messages, size, 24.0, memory, 400_000))
    pace = follow(
        Pace("behind", 150_000), BatchSeen(150_000, 18_846_000, 24.0, 0, 400_000), learned, LIMITS
    )
    assert pace == Pace("behind", 150_000)
    assert caps(learned, LIMITS)[1] > 100_000


@given(
    st.lists(
        st.tuples(st.floats(1e6, 2e6), st.floats(1e8, 2e8)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_chance_does_a_cost_is_at_most_all_there_is(points) -> None:
    line = RateLine(guess=1.0)
    for x, y in points:
        line = line.seen(x, y)
    assert 0.01 <= line.slope <= 1.001 * line.y / line.x
    assert line.fixed >= 0


def test_a_line_that_saw_one_size_keeps_a_guess_that_this_does_not_refute() -> None:
    low, high = RateLine(guess=0.2), RateLine(guess=2.0)
    for _ in range(5):
        low, high = low.seen(100, 50), high.seen(100, 50)
    assert low.slope == 0.2
    assert high.slope == pytest.approx(0.5), "a point for 100 costs 50, with all that is fixed"
    assert replace(high, n=0.0).fixed == 0.0


def caught_up(machine: Machine, waiting: int, learned: Learned) -> list[Pace]:
    """The paces of a catch-up, from its begin to the first small one."""
    paces = [begin_regime(waiting, learned, LIMITS)]
    while paces[-1].regime == "behind":
        taken = min(paces[-1].cap, waiting)
        waiting -= taken
        batch = machine.batch(taken, waiting)
        if len(paces) > 1:  # as the governor: the first one also loads and compiles
            learned = learned.seen(batch)
        paces.append(follow(paces[-1], batch, learned, LIMITS))
    return paces


def test_a_first_catch_up_does_not_stay_at_the_guess_on_a_fast_machine() -> None:
    fast = Machine(per_second=40_000.0)
    paces = caught_up(fast, 6_000_000, Learned())
    assert paces[0].cap == 150_000
    changes = [after.cap for before, after in pairwise(paces) if restart(before, after)]
    assert max(changes) > 400_000
    assert len(changes) <= 4, "each is a restart of the query"
    assert all(pace.cap <= LIMITS.most for pace in paces)


def test_a_larger_cap_is_not_worth_a_restart_for_a_few_batches() -> None:
    learned = taught(Machine(per_second=40_000.0), 1_000, 3_000, 2_000)
    small, large = caps(learned, LIMITS)
    pace = Pace("behind", large // 3)
    for left in (1, 2, 5):  # five batches of this size are five thirds of the larger
        assert follow(pace, Machine().batch(pace.cap, left * pace.cap), learned, LIMITS) == pace
    more = follow(pace, Machine().batch(pace.cap, 7 * pace.cap), learned, LIMITS)
    assert more == Pace("behind", large)
    # What was learned later may take it back, as soon as it says half.
    dear = taught(Machine(memory_per_byte=60.0), 1_000, 3_000, 2_000)
    assert follow(more, Machine().batch(large, 10 * large), dear, LIMITS).cap < large // 2
    assert small < pace.cap
