"""What a process needs only while it lives does not outlive it for long."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from infra.spark.internals import java
from infra.storage.temp_dirs import scratch

ANOTHER = """
import sys, time
from pathlib import Path
from infra.storage.temp_dirs import scratch
own = scratch(Path(sys.argv[1]))
(own / "deep").mkdir()
(own / "deep" / "library.so").write_bytes(b"x" * 1000)
print(own, flush=True)
time.sleep(600)
"""


@contextmanager
def another(home: Path) -> Iterator[Path]:
    """The folder of a process that lives as long as inside, and then is killed."""
    command = [sys.executable, "-c", ANOTHER, str(home / "scratch")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_process_has_a_folder_of_its_own_that_others_may_not_read(tmp_path: Path) -> None:
    own = scratch(tmp_path / "scratch")
    assert scratch(tmp_path / "scratch") == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_what_killed_processes_left_is_gone_with_the_next_start(tmp_path: Path) -> None:
    left = []
    for _ in range(2):
        with another(tmp_path) as folder:
            left.append(folder)
    assert [folder.exists() for folder in left] == [False, True]
    scratch(tmp_path / "scratch")
    assert not left[1].exists()


def test_what_a_living_process_has_stays(tmp_path: Path) -> None:
    with another(tmp_path) as first, another(tmp_path) as second:
        own = scratch(tmp_path / "scratch")
        assert len({own, first, second}) == 3
        assert (first / "deep" / "library.so").exists()
        assert (second / "deep" / "library.so").exists()


def test_a_process_that_ends_in_order_leaves_nothing(tmp_path: Path) -> None:
    brief = ANOTHER.replace("time.sleep(600)", "")
    command = [sys.executable, "-c", brief, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path / "scratch"
    assert not folder.exists()


def test_a_folder_that_nobody_ever_locked_is_removed(tmp_path: Path) -> None:
    half_made = tmp_path / "scratch" / f"{socket.gethostname()}-12-abc"
    half_made.mkdir(parents=True)
    assert scratch(tmp_path / "scratch").exists()
    assert not half_made.exists()


def test_what_another_machine_has_is_its_own_to_remove(tmp_path: Path) -> None:
    theirs = [
        tmp_path / "scratch" / f"{machine}-12-abc"
        for machine in ("another", f"{socket.gethostname()}-2", f"a-{socket.gethostname()}")
    ]
    for folder in theirs:
        folder.mkdir(parents=True)
    scratch(tmp_path / "scratch")
    assert all(folder.exists() for folder in theirs)


def test_sparks_temporary_files_lie_there(spark: SparkSession, session_home: Path) -> None:
    own = scratch(session_home / "scratch")
    assert java(spark, "java.lang.System").getProperty("java.io.tmpdir") == str(own)
    assert list(own.glob("blockmgr-*"))
