"""What the broker lost is stated exactly, and nobody goes on without a person's word."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from alerts.matching.detection import ingest_and_detect
from headgate.cli import main
from infra.checkpoint.batch_decisions import decided, write_decision
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import GAP, LEDGER
from infra.errors import Fatal, Usage
from infra.kafka.client import Broker, admin, producer, topic_of
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.job_lock import JobLock
from infra.streaming.kafka_offsets import BrokerRange, Checkpoint, kafka_checkpoint
from infra.streaming.lake import Lake
from ingest.completeness.gaps import (
    Gap,
    accept,
    compare_offsets,
    find_gaps,
    gap_statement,
    require_no_gap,
)
from ingest.tables import RECORD
from reporting.ledger.gaps import missed
from tests.wait import until

A = ("logs.a", 0)


def at(position: int, topic_id: str = "id") -> Checkpoint:
    return Checkpoint(Path("none"), 5, 5, {A: position}, {"logs.a": topic_id})


@given(position=st.integers(0, 100), first=st.integers(0, 100), length=st.integers(0, 100))
def test_a_gap_is_what_lies_between_our_position_and_what_is_there(position, first, length):
    found = compare_offsets(at(position), {A: BrokerRange(first, first + length)}, {"logs.a": "id"})
    if first <= position <= first + length:
        assert found == ()
    elif position < first:
        assert found == (Gap("expired", "logs.a", 0, position, first, first),)
        assert found[0].messages == first - position
    else:
        assert found == (Gap("reset", "logs.a", 0, position, None, first + length),)


def test_a_topic_made_anew_is_another_also_where_it_is_longer() -> None:
    found = compare_offsets(at(7, "old"), {A: BrokerRange(0, 500)}, {"logs.a": "new"})
    assert found == (Gap("recreated", "logs.a", 0, 7, None, 0),)
    assert compare_offsets(at(7), {}, {}) == (Gap("removed", "logs.a", 0, 7, None, None),)


def test_a_topic_never_seen_misses_what_expired_before() -> None:
    new = {A: BrokerRange(0, 9), ("logs.b", 0): BrokerRange(4, 9), ("logs.c", 0): BrokerRange(0, 9)}
    ids = {"logs.a": "id", "logs.b": "b", "logs.c": "c"}
    assert compare_offsets(at(7), new, ids) == (Gap("expired", "logs.b", 0, 0, 4, 4),)
    assert compare_offsets(Checkpoint(Path("none"), None, None), new, ids) == ()


def test_a_statement_changes_with_anything_in_it() -> None:
    one = Gap("expired", "logs.a", 0, 5, 9, 9)
    assert gap_statement([one]) != gap_statement([Gap("expired", "logs.a", 0, 5, 10, 10)])
    assert one.sentence() == (
        "topic logs.a partition 0: messages 5 to 8 (4) were deleted by the broker's retention "
        "before they were read"
    )


@pytest.fixture
def source(lake: Lake, broker: Broker, tmp_path: Path) -> Settings:
    """A lake that reads topics of its own: `gapN.sshd`."""
    prefix = f"gap{time.monotonic_ns()}."
    kafka = {"bootstrap": broker.address, "topic_prefix": prefix, "tick_topic": f"{prefix}tick"}
    settings = load(home=tmp_path, kafka=kafka)
    make(settings, topic_of("sshd", settings.kafka), settings.kafka.tick_topic)
    return settings


@pytest.fixture
def home(source: Settings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a command that works on `source`; its broker is in the environment."""
    for name in ("bootstrap", "topic_prefix", "tick_topic"):
        monkeypatch.setenv(f"HEADGATE_KAFKA__{name.upper()}", getattr(source.kafka, name))
    return ["--home", str(source.home)]


