"""Jobs on a Spark standalone cluster of two workers on this machine, our wheel shipped to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.standalone import SMALL, Cluster
from infra.duck import connect
from infra.kafka import Broker, ensure_topics, free_port, producer, topic_of
from infra.settings import Settings, load
from tests.bucket.store import Store

DEVICES = 30


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Settings]:
    """Settings whose broker holds leases of some devices, two lines each."""
    broker = Broker(tmp_path / "kafka", free_port()).start()
    settings = load(home=tmp_path / "home", kafka={"bootstrap": broker.address})
    ensure_topics(settings, ["isc_dhcpd"])
    client = producer(settings.kafka)
    for ago in (60, 5):
        stamp = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="seconds")
        for device in range(DEVICES):
            mac = f"02:00:00:00:07:{device:02x}"
            line = (
                f"<30>1 {stamp} gate dhcpd 7 - - "
                f"DHCPACK on 10.7.0.{device + 1} to {mac} (pc-{device}) via br0"
            )
            client.produce(topic_of("isc_dhcpd", settings.kafka), line.encode())
    client.flush(20)
    yield settings
    broker.stop()


@pytest.mark.cluster
def test_ingest_and_sessions_run_on_two_workers(
    cluster: Cluster, secret_file: Path, wheel: Path, fed: Settings
) -> None:
    run_on(cluster, secret_file, wheel, fed)


@pytest.mark.cluster
@pytest.mark.soak
def test_two_workers_write_into_a_bucket(
    store: Store, cluster: Cluster, secret_file: Path, wheel: Path, fed: Settings
) -> None:
    lake = "s3://plant/cluster"
    run_on(cluster, secret_file, wheel, fed.model_copy(update={"lake": lake}))
    written = [name for name in store.names("cluster/silver/event/") if name.endswith(".parquet")]
    assert written


def run_on(cluster: Cluster, secret_file: Path, wheel: Path, fed: Settings) -> None:
    """Jobs `ingest` and `sessions` as applications of the cluster, and what they wrote."""
    lake = {} if fed.lake is None else {"HEADGATE_LAKE": str(fed.lake)}
    environment = os.environ | {
        **lake,
        "HEADGATE_SPARK__SECRET_FILE": str(secret_file),
        "HEADGATE_KAFKA__BOOTSTRAP": fed.kafka.bootstrap,
        "HEADGATE_SPARK__MASTER": cluster.master,
        "HEADGATE_SPARK__WHEEL": str(wheel),
        "HEADGATE_SPARK__CONF": json.dumps(
            {
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": SMALL,
                "spark.executor.cores": "1",
                "spark.cores.max": "2",
            }
        ),
    }
    for job in ("ingest", "sessions"):
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli", "--home", str(fed.home), "run", job, "--once"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    connection = connect(fed.lake_root)
    records, events = connection.execute(
        "SELECT (SELECT count(*) FROM bronze.record), (SELECT count(*) FROM silver.dhcp_activity)"
    ).fetchone() or (0, 0)
    leases = connection.execute(
        "SELECT mac, count(*) FROM silver.dhcp_session GROUP BY 1"
    ).fetchall()
    assert (records, events) == (2 * DEVICES, 2 * DEVICES)
    assert sorted(leases) == sorted((f"02:00:00:00:07:{d:02x}", 1) for d in range(DEVICES))
    for worker in (0, 1):
        shipped = [file for one in cluster.executors(worker) for file in one.glob("headgate-*.zip")]
        assert shipped, f"worker {worker} got no wheel: it took no part"
