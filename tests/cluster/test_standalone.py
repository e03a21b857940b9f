"""Jobs on a Spark standalone cluster of two workers on this machine, our wheel shipped to them; the
broker they read from asks who comes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from bench.standalone import SMALL, Cluster
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.kafka.client import producer, topic_of
from tests.bucket.store import Store
from tests.cluster.conftest import SECRET
from tests.cluster.guarded import CANARY, PASSWORD, Guarded, guarded, telling
from tests.cluster.sockets import listening

DEVICES = 30


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Guarded]:
    """A broker that holds leases of some devices, two lines each."""
    with guarded(tmp_path, "isc_dhcpd") as broker:
        client = producer(broker.admin)
        for ago in (60, 5):
            stamp = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="seconds")
            for device in range(DEVICES):
                mac = f"02:00:00:00:07:{device:02x}"
                line = (
                    f"<30>1 {stamp} gate dhcpd 7 - - "
                    f"DHCPACK on 10.7.0.{device + 1} to {mac} (pc-{device}) via br0"
                )
                client.produce(topic_of("isc_dhcpd", broker.admin), line.encode())
        assert client.flush(20) == 0
        yield broker


@dataclass
class Seen:
    """What any user of the machine saw while a job ran."""

    lines: set[str]
    """Command lines of the cluster and the driver."""
    listening: set[str]
    """Addresses on which JVMs of executors listened."""


@pytest.mark.full
@pytest.mark.cluster
def test_ingest_and_sessions_run_on_two_workers_and_nothing_tells_a_secret(
    cluster: Cluster, secret_file: Path, wheel: Path, fed: Guarded, tmp_path: Path
) -> None:
    seen = run_on(cluster, secret_file, wheel, fed, tmp_path / "lake")
    assert any("CoarseGrainedExecutorBackend" in line for line in seen.lines)
    assert [line for line in seen.lines if CANARY in line or SECRET in line] == []
    assert telling(tmp_path) == []
    # The pages' address, which executors inherit, is not theirs.
    assert seen.listening == {"127.0.0.2"}
    told = [one.read_text() for worker in (0, 1) for one in logs(cluster, worker)]
    assert len(told) >= 4
    assert [text for text in told if " INFO " in text] == []


def logs(cluster: Cluster, worker: int) -> list[Path]:
    return [one / "stderr" for one in cluster.executors(worker)]


@pytest.mark.cluster
@pytest.mark.soak
def test_two_workers_write_into_a_bucket(
    store: Store, cluster: Cluster, secret_file: Path, wheel: Path, fed: Guarded
) -> None:
    run_on(cluster, secret_file, wheel, fed, "s3://plant/cluster")
    written = [name for name in store.names("cluster/silver/event/") if name.endswith(".parquet")]
    assert written


def watched(command: list[str], environment: dict[str, str], cluster: Cluster) -> Seen:
    """Run a driver to its end, and look at its processes and the cluster's meanwhile."""
    seen = Seen(set(), set())
    end = time.monotonic() + 300
    log = cluster.folder / "driver.log"
    with log.open("w") as file:
        driver = psutil.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        while driver.poll() is None and time.monotonic() < end:
            for top in (cluster.top, *cluster.workers, driver):
                with suppress(psutil.Error):  # one has ended
                    for one in (top, *top.children(recursive=True)):
                        look(one, seen)
            time.sleep(0.2)
        assert driver.poll() == 0, log.read_text("utf-8")[-2000:]
    finally:
        if driver.poll() is None:
            driver.kill()
    return seen


def look(process: psutil.Process, seen: Seen) -> None:
    line = " ".join(process.cmdline())
    seen.lines.add(line)
    if "CoarseGrainedExecutorBackend" in line and "java" in process.name():
        seen.listening |= {ip for ip, _ in listening(process)}


def run_on(
    cluster: Cluster, secret_file: Path, wheel: Path, fed: Guarded, lake: Path | str
) -> Seen:
    """Jobs `ingest` and `sessions` as applications of the cluster, and what they wrote."""
    home = cluster.folder / "home"
    environment = os.environ | {
        **fed.environment,
        "HEADGATE_KAFKA__PASSWORD": PASSWORD,
        "HEADGATE_LAKE": str(lake),
        "HEADGATE_SPARK__SECRET_FILE": str(secret_file),
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
    seen = Seen(set(), set())
    for job in ("ingest", "sessions"):
        command = [sys.executable, "-m", "headgate.cli", "--home", str(home), "run", job, "--once"]
        more = watched(command, environment, cluster)
        seen = Seen(seen.lines | more.lines, seen.listening | more.listening)

    connection = connect(load(home=home, lake=lake).lake_root)
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
    return seen
