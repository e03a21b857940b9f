"""A day in small: all jobs under load, maintenance and faults, and what must not grow meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

import psutil

from bench.lines import Sent, connection, grant, lookup, traversal
from bench.measure import Report
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from infra.runtime.job_status import read_status
from infra.spark.worker_daemon import is_daemon

SOURCES = ("isc_dhcpd", "zeek:dns", "zeek:conn", "zeek:http")
DEVICES = 2_000
ATTACKERS = 50
"""Devices that some rule alerts on: half of what a rule's budget lets out in an hour."""
SEED = 20261122
FLAT = 1.2
"""What a figure of the last third may be of that of the middle third; the first one warms up."""
ENVIRONMENT = {
    "HEADGATE_MAINTENANCE__MINUTES": "5",
    "HEADGATE_JOBS__QUALITY_MINUTES": "15",
}


@dataclass(frozen=True)
class Plan:
    """Seconds in all, messages a second, seconds between two looks and between two faults.

    `per_second`: 0.8 of what the machine carries, as `bench event_to_alert` finds it.
    """

    seconds: int
    per_second: int
    look_every: float
    fault_every: float
    settle: float = 600.0


FULL = Plan(7_200, 800, 15.0, 300.0)
QUICK = Plan(600, 300, 5.0, 90.0)
TINY = Plan(60, 20, 2.0, 20.0, 120.0)


@dataclass(frozen=True)
class Look:
    """What the platform holds at one moment. Bytes; seconds; counts."""

    heap: float
    workers: float
    threads: float
    handles: float
    checkpoints: float
    scratch: float
    planning: float


def run(quick: bool = False) -> Report:
    """The day, with its verdict on each figure."""
    return measured(QUICK if quick else FULL)


def measured(plan: Plan) -> Report:
    """The report of a plan."""
    report = Report("day", "make bench ONLY=day")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    try:
        settings = load(home=home / "home", kafka={"bootstrap": broker.address})
        ensure_topics(settings, SOURCES)
        day = Day(plan, settings, broker)
        day.live()
        _tell(report, plan, day)
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    return report


