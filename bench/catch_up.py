"""After an outage at half load: how fast job ingest works off what waited, and at what memory.

The same outage for the governed pace, for fixed caps, and for none. Each has a broker and a
driver of its own; the load goes on while the driver catches up.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import Producer

from bench.lines import connection
from bench.measure import RESULTS, Report
from infra.config.settings import KafkaSettings, Settings, load
from infra.errors import Fatal, Retryable
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from infra.runtime.job_status import read_status
from infra.runtime.monitor import resident
from infra.streaming.kafka_offsets import OffsetReader as Offsets
from infra.streaming.kafka_offsets import kafka_checkpoint

SOURCE = "zeek:conn"
ADAPTIVE, NO_CAP = "adaptive", "no cap"
NORMAL = 1.5
"""Latency is back to normal below so many times what it was before the outage."""


@dataclass(frozen=True)
class Plan:
    """Seconds of each phase, messages that calibrate, and the fixed caps beside ours.

    `patience`: seconds in which what waits must become less, else it does not catch up. The
    largest batch must fit into it. `limit`: seconds after which its drain is known well enough,
    caught up or not.
    """

    steady: int
    outage: int
    calibrate: int
    caps: tuple[int, ...]
    patience: float = 300.0
    limit: float = 900.0


FULL = Plan(steady=120, outage=600, calibrate=200_000, caps=(2_000, 10_000, 50_000, 200_000))
QUICK = Plan(
    steady=40, outage=180, calibrate=60_000, caps=(10_000, 100_000), patience=120.0, limit=240.0
)
TINY = Plan(steady=8, outage=8, calibrate=5_000, caps=(2_000,), patience=120.0)


@dataclass(frozen=True)
class Look:
    """One second of a run. `seconds` since the driver was started after the outage; negative:
    before it. Bytes; messages; `late`: seconds between now and what is complete."""

    seconds: float
    lag: int
    memory: int
    batch: int | None
    rows: int | None
    cap: int | None
    late: float | None


@dataclass
class Outcome:
    """What a variant came to."""

    name: str
    waited: int = 0
    """Messages that waited when its query was started after the outage."""
    drained: float = 0.0
    """Messages a second from then until it had caught up, its first batch included."""
    seconds: float = 0.0
    """How long that took."""
    steady_memory: int = 0
    peak_memory: int = 0
    normal_after: int | None = None
    """Batches after catching up until the latency was normal again."""
    carries: bool = False
    """Whether it kept up with the load before the outage."""
    caught_up: bool = False
    looks: list[Look] = field(default_factory=list)


def run(quick: bool = False) -> Report:
    """Ours, no cap and a sweep of fixed caps."""
    return measured(QUICK if quick else FULL)


def measured(plan: Plan) -> Report:
    """The report of a plan."""
    report = Report("catch_up", "make bench ONLY=catch_up")
    capacity = _capacity(plan)
    report.add("capacity, adaptive", [capacity], "messages/s")
    variants = [ADAPTIVE, NO_CAP, *(f"cap {cap}" for cap in plan.caps)]
    done: list[Outcome] = []
    for name in variants:
        done.append(_variant(name, plan, capacity / 2))
        if plan is FULL:  # only what it gives is kept, each variant as soon as it is there
            curves = {one.name: [asdict(look) for look in one.looks] for one in done}
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "catch_up_curves.json").write_text(json.dumps(curves) + "\n")
    _tell(report, plan, done)
    if plan is FULL:
        _draw(done, RESULTS / "catch_up.png")
    return report


@contextmanager
def _plant(variant: str) -> Iterator[tuple[Settings, dict[str, str]]]:
    """A broker and the settings of a variant, as the driver's environment has them."""
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    environment = {}
    if variant != ADAPTIVE:
        cap = "100000000" if variant == NO_CAP else variant.removeprefix("cap ")
        environment = {
            "HEADGATE_JOBS__ADAPTIVE": "false",
            "HEADGATE_JOBS__MAX_OFFSETS_PER_BATCH": cap,
        }
    environment |= {"HEADGATE_JOBS__QUALITY_MINUTES": "0", "HEADGATE_MAINTENANCE__MINUTES": "0"}
    try:
        settings = load(home=home / "home", kafka={"bootstrap": broker.address})
        ensure_topics(settings, (SOURCE,))
        yield settings, environment
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _capacity(plan: Plan) -> float:
    """Messages a second that ingest works off with nothing else to do, start-up left out."""
    with _plant(ADAPTIVE) as (settings, environment):
        _send(settings, plan.calibrate)
        with _driver(settings, environment) as driver:
            _until(driver, settings, plan, lambda left: left == 0)
            began = time.monotonic()
            _send(settings, plan.calibrate)
            _until(driver, settings, plan, lambda left: left == 0)
            return plan.calibrate / (time.monotonic() - began)


