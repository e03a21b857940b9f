"""A short run of the jobs, on a broker and a lake of its own, that gathers Spark's classes.

What its JVM leaves is the archive that `infra.class_archive` gives to later ones. It runs in a
process that has none of the user's settings, as it must touch neither their lake nor their broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra import class_archive, jars, status
from infra.class_archive import INTO
from infra.errors import Fatal
from infra.kafka import Broker, ensure_topics, free_port, producer, topic_of
from infra.settings import Settings, load

LINES = (
    ("isc_dhcpd", b"<30>1 %s gate dhcpd 7 - - DHCPACK on 10.0.0.9 to 02:00:00:00:00:09 via br0"),
    ("zeek:dns", b'{"ts":"%s","uid":"C9","id.orig_h":"10.0.0.9","id.orig_p":40000,'
     b'"id.resp_h":"10.9.1.1","id.resp_p":53,"proto":"udp","query":"www.example.com"}'),
)  # fmt: skip
"""What the jobs work on while their classes are gathered."""

ENVIRONMENT = {"HEADGATE_UPKEEP__MINUTES": "0", "HEADGATE_JOBS__QUALITY_MINUTES": "0"}
LAST = "alert"
"""The job that begins last of those which alerts wait for."""

Say = Callable[[str], None]


def make(say: Say, *, again: bool = False) -> bool:
    """Make the archive if it is missing; whether it is there.

    Never raises for what goes wrong, as all works without; that is said, and noted beside where
    the archive would be. `again`: try also where that was noted.
    """
    wanted = class_archive.file()
    failed = wanted.with_suffix(".failed")
    if wanted.exists() or (failed.exists() and not again):
        return wanted.exists()
    if not os.access(wanted.parent, os.W_OK):
        say(f"Spark's classes are not gathered, all works without: {wanted.parent} is read-only")
        return False
    say("gathering Spark's classes, so that it starts sooner (once, a minute or two) ...")
    with tempfile.TemporaryDirectory(prefix="headgate-classes-", ignore_cleanup_errors=True) as own:
        try:
            made = Path(own) / "classes.jsa"
            gathered([sys.executable, "-m", "infra.rehearsal"], made)
            _put(made, wanted)
            failed.unlink(missing_ok=True)
        except (Fatal, OSError) as error:
            failed.write_text(f"{error}\n", "utf-8")
            say(f"Spark's classes could not be gathered, all works without: {error}")
    return wanted.exists()


def _put(made: Path, wanted: Path) -> None:
    """Whole or not at all, and the only one: those of other versions go."""
    beside = wanted.with_suffix(f".{os.getpid()}")
    shutil.copyfile(made, beside)
    beside.chmod(0o400)
    for old in wanted.parent.glob("classes-*.jsa"):
        old.unlink(missing_ok=True)
    beside.replace(wanted)


def gathered(command: Sequence[str], made: Path, seconds: float = 600.0) -> None:
    """Run a command in the folder of `made`, and wait until all it began has ended: JVMs, too.

    Raises `Fatal` when nothing is `made` in time.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    kept |= {"HEADGATE_JARS": str(jars.folder().absolute()), INTO: str(made)}
    said = made.with_suffix(".log")
    end = time.monotonic() + seconds
    with said.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=made.parent, env=kept, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            while _group(process) and time.monotonic() < end:
                process.poll()
                time.sleep(0.5)
        finally:
            for left in _group(process):
                with suppress(psutil.NoSuchProcess):
                    left.kill()
            process.wait()
    if not made.exists():
        last = said.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise Fatal(f"no classes within {seconds:.0f} s; {' '.join(last)[:300]}")


def _group(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What of a command still runs: its JVM outlives it while it writes the archive."""
    found = []
    for one in psutil.process_iter():
        try:
            if os.getpgid(one.pid) == process.pid and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def main() -> None:
    """Run all jobs in the folder where this process is, until the last of them is at work."""
    own = Path.cwd()
    broker = Broker(own / "kafka", free_port()).start()
    try:
        settings = load(home=own / "home", kafka={"bootstrap": broker.address})
        ensure_topics(settings, [source for source, _ in LINES])
        client = producer(settings.kafka)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode()
        for source, line in LINES:
            client.produce(topic_of(source, settings.kafka), line.replace(b"%s", now))
        client.flush(30)
        told = ENVIRONMENT | {"HEADGATE_KAFKA__BOOTSTRAP": broker.address}
        command = [sys.executable, "-m", "infra.cli", "--home", str(settings.home), "up"]
        with subprocess.Popen(command, env=os.environ | told) as driver:
            while driver.poll() is None and not _at_work(settings):
                time.sleep(0.5)
            driver.terminate()
    finally:
        broker.stop()


def _at_work(settings: Settings) -> bool:
    one = status.read(settings).get(LAST)
    return one is not None and one.batch is not None


if __name__ == "__main__":
    main()
