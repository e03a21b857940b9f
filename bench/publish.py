"""What it costs to publish alerts: topics forced to disk with each write, and left to the broker.

Transactions as the publisher makes them (alerts, their state, its place), in turns.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from confluent_kafka.cimpl import NewTopic

from bench.measure import Report
from infra.config.settings import KafkaSettings
from infra.kafka.client import ON_DISK, Broker, admin, free_port, producer

WAYS: Mapping[str, Mapping[str, str]] = {"left to the broker": {}, "forced to disk": ON_DISK}
BODY, STATE = b"x" * 2_000, b"y" * 500
SECONDS = 30


def run(quick: bool = False) -> Report:
    """One revision a transaction, and twenty."""
    report = Report("publish", "make bench ONLY=publish")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    try:
        for revisions in (1, 20):
            _compare(report, KafkaSettings(bootstrap=broker.address), revisions, 2 if quick else 6)
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    return report


def _compare(report: Report, kafka: KafkaSettings, revisions: int, rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, config in WAYS.items():
            took[name] += _published(
                kafka, f"{revisions}-{number}-{len(config)}", config, revisions
            )
    plain, forced = (median(times) for times in took.values())
    for name, times in took.items():
        report.add(f"{revisions} a transaction, {name}", [median(times)], "ms")
        p95 = sorted(times)[int(len(times) * 0.95)]
        report.add(f"{revisions} a transaction, {name}, p95", [p95], "ms")
    ratio = round(forced / plain, 3)
    named = {"compared_with": "left to the broker", "ratio": ratio}
    report.add(f"{revisions} a transaction", [ratio], "of it", **named)


def _published(
    kafka: KafkaSettings, tag: str, config: Mapping[str, str], revisions: int
) -> list[float]:
    """Milliseconds of each of a hundred transactions; twenty before them warm up."""
    alerts, state, place = (f"{kind}.{tag}" for kind in ("alerts", "state", "place"))
    partitions = {alerts: 3, state: 3, place: 1}
    client = admin(kafka)
    made = client.create_topics(
        [NewTopic(topic, num_partitions=n, config=dict(config)) for topic, n in partitions.items()]
    )
    for answer in made.values():
        answer.result(SECONDS)
    out = producer(kafka, **{"transactional.id": tag})
    out.init_transactions(SECONDS)
    took = []
    for number in range(120):
        began = time.perf_counter()
        out.begin_transaction()
        for each in range(revisions):
            key = f"{number}-{each}".encode()
            out.produce(alerts, key=key, value=BODY)
            out.produce(state, key=key, value=STATE)
        out.produce(place, key=b"place", value=str(number).encode())
        out.commit_transaction(SECONDS)
        took.append((time.perf_counter() - began) * 1_000)
    return took[20:]