def _variant(name: str, plan: Plan, rate: float) -> Outcome:
    outcome = Outcome(name)
    with _plant(name) as (settings, environment), _load(settings, rate):
        with _driver(settings, environment) as driver:
            try:
                _until(driver, settings, plan, lambda left: _begun(settings) and left < 2 * rate)
            except Fatal:
                return outcome
            outcome.carries = True
            _watch(outcome, driver, settings, -float(plan.steady), plan.steady)
        steady = [look for look in outcome.looks if look.memory]
        outcome.steady_memory = int(median(look.memory for look in steady)) if steady else 0
        time.sleep(plan.outage)
        with _driver(settings, environment) as driver:
            _catch_up(outcome, driver, settings, plan, rate)
    return outcome


def _catch_up(
    outcome: Outcome, driver: PlatformProcess, settings: Settings, plan: Plan, rate: float
) -> None:
    """Watch until it has caught up, and a little longer for the latency after."""
    start, launched = time.monotonic(), time.time()
    _until(driver, settings, plan, lambda _: _started(settings, launched))
    began, outcome.waited = time.monotonic(), _left(settings)
    waits = _Waits(plan.patience)
    took = 0.0
    while (left := _left(settings)) > 2 * rate and took < plan.limit:
        if not waits.less(left) or driver.ended is not None:
            break  # as with a batch larger than the machine: that is a result too, of this variant
        _watch(outcome, driver, settings, time.monotonic() - start, 1)
        took = time.monotonic() - began
    outcome.caught_up, outcome.seconds = left <= 2 * rate, took
    outcome.drained = max(0.0, (outcome.waited - left + took * rate) / max(took, 0.001))
    caught_up = len(outcome.looks)
    _watch(outcome, driver, settings, time.monotonic() - start, plan.steady)
    outcome.peak_memory = max((one.memory for one in outcome.looks if one.seconds > 0), default=0)
    outcome.normal_after = _normal_after(outcome.looks, caught_up)


def _started(settings: Settings, launched: float) -> bool:
    """Whether the query runs, in a driver that was launched then: Spark's start-up is behind it."""
    status = read_status(settings).get("ingest")
    return status is not None and status.started_at > launched


def _normal_after(looks: Sequence[Look], caught_up: int) -> int | None:
    """How many batches after `caught_up` the latency was what it had been; None: never."""
    usual = [look.late for look in looks if look.seconds < 0 and look.late is not None]
    after = looks[caught_up:]
    if not usual or not after:
        return None
    first = after[0].batch or 0
    for look in after:
        if look.late is not None and look.late <= NORMAL * median(usual) + 1:
            return (look.batch or 0) - first
    return None


def _watch(
    outcome: Outcome, driver: PlatformProcess, settings: Settings, at: float, seconds: float
) -> None:
    """A look each second."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        status = read_status(settings).get("ingest")
        late = status.arrival_time_lag(time.time()) if status else None
        outcome.looks.append(
            Look(
                seconds=round(at + time.monotonic() - began, 1),
                lag=_left(settings),
                memory=_workers(driver) + (status.memory.heap_after_collection if status else 0),
                batch=status.batch if status else None,
                rows=status.rows if status else None,
                cap=status.cap if status else None,
                late=late,
            )
        )
        time.sleep(1.0)


def _workers(driver: PlatformProcess) -> int:
    """What the driver's Python workers hold, bytes resident."""
    try:
        return resident(psutil.Process(driver.process.pid))[1]
    except psutil.Error:
        return 0


@cache
def _offsets(bootstrap: str) -> Offsets:
    """One client a broker: each has threads of its own."""
    return Offsets(KafkaSettings(bootstrap=bootstrap))


def _left(settings: Settings, patience: float = 20.0) -> int:
    """Messages that wait, ticks aside, by the newest batch Spark has noted as done."""
    place = (topic_of(SOURCE, settings.kafka), 0)
    try:
        there = _offsets(settings.kafka.bootstrap).held([place])[place]
    except Retryable:  # a topic that was just made has no leader yet
        if patience <= 0:
            raise
        time.sleep(0.5)
        return _left(settings, patience - 0.5)
    return there.end - kafka_checkpoint(settings.checkpoint_root / "ingest").offsets.get(place, 0)


def _until(
    driver: PlatformProcess, settings: Settings, plan: Plan, true: Callable[[int], bool]
) -> int:
    """Wait until it holds of the messages that wait; how many do then."""
    waits = _Waits(plan.patience)
    while True:
        left = _left(settings)
        if true(left):
            return left
        if driver.ended is not None or not waits.less(left):
            raise Fatal(f"ingest did not get on: {driver.last_words()}")
        time.sleep(0.2)


