"""From an event to its alert on the topic, with all jobs running on this machine."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message, Producer

from alerts.delivery.topic_listener import Listener, TopicMessage
from bench.lines import Sent, connection, grant, lookup, traversal
from bench.measure import Report, cpu_seconds, cut
from bench.reference import Reference, reference
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import HeadgateError
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess

WARM_SECONDS = 45
ALERTING_LEASED = 2
"""Path traversals a second by leased devices, each device once."""
NONE_EVERY = 5
"""Seconds between two from an inside address that nobody leased."""
PUBLIC = 750
"""Addresses of the three networks kept for documentation; then none attacks from outside."""
SLOTS = 20
"""A second is sent in so many parts, so that the load is even."""
LAST_SECONDS = 180.0
"""Longest wait for the last alert after the last event was sent."""
SEED = 20261121
SOURCES = ("isc_dhcpd", "zeek:dns", "zeek:conn", "zeek:http")
UNBOUNDED = {"HEADGATE_ALERTS__HOURLY_BUDGET": "1000000"}
"""One rule gives all alerts here: its budget would keep most of them off the topic."""
RULE = "Path traversal in an HTTP request"


@dataclass(frozen=True)
class Load:
    """How much is sent, for how long; `seconds` are measured, after the warm-up.

    `then`: steps behind it, each a rate and its seconds.
    """

    per_second: int
    seconds: int
    then: tuple[tuple[int, int], ...] = ()

    @property
    def total(self) -> int:
        """Seconds in which events are sent."""
        return self.seconds + WARM_SECONDS + sum(seconds for _, seconds in self.then)

    def rate_in(self, second: int) -> int:
        """Events a second, so long after the first event."""
        ends = self.seconds + WARM_SECONDS
        for rate, seconds in self.then:
            if ends <= second < ends + seconds:
                return rate
            ends += seconds
        return self.per_second


@dataclass
class Attack:
    """One event that must become an alert. `sent_at`: its own time, epoch seconds."""

    status: str
    sent_at: float
    counted: bool
    appended_at: float | None = None
    seen_at: float | None = None
    told: str = ""


@dataclass
class Run:
    """What was sent and what came of it, by the address that attacked."""

    load: Load
    attacks: dict[str, Attack] = field(default_factory=dict)
    delivered: int = 0
    failed: list[str] = field(default_factory=list)
    behind: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, heard: TopicMessage) -> None:
        """Note the first revision of the alert that an attack became."""
        seen, body = time.time(), heard.body
        with self.lock:
            attack = self.attacks.get(str((body.get("attribution") or {}).get("ip")))
            first = body["revision"] == 1 and body["rule"]["name"] == RULE
            if attack and first and attack.appended_at is None:
                attack.appended_at, attack.seen_at = heard.appended_at, seen
                attack.told = str(body["attribution"]["status"])

    def missing(self) -> list[str]:
        """Addresses whose alert has not come."""
        with self.lock:
            return [ip for ip, attack in self.attacks.items() if attack.appended_at is None]


def run(quick: bool = False) -> Report:
    """500 events/s for 5 minutes after a warm-up; alerts are read from the topic.

    Before and behind it, on the same machine at the same rate, the stock queries of
    `bench.reference`: seconds of two days do not compare, their ratio does.
    """
    report = Report("event_to_alert", "make bench ONLY=event_to_alert")
    load_, seconds = (Load(200, 60), 30) if quick else (Load(500, 300), 120)
    before = reference(load_.per_second, seconds)
    done, cores = loaded(load_)
    after = reference(load_.per_second, seconds)
    _tell(report, done, cores)
    _tell_reference(report, done, [before, after], seconds)
    return report


def loaded(
    load_: Load,
    look: Callable[[Settings], None] = lambda _: None,
    beside: Callable[[Settings], AbstractContextManager[None]] = lambda _: nullcontext(),
    *,
    environment: Mapping[str, str] | None = None,
    hearing: Callable[[Settings], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[Run, float]:
    """All jobs under a load, until every alert has come; what was sent, and the driver's cores.

    `look`: what else is to be read of the tables, when all is through; `beside`: what goes on
    while the load is sent; `hearing`: until every alert has come. `environment`: of the driver,
    besides.
    """
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    settings = load(home=home / "home", kafka={"bootstrap": broker.address})
    done = Run(load_)
    try:
        ensure_topics(settings, SOURCES)
        more = {**UNBOUNDED, **(environment or {})}
        driver = PlatformProcess("driver", ("up",), settings, environment=more)
        try:
            with Listener(settings, done.hear), hearing(settings):
                cores = _drive(settings, driver, done, beside)
            look(settings)
        finally:
            driver.stop()
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    return done, cores


def _drive(
    settings: Settings,
    driver: PlatformProcess,
    done: Run,
    beside: Callable[[Settings], AbstractContextManager[None]],
) -> float:
    """Leases, then the load, then the wait for the last alert; returns the driver's cores."""
    client = producer(settings.kafka)
    devices = done.load.total * ALERTING_LEASED
    for number in range(devices):
        _send(client, settings, done, grant(*_device(number), time.time()))
    client.flush(30)
    _await_leases(settings, driver, devices)
    with beside(settings):
        cores = _send_load(client, settings, driver, done)
    client.flush(60)
    if done.failed:
        raise AssertionError(f"{len(done.failed)} messages were not taken: {done.failed[0]}")
    end = time.monotonic() + LAST_SECONDS
    while done.missing() and time.monotonic() < end:
        _alive(driver)
        time.sleep(0.5)
    missing = done.missing()
    if missing:
        raise AssertionError(
            f"{len(missing)} of {len(done.attacks)} expected alerts did not come, "
            f"such as that of {missing[0]} ({done.attacks[missing[0]].status})"
        )
    return cores


