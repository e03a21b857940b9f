"""From kill -9 of a driver to its first commits, with few and with many leases in the state."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.lines import grant, lookup
from bench.measure import Report, cut
from infra.config.settings import Settings, load
from infra.delta.catalog import table
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import newest_version
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess

SOURCES = ("isc_dhcpd", "zeek:dns")
COMMITS = {"ingest": "bronze.record", "sessions": "silver.dhcp_segment"}
"""Jobs whose first commit is waited for, and the table that shows it."""
ENVIRONMENT = {
    "HEADGATE_JOBS__QUALITY_MINUTES": "0",
    "HEADGATE_MAINTENANCE__MINUTES": "0",
}
AIM_SECONDS, AIM_SLOPE = 30.0, 0.1
PER_SECOND = 20
WAITING = 50_000
"""Most lines that wait in a producer."""


@dataclass(frozen=True)
class Plan:
    """Leases in the state of the two runs, kills of each, and the longest wait in seconds."""

    leases: tuple[int, int]
    kills: int
    longest: float = 900.0


FULL = Plan((10_000, 1_000_000), 50, 3600.0)
QUICK = Plan((2_000, 50_000), 5)
TINY = Plan((100, 1_000), 1)


def run(quick: bool = False) -> Report:
    """Both sizes, one after the other, each with a broker and a home of its own."""
    return measured(QUICK if quick else FULL)


def measured(plan: Plan) -> Report:
    """The report of a plan."""
    report = Report("recovery", "make bench ONLY=recovery")
    middles = []
    for leases in plan.leases:
        waits = _killed(leases, plan)
        whole = [max(one.values()) for one in waits]
        for job, name in COMMITS.items():
            report.add(f"{leases:,} leases: kill to first {name}", [w[job] for w in waits], "s")
        p95 = _p95(whole)
        report.add(
            f"{leases:,} leases: kill to first commit of both, p95",
            [p95],
            "s",
            bar=f"<= {AIM_SECONDS:.0f} s",
            met=p95 <= AIM_SECONDS,
        )
        middles.append(median(whole))
    slope = math.log(middles[1] / middles[0]) / math.log(plan.leases[1] / plan.leases[0])
    report.add(
        "slope with state",
        [slope],
        "log(seconds) a log(leases)",
        bar=f"<= {AIM_SLOPE}",
        met=slope <= AIM_SLOPE,
    )
    report.notes.append(
        f"{plan.kills} kills of `headgate up` with all jobs for each size, each at a moment after "
        f"its first commits, {PER_SECOND} messages a second going on; the clock runs from the kill "
        "to the first new commit of each table, start of Python and JVM included"
    )
    return report


def _p95(values: list[float]) -> float:
    return cut(values, 95) if len(values) > 1 else values[0]


def _killed(leases: int, plan: Plan) -> list[dict[str, float]]:
    """Seconds from each kill to the first commit, by job."""
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    waits: list[dict[str, float]] = []
    try:
        settings = load(home=home / "home", kafka={"bootstrap": broker.address})
        ensure_topics(settings, SOURCES)
        _grant(settings, leases)
        running = _start(settings)
        with _load(settings, leases):
            try:
                known = partial(_known, settings, leases)
                _until(running, known, plan, "the leases are known", 1.0)
                for _ in range(plan.kills):
                    running.kill()
                    killed_at, before = time.monotonic(), _versions(settings)
                    running = _start(settings)
                    waits.append(_first(running, settings, before, killed_at, plan))
            finally:
                running.stop()
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    return waits


def _start(settings: Settings) -> PlatformProcess:
    return PlatformProcess("driver", ("up",), settings, environment=ENVIRONMENT)


def _first(
    running: PlatformProcess,
    settings: Settings,
    before: Mapping[str, int],
    killed_at: float,
    plan: Plan,
) -> dict[str, float]:
    """Seconds until each of the tables has a commit that it had not `before`."""
    waits: dict[str, float] = {}

    def all_there() -> bool:
        for job, version in _versions(settings).items():
            if version > before[job]:
                waits.setdefault(job, time.monotonic() - killed_at)
        return len(waits) == len(COMMITS)

    _until(running, all_there, plan, "each job has committed")
    return waits


def _versions(settings: Settings) -> dict[str, int]:
    return {
        job: newest_version(settings.lake_root / table(name).path) for job, name in COMMITS.items()
    }


def _known(settings: Settings, leases: int) -> bool:
    """Whether job sessions has told of so many addresses."""
    if newest_version(settings.lake_root / table("silver.dhcp_segment").path) < 1:
        return False
    connection = connect(settings.lake_root, needs=("silver.dhcp_segment",))
    try:
        row = connection.execute("SELECT count(DISTINCT ip) FROM silver.dhcp_segment").fetchone()
        return row is not None and int(row[0]) >= leases
    finally:
        connection.close()


def _until(
    part: PlatformProcess, true: Callable[[], bool], plan: Plan, what: str, every: float = 0.05
) -> None:
    end = time.monotonic() + plan.longest
    while not true():
        if part.ended is not None or time.monotonic() > end:
            raise Fatal(f"{what}: not within {plan.longest:.0f} s; {part.last_words()}")
        time.sleep(every)


def _address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _mac(number: int) -> str:
    return "02:00:" + number.to_bytes(4, "big").hex(":")


def _grant(settings: Settings, leases: int) -> None:
    """A lease for each device, as of now."""
    client = producer(settings.kafka)
    for number in range(leases):
        source, line = grant(_address(number), _mac(number), f"host-{number}", time.time())
        client.produce(topic_of(source, settings.kafka), line)
        while len(client) > WAITING:  # its queue has an end
            client.poll(0.1)
    if client.flush(300):
        raise Fatal("the broker did not take all leases")


@contextmanager
def _load(settings: Settings, leases: int) -> Iterator[None]:
    """Renewals and lookups of the devices, for as long as inside."""
    stop, client = threading.Event(), producer(settings.kafka)

    def drive() -> None:
        number = 0
        while not stop.wait(1 / PER_SECOND):
            device, number = number * 7919 % leases, number + 1
            name = _address(device)
            made = (
                grant(name, _mac(device), f"host-{device}", time.time())
                if number % 4 == 0
                else lookup(name, number, time.time())
            )
            client.produce(topic_of(made[0], settings.kafka), made[1])
            client.poll(0)
        client.flush(30)

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


if __name__ == "__main__":
    measured(TINY).finish(keep=False)
