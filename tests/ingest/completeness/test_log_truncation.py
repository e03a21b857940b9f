"""A log that lost its end is told from the one that was read, also where it has grown beyond it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.matching.detection import ingest_and_detect
from infra.config.settings import Settings, load
from infra.errors import Fatal
from infra.kafka.client import Broker, topic_of
from infra.streaming.kafka_offsets import BrokerRange, kafka_checkpoint
from infra.streaming.kafka_offsets import OffsetReader as Offsets
from infra.streaming.lake import Lake
from ingest.completeness.gaps import accept, find_gaps, gap_statement
from ingest.completeness.log_truncation import first_new
from ingest.pipeline.kafka_batch import Topics
from ingest.tables import RECORD
from tests.ingest.completeness.test_gaps import make, send

HEAD = struct.Struct(">qi")
"""How a batch of messages begins in a segment: its first offset, and the bytes that follow."""

Drain = Callable[[], dict[str, str]]


@pytest.fixture
def source(own_broker: Broker, tmp_path: Path) -> Settings:
    settings = load(home=tmp_path, kafka={"bootstrap": own_broker.address})
    make(settings, topic_of("sshd", settings.kafka), settings.kafka.tick_topic)
    return settings


@pytest.fixture
def drain(lake: Lake, source: Settings) -> Drain:
    """Works off what is there; the records in bronze, id by bytes."""

    def run() -> dict[str, str]:
        ours = Lake(lake.spark, source)
        ingest_and_detect(ours, once=True).wait()
        rows = ours.read(RECORD).selectExpr("string(raw) AS raw", "record_id").collect()
        assert len({row["record_id"] for row in rows}) == len(rows)
        return {row["raw"]: row["record_id"] for row in sorted(rows)}

    return run


def one_by_one(settings: Settings, *lines: str) -> None:
    """Each in a batch of its own, so that the log can end between any two."""
    for line in lines:
        send(settings, line)


def cut(broker: Broker, topic: str, begin: int) -> None:
    """A power cut before the broker had messages from `begin` on written to its disk."""
    broker.kill()
    (log,) = broker.folder.rglob(f"{topic}-0/*.log")
    content, at = log.read_bytes(), 0
    while at < len(content) and HEAD.unpack_from(content, at)[0] < begin:
        at += HEAD.size + HEAD.unpack_from(content, at)[1]
    log.write_bytes(content[:at])
    broker.start()


#   0  1 | 2  3  4         read, in two batches; the broker lost it from 3 on
#   0  1   2  3' 4' 5'     as it is when the driver looks
@pytest.mark.full
def test_a_log_that_grew_beyond_what_it_lost_is_told_and_gone_on_with(
    source: Settings, own_broker: Broker, drain: Drain
) -> None:
    topic = topic_of("sshd", source.kafka)
    one_by_one(source, "m0", "m1")
    drain()
    one_by_one(source, "m2", "m3", "m4")
    before = drain()
    topics = Topics(source)
    taken = {(topic, "0"): (5, 3)}
    assert topics.ids(taken) == {topic: before["m4"].removesuffix(":0:4")}

    cut(own_broker, topic, 3)
    one_by_one(source, "new3", "new4", "new5")
    lost = r"partition 0: unread from 5 on: the broker's log lost its end"
    with pytest.raises(Fatal, match=lost):  # a job that runs on sees that the broker began anew
        topics.ids(taken)
    with pytest.raises(Fatal, match=lost):
        drain()
    (gap,) = find_gaps(source)
    assert (gap.kind, gap.from_offset, gap.messages, gap.goes_on_at) == ("reset", 5, None, 3)
    accept(source, gap_statement([gap]), "me", "the power was cut")
    assert find_gaps(source) == ()

    after = drain()
    assert after.keys() == {"m0", "m1", "m2", "m3", "m4", "new3", "new4", "new5"}
    assert {raw: after[raw] for raw in before} == before
    own = before["m3"].removesuffix(":0:3")
    assert (after["new3"], after["new5"]) == (f"{own}~1:0:3", f"{own}~1:0:5")
    one_by_one(source, "new6")
    assert drain()["new6"] == f"{own}~1:0:6"

    cut(own_broker, topic, 4)  # once more, also behind the batch that went on
    one_by_one(source, "newer4", "newer5", "newer6", "newer7")
    (gap,) = find_gaps(source)
    assert (gap.from_offset, gap.goes_on_at) == (7, 4)
    accept(source, gap_statement([gap]), "me", "again")
    assert drain()["newer4"] == f"{own}~2:0:4"


@pytest.mark.full
def test_a_broker_that_began_anew_and_lost_nothing_is_gone_on_with(
    source: Settings, own_broker: Broker, drain: Drain
) -> None:
    topic = topic_of("sshd", source.kafka)
    one_by_one(source, "m0", "m1")
    drain()
    place, offsets, topics = (topic, 0), Offsets(source.kafka), Topics(source)
    first, named = offsets.epochs([place])[place], topics.ids({(topic, "0"): (2, 2)})
    own_broker.kill()
    own_broker.start()
    # A client that knew the leader of before is refused by the new one for minutes.
    assert offsets.epochs([place])[place] > first
    assert offsets.held([place]) == {place: BrokerRange(0, 2)}
    one_by_one(source, "m2")
    assert topics.ids({(topic, "0"): (3, 1)}) == named
    assert find_gaps(source) == ()
    assert drain().keys() == {"m0", "m1", "m2"}


@pytest.mark.full
def test_what_bronze_does_not_have_says_nothing(source: Settings, drain: Drain) -> None:
    topic = topic_of("sshd", source.kafka)
    one_by_one(source, "m0", "m1")
    drain()
    at = kafka_checkpoint(source.checkpoint_root / "ingest")
    held = {(topic, 0): BrokerRange(0, 2)}
    bronze = source.lake_root / "bronze" / "record"
    assert first_new(bronze, at, held, source.kafka) == {}
    (file,) = (file for file in bronze.glob("*.parquet"))
    file.write_bytes(b"damaged")
    assert first_new(bronze, at, held, source.kafka) == {}
    file.unlink()
    assert first_new(bronze, at, held, source.kafka) == {}