class Day:
    """Load, looks and faults. After it: what was seen, done and lost."""

    def __init__(self, plan: Plan, settings: Settings, broker: Broker) -> None:
        self.looks: list[Look] = []
        self.faults: list[str] = []
        self.sent = self.unaccounted = 0
        self._plan, self._settings, self._broker = plan, settings, broker
        self._chance = random.Random(SEED)

    def live(self) -> None:
        """From the first message to the last one's row."""
        plan = self._plan
        running = self._start()
        try:
            self._await_batch(running)
            with self._load():
                end = time.monotonic() + plan.seconds
                fault_at = time.monotonic() + plan.fault_every
                while time.monotonic() < end:
                    time.sleep(plan.look_every)
                    if running.ended is not None:
                        raise Fatal(f"the driver ended: {running.last_words()}")
                    self._look(running)
                    if time.monotonic() >= fault_at:
                        running = self._strike(running)
                        fault_at = time.monotonic() + plan.fault_every
            self.unaccounted = self._missing()
        finally:
            running.stop()

    def _start(self) -> PlatformProcess:
        return PlatformProcess("driver", ("up",), self._settings, environment=ENVIRONMENT)

    def _await_batch(self, running: PlatformProcess) -> None:
        end = time.monotonic() + self._plan.settle
        while read_status(self._settings).get("alert") is None:
            if running.ended is not None or time.monotonic() > end:
                raise Fatal(f"the driver does not come up: {running.last_words()}")
            time.sleep(0.5)

    def _look(self, running: PlatformProcess) -> None:
        """Note what there is, unless the driver is just starting."""
        found = read_status(self._settings)
        if found.get("ingest") is None or found["ingest"].pid != running.process.pid:
            return
        memory = found["ingest"].memory
        planning = [one.phases.get("queryPlanning", 0.0) for one in found.values()]
        processes = [psutil.Process(running.process.pid)]
        processes += processes[0].children(recursive=True)
        threads = handles = 0
        for process in processes:
            with suppress(psutil.Error):
                threads, handles = threads + process.num_threads(), handles + process.num_fds()
        self.looks.append(
            Look(
                heap=memory.heap_after_collection,
                workers=memory.workers,
                threads=threads,
                handles=handles,
                checkpoints=_bytes(self._settings.checkpoint_root),
                scratch=_bytes(self._settings.scratch_root),
                planning=sum(planning),
            )
        )

    def _strike(self, running: PlatformProcess) -> PlatformProcess:
        """A fault by chance; the driver that runs from then on."""
        fault = self._chance.choice(("worker", "broker hangs", "broker", "driver"))
        self.faults.append(fault)
        if fault == "worker":
            for process in psutil.Process(running.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if is_daemon(process.cmdline()):
                        process.kill()
        elif fault == "broker hangs" and self._broker.pid is not None:
            os.kill(self._broker.pid, signal.SIGSTOP)
            time.sleep(10)
            os.kill(self._broker.pid, signal.SIGCONT)
        elif fault == "broker":
            self._broker.kill()
            self._broker.start()
        else:
            running.kill()
            return self._start()
        return running

    @contextmanager
    def _load(self) -> Iterator[None]:
        """So many messages a second, in ten parts a second, for as long as inside."""
        stop, client = threading.Event(), producer(self._settings.kafka)

        def took(error: object, _: object) -> None:
            self.sent += error is None

        def drive() -> None:
            began, made = time.monotonic(), 0
            while not stop.wait(0.1):
                due = int((time.monotonic() - began) * self._plan.per_second)
                for number in range(made, due):
                    source, line = _message(number)
                    topic = topic_of(source, self._settings.kafka)
                    client.produce(topic, line, on_delivery=took)
                client.poll(0)
                made = due
            client.flush(120)

        thread = threading.Thread(target=drive, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(180)

    def _missing(self) -> int:
        """Messages without a row once all had time to get one."""
        end = time.monotonic() + self._plan.settle
        while (left := self.sent - self._accounted()) > 0 and time.monotonic() < end:
            time.sleep(2)
        return left

    def _accounted(self) -> int:
        connection_ = connect(self._settings.lake_root, needs=("silver.event", "bronze.record"))
        try:
            row = connection_.execute(
                # One that is there twice must not hide one that is lost.
                """SELECT count(DISTINCT record_id) FROM bronze.record WHERE record_id IN
                   (SELECT unnest(record_ids) FROM silver.event)"""
            ).fetchone()
        finally:
            connection_.close()
        return int(row[0]) if row else 0


def _message(number: int) -> Sent:
    now = time.time()
    # Counted by kind, so that each kind comes from all devices.
    if number % 50 == 0:
        device = _device(number // 50)
        mac = f"02:00:00:00:{device // 256:02x}:{device % 256:02x}"
        return grant(_address(device), mac, "host", now)
    if number % 500 == 1:
        return traversal(_address(number // 500 % ATTACKERS), number, now)
    address = _address(_device(number // 2))
    return lookup(address, number, now) if number % 2 else connection(address, number, now)


def _device(turn: int) -> int:
    """Whose turn it is: all have had one before a device has its second."""
    return turn * 7919 % DEVICES


def _address(device: int) -> str:
    return f"10.9.{device // 250}.{device % 250}"


def _bytes(folder: Path) -> int:
    """Size of all files below a folder; those that vanish meanwhile count nothing."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += os.stat(os.path.join(path, name)).st_size
    return found


def growth(values: Sequence[float]) -> float | None:
    """The last third against the middle one, medians; None where one of them tells nothing.

    Zeros tell nothing: before its first full collection the heap has no figure.
    """
    third = len(values) // 3
    before = [value for value in values[third : 2 * third] if value]
    after = [value for value in values[2 * third :] if value]
    return median(after) / median(before) if before and after else None


def _tell(report: Report, plan: Plan, day: Day) -> None:
    units: dict[str, tuple[str, Callable[[float], float]]] = {
        "heap": ("MB", lambda found: found / 2**20),
        "workers": ("MB", lambda found: found / 2**20),
        "checkpoints": ("MB", lambda found: found / 2**20),
        "scratch": ("MB", lambda found: found / 2**20),
        "planning": ("s", lambda found: found),
    }
    for one in fields(Look):
        unit, told = units.get(one.name, ("", lambda found: found))
        values = [told(getattr(look, one.name)) for look in day.looks]
        report.add(one.name, values, unit)
        ratio = growth(values)
        report.add(
            f"{one.name}: last third against the middle",
            [] if ratio is None else [ratio],
            "of it",
            bar=f"<= {FLAT}",
            met=None if ratio is None else ratio <= FLAT,
        )
    report.add("messages without a row", [day.unaccounted], "", bar="0", met=day.unaccounted == 0)
    report.notes.append(
        f"{plan.seconds} s at {plan.per_second} messages a second, {day.sent} taken by the broker; "
        f"faults: {', '.join(day.faults) or 'none'}; heap after its last full collection"
    )


if __name__ == "__main__":
    measured(TINY).finish(keep=False)