def make(settings: Settings, *topics: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    client = admin(settings.kafka)  # kept until the answers are in: they end with it
    made = client.create_topics(
        [NewTopic(topic, num_partitions=1, config=config) for topic in topics]
    )
    for answer in made.values():
        answer.result(20)


def send(settings: Settings, *lines: str, topic: str | None = None) -> None:
    client = producer(settings.kafka)
    for line in lines:
        client.produce(topic or topic_of("sshd", settings.kafka), line.encode())
    assert client.flush(30) == 0


def expire(settings: Settings, before: int, topic: str | None = None) -> None:
    """Delete messages as the broker's retention does."""
    client: AdminClient = admin(settings.kafka)
    name = topic or topic_of("sshd", settings.kafka)
    for answer in client.delete_records([TopicPartition(name, 0, before)]).values():
        answer.result(20)


@pytest.fixture
def drain(lake: Lake, source: Settings) -> Callable[[], list[str]]:
    """Works off what is there; the raw records in bronze, in order."""

    def run() -> list[str]:
        ours = Lake(lake.spark, source)
        ingest_and_detect(ours, once=True).wait()
        rows = ours.read(RECORD).selectExpr("string(raw) AS raw").collect()
        return sorted(row["raw"] for row in rows)

    return run


def test_expired_messages_stop_the_job_until_a_person_says_go_on(
    lake: Lake, source: Settings, drain: Callable[[], list[str]]
) -> None:
    send(source, "m0", "m1")
    assert drain() == ["m0", "m1"]
    send(source, "m2", "m3", "m4")
    expire(source, 4)
    with pytest.raises(Fatal, match=r"messages 2 to 3 \(2\) were deleted by the broker's"):
        drain()

    (gap,) = find_gaps(source)
    with pytest.raises(Usage, match="that is not what is missing now"):
        accept(source, "0" * 12, "me", "for no reason")
    accept(source, gap_statement([gap]), "me", "the disk was full")
    send(source, "m5")
    assert drain() == ["m0", "m1", "m4", "m5"]
    assert find_gaps(source) == ()

    assert flush_outbox(lake, GAP, lake.spool / "gap") == 1
    now = datetime.now(UTC)
    connection = connect(source.lake_root)
    (gap,) = missed(connection, now - timedelta(hours=1), now)
    assert "partition 0: 2 to 3 (2 messages), expired; came between" in gap.sentence()
    assert gap.sentence().endswith("the disk was full")
    times = {row["raw"]: row["received_at"].astimezone(UTC) for row in received(lake, source)}
    assert (gap.after, gap.before) == (times["m1"], times["m4"])
    assert missed(connection, gap.before + timedelta(seconds=1), now + timedelta(days=1)) == []
    assert missed(connection, now - timedelta(hours=1), now, "dhcpd") == []


def received(lake: Lake, source: Settings) -> list[Row]:
    found = Lake(lake.spark, source).read(RECORD)
    return found.selectExpr("string(raw) AS raw", "received_at").collect()


@pytest.mark.full
def test_what_expired_before_a_topic_was_first_read_does_not_count_as_read(
    lake: Lake, source: Settings, drain: Callable[[], list[str]]
) -> None:
    send(source, "m0", "m1", "m2")
    expire(source, 2)
    assert drain() == ["m2"]
    flush_outbox(lake, LEDGER, lake.spool / "ledger")
    assert [row["rows_read"] for row in lake.read(LEDGER).select("rows_read").collect()] == [1]


@pytest.mark.full
def test_a_topic_made_anew_stops_the_job_also_where_it_has_more_messages(
    source: Settings, drain: Callable[[], list[str]], capsys
) -> None:
    topic = topic_of("sshd", source.kafka)
    send(source, "old0", "old1")
    drain()
    client = admin(source.kafka)
    client.delete_topics([topic])[topic].result(20)
    remake(source, topic)
    send(source, *[f"new{number}" for number in range(5)])
    with pytest.raises(Fatal, match="the topic was made anew"):
        drain()
    (gap,) = find_gaps(source)
    assert (gap.kind, gap.from_offset, gap.messages, gap.goes_on_at) == ("recreated", 2, None, 0)
    accept(source, gap_statement([gap]), "me", "moved to another cluster")
    assert drain() == ["new0", "new1", "new2", "new3", "new4", "old0", "old1"]


def remake(settings: Settings, topic: str) -> None:
    """Make a topic as soon as its deletion is through."""
    client = admin(settings.kafka)
    until(lambda: topic not in client.list_topics(timeout=5).topics, what=topic, seconds=20)
    make(settings, topic)


@pytest.mark.full
def test_a_batch_that_was_planned_and_lost_its_messages_is_planned_anew(
    source: Settings, drain: Callable[[], list[str]]
) -> None:
    send(source, "m0")
    drain()
    send(source, "m1", "m2", "m3")
    folder = source.checkpoint_root / "ingest"
    before = kafka_checkpoint(folder)
    lines = (folder / "spark" / "offsets" / str(before.done)).read_text("utf-8").splitlines()
    offsets = json.loads(lines[2])
    offsets[topic_of("sshd", source.kafka)]["0"] = 4
    planned = folder / "spark" / "offsets" / str((before.done or 0) + 1)
    planned.write_text("\n".join([*lines[:2], json.dumps(offsets)]))
    # Hadoop's checksum of what was planned; nothing else can be read beside it.
    checksum = folder / "spark" / "offsets" / f".{before.done}.crc"
    shutil.copy(checksum, checksum.with_name(f".{planned.name}.crc"))
    expire(source, 2)
    accept(source, gap_statement(find_gaps(source)), "me", "a test")
    assert drain() == ["m0", "m2", "m3"]


@pytest.mark.full
def test_what_all_tables_have_is_not_missing(
    source: Settings, drain: Callable[[], list[str]]
) -> None:
    """Killed just before Spark noted the batch as done; then its messages expired."""
    send(source, "m0")
    drain()
    send(source, "m1", "m2")
    drain()
    folder = source.checkpoint_root / "ingest"
    done = kafka_checkpoint(folder).done
    commits = folder / "spark" / "commits"
    for name in (f"{done}", f".{done}.crc"):
        (commits / name).unlink()
    expire(source, 2)
    assert find_gaps(source) == ()
    send(source, "m3")
    assert drain() == ["m0", "m1", "m2", "m3"]


#   0  1 | 2  3 ... 9      read; what the broker had not on disk when its machine lost power: from 2
#   0  1 | 2' 3' 4'        what came since
@pytest.mark.full
def test_a_log_that_ends_too_early_is_gone_on_with_where_it_is_new(source: Settings) -> None:
    sent = topic_of("sshd", source.kafka)
    send(source, "m0", "m1")
    time.sleep(0.2)
    plant(source, {sent: 10}, time.time())
    assert find_gaps(source)[0].goes_on_at == 2
    time.sleep(1.2)
    send(source, "new2", "new3")
    (gap,) = find_gaps(source)
    assert (gap.kind, gap.from_offset, gap.goes_on_at) == ("reset", 10, 2)
    stated = gap_statement([gap])
    send(source, "new4")
    assert gap_statement(find_gaps(source)) == stated, (
        "what comes while one reads it changes nothing"
    )
    accept(source, stated, "me", "the power was cut")
    assert kafka_checkpoint(source.checkpoint_root / "ingest").offsets[sent, 0] == 2


@pytest.mark.full
def test_keys_of_a_batch_that_is_dropped_are_dropped(source: Settings) -> None:
    sent = topic_of("sshd", source.kafka)
    send(source, "m0", "m1", "m2")
    plant(source, {sent: 1})
    folder = source.checkpoint_root / "ingest"
    offsets = folder / "spark" / "offsets"
    text = (offsets / "0").read_text().replace('{"0": 1}', '{"0": 3}')
    (offsets / "1").write_text(text)
    (folder / "keys").mkdir()
    for name in ("1-a.parquet", "10-a.parquet"):
        (folder / "keys" / name).touch()
    expire(source, 2)
    accept(source, gap_statement(find_gaps(source)), "me", "a test")
    assert [file.name for file in (folder / "keys").iterdir()] == ["10-a.parquet"]


@pytest.mark.full
def test_ticks_that_expired_hold_nothing_up(source: Settings, capsys) -> None:
    sent, tick = topic_of("sshd", source.kafka), source.kafka.tick_topic
    send(source, "m0", "m1")
    for _ in range(3):
        send(source, "tick", topic=tick)
    plant(source, {sent: 1, tick: 1})
    expire(source, 3, tick)
    require_no_gap(source)
    assert "ticks of the time it did not run are gone" in capsys.readouterr().err
    assert kafka_checkpoint(source.checkpoint_root / "ingest").offsets == {
        (sent, 0): 1,
        (tick, 0): 3,
    }
    assert not (source.home / "spool").exists()


@pytest.mark.full
def test_ticks_that_expired_stop_no_batch_that_is_partly_in(
    source: Settings, drain: Callable[[], list[str]]
) -> None:
    """Killed between two tables on a Friday, started again on Monday."""
    tick = source.kafka.tick_topic
    for line in ("m0", "m1"):
        send(source, line)
        send(source, "tick", "tick", topic=tick)
        drain()
    folder = source.checkpoint_root / "ingest"
    done = kafka_checkpoint(folder).done
    for name in (f"{done}", f".{done}.crc"):
        (folder / "spark" / "commits" / name).unlink()
    noted = decided(folder, done)
    del noted["versions"]["gold.finding"], noted["in_ledger"]
    write_decision(folder, done, noted)
    log = source.lake_root / "gold" / "finding" / "_delta_log"
    newest = max(log.glob("*.json"))
    for file in log.glob(f"*{newest.stem}*"):
        file.unlink()
    expire(source, 4, tick)
    assert drain() == ["m0", "m1"]
    assert max(log.glob("*.json")) == newest, "the batch was ended"
    send(source, "m2")
    assert drain() == ["m0", "m1", "m2"]


def plant(settings: Settings, offsets: dict[str, int], planned: float = 0.001) -> None:
    """A checkpoint whose first batch is done and ends there, as Spark writes it."""
    folder = settings.checkpoint_root / "ingest" / "spark"
    ends = {topic: {"0": end} for topic, end in offsets.items()}
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": round(planned * 1000), "conf": {}}
    for name, lines in {"offsets": [facts, ends], "commits": [{"nextBatchWatermarkMs": 0}]}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "0").write_text("\n".join(["v1", *map(json.dumps, lines)]))


