"""A driver tells a collector of its batches: from the settings to what the collector has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.config.settings import load
from infra.kafka.client import Broker, ensure_topics, producer, topic_of
from tests.infra.process.test_otlp_export import Collector, facts

LINES = 3


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.stop()


@pytest.mark.full
def test_a_driver_s_batches_reach_the_collector_as_traces_and_counts(
    tmp_path: Path, own_broker: Broker, collector: Collector
) -> None:
    kafka = {"bootstrap": own_broker.address}
    settings = load(home=tmp_path, kafka=kafka, telemetry={"otlp_endpoint": collector.url})
    ensure_topics(settings, ["sshd"])
    client = producer(settings.kafka)
    for number in range(LINES):
        line = f"Nov 20 14:05:0{number} gw sshd[7]: Failed password for root from 10.0.0.9 port 22"
        client.produce(topic_of("sshd", settings.kafka), line.encode())
    assert client.flush(60) == 0
    environment = os.environ | {
        "HEADGATE_KAFKA__BOOTSTRAP": own_broker.address,
        "HEADGATE_TELEMETRY__OTLP_ENDPOINT": collector.url,
    }
    words = ["--home", str(tmp_path), "run", "ingest", "--once"]
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli", *words],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    batches = [span for span in collector.spans() if span.name == "batch ingest"]
    assert sum(facts(span.attributes)["rows.read"] for span in batches) == LINES
    commits = {span.name: span for span in collector.spans() if span.name.startswith("commit ")}
    assert {"commit bronze.record", "commit silver.event"} <= commits.keys()
    parents = {span.span_id for span in batches}
    assert {span.parent_span_id for span in commits.values()} <= parents
    counts = {
        (name, facts(point.attributes).get("table")): point.as_int
        for name, metric in collector.metrics().items()
        for point in metric.sum.data_points
    }
    assert counts["rows.read", None] == LINES
    assert counts["rows.written", "bronze.record"] == LINES
