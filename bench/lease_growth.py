"""What job `sessions` pays in Python for its state as leases pile up that nobody touches.

Batches of five seconds over one bucket of `jobs.session_buckets`, its share of 10,000 to a million
leases; all buckets cost that many times as much. Measured is from blob to blob: reading the state,
taking in lines and heartbeat, writing it. Beside it the way of the release before, which read and
wrote all of a bucket; both must tell the same. What Spark takes to hand blobs over is not in it
(`make bench ONLY=tracker`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import mean

import msgspec

from bench.measure import Measure, Report
from bench.plot import save
from enrich.dhcp.lease_rules import ACK, SECOND_US, LeaseEvent, Segment
from enrich.dhcp.sessions_job import tracker_limits
from enrich.dhcp.state_encoding import MAGIC, WHOLE, StoredBucket, decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket
from infra.config.settings import JobSettings

JOBS = JobSettings()
LIMITS = tracker_limits(JOBS)
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
LEASE_SECONDS, RENEWED_AFTER = 4 * 3600, 2 * 3600
BATCH_SECONDS = 5
ROUND = LIMITS.sweep_us // SECOND_US // BATCH_SECONDS
"""So many batches bring one look at what is due; a repetition is their mean."""
START_US = 1_795_228_800 * SECOND_US
BAR = 0.2
"""The bar: of what the former way costs over the most leases."""

Step = Callable[[bytes, list[LeaseEvent], list[int]], tuple[bytes, list[Segment]]]


def run(quick: bool = False) -> Report:
    """Each size, both ways; then the slopes and the plot."""
    report = Report("lease_growth", "make bench ONLY=lease_growth")
    measures: dict[str, dict[int, Measure]] = {"in chunks": {}, "whole": {}}
    for size in SIZES[:3] if quick else SIZES:
        for name, measure in zip(measures, _measure(report, size, 2 if quick else 4), strict=True):
            measures[name][size] = measure
    for name, row in measures.items():
        _slope(report, name, row)
    _judge(measures)
    if not quick:
        _plot(report, measures)
    report.notes.append(
        "CPU of Python for all buckets; a batch has the lines of five seconds, at which each "
        "device renews after two hours."
    )
    return report


def in_chunks(
    blob: bytes, lines: list[LeaseEvent], finished: list[int]
) -> tuple[bytes, list[Segment]]:
    """As job `sessions` does it."""
    stored = StoredBucket(LIMITS, blob)
    segments = stored.load(lines, finished).advance(lines, finished)
    return stored.save(), segments


def whole(blob: bytes, lines: list[LeaseEvent], finished: list[int]) -> tuple[bytes, list[Segment]]:
    """As the release before did it."""
    state = decode_bucket(blob, LIMITS)
    segments = state.advance(lines, finished)
    return _in_one_list(state), segments


def _in_one_list(state: TrackerBucket) -> bytes:
    addresses = [(a.scope, a.ip, a.base, a.lines, a.painted_us) for a in state.addresses.values()]
    head = (state.known_at_us, state.finished_us, state.swept_us, state.last_rev)
    return MAGIC + bytes([WHOLE]) + msgspec.msgpack.encode((*head, addresses))


def _measure(report: Report, leases: int, rounds: int) -> list[Measure]:
    """Both ways over so many leases: the CPU of a batch, and the state's size."""
    here = leases // JOBS.session_buckets
    chance = Random(7)
    state = TrackerBucket(LIMITS)
    began = [_line(chance, n, n * RENEWED_AFTER / here) for n in range(here)]
    state.advance(began, [START_US + RENEWED_AFTER * SECOND_US])
    blobs = [encode_bucket(state), _in_one_list(state)]
    steps: tuple[Step, Step] = (in_chunks, whole)
    taken: list[list[float]] = [[], []]
    for batch in range(rounds * ROUND):
        second = RENEWED_AFTER + BATCH_SECONDS * batch
        share = here * BATCH_SECONDS / RENEWED_AFTER
        count = int(share) + (chance.random() < share % 1)
        # No device before its time: in the order in which they were given their addresses.
        first = round(batch * share)
        lines = [_line(chance, (first + n) % here, second + n * 0.01) for n in range(count)]
        finished = [START_US + (second + BATCH_SECONDS) * SECOND_US]
        both = []
        for way, step in enumerate(steps):
            before = time.process_time()
            blobs[way], segments = step(blobs[way], lines, finished)
            taken[way].append((time.process_time() - before) * JOBS.session_buckets)
            both.append(segments)
        if both[0] != both[1]:
            raise AssertionError(f"{leases:,} leases, batch {batch}: the two ways tell otherwise")
    measures = []
    for name, cpu, blob in zip(("in chunks", "whole"), taken, blobs, strict=True):
        where = f"{name}, {leases:,} leases"
        report.add(f"{where}: state", [len(blob) * JOBS.session_buckets / 1e6], "MB")
        means = [mean(cpu[n : n + ROUND]) for n in range(0, len(cpu), ROUND)]
        measures.append(report.add(f"{where}: a batch", means, "CPU-s"))
    return measures


def _line(chance: Random, device: int, second: float) -> LeaseEvent:
    """A device is given its address, or renews it."""
    us = START_US + int(second * SECOND_US)
    return LeaseEvent(
        event_uid=f"{chance.getrandbits(104):026x}",
        scope="default",
        ip=f"10.{device >> 16}.{device >> 8 & 255}.{device & 255}",
        mac=f"02:{Random(device).randbytes(5).hex(':')}",
        hostname=f"host-{device}",
        activity=ACK,
        time_us=us,
        received_us=us + 200_000,
        lease_seconds=LEASE_SECONDS,
        server="dhcp1",
    )


def _slope(report: Report, name: str, measures: dict[int, Measure]) -> None:
    """CPU seconds a batch gains for each million leases: the least-squares line of the medians."""
    points = [(size / 1e6, m.value) for size, m in measures.items() if m.value is not None]
    across = sum(x for x, _ in points) / len(points)
    up = sum(y for _, y in points) / len(points)
    spread = sum((x - across) ** 2 for x, _ in points)
    slope = sum((x - across) * (y - up) for x, y in points) / spread
    report.add(f"{name}: slope", [slope], "CPU-s a million leases")


def _judge(measures: dict[str, dict[int, Measure]]) -> None:
    """The bar, on the largest size."""
    most = max(measures["in chunks"])
    ours, former = measures["in chunks"][most], measures["whole"][most]
    ours.compared_with, ours.ratio = former.name, (ours.value or 0.0) / (former.value or 1.0)
    ours.bar, ours.met = f"<= {BAR:g}x", ours.ratio <= BAR


def _plot(report: Report, measures: dict[str, dict[int, Measure]]) -> None:
    """The figures as a picture for the documentation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, row in measures.items():
        axes.plot(list(row), [m.value or 0.0 for m in row.values()], marker="o", label=name)
    axes.set(xscale="log", xlabel="leases", ylabel="CPU seconds a batch", ylim=(0, None))
    axes.set_title("Job sessions: Python's share of a batch of five seconds")
    axes.legend()
    axes.grid(alpha=0.3)
    save(figure, report)
    pyplot.close(figure)
