"""What the operator sees: sentences, not stack traces; no process left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headgate.cli import COMMANDS
from infra.cli.doctor import examine
from infra.config.settings import load
from infra.delta.log_reader import commit, newest_version, table_id
from infra.kafka.client import free_port, source_of, topic_of
from infra.runtime.machine_checks import LEAST_DISK_GB, check_disk
from infra.spark import appcds
from infra.streaming.lake import Lake
from tests.full import rest_full


def headgate(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, **environment},
    )


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_help_names_every_command_and_starts_no_jvm() -> None:
    said = headgate("--help", PATH="/nowhere")
    assert said.returncode == 0
    assert all(name in said.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    rest_full(
        2,
        [
            (("nonsense",), 2, "no command 'nonsense'"),
            (("--wrong",), 2, "unknown option '--wrong'"),
            (("tables", "silver.nothing"), 2, "no table 'silver.nothing'"),
            (("run", "nothing"), 2, "no job 'nothing'"),
            (("demo", "--speed", "0"), 2, "argument --speed: '0': write a number above 0"),
        ],
    ),
)
def test_a_wrong_call_gets_one_sentence(words: tuple[str, ...], code: int, said: str) -> None:
    done = headgate(*words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_java_is_named_with_what_to_install(tmp_path: Path) -> None:
    done = headgate("--home", str(tmp_path), "demo", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "Java was not found; install" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.full
def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path, taken: int) -> None:
    done = headgate("--home", str(tmp_path), "demo", "--kafka-port", str(taken))
    assert done.returncode == 1
    assert f"port {taken}, wanted for Kafka, is taken" in done.stderr
    assert "--kafka-port" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.full
def test_a_broker_that_is_away_is_named(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    done = headgate("--home", str(tmp_path), "up", HEADGATE_KAFKA__BOOTSTRAP=nobody)
    assert done.returncode == 1
    assert f"no Kafka broker answers at {nobody}" in done.stderr
    assert "Traceback" not in done.stderr


def test_too_little_disk_is_said_with_the_figure() -> None:
    small = Path("/dev/shm")
    free = psutil.disk_usage(str(small)).free / 2**30
    finding = check_disk(small)
    assert f"GB free under {small}" in finding.found
    assert (finding.remedy is None) == (free >= LEAST_DISK_GB)


def test_the_doctor_looks_at_everything_a_run_needs(tmp_path: Path) -> None:
    looked = {finding.what for finding in examine(load(home=tmp_path))}
    assert looked == {
        *("java", "archives", "classes", "memory", "disk", "kafka", "access", "api port", "pdf"),
    }


@pytest.mark.full
def test_the_doctor_looks_at_the_rest_where_there_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    appcds.file.cache_clear()
    try:
        looked = {finding.what: finding for finding in examine(load(home=tmp_path))}
    finally:
        appcds.file.cache_clear()
    assert "Java was not found" in str(looked["java"].remedy)
    assert looked["classes"].found == "not gathered: Spark starts slower"
    assert "disk" in looked


def test_sources_and_topics_name_each_other() -> None:
    kafka = load().kafka
    for source in ("zeek:conn", "sshd", "aws_cloudtrail"):
        assert source_of(topic_of(source, kafka), kafka) == source
    assert topic_of("zeek:conn", kafka) == "logs.zeek.conn"


def test_a_table_keeps_its_identity_when_its_first_commit_is_cleaned_up(lake: Lake) -> None:
    from alerts.tables import ALERT

    folder = lake.folder(ALERT)
    identity = table_id(folder)
    (folder / "_delta_log" / f"{0:020d}.json").unlink()
    assert table_id(folder) == identity


def test_a_commit_tells_its_files(lake: Lake) -> None:
    from infra.delta.ops_tables import AUDIT

    rows = lake.spark.sql("SELECT current_timestamp() AS at, 'me' AS who, 'test' AS act")
    rows.write.format("delta").mode("append").save(lake.path(AUDIT))
    found = commit(lake.folder(AUDIT), newest_version(lake.folder(AUDIT)))
    assert found.rows == 1
    assert found.changes_data
    assert all((lake.folder(AUDIT) / name).exists() for name in found.adds)


@pytest.mark.full
def test_ctrl_c_ends_the_demo_and_leaves_no_process(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [
            *(sys.executable, "-m", "headgate.cli", "--home", str(tmp_path), "demo"),
            *("--kafka-port", str(free_port()), "--api-port", str(free_port())),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    children: list[psutil.Process] = []
    for line in demo.stdout or ():
        if "replaying demo" in line:
            children = psutil.Process(demo.pid).children(recursive=True)
            demo.send_signal(signal.SIGINT)
    assert demo.wait(90) == 0
    assert len(children) >= 4  # broker, driver and its JVM, API
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
