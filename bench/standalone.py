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

from infra.kafka.client import free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
LOOPBACK = "127.0.0.1"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Cluster:
    """A master and its workers, which may be killed."""

    master: str
    folder: Path
    workers: tuple[psutil.Process, ...]
    top: psutil.Process
    """The master's process."""
    pages: tuple[str, ...]
    """Addresses of the pages: the master's, then the workers'."""

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
    own["SPARK_LOCAL_IP"] = LOOPBACK  # of the pages, as our units say
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
    folder: Path,
    workers: int,
    cores: int,
    memory: str = "2g",
    conf: Path | None = None,
    host: str = LOOPBACK,
) -> Iterator[Cluster]:
    """A master with workers, whose cores and memory are what they offer, not what there is.

    `conf`: a folder with a `spark-defaults.conf`. `host`: where all but their pages listen.
    """
    port, *pages = (free_port() for _ in range(2 + workers))
    master = f"spark://{host}:{port}"
    package = "org.apache.spark.deploy"
    here = ("--host", host, "--webui-port")
    log = folder / "master.log"
    offer = ("--cores", str(cores), "--memory", memory)
    with ExitStack() as stack:
        told = ("--port", str(port), *here, str(pages[0]))
        top = stack.enter_context(daemon(log, conf, f"{package}.master.Master", *told))
        running = tuple(
            stack.enter_context(
                daemon(
                    folder / f"worker{number}.log",
                    conf,
                    *(f"{package}.worker.Worker", *here, str(pages[1 + number])),
                    *(*offer, "--work-dir", str(folder / f"w{number}"), master),
                )
            )
            for number in range(workers)
        )
        _registered(log, workers)
        shown = tuple(f"http://{LOOPBACK}:{page}" for page in pages)
        yield Cluster(master, folder, running, top, shown)


def _registered(log: Path, workers: int, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while (said := log.read_text("utf-8", "replace")).count("Registering worker") < workers:
        if time.monotonic() > end:
            raise TimeoutError(f"{workers} workers did not register: {said[-500:]}")
        time.sleep(0.2)