def _begun(settings: Settings) -> bool:
    """Whether a batch is in; before, little waits only because the load has just begun."""
    status = read_status(settings).get("ingest")
    return status is not None and status.batch is not None


class _Waits:
    """Whether what waits still becomes less."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._least: float = math.inf
        self._at = time.monotonic()

    def less(self, left: int) -> bool:
        """False once it has not been less than ever before for so many seconds."""
        now = time.monotonic()
        if left < self._least:
            self._least, self._at = left, now
        return now - self._at < self._patience


@contextmanager
def _driver(settings: Settings, environment: dict[str, str]) -> Iterator[PlatformProcess]:
    part = PlatformProcess("driver", ("run", "ingest"), settings, environment=environment)
    try:
        yield part
    finally:
        part.stop()


def _send(settings: Settings, count: int) -> None:
    client = producer(settings.kafka)
    topic = topic_of(SOURCE, settings.kafka)
    for number in range(count):
        _put(client, topic, number)
        if number % 1_000 == 0:
            client.poll(0)
    client.flush(120)


def _put(client: Producer, topic: str, number: int) -> None:
    """Hand over a message as soon as the client has room for it."""
    while True:
        try:
            return client.produce(topic, _line(number))
        except BufferError:
            client.poll(0.1)


def _line(number: int) -> bytes:
    return connection(f"10.20.{number // 250 % 250}.{number % 250}", number, time.time())[1]


@contextmanager
def _load(settings: Settings, rate: float) -> Iterator[None]:
    """So many messages a second, in ten parts a second, for as long as inside."""
    stop = threading.Event()
    client = producer(settings.kafka)
    topic = topic_of(SOURCE, settings.kafka)

    def drive() -> None:
        began, sent = time.monotonic(), 0
        while not stop.wait(0.1):
            due = int((time.monotonic() - began) * rate)
            for number in range(sent, due):
                _put(client, topic, number)
            client.poll(0)
            sent = due
        client.flush(30)

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def _tell(report: Report, plan: Plan, done: Sequence[Outcome]) -> None:
    ours, *others = done
    fixed = [one for one in others if one.name != NO_CAP and one.drained]
    best = max(fixed, key=lambda one: one.drained, default=None)
    for one in done:
        if not one.carries:
            report.notes.append(f"{one.name}: does not keep up with the load, without any outage")
            continue
        report.add(f"drain, {one.name}", [one.drained], "messages/s")
        if one.caught_up:
            report.add(f"caught up, {one.name}", [one.seconds], "s after the query's start")
        report.add(f"peak memory, {one.name}", [one.peak_memory / 2**20], "MB")
        if not one.caught_up:
            report.notes.append(f"{one.name}: had not caught up in the time it was given")
    if best is not None and best.drained:
        ratio = ours.drained / best.drained
        report.add(
            "drain against the best fixed cap",
            [ratio],
            "of it",
            compared_with=best.name,
            ratio=round(ratio, 3),
            bar=">= 0.9",
            met=ratio >= 0.9,
        )
    if ours.steady_memory:
        ratio = ours.peak_memory / ours.steady_memory
        report.add(
            "memory while catching up",
            [ratio],
            "of steady",
            compared_with="adaptive, steady",
            ratio=round(ratio, 3),
            bar="<= 1.2",
            met=ratio <= 1.2,
        )
    after = ours.normal_after
    report.add(
        "batches until the latency is normal",
        [] if after is None else [float(after)],
        "batches",
        bar="<= 10",
        met=after is not None and after <= 10,
    )
    report.notes.append(
        f"outage of {plan.outage} s at half of the measured capacity; memory is the workers' "
        "resident bytes and the heap's after its last full collection"
    )


def _draw(done: Sequence[Outcome], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(9, 12), sharex=True)
    series: dict[str, Callable[[Look], float | None]] = {
        "messages waiting": lambda look: look.lag,
        "rows in the newest batch": lambda look: look.rows,
        "memory, MB": lambda look: look.memory / 2**20,
        "seconds behind": lambda look: look.late,
    }
    for axis, (label, value) in zip(axes, series.items(), strict=True):
        for one in done:
            after = [look for look in one.looks if look.seconds > 0]
            axis.plot(
                [look.seconds for look in after], [value(look) for look in after], label=one.name
            )
        axis.set_ylabel(label)
    axes[0].legend(fontsize="small")
    axes[-1].set_xlabel("seconds since the driver was started again")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    measured(TINY).finish(keep=False)
