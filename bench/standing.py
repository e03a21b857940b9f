"""What all jobs take of the cores, however few events come, and for each event more.

`infra.runtime.sizing` reads both: the first is what micro-batches cost by being there, the second
what grows with the rate, the other jobs' share of it included.
"""

from __future__ import annotations

from bench.event_to_alert import Load, loaded
from bench.measure import Report

FULL = (Load(200, 180), Load(4_000, 180))
QUICK = (Load(100, 40), Load(1_500, 40))


def run(quick: bool = False) -> Report:
    """The same driver, jobs and attacks at two rates."""
    return measured(*(QUICK if quick else FULL))


def measured(slow: Load, fast: Load) -> Report:
    """The report of two loads."""
    report = Report("standing", "make bench ONLY=standing")
    cores = []
    for one in (slow, fast):
        _, used = loaded(one)
        cores.append(used)
        report.add(f"all jobs at {one.per_second:,} events/s", [used], "cores")
    each = (cores[1] - cores[0]) / (fast.per_second - slow.per_second)
    report.add("an event more, all jobs", [each * 1e6], "CPU us")
    report.add("no events, all jobs", [cores[0] - each * slow.per_second], "cores")
    report.notes.append(
        f"driver, JVM and Python workers of `headgate up` over {slow.seconds} s at each rate, "
        "after all leases were known and a warm-up; every attack became its alert"
    )
    return report