def _await_leases(
    settings: Settings, driver: PlatformProcess, devices: int, seconds: float = 600
) -> None:
    """Wait until every lease is known, so that the measure is not of the start."""
    end = time.monotonic() + seconds
    known = 0
    while known < devices:
        _alive(driver)
        if time.monotonic() > end:
            raise AssertionError(f"{known} of {devices} leases are known after {seconds:.0f} s")
        time.sleep(1.0)
        known = _known_leases(settings)


def _known_leases(settings: Settings) -> int:
    try:
        lake = connect(settings.lake_root, needs=("silver.dhcp_segment",))
    except HeadgateError:
        return 0
    try:
        found = lake.execute(
            "SELECT count(DISTINCT ip) FROM silver.dhcp_segment WHERE mac IS NOT NULL"
        ).fetchone()
    finally:
        lake.close()
    return int(found[0]) if found else 0


def _send_load(client: Producer, settings: Settings, driver: PlatformProcess, done: Run) -> float:
    """Send at an even pace; returns the cores the driver used while it was measured."""
    began, used, since = time.monotonic(), 0.0, time.monotonic()
    for slot, lines in enumerate(_slots(done)):
        late = time.monotonic() - began - slot / SLOTS
        done.behind = max(done.behind, late)
        if late < 0:
            time.sleep(-late)
        if slot == WARM_SECONDS * SLOTS:
            used, since = cpu_seconds(driver.process.pid), time.monotonic()
        for line in lines:
            _send(client, settings, done, line)
        _alive(driver)
    return (cpu_seconds(driver.process.pid) - used) / (time.monotonic() - since)


def _slots(done: Run) -> Iterator[Iterator[Sent]]:
    """The lines of each slot, made when they are taken, so that they carry that moment."""
    chance = random.Random(SEED)
    counter = 0
    for second in range(done.load.total):
        attacks = _attacks(second)
        places = [chance.randrange(SLOTS) for _ in attacks]
        for slot in range(SLOTS):
            mine = [attack for attack, place in zip(attacks, places, strict=True) if place == slot]
            rate = done.load.rate_in(second)
            size = (rate * (slot + 1)) // SLOTS - (rate * slot) // SLOTS
            # At 0 a second attacks are all there is.
            size = max(size, len(mine))
            yield _lines(done, second, mine, size, counter, chance)
            counter += size


def _attacks(second: int) -> list[tuple[str, str]]:
    """Addresses that attack in a second, and what is to be said of their owner. Each is new."""
    found = [(_device(second * ALERTING_LEASED + n)[0], "leased") for n in range(ALERTING_LEASED)]
    if second < PUBLIC:
        found.append((_public(second), "outside"))
    if second % NONE_EVERY == 0:
        found.append((f"10.200.{second // 250}.{second % 250 + 1}", "none"))
    return found


def _lines(
    done: Run,
    second: int,
    attacks: Sequence[tuple[str, str]],
    size: int,
    counter: int,
    chance: random.Random,
) -> Iterator[Sent]:
    """One slot: its attacks, and lookups, connections and renewals of leased devices."""
    devices = done.load.total * ALERTING_LEASED
    for n in range(size):
        number, now = counter + n, time.time()
        if n < len(attacks):
            address, status = attacks[n]
            with done.lock:
                done.attacks[address] = Attack(status, now, second >= WARM_SECONDS)
            yield traversal(address, number, now)
            continue
        device = chance.randrange(devices)
        if number % 100 == 0:
            yield grant(*_device(device), now)
        else:
            make = lookup if number % 3 else connection
            yield make(_device(device)[0], number, now)


