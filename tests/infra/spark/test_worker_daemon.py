"""The daemon that forks Python workers with their code loaded."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from infra.config.settings import load
from infra.spark import worker_daemon
from infra.spark.session import conf_of

LOADED = """
import os, sys
from infra.spark.worker_daemon import MODULES, ONE_THREAD, load, threads
os.environ.update(ONE_THREAD)
load(MODULES)
from ingest.parsing.source import sources
print(threads(), sources.cache_info().currsize, "pandas" in sys.modules, "duckdb" in sys.modules)
"""


@pytest.mark.full
def test_all_that_workers_need_is_loaded_and_begins_no_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1", "True", "False"]
    assert "is not loaded ahead" not in done.stderr


def test_what_cannot_be_loaded_is_named_and_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("this", None)
    worker_daemon.load(("no.such", "json:no_such", "this"))
    said = capsys.readouterr()
    assert "no.such is not loaded ahead: No module named 'no'" in said.err
    assert "json:no_such is not loaded ahead" in said.err
    assert "this" in sys.modules


def test_where_a_thread_was_begun_spark_s_own_daemon_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_daemon, "MODULES", ())
    monkeypatch.setattr(worker_daemon, "threads", lambda: 2)
    monkeypatch.setattr(sys, "argv", ["infra.spark.worker_daemon", "pyspark.worker"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in worker_daemon.ONE_THREAD:
        monkeypatch.setenv(name, "")
    became: list[list[str]] = []

    def become(program: str, arguments: list[str]) -> None:
        became.append(arguments)
        raise SystemExit

    monkeypatch.setattr(os, "execv", become)
    with pytest.raises(SystemExit):
        worker_daemon.main()
    assert became == [[sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]]


@pytest.mark.full
def test_it_forks_a_worker_for_who_connects_and_ends_with_spark() -> None:
    spark_s = Path(worker_daemon.__file__).parent / "no" / "pyspark.zip"
    secret = {"PYTHON_WORKER_FACTORY_SECRET": "s", "PYTHONPATH": str(spark_s)}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "infra.spark.worker_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | secret,
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    try:
        (port,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as line:
            (worker,) = struct.unpack(">i", line.recv(4))
            line.sendall(struct.pack(">i", 1) + b"s")
            assert line.recv(6) == struct.pack(">i", 2) + b"ok"
            forked = psutil.Process(worker)
            assert forked.ppid() == daemon.pid
            assert worker_daemon.is_daemon(forked.cmdline())
            mapped = {Path(one.path).name for one in forked.memory_maps()}
            assert any(name.startswith("libarrow.so") for name in mapped)
        daemon.stdin.close()
        daemon.wait(20)
        assert psutil.wait_procs([forked], 20)[1] == []
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def test_jobs_of_a_local_driver_have_it(tmp_path: Path) -> None:
    wanted = "spark.python.daemon.module"
    here = conf_of(load(home=tmp_path), tmp_path, small_batches=True)
    assert here[wanted] == "infra.spark.worker_daemon"
    # Else workers of some operators have a daemon of their own, as Spark keeps one an environment.
    assert here["spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK"] == "1"
    assert wanted not in conf_of(load(home=tmp_path), tmp_path, small_batches=False)
    cluster = load(home=tmp_path, spark={"master": "spark://127.0.0.1:7077"})
    assert wanted not in conf_of(cluster, tmp_path, small_batches=True)


def test_archives_that_are_installed_too_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [str(tmp_path / "pyspark.zip"), str(tmp_path / "code.zip"), "/p"]
    monkeypatch.setattr(sys, "path", list(given))
    worker_daemon._unzipped()
    assert sys.path == given[1:]
    monkeypatch.setattr(sys, "path", list(given))
    monkeypatch.setattr(worker_daemon, "find_spec", lambda name: None)
    worker_daemon._unzipped()
    assert sys.path == given


def test_threads_are_counted() -> None:
    before = worker_daemon.threads()
    go_on = threading.Event()
    other = threading.Thread(target=go_on.wait)
    other.start()
    try:
        assert worker_daemon.threads() == before + 1
    finally:
        go_on.set()
        other.join()
