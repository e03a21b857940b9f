"""A fixed reference for latencies: two stock micro-batch queries, Kafka to Delta to Kafka.

Machines differ from day to day by half and more, so a latency is told beside this one, measured on
the same machine in turn. Spark and Delta with their defaults and no setting of ours; never tuned.
All lines are appended to a table, a second query reads it and sends on those that match.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.measure import Report, cpu_by_process, cpu_since, cut
from bench.realtime import INPUT, MATCH_EVERY, OUTPUT, Heard, listen, made_topics, send
from infra.config.settings import load
from infra.kafka.client import Broker, free_port
from infra.process import java_jars

WARM_SECONDS = 45


@dataclass(frozen=True)
class Reference:
    """What the two queries came to. `delays`: seconds of each match; `cores`: CPU of Spark."""

    delays: list[float]
    cores: float


def run(quick: bool = False) -> Report:
    """500 lines a second, as in `event_to_alert`."""
    report = Report("reference", "make bench ONLY=reference")
    rate, seconds = (200, 45) if quick else (500, 300)
    measured = reference(rate, seconds)
    for percent in (50, 95, 99):
        report.add(f"reference, p{percent}", [cut(measured.delays, percent)], "s")
    report.add("reference, CPU of Spark", [measured.cores], "cores")
    report.notes.append(
        f"{rate} lines/s, one in {MATCH_EVERY} matches, {seconds} s after {WARM_SECONDS} s of "
        "warm-up; delay: from just before a line is handed to the producer to the append time of "
        "its match; one partition, one machine, broker and sender on it too"
    )
    return report


def reference(rate: int, seconds: int) -> Reference:
    """Both queries under so many lines a second, for so long after a warm-up."""
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    broker = Broker(home / "kafka", free_port()).start()
    kafka = load(home=home, kafka={"bootstrap": broker.address}).kafka
    made_topics(kafka, INPUT, OUTPUT)
    spark = _stock(home)
    heard = Heard()
    listener = threading.Thread(target=listen, args=(kafka, OUTPUT, heard))
    listener.start()
    queries = _queries(spark, kafka.bootstrap, home)
    try:
        send(kafka, INPUT, rate, WARM_SECONDS)
        began, before = time.time(), cpu_by_process()
        sent = send(kafka, INPUT, rate, seconds)
        used = cpu_since(before)
        end = time.monotonic() + 120
        while heard.since(began) < sent and time.monotonic() < end:
            time.sleep(0.2)
    finally:
        for query in queries:
            query.stop()
        heard.stop.set()
        listener.join()
        spark.stop()
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    delays = [delay for at, delay in heard.delays if at >= began]
    if len(delays) < sent:  # stock queries into Kafka may send one twice
        raise AssertionError(f"{len(delays)} of {sent} matches came")
    return Reference(delays, used / seconds)


def _stock(home: Path) -> SparkSession:
    """Spark and Delta as they come."""
    spark = (
        SparkSession.builder.appName("reference")
        .master("local[*]")
        .config("spark.jars", ",".join(str(path) for path in java_jars.paths("spark")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog",
            "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        )
        .config("spark.pyspark.python", sys.executable)
        # Only where it writes and listens is set: nothing is to be left on the machine.
        .config("spark.local.dir", str(home / "scratch"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _queries(spark: SparkSession, bootstrap: str, home: Path) -> tuple[StreamingQuery, ...]:
    table = str(home / "table")
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", INPUT)
        .option("startingOffsets", "earliest")
        .load()
        .select("value", "timestamp")
    )
    # Made before the second query starts: a stream of a table that is not there is refused.
    spark.createDataFrame([], lines.schema).write.format("delta").save(table)
    first = (
        lines.writeStream.format("delta")
        .option("checkpointLocation", str(home / "first"))
        .start(table)
    )
    # The first eight bytes are the instant of sending; the rule looks at the rest.
    text = F.expr("decode(substring(value, 9), 'UTF-8')")
    second = (
        spark.readStream.format("delta")
        .load(table)
        .where(text.contains("../../etc/passwd"))
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", OUTPUT)
        .option("checkpointLocation", str(home / "second"))
        .start()
    )
    return first, second
