"""Job ingest on a Spark standalone cluster: two workers of one core against one.

The same messages, worked off as one batch. Master, driver, broker and workers share the machine, so
what a second worker brings depends on the cores that were free; they are told with the result.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import psutil
from confluent_kafka.cimpl import NewTopic

from bench.lines import connection
from bench.measure import Report
from bench.standalone import standalone
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Fatal
from infra.kafka.client import Broker, admin, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess

SOURCE = "zeek:conn"
PARTITIONS = 8
ENOUGH_CORES = 4
"""With fewer, driver, broker and two workers are in each other's way, and no bar is set."""
BAR = 1.6
REPETITIONS = 3
START = 1_800_000_000.0


def run(quick: bool = False) -> Report:
    """One worker and two, in turns."""
    report = Report("scale_out", "make bench ONLY=scale_out")
    messages, repetitions = (20_000, 1) if quick else (400_000, REPETITIONS)
    free = [_free()]
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for workers, found in rates.items():
            found.append(messages / _seconds(workers, messages))
            free.append(_free())
    one = report.add("one worker of one core", rates[1], "messages/s")
    two = report.add("two workers of one core each", rates[2], "messages/s")
    if one.value and two.value:
        two.compared_with, two.ratio = one.name, two.value / one.value
    cores = psutil.cpu_count() or 1
    if cores >= ENOUGH_CORES and two.ratio is not None:
        two.bar, two.met = f">= {BAR}x", two.ratio >= BAR
    report.add("cores that were free before each run", free, f"of {cores}")
    report.notes.append(
        f"{messages:,} messages of {SOURCE} in {PARTITIONS} partitions, one batch, with detection; "
        f"time: of that batch, by ops.ledger; a bar is set from {ENOUGH_CORES} cores up"
    )
    return report


def _free() -> float:
    """Cores that nothing used for a second."""
    idle: float = psutil.cpu_times_percent(1.0).idle
    return idle / 100 * (psutil.cpu_count() or 1)


def _seconds(workers: int, messages: int) -> float:
    """How long the batch takes on so many workers."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(folder / "kafka", free_port()).start()
    try:
        settings = load(home=folder / "home", kafka={"bootstrap": broker.address})
        _feed(settings, messages)
        with standalone(folder, workers, cores=1, memory="3g") as cluster:
            conf = {"spark.executor.memory": "1g", "spark.executor.cores": "1"}
            environment = {
                "HEADGATE_SPARK__MASTER": cluster.master,
                "HEADGATE_SPARK__SMALL": "false",
                "HEADGATE_SPARK__CONF": json.dumps(conf),
                "HEADGATE_JOBS__ADAPTIVE": "false",
            }
            part = PlatformProcess(
                "driver", ("run", "ingest", "--once"), settings, environment=environment
            )
            if part.process.wait(1800) != 0:
                raise Fatal(f"job ingest on {workers} workers: {part.last_words()}")
            took = [len(cluster.executors(worker)) for worker in range(workers)]
            if not all(took):
                raise Fatal(f"executors by worker: {took}; not all took part")
        return _batch(settings, messages)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _batch(settings: Settings, messages: int) -> float:
    """Seconds of the batch that read all messages, from the ledger."""
    found = connect(settings.lake_root).execute(
        "SELECT rows_read, epoch(finished_at) - epoch(started_at) FROM ops.ledger "
        "WHERE job = 'ingest' ORDER BY rows_read DESC"
    )
    rows, seconds = found.fetchone() or (0, 0.0)
    if rows < messages:
        raise Fatal(f"the largest batch read {rows} of {messages} messages")
    return float(seconds)


def _feed(settings: Settings, messages: int) -> None:
    client = admin(settings.kafka)
    topic = NewTopic(
        topic_of(SOURCE, settings.kafka),
        num_partitions=PARTITIONS,
        config={"message.timestamp.type": "LogAppendTime"},
    )
    for made in client.create_topics([topic]).values():
        made.result(20)
    ensure_topics(settings, [SOURCE])
    sender = producer(settings.kafka, **{"queue.buffering.max.messages": 1_000_000})
    for number in range(messages):
        _, raw = connection(f"10.80.{number % 200}.7", number, START + number / 1000)
        sender.produce(topic.topic, raw, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            sender.poll(0)
    if sender.flush(120):
        raise Fatal("not all messages were taken")
