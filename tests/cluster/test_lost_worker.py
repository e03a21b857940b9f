"""A worker of a standalone cluster dies in the middle of a batch, with two drivers on one lake."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import NewTopic

from bench.standalone import SMALL, Cluster
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.kafka.client import Broker, admin, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from tests.cluster.conftest import SECRET
from tests.recovery import judge
from tests.wait import until

LINES, PARTITIONS, DEVICES = 120_000, 4, 30
Accepted = dict[judge.Place, bytes]

patiently = partial(until, seconds=180, pause=0.02)
"""Often enough to be there while a batch writes its files."""


@contextmanager
def plant(folder: Path) -> Iterator[Settings]:
    """A broker whose topic of sshd has several partitions, so that both workers get tasks."""
    broker = Broker(folder / "kafka", free_port()).start()
    try:
        settings = load(home=folder / "home", kafka={"bootstrap": broker.address})
        topic = NewTopic(
            topic_of("sshd", settings.kafka),
            num_partitions=PARTITIONS,
            config={"message.timestamp.type": "LogAppendTime"},
        )
        client = admin(settings.kafka)
        for made in client.create_topics([topic]).values():
            made.result(20)
        ensure_topics(settings, ["sshd", "isc_dhcpd"])
        yield settings
    finally:
        broker.stop()


def send(settings: Settings, lines: int, leases: bool) -> Accepted:
    """Lines of sshd and, if asked for, a lease a device; each under its place in the topic."""
    accepted: Accepted = {}
    client = producer(settings.kafka, **{"queue.buffering.max.messages": 1_000_000})

    def note(error: object, message: judge.Any) -> None:
        assert error is None, error
        accepted[message.topic(), message.partition(), message.offset()] = message.value()

    stamp = (datetime.now(UTC) - timedelta(seconds=5)).isoformat(timespec="seconds")
    for number in range(lines):
        line = (
            f"<38>1 {stamp} host{number % 50} sshd {number} - - Failed password for root "
            f"from 198.51.100.{number % 250} port {1024 + number % 60000} ssh2"
        )
        client.produce(
            topic_of("sshd", settings.kafka),
            line.encode(),
            partition=number % PARTITIONS,
            on_delivery=note,
        )
    for device in range(DEVICES if leases else 0):
        line = (
            f"<30>1 {stamp} gate dhcpd 7 - - "
            f"DHCPACK on 10.7.0.{device + 1} to 02:00:00:00:07:{device:02x} (pc-{device}) via br0"
        )
        client.produce(topic_of("isc_dhcpd", settings.kafka), line.encode(), on_delivery=note)
    assert client.flush(60) == 0
    return accepted


def driver(
    job: str, settings: Settings, cluster: Cluster, wheel: Path, secret_file: Path, cores: int
) -> PlatformProcess:
    """A job as an application of its own; a batch takes all there is."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(cores),
        "spark.executor.extraJavaOptions": SMALL,
    }
    environment = {
        "HEADGATE_SPARK__MASTER": cluster.master,
        "HEADGATE_SPARK__WHEEL": str(wheel),
        "HEADGATE_SPARK__DRIVER_MEMORY": "1g",
        "HEADGATE_SPARK__CONF": json.dumps(conf),
        "HEADGATE_SPARK__SECRET_FILE": str(secret_file),
        "HEADGATE_JOBS__ADAPTIVE": "false",
        "HEADGATE_JOBS__QUALITY_MINUTES": "0",
        "HEADGATE_MAINTENANCE__MINUTES": "0",
    }
    return PlatformProcess(f"driver-{job}", ("run", job), settings, environment=environment)


def telling(secret: str, processes: Iterable[psutil.Process]) -> list[str]:
    """Command lines, those of children included, that hold a secret."""
    lines = []
    for process in (one for top in processes for one in (top, *top.children(recursive=True))):
        with suppress(psutil.Error):  # it has ended
            lines.append(" ".join(process.cmdline()))
    assert any("CoarseGrainedExecutorBackend" in line for line in lines)
    return [line for line in lines if secret in line]


def records(settings: Settings) -> int:
    (found,) = connect(settings.lake_root).execute(
        "SELECT count(*) FROM bronze.record"
    ).fetchone() or (0,)
    return int(found)


@pytest.mark.soak
@pytest.mark.cluster
def test_a_worker_killed_in_mid_batch_loses_and_doubles_nothing(
    cluster: Cluster, secret_file: Path, wheel: Path, tmp_path: Path
) -> None:
    with plant(tmp_path) as settings, ExitStack() as stack:
        accepted = send(settings, LINES, leases=True)
        ingest = driver("ingest", settings, cluster, wheel, secret_file, cores=2)
        stack.callback(ingest.stop)
        bronze = settings.lake_root / "bronze" / "record"
        batches = settings.checkpoint_root / "ingest" / "spark"

        # Both workers have an executor, and of the first batch data files are being written.
        patiently(lambda: (batches / "offsets" / "0").exists(), ingest)
        patiently(lambda: len(list(bronze.glob("ingest-0-*.parquet"))) >= 2, ingest)
        assert all(cluster.executors(worker) for worker in (0, 1))
        cluster.kill(0)
        assert not (batches / "commits" / "0").exists(), "the batch ended before the worker died"

        alive = (cluster.workers[1], psutil.Process(ingest.process.pid))
        assert telling(SECRET, alive) == []
        patiently(lambda: (batches / "commits" / "0").exists(), ingest)
        assert "Lost executor" in ingest.log.read_text("utf-8"), "its driver did not notice"

        # A second driver on the same lake, and more to read for the first.
        sessions = driver("sessions", settings, cluster, wheel, secret_file, cores=1)
        stack.callback(sessions.stop)
        accepted |= send(settings, LINES // 10, leases=False)
        patiently(lambda: records(settings) >= len(accepted), ingest, sessions)
        connection = connect(settings.lake_root)
        held = "SELECT mac, count(*) FROM silver.dhcp_session GROUP BY 1 ORDER BY 1"
        wanted = [(f"02:00:00:00:07:{device:02x}", 1) for device in range(DEVICES)]
        patiently(lambda: connection.execute(held).fetchall() == wanted, ingest, sessions)

    assert judge.lost_or_doubled_records(settings.lake_root, accepted) == []
    assert judge.nameless_records(settings.lake_root) == []
    ledger = connection.execute(
        "SELECT job, count(*), count(DISTINCT batch_id) FROM ops.ledger GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert [job for job, _, _ in ledger] == ["ingest", "sessions"]
    assert all(rows == batches for _, rows, batches in ledger)
