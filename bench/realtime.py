"""One stateless rule from Kafka to Kafka: Spark's micro-batches beside its real-time mode.

The same query twice, only its trigger differs: a line that matches goes to another topic. Neither
writes a table, keeps a session or decides anything once: it is the floor under what our jobs do.
Source: "Real-time Mode", Structured Streaming Programming Guide of Spark 4.2.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.measure import Report, cpu_by_process, cpu_since
from infra.config.settings import KafkaSettings, load
from infra.kafka.client import Broker, admin, client_options, free_port, producer
from infra.spark.session import session

INPUT, OUTPUT = "lines", "matches"
MATCH_EVERY = 10
SLOTS = 100
"""A second is sent in so many parts."""
WARM_SECONDS = 20
MODES: dict[str, dict[str, str]] = {
    "micro-batches": {"processingTime": "0 seconds"},
    "real-time mode": {"realTime": "30 seconds"},
}


@dataclass
class Heard:
    """Delays of what matched, by the second since the start in which it was sent."""

    delays: list[tuple[float, float]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def since(self, began: float) -> int:
        """How many came of what was sent since then."""
        return sum(at >= began for at, _ in self.delays)


def run(quick: bool = False) -> Report:
    """Both modes, one after the other, each with topics of its own."""
    report = Report("realtime", "make bench ONLY=realtime")
    rate, seconds = (500, 20) if quick else (1000, 120)
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    settings = load(home=home, kafka={"bootstrap": broker.address}, spark={"small": False})
    spark = session(settings, "realtime")
    try:
        for name, trigger in MODES.items():
            _measure(report, spark, settings.kafka, home, name, trigger, rate, seconds)
    finally:
        spark.stop()
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    report.notes.append(
        f"{rate} lines/s, one in {MATCH_EVERY} matches, {seconds} s after {WARM_SECONDS} s of "
        "warm-up; delay: from just before a line is handed to the producer to the append time of "
        "its match (LogAppendTime); one partition, one machine, broker and sender on it too"
    )
    return report


def _measure(
    report: Report,
    spark: SparkSession,
    kafka: KafkaSettings,
    home: Path,
    name: str,
    trigger: dict[str, str],
    rate: int,
    seconds: int,
) -> None:
    tag = name.replace(" ", "-")
    source, target = f"{INPUT}.{tag}", f"{OUTPUT}.{tag}"
    made_topics(kafka, source, target)
    query = _query(spark, kafka, home / tag, source, target, trigger)
    heard = Heard()
    listener = threading.Thread(target=listen, args=(kafka, target, heard))
    listener.start()
    try:
        send(kafka, source, rate, WARM_SECONDS)
        began = time.time()
        before = cpu_by_process()
        sent = send(kafka, source, rate, seconds)
        used = cpu_since(before)
        end = time.monotonic() + 60
        while heard.since(began) < sent and time.monotonic() < end:
            time.sleep(0.2)
        if query.exception() is not None:
            raise AssertionError(f"{name}: {query.exception()}")
    finally:
        query.stop()
        heard.stop.set()
        listener.join()
    delays = [delay for at, delay in heard.delays if at >= began]
    if len(delays) != sent:
        raise AssertionError(f"{name}: {len(delays)} of {sent} matches came")
    cuts = quantiles(delays, n=1000)
    for label, place in (("p50", 499), ("p95", 949), ("p99", 989)):
        report.add(f"{name}, {label}", [cuts[place] * 1000], "ms")
    report.add(f"{name}, CPU of Spark", [used / seconds], "cores")


def made_topics(kafka: KafkaSettings, *names: str) -> None:
    """Topics of one partition that carry the time of arrival."""
    client = admin(kafka)
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(name, num_partitions=1, config=stamped) for name in names]
    for made in client.create_topics(wanted).values():
        made.result(20)


def _query(
    spark: SparkSession,
    kafka: KafkaSettings,
    checkpoint: Path,
    source: str,
    target: str,
    trigger: dict[str, str],
) -> Any:
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    # The first eight bytes are the instant of sending; the rule looks at the rest.
    said = F.expr("decode(substring(value, 9), 'UTF-8')")
    return (
        lines.where(said.contains("../../etc/passwd"))
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(**trigger)
        .start()
    )


def send(kafka: KafkaSettings, topic: str, rate: int, seconds: int) -> int:
    """Lines at an even pace; how many of them match."""
    client = producer(kafka, **{"linger.ms": 0})
    start, number, matching = time.monotonic(), 0, 0
    for slot in range(seconds * SLOTS):
        time.sleep(max(0.0, start + slot / SLOTS - time.monotonic()))
        while number < rate * (slot + 1) / SLOTS:
            match = number % MATCH_EVERY == 0
            path = b"/show?page=../../etc/passwd" if match else b"/index.html"
            stamp = struct.pack(">d", time.time())
            client.produce(topic, stamp + b'198.51.100.7 - - "GET ' + path + b' HTTP/1.1" 200 17')
            number, matching = number + 1, matching + match
        client.poll(0)
    if client.flush(30):
        raise AssertionError(f"{topic}: not all lines were taken")
    return matching


def listen(kafka: KafkaSettings, topic: str, heard: Heard) -> None:
    """Note the delay of each line on a topic, until told to stop."""
    options = client_options(kafka) | {"group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while not heard.stop.is_set():
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        (sent_at,) = struct.unpack(">d", (message.value() or b"")[:8])
        heard.delays.append((sent_at, message.timestamp()[1] / 1000 - sent_at))
    consumer.close()