def _device(number: int) -> tuple[str, str, str]:
    """Address, hardware address and name of a device."""
    mac = f"02:00:00:09:{number // 256:02x}:{number % 256:02x}"
    return f"10.9.{10 + number // 250}.{number % 250 + 1}", mac, f"host-{number}"


def _public(number: int) -> str:
    """An address of the three networks kept for documentation."""
    network = ("192.0.2", "198.51.100", "203.0.113")[number // 250 % 3]
    return f"{network}.{number % 250 + 1}"


def _send(client: Producer, settings: Settings, done: Run, line: Sent) -> None:
    source, raw = line

    def delivered(error: object, message: Message) -> None:
        if error is None:
            done.delivered += 1
        else:
            done.failed.append(str(error))

    client.produce(topic_of(source, settings.kafka), raw, on_delivery=delivered)
    client.poll(0)


def _alive(driver: PlatformProcess) -> None:
    if driver.ended is not None:
        raise AssertionError(f"the driver ended ({driver.ended}): {driver.last_words(10)}")


def _tell(report: Report, done: Run, cores: float) -> None:
    attacks = list(done.attacks.values())
    counted = [one for one in attacks if one.counted]
    known = _known(done)
    _delays(report, "lease known or outside", known, {"p50": 5.0, "p99": 10.0})
    for status in ("leased", "outside", "none"):
        _delays(report, status, [one for one in counted if one.status == status], {})
    seen = [one.seen_at - one.sent_at for one in known if one.seen_at is not None]
    report.add("lease known or outside, seen by a consumer, p50", [cut(seen, 50)], "s")
    report.add("CPU of the driver while measured", [cores], "cores")
    report.add("longest the sender ran behind", [done.behind], "s")
    came = sum(one.appended_at is not None for one in attacks)
    report.add(
        "alerts that came", [came], f"of {len(attacks)}", bar="all", met=came == len(attacks)
    )
    other = [one for one in attacks if one.told != one.status]
    report.add(
        "first revisions with another status than expected", [len(other)], f"of {len(attacks)}",
        bar="0", met=not other,
    )  # fmt: skip
    report.notes += [
        f"{done.load.per_second} events/s for {done.load.seconds} s, {done.delivered} messages in "
        f"all; before that {WARM_SECONDS} s of the same load as warm-up, whose {len(attacks)} - "
        f"{len(counted)} = {len(attacks) - len(counted)} alerts must come too but are not timed",
        "delay: the event's own time, which is when it is sent, to the append time of the alert's "
        "first revision on the topic; one broker, one driver with all jobs and its default "
        "settings, and the sender, all on this machine",
        "'none' waits by design until no lease can come any more (jobs.wait_seconds)",
        f"timed: {_counts(counted)}; every attack is by an address of its own, so none is folded",
    ]


def _tell_reference(
    report: Report, done: Run, references: Sequence[Reference], seconds: int
) -> None:
    ours = _waits(_known(done))
    for percent in (50, 95, 99):
        stock = report.add(
            f"stock queries, p{percent}", [cut(each.delays, percent) for each in references], "s"
        )
        if stock.value:
            ratio = cut(ours, percent) / stock.value
            report.add(
                f"lease known or outside beside them, p{percent}", [cut(ours, percent)], "s",
                compared_with=stock.name, ratio=ratio, bar="<= 0.5x", met=ratio <= 0.5,
            )  # fmt: skip
    report.add("CPU of Spark, stock queries", [each.cores for each in references], "cores")
    report.notes.append(
        f"stock queries: `bench/reference.py`, Kafka to Delta to Kafka, {seconds} s before and "
        f"{seconds} s behind; they keep no lease, parse nothing and send what matches a text"
    )


def _known(done: Run) -> list[Attack]:
    return [
        one for one in done.attacks.values() if one.counted and one.status in ("leased", "outside")
    ]


def _waits(attacks: Sequence[Attack]) -> list[float]:
    return [one.appended_at - one.sent_at for one in attacks if one.appended_at is not None]


def _delays(report: Report, name: str, attacks: Sequence[Attack], bars: dict[str, float]) -> None:
    waits = _waits(attacks)
    for percent in (50, 95, 99):
        value = cut(waits, percent)
        bar = bars.get(f"p{percent}")
        more = {"bar": f"<= {bar:.0f} s", "met": value <= bar} if bar else {}
        report.add(f"{name}, p{percent}", [value], "s", **more)


def _counts(attacks: Sequence[Attack]) -> str:
    by_status = Counter(one.status for one in attacks)
    return ", ".join(f"{count} {status}" for status, count in sorted(by_status.items()))
