"""A short run of the jobs, on a broker and a lake of its own, that gathers Spark's classes.

What its JVM leaves is the archive that `infra.spark.appcds` gives to later ones. It runs in a
process that has none of the user's settings, as it must touch neither their lake nor their broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from infra.config.settings import Settings, load
from infra.errors import Fatal, HeadgateError
from infra.kafka.client import Broker, ensure_topics, free_port, produce, producer, topic_of
from infra.process import java_jars
from infra.process.log import News
from infra.process.subprocesses import die_with_parent
from infra.runtime import job_status
from infra.spark import appcds
from infra.spark.appcds import INTO, NOT_GATHERED
from infra.storage.file_lock import ExclusiveLock, Taken

LINES = (
    ("isc_dhcpd", b"<30>1 %s gate dhcpd 7 - - DHCPACK on 10.0.0.9 to 02:00:00:00:00:09 via br0"),
    ("zeek:dns", b'{"ts":"%s","uid":"C9","id.orig_h":"10.0.0.9","id.orig_p":40000,'
     b'"id.resp_h":"10.9.1.1","id.resp_p":53,"proto":"udp","query":"www.example.com"}'),
)  # fmt: skip
"""What the jobs work on while their classes are gathered."""

ENVIRONMENT = {"HEADGATE_MAINTENANCE__MINUTES": "0", "HEADGATE_JOBS__QUALITY_MINUTES": "0"}
_LAST = "alert"
"""The job that begins last of those which alerts wait for."""
_LONGEST_SECONDS = 600.0
_KEPT_SECONDS = 30 * 24 * 3600.0
_PREFIX = "headgate-classes-"
_USERS = ("HEADGATE_", "SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "AWS_")
"""Variables of the user's that the run must not see: they may name what is theirs."""

_Say = Callable[[str], None]


def make_archive(say: _Say, *, again: bool = False) -> bool:
    """Make the archive if it is missing; whether it is there.

    Never raises for what goes wrong, as all works without; that is said, and noted beside where
    the archive would be. `again`: try also where that was noted.
    """
    wanted = appcds.file()
    failed = wanted.with_suffix(".failed")
    if not wanted.exists() and (again or not failed.exists()):
        # Jars of a package or an image may be read-only, and no attempt will ever succeed there.
        if not os.access(wanted.parent, os.W_OK):
            say(f"{NOT_GATHERED}: {wanted.parent} is read-only")
            return False
        try:
            with _alone(wanted, say):
                # Looked at again under the lock: another process may have made it meanwhile.
                if not wanted.exists():
                    say("gathering Spark's classes, so that it starts sooner (once, minutes) ...")
                    _make(wanted)
            failed.unlink(missing_ok=True)
        except (HeadgateError, OSError) as error:
            say(f"{NOT_GATHERED}: {error}")
            with suppress(OSError):  # such as a full disk, where the next one tries again
                failed.write_text(f"{error}\n", "utf-8")
    if not wanted.exists():
        return False
    with suppress(OSError):
        # Marks it as in use: those that nobody touched for a month are removed.
        os.utime(wanted)
    return True


@contextmanager
def _alone(wanted: Path, say: _Say) -> Iterator[None]:
    """One at a time: others wait for what the first one makes."""
    end, repeated = time.monotonic() + _LONGEST_SECONDS, News(say)
    while True:
        try:
            right = ExclusiveLock(
                wanted.with_suffix(".lock"), "process {} is gathering them".format
            )
            break
        except Taken as taken:
            if time.monotonic() > end:
                raise
            repeated.tell(f"waiting for Spark's classes: {taken}")
            time.sleep(1.0)
    try:
        yield
    finally:
        right.release()


def _make(wanted: Path) -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):  # of one that was killed
        if left.stat().st_mtime < time.time() - 2 * _LONGEST_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as own:
        made = Path(own) / "classes.jsa"
        gathered([sys.executable, "-m", "headgate.demo.appcds_training"], made)
        _put(made, wanted)


def _put(made: Path, wanted: Path) -> None:
    """Whole or not at all; those that nobody has asked for in a month go."""
    for old in wanted.parent.glob("classes-*"):
        if old.suffix != ".lock" and old.stat().st_mtime < time.time() - _KEPT_SECONDS:
            old.unlink(missing_ok=True)
    beside = wanted.with_suffix(".unfinished")
    beside.unlink(missing_ok=True)
    try:
        shutil.copyfile(made, beside)
        # A JVM maps the archive into memory; one that was changed beneath it would crash.
        beside.chmod(0o400)
        beside.replace(wanted)
    finally:
        beside.unlink(missing_ok=True)


def gathered(command: Sequence[str], made: Path, seconds: float = _LONGEST_SECONDS) -> None:
    """Run a command in the folder of `made`, and wait until all it began has ended: JVMs, too.

    Raises `Fatal` when it fails, does not end in time, or leaves no whole archive.
    """
    # It must reach neither the user's lake nor their broker.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_USERS)}
    kept |= {"HEADGATE_JARS": str(java_jars.jars_folder().absolute()), INTO: str(made)}
    suffix = made.with_suffix(".log")
    end = time.monotonic() + seconds
    with suffix.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=made.parent, env=kept, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            while (running := _group(process)) and time.monotonic() < end:
                process.poll()
                time.sleep(0.5)
        finally:
            # The whole session: Spark's JVM is a child of the Python process.
            for left in _group(process):
                with suppress(psutil.NoSuchProcess):
                    left.kill()
            process.wait()
    if running or process.returncode or not appcds.is_whole(made):
        last = suffix.read_text("utf-8", "replace").strip().splitlines()[-1:]
        what = f"not within {seconds:.0f} s" if running else f"it ended with {process.returncode}"
        raise Fatal(f"{what}; {' '.join(last)[:300]}")


def _group(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What of a command still runs: its JVM outlives it while it writes the archive."""
    processes = []
    for process_row in psutil.process_iter():
        try:
            if (
                os.getpgid(process_row.pid) == process.pid
                and process_row.status() != psutil.STATUS_ZOMBIE
            ):
                processes.append(process_row)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return processes


def main() -> None:
    """Run all jobs in the folder where this process is, until the last of them is at work.

    Raises `Fatal` when that does not come: an archive without their classes is worth little.
    """
    own = Path.cwd()
    broker = Broker(own / "kafka", free_port()).start()
    try:
        settings = load(home=own / "home", kafka={"bootstrap": broker.address})
        ensure_topics(settings, [source for source, _ in LINES])
        client = producer(settings.kafka)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode()
        for source, line in LINES:
            produce(client, topic_of(source, settings.kafka), line.replace(b"%s", now))
        client.flush(30)
        environment = ENVIRONMENT | {"HEADGATE_KAFKA__BOOTSTRAP": broker.address}
        command = [sys.executable, "-m", "headgate.cli", "--home", str(settings.home), "up"]
        end = time.monotonic() + _LONGEST_SECONDS * 0.8
        with subprocess.Popen(
            command, env=os.environ | environment, preexec_fn=die_with_parent
        ) as driver:
            while driver.poll() is None and not _at_work(settings) and time.monotonic() < end:
                time.sleep(0.5)
            driver.terminate()
        if not _at_work(settings):
            raise Fatal(f"job {_LAST} had no batch; the driver ended with {driver.returncode}")
    finally:
        broker.stop()


def _at_work(settings: Settings) -> bool:
    content = job_status.read_status(settings).get(_LAST)
    return content is not None and content.batch is not None


if __name__ == "__main__":
    try:
        main()
    except HeadgateError as error:
        sys.exit(str(error))
