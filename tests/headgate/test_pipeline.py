"""Read Kafka, parse, join with a table of one's own, write Delta: the how-to's code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate
from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, producer, topic_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "build-a-pipeline.md"
LINE = (
    "<86>1 2026-11-20T12:0{n}:00+00:00 bastion1 sshd 417{n} - - "
    "Failed password for root from 10.0.0.1 port 5201{n} ssh2"
)


def code() -> str:
    """The page's first block of code."""
    block = re.search(r"```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    return block[1]


def test_the_pipeline_is_shorter_than_ten_lines() -> None:
    lines = [line for line in code().splitlines() if line.strip()]
    assert len(lines) < 10
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.full
def test_the_pipeline_of_the_page_writes_what_was_sent_once(
    settings: Settings, spark: SparkSession, broker: Broker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", broker.address)
    monkeypatch.setenv("HEADGATE_KAFKA__TOPIC_PREFIX", "pipeline.")
    here = load(home=settings.home)
    ensure_topics(here, ["sshd"])
    client = producer(here.kafka)
    for n in range(3):
        client.produce(topic_of("sshd", here.kafka), LINE.format(n=n).encode())
    assert client.flush(20) == 0
    (tmp_path / "owners.csv").write_text("host_name,owner\nbastion1,platform\n")
    opened = headgate.open(settings.home, spark=spark)
    monkeypatch.setattr("headgate.open", lambda: opened)
    for _ in range(2):  # again: what was read is not read twice
        # The JVM of the tests' session was begun elsewhere: its relative paths are not ours.
        here_named = code().replace('"own', f'"{tmp_path}/own')
        exec(compile(here_named, str(PAGE), "exec"), {})
    rows = spark.read.format("delta").load(str(tmp_path / "owned")).collect()
    assert sorted((row["user_name"], row["owner"]) for row in rows) == [("root", "platform")] * 3


@pytest.mark.full
def test_a_source_that_is_unknown_or_has_no_topic_is_refused(
    settings: Settings, spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", broker.address)
    hg = headgate.open(settings.home, spark=spark)
    with pytest.raises(headgate.Usage, match="no source 'shd'"):
        hg.read_kafka("shd")
    with pytest.raises(headgate.Usage, match=r"no topic logs\.github_audit at"):
        hg.read_kafka("github_audit")
