"""Jobs on a Spark standalone cluster of two workers on this machine, our wheel shipped to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyspark
import pytest

from infra.duck import connect
from infra.kafka import Broker, ensure_topics, free_port, producer, topic_of
from infra.settings import Settings, load
from infra.spark import project_root

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEVICES = 30


@contextmanager
def daemon(log: Path, *command: str) -> Iterator[None]:
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *command],
            stdout=file,
            stderr=file,
            env=os.environ | {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": SMALL},
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Address of a master with two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", str(free_port()))
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        stack.enter_context(daemon(log, f"{package}.master.Master", "--port", str(port), *here))
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"w{number}"))
            stack.enter_context(
                daemon(
                    tmp_path / f"worker{number}.log",
                    f"{package}.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", str(free_port())),
                    *work,
                    master,
                )
            )
        registered(log, 2)
        yield master


def registered(log: Path, workers: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while log.read_text("utf-8", "replace").count("Registering worker") < workers:
        assert time.monotonic() < end, log.read_text("utf-8", "replace")[-500:]
        time.sleep(0.2)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The project's wheel, built from the checkout and from nothing an earlier build left."""
    shutil.rmtree(project_root() / "build", ignore_errors=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(tmp_path), str(project_root())),
        ],
        check=True,
        capture_output=True,
    )
    return next(tmp_path.glob("headgate-*.whl"))


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
    cluster: str, wheel: Path, fed: Settings, tmp_path: Path
) -> None:
    environment = os.environ | {
        "HEADGATE_KAFKA__BOOTSTRAP": fed.kafka.bootstrap,
        "HEADGATE_SPARK__MASTER": cluster,
        "HEADGATE_SPARK__WHEEL": str(wheel),
        "HEADGATE_SPARK__CONF": json.dumps(
            {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SMALL}
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
    for number in (1, 2):
        shipped = list((tmp_path / f"w{number}").glob("app-*/*/headgate-*.zip"))
        assert shipped, f"worker {number} got no wheel: it took no part"
