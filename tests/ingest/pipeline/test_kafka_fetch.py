"""Workers read messages as Spark's reader does, row for row, and a batch is written once."""

from __future__ import annotations

import ctypes
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from infra.config.settings import Settings, load
from infra.delta.parquet_writer import arrow_schema
from infra.errors import Retryable
from infra.kafka.client import Broker, client_options, producer, spark_options
from infra.kafka.range_reader import UNREADABLE_HEADERS, OffsetRange, read, reader_options
from infra.streaming.job import Job
from infra.streaming.kafka_offsets import OffsetReader
from infra.streaming.lake import Lake
from ingest.pipeline.ingest_job import FETCHED_ROWS, ingest, to_records
from ingest.pipeline.kafka_batch import Topics
from ingest.pipeline.kafka_fetch import Fetch, TopicNames, shared_out
from ingest.tables import EVENT, RECORD
from tests.full import rest_full

HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [("mode", b"replay")],
    [("mode", b"import"), ("other", None), ("mode", b"live")],
    [("mode", b"nonsense"), ("", b"\xff\x00")],
    [("mode", None)],
    [("zone", "Europe/Zürich".encode()), ("zone", b"UTC")],
]
RAWS: list[bytes | None] = [
    b"a line",
    b"",
    None,
    b"\x00\xff\xfe",
    "Zürich 🐍".encode(),
    b"x" * 70_000,
]


def settings_of(broker: Broker, home: Path) -> Settings:
    own = {"topic_prefix": f"{home.name}.raw.", "tick_topic": f"{home.name}.tick"}
    return load(home=home, kafka={"bootstrap": broker.address, **own})


def make(settings: Settings, *names: str, partitions: int = 1, **config: str) -> list[str]:
    topics = [settings.kafka.topic_prefix + name for name in names]
    client = AdminClient(client_options(settings.kafka))
    wanted = [NewTopic(topic, num_partitions=partitions, config=config) for topic in topics]
    for made in client.create_topics(wanted).values():
        made.result(20)
    return topics


def odd_header(settings: Settings, topic: str, name: bytes) -> None:
    """Send a message with a header whose name Python's client would not take."""
    own = next(file for file in files("confluent_kafka") or () if "librdkafka" in file.name)
    library = ctypes.CDLL(str(own.locate()))
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = pointer
    library.rd_kafka_header_add.argtypes = [pointer, ctypes.c_char_p, size, ctypes.c_char_p, size]
    why = ctypes.create_string_buffer(512)
    options = pointer(library.rd_kafka_conf_new())
    address = settings.kafka.bootstrap.encode()
    library.rd_kafka_conf_set(options, b"bootstrap.servers", address, why, size(512))
    client = pointer(library.rd_kafka_new(number(0), options, why, size(512)))
    headers = pointer(library.rd_kafka_headers_new(size(1)))
    assert library.rd_kafka_header_add(headers, name, len(name), b"v", 1) == 0
    # Each after the number by which librdkafka's `rd_kafka_vtype_t` knows it.
    parts = (1, ctypes.c_char_p(topic.encode())), (4, ctypes.c_char_p(b"odd")), (10, headers)
    given: list[Any] = []
    for kind, part in parts:
        given += [number(kind), part, *([size(3)] if kind == 4 else [])]
    assert library.rd_kafka_producev(client, *given, number(0)) == 0
    assert library.rd_kafka_flush(client, number(20_000)) == 0
    library.rd_kafka_destroy(client)


def sent(client: Producer) -> None:
    assert client.flush(60) == 0


def hostile(settings: Settings, topics: list[str], partitions: int, count: int) -> None:
    client = producer(settings.kafka)
    # Retention goes by them where they are the sender's.
    now = int(time.time() * 1000)
    for number in range(count):
        client.produce(
            topics[number % len(topics)],
            RAWS[number % len(RAWS)],
            partition=number // 2 % partitions,
            headers=HEADERS[number % len(HEADERS)],  # type: ignore[arg-type]
            timestamp=now - number * 7,
        )
        client.poll(0)
    sent(client)


def ranges_of(settings: Settings, topics: list[str]) -> list[OffsetRange]:
    broker = OffsetReader(settings.kafka)
    places = [
        place for place in broker.partitions(settings.kafka.topic_prefix) if place[0] in topics
    ]
    held = broker.held(places)
    return [OffsetRange(*place, held[place].first, held[place].end) for place in sorted(places)]


