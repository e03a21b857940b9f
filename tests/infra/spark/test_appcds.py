"""The archive of Spark's classes: which one fits, who makes it, and what happens without."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from headgate.demo import appcds_training
from infra.config.settings import load
from infra.errors import Fatal
from infra.process import java_jars
from infra.spark import appcds
from infra.spark.appcds import INTO, class_path, options
from infra.spark.internals import jvm_process
from infra.spark.session import conf_of, project_root
from tests.wait import until

BEGINS_A_JVM = """
import os, subprocess
subprocess.run(["java", "-XX:ArchiveClassesAtExit=" + os.environ["CLASSES_INTO"], "-Xlog:cds=off",
                "-Xlog:cds+dynamic=off", "-cp", os.environ["CP"], "org.apache.spark.launcher.Main"])
print(sorted(name for name in os.environ if name.startswith("HEADGATE_")))
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file where the archive would lie, in a folder of the test's own."""
    there = tmp_path / "classes-0123456789abcdef.jsa"
    monkeypatch.setattr(appcds, "file", lambda: there)
    monkeypatch.delenv(INTO, raising=False)
    return there


def test_an_archive_fits_one_java_and_one_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    monkeypatch.setattr(appcds, "class_path", lambda: [jar])
    first = appcds.file.__wrapped__()
    assert first.parent == java_jars.jars_folder()
    assert appcds.file.__wrapped__() == first
    jar.write_bytes(b"12")
    assert appcds.file.__wrapped__() != first


def test_a_jvm_is_given_the_archive_that_is_there(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options() == ""
    kept.touch()
    assert shlex.split(options())[0] == f"-XX:SharedArchiveFile={kept}"
    monkeypatch.setenv(INTO, "/tmp/one of mine.jsa")
    assert shlex.split(options())[0] == "-XX:ArchiveClassesAtExit=/tmp/one of mine.jsa"


def test_only_a_local_driver_has_spark_s_archives_on_its_class_path(
    kept: Path, tmp_path: Path
) -> None:
    kept.touch()
    given, names = "spark.driver.extraJavaOptions", {path.name for path in java_jars.paths("spark")}
    here = conf_of(load(home=tmp_path), tmp_path, small_batches=False)
    assert str(kept) in here[given]
    assert names < {Path(one).name for one in here["spark.driver.extraClassPath"].split(":")}
    assert here["spark.jars"] == ""
    cluster = load(home=tmp_path, spark={"master": "spark://127.0.0.1:7077"})
    there = conf_of(cluster, tmp_path, small_batches=False)
    assert str(kept) not in there[given]
    assert names == {Path(one).name for one in there["spark.jars"].split(",")}
    assert "spark.driver.extraClassPath" not in there


def test_what_a_jvm_leaves_is_waited_for_and_another_maps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_LAKE", "/a/lake/that/is/in/use")
    made, path = tmp_path / "made.jsa", ":".join(map(str, class_path()))
    command = [sys.executable, "-c", BEGINS_A_JVM]
    monkeypatch.setenv("CP", path)
    appcds_training.gathered(command, made, 120)
    assert "['HEADGATE_JARS']" in made.with_suffix(".log").read_text()
    done = subprocess.run(
        ["java", "-Xshare:on", f"-XX:SharedArchiveFile={made}", "-Xlog:class+load", "-cp", path,
         "org.apache.spark.launcher.Main"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    loaded = [
        line for line in done.stdout.splitlines() if " org.apache.spark.launcher.Main " in line
    ]
    assert [line.split("source: ")[1] for line in loaded] == ["shared objects file (top)"]


def test_a_run_that_leaves_nothing_says_what_it_said_last(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('one'); print('no broker')"]
    with pytest.raises(Fatal, match="it ended with 0; no broker"):
        appcds_training.gathered(command, tmp_path / "made.jsa", 5)


def test_a_run_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="not within 2 s"):
        appcds_training.gathered(["sleep", "60"], tmp_path / "made.jsa", 2)


@pytest.mark.parametrize(
    ("first", "ends", "said"),
    [
        (appcds._MAGIC, "job alert had no batch", "it ended with 1; job alert had no batch"),
        (bytes(4), "", "it ended with 0"),  # a JVM that was killed: it writes these bytes last
    ],
)
def test_what_a_failed_run_or_a_killed_jvm_leaves_is_no_archive(
    tmp_path: Path, first: bytes, ends: str, said: str
) -> None:
    leaves = (
        f"import sys; open('made.jsa', 'wb').write({first!r} + bytes(9)); sys.exit({ends!r} or 0)"
    )
    with pytest.raises(Fatal, match=said):
        appcds_training.gathered([sys.executable, "-c", leaves], tmp_path / "made.jsa", 30)


def test_the_run_is_given_nothing_that_names_what_is_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark/conf")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a key")
    told = "import os; print(sorted(n for n in os.environ if n.split('_')[0] in %r))"
    command = [sys.executable, "-c", told % ["SPARK", "PYSPARK", "AWS"]]
    with pytest.raises(Fatal, match=r"; \[\]$"):
        appcds_training.gathered(command, tmp_path / "made.jsa", 30)


def test_a_full_disk_is_said_and_nothing_half_made_stays(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        appcds_training, "gathered", lambda command, made: made.write_bytes(b"classes")
    )

    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    said: list[str] = []
    assert not appcds_training.make_archive(said.append)
    assert said[-1].endswith("No space left on device")
    assert {path.suffix for path in kept.parent.iterdir()} == {".failed", ".lock"}


def test_two_that_begin_at_once_gather_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Path] = []

    def slowly(command: list[str], made: Path) -> None:
        begun.append(made)
        time.sleep(1.5)
        made.write_bytes(b"classes")

    monkeypatch.setattr(appcds_training, "gathered", slowly)
    said: list[str] = []
    with ThreadPoolExecutor(2) as both:
        assert list(both.map(lambda _: appcds_training.make_archive(said.append), range(2))) == [
            True,
            True,
        ]
    assert len(begun) == 1
    assert said[-1] == f"waiting for Spark's classes: process {os.getpid()} is gathering them"


SLEEPS = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
BEGINS_A_RUN = f"""
import sys
from pathlib import Path
from headgate.demo import appcds_training
appcds_training.gathered([sys.executable, "-c", {SLEEPS!r}], Path(sys.argv[1]), 600)
"""


@pytest.mark.full
def test_a_run_ends_with_whoever_began_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BEGINS_A_RUN, str(tmp_path / "made.jsa")]
    beginner = subprocess.Popen(command, cwd=project_root())
    pid = tmp_path / "pid"
    try:
        until(lambda: pid.exists() and bool(pid.read_text()))
    finally:
        beginner.kill()
        beginner.wait()
    until(lambda: not psutil.pid_exists(int(pid.read_text())))


