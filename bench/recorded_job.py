"""The whole job `ingest` on recorded process starts, beside parsing and matching alone.

The job takes raw lines from Kafka, as one batch that waited, and commits bronze, silver and
findings. The same records, read back from bronze, are then parsed and matched in this process, and
once more with the files written. What the job takes is the CPU of driver, JVM and Python workers,
without the broker's. Both sides must find the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from alerts.matching.detection import detect
from alerts.matching.matcher import Matcher
from alerts.rulepack.rule_pack import PackStore, RulePack
from alerts.tables import FINDING, HEARTBEAT
from bench.measure import Report, cpu_by_process, cpu_seconds, cpu_since, settle
from bench.recorded_mix import SEED, SOURCE, recorded_lines
from infra.config.settings import Settings, load
from infra.delta.parquet_writer import Target, arrow_schema
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.spark.internals import jvm_process
from infra.streaming.lake import Lake
from ingest.parsing.arrow_parser import Parser
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach, Stage, slices
from ingest.pipeline.ingest_job import ingest
from ingest.tables import EVENT, RECORD

BAR = 1.5

_Pairs = set[tuple[str, str]]


@dataclass
class _Seconds:
    """CPU seconds of each round: of the whole job, and of its parts; and of the plain ways."""

    job: list[float] = field(default_factory=list)
    jvm: list[float] = field(default_factory=list)
    driver: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    parsing: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)


def whole_job(
    report: Report, spark: SparkSession, home: Path, pack: RulePack, events: int, repeat: int
) -> None:
    """`repeat` rounds of so many events after one that warms up, each with events of its own.

    Raises `ValueError` where the job and the plain way find different pairs.
    """
    store = PackStore(home / "rules")
    store.set_current(store.put(pack))
    broker = Broker(home / "kafka", free_port()).start()
    spent, matcher = _Seconds(), Matcher(pack)
    try:
        for number in range(repeat + 1):
            # The first round is for the JVM, which compiles, and for the plans of the matchers.
            took = _Seconds() if number == 0 else spent
            lake = _fed(spark, broker, home / f"round-{number}", events, number)
            _job(lake, store, broker, took)
            records = _records(lake)
            hits = _plain(lake, matcher, records, took)
            _written(lake, home / f"files-{number}", matcher, records, took)
            if (of_job := _found(lake)) != hits:
                raise ValueError(
                    f"job ingest and plain Python find different pairs, such as "
                    f"{sorted(of_job ^ hits)[:3]} ({len(of_job)} and {len(hits)} in all)"
                )
    finally:
        broker.stop()
    _tell(report, pack, spent, events)


def _fed(spark: SparkSession, broker: Broker, home: Path, events: int, number: int) -> Lake:
    """A new lake whose topic has so many lines waiting."""
    own = {"topic_prefix": f"round{number}.", "tick_topic": f"round{number}.tick"}
    settings = load(home=home, kafka={"bootstrap": broker.address, **own})
    ensure_topics(settings, [SOURCE])
    _send(settings, events, SEED + number)
    return Lake(spark, settings).ensure(RECORD, EVENT, FINDING)


def _send(settings: Settings, events: int, seed: int) -> None:
    client = producer(settings.kafka)
    for line in recorded_lines(events, seed):
        client.produce(topic_of(SOURCE, settings.kafka), line)
        # A full queue refuses lines; this waits until the broker has taken some.
        client.poll(0)
        while len(client) > 10_000:
            client.poll(0.05)
    if left := client.flush(60):
        raise ValueError(f"{left} lines were not taken by the broker")


def _job(lake: Lake, store: PackStore, broker: Broker, took: _Seconds) -> None:
    settle()
    before, others = cpu_by_process(), cpu_seconds(broker.pid)
    java = _jvm_seconds()
    driver = time.process_time()
    ingest(lake, steps=[detect(lake, store)], once=True).wait()
    took.job.append(cpu_since(before) - (cpu_seconds(broker.pid) - others))
    took.jvm.append(_jvm_seconds() - java)
    took.driver.append(time.process_time() - driver)


def _jvm_seconds() -> float:
    """Of the JVM alone: its Python workers are processes below it."""
    jvm = jvm_process()
    if jvm is None:
        return 0.0
    used = [seconds for (pid, _), seconds in cpu_by_process(jvm.pid).items() if pid == jvm.pid]
    return sum(used)


def _records(lake: Lake) -> list[pa.RecordBatch]:
    """The records of bronze, in memory, in slices such as the job parses at once."""
    schema = arrow_schema(RECORD)
    files = sorted(Path(lake.path(RECORD)).glob("*.parquet"))
    tables = [pq.read_table(file).select(schema.names).cast(schema) for file in files]
    return list(slices(iter(pa.concat_tables(tables).combine_chunks().to_batches())))


def _plain(
    lake: Lake, matcher: Matcher, records: Sequence[pa.RecordBatch], took: _Seconds
) -> _Pairs:
    """Parse and match, and no more; the pairs of a rule and an event."""
    began, matching = time.process_time(), 0.0
    parser = Parser(ParseSettings.of(lake.settings))
    findings: list[pa.RecordBatch] = []
    for batch in records:
        for events in parser(batch):
            parsed = time.process_time()
            findings.append(matcher.match(events))
            matching += time.process_time() - parsed
    whole = time.process_time() - began
    took.plain.append(whole)
    took.parsing.append(whole - matching)
    return {pair for batch in findings for pair in _pairs(batch)}


def _written(
    lake: Lake, folder: Path, matcher: Matcher, records: Sequence[pa.RecordBatch], took: _Seconds
) -> None:
    """The same with the files of all three tables written, as a worker of the job does."""
    targets = {}
    for table in (RECORD, EVENT, FINDING):
        (folder / table.name).mkdir(parents=True)
        targets[table.name] = Target.of(table, folder / table.name, "bench-")
    stage = Stage(FINDING, lambda: lambda events: [matcher.match(events)])
    work = Pass(ParseSettings.of(lake.settings), targets, [stage], Reach())
    began = time.process_time()
    for _ in work(iter(records)):
        pass
    took.written.append(time.process_time() - began)


def _found(lake: Lake) -> _Pairs:
    rows = lake.read(FINDING).select("rule_id", "event_uid").collect()
    return {(row["rule_id"], row["event_uid"]) for row in rows if row["rule_id"] != HEARTBEAT}


def _pairs(findings: pa.RecordBatch) -> list[tuple[str, str]]:
    columns = (findings.column(name).to_pylist() for name in ("rule_id", "event_uid"))
    return list(zip(*columns, strict=True))


def _tell(report: Report, pack: RulePack, spent: _Seconds, events: int) -> None:
    what = f"recorded process starts, {len(pack.rules)} rules"
    for name, seconds in (
        (f"parse and match in plain Python, {what}", spent.plain),
        (f"job ingest from Kafka to committed findings, {what}", spent.job),
    ):
        report.add(name, [events / took for took in seconds], "events/CPU-s")
    ratios = [job / plain for job, plain in zip(spent.job, spent.plain, strict=True)]
    report.add(
        f"job ingest / parse and match, CPU, {what}", ratios, "ratio",
        bar=f"<= {BAR}", met=median(ratios) <= BAR,
    )  # fmt: skip
    job, jvm, driver = median(spent.job), median(spent.jvm), median(spent.driver)
    plain, written = median(spent.plain), median(spent.written)
    report.notes.append(
        f"job ingest, {events:,} raw lines as one batch, in a session as `headgate up` has it: "
        f"{job:.1f} CPU-s, of which JVM {jvm:.1f}, "
        f"driver {driver:.1f}, Python workers {job - jvm - driver:.1f}; parse and match alone "
        f"{plain:.1f}, of which parsing {median(spent.parsing):.1f}; with the files of bronze, "
        f"silver and findings written {written:.1f}"
    )