def test_the_commands_state_and_accept(source: Settings, home: list[str], capsys) -> None:
    sent = topic_of("sshd", source.kafka)
    send(source, "m0")
    plant(source, {sent: 1})
    assert main([*home, "gaps", "--output", "ndjson"]) == 0
    assert capsys.readouterr().out == ""
    send(source, "m1", "m2")
    expire(source, 2)
    assert main([*home, "gaps", "--output", "json"]) == 1
    stated = json.loads(capsys.readouterr().out)
    assert stated["gaps"][0]["messages"] == 1
    accepting = [*home, "gaps", "accept", stated["statement"], "--reason"]
    assert main([*accepting, " "]) == 2

    running = JobLock(source.checkpoint_root / "ingest", "ingest")
    assert main([*accepting, "known"]) == 1
    assert "job ingest already runs" in capsys.readouterr().err
    assert not (source.home / "spool").exists()  # nobody has accepted anything yet
    running.release()

    assert main([*accepting, "known"]) == 0
    spool = source.home / "spool"
    (told,) = (json.loads(file.read_text()) for file in (spool / "gap").glob("*.json"))
    assert (told["from_offset"], told["to_offset"], told["reason"]) == (1, 2, "known")
    assert len(list((spool / "audit").glob("gap-*.json"))) == 1
    assert (spool / "resume" / "ingest").exists()
    assert kafka_checkpoint(source.checkpoint_root / "ingest").offsets[sent, 0] == 2
    assert main([*home, "gaps"]) == 0