def test_a_run_that_fails_is_said_noted_and_not_tried_again_unasked(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def rehearse(command: list[str], made: Path) -> None:
        tried.append(made.parent)
        if len(tried) < 3:
            raise Fatal("no broker")
        made.write_bytes(b"classes")

    monkeypatch.setattr(appcds_training, "gathered", rehearse)
    said: list[str] = []
    assert not appcds_training.make_archive(said.append)
    assert said[-1] == "Spark's classes are not gathered, all works without: no broker"
    assert not appcds_training.make_archive(said.append)
    assert len(tried) == 1
    assert not appcds_training.make_archive(said.append, again=True)
    old = kept.with_name("classes-of-a-java-that-is-gone.jsa")
    other = kept.with_name("classes-of-another-checkout.jsa")
    for one, days in ((old, 31), (other, 1)):
        one.touch()
        os.utime(one, times=(0, time.time() - days * 86400))
    assert appcds_training.make_archive(said.append, again=True)
    assert kept.read_bytes() == b"classes"
    assert not old.exists()
    assert other.exists()
    assert not kept.with_suffix(".failed").exists()
    assert appcds_training.make_archive(said.append)
    assert len(tried) == 3
    assert not any(own.exists() for own in tried)


def test_where_nothing_can_be_kept_nothing_is_gathered(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    said: list[str] = []
    assert not appcds_training.make_archive(said.append)
    assert said == [
        f"Spark's classes are not gathered, all works without: {kept.parent} is read-only"
    ]


@pytest.mark.full
def test_setting_up_gathered_classes_and_a_session_maps_them(spark: SparkSession) -> None:
    there = appcds.file()
    failed = there.with_suffix(".failed")
    if failed.exists():
        pytest.skip(f"all works without: {failed.read_text()}")
    if not os.access(there.parent, os.W_OK) and not there.exists():
        pytest.skip(f"all works without: {there.parent} is read-only")
    assert there.exists(), "make test gathers them"
    process = jvm_process()
    assert process is not None
    jvm = psutil.Process(process.pid)
    assert str(there) in {one.path for one in jvm.memory_maps()}