def of_spark(spark: SparkSession, settings: Settings, topics: list[str]) -> list[dict[str, Any]]:
    messages = (
        spark.read.format("kafka")
        .options(**spark_options(settings.kafka))
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "true")
        .load()
    )
    rows = to_records(messages, OffsetReader(settings.kafka).ids(topics), settings)
    return in_order(rows.toArrow())


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    table = rows.select(arrow_schema(RECORD).names).cast(arrow_schema(RECORD))
    return sorted(table.to_pylist(), key=lambda row: row["record_id"])


def fetch_of(settings: Settings, ranges: list[OffsetRange], tasks: int = 1) -> Fetch:
    ids = OffsetReader(settings.kafka).ids({each.topic for each in ranges})
    prefix = settings.kafka.topic_prefix
    names = {
        topic: TopicNames(
            own,
            topic.removeprefix(prefix).removeprefix("tenant-acme.").replace(".", ":", 1),
            "acme" if "tenant-acme" in topic else None,
        )
        for topic, own in ids.items()
    }
    return Fetch(shared_out(ranges, tasks), names, reader_options(settings.kafka))


@pytest.mark.parametrize("kind", rest_full(1, ["CreateTime", "LogAppendTime"]))
def test_rows_are_those_of_sparks_reader(
    broker: Broker, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    settings = settings_of(broker, tmp_path)
    names = ("sshd", "zeek.conn", "tenant-acme.sshd")
    topics = make(settings, *names, partitions=2, **{"message.timestamp.type": kind})
    hostile(settings, topics, 2, 300)
    ranges = ranges_of(settings, topics)
    assert sum(each.end - each.start for each in ranges) == 300
    fetch = fetch_of(settings, ranges, 3)
    batches = [batch for task in range(3) for batch in fetch.batches(task, 40, 200_000)]
    assert in_order(pa.Table.from_batches(batches)) == of_spark(spark, settings, topics)
    assert max(batch.num_rows for batch in batches) <= 40
    again = [batch for task in range(3) for batch in fetch.batches(task, 40, 200_000)]
    assert [batch.num_rows for batch in again] == [batch.num_rows for batch in batches]


def test_marks_of_transactions_are_no_messages_and_what_was_taken_back_is_read_as_spark_does(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd")
    client = producer(settings.kafka, **{"transactional.id": f"{tmp_path.name}-t"})
    client.init_transactions(20)
    for number in range(6):
        client.begin_transaction()
        for part in range(number):
            client.produce(topics[0], b"%d-%d" % (number, part))
        client.flush(20)
        (client.abort_transaction if number == 3 else client.commit_transaction)(20)
    ranges = ranges_of(settings, topics)
    batches = list(fetch_of(settings, ranges).batches(0, 1000, 10**6))
    rows = in_order(pa.Table.from_batches(batches))
    assert rows == of_spark(spark, settings, topics)
    assert len(rows) == 15
    assert ranges[0].end - ranges[0].start == 20
    # A mark has no time that a batch could have reached.
    make_tick(settings)
    topic_times, end = Topics(settings), ranges[0].end
    assert topic_times.time_of(topics[0], 0, end - 2) is not None
    assert topic_times.time_of(topics[0], 0, end - 1) is None
    # A range that ends among marks.
    inner = OffsetRange(topics[0], 0, ranges[0].start + 1, ranges[0].start + 2)
    assert [
        m.value() for _, some in read([inner], reader_options(settings.kafka)) for m in some
    ] == []


def test_what_the_broker_has_no_more_is_refused_by_name(broker: Broker, tmp_path: Path) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd")
    hostile(settings, topics, 1, 20)
    options = reader_options(settings.kafka)
    client = AdminClient(client_options(settings.kafka))
    place = TopicPartition(topics[0], 0, 10)
    for done in client.delete_records([place]).values():
        done.result(20)
    with pytest.raises(Retryable, match=rf"topic {topics[0]}, partition 0, offsets 5-15: .*"):
        list(read([OffsetRange(topics[0], 0, 5, 15)], options))
    with pytest.raises(Retryable, match="no message from 20 on came in 1 s"):
        list(read([OffsetRange(topics[0], 0, 15, 25)], options, patience=1.0))
    got = [
        m.offset() for _, some in read([OffsetRange(topics[0], 0, 10, 15)], options) for m in some
    ]
    assert got == [10, 11, 12, 13, 14]


@pytest.mark.full
def test_who_works_on_messages_for_long_has_not_waited_for_the_next(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd")
    hostile(settings, topics, 1, 1)
    wanted = OffsetRange(topics[0], 0, 0, 2)
    parts = read([wanted], reader_options(settings.kafka), patience=5.0)
    assert [m.offset() for m in next(parts)[1]] == [0]
    time.sleep(5.5)
    later = threading.Timer(1.0, hostile, (settings, topics, 1, 1))
    later.start()
    assert [m.offset() for _, some in parts for m in some] == [1]
    later.join()


@pytest.mark.full
def test_a_broker_that_goes_away_at_a_hole_is_waited_for_and_the_range_is_named(
    own_broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(own_broker, tmp_path)
    topics = make(settings, "sshd")
    client = producer(settings.kafka, **{"transactional.id": f"{tmp_path.name}-t"})
    client.init_transactions(20)
    for count in (1_100, 10):
        client.begin_transaction()
        for number in range(count):
            client.produce(topics[0], b"%d" % number)
        client.commit_transaction(20)
    wanted = ranges_of(settings, topics)[0]
    assert wanted.end == 1_112
    parts = read([wanted], reader_options(settings.kafka), patience=3.0)
    # All messages come with one answer, and at most a thousand are taken of it at once.
    assert len(next(parts)[1]) <= 1_000
    own_broker.stop()
    with pytest.raises(Retryable, match=rf"topic {topics[0]}, partition 0, offsets 0-1112: "):
        list(parts)


@pytest.mark.parametrize("part", ["headers", "key", "value"])
def test_what_is_parsed_at_once_is_bounded_whatever_a_message_is_full_of(
    part: str, broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd")
    client = producer(settings.kafka)
    large = b"h" * 50_000
    for _ in range(40):
        if part == "headers":
            client.produce(topics[0], b"x", headers=[("a", large)])
        else:
            client.produce(topics[0], **{"value": b"x", part: large})
    sent(client)
    batches = list(fetch_of(settings, ranges_of(settings, topics)).batches(0, 1_000, 199_000))
    assert [batch.num_rows for batch in batches] == [4] * 10


def test_shares_keep_partitions_whole_and_are_about_as_large() -> None:
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate((90, 50, 40, 3, 1))]
    shares = shared_out(ranges, 2)
    assert sorted((each for share in shares for each in share), key=str) == sorted(ranges, key=str)
    assert sorted(sum(each.end for each in share) for share in shares) == [91, 93]
    assert shared_out(ranges[:1], 4) == ((ranges[0],),)


@pytest.mark.full
def test_a_batch_that_workers_read_is_written_once_through_a_restart(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd", "nginx", **{"message.timestamp.type": "LogAppendTime"})
    make_tick(settings)
    count = FETCHED_ROWS + 500
    hostile(settings, topics, 1, count)
    lake = Lake(spark, settings).ensure(RECORD, EVENT)
    assert read_by_spark(ingest(lake, once=True)) == 0
    first = in_order(lake.read(RECORD).toArrow())
    assert first == of_spark(spark, settings, topics)
    events = {row[0] for row in lake.read(EVENT).select("event_uid").collect()}
    # As after a crash between the last commit of a table and Spark's own.
    commit = settings.checkpoint_root / "ingest" / "spark" / "commits" / "0"
    commit.unlink()
    shutil.rmtree(settings.checkpoint_root / "ingest" / "lock", ignore_errors=True)
    ingest(Lake(spark, settings), once=True).wait()
    hostile(settings, topics, 1, count)
    assert read_by_spark(ingest(Lake(spark, settings), once=True)) == 0
    assert in_order(lake.read(RECORD).toArrow()) == of_spark(spark, settings, topics)
    assert lake.read(RECORD).count() == 2 * count
    after = [row[0] for row in lake.read(EVENT).select("event_uid").collect()]
    assert len(after) == len(set(after))
    assert events <= set(after)


def read_by_spark(job: Job) -> int:
    """Work off what waits; how many messages Spark's own reader made rows of."""
    job.wait()
    return sum(progress["numInputRows"] for progress in job.query.recentProgress)


def make_tick(settings: Settings) -> None:
    client = AdminClient(client_options(settings.kafka))
    config = {"message.timestamp.type": "LogAppendTime"}
    made = client.create_topics([NewTopic(settings.kafka.tick_topic, 1, config=config)])
    for each in made.values():
        each.result(20)


ODD_TIMES = (10**15, -62_135_596_800_001, -(10**12), -1)
"""A sender's times, in milliseconds, that Spark can hold: the year 33658, before the year 1, before
1970, and Kafka's own for none."""

OF_SENDER = {
    "message.timestamp.type": "CreateTime",
    # Since Kafka 4 refused by default; of the past any is taken.
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""A topic whose messages have their sender's time, whatever it is."""

NO_TIMES = (2**62, 2**63 - 1, -(2**62))
"""Those that it cannot: in microseconds they have more than 64 bits."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("times", "cap"),
    [
        (NO_TIMES + ODD_TIMES, 500_000),
        # A batch that is full claims what its slowest partition has reached, by the times.
        (ODD_TIMES, len(ODD_TIMES) + 1),
        (NO_TIMES, len(NO_TIMES) + 1),
    ],
)
def test_any_time_that_a_sender_gives_a_message_gets_it_in(
    times: tuple[int, ...], cap: int, broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    given = settings_of(broker, tmp_path)
    jobs = given.jobs.model_copy(update={"max_offsets_per_batch": cap})
    settings = given.model_copy(update={"jobs": jobs})
    topics = make(settings, "sshd", **OF_SENDER)
    make_tick(settings)
    begun = datetime.now(UTC)
    client = producer(settings.kafka)
    for time_ms in (*times, round(begun.timestamp() * 1000)):
        client.produce(topics[0], b"%d" % time_ms, timestamp=time_ms)
    sent(client)
    lake = Lake(spark, settings).ensure(RECORD, EVENT)
    ingest(lake, once=True).wait()
    rows = lake.read(RECORD).orderBy("offset").collect()
    assert [int(row["raw"]) for row in rows[:-1]] == list(times)
    arrived = [row["received_at"].astimezone(UTC) for row in rows]
    latest = datetime.now(UTC)
    # Within a millisecond, as Kafka has no less.
    assert all(begun - timedelta(milliseconds=1) <= when <= latest for when in arrived)
    of_logs = lake.read(EVENT).where("source = 'sshd'")
    assert {row["received_at"].astimezone(UTC) for row in of_logs.collect()} == set(arrived)


@pytest.mark.full
def test_names_of_headers_that_are_no_text_are_left_to_sparks_reader(
    broker: Broker, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd")
    make_tick(settings)
    hostile(settings, topics, 1, FETCHED_ROWS)
    odd_header(settings, topics[0], b"a\xff\xfeb")
    with pytest.raises(Retryable, match=f"{UNREADABLE_HEADERS}.*offset {FETCHED_ROWS}"):
        list(fetch_of(settings, ranges_of(settings, topics)).batches(0, 10_000, 10**9))
    lake = Lake(spark, settings).ensure(RECORD, EVENT)
    assert read_by_spark(ingest(lake, once=True)) == FETCHED_ROWS + 1
    assert in_order(lake.read(RECORD).toArrow()) == of_spark(spark, settings, topics)
    assert UNREADABLE_HEADERS in capfd.readouterr().err


@pytest.mark.full
def test_what_neither_reader_can_take_gets_in_without_its_headers(
    broker: Broker, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(broker, tmp_path)
    topics = make(settings, "sshd", **OF_SENDER)
    make_tick(settings)
    client = producer(settings.kafka)
    client.produce(topics[0], b"a time that Spark has no number for", timestamp=NO_TIMES[0])
    client.produce(topics[0], b"with headers", headers={"agent": b"x"})
    sent(client)
    odd_header(settings, topics[0], b"a\xff\xfeb")
    lake = Lake(spark, settings).ensure(RECORD, EVENT)
    ingest(lake, once=True).wait()
    rows = lake.read(RECORD).orderBy("offset").collect()
    assert [row["headers"] and row["headers"][0]["key"] for row in rows] == [None, "agent", None]
    assert rows[0]["raw"] == b"a time that Spark has no number for"
    assert "has no number for" in capfd.readouterr().err
