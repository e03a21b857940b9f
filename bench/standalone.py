"""A Spark standalone cluster on this machine: a master and workers, as processes of Spark's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from infra.kafka import free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Cluster:
    """A master and its workers, which may be killed."""

    master: str
    folder: Path
    workers: tuple[psutil.Process, ...]

    def kill(self, worker: int) -> None:
        """End a worker as a power cut would, its executors and their Python with it."""
        top = self.workers[worker]
        family = [top, *top.children(recursive=True)]
        for process in family:
            process.suspend()  # so that none sees the other die
        for process in family:
            process.kill()

    def executors(self, worker: int) -> list[Path]:
        """Folders of the executors a worker has run."""
        return list((self.folder / f"w{worker}").glob("app-*/*"))


@contextmanager
def daemon(log: Path, conf: Path | None, *command: str) -> Iterator[psutil.Process]:
    """A process of Spark's own, ended at the end with all that it started."""
    own = {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": SMALL}
    if conf is not None:
        own["SPARK_CONF_DIR"] = str(conf)
    with log.open("w") as file:
        process = psutil.Popen(
            [str(SPARK_CLASS), *command],
            stdout=file,
            stderr=file,
            env=os.environ | own,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)


@contextmanager
def standalone(
    folder: Path, workers: int, cores: int, memory: str = "2g", conf: Path | None = None
) -> Iterator[Cluster]:
    """A master with workers, whose cores and memory are what they offer, not what there is.

    `conf`: a folder with a `spark-defaults.conf`.
    """
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port")
    log = folder / "master.log"
    offer = ("--cores", str(cores), "--memory", memory)
    with ExitStack() as stack:
        told = ("--port", str(port), *here, str(free_port()))
        stack.enter_context(daemon(log, conf, f"{package}.master.Master", *told))
        running = tuple(
            stack.enter_context(
                daemon(
                    folder / f"worker{number}.log",
                    conf,
                    *(f"{package}.worker.Worker", *here, str(free_port())),
                    *(*offer, "--work-dir", str(folder / f"w{number}"), master),
                )
            )
            for number in range(workers)
        )
        _registered(log, workers)
        yield Cluster(master, folder, running)


def _registered(log: Path, workers: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while (said := log.read_text("utf-8", "replace")).count("Registering worker") < workers:
        if time.monotonic() > end:
            raise TimeoutError(f"{workers} workers did not register: {said[-500:]}")
        time.sleep(0.2)
