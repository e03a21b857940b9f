"""The rate that all jobs hold on one machine, broker and sender beside them, and three times it.

First a ladder of rates shows the highest whose alerts still come in time at its end. Then that
rate for ten minutes, three times it for two, and the rate again: alerts must come in time at the
end of the ten minutes, and again a minute behind the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.event_to_alert import ALERTING_LEASED, WARM_SECONDS, Attack, Load, Run, loaded
from bench.measure import Report

LATEST = 10.0
"""Seconds from an event to its alert, at the median, beyond which a rate is not held."""
SENT = 0.9
"""Of a rate, the part that has to have been sent in its time: a sender that cannot keep up, beside
the jobs on the same cores, would let a rate look held that never was."""
GOAL, TIMES = 8_000, 3
CAUGHT_UP_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """Rates of the ladder, and the seconds of each step and of what follows."""

    rates: tuple[int, ...]
    warm: int
    """Of the lowest rate, before the ladder: C2 compiles most of what jobs run in some minutes."""
    step: int
    hold: int
    more: int
    after: int


FULL = Plan((1_000, 4_000, 6_000, 8_000, 10_000, 12_000), 180, 60, 600, 120, 180)
QUICK = Plan((200, 400), 0, 30, 60, 15, 60)


def run(quick: bool = False) -> Report:
    """The ladder, then the rate that it holds."""
    return measured(QUICK if quick else FULL)


def measured(plan: Plan) -> Report:
    """The report of a plan."""
    report = Report("sustained", "make bench ONLY=sustained")
    first, *others = plan.rates
    steps = tuple((rate, plan.step) for rate in others)
    climbed, _ = loaded(Load(first, plan.warm + plan.step, steps))
    rate = first
    for place, each in enumerate(plan.rates):
        begins = WARM_SECONDS + plan.warm + place * plan.step
        late = _delay(climbed, begins + 2 * plan.step // 3, begins + plan.step)
        report.add(f"ladder, {each:,}/s: event to alert at its end, p50", [late], "s")
        # Behind a rate that is not held, what waits would be the next one's too.
        if late > LATEST or sent(climbed, begins, begins + plan.step) < SENT:
            break
        rate = each
    _hold(report, plan, rate)
    report.notes += [
        f"a rate is held when half the alerts of its last third come within {LATEST:.0f} s, and "
        f"at least {SENT:.0%} of it were sent in its time",
        "delay: the event's own time, which is when it is sent, to the append time of its alert; "
        "alerts of addresses with a lease or outside, whom nothing waits for",
        "one broker, one driver with all jobs and its default settings, and the sender, all on "
        "this machine; every attack became its alert",
    ]
    return report


def _hold(report: Report, plan: Plan, rate: int) -> None:
    load = Load(rate, plan.hold, ((TIMES * rate, plan.more), (rate, plan.after)))
    done, cores = loaded(load)
    ends, third = WARM_SECONDS + plan.hold, plan.hold // 3
    begun = _delay(done, WARM_SECONDS, WARM_SECONDS + third)
    late = _delay(done, ends - third, ends)
    held = late <= LATEST and sent(done, WARM_SECONDS, ends) >= SENT
    report.add(
        f"held for {plan.hold} s, all jobs", [rate if held else 0], "events/s",
        bar=f">= {GOAL:,}", met=held and rate >= GOAL,
    )  # fmt: skip
    report.add("event to alert, its first third, p50", [begun], "s")
    report.add("event to alert, its last third, p50", [late], "s")
    peak = ends + plan.more
    report.add(
        f"event to alert, end of {TIMES} times that, p50", [_delay(done, peak - 10, peak)], "s"
    )
    caught = _caught_up(done, peak, plan.after)
    report.add(
        f"behind {plan.more} s of {TIMES} times that: in time after", [caught], "s",
        bar=f"<= {CAUGHT_UP_SECONDS}", met=caught <= min(CAUGHT_UP_SECONDS, plan.after - 1),
    )  # fmt: skip
    report.add("CPU of the driver, all of it", [cores], "cores")
    report.add("longest the sender ran behind", [done.behind], "s")


def sent(done: Run, since: int, until: int) -> float:
    """What part of the events that were to be sent in these seconds of the load was.

    As attacks tell: of leased devices there are equally many each second.
    """
    began = min(attack.sent_at for attack in done.attacks.values())
    leased = sum(
        attack.status == "leased" and since <= attack.sent_at - began < until
        for attack in done.attacks.values()
    )
    return leased / (ALERTING_LEASED * (until - since))


def _delay(done: Run, since: int, until: int) -> float:
    """Median delay of the alerts of events sent in these seconds of the load."""
    return median(_delays(done, since, until))


def _caught_up(done: Run, since: int, seconds: int) -> int:
    """Seconds after `since` from which on events have their alerts in time.

    `seconds` where they never have, which is as long as was looked.
    """
    late = [
        second
        for second in range(seconds)
        if any(delay > LATEST for delay in _delays(done, since + second, since + second + 1))
    ]
    return late[-1] + 1 if late else 0


def _delays(done: Run, since: int, until: int) -> list[float]:
    began = min(attack.sent_at for attack in done.attacks.values())
    return [
        attack.appended_at - attack.sent_at
        for attack in done.attacks.values()
        if _answers(attack) and since <= attack.sent_at - began < until
        and attack.appended_at is not None
    ]  # fmt: skip


def _answers(attack: Attack) -> bool:
    return attack.status in ("leased", "outside")
